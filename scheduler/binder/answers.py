"""What an answer of the API server means for one pod: pure translation, no decisions about the gang.

The rules: 409 tells nothing by itself (another scheduler, our own earlier try, a deletion, a gate), so the pod is read.
500, 502 and 504 may have been carried out: read. 429 and 503 were not: try again. 404 means that the pod is gone. A
disruption budget says no with a 429 too, but it does not mean that there are too many requests.
"""

from __future__ import annotations

import msgspec

from scheduler.binder.causes import CONFLICT, POD_GATED, POD_GONE, UNKNOWN
from scheduler.binder.record import ABOUT_VICTIMS, READS, Answer, Kind, Reading, Verb
from scheduler.cluster.client import ApiError, OutcomeUnknown, RequestFailed

TOO_MANY = "TooManyRequests"
SERVER_ERROR = "ServerError"
UNREACHABLE = "Unreachable"
UNAUTHORIZED = "Unauthorized"
FORBIDDEN = "Forbidden"
REJECTED = "Rejected"
BAD_ANSWER = "BadAnswer"
BUDGET = "DisruptionBudget"
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


class _Cause(msgspec.Struct, gc=False):
    reason: str = ""


class _Details(msgspec.Struct, gc=False):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct, gc=False):
    details: _Details | None = None


_decode = msgspec.json.Decoder(_Pod).decode
_decode_status = msgspec.json.Decoder(_Status).decode


def _ran(container: _Container) -> bool:
    return any(
        state is not None and (state.running is not None or state.terminated is not None)
        for state in (container.state, container.last_state)
    )


def _of_budget(error: ApiError) -> bool:
    try:
        details = _decode_status(error.body).details
    except msgspec.MsgspecError:  # not a Status: somebody before the API server
        return False
    return any(cause.reason == BUDGET for cause in (details and details.causes) or ())


def read_pod(data: bytes, uid: str, verb: Verb = Verb.READ) -> Answer:
    """Return what a pod says of itself. A pod of another uid under the name means that ours is gone."""
    try:
        pod = _decode(data)
    except msgspec.MsgspecError:
        return Answer(verb, Kind.RETRY, BAD_ANSWER)
    if pod.metadata.uid != uid:
        return Answer(verb, Kind.SEEN, reading=Reading(gone=True))
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
    return Answer(verb, Kind.SEEN, reading=reading)


def failed(verb: Verb, error: RequestFailed) -> Answer:
    """Return what a failed request means."""
    if isinstance(error, ApiError):
        return _refused(verb, error)
    if isinstance(error, OutcomeUnknown):
        return Answer(verb, Kind.RETRY if verb in READS else Kind.DOUBT, UNKNOWN)
    return Answer(verb, Kind.RETRY, UNREACHABLE)


def _refused(verb: Verb, error: ApiError) -> Answer:
    after = max(0.0, error.retry_after or 0.0)
    match error.status:
        case 404:
            if verb is Verb.READ or verb in ABOUT_VICTIMS:
                return Answer(verb, Kind.SEEN, reading=Reading(gone=True))
            return DELETED if verb is Verb.DELETE else Answer(verb, Kind.REFUSED, POD_GONE, permanent=True)
        case 409 if verb not in READS:
            return Answer(verb, Kind.DOUBT, CONFLICT)
        case 422 if verb is Verb.MARK:  # also the answer where the pod of that name is another one
            return Answer(verb, Kind.DOUBT, REJECTED)
        case 429 if verb is Verb.EVICT and _of_budget(error):
            return Answer(verb, Kind.RETRY, BUDGET, after=after)
        case 429:
            return Answer(verb, Kind.RETRY, TOO_MANY, after=after)
        case 401:
            return Answer(verb, Kind.RETRY, UNAUTHORIZED)
        case 403:
            return Answer(verb, Kind.REFUSED, FORBIDDEN)
        case 502 | 504:
            return Answer(verb, Kind.RETRY if verb in READS else Kind.DOUBT, UNKNOWN, after=after)
        case 500 if verb in (Verb.BIND, Verb.MARK, Verb.EVICT, Verb.REMOVE):
            return Answer(verb, Kind.DOUBT, SERVER_ERROR, after=after)
        case status if status >= 500 or status in (408, 425):
            return Answer(verb, Kind.RETRY, SERVER_ERROR, after=after)
        case _:
            gated = verb is Verb.BIND and "schedulingGates" in error.message
            return Answer(verb, Kind.REFUSED, POD_GATED if gated else REJECTED, permanent=not gated)
