"""Who has to go so that something fits: the order in which that is decided, each step as soon as it is provably right.

Nobody, when it fits as things are. "Impossible", when it does not fit with everybody gone. Else the lowest priority up
to which victims suffice is found by halving, and of the victims up to it the solver chooses the cheapest set, domain
by domain where all pods must be in one. What is chosen is placed by the engine like any other question; where the
exact question (`refine`) says no after all, somebody outside of that set must go too, and the search goes on. When the
budget or the rounds end, a set grown in order of cost, from which everybody who need not go is put back, is the answer:
minimal, not proven to be the cheapest.

A domain that is only preferred comes before the work that is lost, and after everything else that a set costs.

Invariant: neither "proven" nor "optimal" is said because time ran out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from scheduler.placement.between import domain_ids
from scheduler.placement.bounds import bound
from scheduler.placement.cpsat import LARGEST_MODEL, Clock
from scheduler.placement.engine import place
from scheduler.placement.facts import refuse
from scheduler.placement.instance import build
from scheduler.placement.problem import Infeasible, Placement, PlacementProblem, Within
from scheduler.placement.room_bounds import least_costs
from scheduler.placement.room_greedy import grow, put_back
from scheduler.placement.room_lots import pieces
from scheduler.placement.room_model import Chosen, RoomModel
from scheduler.placement.victims import MadeRoom, MustFree, VictimProblem, cost_of, row_holds, taken

_ROUNDS = 24
"""So many sets that the exact question refuses are learnt from; then the answer is grown."""


@dataclass(slots=True)
class _Best:
    """The cheapest set known so far that is not refused yet. proven: none is cheaper."""

    evicted: frozenset[int] | None = None
    cost: tuple[int, int, int] | None = None
    proven: bool = True


@dataclass(slots=True, eq=False)
class Search:
    problem: VictimProblem
    clock: Clock
    refused: list[frozenset[int]] = field(default_factory=list)
    _loose: list[int] = field(init=False)

    def __post_init__(self) -> None:
        highest = max((gang.priority for gang in self.problem.gangs), default=0)
        self._loose = pieces(self.problem, highest).residents

    @classmethod
    def of(cls, problem: VictimProblem) -> Search:
        """Return the search for a question whose residents are in order."""
        return cls(problem, Clock(problem.problem.budget, problem.problem.seed))

    def run(self) -> MadeRoom | Infeasible:
        """Decide the question; rules that are not hard are kept where that costs nothing but lost work."""
        plain = self._decide()
        soft = [rule for rule in self.problem.problem.rules if isinstance(rule, Within) and not rule.hard]
        if isinstance(plain, Infeasible) or not plain.evicted or not plain.optimal:
            return plain
        soft.sort(key=lambda rule: int(domain_ids(self.problem.problem, rule.level).max(initial=-1)))
        for kept in range(len(soft), 0, -1):
            harder = Search(_hardened(self.problem, soft[:kept]), self.clock)._decide()
            if isinstance(harder, MadeRoom) and self._alike(harder, plain):
                return harder
        return plain

    def _alike(self, one: MadeRoom, other: MadeRoom) -> bool:
        """Whether two sets of victims cost the same priority, gangs and pods."""
        return cost_of(self.problem, one.evicted)[:3] == cost_of(self.problem, other.evicted)[:3]

    def _decide(self) -> MadeRoom | Infeasible:
        problem = self.problem
        if self._frees(frozenset()):
            placed = place(problem.without(()))
            if isinstance(placed, Placement):
                return MadeRoom(placed, (), True)
            if not problem.gangs:
                return placed
        levels = sorted({gang.priority for gang in problem.gangs}) or [0]
        everybody = self._all_up_to(levels[-1])
        if not self._frees(everybody):
            return self._no(problem.freed(everybody), proven=True, cause="rules")
        widest = place(problem.freed(everybody))
        if isinstance(widest, Infeasible) and widest.proven:
            return widest
        proven = True
        for level in levels[self._threshold(levels) :]:
            made, certain = self._at(level)
            if made is not None:
                return replace(made, optimal=made.optimal and proven)
            proven &= certain
        return self._no(problem.freed(everybody), proven=proven, cause="search" if proven else "budget")

    def _all_up_to(self, priority: int) -> frozenset[int]:
        """Return everybody who could go up to a priority, whatever the rows say."""
        gangs, gang_of = self.problem.gangs, self.problem.gang_of
        return frozenset(resident for resident in self._loose if gangs[gang_of[resident]].priority <= priority)

    def _frees(self, gone: frozenset[int]) -> bool:
        """Whether what must go in any case can go with these."""
        always = (row for row in self.problem.rows if isinstance(row, MustFree) and row.when is None)
        return all(taken(row.amounts, gone) >= row.least for row in always)

    def _no(
        self, problem: PlacementProblem, *, proven: bool, cause: Literal["rules", "bound", "search", "budget"]
    ) -> Infeasible:
        return refuse(build(problem), None, proven=proven, cause=cause)

    def _threshold(self, levels: list[int]) -> int:
        """Return the number of the first level up to which victims could suffice when no limit held them back."""
        low, high = 0, len(levels) - 1
        while low < high:
            middle = (low + high) // 2
            gone = self._all_up_to(levels[middle])
            enough = self._frees(gone)
            if enough:
                answer = place(self.problem.freed(gone))
                enough = isinstance(answer, Placement) or not answer.proven
            if enough:
                high = middle
            else:
                low = middle + 1
        return low

    def _at(self, level: int) -> tuple[MadeRoom | None, bool]:
        """Return the answer with victims up to a level, and whether "none" is certain."""
        certain = True
        sets: list[frozenset[int]] = []
        for turn in range(_ROUNDS):
            best = self._cheapest(level, apart=turn > 0)
            certain &= best.proven
            if best.evicted is None:
                if best.proven:
                    return None, certain
                break
            placed = place(self.problem.without(best.evicted))
            if isinstance(placed, Placement):
                if certain:
                    return MadeRoom(placed, tuple(sorted(best.evicted)), True), True
                sets.append(put_back(self.problem, best.evicted, self._fits))
                break
            certain &= placed.proven
            self.refused.append(best.evicted)
        grown = grow(self.problem, level, self._fits)
        if grown is not None:
            sets.append(grown)
        for gone in sorted(sets, key=lambda gone: (cost_of(self.problem, gone), sorted(gone))):
            placed = place(self.problem.without(gone))
            if isinstance(placed, Placement):
                return MadeRoom(placed, tuple(sorted(gone)), False), False
        return None, False

    def _fits(self, gone: frozenset[int]) -> bool:
        must = (row for row in self.problem.rows if isinstance(row, MustFree))
        if not all(row_holds(self.problem, row, gone) for row in must):
            return False
        return isinstance(place(self.problem.without(gone)), Placement)

    def _cheapest(self, level: int, *, apart: bool) -> _Best:
        """Return the cheapest set of victims up to a level, segment by segment."""
        problem = self.problem
        instance = build(problem.freed(self._all_up_to(level)))
        best = _Best()
        if instance.composition.contradicts():
            return best
        bounds = bound(instance)
        ids = instance.segment_ids()
        segments = [int(s) for s in np.lexsort((-bounds.room,)) if bounds.alive[s]]
        floor = [(0, 0, 0)] * instance.segment_count
        if len(segments) > 1:
            floor = least_costs(problem, instance, pieces(problem, level))
            segments.sort(key=lambda segment: floor[segment])
        for runs, segment in enumerate(segments):
            if best.cost is not None and floor[segment] >= best.cost:
                break
            if runs >= problem.problem.budget.max_domains:
                best.proven = False
                break
            nodes = ids == segment
            near = nodes & np.logical_or.reduce([kind.cap > 0 for kind in instance.kinds])
            found = pieces(problem, level, apart=apart, near=near)
            model = RoomModel(problem, instance, found, near)
            if sum(int(np.count_nonzero(near & (kind.cap > 0))) for kind in instance.kinds) > LARGEST_MODEL:
                best.proven = False
                continue
            model.build()
            if self.refused:
                model.forbid(self.refused)
            chosen: Chosen = model.solve(self.clock, best.cost)
            best.proven &= chosen.proven
            if chosen.cost is not None and (best.cost is None or chosen.cost < best.cost):
                best.evicted, best.cost = chosen.evicted, chosen.cost
        return best


def _hardened(problem: VictimProblem, chosen: Sequence[Within]) -> VictimProblem:
    """Return the question in which these rules are hard, also where it is refined."""
    preferred = {(rule.level, rule.demands) for rule in chosen}
    refine = problem.refine

    def harder(asked: PlacementProblem) -> PlacementProblem:
        rules = tuple(
            replace(rule, hard=True) if isinstance(rule, Within) and (rule.level, rule.demands) in preferred else rule
            for rule in asked.rules
        )
        return replace(asked, rules=rules)

    def refined(gone: frozenset[int]) -> PlacementProblem:
        assert refine is not None
        return harder(refine(gone))

    return replace(problem, problem=harder(problem.problem), refine=None if refine is None else refined)
