"""Pods that want to be near other pods or away from them: affinity and anti-affinity, required and preferred.

Symmetric: a placed pod's anti-affinity keeps others away from it, and its preferences count for those that come. Holds
between members that are placed in one decision, too. Argument: hardPodAffinityWeight (1), what the required affinity of
a placed pod is worth to a pod that it means.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.framework.relations import NO_RELATIONS, Bar, Members, Relations, Scored
from scheduler.model.affinity import PodTerm
from scheduler.model.pods import Pod, Shape
from scheduler.model.presence import Selectors, together
from scheduler.model.rules import Follow, MemberRule, Repel, Spread

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


class InterPod:
    """See the module."""

    name = "interpod"
    keeps = ("podAffinity",)

    def __init__(self, arguments: Arguments) -> None:
        self._hard_weight = arguments.integer("hardPodAffinityWeight", 1, high=100)

    def sorts(self, pod: Pod, shape: Shape, view: View) -> Hashable:
        """Tell pods apart by the selectors that mean them."""
        return view.neighbours.sort(pod)

    def relates(self, members: tuple[Members, ...], view: View, *, empty: bool) -> Relations:
        """Return what holds between members and placed pods, and among the members."""
        if all(_unconcerned(one, view) for one in members):
            return NO_RELATIONS
        return _Question(members, view, empty, self._hard_weight).answer()


def _unconcerned(one: Members, view: View) -> bool:
    shape = one.shape
    if shape.affinity or shape.anti_affinity or shape.preferred_pods:
        return False
    return not view.neighbours.meeting(one.pods[0])


class _Question:
    """One call of `relates`."""

    def __init__(self, members: tuple[Members, ...], view: View, empty: bool, hard_weight: int) -> None:
        self._members, self._view, self._empty, self._hard_weight = members, view, empty, hard_weight
        self._bars: list[Bar] = []
        self._rules: list[MemberRule] = []
        self._wanted: list[MemberRule] = []
        self._scores: list[Scored] = []

    def answer(self) -> Relations:
        self._affinity()
        self._anti_affinity()
        if not self._empty:
            for kind in range(len(self._members)):
                self._existing(kind)
                self._score(kind)
            self._spread_out()
        return Relations(tuple(self._bars), tuple(self._rules), tuple(self._wanted), (), tuple(self._scores))

    # -- what is where --------------------------------------------------------------------------------------------

    def _of(self, selectors: Selectors) -> tuple[int, ...]:
        """The kinds that the selectors mean."""
        means = self._view.neighbours.means
        return tuple(kind for kind, one in enumerate(self._members) if means(selectors, one.pods[0]))

    def _pods(self, kinds: tuple[int, ...]) -> int:
        return sum(len(self._members[kind].pods) for kind in kinds)

    def _ids(self, key: str) -> NDArray[np.int32]:
        return self._view.domains(key)[0]

    def _by_domain(self, counts: NDArray[np.int64], key: str) -> NDArray[np.int64]:
        """Sum what is on the nodes by the domains of a label."""
        ids, names = self._view.domains(key)
        known = ids >= 0
        return np.bincount(ids[known], weights=counts[known], minlength=len(names)).astype(np.int64)

    def _count(self, selectors: Selectors, *, settled: bool = False) -> NDArray[np.int64]:
        if self._empty:
            return np.zeros(len(self._view.open_slots), dtype=np.int64)
        neighbours = self._view.neighbours
        return neighbours.count_settled(selectors) if settled else neighbours.count(selectors)

    def _in_domains(self, counts: NDArray[np.int64], key: str) -> NDArray[np.int64]:
        """What is in the domain of each node; 0 where the node has no such label."""
        ids = self._ids(key)
        sums = self._by_domain(counts, key)
        return np.where(ids >= 0, sums[ids], 0) if len(sums) else np.zeros(len(ids), dtype=np.int64)

    def _bar(self, kind: int, nodes: NDArray[np.bool_], reason: str, *, passing: bool) -> None:
        if nodes.any():
            self._bars.append(Bar(kind, nodes, reason, passing))

    # -- required -------------------------------------------------------------------------------------------------

    def _affinity(self) -> None:
        followers: dict[tuple[PodTerm, ...], list[int]] = {}
        for kind, one in enumerate(self._members):
            if one.shape.affinity:
                followers.setdefault(one.shape.affinity, []).append(kind)
        for terms, kinds in followers.items():
            self._follow(terms, tuple(kinds))

    def _follow(self, terms: tuple[PodTerm, ...], followers: tuple[int, ...]) -> None:
        selectors = together(terms)
        levels = tuple(dict.fromkeys(term.key for term in terms))
        counts = self._count(selectors, settled=True)
        present = tuple(self._by_domain(counts, level) > 0 for level in levels)
        targets = self._of(selectors)
        first = not any(level.any() for level in present)
        labelled = np.logical_and.reduce([self._ids(level) >= 0 for level in levels])
        near = np.logical_and.reduce([self._in_domains(counts, level) > 0 for level in levels])
        alone = self._pods(targets) == 1 and targets == followers
        for kind in followers:
            anywhere = (targets and not alone) or self._empty or (first and kind in targets)
            self._bar(kind, ~(labelled if anywhere else near), AFFINITY, passing=False)
        if targets and not alone and not (self._empty and not set(followers) <= set(targets)):
            self._rules.append(Follow(levels, followers, targets, present, first))

    def _anti_affinity(self) -> None:
        carriers: dict[PodTerm, list[int]] = {}
        for kind, one in enumerate(self._members):
            for term in one.shape.anti_affinity:
                carriers.setdefault(term, []).append(kind)
                if not self._empty:
                    near = self._in_domains(self._count((term.selector,)), term.key) > 0
                    self._bar(kind, near, ANTI_AFFINITY, passing=True)
        for term, kinds in carriers.items():
            targets = self._of((term.selector,))
            if targets and (targets != tuple(kinds) or self._pods(targets) > 1):
                self._rules.append(Repel(term.key, tuple(kinds), targets))

    def _existing(self, kind: int) -> None:
        for term, counts in self._view.neighbours.meeting(self._members[kind].pods[0]):
            if term.kind == "anti":
                self._bar(kind, self._in_domains(counts, term.term.key) > 0, EXISTING, passing=True)

    # -- preferred ------------------------------------------------------------------------------------------------

    def _score(self, kind: int) -> None:
        one = self._members[kind]
        total: NDArray[np.int64] = np.zeros(len(self._view.open_slots), dtype=np.int64)
        for wish in one.shape.preferred_pods:
            total += wish.weight * self._in_domains(self._count((wish.term.selector,)), wish.term.key)
        for term, counts in self._view.neighbours.meeting(one.pods[0]):
            weight = self._hard_weight if term.kind == "affinity" else term.weight
            if weight:
                total += weight * self._in_domains(counts, term.term.key)
        scores = normalised(total, self._open(kind))
        if scores is not None:
            self._scores.append(Scored(kind, scores))

    def _open(self, kind: int) -> NDArray[np.bool_]:
        barred = Relations(bars=tuple(self._bars)).barred(kind)
        return np.ones(len(self._view.open_slots), dtype=np.bool_) if barred is None else ~barred

    def _spread_out(self) -> None:
        """Members that would rather be away from each other are laid out evenly, where that costs no place."""
        carriers: dict[PodTerm, list[int]] = {}
        for kind, one in enumerate(self._members):
            for wish in one.shape.preferred_pods:
                if wish.weight < 0:
                    carriers.setdefault(wish.term, []).append(kind)
        for term, kinds in carriers.items():
            counted = self._of((term.selector,))
            if self._pods(counted) > 1 and set(counted) & set(kinds):
                present = self._by_domain(self._count((term.selector,)), term.key)
                nodes = self._ids(term.key) >= 0
                self._wanted.append(Spread(term.key, tuple(kinds), counted, present, nodes, max_skew=1))


def normalised(total: NDArray[np.int64], among: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Stretch raw scores to 0 (least) to 100 (most) of the nodes in question; None where they are all alike."""
    if not among.any():
        return None
    least, most = int(total[among].min()), int(total[among].max())
    if least == most:
        return None
    scores: NDArray[np.int64] = np.clip((total - least) * 100 // (most - least), 0, 100)
    return scores
