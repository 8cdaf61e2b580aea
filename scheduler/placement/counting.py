"""One kind of pods: how many fit is a sum, which nodes take them is a sort. Exact for any number of resources.

Decided here: which nodes an objective prefers. "pack" fills the fewest nodes, the last of them the smallest that takes
the rest, and among equals those that end fullest; with `maximize` (pods that do not belong together) it fills what is
fullest already, so that empty nodes stay whole. "scores" goes by score, then as "pack". "spread" levels what is left.
Equal nodes are taken in the order of their numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.between import Limit
from scheduler.placement.instance import Instance, Ints, Kind


def capped(instance: Instance, number: int) -> Ints:
    """Return the pods of a kind that each node takes when every domain limit is kept, in each segment for itself.

    The nodes with the best scores take them, else the first. What is kept is always possible; with a single limit it is
    also the most.
    """
    kind = instance.kinds[number]
    cap = kind.cap
    for part in limits_of(instance, number):
        cap = kept(instance, kind, cap, part.ids, part.limits // part.weights[number])
    return cap


def limits_of(instance: Instance, number: int) -> list[Limit]:
    """Return the limits of domains that a kind feels."""
    return [part for part in instance.domain_limits if number in part.weights]


def kept(instance: Instance, kind: Kind, cap: Ints, ids: Ints, limits: int | Ints) -> Ints:
    """As `keep`, where the nodes with the best scores go first."""
    if kind.scores is None:
        return keep(instance, cap, ids, limits)
    order = np.argsort(-kind.scores, kind="stable")
    kept = np.empty_like(cap)
    kept[order] = truncate(cap[order], _joint(instance, ids)[order], _joint_limits(instance, ids, limits))
    return kept


def keep(instance: Instance, cap: Ints, ids: Ints, limits: int | Ints) -> Ints:
    """Lower `cap` so that each domain takes at most its limit (over `ids`), in each segment for itself."""
    return truncate(cap, _joint(instance, ids), _joint_limits(instance, ids, limits))


def _joint_limits(instance: Instance, ids: Ints, limits: int | Ints) -> int | Ints:
    if isinstance(limits, int) or instance.segments is None:
        return limits
    return np.tile(limits[: int(ids.max(initial=0)) + 1], instance.segment_count)


def _joint(instance: Instance, ids: Ints) -> Ints:
    """Return numbers that are equal for nodes of one domain and one segment, -1 where there is no domain."""
    if instance.segments is None:
        return ids
    width = int(ids.max(initial=0)) + 1
    return np.where((ids >= 0) & (instance.segments >= 0), instance.segments * width + ids, -1)


def truncate(cap: Ints, ids: Ints, limit: int | Ints) -> Ints:
    """Lower `cap` so that nodes with the same id (not -1) take at most `limit` (one for all, or one for each id).

    Earlier nodes go first, so arrays in order of preference keep what is preferred.
    """
    order = np.argsort(ids, kind="stable")
    sorted_ids, sorted_cap = ids[order], cap[order]
    before = running(sorted_cap, sorted_ids)
    bound = limit if isinstance(limit, int) else limit[np.maximum(sorted_ids, 0)]
    left = np.clip(bound - before, 0, sorted_cap)
    result = cap.copy()
    result[order] = np.where(sorted_ids >= 0, left, sorted_cap)
    return result


def running(values: Ints, ids: Ints) -> Ints:
    """Return, for each place in arrays sorted by id, the sum of the values before it with the same id."""
    before = values.cumsum() - values
    if values.size and int(ids[0]) != int(ids[-1]):
        first = np.ones(ids.size, dtype=np.bool_)
        np.not_equal(ids[1:], ids[:-1], out=first[1:])
        before -= before[first][first.cumsum() - 1]
    return before


def best_first(scores: Ints, ids: Ints) -> NDArray[np.intp]:
    """Return the order by id, in each the best score first, equals as they come. ids: not negative."""
    top = int(scores.max(initial=0))
    span = top - int(scores.min(initial=0)) + 1
    if span * (int(ids.max(initial=0)) + 1) < 2**62:
        return (ids * span + (top - scores)).argsort(kind="stable")  # one key: several times as fast as two
    return np.lexsort((-scores, ids))


def segment_sums(values: Ints, segments: Ints | None, count: int) -> Ints:
    """Return the sum of the values (not negative) in each segment, exactly."""
    if segments is None:
        return np.array([values.sum()], dtype=np.int64)
    places = segments + 1
    if int(values.max(initial=0)) * values.size < 2**53:
        return np.bincount(places, weights=values, minlength=count + 1)[1:].astype(np.int64)
    low = np.bincount(places, weights=values & (2**30 - 1), minlength=count + 1)[1:].astype(np.int64)
    high = np.bincount(places, weights=values >> 30, minlength=count + 1)[1:].astype(np.int64)
    return (high << 30) + low


def fullness(instance: Instance, kind: Kind, nodes: NDArray[np.intp], taken: Ints | None) -> NDArray[np.float64]:
    """Return how empty each node is when so many pods were taken, over the rows that the kind asks for."""
    left = np.zeros(nodes.size, dtype=np.float64)
    rows = kind.rows if len(kind.rows) == 1 else kind.rows[:-1]
    for row in rows:
        free = instance.free[row]
        largest = float(free.max(initial=1)) or 1.0
        rest = free[nodes] if taken is None else free[nodes] - kind.need[row] * taken
        left += rest / largest
    return left


def fill(instance: Instance, kind: Kind, cap: Ints, total: int, objective: str | None = None) -> Ints:
    """Return how many of `total` pods each node takes, for nodes that together take so many."""
    x = np.zeros(cap.size, dtype=np.int64)
    nodes = cap.nonzero()[0]
    objective = objective or instance.problem.objective
    for ids in instance.soft:
        nodes, total = _fewest_domains(x, nodes, cap, ids[nodes], total)
    if objective == "scores" and kind.scores is not None:
        nodes, total = _best_scores(x, nodes, cap, kind.scores, total)
    if total <= 0:
        return x
    held = cap[nodes]
    if total >= int(held.sum()):
        x[nodes] = held
    elif objective == "spread":
        x[nodes] = _level(instance, kind, nodes, held, total)
    elif instance.problem.maximize:
        x[nodes] = _fullest(instance, kind, nodes, held, total)
    else:
        x[nodes] = _fewest(instance, kind, nodes, held, total)
    return x


def _fewest_domains(x: Ints, nodes: NDArray[np.intp], cap: Ints, ids: Ints, total: int) -> tuple[NDArray[np.intp], int]:
    """Fill whole domains, the roomiest first; return the nodes of the last one and what it has to take.

    The last one is the smallest that takes the rest. Where all domains together do not hold the pods, nodes without the
    label take what is left, or everything if they can: in part in a domain nothing is gained.
    """
    labelled = ids >= 0
    sums = np.bincount(ids[labelled], weights=cap[nodes[labelled]]).astype(np.int64)
    order = np.argsort(-sums, kind="stable")
    before = np.cumsum(sums[order]) - sums[order]
    whole = int(np.searchsorted(before + sums[order], total, side="left"))
    if whole < order.size:
        rest = total - int(before[whole])
        able = order[whole : int(np.searchsorted(-sums[order], -rest, side="right"))]
        last = ids == able[np.flatnonzero(sums[able] == sums[able[-1]])[0]]
    elif int(cap[nodes[~labelled]].sum()) >= total:
        return nodes[~labelled], total
    else:
        rest = total - int(sums.sum())
        last = ~labelled
    taken = np.isin(ids, order[:whole]) & labelled
    x[nodes[taken]] = cap[nodes[taken]]
    return nodes[last], rest


def _best_scores(x: Ints, nodes: NDArray[np.intp], cap: Ints, scores: Ints, total: int) -> tuple[NDArray[np.intp], int]:
    """Fill the nodes with the best scores; return those of the score at which the pods end, and what is left."""
    levels, place = np.unique(-scores[nodes], return_inverse=True)
    if levels.size <= 1:
        return nodes, total
    sums = np.bincount(place, weights=cap[nodes]).astype(np.int64)
    upto = np.cumsum(sums)
    last = int(np.searchsorted(upto, total, side="left"))
    if last >= levels.size:
        last = levels.size - 1
    better = place < last
    x[nodes[better]] = cap[nodes[better]]
    return nodes[place == last], total - int(upto[last] - sums[last])


def _secondary(instance: Instance, kind: Kind, nodes: NDArray[np.intp]) -> Ints:
    """Scores as a tie-break of packing; lower goes first."""
    return np.zeros(nodes.size, dtype=np.int64) if kind.scores is None else -kind.scores[nodes]


def _fewest(instance: Instance, kind: Kind, nodes: NDArray[np.intp], held: Ints, total: int) -> Ints:
    left = fullness(instance, kind, nodes, held)
    order = np.lexsort((_secondary(instance, kind, nodes), left, -held))
    sorted_held = held[order]
    upto = np.cumsum(sorted_held)
    last = int(np.searchsorted(upto, total, side="left"))
    x = np.zeros(nodes.size, dtype=np.int64)
    x[order[:last]] = sorted_held[:last]
    rest = total - int(upto[last] - sorted_held[last])
    able = int(np.searchsorted(-sorted_held, -rest, side="right"))
    smallest = int(np.searchsorted(-sorted_held, -sorted_held[able - 1], side="left"))
    x[order[max(last, smallest)]] = rest
    return x


def _fullest(instance: Instance, kind: Kind, nodes: NDArray[np.intp], held: Ints, total: int) -> Ints:
    left = fullness(instance, kind, nodes, None)
    order = np.lexsort((_secondary(instance, kind, nodes), left))
    return _prefix(order, held, total)


def _prefix(order: NDArray[np.intp], held: Ints, total: int) -> Ints:
    x = np.zeros(held.size, dtype=np.int64)
    sorted_held = held[order]
    x[order] = np.clip(total - (np.cumsum(sorted_held) - sorted_held), 0, sorted_held)
    return x


def _level(instance: Instance, kind: Kind, nodes: NDArray[np.intp], held: Ints, total: int) -> Ints:
    """Pods go where most room is left, as if one by one. Room is for pods of the kind, however many there are."""
    room = instance.free[-1][nodes]
    for row in kind.rows[:-1]:
        room = np.minimum(room, instance.free[row][nodes] // kind.need[row])
    low, high = 0, int(room.max())
    while low < high:
        middle = (low + high) // 2
        if int(np.clip(room - middle, 0, held).sum()) > total:
            low = middle + 1
        else:
            high = middle
    x: Ints = np.clip(room - low, 0, held)
    rest = total - int(x.sum())
    if rest:
        able = np.flatnonzero((x < held) & (room >= low))
        order = np.lexsort((_secondary(instance, kind, nodes[able]), -fullness(instance, kind, nodes[able], x[able])))
        x[able[order[:rest]]] += 1
    return x
