"""From an ask to a placement problem and back: the only place where sessions speak to placement.

Decided here: how wishes, relations, running members and refusals become masks, rules and resources, and which objective
is meant. Equal asks with equal relations on equal amounts get the same answer without a new search, in this session or
a later one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask, Kind, likeness, relate
from scheduler.actions.domain_rules import asked_rules, level_of, wished_rules
from scheduler.actions.seats import levels_of, nearness
from scheduler.framework.relations import Relations
from scheduler.framework.session import Session
from scheduler.model.nodes import HOSTNAME
from scheduler.model.rules import Follow, MemberRule, Once
from scheduler.model.verdict import Verdict
from scheduler.placement import place
from scheduler.placement.problem import (
    NODE,
    Budget,
    Counts,
    Demand,
    Infeasible,
    NodeView,
    Objective,
    Placement,
    PlacementProblem,
)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """For each kind of the ask: rows of the node table, and how many of its members each of them takes."""

    parts: tuple[tuple[NDArray[np.intp], NDArray[np.int64]], ...]


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is no placement; `proven`, or the search budget ended before one was found."""

    proven: bool = True


def solve(session: Session, ask: Ask) -> Found | Nothing:
    """Return where the members go on the amounts as they are now. Raises `HookRaised`."""
    relations = relate(session, ask)
    if isinstance(relations, Verdict):
        return Nothing(proven=True)
    fresh = session.session_id if session.hooks.volatile else ""
    key: Hashable = ("place", session.ledger.token, session.space, fresh, likeness(session, ask), relations.digest)
    known: Found | Nothing | None = session.cache.memo.get(key)
    if known is None:
        known = _solve(session, ask, relations, empty=False)
        session.cache.memo.put(key, known)
    return known


def would_fit(session: Session, ask: Ask, relations: Relations, *, empty: bool) -> bool:
    """Whether the ask would fit under these relations instead of its own, as things are or as if nothing ran."""
    token = 0 if empty else session.ledger.token
    key: Hashable = ("would", token, session.space, likeness(session, ask), relations.digest, empty)
    known: bool | None = session.cache.memo.get(key)
    if known is None:
        known = isinstance(_solve(session, ask, replace(relations, wanted=()), empty=empty), Found)
        session.cache.memo.put(key, known)
    return known


def could_ever(session: Session, ask: Ask, *, under_rules: bool = True) -> bool:
    """Whether the ask would fit if nothing ran in the cluster. Where no search settles it, yes; without nodes, too.

    under_rules: also under the rules between its members.
    """
    if not session.table.names:
        return True
    relations = relate(session, ask, empty=True)
    if isinstance(relations, Verdict):
        return True
    if not under_rules:
        relations = replace(relations, rules=())
    key: Hashable = ("ever", session.space, likeness(session, ask), relations.digest)
    known: bool | None = session.cache.memo.get(key)
    if known is None:
        answer = _solve(session, ask, replace(relations, wanted=()), empty=True)
        known = isinstance(answer, Found) or not answer.proven
        session.cache.memo.put(key, known)
    return known


def most_ever(session: Session, ask: Ask) -> int:
    """How many of the members, each for itself, would fit if nothing ran in the cluster."""
    relations = relate(session, ask, empty=True)
    if isinstance(relations, Verdict):
        return 0
    key: Hashable = ("most", session.space, likeness(session, ask), relations.digest)
    known: int | None = session.cache.memo.get(key)
    if known is None:
        answer = _solve(session, ask, replace(relations, wanted=()), empty=True)
        known = sum(int(counts.sum()) for _, counts in answer.parts) if isinstance(answer, Found) else 0
        session.cache.memo.put(key, known)
    return known


def _solve(session: Session, ask: Ask, relations: Relations, *, empty: bool) -> Found | Nothing:
    """Search, first with the rules that are only wanted; they are dropped together when they cost any member."""
    problem = problem_of(session, ask, relations, empty=empty)
    answer: Placement | Infeasible | None = None
    if relations.wanted:
        answer = place(replace(problem, rules=(*problem.rules, *_leveled(session, relations.wanted))))
        wanted = sum(demand.count for demand in problem.demands) if problem.maximize else 0
        if isinstance(answer, Infeasible):
            answer = None
        elif answer.total < wanted:
            plain = place(problem)
            if isinstance(plain, Placement) and plain.total > answer.total:
                answer = plain
    if answer is None:
        answer = place(problem)
    if isinstance(answer, Infeasible):
        outcome = f"infeasible_{answer.cause}" if answer.proven else "unknown"
        session.count("solver_results_total", status=outcome)
        return Nothing(proven=answer.proven)
    session.count("solver_results_total", status=answer.method)
    if answer.total == 0:
        return Nothing(proven=True)
    return Found(parts_of(answer.counts))


