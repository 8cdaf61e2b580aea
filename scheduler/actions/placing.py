"""TEMPORARY, replaced when placement is there."""
from __future__ import annotations
from dataclasses import dataclass
import numpy as np
from numpy.typing import NDArray
from scheduler.actions.ask import Ask
from scheduler.framework.session import Session

@dataclass(frozen=True)
class Found:
    parts: tuple[tuple[NDArray[np.intp], NDArray[np.int64]], ...]
    proven: bool = True

@dataclass(frozen=True)
class Nothing:
    proven: bool = True

def solve(session: Session, ask: Ask) -> Found | Nothing:
    return _solve(session, ask, session.free, session.open_slots, False)

def could_ever(session, ask):
    return isinstance(_solve(session, ask, session.table.allocatable, session.table.slots, True), Found)

def _solve(session, ask, free, open_, ever):
    free, open_ = free.copy(), np.maximum(open_, 0).copy()
    left = ask.total
    parts = []
    for kind, want in zip(ask.kinds, ask.members if not ask.each else [len(k.pods) for k in ask.kinds]):
        fit = session.fit(kind.shape)
        mask = (fit.ever if ever else fit.mask).copy()
        if kind.refused and not ever: mask[list(kind.refused)] = False
        each = np.where(mask, open_, 0)
        request = session.request(kind.shape)
        for row in np.flatnonzero(request):
            each = np.minimum(each, np.maximum(free[row], 0)//request[row])
        if session.missing_resources(kind.shape): each = each*0
        cum = np.minimum(np.cumsum(each), min(want, left))
        take = np.diff(np.concatenate([[0], cum]))
        rows = np.flatnonzero(take)
        free[:, rows] -= request[:, None]*take[rows]
        open_[rows] -= take[rows]
        left -= int(take.sum())
        parts.append((rows, take[rows]))
    if left == ask.total or (left and not ask.each): return Nothing()
    return Found(tuple(parts))
