"""Small questions of who has to go, and the cheapest sets found by trying all of them: written for these tests, naive
on purpose, sharing no code with what it checks. Whether pods fit is asked of `placement_cases`."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations, product

import numpy as np
from hypothesis import strategies as st

from scheduler.placement import (
    Apart,
    AtMostEvicted,
    AtMostTaken,
    Budget,
    Demand,
    Minimum,
    MustFree,
    NodeView,
    PlacementProblem,
    Resident,
    RunningGang,
    VictimProblem,
    WhileOver,
    Within,
)
from tests.properties.placement_cases import TREE_RULES, member_rule, most, tree_rules

UNIT = 2**38 + 1
MOST_RESIDENTS = 8


@st.composite
def rooms(draw, *, member_rules=False, in_trees=False):
    """Full little clusters: up to 5 nodes, 6 gangs and 8 pods that run, 2 demands and 2 resources."""
    size = draw(st.integers(1, 5))
    width = draw(st.integers(1, 2))
    scale = np.array([1, UNIT][:width], dtype=np.int64)
    residents, gangs = _running(draw, size, width, scale)
    free = np.array([[draw(st.sampled_from([0, 0, 0, 1, 2, -1])) for _ in range(size)] for _ in range(width)])
    slots = np.array([draw(st.sampled_from([0, 1, 4])) for _ in range(size)], dtype=np.int64)
    racks = np.array([draw(st.sampled_from([0, 0, 1, 1, -1])) for _ in range(size)], dtype=np.int32)
    zones = np.array([draw(st.sampled_from([0, 1, 2])) for _ in range(size)], dtype=np.int32)
    nodes = NodeView(
        names=[f"n{node}" for node in range(size)],
        resources=("gpu", "memory")[:width],
        free=free.astype(np.int64) * scale[:, None],
        slots=slots,
        domains={"rack": racks, "zone": zones},
    )
    number = draw(st.integers(1, 2))
    demands = tuple(_demand(draw, f"d{index}", size, width, scale) for index in range(number))
    rules = []
    if draw(st.booleans()):
        rules.append(Within("rack", draw(st.sampled_from([True, True, False])), None))
    if draw(st.sampled_from([False, False, True])):
        rules.append(Apart(draw(st.sampled_from(["", "rack"])), draw(st.integers(1, 2)), None))
    if draw(st.sampled_from([False, False, True])):
        rules.append(Minimum(tuple(range(number)), draw(st.integers(1, 3))))
    if member_rules:
        which = draw(st.sampled_from(["repel", "cap", "once", "spread"]))
        rules.append(member_rule(draw, which, number, size, nodes.resources))
    for _ in range(draw(st.integers(1, 2)) if in_trees else 0):
        random = np.random.default_rng(draw(st.integers(0, 2**32)))
        rules.extend(tree_rules(random, draw(st.sampled_from(TREE_RULES)), list(demands), "zone"))
    problem = PlacementProblem(
        nodes=nodes, demands=demands, rules=tuple(rules), budget=Budget(20.0, 60.0, 1000), seed=draw(st.integers(0, 2))
    )
    return VictimProblem(problem, residents, gangs, tuple(_rows(draw, residents, width, scale)))


def _running(draw, size, width, scale):
    residents: list[Resident] = []
    gangs: list[RunningGang] = []
    for _ in range(draw(st.integers(0, 6))):
        count = min(draw(st.sampled_from([1, 1, 2, 2, 3])), MOST_RESIDENTS - len(residents))
        if count == 0:
            break
        mine = tuple(range(len(residents), len(residents) + count))
        for number in mine:
            holds = np.array([draw(st.integers(0, 3)) for _ in range(width)], dtype=np.int64) * scale
            runtime = draw(st.sampled_from([0, 5, 5, 7, 100]))
            residents.append(Resident(draw(st.integers(0, size - 1)), holds, runtime, f"pod-{number}"))
        fixed = draw(st.sampled_from([0, 0, 0, 1]))
        roles = []
        if count > 1 and draw(st.booleans()):
            cut = draw(st.integers(1, count - 1))
            roles = [(mine[:cut], draw(st.integers(0, cut))), (mine[cut:], draw(st.integers(0, count - cut)))]
            across = mine[:: draw(st.integers(2, 3))]
            if draw(st.booleans()):  # a sub-group across the roles
                roles.append((across, draw(st.integers(0, len(across)))))
        minimum = draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, count + fixed))
        gangs.append(
            RunningGang(
                mine, minimum, tuple(roles), fixed, draw(st.sampled_from([0, 0, 1, 5])), draw(st.integers(0, 3)) == 3
            )
        )
    return tuple(residents), tuple(gangs)


def _demand(draw, name, size, width, scale):
    count = draw(st.integers(1, 3))
    requests = np.array([draw(st.integers(0, 3)) for _ in range(width)], dtype=np.int64) * scale
    mask = np.array(draw(st.lists(st.sampled_from([True, True, False]), min_size=size, max_size=size)))
    return Demand(
        name,
        requests,
        count,
        draw(st.sampled_from([count, count, 0, 1])),
        mask=mask if draw(st.booleans()) else None,
        max_per_node=draw(st.sampled_from([None, None, None, 1])),
    )


def _rows(draw, residents, width, scale):
    if not residents:
        return
    some = st.lists(st.integers(0, len(residents) - 1), min_size=1, unique=True).map(tuple)
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3]))):
        which = draw(st.sampled_from(["most", "taken", "free", "over", "over"]))
        if which == "most":
            yield AtMostEvicted(draw(some), draw(st.integers(0, 3)))
        elif which == "taken":
            one = draw(st.integers(0, width - 1))
            yield AtMostTaken(
                tuple((resident, int(residents[resident].holds[one])) for resident in draw(some)),
                draw(st.integers(0, 6)) * int(scale[one]),
            )
        elif which == "free":
            amounts = tuple((resident, draw(st.integers(0, 2))) for resident in draw(some))
            yield MustFree(amounts, draw(st.integers(-1, 3)), draw(st.one_of(st.none(), some)))
        else:
            over = [(k, draw(st.integers(1, 4)) * int(scale[k])) for k in range(width) if draw(st.booleans())]
            yield WhileOver(draw(some), tuple(over))


def ways_to_lose(gang: RunningGang) -> list[tuple[tuple[int, ...], bool]]:
    """Return each part that a gang may lose, and whether it breaks the gang."""
    found = []
    for lost in chain.from_iterable(combinations(gang.residents, n) for n in range(len(gang.residents) + 1)):
        lives = len(gang.residents) - len(lost) + gang.fixed >= gang.minimum
        for residents, least in gang.roles:
            lives = lives and len([r for r in residents if r not in lost]) >= least
        if not lost or lives:
            found.append((lost, False))
        elif len(lost) == len(gang.residents) and gang.fixed == 0:
            found.append((lost, True))
    return found


def _row_holds(problem, row, gone, chunks):
    if isinstance(row, AtMostEvicted):
        return len(set(row.residents) & gone) <= row.most
    if isinstance(row, AtMostTaken):
        return sum(amount for resident, amount in row.amounts if resident in gone) <= row.most
    if isinstance(row, MustFree):
        if row.when is not None and not set(row.when) & gone:
            return True
        return sum(amount for resident, amount in row.amounts if resident in gone) >= row.least
    mine = [[r for r in chunk if r in row.residents] for chunk in chunks]
    mine = [chunk for chunk in mine if chunk]
    if not mine:
        return True
    for resource, over in row.over:
        for last in range(len(mine)):
            before = [r for number, chunk in enumerate(mine) if number != last for r in chunk]
            if sum(int(problem.residents[r].holds[resource]) for r in before) < over:
                return True
    return False


def sets(problem: VictimProblem):
    """Yield (cost, victims) of every set that gangs and rows allow, the cheapest first; a cost without priority for
    nobody."""
    found = []
    for choice in product(*(ways_to_lose(gang) for gang in problem.gangs)):
        gone, chunks, broken, highest = set(), [], 0, -(2**31) - 1
        for gang, (lost, breaks) in zip(problem.gangs, choice, strict=True):
            gone |= set(lost)
            broken += breaks and not gang.spare
            chunks += [lost] if breaks else [(r,) for r in lost]
            highest = max(highest, gang.priority) if lost else highest
        if all(_row_holds(problem, row, gone, chunks) for row in problem.rows):
            runtime = sum(problem.residents[r].runtime for r in gone)
            found.append(((highest, broken, len(gone), runtime), frozenset(gone)))
    return sorted(found, key=lambda one: (one[0], sorted(one[1])))


def fits(problem: VictimProblem, gone) -> bool:
    """Whether everything can be placed when these are gone."""
    return most(problem.without(gone)) is not None


def cheapest(problem: VictimProblem):
    """Return the cost of the cheapest set that suffices, or None. A preferred domain counts for more than runtime."""
    best = _cheapest(problem)
    rules = problem.problem.rules
    hard = tuple(replace(rule, hard=True) if isinstance(rule, Within) else rule for rule in rules)
    if best is None or best[2] == 0 or hard == rules:
        return best
    refine = problem.refine
    harder = replace(
        problem,
        problem=replace(problem.problem, rules=hard),
        refine=None if refine is None else lambda gone: replace(refine(gone), rules=hard),
    )
    preferred = _cheapest(harder)
    return preferred if preferred is not None and preferred[:3] == best[:3] else best


def _cheapest(problem: VictimProblem):
    for cost, gone in sets(problem):
        if fits(problem, gone):
            return cost
    return None


@st.composite
def guarded(draw):
    """Rooms in which some pods keep demands away from their node as long as they run, which only `refine` says."""
    room = draw(rooms())
    pairs = st.tuples(st.integers(0, max(0, len(room.residents) - 1)), st.integers(0, len(room.problem.demands) - 1))
    guards = draw(st.lists(pairs, max_size=4)) if room.residents else []

    def refine(gone):
        question = room.freed(sorted(gone))
        demands = []
        for number, demand in enumerate(question.demands):
            mask = np.ones(len(question.nodes.names), dtype=bool) if demand.mask is None else demand.mask.copy()
            for resident, guarded_from in guards:
                if guarded_from == number and resident not in gone:
                    mask[room.residents[resident].node] = False
            demands.append(replace(demand, mask=mask))
        return replace(question, demands=tuple(demands))

    return replace(room, refine=refine)