def parts_of(counts: Counts) -> tuple[tuple[NDArray[np.intp], NDArray[np.int64]], ...]:
    """Return for each demand the rows, and how many pods each takes."""
    return tuple(
        (
            np.array([node for node, _ in pairs], dtype=np.intp),
            np.array([number for _, number in pairs], dtype=np.int64),
        )
        for pairs in counts
    )


def problem_of(session: Session, ask: Ask, relations: Relations, *, empty: bool = False) -> PlacementProblem:
    """Return the problem: on the amounts as they are now, or as if nothing ran (`empty`)."""
    table = session.table
    rules = _leveled(session, relations.rules)
    levels = dict.fromkeys(level_of(wish.label) for wish in ask.wishes if level_of(wish.label) != NODE)
    levels.update(dict.fromkeys(level for rule in (*rules, *relations.wanted) for level in _levels(rule) if level))
    own: dict[str, tuple[NDArray[np.int32], tuple[str, ...]]] = {
        level.name: (level.ids, ()) for level in relations.levels
    }
    domains = {level: own[level] if level in own else session.domains(level) for level in levels}
    free, slots = (table.allocatable, table.slots) if empty else (session.free, session.open_slots)
    if relations.extras:
        free = np.vstack([free, *(extra.free for extra in relations.extras)])
    nodes = NodeView(
        names=table.names,
        resources=table.resources + tuple(extra.name for extra in relations.extras),
        free=free,
        slots=slots,
        domains={level: ids for level, (ids, _) in domains.items()},
        domain_names={level: names for level, (_, names) in domains.items()},
    )
    grouped = {level: ids for level, (ids, _) in domains.items()} | {NODE: np.arange(len(table.names), dtype=np.int32)}
    masks, wished = wished_rules(ask, grouped, empty=empty)
    members = (0,) * len(ask.kinds) if ask.each or ask.total < sum(map(_size, ask.kinds)) else map(_size, ask.kinds)
    demands = tuple(
        _demand(session, ask, number, minimum, masks.get(number), relations, empty=empty)
        for number, minimum in enumerate(members)
    )
    scored = any(demand.scores is not None for demand in demands)
    back = any(kind.seat is not None for kind in ask.kinds) and not empty
    objective: Objective = "spread" if session.hooks.spreads and not back else "scores" if scored else "pack"
    return PlacementProblem(
        nodes=nodes,
        demands=demands,
        rules=(*asked_rules(ask), *wished, *rules),
        seed=session.seed,
        budget=Budget(deterministic_time=session.budget.max_deterministic_time, wall_limit=session.budget.wall_limit),
        objective=objective,
        maximize=ask.each,
    )


def _levels(rule: MemberRule) -> tuple[str, ...]:
    if isinstance(rule, Once):
        return ()
    return rule.levels if isinstance(rule, Follow) else (rule.level,)


def _leveled(session: Session, rules: Iterable[MemberRule]) -> tuple[Any, ...]:
    """Name the level of the hostname label as that of the nodes themselves, where every node has its own."""
    found: list[MemberRule] = []
    for rule in rules:
        if HOSTNAME not in _levels(rule) or not session.hostnames_are_nodes:
            found.append(rule)
        elif isinstance(rule, Follow):
            found.append(replace(rule, levels=tuple(NODE if level == HOSTNAME else level for level in rule.levels)))
        elif not isinstance(rule, Once):
            found.append(replace(rule, level=NODE))
    return tuple(found)


def _size(kind: Kind) -> int:
    return len(kind.pods)


def _demand(
    session: Session,
    ask: Ask,
    number: int,
    minimum: int,
    allowed: NDArray[np.bool_] | None,
    relations: Relations,
    *,
    empty: bool,
) -> Demand:
    kind = ask.kinds[number]
    fit = session.fit(kind.shape)
    mask = fit.ever if empty else fit.mask
    if session.missing_resources(kind.shape):
        mask = np.zeros_like(mask)
    if kind.refused and not empty:
        mask = mask.copy()
        mask[list(kind.refused)] = False
    if allowed is not None:
        mask = mask & allowed
    barred = relations.barred(number)
    if barred is not None:
        mask = mask & ~barred
    scores: NDArray[np.int64] | None = None
    if not empty:
        scores = session.hooks.scores_nodes(kind.shape, session)
        if session.hooks.has("scores"):
            scores = fit.scores if scores is None else scores + fit.scores
        related = relations.scored(number)
        if related is not None:
            scores = related if scores is None else scores + related
        if kind.seat is not None:
            scores = nearness(session, kind.seat, levels_of(session, ask.wishes), scores)
    requests = session.request(kind.shape)
    if relations.extras:
        more = np.array([extra.needs[number] for extra in relations.extras], dtype=np.int64)
        requests = np.concatenate([requests, more])
    return Demand(
        name=f"{number}:{kind.role}",
        requests=requests,
        count=len(kind.pods),
        minimum=minimum,
        mask=mask,
        scores=scores,
    )
