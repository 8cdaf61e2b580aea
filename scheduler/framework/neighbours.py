"""Which pods are where while a session decides: the counts of the snapshot, and what the session placed since.

Decided here: which selectors in play mean a pod (found once for each namespace and set of labels, kept across sessions
while the same selectors are in play), and how a placement changes the counts. Costs nothing where nobody asks about
other pods. Arrays are over the nodes, in the order of the table, and read only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.model.affinity import HostPort
from scheduler.model.pods import Pod, Shape
from scheduler.model.presence import Carried, Presence, Selectors, Spots, carried, relates
from scheduler.model.selecting import Labels, SelectorIndex, means

_PROFILES = 50_000


class Matches:
    """Which selectors in play mean which pods; kept by whoever runs sessions."""

    def __init__(self) -> None:
        self._presence: Presence | None = None
        self._carriers: dict[int, list[Carried]] = {}
        self._play: list[Selectors] = []
        self._index = SelectorIndex()
        self._namespaces: Mapping[str, Labels] = {}
        self._found: dict[tuple[str, Labels], frozenset[int]] = {}
        self._number: dict[Selectors, int] = {}

    def refresh(self, presence: Presence) -> None:
        """Take over what is in play now."""
        if presence is self._presence:
            return
        self._presence = presence
        play = list(dict.fromkeys((*presence.tallies, *((one.term.selector,) for one in presence.carriers))))
        if play != self._play or presence.namespaces is not self._namespaces:
            self._play, self._namespaces = play, presence.namespaces
            self._number = {selectors: number for number, selectors in enumerate(play)}
            self._found.clear()
            self._index = SelectorIndex()
            for selectors, number in self._number.items():
                self._index.add(number, selectors)
        self._carriers = {}
        for one in presence.carriers:
            self._carriers.setdefault(self._number[(one.term.selector,)], []).append(one)

    def of(self, pod: Pod) -> frozenset[int]:
        """Return the numbers of the selectors in play that mean the pod."""
        if not self._play:
            return frozenset()
        key = (pod.namespace, pod.labels)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _PROFILES:
                self._found.clear()
            labels = dict(pod.labels)
            found = self._found[key] = frozenset(
                number
                for number in self._index.candidates(pod.namespace, pod.labels)
                if means(self._play[number], pod.namespace, labels, self._namespaces)
            )
        return found

    @property
    def any_in_play(self) -> bool:
        """Whether there is any selector."""
        return bool(self._play)

    def carriers(self, pod: Pod) -> list[Carried]:
        """Return the terms of placed pods (of the snapshot) that mean the pod."""
        return [one for number in sorted(self.of(pod)) for one in self._carriers.get(number, ())]

    def number(self, selectors: Selectors) -> int | None:
        """Return the number of a selector that is in play."""
        return self._number.get(selectors)


class Neighbours:
    """See the module. nominated: pods of the presence that are only nominated to a node, with its row.

    left_out: the uids of those that do not count now. lost: uid -> row of pods that an open statement evicts.
    """

    def __init__(
        self,
        presence: Presence,
        size: int,
        matches: Matches,
        shapes: Mapping[str, Shape],
        nominated: tuple[tuple[Pod, int], ...] = (),
    ) -> None:
        self._presence, self._size, self._matches, self._shapes = presence, size, matches, shapes
        matches.refresh(presence)
        self._tallies = _Layer(presence.tallies, size)
        self._carriers = _Layer(presence.carriers, size)
        self._ports = _Layer(presence.ports, size)
        self._counted = {matches.number(selectors): selectors for selectors in presence.tallies}
        self._carried: dict[str, tuple[Carried, ...]] = {}
        self._speaking: dict[str, bool] = {}
        self._new_carriers: list[tuple[Carried, int | None]] = []
        self._nominated = nominated
        self._left_out: tuple[tuple[Pod, int], ...] = ()
        self.left_out: frozenset[str] = frozenset()
        self.lost: Mapping[str, int] = {}

    @contextmanager
    def without(self, pods: tuple[tuple[Pod, int], ...]) -> Iterator[None]:
        """Leave out these of the nominated pods, instead of those that were left out before."""
        before = self._left_out
        self._leave_out(pods)
        try:
            yield
        finally:
            self._leave_out(before)

    def _leave_out(self, pods: tuple[tuple[Pod, int], ...]) -> None:
        if pods is not self._left_out:
            self.place(self._left_out, 1)
            self.place(pods, -1)
            self._left_out = pods
            self.left_out = frozenset(pod.uid for pod, _ in pods)

    def sort(self, pod: Pod) -> frozenset[int] | None:
        """Equal for pods that all selectors in play treat alike; None where none means the pod."""
        return self._matches.of(pod) or None

    def means(self, selectors: Selectors, pod: Pod) -> bool:
        """Whether all of the selectors mean the pod."""
        number = self._matches.number(selectors)
        if number is not None:
            return number in self._matches.of(pod)
        return means(selectors, pod.namespace, dict(pod.labels), self._presence.namespaces)

    def count(self, selectors: Selectors) -> NDArray[np.int64]:
        """How many placed pods the selectors mean, on each node."""
        return self._tallies.get(selectors)

    def count_settled(self, selectors: Selectors) -> NDArray[np.int64]:
        """The same without pods that are only nominated: they may yet go elsewhere."""
        counts = self._tallies.get(selectors)
        if not self._nominated or selectors not in self._presence.tallies:
            return counts
        here = ((pod, row) for pod, row in self._nominated if pod.uid not in self.left_out)
        hoped = [row for pod, row in here if self.means(selectors, pod)]
        if hoped:
            counts = counts.copy()
            np.subtract.at(counts, hoped, 1)
        return counts

    def meeting(self, pod: Pod) -> list[tuple[Carried, NDArray[np.int64]]]:
        """Terms of placed pods that mean this pod, with the number of their carriers on each node."""
        terms = self._matches.carriers(pod)
        if self._new_carriers:
            found = self._matches.of(pod)
            terms += [one for one, number in self._new_carriers if number in found]
        return [(one, self._carriers.get(one)) for one in terms]

    def carriers_before(self, pod: Pod) -> tuple[Spots, ...]:
        """Where the carriers of terms that mean this pod were when the session began."""
        return tuple(self._presence.carriers[one] for one in self._matches.carriers(pod))

    def ports_in_use(self, wanted: Iterable[HostPort]) -> NDArray[np.bool_]:
        """The nodes on which some placed pod claims a port that conflicts with one of these."""
        found = np.zeros(self._size, dtype=np.bool_)
        for port in wanted:
            for other in self._ports.names():
                if port.conflicts(other):
                    found |= self._ports.get(other) > 0
        return found

    def claims(self, port: HostPort, row: int) -> int:
        """How many claims on a node conflict with this one, itself included when it is there."""
        return sum(int(self._ports.get(other)[row]) for other in self._ports.names() if port.conflicts(other))

    def concern(self, members: Sequence[tuple[Pod, int]]) -> bool:
        """Whether placing these pods can change any count."""
        return self._matches.any_in_play or any(self._speaks(pod.shape) for pod, _ in members)

    def _speaks(self, key: str) -> bool:
        known = self._speaking.get(key)
        if known is None:
            known = self._speaking[key] = relates(self._shapes[key])
        return known

    def place(self, members: Sequence[tuple[Pod, int]], number: int) -> None:
        """Count pods on rows of the node table (number = 1), or take them back (-1)."""
        for pod, row in members:
            found = self._matches.of(pod)
            for position in found:
                selectors = self._counted.get(position)
                if selectors is not None:
                    self._tallies.add(selectors, row, number)
            terms = self._carried.get(pod.shape)
            shape = self._shapes[pod.shape]
            if terms is None:
                terms = self._carried[pod.shape] = carried(shape) if relates(shape) else ()
            for one in terms:
                if self._carriers.add(one, row, number):
                    self._new_carriers.append((one, self._matches.number((one.term.selector,))))
            for port in shape.host_ports:
                self._ports.add(port, row, number)

    def lose(self, pods: Sequence[tuple[Pod, int]]) -> None:
        """These pods count no more, until `regain`."""
        self.place(pods, -1)
        self.lost = {**self.lost, **{pod.uid: row for pod, row in pods}}

    def regain(self, pods: Sequence[tuple[Pod, int]]) -> None:
        """These count again."""
        self.place(pods, 1)
        back = {pod.uid for pod, _ in pods}
        self.lost = {uid: row for uid, row in self.lost.items() if uid not in back}


class _Layer:
    """Counts of a snapshot with changes on top."""

    def __init__(self, base: Mapping[Any, Spots], size: int) -> None:
        self._base, self._size = base, size
        self._read: dict[Any, NDArray[np.int64]] = {}
        self.added: dict[Any, NDArray[np.int64]] = {}

    def names(self) -> Iterable[Any]:
        """All keys, those that came on top last."""
        return (*self._base, *(key for key in self.added if key not in self._base))

    def get(self, key: Any) -> NDArray[np.int64]:
        """Return the counts, read only."""
        known = self._read.get(key)
        if known is None:
            spots = self._base.get(key)
            known = np.zeros(self._size, dtype=np.int64) if spots is None else spots.dense(self._size)
            known.flags.writeable = False
            self._read[key] = known
        return known

    def add(self, key: Any, row: int, number: int) -> bool:
        """Change a count; return whether the key is new."""
        array = self.added.get(key)
        fresh = array is None and key not in self._base
        if array is None:
            array = self.added[key] = self.get(key).copy()
            view = array.view()
            view.flags.writeable = False
            self._read[key] = view
        array[row] += number
        return fresh
