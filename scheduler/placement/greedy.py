"""A portfolio of quick ways to place a gang, each tried in all segments at once. What it finds is a placement; what it
does not find means nothing.

A way is an order of kinds and an order of nodes. A kind is placed in one step: its pods fill the nodes in that order,
by one sort and one running sum over all segments. Decided here: which ways are tried, and which of the segments in
which a way succeeds is taken (with "pack" the fullest, with "spread" the roomiest, with "scores" the best).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.placement import parts as trees
from scheduler.placement import standing
from scheduler.placement.between import Limit
from scheduler.placement.board import Board
from scheduler.placement.bounds import Bounds
from scheduler.placement.counting import limits_of, running, segment_sums, truncate
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.levelling import share_out, widest_first
from scheduler.placement.standing import grouping, holds
from scheduler.placement.worlds import arranged, seeded, worlds

_THOROUGH, _HASTY = 4, 3
"""So many worlds are searched in all ways; later ones in the first few, where rules are open."""


@dataclass(slots=True, eq=False)
class Draft:
    """Pods of each kind on each node, and the pods of each demand."""

    x: Ints
    counts: list[int]
    segment: int = 0


@dataclass(frozen=True, slots=True)
class Way:
    """kinds: large, scarce, given. nodes: few, tight, first, spare, score, even."""

    kinds: str
    nodes: str


_WAYS = (
    Way("large", "few"),
    Way("large", "tight"),
    Way("scarce", "spare"),
    Way("large", "first"),
    Way("large", "spare"),
    Way("given", "tight"),
    Way("small", "spare"),
    Way("scarce", "few"),
)


def ways(instance: Instance) -> tuple[Way, ...]:
    """Return the portfolio in the order in which an objective wants it."""
    objective = instance.problem.objective
    if objective == "scores" and any(kind.scores is not None for kind in instance.kinds):
        return (Way("large", "score"), Way("scarce", "score"), *_WAYS)
    if objective == "spread":
        return (Way("large", "even"), Way("scarce", "even"), *_WAYS)
    return _WAYS


def search(instance: Instance, bounds: Bounds) -> Draft | None:
    """Return the first success, with `maximize` the one with the most pods; None when no way succeeds."""
    wanted = instance.composition.preferred()
    best: Draft | None = None
    for turn, caps in enumerate(worlds(instance, bounds)):
        for way in ways(instance)[: None if turn < _THOROUGH or not instance.open else _HASTY]:
            found = None
            if wanted is not None:
                found = _fixed(instance, bounds, caps, way, wanted)
            if found is None and instance.composition.floors:
                found = _flexible(instance, bounds, caps, way)
            if found is None:
                continue
            if not instance.problem.maximize:
                return found
            found = grow(instance, found, caps, way)
            if best is None or sum(found.counts) > sum(best.counts):
                best = found
            if sum(best.counts) >= upper(instance, bounds):
                return best
    return best


def upper(instance: Instance, bounds: Bounds) -> int:
    """Return a number of pods that no placement exceeds."""
    highs = np.array([sum(instance.composition.highs[d] for d in kind.members) for kind in instance.kinds])
    return int(np.minimum(bounds.fits, highs[:, None]).sum(axis=0)[bounds.alive].max(initial=0))


def sequence(instance: Instance, way: Way, wanted: Sequence[int]) -> list[int]:
    """Return the kinds in the order of a way."""
    kinds = instance.kinds
    numbers = [n for n in range(len(kinds)) if wanted[n] > 0]
    if way.kinds == "given":
        return arranged(instance, sorted(numbers, key=lambda n: min(kinds[n].members)))
    if way.kinds == "scarce":
        return arranged(instance, sorted(numbers, key=lambda n: (-wanted[n] / max(1, kinds[n].total), n)))
    largest = [max(1, int(row.max(initial=1))) for row in instance.free]
    sign = 1 if way.kinds == "small" else -1
    size = {n: sign * max(int(kinds[n].need[r]) / largest[r] for r in kinds[n].rows) for n in numbers}
    return arranged(instance, sorted(numbers, key=lambda n: (size[n], n)))


def _fixed(instance: Instance, bounds: Bounds, caps: Sequence[Ints], way: Way, wanted: Sequence[int]) -> Draft | None:
    """Place exactly the wanted pods of each demand in some segment."""
    amounts = [sum(wanted[d] for d in kind.members) for kind in instance.kinds]
    board = Board(instance, caps)
    good = bounds.alive.copy()
    order = sequence(instance, way, amounts)
    for place, number in enumerate(order):
        need = np.where(good, amounts[number], 0)
        got = place_kind(board, number, need, way, order[place + 1 :], amounts)
        good &= got >= amounts[number]
        if not good.any():
            return None
    segment = choose(instance, bounds, board, good)
    x = board.x if instance.segments is None else np.where(instance.segments == segment, board.x, 0)
    return Draft(x, list(wanted), segment) if holds(instance, x) else None


def _flexible(instance: Instance, bounds: Bounds, caps: Sequence[Ints], way: Way) -> Draft | None:
    """Place the minimum of each demand, then whatever brings the other minimums to their counts."""
    composition = instance.composition
    lows = [sum(composition.lows[d] for d in kind.members) for kind in instance.kinds]
    board = Board(instance, caps)
    good = bounds.alive.copy()
    order = sequence(instance, way, lows)
    for place, number in enumerate(order):
        got = place_kind(board, number, np.where(good, lows[number], 0), way, order[place + 1 :], lows)
        good &= got >= lows[number]
    counts = np.repeat(np.array(composition.lows, dtype=np.int64)[:, None], instance.segment_count, axis=1)
    for demands, count in composition.floors:
        for demand in demands:
            missing = np.where(good, count - counts[list(demands)].sum(axis=0), 0)
            _add(board, counts, demand, missing, way)
        good &= counts[list(demands)].sum(axis=0) >= count
        if not good.any():
            return None
    if not good.any():
        return None
    segment = choose(instance, bounds, board, good)
    x = board.x if instance.segments is None else np.where(instance.segments == segment, board.x, 0)
    draft = settle(instance, Draft(x, counts[:, segment].tolist(), segment))
    return draft if composition.holds(draft.counts) and holds(instance, draft.x) else None


def _add(board: Board, counts: Ints, demand: int, missing: Ints, way: Way) -> None:
    composition = board.instance.composition
    room = np.array([composition.room(column.tolist(), demand) for column in counts.T], dtype=np.int64)
    need = np.clip(missing, 0, room)
    if need.any():
        counts[demand] += place_kind(board, board.instance.kind_of[demand], need, way, (), ())


def place_kind(board: Board, number: int, need: Ints, way: Way, later: Sequence[int], amounts: Sequence[int]) -> Ints:
    """Place up to `need` pods of a kind in each segment; return how many were."""
    instance = board.instance
    got = np.zeros(instance.segment_count, dtype=np.int64)
    if instance.follows and amounts:
        seats = seeded(board, number, int(need.max(initial=0)), amounts)
        if seats is not None:
            got = _take(board, number, seats, need, way, later, amounts)
            need = need - got
    if way.nodes == "even":
        cap = board.cap(number)
        hosts = segment_sums((cap > 0).astype(np.int64), instance.segments, instance.segment_count)
        each = -(-need // np.maximum(hosts, 1))
        level = each[0] if instance.segments is None else each[np.maximum(instance.segments, 0)]
        more = _take(board, number, np.minimum(cap, level), need, way, later, amounts)
        got, need = got + more, need - more
    return got + _take(board, number, board.cap(number), need, way, later, amounts)


def _take(
    board: Board, number: int, cap: Ints, need: Ints, way: Way, later: Sequence[int], amounts: Sequence[int]
) -> Ints:
    instance = board.instance
    segments = instance.segments
    if segments is not None:
        cap = np.where(segments >= 0, cap, 0)
    carried = widest_first([part for part in instance.spreads if number in part.carriers])
    limits = limits_of(instance, number)
    shared = None
    if carried:
        everywhere = np.arange(cap.size)
        for part in limits:
            cap = _limited(board, number, part, everywhere, cap)
        counts = [standing.held(part, board.x) for part in carried]
        shared = share_out(instance, carried, number, cap, int(need.max(initial=0)), counts)
        cap = shared.cap
    nodes = np.flatnonzero(cap)
    keys = _keys(board, number, nodes, cap[nodes], way, later, amounts)
    for ids in reversed(instance.soft):
        keys.append(_domain_rank(ids[nodes], cap[nodes], ids[board.x.any(axis=0)]))
    for exclusion in instance.exclusions:
        if exclusion.ids is not None and number in (*exclusion.ours, *exclusion.theirs):
            keys.append(_domain_rank(exclusion.ids[nodes], cap[nodes]))
    for crowd in instance.crowds:
        if (group := crowd.of(number)) >= 0:
            own = board.x[list(crowd.groups[group])].any(axis=0)
            keys.append(_domain_rank(crowd.ids[nodes], cap[nodes], crowd.ids[own]))
    if segments is not None:
        keys.append(segments[nodes])
    if keys:
        order = np.lexsort(keys)
        nodes = nodes[order]
    held = cap[nodes]
    ids = np.zeros(nodes.size, dtype=np.int64) if segments is None else segments[nodes]
    if shared is not None:
        held = shared.keep(nodes, held)
    for part in limits:
        held = _limited(board, number, part, nodes, held)
    pods = np.clip(need[ids] - running(held, ids), 0, held)
    used = pods > 0
    board.put(number, nodes[used], pods[used])
    return segment_sums(pods, None if segments is None else ids, instance.segment_count)


def _limited(board: Board, number: int, part: Limit, nodes: NDArray[np.intp], held: Ints) -> Ints:
    """Keep a domain limit, in every segment for itself; pods that were there before count in all of them."""
    segments = board.instance.segment_ids()
    width = int(part.ids.max(initial=0)) + 1
    joint = np.where((part.ids >= 0) & (segments >= 0), segments * width + part.ids, -1)
    limits, spent = part.limits, sum(weight * board.x[kind] for kind, weight in part.weights.items())
    if board.before is not None:
        earlier = sum(weight * board.before[kind] for kind, weight in part.weights.items())
        limits, spent = limits - segment_sums(np.asarray(earlier), part.ids, limits.size), spent - earlier
    numbers, place = np.unique(joint, return_inverse=True)
    used = np.bincount(place, weights=spent, minlength=numbers.size).astype(np.int64)
    left = np.maximum(limits[np.maximum(numbers, 0) % width] - used, 0) // part.weights[number]
    ids = np.where(joint >= 0, place, -1)[nodes]
    return truncate(held, ids, left)


def _keys(
    board: Board,
    number: int,
    nodes: NDArray[np.intp],
    held: Ints,
    way: Way,
    later: Sequence[int],
    amounts: Sequence[int],
) -> list[NDArray[np.generic]]:
    """Return the sort keys of the nodes, the most important last."""
    instance = board.instance
    kind = instance.kinds[number]
    if way.nodes == "first":
        return []
    left = np.zeros(nodes.size, dtype=np.float64)
    for row in kind.rows if len(kind.rows) == 1 else kind.rows[:-1]:
        largest = float(instance.free[row].max(initial=1)) or 1.0
        rest = board.free[row][nodes]
        left += (rest if way.nodes == "even" else rest - kind.need[row] * held) / largest
    if way.nodes == "tight":
        return [left]
    if way.nodes == "even":
        return [-left]
    if way.nodes == "score":
        scores = kind.scores if kind.scores is not None else np.zeros(instance.size, dtype=np.int64)
        return [left, -held, -scores[nodes]]
    if way.nodes == "spare":
        wish = np.zeros(nodes.size, dtype=np.float64)
        for other in later:
            wish += np.minimum(board.cap(other)[nodes], amounts[other]) / amounts[other]
        return [left, wish]
    return [left, -held]


def _domain_rank(ids: Ints, held: Ints, used: Ints | None = None) -> Ints:
    """Return a key that puts the nodes of the roomiest domain first and unlabelled nodes last.

    used: domains that come before all others.
    """
    labelled = ids >= 0
    sums = np.bincount(ids[labelled], weights=held[labelled]).astype(np.float64)
    if used is not None and used.size:
        sums[used[(used >= 0) & (used < sums.size)]] += float(held.sum())
    rank = np.empty(sums.size + 1, dtype=np.int64)
    rank[np.argsort(-sums, kind="stable")] = np.arange(sums.size)
    rank[-1] = sums.size
    return rank[ids]


def choose(instance: Instance, bounds: Bounds, board: Board, good: NDArray[np.bool_]) -> int:
    segments = np.flatnonzero(good)
    if segments.size == 1:
        return int(segments[0])
    objective = instance.problem.objective
    if instance.problem.maximize:
        highs = np.array([sum(instance.composition.highs[d] for d in kind.members) for kind in instance.kinds])
        most = np.minimum(bounds.fits, highs[:, None]).sum(axis=0)[segments]
        segments = segments[most == most.max()]
    room = bounds.room[segments]
    keys: list[NDArray[np.generic]] = [-room if objective == "spread" else room]
    if objective == "scores":
        total = np.zeros(instance.size, dtype=np.float64)
        for number, kind in enumerate(instance.kinds):
            if kind.scores is not None:
                total += kind.scores * board.x[number].astype(np.float64)
        held = instance.segment_ids()
        keys.append(-np.bincount(held + 1, weights=total, minlength=instance.segment_count + 1)[1:][segments])
    return int(segments[np.lexsort(keys)[0]])


def settle(instance: Instance, draft: Draft) -> Draft:
    """Take away what no minimum asks for, from the nodes that hold the least of a kind."""
    if instance.open:
        return _thin(instance, draft)
    x, counts = draft.x, draft.counts
    instance.composition.trim(counts)
    for number, kind in enumerate(instance.kinds):
        surplus = int(x[number].sum()) - sum(counts[d] for d in kind.members)
        if surplus > 0:
            nodes = np.flatnonzero(x[number])
            order = nodes[np.argsort(x[number, nodes], kind="stable")]
            held = x[number, order]
            x[number, order] -= np.clip(surplus - (np.cumsum(held) - held), 0, held)
    return draft


def _without_parts(instance: Instance, draft: Draft) -> None:
    """Take away, later ones first, the parts that neither a minimum nor another rule needs."""
    for part in trees.every(instance.composition.parts):
        left = [0 if demand in part.demands else count for demand, count in enumerate(draft.counts)]
        if left == draft.counts or not instance.composition.enough(left):
            continue
        x = draft.x.copy()
        for demand in set(part.demands):
            row, gone = x[instance.kind_of[demand]], draft.counts[demand]
            order = np.argsort(row, kind="stable")
            held = row[order]
            row[order] -= np.clip(gone - (np.cumsum(held) - held), 0, held)
        if holds(instance, x):
            draft.x, draft.counts = x, left


def _thin(instance: Instance, draft: Draft) -> Draft:
    """Take away one part and one pod after the other that neither a minimum nor another rule needs."""
    _without_parts(instance, draft)
    counts, group = draft.counts, grouping(instance)
    changed = True
    while changed:
        changed = False
        for demand in reversed(range(len(counts))):
            number = instance.kind_of[demand]
            while instance.composition.spare(counts, demand) > 0:
                nodes = np.flatnonzero(draft.x[number])
                nodes = nodes[np.argsort(draft.x[number, nodes], kind="stable")]
                for node in nodes[np.sort(np.unique(group[nodes], return_index=True)[1])].tolist():
                    draft.x[number, node] -= 1
                    if holds(instance, draft.x):
                        counts[demand] -= 1
                        changed = True
                        break
                    draft.x[number, node] += 1
                else:
                    break
    return draft


def grow(instance: Instance, draft: Draft, caps: Sequence[Ints], way: Way) -> Draft:
    """Add as many pods as the nodes of the draft's segment and the limits take, earlier demands first."""
    board = Board(instance, caps)
    counts = list(draft.counts)
    highs = [sum(instance.composition.highs[d] for d in kind.members) for kind in instance.kinds]
    for number in range(len(instance.kinds)):
        nodes = np.flatnonzero(draft.x[number])
        board.put(number, nodes, draft.x[number, nodes])
    turn = {number: place for place, number in enumerate(arranged(instance, range(len(instance.kinds))))}
    demands = range(len(counts))
    for demand in sorted(demands, key=lambda d: turn[instance.kind_of[d]]) if instance.open else demands:
        room = instance.composition.room(counts, demand)
        if room > 0:
            need = np.zeros(instance.segment_count, dtype=np.int64)
            need[draft.segment] = room
            counts[demand] += int(place_kind(board, instance.kind_of[demand], need, way, (), highs).sum())
    grown = instance.composition.holds(counts) and holds(instance, board.x)
    return Draft(board.x, counts, draft.segment) if grown else draft
