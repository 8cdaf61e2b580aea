"""What making room costs at least in each segment, by sums alone, so that most segments need not be solved.

A gang breaks at least where all surplus together does not suffice. So many pods go at least as the largest of them must
to free what is missing: of each resource over the whole segment, and of each kind of pods node by node, where room
for one more pod costs at least what it costs on the cheapest node. The work that is lost is at least that of as many
pods that ran the shortest.
"""

from __future__ import annotations

import numpy as np

from scheduler.placement.between import extra_rows
from scheduler.placement.bounds import bound
from scheduler.placement.counting import segment_sums
from scheduler.placement.instance import Instance, Ints, Kind, build
from scheduler.placement.room_lots import Pieces
from scheduler.placement.victims import VictimProblem

_LEVELS = 64
"""So many more pods on one node are looked at; beyond it they cost nothing."""
_ENDLESS = 2**62


def least_costs(problem: VictimProblem, instance: Instance, found: Pieces) -> list[tuple[int, int, int]]:
    """Return (gangs, pods, runtime) that no set costs less than, for each segment of an instance with all `found` gone.

    `found`: everybody who could go. What else must go for a queue's limit can only add to the cost.
    """
    surplus = {resident for lot in found.lots if not lot.single for resident in lot.members}
    surplus.update(resident for whole in found.wholes if not whole.breaks for resident in whole.residents)
    alive = bound(build(problem.freed(sorted(surplus)))).alive
    residents = [problem.residents[number] for number in found.residents]
    view = problem.problem.nodes
    node = np.array([one.node for one in residents], dtype=np.int64)
    holds = np.array([one.holds for one in residents], dtype=np.int64).reshape(len(residents), len(view.resources)).T
    inside = instance.segment_ids()[node]
    pods = np.zeros(instance.segment_count, dtype=np.int64)
    for row, place in _resources(instance).items():
        np.maximum(pods, _by_sums(instance, row, view.free[place], holds[place], inside), out=pods)
    one_each = np.ones(len(residents), dtype=np.int64)
    np.maximum(pods, _by_sums(instance, len(instance.rows) - 1, view.slots, one_each, inside), out=pods)
    for kind in instance.kinds:
        needed = instance.composition.least(kind.members)
        if needed:
            np.maximum(pods, _by_nodes(problem, instance, kind, needed, holds, node), out=pods)
    ran = np.array([one.runtime for one in residents], dtype=np.int64)
    runtime = _shortest(ran, inside, pods)
    gangs = (~alive).astype(np.int64)
    return list(zip(gangs.tolist(), pods.tolist(), runtime.tolist(), strict=True))


def _resources(instance: Instance) -> dict[int, int]:
    """Return, for each row that is an amount of a resource, the number of the resource."""
    asked = len(instance.rows) - 1 - len(extra_rows(instance.problem))
    return {row: instance.problem.nodes.resources.index(instance.rows[row]) for row in range(asked)}


def _by_sums(instance: Instance, row: int, free: Ints, holds: Ints, inside: Ints) -> Ints:
    """Return how many must go so that a segment has enough of a row."""
    needed = 0
    hosts = np.zeros(instance.size, dtype=np.bool_)
    for kind in instance.kinds:
        if row in kind.rows:
            needed += instance.composition.least(kind.members) * int(kind.need[row])
            hosts |= kind.cap > 0
    pods = np.zeros(instance.segment_count, dtype=np.int64)
    if not needed or needed * max(1, instance.size) > _ENDLESS:
        return pods
    segments = instance.segment_ids()
    usable = np.where(hosts, np.clip(free, 0, needed), 0)
    missing = needed - segment_sums(usable, segments, instance.segment_count)
    order = np.lexsort((-holds, inside))
    starts = np.searchsorted(inside[order], np.arange(instance.segment_count + 1))
    for segment in np.flatnonzero(missing > 0).tolist():
        upto = np.cumsum(holds[order[starts[segment] : starts[segment + 1]]])
        pods[segment] = min(upto.size, int(np.searchsorted(upto, missing[segment], side="left")) + 1)
    return pods


def _by_nodes(problem: VictimProblem, instance: Instance, kind: Kind, needed: int, holds: Ints, node: Ints) -> Ints:
    """Return how many must go so that the nodes of a segment take so many pods of a kind."""
    view = problem.problem.nodes
    now = np.minimum(np.maximum(view.slots, 0), kind.cap)
    asked = [(int(kind.need[row]), place) for row, place in _resources(instance).items() if row in kind.rows]
    for need, place in asked:
        now = np.minimum(now, np.maximum(view.free[place], 0) // need)
    more = np.minimum(kind.cap - now, _LEVELS)
    price = np.full(instance.size, np.inf)
    sums = [(need, view.free[place], _largest_first(holds[place], node, instance.size)) for need, place in asked]
    for level in range(1, int(more.max(initial=0)) + 1):
        cost = np.maximum(now + level - view.slots, 1)
        for need, free, upto in sums:
            missing = (now + level) * need - free
            cost = np.maximum(cost, np.where(missing > 0, (upto < missing[:, None]).sum(axis=1) + 1, 0))
        price = np.where(level <= more, np.minimum(price, cost / level), price)
    price = np.where(kind.cap - now > _LEVELS, 0.0, price)
    pods = np.zeros(instance.segment_count, dtype=np.int64)
    segments = instance.segment_ids()
    order = np.lexsort((price, segments))
    starts = np.searchsorted(segments[order], np.arange(instance.segment_count + 1))
    for segment in range(instance.segment_count):
        mine = order[starts[segment] : starts[segment + 1]]
        missing = needed - int(now[mine].sum())
        if missing > 0:
            gain = (kind.cap - now)[mine]
            taken = np.clip(missing - (np.cumsum(gain) - gain), 0, gain)
            worth = np.where(taken > 0, price[mine], 0.0)
            pods[segment] = int(np.ceil(float((taken * worth).sum()) - 1e-6))
    return pods


def _largest_first(holds: Ints, node: Ints, size: int) -> Ints:
    """Return, for each node, the sums of the largest one, two, three ... amounts there; padded with the last sum."""
    order = np.lexsort((-holds, node))
    where = node[order]
    rank = np.arange(order.size) - np.searchsorted(where, where, side="left")
    table = np.zeros((size, int(rank.max(initial=-1)) + 1), dtype=np.int64)
    table[where, rank] = holds[order]
    return np.cumsum(table, axis=1)


def _shortest(ran: Ints, inside: Ints, pods: Ints) -> Ints:
    """Return the time that as many pods ran at least."""
    order = np.lexsort((ran, inside))
    starts = np.searchsorted(inside[order], np.arange(pods.size))
    found = [int(ran[order[at : at + count]].sum()) for at, count in zip(starts.tolist(), pods.tolist(), strict=True)]
    return np.array(found, dtype=np.int64)
