"""What every dialect is to the rest of the house, and what all of them share: reading objects that may be malformed.

Decided here: the protocol, the limits of a minimum, and that a field of the wrong type is a `Problem` naming it while
the object keeps its identity. Not known here: any particular API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from scheduler.dialects.membership import ON_DOMAIN_LOST, SUSPEND, moves_whole, suspended
from scheduler.dialects.meta import Identity, Undecodable, seconds, undecodable
from scheduler.dialects.requests import exact, rounded
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Condition, Problem
from scheduler.model.queues import Queue, QueueFacts
from scheduler.model.resources import Amounts
from scheduler.model.topology import HyperNode, Topology, TopologyFacts

MAX_MEMBERS = 2**31 - 1
MAX_MESSAGE = 4096
"""A condition message is cut here: the API allows 32,768 characters, and nobody reads more."""
RAN = ("Running", "Degraded", "Completed", "Unknown")
"""Phases, in neutral words, of a group that once reached its minimum."""
LATER = "is not supported by this version"


@dataclass(frozen=True, slots=True)
class DialectResource:
    """A resource that a dialect reads. `versions` are those that it understands, best first.

    `status_subresource`: whether the resource normally has one. A cluster may differ, so discovery has the last word:
    without one, the status is patched on the object itself. `read_only`: nothing is ever written to it.
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    namespaced: bool
    role: Literal["group", "queue", "topology", "hypernode"]
    status_subresource: bool = True
    read_only: bool = False


class Dialect(Protocol):
    """One foreign API: JSON in, model out, status patch back. Decoders raise `Undecodable` only without identity."""

    name: ClassVar[str]
    resources: ClassVar[tuple[DialectResource, ...]]

    def decode_group(self, raw: bytes | msgspec.Raw, api_version: str) -> PodGroup:
        """Return a group; fields that cannot be used are in its `problems`."""

    def decode_queue(self, raw: bytes | msgspec.Raw, api_version: str) -> Queue:
        """Return a queue; fields that cannot be used are in its `problems`. `Undecodable` where there are no queues."""

    def status_patch(self, group: PodGroup, status: SetStatus, text: str, now: str) -> dict[str, Any] | None:
        """Return a merge patch that makes the object say `status`; None when it says so already.

        `text` is the verdict in words; `now` is RFC 3339. `group` must be as last read: lists are replaced as a whole.
        """

    def api_path(self, group: PodGroup) -> str:
        """Return the path of the object, without "/status"."""

    def queue_status_patch(self, queue: Queue, facts: QueueFacts, now: str) -> dict[str, Any] | None:
        """Return a merge patch that makes a queue's object say `facts`; None when it says so already.

        `now` is RFC 3339. `queue` must be as last read. What changes with every second is no reason to write by itself
        more often than once a minute.
        """

    def queue_path(self, queue: Queue) -> str:
        """Return the path of a queue's object, without "/status"."""

    def decode_topology(self, raw: bytes | msgspec.Raw, api_version: str) -> Topology:
        """Return a topology; fields that cannot be used are in its `problems`. `Undecodable` where there are none."""

    def decode_hypernode(self, raw: bytes | msgspec.Raw, api_version: str) -> HyperNode:
        """Return a hyper-node; fields that cannot be used are in its `problems`. `Undecodable` where there are none."""

    def topology_status_patch(self, one: Topology | HyperNode, facts: TopologyFacts, now: str) -> dict[str, Any] | None:
        """Return a merge patch that makes the object say `facts`; None when it says so already or has no status.

        `now` is RFC 3339. `one` must be as last read.
        """

    def topology_path(self, one: Topology | HyperNode) -> str:
        """Return the path of the object of a topology or a hyper-node, without "/status"."""


class Metadata(Identity, gc=False, rename="camel"):
    """Identity of an object; `labels` and `annotations` as written."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Envelope(msgspec.Struct, gc=False):
    """Any object: metadata typed (every API server guarantees it), the rest to be looked at with suspicion."""

    metadata: Metadata
    spec: msgspec.Raw = msgspec.Raw(b"")
    status: msgspec.Raw = msgspec.Raw(b"")


_envelope = msgspec.json.Decoder(Envelope)


def open_envelope(kind: str, raw: bytes | msgspec.Raw) -> Envelope:
    """Return the outer part of an object. Raises `Undecodable` when not even its identity can be read."""
    try:
        envelope = _envelope.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise undecodable(kind, raw, cause) from cause
    if not envelope.metadata.uid:
        raise Undecodable(f"{kind} {envelope.metadata.namespace}/{envelope.metadata.name}: has no uid")
    return envelope


def open_spec(envelope: Envelope, problems: list[Problem]) -> Reader:
    """Return a reader of the spec; one that is not an object is a problem, an absent one is empty."""
    return Reader(msgspec.json.decode(envelope.spec) if envelope.spec else None, "spec", problems)


def plain(raw: msgspec.Raw | bytes) -> dict[str, Any]:
    """Return an object that was kept raw; anything but an object is empty."""
    value = msgspec.json.decode(raw) if raw else None
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class Opened:
    """A group's object, opened: `problems` grows while `spec` is read."""

    metadata: Metadata
    spec: Reader
    status: dict[str, Any]
    raw_status: bytes
    problems: list[Problem]

    @property
    def suspended(self) -> str:
        """The field that suspends the group, "" for none: an annotation, for APIs that have no field for it."""
        return suspended((self.metadata.annotations or {}).get(SUSPEND, ""), self.problems)

    @property
    def moves_whole(self) -> bool:
        """Whether all of the group may be moved when its domain is lost: an annotation, for APIs without a field."""
        return moves_whole((self.metadata.annotations or {}).get(ON_DOMAIN_LOST, ""), self.problems)

    @property
    def marked_queue(self) -> str:
        """The queue that a label, else an annotation, of the object names: for APIs that have no field for it."""
        marks = {**(self.metadata.annotations or {}), **(self.metadata.labels or {})}
        return marks.get("scheduling.muster.sh/queue", "")


