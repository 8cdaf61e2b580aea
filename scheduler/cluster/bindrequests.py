"""BindRequests as JSON: how decisions become objects, and objects become a `BindRequest` again.

Decided here: names, how the gangs of one session are spread over requests, and how one gang that is too large for an
object is cut into parts. Must not know how objects are sent or what the binder does with them. Invariants: a gang's
minimum is never split over two requests; the same decisions give the same names and the same bytes; parts without
their header are nothing.

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
                     moreFailures: how many are not listed}

A header has its one gang with no placements and no victims; those of the parts follow each other in the order of their
numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from scheduler.cluster.bindlines import (
    BadRequest,
    claim_line,
    member_line,
    read_claims,
    read_members,
    read_victims,
    victim_line,
)
from scheduler.model.bindrequest import BindFailure, BindRequest, GangOutcome
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

_ENVELOPE = 4 * 1024
"""Room in a part for everything but its placements: names and labels are at most 253 bytes each."""

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_NOT_DNS = re.compile(r"[^a-z0-9-]+")


# -- writing ----------------------------------------------------------------------------------------------------------


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
    return {"status": {"phase": request.phase, "gangs": [_outcome(request, outcome) for outcome in request.outcomes]}}


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


def read_time(text: str) -> float:
    """Return the seconds since the epoch of an RFC 3339 time. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.timestamp()


# -- reading ----------------------------------------------------------------------------------------------------------


class _Ref(msgspec.Struct, gc=False, rename="camel"):
    key: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    kind: str = ""


class _Gang(msgspec.Struct, gc=False):
    group: _Ref
    minimum: int = 0
    placements: str = ""
    volumes: str = ""
    victims: str = ""


class _Spec(msgspec.Struct, gc=False):
    session: str
    epoch: int
    deadline: str
    gangs: list[_Gang] = []
    parts: int = 0
    part: int = 0


class _Failure(msgspec.Struct, gc=False):
    pod: str = ""
    uid: str = ""
    node: str = ""
    cause: str = ""
    permanent: bool = False
    about: str = ""


class _GangStatus(msgspec.Struct, gc=False, rename="camel"):
    index: int
    phase: str = ""
    bound: int = 0
    failures: list[_Failure] = []
    more_failures: int = 0


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    gangs: list[_GangStatus] = []


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _Spec
    status: _Status | None = None


_decode = msgspec.json.Decoder(_Object).decode


@dataclass(frozen=True, slots=True)
class Piece:
    """One object as read. `parts` > 0: a header without placements. `part` > 0: a part of `part_of`."""

    request: BindRequest
    parts: int = 0
    part: int = 0
    part_of: str = ""

    @property
    def name(self) -> str:
        """The object's name."""
        return self.request.name

    @property
    def uid(self) -> str:
        """The object's identity."""
        return self.request.uid

    @property
    def resource_version(self) -> str:
        """The object's version as read."""
        return self.request.resource_version


def read(raw: bytes | msgspec.Raw | Mapping[str, Any]) -> Piece:
    """Return what one object holds. Raises `BadRequest`."""
    try:
        found = _decode(raw) if isinstance(raw, bytes | msgspec.Raw) else msgspec.convert(raw, _Object)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"BindRequest: {error}") from error
    meta, spec, status = found.metadata, found.spec, found.status or _Status()
    try:
        deadline = read_time(spec.deadline)
        created = read_time(meta.creation_timestamp) if meta.creation_timestamp else 0.0
    except ValueError as error:
        raise BadRequest(f"BindRequest {meta.name}: spec.deadline or metadata.creationTimestamp: {error}") from error
    part_of = (meta.labels or {}).get(PART_OF, "")
    if bool(part_of) != (spec.part > 0):
        raise BadRequest(f"BindRequest {meta.name}: label {PART_OF} and spec.part must be given together")
    if (spec.parts > 0 or spec.part > 0) and len(spec.gangs) != 1:
        raise BadRequest(f"BindRequest {meta.name}: spec.gangs: a request in parts has one gang, not {len(spec.gangs)}")
    for number, outcome in enumerate(status.gangs):
        if not 0 <= outcome.index < len(spec.gangs):
            raise BadRequest(f"BindRequest {meta.name}: status.gangs[{number}].index: {outcome.index} is no gang")
    request = BindRequest(
        name=meta.name,
        uid=meta.uid,
        session=spec.session,
        epoch=spec.epoch,
        deadline=deadline,
        gangs=tuple(_place(meta.name, number, gang) for number, gang in enumerate(spec.gangs)),
        phase=status.phase,
        outcomes=tuple(_gang_outcome(outcome) for outcome in status.gangs),
        created=created,
        resource_version=meta.resource_version,
    )
    return Piece(request, spec.parts, spec.part, part_of)


