"""Counting: exact for one demand, with masks, per-node maxima and limits per domain.

Decided here: that a single demand never needs a search. "No" is a proof.
"""

from __future__ import annotations

import numpy as np

from scheduler.placement.arrays import Ints
from scheduler.placement.choose import choose
from scheduler.placement.compiled import Compiled


def applies(compiled: Compiled) -> bool:
    """Whether counting decides: one demand, and limits on at most one kind of domain."""
    return len(compiled.fit) == 1 and len(compiled.caps) <= 1


def needed(compiled: Compiled) -> int:
    """Pods of the single demand that must be placed."""
    return max([compiled.lower[0], *(rule.count for rule in compiled.minimums)])


def room(compiled: Compiled) -> int:
    """Pods of the single demand that the nodes take."""
    fit = compiled.fit[0]
    if not compiled.caps:
        return int(fit.sum())
    ids, limit, _ = compiled.caps[0]
    known = ids >= 0
    per = np.bincount(ids[known], weights=fit[known]).astype(np.int64)
    return int(np.minimum(per, limit).sum()) + int(fit[~known].sum())


def count(compiled: Compiled) -> Ints | None:
    """Return the (1, N) table of an answer, or None: there is none."""
    least = needed(compiled)
    most = min(compiled.upper[0], room(compiled))
    if least > most:
        return None
    problem = compiled.problem
    target = most if problem.maximize else least
    fit = _within_limits(compiled) if compiled.caps else compiled.fit[0]
    demand = problem.demands[0]
    scores = None if demand.scores is None else demand.scores[compiled.rows]
    return choose(fit, target, scores, problem.objective)[None, :]


def _within_limits(compiled: Compiled) -> Ints:
    """Cut `fit` so that no choice of nodes can break the limit of a domain."""
    ids, limit, _ = compiled.caps[0]
    fit: Ints = compiled.fit[0].copy()
    demand = compiled.problem.demands[0]
    scores = None if demand.scores is None else demand.scores[compiled.rows]
    for domain in np.unique(ids[ids >= 0]):
        inside = np.flatnonzero(ids == domain)
        room_here = int(fit[inside].sum())
        if room_here > limit:
            part = None if scores is None else scores[inside]
            fit[inside] = choose(fit[inside], limit, part, compiled.problem.objective)
    return fit
