"""A session on disk: what the scheduler saw, its configuration, and what it decided, as a zip of JSON files.

Decided here: the file's form. JSON and not pickle, because these files are attached to reports and opened by others.
Invariant: a snapshot that was saved and loaded gives the same decisions as the one that was in memory.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from scheduler import __version__
from scheduler.config import SchedulerConfiguration
from scheduler.model.affinity import HostPort
from scheduler.model.budgets import DisruptionBudget
from scheduler.model.decisions import Decisions
from scheduler.model.groups import GroupState
from scheduler.model.nodes import Node, NodeClass
from scheduler.model.pods import Pod, Shape
from scheduler.model.presence import Carried, Presence, Selectors, Spots
from scheduler.model.queues import Queue
from scheduler.model.resources import Amounts
from scheduler.model.selecting import Labels
from scheduler.model.snapshot import Hold, NodeTable, NoGood, Snapshot
from scheduler.model.topology import HyperNode, Topology
from scheduler.model.volumes import Storage

FORMAT = 5


class BadSnapshotFile(ValueError):
    """Not a file of `muster snapshot`, or of a version that this one cannot read."""


@dataclass(frozen=True, slots=True)
class SavedSession:
    """One session: its snapshot, the configuration under which it ran, and its decisions as plain data."""

    session: str
    config: SchedulerConfiguration
    snapshot: Snapshot
    decisions: list[dict[str, Any]]


class _Meta(msgspec.Struct):
    format: int
    version: str
    session: str


class _Table(msgspec.Struct):
    names: tuple[str, ...]
    resources: tuple[str, ...]
    allocatable: list[list[int]]
    used: list[list[int]]
    slots: list[int]
    pods: list[int]
    unstated: list[list[int]]
    class_of: list[int]
    classes: tuple[NodeClass, ...]


class _Tally(msgspec.Struct):
    of: Selectors
    spots: dict[int, int]


class _Carriers(msgspec.Struct):
    of: Carried
    spots: dict[int, int]


class _Ports(msgspec.Struct):
    of: HostPort
    spots: dict[int, int]


class _Presence(msgspec.Struct):
    tallies: list[_Tally]
    carriers: list[_Carriers]
    ports: list[_Ports]
    namespaces: dict[str, Labels]


class _Body(msgspec.Struct):
    generation: int
    now: float
    table: _Table
    nodes: tuple[Node, ...]
    shapes: tuple[Shape, ...]
    groups: tuple[GroupState, ...]
    queues: tuple[Queue, ...]
    usage: dict[str, tuple[int, Amounts]]
    no_goods: tuple[NoGood, ...]
    foreign_nominated: tuple[Pod, ...]
    dialects: tuple[str, ...]
    owners: dict[str, dict[str, int]]
    presence: _Presence
    storage: Storage
    queue_usage: dict[str, Amounts]
    foreign: Amounts
    singles: dict[str, tuple[Pod, str]]
    leaving: tuple[str, ...]
    budgets: tuple[DisruptionBudget, ...]
    holds: tuple[Hold, ...]
    releasing: tuple[tuple[Pod, str], ...]
    topologies: tuple[Topology, ...]
    hypernodes: tuple[HyperNode, ...]
    awaited: dict[str, tuple[str, ...]]


def plain(decisions: Decisions) -> list[dict[str, Any]]:
    """Return decisions as plain data, in order; `decision` says what each is (`kind` is that of the group's object)."""
    return [{"decision": type(item).__name__, **msgspec.to_builtins(item)} for item in decisions.items]


def dump(session: str, config: SchedulerConfiguration, snapshot: Snapshot, decisions: Decisions) -> bytes:
    """Return the bytes of a snapshot file."""
    table = snapshot.table
    body = _Body(
        generation=snapshot.generation,
        now=snapshot.now,
        table=_Table(
            names=table.names,
            resources=table.resources,
            allocatable=table.allocatable.tolist(),
            used=table.used.tolist(),
            slots=table.slots.tolist(),
            pods=table.pods.tolist(),
            unstated=table.unstated.tolist(),
            class_of=table.class_of.tolist(),
            classes=table.classes,
        ),
        nodes=tuple(table.nodes[name] for name in table.names),
        shapes=tuple(snapshot.shapes[key] for key in sorted(snapshot.shapes)),
        groups=tuple(snapshot.groups.values()),
        queues=tuple(snapshot.queues.values()),
        usage=dict(sorted(snapshot.usage.items())),
        no_goods=snapshot.no_goods,
        foreign_nominated=snapshot.foreign_nominated,
        dialects=snapshot.dialects,
        owners={owner: dict(nodes) for owner, nodes in snapshot.owners.items()},
        presence=_presence_of(snapshot.presence),
        storage=snapshot.storage,
        queue_usage=dict(sorted(snapshot.queue_usage.items())),
        foreign=snapshot.foreign,
        singles=dict(snapshot.singles),
        leaving=tuple(sorted(snapshot.leaving)),
        awaited=dict(sorted(snapshot.awaited.items())),
        budgets=tuple(snapshot.budgets.values()),
        holds=snapshot.holds,
        releasing=snapshot.releasing,
        topologies=snapshot.topologies,
        hypernodes=snapshot.hypernodes,
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("meta.json", msgspec.json.encode(_Meta(FORMAT, __version__, session)))
        archive.writestr("config.json", msgspec.json.encode(config))
        archive.writestr("snapshot.json", msgspec.json.encode(body))
        archive.writestr("decisions.json", msgspec.json.format(msgspec.json.encode(plain(decisions))))
    return file.getvalue()


def load(data: bytes) -> SavedSession:
    """Read a snapshot file. Raises `BadSnapshotFile`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            meta = msgspec.json.decode(archive.read("meta.json"), type=_Meta)
            if meta.format != FORMAT:
                raise BadSnapshotFile(
                    f"format {meta.format} was written by muster {meta.version}; {FORMAT} is read here"
                )
            config = msgspec.json.decode(archive.read("config.json"), type=SchedulerConfiguration)
            body = msgspec.json.decode(archive.read("snapshot.json"), type=_Body)
            decisions = msgspec.json.decode(archive.read("decisions.json"))
    except (zipfile.BadZipFile, KeyError, msgspec.MsgspecError) as error:
        raise BadSnapshotFile(f"not a snapshot file: {error}") from error
    return SavedSession(meta.session, config, _snapshot(body), decisions)


def _matrix(rows: list[list[int]], width: int) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)


def _snapshot(body: _Body) -> Snapshot:
    raw = body.table
    table = NodeTable(
        names=raw.names,
        resources=raw.resources,
        allocatable=_matrix(raw.allocatable, len(raw.names)),
        used=_matrix(raw.used, len(raw.names)),
        slots=np.array(raw.slots, dtype=np.int64),
        pods=np.array(raw.pods, dtype=np.int64),
        unstated=_matrix(raw.unstated, len(raw.names)),
        class_of=np.array(raw.class_of, dtype=np.int32),
        classes=raw.classes,
        nodes={node.name: node for node in body.nodes},
    )
    return Snapshot(
        generation=body.generation,
        now=body.now,
        table=table,
        shapes={shape.key: shape for shape in body.shapes},
        groups={state.key: state for state in body.groups},
        queues={queue.name: queue for queue in body.queues},
        usage=body.usage,
        no_goods=body.no_goods,
        foreign_nominated=body.foreign_nominated,
        dialects=body.dialects,
        owners=body.owners,
        presence=_presence(body.presence),
        storage=body.storage,
        queue_usage=body.queue_usage,
        foreign=body.foreign,
        singles=body.singles,
        leaving=frozenset(body.leaving),
        awaited=body.awaited,
        budgets={budget.key: budget for budget in body.budgets},
        holds=body.holds,
        releasing=body.releasing,
        topologies=body.topologies,
        hypernodes=body.hypernodes,
    )


def _presence_of(presence: Presence) -> _Presence:
    return _Presence(
        tallies=[_Tally(of, _spots_of(spots)) for of, spots in presence.tallies.items()],
        carriers=[_Carriers(of, _spots_of(spots)) for of, spots in presence.carriers.items()],
        ports=[_Ports(of, _spots_of(spots)) for of, spots in presence.ports.items()],
        namespaces=dict(presence.namespaces),
    )


def _presence(raw: _Presence) -> Presence:
    return Presence(
        tallies={one.of: _spots(one.spots) for one in raw.tallies},
        carriers={one.of: _spots(one.spots) for one in raw.carriers},
        ports={one.of: _spots(one.spots) for one in raw.ports},
        namespaces=raw.namespaces,
    )


def _spots_of(spots: Spots) -> dict[int, int]:
    """Row of the node table -> how many are there."""
    return dict(zip(spots.rows.tolist(), spots.counts.tolist(), strict=True))


def _spots(raw: dict[int, int]) -> Spots:
    return Spots(np.array(list(raw), dtype=np.intp), np.array(list(raw.values()), dtype=np.int64))
