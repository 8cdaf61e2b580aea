"""Parts of a gang as numbers of pods: what is whole, which parts are meant when there is a choice, what a part needs.

Decided here: of parts that may be left out, those that hold pods that are needed anyway are meant first, then earlier
ones; a part that could not be whole in any case is passed over. Nothing here knows nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from scheduler.placement.problem import Part, Parts

Floor: TypeAlias = tuple[tuple[int, ...], int]
"""Demands, and how many pods of them together there are at least."""


def placed(part: Part, counts: Sequence[int]) -> bool:
    """Whether a part is placed."""
    return any(counts[demand] for demand in part.demands)


def whole(parts: Sequence[Part], least: int, counts: Sequence[int]) -> bool:
    """Whether each part is whole or absent, and at least so many are placed."""
    there = [part for part in parts if placed(part, counts)]
    return len(there) >= least and all(
        sum(counts[d] for d in part.demands) >= part.minimum and whole(part.parts, part.least, counts) for part in there
    )


def size(part: Part) -> int:
    """Return how many pods a placed part has at least."""
    return max(1, part.minimum, fewest(part.parts, part.least))


def fewest(parts: Sequence[Part], least: int) -> int:
    """Return how many pods the smallest so many parts have at least."""
    return sum(sorted(size(part) for part in parts)[:least])


def forced(parts: Sequence[Part], least: int, lows: Sequence[int]) -> Iterator[Floor]:
    """Yield what all placements hold: the smallest parts together, and each part that no choice leaves out.

    lows: pods of each demand that all placements hold.
    """
    if least:
        yield tuple(sorted({d for part in parts for d in part.demands})), fewest(parts, least)
    for part in parts:
        if least == len(parts) or placed(part, lows):
            yield tuple(sorted(part.demands)), size(part)
            yield from forced(part.parts, part.least, lows)


def able(part: Part, highs: Sequence[int]) -> bool:
    """Whether a part could be whole, as far as the most pods of each demand tell."""
    able_parts = sum(able(inner, highs) for inner in part.parts)
    return able_parts >= part.least and sum(highs[d] for d in part.demands) >= size(part)


def chosen(parts: Sequence[Part], least: int, counts: Sequence[int], highs: Sequence[int]) -> list[Part]:
    """Return the parts that are meant: those with pods that are needed anyway, then the first that could be whole."""
    there = [part for part in parts if placed(part, counts)]
    for part in parts:
        if len(there) < least and not placed(part, counts) and able(part, highs):
            there.append(part)
    return there


def wanted(parts: Sequence[Part], least: int, counts: Sequence[int], highs: Sequence[int]) -> Iterator[Floor]:
    """Yield the minimums of the parts that are meant, the innermost first; demands in the order of preference."""
    for part in chosen(parts, least, counts, highs):
        inner = chosen(part.parts, part.least, counts, highs)
        yield from wanted(part.parts, part.least, counts, highs)
        mine = {d for one in inner for d in one.demands}
        others = {d for one in part.parts for d in one.demands} - mine
        yield tuple(sorted(part.demands, key=lambda d: (d in others, d))), max(1, part.minimum)


def every(rules: Sequence[Parts]) -> Iterator[Part]:
    """Yield all parts, outer ones before what is in them, later ones first."""
    waiting = [part for rule in rules for part in rule.parts]
    while waiting:
        part = waiting.pop()
        yield part
        waiting.extend(part.parts)
