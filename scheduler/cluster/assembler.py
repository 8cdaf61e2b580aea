"""BindRequests from JSON: objects, and parts of objects, become a `BindRequest` again.

Decided here: what of an object that somebody may have changed is refused, and when a request that was written in parts
is whole. The fields are described in `bindrequests`, which writes them. Invariant: parts without their header, and a
header without all of its parts, are nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from scheduler.cluster.bindlines import BadRequest, read_claims, read_members, read_victims
from scheduler.cluster.bindrequests import MANY_GANGS, PART_OF, all_bound
from scheduler.model.bindrequest import BindFailure, BindRequest, GangOutcome
from scheduler.model.decisions import Place


def read_time(text: str) -> float:
    """Return the seconds since the epoch of an RFC 3339 time. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.timestamp()


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
    queue: str = ""


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
    gangs = tuple(_place(meta.name, number, gang) for number, gang in enumerate(spec.gangs))
    unlisted = status.phase == "Bound" and not status.gangs and len(gangs) > MANY_GANGS
    request = BindRequest(
        name=meta.name,
        uid=meta.uid,
        session=spec.session,
        epoch=spec.epoch,
        deadline=deadline,
        gangs=gangs,
        phase=status.phase,
        outcomes=all_bound(gangs) if unlisted else tuple(map(_gang_outcome, status.gangs)),
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
        queue=gang.queue,
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
