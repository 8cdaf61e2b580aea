"""Where which pods are not tried for a while, because the binder, a kubelet or a victim that stays was in the way.

Decided here: for how long. A kubelet that rejects a pod keeps its node free of that shape for half a minute; a bind
that failed keeps its pod off the node, each time twice as long, up to a minute; victims that do not go in all the time
that they had keep a gang off their nodes until they have gone, or for a minute and longer, up to an hour. Must not
know: requests, and who placed anybody.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from scheduler.model.pods import Pod
from scheduler.model.snapshot import NoGood

REJECTION_COOL_DOWN = 30.0
"""Seconds for which a node takes no pod of a shape that its kubelet has just rejected."""
FIRST_BACK_OFF, LAST_BACK_OFF = 1.0, 60.0
LONGEST_REST = 3600.0
"""Seconds for which at most a gang keeps away from a node whose victims do not go; the first time it is a minute."""
VICTIMS_REMAIN = "VictimsRemain"
"""The binder's word for that."""


class Refusals:
    """See the module; one thread uses it. Methods return whether something changed."""

    def __init__(self) -> None:
        self._known: list[NoGood] = []
        self._waits: dict[tuple[str, str], float] = {}
        self._staying: dict[tuple[str, str], frozenset[str]] = {}
        """By pod and node, the victims (uids) for which it keeps away."""

    def reject(self, pod: Pod, cause: str, now: float) -> None:
        """Note that its kubelet rejected a pod."""
        self._known.append(NoGood(node=pod.node, until=now + REJECTION_COOL_DOWN, cause=cause, shape=pod.shape))

    def refuse(self, uid: str, node: str, cause: str, now: float) -> bool:
        """Note that a pod could not be bound on a node."""
        if any(known.uid == uid and known.node == node and known.until > now for known in self._known):
            return False
        self._add(uid, node, cause, min(LAST_BACK_OFF, self._waits.get((uid, node), FIRST_BACK_OFF / 2) * 2), now)
        return True

    def avoid(self, uids: Iterable[str], staying: Mapping[str, frozenset[str]], now: float) -> bool:
        """Note that these pods keep away from nodes where victims stay: node -> uids of those."""
        known = {(bad.uid, bad.node) for bad in self._known if bad.until > now}
        fresh = [(uid, node) for uid in uids for node in sorted(staying) if (uid, node) not in known]
        for uid, node in fresh:
            wait = min(LONGEST_REST, max(LAST_BACK_OFF, self._waits.get((uid, node), 0.0) * 2))
            self._staying[uid, node] = staying[node]
            self._add(uid, node, VICTIMS_REMAIN, wait, now)
        return bool(fresh)

    def _add(self, uid: str, node: str, cause: str, wait: float, now: float) -> None:
        self._waits[uid, node] = wait
        self._known.append(NoGood(node=node, until=now + wait, cause=cause, uid=uid))

    def due(self) -> list[float]:
        """Return when each of them ends."""
        return [bad.until for bad in self._known]

    def live(self, now: float, pods: Container[str]) -> tuple[NoGood, ...]:
        """Return those that hold now, in a fixed order; others, and those of pods that are gone, are forgotten."""
        live = [bad for bad in self._known if bad.until > now and self._holds(bad, pods)]
        if len(live) != len(self._known):
            self._known = live
            self._waits = {key: wait for key, wait in self._waits.items() if key[0] in pods}
            held = {(bad.uid, bad.node) for bad in live}
            self._staying = {key: uids for key, uids in self._staying.items() if key in held}
        return tuple(sorted(live, key=lambda bad: (bad.node, bad.uid, bad.shape, bad.until)))

    def _holds(self, bad: NoGood, pods: Container[str]) -> bool:
        """Whether the pod is still there, and somebody of those for whom it keeps away."""
        if bad.uid and bad.uid not in pods:
            return False
        if bad.cause != VICTIMS_REMAIN:
            return True
        if any(uid in pods for uid in self._staying.get((bad.uid, bad.node), ())):
            return True
        self._waits.pop((bad.uid, bad.node), None)
        return False
