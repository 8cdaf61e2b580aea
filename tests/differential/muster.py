"""Muster's side of the comparison: where may this pod go, by its own path from JSON to decision.

Objects are decoded by the dialects, kept by the cache, replayed into the store, and sessions with the default plugins
run on its snapshots. A node is feasible when a session that may use no other node (all others are refused for this
pod, as after failed binds) places the pod there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from plugins import built_in
from scheduler.actions.ask import make_ask, relate
from scheduler.actions.run import SessionResult, Sessions, new_session
from scheduler.cluster.cache import Cache, Namespace
from scheduler.cluster.store import Store
from scheduler.config import SchedulerConfiguration
from scheduler.dialects import core, storage
from scheduler.dialects.registry import BY_NAME
from scheduler.framework.gangs import needs
from scheduler.framework.session import Session
from scheduler.model.decisions import Place
from scheduler.model.groups import GroupState
from scheduler.model.snapshot import NoGood, Snapshot
from scheduler.model.verdict import Verdict

Json = dict[str, Any]

NAMES = frozenset({"muster"})
NOW = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Feasible nodes, and of the others those where the end of running pods could help.

    reasons: what the pod is told while it waits, with the number of nodes. why: what Muster does not honour.
    """

    feasible: frozenset[str]
    helped: frozenset[str]
    reasons: dict[str, int]
    why: str = ""


@dataclass(slots=True)
class Muster:
    """Asked case by case; nothing is remembered between cases."""

    config: SchedulerConfiguration = field(default_factory=SchedulerConfiguration)

    def answer(self, case: Json) -> Answer:
        """Return where the one incoming pod of the case may go."""
        (pod,) = case["incoming"]
        uid = pod["metadata"]["uid"]
        snapshot = snapshot_of(case)
        sessions = Sessions(self.config, built_in(), check=True)
        feasible = frozenset(
            name for name in snapshot.table.names if self._placed(sessions, only(snapshot, {uid: name})) == {uid: name}
        )
        result = self._run(sessions, snapshot)
        free = _assignments(result)
        if (uid in free) != bool(feasible) or (free and free[uid] not in feasible):
            raise AssertionError(f"left alone it is placed on {free}, but feasible is {sorted(feasible)}")
        state = next(iter(snapshot.groups[key] for key in snapshot.groups if _waits(snapshot, key, uid)))
        helped, why = self._helped(sessions, snapshot, state)
        reasons = {} if free else _reasons(result.verdicts[state.key])
        return Answer(feasible, helped - feasible, reasons, why)

    def gang(self, case: Json, *, target: dict[str, str] | None = None) -> dict[str, str]:
        """Return pod name -> node of the members that one session places (each only on its target, if given)."""
        snapshot = snapshot_of(case)
        names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in case["incoming"]}
        if target is not None:
            uids = {name: uid for uid, name in names.items()}
            snapshot = only(snapshot, {uids[name]: node for name, node in target.items()})
        placed = self._placed(Sessions(self.config, built_in(), check=True), snapshot)
        return {names[uid]: node for uid, node in placed.items()}

    def _placed(self, sessions: Sessions, snapshot: Snapshot) -> dict[str, str]:
        return _assignments(self._run(sessions, snapshot))

    def _run(self, sessions: Sessions, snapshot: Snapshot) -> SessionResult:
        result = sessions.run(snapshot, "s-000001")
        failures = [name for name in result.counters if "_failures" in name]
        if failures:
            raise AssertionError(f"{', '.join(failures)}; {[str(one) for one in result.verdicts.values()]}")
        return result

    def _helped(self, sessions: Sessions, snapshot: Snapshot, state: GroupState) -> tuple[frozenset[str], str]:
        session = new_session(snapshot, self.config, sessions.cache, "s-000002")
        ask = make_ask(session, state, state.waiting, needs(state))
        if isinstance(ask, Verdict):
            return frozenset(), str(ask)
        relations = relate(session, ask)
        if isinstance(relations, Verdict):
            return frozenset(), str(relations)
        shape = ask.kinds[0].shape
        helped = _room_when_empty(session, shape) & session.fit(shape).mask
        for bar in relations.bars:
            if not bar.passing:
                helped &= ~bar.nodes
        why = ", ".join(shape.unsupported) and f"not honoured: {', '.join(shape.unsupported)}"
        return frozenset(np.array(snapshot.table.names)[helped].tolist()), why


def _assignments(result: SessionResult) -> dict[str, str]:
    places = [item for item in result.decisions.items if isinstance(item, Place)]
    return {one.uid: one.node for place in places for one in place.assignments}


def _reasons(verdict: Verdict) -> dict[str, int]:
    said = re.match(r"0/(\d+) nodes are available: (.*)", str(verdict.fact("message")))
    return {said[2]: int(said[1])} if said and not verdict.nodes else dict(verdict.nodes)


def _room_when_empty(session: Session, shape: Any) -> Any:
    asked = session.request(shape)
    room = (asked[:, None] <= session.table.allocatable) | (asked[:, None] == 0)
    return room.all(axis=0) & (not session.missing_resources(shape))


def _waits(snapshot: Snapshot, key: str, uid: str) -> bool:
    return any(pod.uid == uid for pod in snapshot.groups[key].waiting)


def only(snapshot: Snapshot, target: dict[str, str]) -> Snapshot:
    """The same snapshot, in which each of these pods (uid) has been refused on every node but one."""
    refused = tuple(
        NoGood(node=node, until=NOW + 60, cause="asked elsewhere", uid=uid)
        for uid, wanted in target.items()
        for node in snapshot.table.names
        if node != wanted
    )
    return replace(snapshot, no_goods=tuple(sorted(refused, key=lambda bad: (bad.node, bad.uid))))


def snapshot_of(case: Json) -> Snapshot:
    """Return the snapshot that the brain would see of these objects."""
    cache = Cache()
    _put(case.get("nodes"), core.decode_node, cache.nodes.put)
    _put(case.get("namespaces"), _namespace, cache.namespaces.put)
    shelves = cache.storage
    _put(case.get("storageClasses"), storage.decode_storage_class, shelves.classes.put)
    _put(case.get("csiDrivers"), storage.decode_driver, shelves.drivers.put)
    _put(case.get("csiNodes"), storage.decode_node_drivers, shelves.node_drivers.put)
    _put(case.get("csiStorageCapacities"), storage.decode_capacity, shelves.capacities.put)
    _put(case.get("volumeAttachments"), storage.decode_attachment, shelves.attachments.put)
    _put(case.get("persistentVolumes"), storage.decode_volume, shelves.volumes.put)
    _put(case.get("persistentVolumeClaims"), storage.decode_claim, shelves.claims.put)
    for group in case.get("podGroups", ()):
        cache.set_dialect("muster", active=True)
        raw = msgspec.Raw(msgspec.json.encode(group))
        cache.groups.put(BY_NAME["muster"].decode_group(raw, api_version=group["apiVersion"]))
    for pod in (*case["pods"], *case["incoming"]):
        cache.pods.put(core.decode_pod(msgspec.json.encode(pod), NAMES))
    cache.mark_synced()
    store = Store()
    store.apply(cache.replay(), NOW)
    return store.snapshot(NOW)


def _namespace(raw: bytes) -> Namespace:
    name, queue, labels = core.decode_namespace(raw)
    return Namespace(name, f"uid-{name}", queue, labels, "1")


def _put(objects: Iterable[Json] | None, decode: Callable[[bytes], Any], put: Callable[[Any], None]) -> None:
    for item in objects or ():
        put(decode(msgspec.json.encode(item)))
