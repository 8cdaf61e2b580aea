"""The order in which a problem is solved: each step returns as soon as it is provably right.

Counting decides one kind of pods. Sums strike out segments; when none is left, that is the proof. The portfolio finds
most placements. The solver decides the rest, exactly, within its budget. Invariant: every placement that leaves here
passed `verify`, and "proven" is never said because time ran out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

import numpy as np

from scheduler.placement.bounds import Bounds, bound
from scheduler.placement.checks import check_problem
from scheduler.placement.composition import Composition
from scheduler.placement.counting import best_first, capped, fill, running, segment_sums
from scheduler.placement.facts import refuse
from scheduler.placement.greedy import Draft, search, upper
from scheduler.placement.instance import Instance, Ints, build
from scheduler.placement.levelling import fill_shares, nested, rooms, share_out, widest_first
from scheduler.placement.problem import (
    Counts,
    Infeasible,
    Method,
    Placement,
    PlacementBug,
    PlacementProblem,
)
from scheduler.placement.soft import kept, preferring
from scheduler.placement.spans import Spans
from scheduler.placement.standing import holds
from scheduler.placement.verify import verify

ALL: tuple[Method, ...] = ("counting", "greedy", "master", "pattern", "integer")


def place(problem: PlacementProblem) -> Placement | Infeasible:
    """Return a placement, or why there is none. Raises `BadProblem`, and `PlacementBug` when the engine is wrong."""
    return place_by(problem, ALL)


def place_by(problem: PlacementProblem, methods: Collection[Method]) -> Placement | Infeasible:
    """As `place`, with some of the methods only: what none of them decides is not proven."""
    check_problem(problem)
    answer = preferring(problem, methods, _solve)
    if isinstance(answer, Placement):
        answer = replace(answer, kept=kept(problem, answer))
        failures = verify(problem, answer)
        if failures:
            raise PlacementBug(problem, answer, failures)
    return answer


def _solve(problem: PlacementProblem, methods: Collection[Method]) -> Placement | Infeasible:
    instance = build(problem)
    composition = instance.composition
    if composition.contradicts():
        return refuse(instance, None, proven=True, cause=_cause(problem))
    if "counting" in methods and len(instance.kinds) == 1 and not instance.partial and not instance.follows:
        answer = _count_spans(instance) if instance.few or instance.multiples else _count(instance)
        if answer is not None:
            return answer
    bounds = bound(instance)
    if not bounds.alive.any():
        return refuse(instance, bounds, proven=True, cause="bound")
    if instance.partial and not problem.maximize:
        from scheduler.placement.twolevel import search_units

        found = search_units(instance, bounds, methods)
        if found is not None:
            return Placement(_counts(instance, found[0]), found[1])
        if not bounds.alive.any():
            return refuse(instance, bounds, proven=True, cause="search")
    draft = None
    if "greedy" in methods:
        draft = search(instance, bounds)
        if draft is not None and (not problem.maximize or sum(draft.counts) >= upper(instance, bounds)):
            return Placement(_counts(instance, draft), "greedy")
    return _exact(instance, bounds, draft, methods)


def _cause(problem: PlacementProblem) -> Literal["rules", "bound"]:
    """Tell whether the limits forbid it, or the nodes."""
    alone = Composition.of(problem, [demand.count for demand in problem.demands])
    return "rules" if alone.contradicts() else "bound"


def _count(instance: Instance) -> Placement | Infeasible | None:
    """Decide one kind of pods; None when sums do not settle it."""
    problem, composition, kind = instance.problem, instance.composition, instance.kinds[0]
    wanted = composition.preferred()
    cap = capped(instance, 0)
    spreads = widest_first([part for part in instance.spreads if 0 in part.carriers])
    counts = [part.present for part in spreads]
    top = rooms(instance, spreads, 0, cap, counts)[1][0] if spreads else cap
    sums = segment_sums(top, instance.segments, instance.segment_count)
    largest = int(sums.max(initial=0))
    exact = instance.countable or (not instance.domain_limits and nested(spreads, cap))
    if exact and largest < composition.least(kind.members):
        return refuse(instance, None, proven=True, cause="bound")
    if wanted is None or largest < sum(wanted):
        return None
    total, optimal = sum(wanted), True
    if problem.maximize:
        composition.extend(wanted, largest)
        if not composition.holds(wanted):
            return None
        total = sum(wanted)
        optimal = total == largest or composition.fixed or composition.single()
        if not (exact and optimal):
            return None
    segment = _best_segment(instance, cap, sums, total)
    if instance.segments is not None:
        cap = np.where(instance.segments == segment, cap, 0)
    if spreads:
        shared = share_out(instance, spreads, 0, cap, total, counts)
        x = fill_shares(instance, kind, shared)
        if int(x.sum()) < total or not holds(instance, x[None, :]):
            return None
    else:
        x = fill(instance, kind, cap, total)
    return Placement(_counts(instance, Draft(x[None, :], wanted)), "counting")


def _count_spans(instance: Instance) -> Placement | Infeasible | None:
    """Decide one kind of pods in few domains or in multiples; None when sums do not settle it."""
    composition, kind = instance.composition, instance.kinds[0]
    if instance.problem.maximize or instance.spreads or instance.domain_limits:
        return None
    spans = Spans.of(instance)
    if spans is None:
        return None
    if int(spans.sums.max(initial=0)) < composition.least(kind.members):
        return refuse(instance, None, proven=True, cause="bound")
    wanted = composition.preferred()
    if wanted is None or sum(wanted) % max(level.size for level in spans.levels):
        return None
    if int(spans.sums.max(initial=0)) < sum(wanted):
        return None
    segment = _best_segment(instance, kind.cap, spans.sums, sum(wanted))
    return Placement(_counts(instance, Draft(spans.share(segment, sum(wanted))[None, :], wanted)), "counting")


def _best_segment(instance: Instance, cap: Ints, sums: Ints, total: int) -> int:
    """Of the segments that take all: the fullest, with "spread" the roomiest, with "scores" the best."""
    if instance.segments is None:
        return 0
    able = np.flatnonzero(sums >= total)
    if able.size == 1:
        return int(able[0])
    objective, scores = instance.problem.objective, instance.kinds[0].scores
    keys = [-sums[able] if objective == "spread" else sums[able]]
    if objective == "scores" and scores is not None and total > 0:
        chosen = np.zeros(instance.segment_count + 1, dtype=np.bool_)  # the last: nodes in no segment
        chosen[able] = True
        nodes = (chosen[instance.segments] & (cap > 0)).nonzero()[0]
        nodes = nodes[best_first(scores[nodes], instance.segments[nodes])]
        held, inside = cap[nodes], instance.segments[nodes]
        taken = np.minimum(np.maximum(total - running(held, inside), 0), held)
        starts = np.append(0, (inside[1:] != inside[:-1]).nonzero()[0] + 1)  # one for each of `able`, in its order
        keys.append(-np.add.reduceat(taken * scores[nodes], starts))
    return int(able[np.lexsort(keys)[0]])


def _exact(
    instance: Instance, bounds: Bounds, draft: Draft | None, methods: Collection[Method]
) -> Placement | Infeasible:
    """Let the solver decide; `draft` is the incumbent when as many pods as possible are wanted."""
    if "pattern" in methods or "integer" in methods:
        from scheduler.placement.exact import solve

        found = solve(instance, bounds, draft, methods)
        if found.draft is not None:
            return Placement(_counts(instance, found.draft), found.method, found.proven)
        return refuse(instance, bounds, proven=found.proven, cause="search" if found.proven else "budget")
    if draft is not None:
        return Placement(_counts(instance, draft), "greedy", optimal=False)
    return refuse(instance, bounds, proven=False, cause="budget")


def _counts(instance: Instance, draft: Draft) -> Counts:
    """Split the pods of each kind among its demands, in the order of their names, node after node."""
    rows: list[tuple[tuple[int, int], ...]] = [()] * len(instance.problem.demands)
    for number, kind in enumerate(instance.kinds):
        nodes = np.flatnonzero(draft.x[number])
        pods = draft.x[number, nodes]
        pairs = list(zip(nodes.tolist(), pods.tolist(), strict=True))
        if len(kind.members) == 1:
            rows[kind.members[0]] = tuple(pairs)
            continue
        place, left = 0, pairs[0][1] if pairs else 0
        for demand in kind.members:
            missing, row = draft.counts[demand], []
            while missing > 0:
                taken = min(missing, left)
                row.append((pairs[place][0], taken))
                missing, left = missing - taken, left - taken
                if left == 0 and place + 1 < len(pairs):
                    place += 1
                    left = pairs[place][1]
            rows[demand] = tuple(row)
    return tuple(rows)
