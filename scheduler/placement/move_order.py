"""A question about moves made ready: who can move at all, in an order that does not depend on how it was given.

Decided here: a resident that no node in its mask could take, even with everybody gone, is a fixed member of its gang.
A gang that must stay together and has a fixed member goes nowhere but to its domain, which is a mask. Residents with
different masks are told apart by a budget that allows all, so that they are never taken for each other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.moves import MoveProblem, Together
from scheduler.placement.room_order import in_order, part_of
from scheduler.placement.victims import AtMostEvicted, VictimProblem


def arranged(problem: MoveProblem) -> tuple[MoveProblem, list[int]]:
    """Return the question with those who may move, in order, and the old number of each of them."""
    masks = _masks(problem)
    kept = [resident for resident in range(len(masks)) if masks[resident].any()]
    stuck = {resident for resident in range(len(masks)) if not masks[resident].any()}
    room, gangs = _without(problem.room, kept, stuck)
    ordered, order = in_order(room)
    numbers = [kept[old] for old in order]
    new = {old: place for place, old in enumerate(numbers)}
    together = []
    for rule in problem.together:
        gang = problem.room.gangs[rule.gang]
        if rule.gang in gangs and len(gang.residents) > 1 and not gang.fixed and stuck.isdisjoint(gang.residents):
            together.append(Together(ordered.gang_of[new[gang.residents[0]]], rule.level))
    kinds: dict[bytes, int] = {}
    kind_of = tuple(kinds.setdefault(masks[resident].tobytes(), len(kinds)) for resident in numbers)
    found: list[NDArray[np.bool_]] = [np.frombuffer(key, dtype=np.bool_) for key in kinds]
    if len(found) > 1:
        same = [tuple(n for n, kind in enumerate(kind_of) if kind == one) for one in range(len(found))]
        marks = tuple(AtMostEvicted(residents, len(residents)) for residents in same)
        ordered = replace(ordered, rows=(*ordered.rows, *marks))
    together.sort(key=lambda rule: rule.gang)
    return MoveProblem(ordered, tuple(found) or (None,), kind_of, tuple(together)), numbers


def _masks(problem: MoveProblem) -> list[NDArray[np.bool_]]:
    """Return where each resident could go with everybody gone."""
    room = problem.room
    view = room.freed(range(len(room.residents))).nodes
    fits: dict[tuple[bytes, int], NDArray[np.bool_]] = {}
    masks = []
    for number, resident in enumerate(room.residents):
        key = (resident.holds.tobytes(), problem.kinds[number] if problem.kinds else 0)
        if key not in fits:
            able = view.slots >= 1
            for resource in np.flatnonzero(resident.holds).tolist():
                able = able & (view.free[resource] >= resident.holds[resource])
            mask = problem.mask(number)
            fits[key] = able if mask is None else able & mask
        masks.append(fits[key])
    for rule in problem.together:
        gang, ids = room.gangs[rule.gang], view.domains[rule.level]
        now = {int(ids[room.residents[resident].node]) for resident in gang.residents}
        for number in gang.residents:
            masks[number] = masks[number] & (ids >= 0)
        if gang.fixed or not all(masks[number].any() for number in gang.residents):
            home = now.pop() if len(now) == 1 else -1
            for number in gang.residents:
                masks[number] = masks[number] & (ids == home) & (home >= 0)
    return masks


def _without(room: VictimProblem, kept: list[int], stuck: set[int]) -> tuple[VictimProblem, set[int]]:
    """Return the question where those who are stuck are fixed members, and the gangs that are left."""
    gangs, left = [], set()
    for number, gang in enumerate(room.gangs):
        fixed = len(stuck.intersection(gang.residents))
        if fixed < len(gang.residents):
            left.add(number)
        roles = tuple((residents, least - len(stuck.intersection(residents))) for residents, least in gang.roles)
        gangs.append(replace(gang, roles=roles, fixed=gang.fixed + fixed))
    return part_of(replace(room, gangs=tuple(gangs)), kept), left
