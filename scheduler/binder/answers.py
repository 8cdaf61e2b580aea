"""What an answer of the API server means for one pod: pure translation, no decisions about the gang.

The rules: 409 tells nothing by itself (another scheduler, our own earlier try, a deletion, a gate), so the pod is read.
500, 502 and 504 may have been carried out: read. 429 and 503 were not: try again. 404 means that the pod is gone.
"""

from __future__ import annotations

import msgspec

from scheduler.binder.machine import CONFLICT, POD_GATED, POD_GONE, UNKNOWN
from scheduler.binder.record import Answer, Kind, Reading, Verb
from scheduler.cluster.client import ApiError, OutcomeUnknown, RequestFailed

TOO_MANY = "TooManyRequests"
SERVER_ERROR = "ServerError"
UNREACHABLE = "Unreachable"
UNAUTHORIZED = "Unauthorized"
FORBIDDEN = "Forbidden"
REJECTED = "Rejected"
BAD_ANSWER = "BadAnswer"
NO_ANSWER = frozenset({UNREACHABLE, UNKNOWN})
"""Causes that mean that the server said nothing at all."""

BOUND = Answer(Verb.BIND, Kind.DONE)
DELETED = Answer(Verb.DELETE, Kind.DONE)
NOT_SENT = Answer(Verb.BIND, Kind.NOT_SENT)


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class _Gate(msgspec.Struct, gc=False):
    name: str = ""


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str | None = None
    scheduling_gates: list[_Gate] | None = None


class _State(msgspec.Struct, gc=False):
    running: dict[str, object] | None = None
    terminated: dict[str, object] | None = None


class _Container(msgspec.Struct, gc=False, rename="camel"):
    state: _State | None = None
    last_state: _State | None = None


class _PodStatus(msgspec.Struct, gc=False, rename="camel"):
    phase: str | None = None
    container_statuses: list[_Container] | None = None
    init_container_statuses: list[_Container] | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


_decode = msgspec.json.Decoder(_Pod).decode


def _ran(container: _Container) -> bool:
    return any(
        state is not None and (state.running is not None or state.terminated is not None)
        for state in (container.state, container.last_state)
    )


def read_pod(data: bytes, uid: str) -> Answer:
    """Return what a pod says of itself. A pod of another uid under the name means that ours is gone."""
    try:
        pod = _decode(data)
    except msgspec.MsgspecError:
        return Answer(Verb.READ, Kind.RETRY, BAD_ANSWER)
    if pod.metadata.uid != uid:
        return Answer(Verb.READ, Kind.SEEN, reading=Reading(gone=True))
    phase = pod.status.phase or "Pending"
    containers = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    reading = Reading(
        node=pod.spec.node_name or "",
        started=phase == "Running" or any(map(_ran, containers)),
        ended=phase in ("Succeeded", "Failed"),
        deleting=pod.metadata.deletion_timestamp is not None,
        gated=bool(pod.spec.scheduling_gates),
        version=pod.metadata.resource_version,
    )
    return Answer(Verb.READ, Kind.SEEN, reading=reading)


def failed(verb: Verb, error: RequestFailed) -> Answer:
    """Return what a failed request means."""
    if isinstance(error, ApiError):
        return _refused(verb, error)
    if isinstance(error, OutcomeUnknown):
        return Answer(verb, Kind.RETRY if verb is Verb.READ else Kind.DOUBT, UNKNOWN)
    return Answer(verb, Kind.RETRY, UNREACHABLE)


def _refused(verb: Verb, error: ApiError) -> Answer:
    after = max(0.0, error.retry_after or 0.0)
    match error.status:
        case 404:
            if verb is Verb.READ:
                return Answer(verb, Kind.SEEN, reading=Reading(gone=True))
            return DELETED if verb is Verb.DELETE else Answer(verb, Kind.REFUSED, POD_GONE, permanent=True)
        case 409 if verb is not Verb.READ:
            return Answer(verb, Kind.DOUBT, CONFLICT)
        case 429:
            return Answer(verb, Kind.RETRY, TOO_MANY, after=after)
        case 401:
            return Answer(verb, Kind.RETRY, UNAUTHORIZED)
        case 403:
            return Answer(verb, Kind.REFUSED, FORBIDDEN)
        case 502 | 504:
            return Answer(verb, Kind.RETRY if verb is Verb.READ else Kind.DOUBT, UNKNOWN, after=after)
        case 500 if verb is Verb.BIND:
            return Answer(verb, Kind.DOUBT, SERVER_ERROR, after=after)
        case status if status >= 500 or status in (408, 425):
            return Answer(verb, Kind.RETRY, SERVER_ERROR, after=after)
        case _:
            gated = verb is Verb.BIND and "schedulingGates" in error.message
            return Answer(verb, Kind.REFUSED, POD_GATED if gated else REJECTED, permanent=not gated)
