"""Which of very many candidates a search looks at: those of the lowest priority that suffices, on the likeliest nodes.

Decided here: up to `WHOLE` pods all of them are looked at, and the answer is the cheapest that placement can prove.
Beyond that a part is, which leaves more room than is asked for: nodes (with a required domain: whole domains) on which
most members fit when all candidates are gone, then those with the fewest groups. What comes out is minimal and within
the rights, not always the cheapest. Also here: "no", where not even all of them together leave room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask
from scheduler.actions.candidates import Ints
from scheduler.actions.rights import Part, Rights
from scheduler.framework.protocols import WithinDomain
from scheduler.framework.session import Session

WHOLE = 4_000
"""Up to so many pods all candidates are looked at."""
PART = 1_000
"""Beyond that about so many pods are, or `SLACK` times what is asked for."""
SLACK = 3


def likeliest(session: Session, ask: Ask, rights: Rights, *, thorough: bool = False) -> Rights | None:
    """Return the rights with the candidates to look at; None when no set of them leaves enough room.

    thorough: candidates of all priorities, and as many as may be looked at. Numbers in shares and limits follow.
    """
    if sum(int(part.herd.pods[part.numbers].sum()) for part in rights.parts) <= WHOLE:
        return rights
    kind = max(range(len(ask.kinds)), key=lambda number: (ask.members[number], -number))
    wanted = ask.members[kind]
    request = session.request(ask.kinds[kind].shape)
    mask = session.fit(ask.kinds[kind].shape).mask
    levels = np.unique(np.concatenate([part.herd.priority[part.numbers] for part in rights.parts])).tolist()
    most = WHOLE if thorough else PART
    for level in levels[-1:] if thorough else levels:
        pods = _pods(rights.parts, level)
        figures = _by_node(session, pods, request, mask)
        nodes = _nodes(session, ask, figures, wanted, most) if int(figures[0].sum()) >= wanted else None
        if nodes is not None:
            return _only(rights, pods, nodes)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Pods:
    """Pods that may go, as columns. candidate: its number in the rights, in order."""

    rows: NDArray[np.intp]
    amounts: Ints
    candidate: Ints


def _pods(parts: Sequence[Part], level: int) -> _Pods:
    """Return the pods of the candidates up to a priority."""
    found: list[tuple[NDArray[np.intp], Ints, Ints]] = []
    first = 0
    for part in parts:
        number = np.full(len(part.herd.candidates), -1, dtype=np.int64)
        number[part.numbers] = np.arange(first, first + part.numbers.size)
        number[part.herd.priority > level] = -1
        rows, amounts, group = part.herd.flat()
        chosen = number[group] >= 0
        found.append((rows[chosen], amounts[:, chosen], number[group][chosen]))
        first += part.numbers.size
    return _Pods(
        np.concatenate([rows for rows, _, _ in found]),
        np.concatenate([amounts for _, amounts, _ in found], axis=1),
        np.concatenate([numbers for _, _, numbers in found]),
    )


def _by_node(session: Session, pods: _Pods, request: Ints, mask: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """Return for each node how many members fit with all of these gone, of how many groups and pods they are."""
    with session.outlook.ahead():
        free, slots = session.free.copy(), session.open_slots.copy()
    count = np.bincount(pods.rows, minlength=slots.size)
    groups = np.bincount(np.unique(pods.candidate * slots.size + pods.rows) % slots.size, minlength=slots.size)
    fits = np.maximum(slots + count, 0)
    for resource in np.flatnonzero(request).tolist():
        np.add.at(free[resource], pods.rows, pods.amounts[resource])
        fits = np.minimum(fits, np.maximum(free[resource], 0) // request[resource])
    return np.where(mask, fits, 0), groups, count


def _nodes(
    session: Session, ask: Ask, figures: tuple[Ints, Ints, Ints], wanted: int, most: int
) -> NDArray[np.bool_] | None:
    """Return the nodes to look at, with about `most` pods; None where no required domain has room."""
    fits, groups, pods = figures
    order = np.lexsort((np.arange(fits.size), groups, -fits))
    order = order[fits[order] > 0]
    label = next((wish.label for wish in ask.wishes if isinstance(wish, WithinDomain) and wish.required), None)
    taken = np.zeros(fits.size, dtype=np.bool_)
    if label is None:
        enough = int(np.searchsorted(np.cumsum(fits[order]), SLACK * wanted)) + 1
        many = int(np.searchsorted(np.cumsum(pods[order]), most)) + 1
        taken[order[: max(enough, many)]] = True
        return taken
    ids, names = session.domains(label)
    known = ids >= 0
    room, crowd, size = (
        np.bincount(ids[known], weights=values[known], minlength=len(names)) for values in (fits, groups, pods)
    )
    domains = np.lexsort((np.arange(len(names)), crowd))
    domains = domains[room[domains] >= wanted]
    if not domains.size:
        return None
    many = int(np.searchsorted(np.cumsum(size[domains]), most)) + 1
    taken[np.isin(ids, domains[:many])] = True
    return taken


def _only(rights: Rights, pods: _Pods, nodes: NDArray[np.bool_]) -> Rights:
    """Return the rights of the candidates with a pod on one of the nodes."""
    kept = np.zeros(sum(part.numbers.size for part in rights.parts), dtype=np.bool_)
    kept[pods.candidate[nodes[pods.rows]]] = True
    before = np.concatenate([[0], np.cumsum(kept)]).tolist()
    parts, first = [], 0
    for part in rights.parts:
        mine = kept[first : first + part.numbers.size]
        first += part.numbers.size
        if mine.any():
            parts.append(Part(part.herd, part.numbers[mine], part.whole[mine]))

    def left(members: Sequence[int]) -> range:
        return range(before[members[0]], before[members[-1] + 1])  # members of rights that consist of parts are ranges

    shares = (replace(one, members=left(one.members)) for one in rights.shares)
    return Rights(
        rights.why,
        shares=tuple(share for share in shares if share.members),
        limits=tuple(replace(one, members=left(one.members)) for one in rights.limits),
        parts=tuple(parts),
    )
