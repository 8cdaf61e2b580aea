"""Counts of placed pods for the selectors in play, kept up to date event by event.

Decided here: which selectors are in play (those of pods that we schedule and that have not ended), and which of their
counts a snapshot gets (those that a waiting pod asks for). A selector that comes into play is counted once over the
distinct label sets; after that an event touches only what its pod matches. While nothing is in play nothing is kept but
what placed pods carry themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from scheduler.model.affinity import HostPort
from scheduler.model.pods import Pod, Shape
from scheduler.model.presence import Carried, Presence, Selectors, Spots, carried, relates, selections
from scheduler.model.selecting import Labels, SelectorIndex, means, narrowest

K = TypeVar("K", bound=Hashable)
Profile = tuple[str, Labels]
"""Namespace and labels."""


@dataclass(frozen=True, slots=True)
class _Interest:
    """What a shape brings into play and what it carries."""

    selections: tuple[Selectors, ...]
    carried: tuple[Carried, ...]
    ports: tuple[HostPort, ...]


@dataclass(slots=True)
class _Group:
    """Pods of one profile: on each node all, and those being deleted. matched: numbers of selectors, some outdated."""

    matched: dict[int, None]
    nodes: dict[str, list[int]]


class Counts:
    """Numbers by key and node; knows which keys changed since they were last shown."""

    def __init__(self) -> None:
        self._on: dict[Any, dict[str, int]] = {}
        self._shown: dict[Any, Spots] = {}
        self._stale: dict[Any, None] = {}

    def add(self, key: Hashable, node: str, number: int) -> None:
        """Add to (number < 0: take from) what is on a node."""
        on = self._on.setdefault(key, {})
        left = on.get(node, 0) + number
        if left:
            on[node] = left
        else:
            on.pop(node, None)
            if not on:
                del self._on[key]
        self._stale[key] = None

    def drop(self, key: Hashable) -> None:
        """Forget a key."""
        self._on.pop(key, None)
        self._stale[key] = None

    def moved(self) -> None:
        """Show everything anew: the rows of the nodes are others now."""
        self._stale.update(dict.fromkeys((*self._on, *self._shown)))

    @property
    def changed(self) -> bool:
        """Whether anything changed since `refresh`."""
        return bool(self._stale)

    def refresh(self, rows: Mapping[str, int]) -> None:
        """Bring what is shown up to date; what did not change stays the same object."""
        for key in self._stale:
            on = self._on.get(key)
            if on is None:
                self._shown.pop(key, None)
            else:
                self._shown[key] = _spots(on, rows)
        self._stale.clear()

    def spots(self, key: Hashable) -> Spots:
        """Return where they are, as of `refresh`."""
        return self._shown.get(key, NOWHERE)

    def all(self) -> dict[Any, Spots]:
        """Return all keys with their spots, as of `refresh`."""
        return dict(self._shown)


def _spots(on: Mapping[str, int], rows: Mapping[str, int]) -> Spots:
    found = [(rows[node], number) for node, number in on.items() if node in rows]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    pairs = pairs[np.argsort(pairs[:, 0])]
    made = Spots(pairs[:, 0].astype(np.intp), pairs[:, 1].copy())
    made.rows.flags.writeable = made.counts.flags.writeable = False
    return made


NOWHERE = _spots({}, {})


class Tallies:
    """See the module. placed: gives every placed pod with its node, for the first selector that comes into play."""

    def __init__(self, placed: Callable[[], Iterable[tuple[Pod, str]]]) -> None:
        self._placed = placed
        self._active = False
        self._interests: dict[str, _Interest] = {}
        self._users: dict[str, tuple[str, bool]] = {}
        self._using: dict[str, list[int]] = {}
        self._number: dict[Selectors, int] = {}
        self._selectors: dict[int, Selectors] = {}
        self._references: dict[int, int] = {}
        self._next = 0
        self._index = SelectorIndex()
        self._wide: dict[int, None] = {}
        self._where: dict[str, tuple[str, Profile, bool, str]] = {}
        self._groups: dict[str, dict[Labels, _Group]] = {}
        self._by_value: dict[tuple[str, str], dict[str, dict[Labels, _Group]]] = {}
        self._tally, self._carriers, self._ports = Counts(), Counts(), Counts()
        self._namespaces: dict[str, Labels] = {}
        self._wanted_changed = self._namespaces_changed = False
        self._names: tuple[str, ...] = ()
        self._rows: dict[str, int] = {}
        self._presence = Presence()

    # -- events ---------------------------------------------------------------------------------------------------

    def set_shape(self, shape: Shape) -> None:
        """Learn a shape, before the first pod that has it."""
        if relates(shape):
            self._interests[shape.key] = _Interest(selections(shape), carried(shape), shape.host_ports)

    def keep_shapes(self, used: set[str]) -> None:
        """Forget all other shapes; no pod has them."""
        self._interests = {key: interest for key, interest in self._interests.items() if key in used}

    def set_namespace(self, name: str, labels: Labels | None) -> None:
        """Take over a namespace's labels (None: it is gone), and count again what goes by them."""
        if self._namespaces.get(name) == labels:
            return
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels
        self._namespaces_changed = True
        for number in self._wide:
            self._tally.drop(number)
            self._count(number)

    def set_pod(self, pod: Pod, node: str) -> None:
        """Take over where a pod is ("" = nowhere), and whether it brings its selectors into play."""
        interest = self._interests.get(pod.shape)
        if interest is not None or pod.uid in self._users:
            use = (pod.shape, not node and pod.waiting) if interest and pod.ours and not pod.finished else None
            self._set_use(pod.uid, use)
        if interest is None and not self._active and pod.uid not in self._where:
            return
        self._put(pod, node)

    def drop_pod(self, uid: str) -> None:
        """Forget a pod."""
        if uid in self._users:
            self._set_use(uid, None)
        old = self._where.pop(uid, None)
        if old is not None:
            self._add(old, -1)

    def _put(self, pod: Pod, node: str) -> None:
        shape = pod.shape if pod.shape in self._interests else ""
        old = self._where.get(pod.uid)
        new = (node, (pod.namespace, pod.labels), pod.deleting, shape) if node else None
        if old == new:
            return
        if old is not None:
            del self._where[pod.uid]
            self._add(old, -1)
        if new is not None:
            self._where[pod.uid] = new
            self._add(new, 1)

    def _add(self, entry: tuple[str, Profile, bool, str], number: int) -> None:
        node, profile, dying, shape = entry
        if shape:
            interest = self._interests[shape]
            for one in interest.carried:
                self._carriers.add(one, node, number)
            for port in interest.ports:
                self._ports.add(port, node, number)
        if not self._active:
            return
        group = self._group(profile)
        here = group.nodes.setdefault(node, [0, 0])
        here[0] += number
        here[1] += number if dying else 0
        if not here[0]:
            del group.nodes[node]
            if not group.nodes:
                self._drop_group(*profile)
        for selector in tuple(group.matched):
            selectors = self._selectors.get(selector)
            if selectors is None:
                del group.matched[selector]
            elif not (dying and any(one.living for one in selectors)):
                self._tally.add(selector, node, number)

    def _drop_group(self, namespace: str, labels: Labels) -> None:
        del self._groups[namespace][labels]
        for key, value in labels:
            by_value = self._by_value.get((namespace, key))
            if by_value is not None:
                del by_value[value][labels]
                if not by_value[value]:
                    del by_value[value]

    def _group(self, profile: Profile) -> _Group:
        namespace, labels = profile
        groups = self._groups.setdefault(namespace, {})
        group = groups.get(labels)
        if group is None:
            values = dict(labels)
            matched = {
                number: None
                for number in self._index.candidates(namespace, labels)
                if means(self._selectors[number], namespace, values, self._namespaces)
            }
            group = groups[labels] = _Group(matched, {})
            for key, value in labels:
                by_value = self._by_value.get((namespace, key))
                if by_value is not None:
                    by_value.setdefault(value, {})[labels] = group
        return group

    # -- selectors in play ----------------------------------------------------------------------------------------

    def _set_use(self, uid: str, use: tuple[str, bool] | None) -> None:
        before = self._users.get(uid)
        if before == use:
            return
        if use is not None:
            self._users[uid] = use
            self._use(use, 1)
        else:
            del self._users[uid]
        if before is not None:
            self._use(before, -1)

    def _use(self, use: tuple[str, bool], number: int) -> None:
        """Count the pods of a shape, and those of them that wait; the first brings its selectors in."""
        shape, waiting = use
        counts = self._using.get(shape)
        if counts is None:
            counts = self._using[shape] = [0, 0]
            for selectors in self._interests[shape].selections:
                self._refer(selectors)
        waited = counts[1] > 0
        counts[0] += number
        counts[1] += number if waiting else 0
        self._wanted_changed |= waited != (counts[1] > 0)
        if not counts[0]:
            del self._using[shape]
            for selectors in self._interests[shape].selections:
                self._release(selectors)

    def _refer(self, selectors: Selectors) -> None:
        number = self._number.get(selectors)
        if number is not None:
            self._references[number] += 1
            return
        self._activate()
        number = self._number[selectors] = self._next
        self._next += 1
        self._references[number] = 1
        self._selectors[number] = selectors
        self._index.add(number, selectors)
        if any(one.namespace_selector is not None for one in selectors):
            self._wide[number] = None
        self._count(number)

    def _release(self, selectors: Selectors) -> None:
        number = self._number[selectors]
        self._references[number] -= 1
        if self._references[number]:
            return
        del self._number[selectors], self._selectors[number], self._references[number]
        self._wide.pop(number, None)
        self._index.drop(number, selectors)
        self._tally.drop(number)

    def _activate(self) -> None:
        """Begin to keep all placed pods by their labels."""
        if self._active:
            return
        self._active = True
        for pod, node in self._placed():
            old = self._where.pop(pod.uid, None)
            if old is not None:  # what it carries was counted before; now all of it is
                self._active = False
                self._add(old, -1)
                self._active = True
            self._put(pod, node)

    def _count(self, number: int) -> None:
        """Count a selector over all placed pods."""
        selectors = self._selectors[number]
        living = any(one.living for one in selectors)
        wide = number in self._wide
        for namespace in tuple(self._groups) if wide else selectors[0].namespaces:
            for labels, group in self._candidates(namespace, selectors):
                group.matched.pop(number, None)
                if not means(selectors, namespace, dict(labels), self._namespaces):
                    continue
                group.matched[number] = None
                for node, (total, dying) in group.nodes.items():
                    count = total - dying if living else total
                    if count:
                        self._tally.add(number, node, count)

    def _candidates(self, namespace: str, selectors: Selectors) -> Iterable[tuple[Labels, _Group]]:
        """The groups of a namespace that the selectors may mean: by the value of one label where there is one."""
        groups = self._groups.get(namespace, {})
        need = narrowest(selectors)
        if need is None:
            return groups.items()
        by_value = self._by_value.get((namespace, need.key))
        if by_value is None:
            by_value = self._by_value[(namespace, need.key)] = {}
            for labels, group in groups.items():
                for key, value in labels:
                    if key == need.key:
                        by_value.setdefault(value, {})[labels] = group
        return [item for value in need.values for item in by_value.get(value, {}).items()]

    # -- snapshots ------------------------------------------------------------------------------------------------

    def presence(self, names: tuple[str, ...]) -> Presence:
        """Return the counts over these nodes; what did not change since the last time is the same object."""
        if names is not self._names and names != self._names:
            self._names = names
            self._rows = {name: row for row, name in enumerate(names)}
            for counts in (self._tally, self._carriers, self._ports):
                counts.moved()
        last = self._presence
        tallies, carriers, ports = last.tallies, last.carriers, last.ports
        if self._tally.changed or self._wanted_changed:
            self._tally.refresh(self._rows)
            wanted = {
                selectors: None
                for shape, (_, waiting) in self._using.items()
                if waiting
                for selectors in self._interests[shape].selections
            }
            tallies = {one: self._tally.spots(self._number[one]) for one in wanted}
        if self._carriers.changed:
            self._carriers.refresh(self._rows)
            carriers = self._carriers.all()
        if self._ports.changed:
            self._ports.refresh(self._rows)
            ports = self._ports.all()
        namespaces = dict(self._namespaces) if self._namespaces_changed else last.namespaces
        self._wanted_changed = self._namespaces_changed = False
        fresh = Presence(tallies, carriers, ports, namespaces)
        same = all(
            getattr(fresh, name) is getattr(last, name) for name in ("tallies", "carriers", "ports", "namespaces")
        )
        if not same:
            self._presence = fresh
        return self._presence
