"""The brain's picture of storage: what there is, which pods use it, and what placements under way have taken of it.

Decided here: what counts as a change that can matter to a placement (a claim that some pod names, a volume that is or
was on offer or belongs to such a claim; classes, drivers and capacities always), so that the coming and going of tens
of thousands of foreign claims wakes nobody. What a placement has taken counts as taken from the session on until its
request has ended; a volume or node that the watch shows then speaks for itself. Used by the store only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler.cluster import feed
from scheduler.model.decisions import Place
from scheduler.model.pods import Pod
from scheduler.model.podvolumes import PodVolumes, VolumeStep
from scheduler.model.volumes import (
    Attachment,
    Claim,
    NodeDrivers,
    Storage,
    StorageCapacity,
    StorageClass,
    StorageDriver,
    Volume,
    by_size,
)


class StorageBook:
    """See the module. Every method returns whether something changed that can matter to a placement."""

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._volumes: dict[str, Volume] = {}
        self._classes: dict[str, StorageClass] = {}
        self._drivers: dict[str, StorageDriver] = {}
        self._node_drivers: dict[str, NodeDrivers] = {}
        self._capacities: dict[str, StorageCapacity] = {}
        self._attachments: dict[str, Attachment] = {}
        self._offered: dict[str, dict[str, Volume]] = {}
        self._given: dict[str, dict[str, None]] = {}
        self._named: dict[str, dict[str, None]] = {}
        self._pods: dict[str, tuple[str, str, PodVolumes]] = {}
        self._on_node: dict[str, dict[str, tuple[str, str, PodVolumes]]] = {}
        self._hosted: dict[str, tuple[tuple[str, str, PodVolumes], ...]] = {}
        self._stale: set[str] = set()
        self._users: dict[str, tuple[str, ...]] = {}
        self._shared: set[str] = set()
        self._taken: dict[tuple[str, str], tuple[str, tuple[VolumeStep, ...]]] = {}
        self._made: dict[str, tuple[int, Any]] = {}
        self._versions: dict[str, int] = {}
        self._storage = Storage()
        self._changed = False

    # -- events ---------------------------------------------------------------------------------------------------

    def apply(self, event: feed.Event) -> bool:
        """Take note of an event about storage. Raises TypeError for any other."""
        match event:
            case feed.ClaimSet(claim=claim):
                self._claims[claim.key] = claim
                return self._touch("claims", matters=claim.key in self._named)
            case feed.VolumeSet(volume=volume):
                return self._set_volume(volume)
            case feed.StorageClassSet(storage_class=one):
                self._classes[one.name] = one
                return self._touch("classes")
            case feed.StorageDriverSet(driver=driver):
                self._drivers[driver.name] = driver
                return self._touch("drivers")
            case feed.NodeDriversSet(drivers=drivers):
                self._node_drivers[drivers.node] = drivers
                return self._touch("node_drivers")
            case feed.CapacitySet(capacity=capacity):
                self._capacities[capacity.key] = capacity
                return self._touch("capacities")
            case feed.AttachmentSet(attachment=attachment):
                self._attachments[attachment.name] = attachment
                return self._touch("attachments")
            case feed.StorageGone(kind=kind, key=key):
                return self._gone(kind, key)
            case _:
                raise TypeError(f"unknown event {type(event).__name__}")

    def _touch(self, part: str, *, matters: bool = True) -> bool:
        """Note that a part differs from the last view. What does not matter now waits for something that does."""
        self._versions[part] = self._versions.get(part, 0) + 1
        self._changed = self._changed or matters
        return matters

    def _set_volume(self, volume: Volume) -> bool:
        before = self._volumes.get(volume.name)
        mattered = self._forget_volume(before) if before is not None else False
        self._volumes[volume.name] = volume
        if volume.claim:
            self._given.setdefault(volume.claim, {})[volume.name] = None
        elif volume.available and not volume.deleting:
            self._offered.setdefault(volume.storage_class, {})[volume.name] = volume
        return self._touch_volumes(mattered or not volume.claim or volume.claim in self._named)

    def _forget_volume(self, volume: Volume) -> bool:
        self._offered.get(volume.storage_class, {}).pop(volume.name, None)
        given = self._given.get(volume.claim)
        if given is not None:
            given.pop(volume.name, None)
            if not given:
                del self._given[volume.claim]
        return not volume.claim or volume.claim in self._named

    def _touch_volumes(self, matters: bool) -> bool:
        for part in ("volumes", "offered", "given"):
            self._touch(part, matters=matters)
        return matters

    def _gone(self, kind: str, key: str) -> bool:
        if kind == "volume":
            volume = self._volumes.pop(key, None)
            return self._touch_volumes(volume is not None and self._forget_volume(volume))
        parts: dict[str, tuple[str, dict[str, Any]]] = {
            "claim": ("claims", self._claims),
            "class": ("classes", self._classes),
            "driver": ("drivers", self._drivers),
            "node": ("node_drivers", self._node_drivers),
            "capacity": ("capacities", self._capacities),
            "attachment": ("attachments", self._attachments),
        }
        part, known = parts[kind]
        known.pop(key, None)
        return self._touch(part, matters=kind != "claim" or key in self._named)

    # -- pods -----------------------------------------------------------------------------------------------------

    def set_pod(self, pod: Pod, node: str) -> bool:
        """Note a pod that names volumes and the node on which it counts ("" = none: it waits, or has ended)."""
        if pod.volumes is None:
            return self.drop_pod(pod.uid)
        entry = (node, pod.namespace, pod.volumes)
        before = self._pods.get(pod.uid)
        if before == entry:
            return False
        if before is not None:
            self._leave(pod.uid, before)
        self._pods[pod.uid] = entry
        self._enter(pod.uid, entry)
        return self._touch("hosted")

    def drop_pod(self, uid: str) -> bool:
        """Forget a pod."""
        before = self._pods.pop(uid, None)
        if before is None:
            return False
        self._leave(uid, before)
        return self._touch("hosted")

    def _enter(self, uid: str, entry: tuple[str, str, PodVolumes]) -> None:
        node, namespace, volumes = entry
        if node:
            self._on_node.setdefault(node, {})[uid] = (namespace, uid, volumes)
            self._stale.add(node)
        for key in _keys(namespace, volumes):
            named = self._named.setdefault(key, {})
            named[uid] = None
            if len(named) > 1:
                self._shared.add(key)
            if node:
                self._users[key] = tuple(sorted({*self._users.get(key, ()), uid}))

    def _leave(self, uid: str, entry: tuple[str, str, PodVolumes]) -> None:
        node, namespace, volumes = entry
        if node:
            del self._on_node[node][uid]
            self._stale.add(node)
        for key in _keys(namespace, volumes):
            named = self._named[key]
            named.pop(uid, None)
            if len(named) < 2:
                self._shared.discard(key)
            if not named:
                del self._named[key]
            users = tuple(user for user in self._users.get(key, ()) if user != uid)
            if users:
                self._users[key] = users
            else:
                self._users.pop(key, None)

    # -- placements under way -------------------------------------------------------------------------------------

    def take(self, source: str, place: Place) -> bool:
        """Take what the steps of a placement take, in the name of its request or session, until it is released."""
        if not place.steps:
            return False
        node_of = {assignment.uid: assignment.node for assignment in place.assignments}
        taken: dict[tuple[str, str], tuple[VolumeStep, ...]] = {}
        for step in place.steps:
            key = (source, step.uid)
            if key not in self._taken:
                taken[key] = (*taken.get(key, ()), step)
        for key, steps in taken.items():
            self._taken[key] = (node_of.get(key[1], ""), steps)
        return bool(taken) and self._touch("taken")

    def release(self, source: str, uids: Iterable[str]) -> bool:
        """Give back what a placement had taken for these pods."""
        known = [self._taken.pop((source, uid), None) for uid in uids] if self._taken else []
        return any(one is not None for one in known) and self._touch("taken")

    # -- the view -------------------------------------------------------------------------------------------------

    def view(self) -> Storage:
        """Return storage as it is now; the same object as before when nothing changed that can matter."""
        if not self._changed:
            return self._storage
        self._changed = False
        hosted, users, shared = self._part("hosted", self._show_pods)
        taken, chosen = self._part("taken", self._count_taken)
        self._storage = Storage(
            generation=self._storage.generation + 1,
            claims=self._part("claims", lambda: dict(self._claims)),
            volumes=self._part("volumes", lambda: dict(self._volumes)),
            offered=self._part("offered", self._sort_offered),
            given=self._part("given", lambda: {key: tuple(sorted(names)) for key, names in self._given.items()}),
            classes=self._part("classes", lambda: dict(self._classes)),
            drivers=self._part("drivers", lambda: dict(self._drivers)),
            node_drivers=self._part("node_drivers", lambda: dict(self._node_drivers)),
            capacities=self._part("capacities", self._sort_capacities),
            attachments=self._part("attachments", self._sort_attachments),
            taken=taken,
            chosen=chosen,
            hosted=hosted,
            users=users,
            shared=shared,
        )
        return self._storage

    def _part(self, name: str, make: Any) -> Any:
        """Return a part of the view, made anew only when it was touched."""
        version = self._versions.get(name, 0)
        known = self._made.get(name)
        if known is None or known[0] != version:
            known = self._made[name] = (version, make())
        return known[1]

    def _sort_offered(self) -> dict[str, tuple[Volume, ...]]:
        return {name: by_size(volumes.values()) for name, volumes in sorted(self._offered.items()) if volumes}

    def _sort_capacities(self) -> dict[str, tuple[StorageCapacity, ...]]:
        found: dict[str, list[StorageCapacity]] = {}
        for _, capacity in sorted(self._capacities.items()):
            found.setdefault(capacity.storage_class, []).append(capacity)
        return {name: tuple(parts) for name, parts in found.items()}

    def _sort_attachments(self) -> dict[str, tuple[Attachment, ...]]:
        found: dict[str, list[Attachment]] = {}
        for _, attachment in sorted(self._attachments.items()):
            found.setdefault(attachment.node, []).append(attachment)
        return {node: tuple(parts) for node, parts in found.items()}

    def _show_pods(
        self,
    ) -> tuple[dict[str, tuple[tuple[str, str, PodVolumes], ...]], dict[str, tuple[str, ...]], frozenset[str]]:
        """Bring the nodes up to date whose pods changed; a claim that one pod names twice has one user."""
        for node in self._stale:
            pods = self._on_node.get(node)
            if pods:
                self._hosted[node] = tuple(pods[uid] for uid in sorted(pods))
            else:
                self._on_node.pop(node, None)
                self._hosted.pop(node, None)
        self._stale.clear()
        return dict(self._hosted), dict(self._users), frozenset(self._shared)

    def _count_taken(self) -> tuple[dict[str, str], dict[str, str]]:
        taken: dict[str, str] = {}
        chosen: dict[str, str] = {}
        for node, steps in self._taken.values():
            for step in steps:
                if step.volume:
                    taken[step.volume] = step.claim_uid
                else:
                    chosen[step.claim_uid] = node
        return taken, chosen


def _keys(namespace: str, volumes: PodVolumes) -> set[str]:
    return {f"{namespace}/{claim.name}" for claim in volumes.claims}
