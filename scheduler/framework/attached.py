"""Which volumes of a CSI driver are on a node, for its limit: those that pods there use, and those that are attached.

Decided here: a volume counts once a node, and what is attached only for pods that are thought gone is gone with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from scheduler.framework.volume_rules import Moment
from scheduler.model.podvolumes import PodVolumes
from scheduler.model.volumes import Storage


def handles(namespace: str, volumes: PodVolumes, driver: str, storage: Storage) -> Iterator[str]:
    """Yield the volumes of a driver that a pod uses, each by its handle."""
    yield from (handle for name, handle in volumes.attached if name == driver)
    for one in volumes.claims:
        claim = storage.claims.get(f"{namespace}/{one.name}")
        if claim is not None:
            name, handle = storage.driver_of(claim)
            if name == driver:
                yield handle


def on_node(node: str, driver: str, moment: Moment) -> set[str]:
    """Return the volumes of a driver on a node, without what this session has placed there."""
    storage, used, left = moment.storage, set[str](), set[str]()
    for namespace, uid, volumes in storage.hosted.get(node, ()):
        if uid not in moment.left_out:
            (left if uid in moment.lost else used).update(handles(namespace, volumes, driver, storage))
    for one in storage.attachments.get(node, ()):
        volume = storage.volumes.get(one.volume)
        counts = volume is not None and volume.handle and not volume.plugin and one.driver == driver
        if volume is not None and counts and volume.handle not in left:
            used.add(volume.handle)
    return used


def alone(driver: str, moment: Moment, wanted: frozenset[str]) -> dict[str, int]:
    """Return how many volumes of a driver each pod (uid) alone uses on its node, without those that are `wanted`."""
    found: dict[str, int] = {}
    for pods in moment.storage.hosted.values():
        mine = {
            uid: set(handles(namespace, volumes, driver, moment.storage))
            for namespace, uid, volumes in pods
            if moment.counts(uid)
        }
        users = Counter(handle for some in mine.values() for handle in some)
        for uid, some in mine.items():
            count = sum(users[handle] == 1 and handle not in wanted for handle in some)
            if count:
                found[uid] = count
    return found
