"""Amounts of resources as sorted tuples, and the few sums over them.

An `Amounts` is a tuple of (resource name, integer) pairs, sorted by name, without zeros: hashable, comparable, cheap to
share. cpu is in millicores, everything else in base units (bytes, pieces). "pods" (slots of a node) is kept beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

Amounts: TypeAlias = tuple[tuple[str, int], ...]
PODS = "pods"
BASE = ("cpu", "memory")
"""What scores of how full a node is go by."""


def amounts(values: Mapping[str, int] | Iterable[tuple[str, int]]) -> Amounts:
    """Return the canonical form of a mapping: sorted, zeros dropped."""
    pairs = values.items() if isinstance(values, Mapping) else values
    return tuple(sorted((name, value) for name, value in pairs if value != 0))


def add(*parts: Amounts) -> Amounts:
    """Return the sum."""
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part:
            total[name] = total.get(name, 0) + value
    return amounts(total)


def scale(part: Amounts, factor: int) -> Amounts:
    """Return `part` times an integer."""
    return amounts((name, value * factor) for name, value in part)
