"""How the cluster stands divided: the tree of queues with what each holds, wants and is owed, resource by resource.

Decided here: which resources are told of a queue (those that count for it or for a queue below it; where shares are
given, one of which nobody has a share only if it is used, asked for or limited there), and what counts as
borrowed: what it holds above what it deserves, where that counts. The numbers are those of the session's own book.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scheduler.framework.book import rows_of
from scheduler.framework.bookkeeping import asked_in
from scheduler.framework.session import Session
from scheduler.model.filling import CEILING
from scheduler.model.quota import shifts, subtree
from scheduler.model.shares import GONE, Share, Standing


def standings(session: Session) -> tuple[Standing, ...]:
    """Return the queues from the root down, those below one queue by name, each followed by what is below it."""
    tree = session.book.tree
    found: list[Standing] = []
    tables = _Tables(session)

    def standing(name: str, parent: str, depth: int) -> Standing:
        closed = tree.closed(name)
        fault = tree.fault_of(name)
        text = "" if fault is None else fault.message if fault.queue == name else f"{fault.queue}: {fault.message}"
        state = closed[1] if closed is not None else "Open"
        return Standing(name, parent, depth, state, session.queue(name).priority, tables.of(tree.index[name]), text)

    root = tree.names[tree.structure.root]
    left = [(root, "", 0)]
    while left:
        name, parent, depth = left.pop()
        found.append(standing(name, parent, depth))
        left.extend((below, name, depth + 1) for below in reversed(tree.children(name)))
    told = {one.name for one in found}
    # What stands in no line to the root: a missing parent, a cycle.
    found.extend(standing(name, tree.above.get(name, ""), 0) for name in tree.out if name not in told)
    for name in tree.gone:
        shares = tables.of(tree.index[name])
        found.append(Standing(name, root, 1, GONE, 0, shares, "it does not exist, and is owed nothing"))
    return tuple(found)


def line_of(queue: str, above: Mapping[str, str]) -> tuple[str, ...]:
    """Return a queue and those above it, each once: those in a cycle stand in no line to the root. above: parents."""
    found: dict[str, None] = {}
    while queue and queue not in found:
        found[queue] = None
        queue = above.get(queue, "")
    return tuple(found)


class _Tables:
    def __init__(self, session: Session) -> None:
        self._session = session
        book = session.book
        tree, resources = book.tree, book.ground.resources
        own = rows_of(asked_in(session, tree), tree, resources)
        self._waiting = subtree(tree.structure, own)
        self._fields = tree.fields(resources)
        demand = rows_of(session.snapshot.queue_usage, tree, resources) + own
        fair = session.hooks.fair_share
        self._history = session.cache.usage.history(book.ground.total, fair)
        self._shifts = shifts(tree.structure, self._fields, demand, self._history)
        there = (book.ground.total > 0) | (book.used > 0).any(axis=0) | (own > 0).any(axis=0)
        given = self._fields.given.any(axis=0)
        idle = ~given & (book.used <= 0) & (self._waiting <= 0) & (self._fields.limit < 0)
        told = book.ground.counts & ~idle if given.any() else book.ground.counts
        self._told = (subtree(tree.structure, told.astype(np.int64)) > 0) & there

    def of(self, row: int) -> tuple[Share, ...]:
        session, book = self._session, self._session.book
        ground = book.ground
        decayed, at = session.cache.usage.of(ground.tree.names[row])
        seconds = dict(decayed)

        def share(column: int) -> Share:
            name = ground.resources[column]
            kept = at > 0 and self._history is not None
            return Share(
                resource=name,
                guarantee=int(ground.kept[row, column]),
                deserved=_finite(self._deserved(row, column)),
                limit=_finite(ground.limit[row, column]),
                used=int(book.used[row, column]),
                waiting=int(self._waiting[row, column]),
                entitled=int(ground.entitled[row, column]),
                owed=_finite(ground.owed[row, column]),
                borrowed=self._borrowed(row, column),
                weight=int(self._fields.weight[row, column]),
                decayed=seconds.get(name, 0) if at else None,
                used_share=float(self._history.used[row, column]) if kept and self._history is not None else None,
                factor=round(float(self._shifts[row, column]), 3) if kept else None,
            )

        return tuple(share(int(column)) for column in np.flatnonzero(self._told[row]))

    def _borrowed(self, row: int, column: int) -> int:
        book = self._session.book
        if not book.ground.counts[row, column]:
            return 0
        return max(0, int(book.used[row, column]) - self._deserved(row, column))

    def _deserved(self, row: int, column: int) -> int:
        """The root deserves the cluster, whatever those below it say."""
        ground = self._session.book.ground
        return int(ground.total[column] if row == ground.tree.structure.root else ground.deserved[row, column])


def _finite(value: int) -> int | None:
    return int(value) if value < CEILING else None