def _place(request: str, number: int, gang: _Gang) -> Place:
    ref = gang.group
    where = f"BindRequest {request}: spec.gangs[{number}]"
    return Place(
        group=ref.key,
        group_uid=ref.uid,
        namespace=ref.namespace,
        name=ref.name,
        api_version=ref.api_version,
        kind=ref.kind,
        minimum=gang.minimum,
        assignments=tuple(read_members(where, ref.namespace, gang.placements)),
        steps=tuple(read_claims(where, ref.namespace, gang.volumes)),
        victims=tuple(read_victims(where, gang.victims)),
    )


def _gang_outcome(outcome: _GangStatus) -> GangOutcome:
    failures = tuple(BindFailure(f.uid, f.pod, f.node, f.cause, f.permanent, f.about) for f in outcome.failures)
    return GangOutcome(outcome.index, outcome.phase, outcome.bound, failures, outcome.more_failures)


@dataclass(slots=True)
class Assembler:
    """Puts requests together from the objects of a watch, in whatever order they come.

    `offer` every object; `remove` every deleted one. What they return is what the rest of the program may see.
    """

    _headers: dict[str, Piece] = field(default_factory=dict)
    _parts: dict[str, dict[int, Piece]] = field(default_factory=dict)
    _part_names: dict[str, tuple[str, int]] = field(default_factory=dict)
    _whole: dict[str, tuple[Place, ...]] = field(default_factory=dict)

    def offer(self, raw: bytes | msgspec.Raw | Mapping[str, Any] | Piece) -> BindRequest | None:
        """Take an object that appeared or changed; return the request that it completes or changes, or None.

        Raises `BadRequest`; the object is then as good as absent.
        """
        piece = raw if isinstance(raw, Piece) else read(raw)
        if piece.part:
            self._part_names[piece.name] = (piece.part_of, piece.part)
            self._parts.setdefault(piece.part_of, {})[piece.part] = piece
            header = self._headers.get(piece.part_of)
            # A spec never changes: what is whole stays whole, and its parts have nothing more to say.
            return self._assemble(header) if header is not None and header.name not in self._whole else None
        if not piece.parts:
            return piece.request
        self._headers[piece.name] = piece
        return self._assemble(piece)

    def _assemble(self, header: Piece) -> BindRequest | None:
        gangs = self._whole.get(header.name)
        if gangs is None:
            parts = self._parts.get(header.name, {})
            if any(number not in parts for number in range(1, header.parts + 1)):
                return None
            pieces = [parts[number].request.gangs[0] for number in range(1, header.parts + 1)]
            assignments = tuple(assignment for piece in pieces for assignment in piece.assignments)
            steps = tuple(step for piece in pieces for step in piece.steps)
            victims = tuple(victim for piece in pieces for victim in piece.victims)
            gangs = (replace(header.request.gangs[0], assignments=assignments, steps=steps, victims=victims),)
            self._whole[header.name] = gangs
        return replace(header.request, gangs=gangs)

    def remove(self, name: str) -> bool:
        """Take a deleted object; return whether a request is gone with it (a lost part takes nothing away)."""
        part_of, number = self._part_names.pop(name, ("", 0))
        if part_of:
            remaining = self._parts[part_of]
            remaining.pop(number, None)
            if not remaining:
                del self._parts[part_of]
            return False
        header = self._headers.pop(name, None)
        assembled = self._whole.pop(name, None)
        return header is None or assembled is not None

    def part_names(self, name: str) -> list[str]:
        """Return the names of the parts of a request, to be deleted after its header."""
        return [piece.name for _, piece in sorted(self._parts.get(name, {}).items())]

    def orphans(self, now: float, age: float) -> list[str]:
        """Return the parts older than `age` seconds that have no header: a write that broke off, or a deleted one."""
        return sorted(
            piece.name
            for part_of, parts in self._parts.items()
            if part_of not in self._headers
            for piece in parts.values()
            if now - piece.request.created >= age
        )

    def incomplete(self) -> list[str]:
        """Return the headers whose parts are not all there: after a full list they never will be."""
        return sorted(name for name in self._headers if name not in self._whole)
