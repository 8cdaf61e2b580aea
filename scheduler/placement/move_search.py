"""Which running pods move, and where to, so that something fits: the order in which that is decided.

Nobody, when it fits as things are. "Impossible", when it does not fit with everybody gone, or when what is free is
less than what is asked for, because a move makes nothing free. Else priority by priority, the lowest first:

- Each domain where the pods could be (or the whole cluster) is asked who would have to go if there were room for
  everybody elsewhere: that is a lower bound. In the order of these bounds, the ones who go are packed by the engine
  into what is left. Where that works, the bound is met and the answer is the cheapest.
- Where it does not, and the question is small, one exact model decides, with every destination and every chain of
  moves: its answer is the cheapest of that domain, its "no" is a proof.
- Where the question is large, fewer of those are moved for whom there is no room, and then, in the likeliest domains,
  the model moves the gangs of that domain alone, to the likeliest destinations. What this finds is not proven to be
  the cheapest unless it meets the bound; then only what could stay is made to stay. When it finds nothing, "no" is not
  proven.

Invariant: neither "proven" nor "optimal" is said because time ran out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.bounds import Bounds, bound
from scheduler.placement.cpsat import Clock
from scheduler.placement.engine import place
from scheduler.placement.facts import refuse
from scheduler.placement.instance import Instance, build
from scheduler.placement.move_model import MoveModel, arrivals_of
from scheduler.placement.moves import MoveProblem, Relocated, verify_moves
from scheduler.placement.problem import Budget, Infeasible, Placement, PlacementProblem
from scheduler.placement.repack import places, repack, shortages
from scheduler.placement.room_lots import Pieces, pieces
from scheduler.placement.room_model import Chosen, RoomModel
from scheduler.placement.victims import AtMostEvicted, chunks_of, cost_of

SMALL = 1000
"""Most variables of pods, of those that go and of those that come, for which one model decides all."""
_LIKELY = 16
"""So many destinations of each kind, with room and without, are in the model of a large question."""
_DEEP = 1
"""So many domains are given to the model with destinations although something was found already."""
_POLISH = 0.1
"""Seconds of the solver's own time that each of them gets then."""
_TURNS = 12
"""So many times those that found no place are made to stay."""

Cost: TypeAlias = tuple[int, int, int]
"""Gangs broken, pods, runtime: what is compared inside one priority."""
Moves: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Best:
    """The cheapest moves so far, of those up to one priority. proven: none are cheaper, or there are none at all."""

    answer: Relocated | None = None
    cost: Cost | None = None
    proven: bool = True

    def offer(self, answer: Relocated | None, cost: Cost) -> bool:
        """Keep an answer that is cheaper."""
        if answer is None or (self.cost is not None and cost >= self.cost):
            return False
        self.answer, self.cost = answer, cost
        return True


@dataclass(slots=True, eq=False)
class _Level:
    """The question with everybody up to a priority gone."""

    priority: int
    instance: Instance
    bounds: Bounds
    hosts: NDArray[np.bool_]

    def segments(self) -> list[int]:
        """Return the segments that could hold the pods, the roomiest first."""
        return [int(s) for s in np.lexsort((-self.bounds.room,)) if self.bounds.alive[s]]

    def near(self, segment: int) -> NDArray[np.bool_]:
        """Return the nodes of a segment that could hold a pod."""
        near: NDArray[np.bool_] = self.hosts & (self.instance.segment_ids() == segment)
        return near


