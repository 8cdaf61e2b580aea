"""Topology spread constraints: over the pods that run, and over the members that are placed in one decision.

`DoNotSchedule` must hold. `ScheduleAnyway` is a score, and members are laid out by it where that costs no place. Pods
of a ReplicaSet, StatefulSet or ReplicationController that state nothing may get constraints by configuration
(`defaultConstraints`); those count the pods of the same controller, and are scores.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from math import log

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.matching import matches_affinity, untolerated
from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.framework.relations import NO_RELATIONS, Bar, Members, Relations, Scored
from scheduler.model.affinity import PodSelector, SpreadTerm
from scheduler.model.nodes import HOSTNAME, NodeClass
from scheduler.model.pods import Pod, Shape
from scheduler.model.rules import MemberRule, Spread

REASON = "node(s) didn't match pod topology spread constraints"
MISSING = f"{REASON} (missing required label)"
_KEPT = 4096
_OWNERS = ("ReplicaSet", "StatefulSet", "ReplicationController")
_SYSTEM = ((HOSTNAME, 3), ("topology.kubernetes.io/zone", 5))


class Spreading:
    """See the module."""

    name = "spreading"
    keeps = ("spread",)

    def __init__(self) -> None:
        self._classes: tuple[NodeClass, ...] = ()
        self._eligible: dict[Hashable, NDArray[np.bool_]] = {}

    def on_session(self, view: View) -> None:
        """Forget what was found out about node classes that are gone."""
        classes = view.snapshot.table.classes
        if classes is not self._classes or len(self._eligible) > _KEPT:
            self._classes = classes
            self._eligible.clear()

    def sorts(self, pod: Pod, shape: Shape, view: View) -> Hashable:
        """Tell pods apart by the selectors that mean them."""
        return view.neighbours.sort(pod)

    def constraints(self, pod: Pod, shape: Shape) -> tuple[SpreadTerm, ...]:
        """The constraints of a pod."""
        return shape.spread

    def means(self, term: SpreadTerm, pod: Pod, view: View) -> bool:
        """Whether a constraint counts a pod."""
        return view.neighbours.means((term.selector,), pod)

    def present(self, term: SpreadTerm, view: View) -> NDArray[np.int64]:
        """How many placed pods a constraint counts, on each node."""
        return view.neighbours.count((term.selector,))

    def needs_all(self, shape: Shape) -> bool:
        """Whether only nodes with the labels of all constraints count."""
        return True

    def skipped(self, cost: NDArray[np.float64], shape: Shape) -> NDArray[np.float64]:
        """What a node without the label of one constraint costs; NaN is the worst."""
        return cost

    def relates(self, members: tuple[Members, ...], view: View, *, empty: bool) -> Relations:
        """Return the constraints as rules, barred nodes and scores."""
        stated = [self.constraints(one.pods[0], one.shape) for one in members]
        if not any(stated):
            return NO_RELATIONS
        bars: list[Bar] = []
        hard: dict[tuple[SpreadTerm, bytes], tuple[list[int], Spread]] = {}
        soft: dict[tuple[SpreadTerm, bytes], tuple[list[int], Spread]] = {}
        scores: list[Scored] = []
        for kind in range(len(members)):
            raw: NDArray[np.float64] | None = None
            for firm in (True, False) if not empty else (True,):
                terms = [term for term in stated[kind] if term.hard is firm]
                for term in terms:
                    rule = self._rule(term, terms, kind, members, view, empty=empty)
                    ids = view.domains(term.key)[0]
                    if firm and (ids < 0).any():
                        bars.append(Bar(kind, ids < 0, MISSING, passing=False))
                    many = sum(len(members[other].pods) for other in rule.counted) > 1 or (
                        rule.counted and kind not in rule.counted
                    )
                    if not firm:
                        part = self.skipped(_raw_score(rule, ids), members[kind].shape)
                        raw = part if raw is None else raw + part
                    elif not many:
                        bars.extend(_barred(kind, rule, ids))
                    if many:
                        kept = hard if firm else soft
                        kept.setdefault((term, rule.nodes.tobytes()), ([], rule))[0].append(kind)
            if raw is not None:
                scores.append(Scored(kind, _scores(raw)))
        return Relations(bars=tuple(bars), rules=_rules(hard), wanted=_rules(soft), scores=tuple(scores))

    def _rule(
        self,
        term: SpreadTerm,
        terms: list[SpreadTerm],
        kind: int,
        members: tuple[Members, ...],
        view: View,
        *,
        empty: bool,
    ) -> Spread:
        """One constraint of one kind. Pods count on eligible nodes that have the keys of all those constraints."""
        ids, names = view.domains(term.key)
        nodes = self._nodes(members[kind].shape, term, view)
        for other in terms if self.needs_all(members[kind].shape) else ():
            nodes = nodes & (view.domains(other.key)[0] >= 0)
        nodes = nodes & (ids >= 0)
        present = np.zeros(len(names), dtype=np.int64)
        if not empty:
            counts = self.present(term, view)
            present = np.bincount(ids[nodes], weights=counts[nodes], minlength=len(names)).astype(np.int64)
        counted = tuple(other for other, one in enumerate(members) if self.means(term, one.pods[0], view))
        return Spread(term.key, (kind,), counted, present, nodes, term.max_skew, term.min_domains)

    def _nodes(self, shape: Shape, term: SpreadTerm, view: View) -> NDArray[np.bool_]:
        """The nodes that nodeAffinityPolicy and nodeTaintsPolicy let count."""
        table = view.snapshot.table
        # By what is looked at: gangs that are spread each for itself are shapes that differ in their selectors only.
        key = (
            (shape.node_selector, shape.required_terms) if term.honor_affinity else None,
            shape.tolerations if term.honor_taints else None,
        )
        known = self._eligible.get(key)
        if known is None:
            known = self._eligible[key] = np.array(
                [
                    (not term.honor_affinity or matches_affinity(shape, one))
                    and not (term.honor_taints and untolerated(shape, one, ("NoSchedule", "NoExecute")))
                    for one in table.classes
                ],
                dtype=np.bool_,
            )
        return known[table.class_of] if len(known) else np.zeros(len(table.names), dtype=np.bool_)


class SpreadingByDefault(Spreading):
    """With constraints for pods that state none. Their selector names the controller instead of labels."""

    counts_owners = True

    def __init__(self, constraints: tuple[tuple[str, int], ...], *, system: bool) -> None:
        super().__init__()
        self._constraints, self._system = constraints, system
        self._placed: dict[str, dict[int, int]] = {}

    def on_session(self, view: View) -> None:
        """Forget what the previous session placed."""
        super().on_session(view)
        self._placed.clear()

    def on_place(self, members: tuple[tuple[Pod, int], ...], view: View, *, undone: bool) -> None:
        """Count what this session places."""
        for pod, row in members:
            if pod.owner_kind in _OWNERS:
                rows = self._placed.setdefault(pod.owner_uid, {})
                rows[row] = rows.get(row, 0) + (-1 if undone else 1)

    def sorts(self, pod: Pod, shape: Shape, view: View) -> Hashable:
        """Tell pods apart by their controller, too, where it matters."""
        owner = "" if shape.spread or pod.owner_kind not in _OWNERS else pod.owner_uid
        return (owner, super().sorts(pod, shape, view)) if owner else super().sorts(pod, shape, view)

    def constraints(self, pod: Pod, shape: Shape) -> tuple[SpreadTerm, ...]:
        """Its own, or those of the configuration."""
        if shape.spread or pod.owner_kind not in _OWNERS:
            return shape.spread
        selector = PodSelector((pod.owner_uid,))
        return tuple(SpreadTerm(selector, key, skew, hard=False) for key, skew in self._constraints)

    def means(self, term: SpreadTerm, pod: Pod, view: View) -> bool:
        """A constraint by default counts the pods of its controller."""
        if not _by_owner(term):
            return super().means(term, pod, view)
        return pod.owner_uid == term.selector.namespaces[0]

    def present(self, term: SpreadTerm, view: View) -> NDArray[np.int64]:
        """Those of the snapshot and of this session."""
        if not _by_owner(term):
            return super().present(term, view)
        owner = term.selector.namespaces[0]
        names = view.snapshot.table.names
        counts = np.zeros(len(names), dtype=np.int64)
        for node, number in view.snapshot.owners.get(owner, {}).items():
            row = bisect_left(names, node)
            if row < len(names) and names[row] == node:
                counts[row] += number
        for row, number in self._placed.get(owner, {}).items():
            counts[row] += number
        return counts

    def needs_all(self, shape: Shape) -> bool:
        """Not for the constraints of the system."""
        return bool(shape.spread) or not self._system

    def skipped(self, cost: NDArray[np.float64], shape: Shape) -> NDArray[np.float64]:
        """A node without the label goes by its other labels."""
        return cost if self.needs_all(shape) else np.nan_to_num(cost)


def _by_owner(term: SpreadTerm) -> bool:
    return not term.hard and term.selector.labels is None and not term.selector.living


def spreading(arguments: Arguments) -> Spreading:
    """Make the plugin: counting by controller only where it is asked for."""
    texts = arguments.texts("defaultConstraints")
    if not texts:
        return Spreading()
    if texts == ("system",):
        return SpreadingByDefault(_SYSTEM, system=True)
    found: dict[str, int] = {}
    for text in texts:
        key, equals, skew = text.rpartition("=")
        if not (equals and key and skew.isdecimal() and 1 <= int(skew) < 2**31):
            raise arguments.refuse("defaultConstraints", f"{text!r} is neither LABEL=MAXSKEW nor alone and system")
        if key in found:
            raise arguments.refuse("defaultConstraints", f"{key!r} is there twice")
        found[key] = int(skew)
    return SpreadingByDefault(tuple(found.items()), system=False)


def _rules(found: dict[tuple[SpreadTerm, bytes], tuple[list[int], Spread]]) -> tuple[MemberRule, ...]:
    return tuple(
        Spread(rule.level, tuple(kinds), rule.counted, rule.present, rule.nodes, rule.max_skew, rule.min_domains)
        for kinds, rule in found.values()
    )


def _barred(kind: int, rule: Spread, ids: NDArray[np.int32]) -> list[Bar]:
    """The nodes whose domain would be too far above the least with one more pod of the kind."""
    domains = np.unique(ids[rule.nodes])
    least = int(rule.present[domains].min()) if len(domains) >= max(1, rule.min_domains) else 0
    over = rule.present + (1 if kind in rule.counted else 0) - least > rule.max_skew
    barred = (ids >= 0) & over[ids] if len(over) else np.zeros(len(ids), dtype=np.bool_)
    return [Bar(kind, barred, REASON)] if barred.any() else []


def _raw_score(rule: Spread, ids: NDArray[np.int32]) -> NDArray[np.float64]:
    """What kube-scheduler counts against a node; NaN where it has not the label."""
    domains = len(np.unique(ids[rule.nodes]))
    cost = rule.present * log(domains + 2) + (rule.max_skew - 1)
    if not len(cost):
        return np.full(len(ids), np.nan)
    return np.where(ids >= 0, cost[ids], np.nan)


def _scores(raw: NDArray[np.float64]) -> NDArray[np.int64]:
    """Turn costs into 0 to 100, as kube-scheduler does."""
    known = raw[~np.isnan(raw)]
    if not len(known):
        return np.zeros(len(raw), dtype=np.int64)
    least, most = np.rint(known.min()), np.rint(known.max())
    if most == 0:
        return np.where(np.isnan(raw), 0, 100).astype(np.int64)
    scores = 100 * (most + least - np.rint(np.nan_to_num(raw))) / most
    return np.where(np.isnan(raw), 0, np.clip(scores, 0, 100)).astype(np.int64)
