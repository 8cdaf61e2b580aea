"""Which of very many candidates a search looks at: those of the lowest priority that suffices, on the likeliest nodes.

Decided here: up to `WHOLE` pods all of them are looked at, and the answer is the cheapest that placement can prove.
Beyond that a part is, which leaves more room than is asked for: nodes (with a required domain: whole domains) on which
most members fit when all candidates are gone, then those with the fewest groups. What comes out is minimal and within
the rights, not always the cheapest. Also here: "no", where not even all of them together leave room.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask
from scheduler.actions.candidates import Candidate
from scheduler.actions.rights import Rights
from scheduler.framework.protocols import WithinDomain
from scheduler.framework.session import Session

WHOLE = 4_000
"""Up to so many pods all candidates are looked at."""
PART = 1_000
"""Beyond that about so many pods are, or `SLACK` times what is asked for."""
SLACK = 3

Ints = NDArray[np.int64]


def likeliest(session: Session, ask: Ask, rights: Rights, *, thorough: bool = False) -> Rights | None:
    """Return the rights with the candidates to look at; None when no set of them leaves enough room.

    thorough: candidates of all priorities, and as many as may be looked at. Numbers in shares and limits follow.
    """
    candidates = rights.candidates
    if sum(len(one.pods) for one in candidates) <= WHOLE:
        return rights
    kind = max(range(len(ask.kinds)), key=lambda number: (ask.members[number], -number))
    wanted = ask.members[kind]
    request = session.request(ask.kinds[kind].shape)
    mask = session.fit(ask.kinds[kind].shape).mask
    priority = np.array([one.running.priority for one in candidates], dtype=np.int64)
    levels = np.unique(priority).tolist()
    most = WHOLE if thorough else PART
    for level in levels[-1:] if thorough else levels:
        chosen = np.flatnonzero(priority <= level).tolist()
        fits, groups, pods = _by_node(session, [candidates[number] for number in chosen], request, mask)
        if (
            int(fits.sum()) >= wanted
            and (nodes := _nodes(session, ask, (fits, groups, pods), wanted, most)) is not None
        ):
            names = {session.table.names[row] for row in np.flatnonzero(nodes).tolist()}
            return _only(
                rights, [number for number in chosen if any(pod.node in names for pod in candidates[number].pods)]
            )
    return None


def _by_node(
    session: Session, candidates: list[Candidate], request: Ints, mask: NDArray[np.bool_]
) -> tuple[Ints, Ints, Ints]:
    """Return for each node how many members fit with all of these gone, of how many groups and pods they are."""
    with session.outlook.ahead():
        free, slots = session.free.copy(), session.open_slots.copy()
    groups = np.zeros(slots.size, dtype=np.int64)
    pods = np.zeros(slots.size, dtype=np.int64)
    for one in candidates:
        rows, amounts, count = session.outlook.piece(one.pods)
        free[:, rows] += amounts
        slots[rows] += count
        pods[rows] += count
        groups[rows] += 1
    fits = np.maximum(slots, 0)
    for resource in np.flatnonzero(request).tolist():
        fits = np.minimum(fits, np.maximum(free[resource], 0) // request[resource])
    return np.where(mask, fits, 0), groups, pods


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


def _only(rights: Rights, chosen: list[int]) -> Rights:
    new = {old: number for number, old in enumerate(chosen)}
    shares = (replace(one, members=tuple(new[old] for old in one.members if old in new)) for one in rights.shares)
    return Rights(
        rights.why,
        tuple(rights.candidates[old] for old in chosen),
        tuple(share for share in shares if share.members),
        tuple(replace(one, members=tuple(new[old] for old in one.members if old in new)) for one in rights.limits),
    )
