"""What every node is charged with, as the binder's last look before it binds.

Decided here: what counts. Every pod on a node counts, whoever bound it, until it has ended or is gone; a placement that
passed its check counts from then on, before the watch shows it. One that waits for others to go counts in their stead:
another fits that has room now, and once they have gone and all who wait for them have come. Must not know: gangs,
requests, HTTP. It has its own sums because the brain's are in another process and older.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.cluster import feed
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.resources import Amounts


class Ledger:
    """Charges by node. Must see every pod and shape event from the first on."""

    def __init__(self) -> None:
        self._shapes: dict[str, Shape] = {}
        self._charges: dict[str, tuple[str, Amounts]] = {}
        self._assumed: set[str] = set()
        self._totals: dict[str, dict[str, int]] = {}
        self._pods: dict[str, int] = {}
        self._expected: dict[str, dict[str, tuple[Amounts, frozenset[str]]]] = {}
        self._expected_on: dict[str, str] = {}

    def apply(self, events: Iterable[feed.Event]) -> None:
        """Take note of pods and shapes; other events are ignored."""
        for event in events:
            kind = type(event)
            if kind is feed.PodSet:
                self._set(event.pod)  # type: ignore[union-attr]
            elif kind is feed.PodGone:
                self.gone(event.uid)  # type: ignore[union-attr]
            elif kind is feed.ShapeSet:
                self._shapes[event.shape.key] = event.shape  # type: ignore[union-attr]

    def _set(self, pod: Pod) -> None:
        if pod.finished:
            self.gone(pod.uid)
        elif pod.node:
            self._assumed.discard(pod.uid)
            self._unexpect(pod.uid)
            self._charge(pod.uid, (pod.node, self.requests(pod)))
        elif pod.uid not in self._assumed:
            self._charge(pod.uid, None)

    def _charge(self, uid: str, want: tuple[str, Amounts] | None) -> None:
        old = self._charges.get(uid)
        if old == want:
            return
        if old is not None:
            node, requests = old
            totals = self._totals[node]
            for name, value in requests:
                totals[name] -= value
            self._pods[node] -= 1
            if not self._pods[node]:
                del self._pods[node], self._totals[node]
            del self._charges[uid]
        if want is not None:
            node, requests = self._charges[uid] = want
            totals = self._totals.setdefault(node, {})
            for name, value in requests:
                totals[name] = totals.get(name, 0) + value
            self._pods[node] = self._pods.get(node, 0) + 1

    def shape(self, pod: Pod) -> Shape:
        """Return the pod's shape. Raises `KeyError` when the feed broke its promise to send shapes first."""
        return self._shapes[pod.shape]

    def requests(self, pod: Pod) -> Amounts:
        """Return what the pod is charged with."""
        return self._shapes[pod.shape].requests if pod.charge is None else pod.charge

    def assume(self, pod: Pod, node: str) -> None:
        """Charge a placement that is about to be bound."""
        if pod.uid not in self._charges:
            self._assumed.add(pod.uid)
            self._charge(pod.uid, (node, self.requests(pod)))

    def expect(self, pod: Pod, node: str, victims: Iterable[str]) -> None:
        """Note a placement that is bound once these pods (uid) have gone."""
        if pod.uid not in self._charges:
            self._unexpect(pod.uid)
            self._expected.setdefault(node, {})[pod.uid] = self.requests(pod), frozenset(victims)
            self._expected_on[pod.uid] = node

    def _unexpect(self, uid: str) -> None:
        node = self._expected_on.pop(uid, None)
        if node is not None:
            del self._expected[node][uid]
            if not self._expected[node]:
                del self._expected[node]

    def release(self, uid: str) -> None:
        """Take back what was assumed or expected; a pod that the watch showed on a node is not touched."""
        self._unexpect(uid)
        if uid in self._assumed:
            self._assumed.discard(uid)
            self._charge(uid, None)

    def gone(self, uid: str) -> None:
        """Forget a pod that is known to be gone before the watch's event has been delivered."""
        self._assumed.discard(uid)
        self._unexpect(uid)
        self._charge(uid, None)

    def fits(self, requests: Amounts, node: Node) -> bool:
        """Whether the node has room for one more pod, by what it has now; only what is requested is compared."""
        return self._within(requests, node, 1, *self._now(node.name)) and (
            node.name not in self._expected or self._within(requests, node, 1, *self._later(node.name))
        )

    def holds(self, requests: Amounts, node: Node) -> bool:
        """Whether the node still has room for a pod that is charged to it already."""
        return self._within(requests, node, 0, *self._now(node.name))

    def _now(self, node: str) -> tuple[int, dict[str, int]]:
        """What is charged to a node, to be read only: nothing is copied for each pod that is bound."""
        return self._pods.get(node, 0), self._totals.get(node, {})

    def _later(self, node: str) -> tuple[int, dict[str, int]]:
        """What will be on a node when those have gone whom others wait for there, and these have come."""
        pods, used = self.used(node)
        expected = self._expected[node].values()
        known = (self._charges.get(uid, ("", ())) for uid in frozenset().union(*(victims for _, victims in expected)))
        gone = [amounts for where, amounts in known if where == node]
        for sign, part in ((-1, gone), (1, [requests for requests, _ in expected])):
            pods += sign * len(part)
            for name, value in (each for amounts in part for each in amounts):
                used[name] = used.get(name, 0) + sign * value
        return pods, used

    def _within(self, requests: Amounts, node: Node, times: int, pods: int, used: dict[str, int]) -> bool:
        if pods + times > node.slots:
            return False
        allocatable = dict(node.allocatable)
        return all(
            value <= 0 or used.get(name, 0) + value * times <= allocatable.get(name, 0) for name, value in requests
        )

    def used(self, node: str) -> tuple[int, dict[str, int]]:
        """Return pods and amounts charged to a node."""
        pods, amounts = self._now(node)
        return pods, dict(amounts)
