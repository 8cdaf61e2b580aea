"""BindRequests as JSON: how decisions become objects. `assembler` reads them.

Decided here: names, how the gangs of one session are spread over requests, and how one gang that is too large for an
object is cut into parts. Must not know how objects are sent or what the binder does with them. Invariants: a gang's
minimum is never split over two requests; the same decisions give the same names and the same bytes.

Fields of an object (group scheduling.muster.sh/v1alpha1, plural bindrequests, in the scheduler's namespace):

    metadata.name    <session>-e<epoch>-<n>; a part is <name of the header>-p<i>
    metadata.labels  scheduling.muster.sh/part-of: <name of the header>, on parts only
    spec             session, epoch, deadline (RFC 3339 with milliseconds), gangs[]; only the epoch is ever
                     changed, by a new leader that takes the request over
                     parts: on a header, how many parts there are; part: on a part, its number from 1
      gangs[]        group {key, namespace, name, uid, apiVersion, kind}, minimum, placements
      placements     one text with a line for each member: pod, uid, node, and namespace where it is not the group's.
                     A text, because the API server takes an object for each member apart at every write of the status
      volumes        likewise, what is done before the first bind: a line for each claim: uid of the pod, claim, uid
                     of the claim, the volume that it is given or "-" where one is made, "kept" where that was so
                     before or "new", and namespace where it is not the group's; absent without claims
      victims        likewise, who must be gone before the first bind: a line for each pod: pod, namespace, uid, node,
                     key of its group, why, seconds that it has to end, then the node that is kept for the pod made in
                     its place, the uid of the controller that makes it and what it asks for (name=amount, with commas
                     between), and the name under which people know its group; "-" for what there is not
    status           phase, gangs[] {index, uid, phase, bound, failures[] {pod, uid, node, cause, permanent, about},
                     moreFailures: how many are not listed}; no gangs where all of many were bound whole, since the
                     API server takes each apart, and that is what most requests end with

A header has its one gang with no placements and no victims; those of the parts follow each other in the order of their
numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from scheduler.cluster.bindlines import claim_line, member_line, victim_line
from scheduler.model.bindrequest import BindRequest, GangOutcome
from scheduler.model.decisions import Assignment, Place, Victim

GROUP = "scheduling.muster.sh"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "BindRequest"
PLURAL = "bindrequests"
PART_OF = "scheduling.muster.sh/part-of"
PODS_A_REQUEST = 500
"""Pods that share one request, and with it one write; a larger gang has a request of its own."""

BYTES_AN_OBJECT = 900 * 1024
"""etcd takes 1.5 MiB and the API server adds metadata; a request in more bytes than this is written in parts."""

PODS_WITH_VOLUMES = 20
"""Pods that stand alone and wait for volumes share a request in such numbers: it is reported when the last is done."""

FAILURES_LISTED = 100
"""Failures of one gang that its status names; of the rest it says how many."""

MANY_GANGS = 32
"""Of more gangs than this, all bound whole, the status does not list each."""

_ENVELOPE = 4 * 1024
"""Room in a part for everything but its placements: names and labels are at most 253 bytes each."""

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_NOT_DNS = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Document:
    """One object to create, already encoded: what is measured is what is sent."""

    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Bundle:
    """One request as it is written: the parts, if any, and then the header, whose creation is the commit."""

    name: str
    places: tuple[Place, ...]
    parts: tuple[Document, ...]
    header: Document
    deadline: float = 0.0


def request_name(session: str, epoch: int, number: int, salt: str = "") -> str:
    """Return the name of the `number`-th request (from 1) of a session, as a DNS name."""
    base = f"{session}-e{epoch}-{number}" + (f"-{salt}" if salt else "")
    return _NOT_DNS.sub("-", base.lower()).strip("-")


def batches(places: Sequence[Place], pods: int = PODS_A_REQUEST) -> list[tuple[Place, ...]]:
    """Group decisions, in order, into requests of up to `pods` pods; those that wait for volumes come later, apart.

    A decision with a minimum stays whole, however large it is. One whose members stand alone (minimum 0) may be cut.
    One that waits for victims comes last, whole and alone, so that nobody waits for the victims of another.
    """
    free = [place for place in places if not place.victims]
    plain = _batches([place for place in free if not place.steps], pods)
    slow = _batches([place for place in free if place.steps], min(pods, PODS_WITH_VOLUMES))
    return plain + slow + [(place,) for place in places if place.victims]


def _batches(places: Sequence[Place], pods: int) -> list[tuple[Place, ...]]:
    result: list[tuple[Place, ...]] = []
    current: list[Place] = []
    size = 0
    for piece in _pieces(places, pods):
        count = len(piece.assignments)
        if current and size + count > pods:
            result.append(tuple(current))
            current, size = [], 0
        current.append(piece)
        size += count
    if current:
        result.append(tuple(current))
    return result


def _pieces(places: Sequence[Place], pods: int) -> Iterator[Place]:
    for place in places:
        if place.minimum > 0 or len(place.assignments) <= pods:
            if place.assignments or place.victims:
                yield place
            continue
        for start in range(0, len(place.assignments), pods):
            yield _part(place, place.assignments[start : start + pods])


def _part(place: Place, assignments: tuple[Assignment, ...]) -> Place:
    """Return a part of a decision, with what is to be done for its members."""
    if not place.steps:
        return replace(place, assignments=assignments, victims=())
    uids = {assignment.uid for assignment in assignments}
    steps = tuple(step for step in place.steps if step.uid in uids)
    return replace(place, assignments=assignments, steps=steps, victims=())


def bundles(
    session: str,
    epoch: int,
    deadline: float,
    namespace: str,
    places: Sequence[Place],
    *,
    volume_time: float = 0.0,
    victim_time: float = 0.0,
    pods: int = PODS_A_REQUEST,
    size: int = BYTES_AN_OBJECT,
) -> list[Bundle]:
    """Return the requests that make these decisions of one session durable, in order.

    volume_time, victim_time: seconds that those which wait for volumes or for victims have beside the deadline; the
    latter also have what the slowest of their victims is given to end.
    """
    made: list[Bundle] = []
    for number, batch in enumerate(batches(places, pods), start=1):
        name, until = request_name(session, epoch, number), deadline + (volume_time if batch[0].steps else 0.0)
        if batch[0].victims:
            until += victim_time + max(victim.grace for victim in batch[0].victims)
        made.append(bundle(name, session, epoch, until, namespace, batch, size=size))
    return made


def bundle(
    name: str,
    session: str,
    epoch: int,
    deadline: float,
    namespace: str,
    places: tuple[Place, ...],
    *,
    size: int = BYTES_AN_OBJECT,
) -> Bundle:
    """Return one request under a given name. Raises ValueError where several gangs are together too large."""
    spec = {"session": session, "epoch": epoch, "deadline": write_time(deadline)}
    whole = Document(name, _encode(_object(name, namespace, spec | {"gangs": [_gang(place) for place in places]})))
    if len(whole.body) <= size:
        return Bundle(name, places, (), whole, deadline)
    if len(places) != 1:
        # A batch of many gangs holds at most PODS_A_REQUEST pods; only names of absurd length get here.
        raise ValueError(f"request {name}: {len(places)} gangs in {len(whole.body)} bytes; the limit is {size}")
    (place,) = places
    documents: list[Document] = []
    for number, piece in enumerate(_cut(place, size - _ENVELOPE), start=1):
        part = f"{name}-p{number}"
        body = _object(part, namespace, spec | {"part": number, "gangs": [_gang(piece)]}, {PART_OF: name})
        documents.append(Document(part, _encode(body)))
    empty = _gang(replace(place, assignments=(), steps=(), victims=()))
    header = _object(name, namespace, spec | {"parts": len(documents), "gangs": [empty]})
    return Bundle(name, places, tuple(documents), Document(name, _encode(header)), deadline)


def _cut(place: Place, size: int) -> Iterator[Place]:
    """Cut a gang into pieces whose placements take at most `size` bytes each (or one placement, whatever it takes).

    Its victims follow, in pieces of their own.
    """
    current: list[Assignment] = []
    taken = 0
    more: dict[str, int] = {}
    for step in place.steps:
        more[step.uid] = more.get(step.uid, 0) + len(_encode(claim_line(place.namespace, step)))
    for assignment in place.assignments:
        cost = len(_encode(member_line(place.namespace, assignment)))  # its quotes are as long as an escaped line end
        cost += more.get(assignment.uid, 0)
        if current and taken + cost > size:
            yield _part(place, tuple(current))
            current, taken = [], 0
        current.append(assignment)
        taken += cost
    if current or not place.victims:
        yield _part(place, tuple(current))
    yield from _cut_victims(place, size)


def _cut_victims(place: Place, size: int) -> Iterator[Place]:
    current: list[Victim] = []
    taken = 0
    for victim in place.victims:
        cost = len(_encode(victim_line(victim)))
        if current and taken + cost > size:
            yield replace(place, assignments=(), steps=(), victims=tuple(current))
            current, taken = [], 0
        current.append(victim)
        taken += cost
    if current:
        yield replace(place, assignments=(), steps=(), victims=tuple(current))


def digest(places: Sequence[Place]) -> str:
    """Return eight characters that tell one content from another: a second name where the first is taken."""
    return hashlib.blake2b(_encode([_gang(place) for place in places]), digest_size=4).hexdigest()


def same_spec(written: bytes, found: bytes) -> bool:
    """Whether an object that was found is the one that we meant to write: the API server changes no spec."""
    ours, theirs = msgspec.json.decode(written), msgspec.json.decode(found)
    return bool(ours["spec"] == theirs.get("spec"))


def status_patch(request: BindRequest) -> Json:
    """Return the merge patch of `.../bindrequests/<name>/status` that says how far a request has come."""
    if len(request.gangs) > MANY_GANGS and request.phase == "Bound" and request.outcomes == all_bound(request.gangs):
        return {"status": {"phase": request.phase, "gangs": None}}
    return {"status": {"phase": request.phase, "gangs": [_outcome(request, outcome) for outcome in request.outcomes]}}


def all_bound(gangs: Sequence[Place]) -> tuple[GangOutcome, ...]:
    """Return how gangs end that were bound whole, in their order."""
    return tuple(GangOutcome(index, "Bound", len(place.assignments)) for index, place in enumerate(gangs))


def _object(name: str, namespace: str, spec: Json, labels: Mapping[str, str] | None = None) -> Json:
    metadata: Json = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _gang(place: Place) -> Json:
    group = {
        "key": place.group,
        "namespace": place.namespace,
        "name": place.name,
        "uid": place.group_uid,
        "apiVersion": place.api_version,
        "kind": place.kind,
    }
    gang: Json = {
        "group": {key: value for key, value in group.items() if value},
        "minimum": place.minimum,
        "placements": "".join(f"{member_line(place.namespace, assignment)}\n" for assignment in place.assignments),
    }
    if place.queue:
        gang["queue"] = place.queue
    if place.steps:
        gang["volumes"] = "".join(f"{claim_line(place.namespace, step)}\n" for step in place.steps)
    if place.victims:
        gang["victims"] = "".join(f"{victim_line(victim)}\n" for victim in place.victims)
    return gang


def _outcome(request: BindRequest, outcome: GangOutcome) -> Json:
    gang = request.gangs[outcome.index]
    result: Json = {"index": outcome.index, "uid": gang.group_uid, "phase": outcome.phase, "bound": outcome.bound}
    if outcome.failures:
        result["failures"] = [
            {"pod": f.pod, "uid": f.uid, "node": f.node, "cause": f.cause, "permanent": f.permanent}
            | ({"about": f.about} if f.about else {})
            for f in outcome.failures[:FAILURES_LISTED]
        ]
    more = max(0, len(outcome.failures) - FAILURES_LISTED) + outcome.more_failures
    if more:
        result["moreFailures"] = more
    return result


def write_time(seconds: float) -> str:
    """Return a time as RFC 3339 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(round(seconds, 3), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
