"""Volumes that are there to be given away, as arrays: questions about thousands of them cost a few operations.

Decided here: the volumes of a class are numbered, the smallest first; those that are reached from the same nodes are of
one cell. Which of them serve a claim is a mask over the numbers, found once for all claims that ask the same. Kept as
long as neither the volumes of the class nor the nodes change. Who has taken what is not known here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.claims import Reach, Rows, wish_of
from scheduler.model.volumes import Claim, Storage, Volume, serves

Mask = NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class Shelf:
    """The volumes of one class. cell: of each volume, -1 where no node reaches it; only: the row from which it alone is
    reached, else -1. rows, cell_of: the rows of all cells in turn, and the cell of each.
    """

    volumes: tuple[Volume, ...]
    numbers: dict[str, int]
    cells: list[Rows]
    cell: Rows
    only: Rows
    rows: Rows
    cell_of: Rows
    _serving: dict[Hashable, Mask] = field(default_factory=dict)

    @classmethod
    def of(cls, volumes: tuple[Volume, ...], reach: Reach) -> Shelf:
        """Number the volumes and their cells."""
        known: dict[bytes, int] = {}
        cells: list[Rows] = []
        cell = np.full(len(volumes), -1, dtype=np.intp)
        for number, volume in enumerate(volumes):
            rows = reach.of_terms(volume.terms)
            if len(rows):
                position = known.setdefault(rows.tobytes(), len(cells))
                if position == len(cells):
                    cells.append(rows)
                cell[number] = position
        sizes = np.array([len(rows) for rows in cells], dtype=np.intp)
        single = np.array([rows[0] if len(rows) == 1 else -1 for rows in cells], dtype=np.intp)
        return cls(
            volumes=volumes,
            numbers={volume.name: number for number, volume in enumerate(volumes)},
            cells=cells,
            cell=cell,
            only=np.where(cell >= 0, single[cell], -1) if cells else cell,
            rows=np.concatenate(cells) if cells else np.zeros(0, dtype=np.intp),
            cell_of=np.repeat(np.arange(len(cells), dtype=np.intp), sizes),
        )

    def serving(self, claim: Claim) -> Mask:
        """The volumes that may be given to a claim, read only."""
        wish = wish_of(claim)
        known = self._serving.get(wish)
        if known is None:
            known = np.array([serves(volume, claim) for volume in self.volumes], dtype=np.bool_)
            known.flags.writeable = False
            self._serving[wish] = known
        return known

    def without(self, names: Iterable[str]) -> Mask:
        """All volumes but these."""
        mask = np.ones(len(self.volumes), dtype=np.bool_)
        mask[[self.numbers[name] for name in names if name in self.numbers]] = False
        return mask

    def named(self, mask: Mask) -> list[Volume]:
        """The volumes of a mask, the smallest first."""
        return [self.volumes[number] for number in np.flatnonzero(mask).tolist()]

    def reaching(self, mask: Mask) -> tuple[Rows, Rows]:
        """The rows from which volumes of a mask are reached, cell by cell, and the cell of each."""
        used = np.zeros(len(self.cells), dtype=np.bool_)
        used[self.cell[mask & (self.cell >= 0)]] = True
        here = used[self.cell_of]
        return self.rows[here], self.cell_of[here]


class Shelves:
    """The shelves of all classes, made when they are asked for."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._generation = -1
        self._known: dict[str, Shelf] = {}

    def of(self, storage: Storage, name: str) -> Shelf:
        """Return the shelf of a class as the storage has it."""
        if self._generation != self._reach.generation:
            self._generation = self._reach.generation
            self._known.clear()
        volumes = storage.offered.get(name, ())
        known = self._known.get(name)
        if known is None or known.volumes is not volumes:
            known = self._known[name] = Shelf.of(volumes, self._reach)
        return known