@dataclass(slots=True, eq=False)
class MoveSearch:
    """The search of one question whose residents are in order and may all move."""

    problem: MoveProblem
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        asked = self.problem.room.problem
        self.clock = Clock(asked.budget, asked.seed)

    def run(self) -> Relocated | Infeasible:
        """Decide it."""
        room = self.problem.room
        placed = place(room.without(()))
        if isinstance(placed, Placement):
            return Relocated(placed, (), True)
        levels = sorted({gang.priority for gang in room.gangs})
        if not levels:
            return placed
        widest = room.freed(self._movers(levels[-1]))
        answer = place(widest)
        if isinstance(answer, Infeasible) and answer.proven:
            return answer
        if self._too_little(levels[-1]):
            return self._no(room.problem, proven=True, cause="bound")
        proven = True
        for priority in levels:
            level = self._level(priority)
            best = _Best() if level is None else self._at(level)
            if best.answer is not None:
                optimal = best.proven and proven
                return replace(best.answer, optimal=True) if optimal else self._minimal(best.answer)
            proven &= best.proven
        return self._no(room.problem, proven=proven, cause="search" if proven else "budget")

    def _minimal(self, answer: Relocated) -> Relocated:
        """Let whoever need not move stay, the dearest first."""
        room = self.problem.room
        chunks = chunks_of(room, frozenset(resident for resident, _ in answer.moves))
        answer = replace(answer, optimal=False)
        for chunk in sorted(chunks, key=lambda one: (cost_of(room, one), one), reverse=True):
            fewer = self._settled(tuple(move for move in answer.moves if move[0] not in chunk))
            if fewer is not None:
                fewer = replace(fewer, optimal=False)
                if not verify_moves(self.problem, fewer):
                    answer = fewer
        return answer

    def _movers(self, priority: int) -> list[int]:
        return pieces(self.problem.room, priority).residents

    def _no(
        self, problem: PlacementProblem, *, proven: bool, cause: Literal["rules", "bound", "search", "budget"]
    ) -> Infeasible:
        return refuse(build(problem), None, proven=proven, cause=cause)

    def _level(self, priority: int) -> _Level | None:
        """Return the question of a priority; None when sums forbid it."""
        room = self.problem.room
        instance = build(room.freed(self._movers(priority)))
        if instance.composition.contradicts():
            return None
        bounds = bound(instance)
        if not bounds.alive.any():
            return None
        hosts = np.logical_or.reduce([kind.cap > 0 for kind in instance.kinds])
        return _Level(priority, instance, bounds, hosts)

    def _too_little(self, priority: int) -> bool:
        """Whether less is free than is asked for, of a resource or of slots, on all nodes that matter together."""
        level = self._level(priority)
        if level is None:
            return True
        instance, view = level.instance, self.problem.room.problem.nodes
        matter = level.hosts.copy()
        for arrival in arrivals_of(self.problem, self._movers(priority)):
            matter |= arrival.hosts
        needed = [instance.composition.least(kind.members) for kind in instance.kinds]
        for row, name in enumerate(instance.rows):
            last = row == len(instance.rows) - 1
            if not last and name not in view.resources:
                continue
            free = view.slots if last else view.free[view.resources.index(name)]
            asked = sum(count * int(kind.need[row]) for count, kind in zip(needed, instance.kinds, strict=True))
            if asked > sum(np.maximum(free[matter], 0).tolist()):
                return True
        return False

    def _with_model(self, level: _Level, found: Pieces, near: NDArray[np.bool_], best: _Best) -> bool:
        """Improve the best answer by the model with all destinations; return whether it settled what is asked of it."""
        model = MoveModel.of(self.problem, RoomModel(self.problem.room, level.instance, found, near))
        model.build()
        chosen = model.solve(self.clock, best.cost)
        if chosen.cost is None:
            return chosen.proven
        return best.offer(self._settled(model.moves(chosen.evicted)), chosen.cost) and chosen.proven

    def _likely(self, level: _Level, near: NDArray[np.bool_], best: _Best) -> None:
        """Improve the best answer by the model of the gangs of one domain, with the likeliest destinations."""
        found = pieces(self.problem.room, level.priority, near=near)
        clock = self.clock
        if best.cost is not None:
            clock = Clock(Budget(min(clock.left, _POLISH), clock.wall_left), clock.seed)
            self.clock.left -= clock.left
        model = MoveModel.of(self.problem, RoomModel(self.problem.room, level.instance, found, near), _LIKELY)
        model.build()
        chosen = model.solve(clock, best.cost)
        if chosen.cost is not None:
            best.offer(self._settled(model.moves(chosen.evicted)), chosen.cost)

    def _settled(self, moves: Moves) -> Relocated | None:
        """Place what is asked for beside these moves."""
        placed = place(self.problem.after(moves))
        return Relocated(placed, moves, True) if isinstance(placed, Placement) else None

    def _at(self, level: _Level) -> _Best:
        """Decide the question of one priority, domain by domain in the order of their bounds."""
        best = _Best()
        waiting: list[tuple[Cost, int, frozenset[int]]] = []
        for segment in level.segments():
            chosen = self._bound(level, level.near(segment), (), None)
            best.proven &= chosen.proven
            if chosen.cost is not None:
                waiting.append((chosen.cost, segment, chosen.evicted))
        everybody = pieces(self.problem.room, level.priority)
        missed: list[tuple[Cost, int]] = []
        limits: tuple[AtMostEvicted, ...] = ()
        for cost, segment, gone in sorted(waiting, key=lambda one: one[:2]):
            if best.cost is not None and cost >= best.cost:
                break
            near = level.near(segment)
            packed = repack(self.problem, gone)
            if packed.moves is not None and best.offer(self._settled(packed.moves), cost):
                continue
            if self._size(level, everybody, near) > SMALL or not self._with_model(level, everybody, near, best):
                limits = limits or places(self.problem, everybody.residents)
                self._fewer(level, everybody, limits, near, best)
                missed.append((cost, segment))
        for turn, (cost, segment) in enumerate(missed):
            if best.cost is None or (turn < _DEEP and cost < best.cost):
                self._likely(level, level.near(segment), best)
        best.proven &= not missed if best.cost is None else all(best.cost <= cost for cost, _ in missed)
        return best

    def _bound(
        self, level: _Level, near: NDArray[np.bool_], limits: tuple[AtMostEvicted, ...], below: Cost | None
    ) -> Chosen:
        """Return who has to go at least, when there is room elsewhere for as many as `limits` say."""
        room = replace(self.problem.room, rows=(*self.problem.room.rows, *limits))
        model = RoomModel(room, level.instance, pieces(room, level.priority, near=near), near)
        model.build()
        return model.solve(self.clock, below)

    def _fewer(
        self, level: _Level, everybody: Pieces, limits: tuple[AtMostEvicted, ...], near: NDArray[np.bool_], best: _Best
    ) -> None:
        """Move fewer of those for whom there is no room."""
        movers = everybody.residents
        for _ in range(_TURNS):
            chosen = self._bound(level, near, limits, best.cost)
            if chosen.cost is None:
                return
            packed = repack(self.problem, chosen.evicted)
            if packed.moves is not None:
                best.offer(self._settled(packed.moves), chosen.cost)
                return
            limits = (*limits, *shortages(self.problem, packed, movers))

    def _size(self, level: _Level, found: Pieces, near: NDArray[np.bool_]) -> int:
        """Return how many variables a model with destinations has, about."""
        size = len(found.lots) + len(found.wholes)
        size += sum(int(kind.hosts.sum()) for kind in arrivals_of(self.problem, found.residents))
        return size + sum(int(np.count_nonzero(near & (kind.cap > 0))) for kind in level.instance.kinds)
