"""What each API calls the phases of a group: the word that the status of its object shows, and so every viewer prints.

Decided here: the words. A dialect that is not listed has no phase in its status; its groups are told of in the model's
own words, which are the keys.
"""

from __future__ import annotations

from collections.abc import Mapping

SUSPENDED = "Suspended"
"""The word of Muster's own API for a group that is kept out."""
WORDS: Mapping[str, Mapping[str, str]] = {
    "muster": {
        "Pending": "Pending",
        "Inqueue": "Admitted",
        "Scheduling": "Binding",
        "Running": "Running",
        "Degraded": "Degraded",
        "Completed": "Completed",
        "Failed": "Failed",
        "Unknown": "Degraded",
    },
    "volcano": {
        "Pending": "Pending",
        "Inqueue": "Inqueue",
        "Scheduling": "Inqueue",
        "Running": "Running",
        "Degraded": "Unknown",
        "Completed": "Completed",
        "Failed": "Completed",
        "Unknown": "Unknown",
    },
    "coscheduling": {
        "Pending": "Pending",
        "Inqueue": "Pending",
        "Scheduling": "Scheduling",
        "Running": "Running",
        "Degraded": "Unknown",
        "Completed": "Finished",
        "Failed": "Failed",
        "Unknown": "Unknown",
    },
}
"""By dialect, the word for each phase of the model."""


def word_of(dialect: str, phase: str, *, kept_out: bool = False) -> str:
    """Return the word for a phase of the model; what is no phase of it stays. kept_out: the group is suspended."""
    if kept_out and dialect == "muster" and phase in ("Pending", "Inqueue"):
        return SUSPENDED
    return WORDS.get(dialect, {}).get(phase, phase)