class PodGroupDialect:
    """What the dialects share, most of which have an object named PodGroup; the other kinds are up to each of them."""

    name: ClassVar[str]
    resources: ClassVar[tuple[DialectResource, ...]]

    def decode_topology(self, raw: bytes | msgspec.Raw, api_version: str) -> Topology:
        """Refuse: there are no topologies unless a dialect says otherwise."""
        raise Undecodable(f"{self.name} has no topologies")

    def decode_hypernode(self, raw: bytes | msgspec.Raw, api_version: str) -> HyperNode:
        """Refuse: there are no hyper-nodes unless a dialect says otherwise."""
        raise Undecodable(f"{self.name} has no hyper-nodes")

    def topology_status_patch(self, one: Topology | HyperNode, facts: TopologyFacts, now: str) -> dict[str, Any] | None:
        """Say nothing: there is no status unless a dialect says otherwise."""
        return None

    def topology_path(self, one: Topology | HyperNode) -> str:
        """Return the path of the object."""
        plural = "hypernodes" if isinstance(one, HyperNode) else "topologies"
        return f"/apis/{one.api_version}/{plural}/{one.name}"

    def open_group(self, raw: bytes | msgspec.Raw) -> Opened:
        """Return the parts of a group's object. Raises `Undecodable` when not even its identity can be read."""
        envelope = open_envelope(f"PodGroup.{self.resources[0].group}", raw)
        problems: list[Problem] = []
        spec, status = open_spec(envelope, problems), plain(envelope.status)
        return Opened(envelope.metadata, spec, status, bytes(envelope.status), problems)

    def identified(self, opened: Opened, api_version: str) -> PodGroup:
        """Return a group with its identity and what every object says of itself; the rest has its defaults."""
        meta = opened.metadata
        return PodGroup(
            key=f"{self.name}/{meta.namespace}/{meta.name}",
            uid=meta.uid,
            dialect=self.name,
            namespace=meta.namespace,
            name=meta.name,
            api_version=api_version,
            kind="PodGroup",
            suspended=opened.suspended,
            moves_whole=opened.moves_whole,
            created=seconds(meta.creation_timestamp),
            generation=meta.generation,
            conditions=read_conditions(opened.status),
            deleting=meta.deletion_timestamp is not None,
            resource_version=meta.resource_version,
            raw_status=opened.raw_status,
        )

    def decode_queue(self, raw: bytes | msgspec.Raw, api_version: str) -> Queue:
        """Refuse: there are no queues unless a dialect says otherwise."""
        raise Undecodable(f"{self.resources[0].group} has no queues")

    def api_path(self, group: PodGroup) -> str:
        """Return the path of the object."""
        return f"/apis/{group.api_version}/namespaces/{group.namespace}/podgroups/{group.name}"

    def queue_status_patch(self, queue: Queue, facts: QueueFacts, now: str) -> dict[str, Any] | None:
        """Say nothing: there are no queues unless a dialect says otherwise."""
        return None

    def queue_path(self, queue: Queue) -> str:
        """Return the path of a queue's object."""
        one = next(resource for resource in self.resources if resource.role == "queue")
        return f"/apis/{one.group}/{one.versions[0]}/{one.plural}/{queue.name}"


