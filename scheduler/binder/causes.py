"""Stable words for why a member is not bound, as the machine gives them; answers and checks bring their own."""

from __future__ import annotations

DEADLINE = "DeadlineExceeded"
POD_GONE = "PodGone"
POD_GATED = "PodGated"
POD_ENDED = "PodEnded"
CONFLICT = "Conflict"
STARTED = "Started"
WITHDRAWN = "Withdrawn"
MALFORMED = "Malformed"
VICTIMS_REMAIN = "VictimsRemain"
UNKNOWN = "OutcomeUnknown"
