"""Which nodes may host which shape, by everything that is not an amount: one boolean mask and one score row a shape.

Decided here: `fits` and `scores` are asked once for each (shape, node class) and kept across sessions until the class
is gone. They are given a shape without what it says about other pods: a node class cannot answer that, and a hundred
gangs that differ in nothing else (each away from its own members, say) are one question. `generation` counts changes of
the node classes, so that whoever remembers something about a mask can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.hooks import Hooks
from scheduler.framework.protocols import Misfit
from scheduler.model.nodes import NodeClass
from scheduler.model.pods import Shape
from scheduler.model.snapshot import NodeTable

_SPARE_SHAPES = 512


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """One shape against all nodes: who may host it, who might later, static scores, and why the others may not."""

    mask: NDArray[np.bool_]
    ever: NDArray[np.bool_]
    scores: NDArray[np.int64]
    misfits: tuple[tuple[str, int], ...]


class StaticFits:
    """The memory behind `Session.fit`."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self.generation = 0
        self._classes: tuple[NodeClass, ...] = ()
        self._class_of: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._known: dict[NodeClass, int] = {}
        self._ids: list[int] = []
        self._answers: dict[str, dict[int, tuple[Misfit | None, int]]] = {}
        self._fits: dict[str, Fit] = {}
        self._plain: dict[str, Shape] = {}
        self._first: dict[Shape, Shape] = {}

    def refresh(self, table: NodeTable, shapes: Mapping[str, Shape]) -> None:
        """Take over the node classes of a snapshot; forget what no longer exists."""
        if len(self._plain) > len(shapes) + _SPARE_SHAPES:
            self._plain = {key: plain for key, plain in self._plain.items() if key in shapes}
            self._first = {replace(plain, key=""): plain for plain in self._plain.values()}
            kept = {plain.key for plain in self._plain.values()}
            self._answers = {key: answers for key, answers in self._answers.items() if key in kept}
            self._fits = {key: fit for key, fit in self._fits.items() if key in kept}
        if table.classes is self._classes and table.class_of is self._class_of:
            return
        same = table.classes == self._classes and np.array_equal(table.class_of, self._class_of)
        self._classes, self._class_of = table.classes, table.class_of
        if same:
            return
        if len(self._known) > 2 * len(table.classes) + _SPARE_SHAPES:
            self._known.clear()
            self._answers.clear()
        self._ids = [self._known.setdefault(node_class, len(self._known)) for node_class in table.classes]
        self._fits.clear()
        self.generation += 1

    def plain_key(self, shape: Shape) -> str:
        """Equal for shapes that differ only in what they say about other pods."""
        return self._without_others(shape).key

    def fit(self, shape: Shape) -> Fit:
        """Return the shape's row. Raises `HookRaised`; then nothing is remembered."""
        shape = self._without_others(shape)
        known = self._fits.get(shape.key)
        if known is not None:
            return known
        answers = self._answers.setdefault(shape.key, {})
        for number, node_class in zip(self._ids, self._classes, strict=True):
            if number not in answers:
                misfit = self._hooks.fits(shape, node_class)
                score = self._hooks.scores(shape, node_class) if misfit is None else 0
                answers[number] = (misfit, score)
        rows = [answers[number] for number in self._ids]
        fits = np.array([misfit is None for misfit, _ in rows], dtype=np.bool_)
        ever = np.array([misfit is None or not misfit.lasting for misfit, _ in rows], dtype=np.bool_)
        scores = np.array([score for _, score in rows], dtype=np.int64)
        sizes = np.bincount(self._class_of, minlength=len(rows)) if rows else np.zeros(0, dtype=np.int64)
        reasons: dict[str, int] = {}
        for (misfit, _), size in zip(rows, sizes, strict=True):
            if misfit is not None and size:
                reasons[misfit.reason] = reasons.get(misfit.reason, 0) + int(size)
        made = Fit(
            mask=fits[self._class_of] if rows else np.zeros(0, dtype=np.bool_),
            ever=ever[self._class_of] if rows else np.zeros(0, dtype=np.bool_),
            scores=scores[self._class_of] if rows else np.zeros(0, dtype=np.int64),
            misfits=tuple(sorted(reasons.items())),
        )
        self._fits[shape.key] = made
        return made

    def _without_others(self, shape: Shape) -> Shape:
        """Return the shape without its rules about other pods; one object for all that are alike in the rest."""
        plain = self._plain.get(shape.key)
        if plain is None:
            bare = replace(shape, key="", host_ports=(), affinity=(), anti_affinity=(), preferred_pods=(), spread=())
            plain = self._plain[shape.key] = self._first.setdefault(bare, replace(bare, key=shape.key))
        return plain