class Reader:
    """Reads fields of one JSON object and notes what cannot be used.

    Every method takes a field name and a default for when the field is absent or unusable.
    """

    def __init__(self, value: object, path: str, problems: list[Problem]) -> None:
        self.path = path
        self.problems = problems
        if value is not None and not isinstance(value, dict):
            self._complain(path, "must be an object", value)
        self.fields: dict[str, Any] = value if isinstance(value, dict) else {}

    def _complain(self, path: str, wish: str, value: object) -> None:
        self.problems.append(Problem(path, f"{wish}, not {_shown(value)}"))

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def __contains__(self, name: str) -> bool:
        return self.fields.get(name) is not None

    def integer(self, name: str, default: int, low: int, high: int = MAX_MEMBERS) -> int:
        """Return an integer within bounds."""
        value = self.fields.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self._complain(self.at(name), "must be an integer", value)
            return default
        if not low <= value <= high:
            self._complain(self.at(name), f"must be from {low} to {high}", value)
            return default
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return a string."""
        value = self.fields.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            self._complain(self.at(name), "must be a string", value)
            return default
        return value

    def flag(self, name: str) -> bool | None:
        """Return a boolean, or None when it is absent or unusable."""
        value = self.fields.get(name)
        if value is None or isinstance(value, bool):
            return value
        self._complain(self.at(name), "must be true or false", value)
        return None

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """Return one of a few words."""
        value = self.text(name, default)
        if value in choices:
            return value
        self._complain(self.at(name), f"must be one of {', '.join(choices)}", value)
        return default

    def object(self, name: str) -> Reader:
        """Return a reader of a nested object; an absent one is empty."""
        return Reader(self.fields.get(name), self.at(name), self.problems)

    def objects(self, name: str) -> Iterator[Reader]:
        """Yield a reader for each object of a list."""
        value = self.fields.get(name)
        if value is None:
            return
        if not isinstance(value, list):
            self._complain(self.at(name), "must be a list", value)
            return
        for i, item in enumerate(value):
            yield Reader(item, f"{self.at(name)}[{i}]", self.problems)

    def amounts(self, name: str, *, bounded: bool = True) -> Amounts:
        """Return a map of quantities, rounded up, without zeros; with `bounded` one that is too large is a problem."""
        return rounded(exact(self.object(name).fields, self.at(name), self.problems, bounded=bounded))

    def refuse(self, name: str, message: str) -> None:
        """Note that a field that is present cannot be honoured."""
        if self.fields.get(name) not in (None, {}, []):
            self.problems.append(Problem(self.at(name), message))


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def read_conditions(status: dict[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions of a status, without those that are not objects."""
    found = status.get("conditions")
    if not isinstance(found, list):
        return ()
    return tuple(
        Condition(*(str(item.get(field) or "") for field in ("type", "status", "reason", "message")))
        for item in found
        if isinstance(item, dict)
    )


def read_counts(status: dict[str, Any], names: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return the named counters of a status that are integers, sorted."""
    found = ((name, status.get(name)) for name in names)
    return tuple(sorted((n, v) for n, v in found if isinstance(v, int) and not isinstance(v, bool)))


def counted(status: SetStatus, names: tuple[str, ...]) -> dict[str, int]:
    """Return the named counters, 0 where one is not told; nothing when none is."""
    counts = dict(status.counts)
    return {name: counts.get(name, 0) for name in names} if counts else {}


def set_condition(
    conditions: list[Any], type_: str, status: str, reason: str, message: str, now: str, **extra: object
) -> None:
    """Make a list of conditions, as in JSON, say something, in place.

    An entry that says so already is not touched. The time of transition moves only when `status` does; all other
    entries, whoever wrote them, stay as they are. `extra` fields go along when anything changes; of them only the
    generation that was looked at is a change by itself.
    """
    wish: dict[str, Any] = {"type": type_, "status": status, "reason": reason, "message": message[:MAX_MESSAGE]}
    if "observedGeneration" in extra:
        wish["observedGeneration"] = extra.pop("observedGeneration")
    for item in conditions:
        if isinstance(item, dict) and item.get("type") == type_:
            if all((item.get(field) or "") == (value or "") for field, value in wish.items()):
                return
            if item.get("status") != status or not item.get("lastTransitionTime"):
                item["lastTransitionTime"] = now
            item.update(wish)
            item.update(extra)
            return
    conditions.append({**wish, "lastTransitionTime": now, **extra})


def has_condition(conditions: list[Any], type_: str, status: str | None = None) -> bool:
    """Whether a condition is there (and, when asked, has that status)."""
    return any(
        isinstance(item, dict) and item.get("type") == type_ and (status is None or item.get("status") == status)
        for item in conditions
    )


def copied_conditions(status: dict[str, Any]) -> list[Any]:
    """Return a list of conditions that may be changed without changing the status that was read."""
    found = status.get("conditions")
    return [dict(item) if isinstance(item, dict) else item for item in found] if isinstance(found, list) else []


def difference(before: dict[str, Any], wish: dict[str, Any]) -> dict[str, Any] | None:
    """Return a merge patch for the status: the keys of `wish` that `before` does not say; None when there are none.

    A zero or an empty value that was never there says nothing new.
    """
    changed = {name: value for name, value in wish.items() if before.get(name) != value}
    changed = {name: value for name, value in changed.items() if value or name in before}
    return {"status": changed} if changed else None
