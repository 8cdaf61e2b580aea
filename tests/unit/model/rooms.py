"""How much more each queue may use, of a tree that is given as bare arrays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from scheduler.framework.book import Book, Ground, Ints
from scheduler.model.filling import CEILING
from scheduler.model.quota import Fields, Structure, held, subtree


def account(structure: Structure, fields: Fields, usage: Ints, total: Ints) -> Book:
    """Return the account of queues that use so much each. usage: (queues, resources); total: (resources,)."""
    names = [str(row) for row in range(len(usage))]
    tree: Any = SimpleNamespace(structure=structure, names=names, fields=lambda _: fields)
    empty = np.zeros_like(usage)
    limit = np.where(fields.limit >= 0, fields.limit, CEILING)
    counts = np.ones(usage.shape, dtype=np.bool_)
    resources = tuple(str(column) for column in range(usage.shape[1]))
    ground = Ground(tree, resources, total, empty, empty, empty, held(structure, fields, total), limit, counts)
    return Book(ground, subtree(structure, usage), {})


def rooms(structure: Structure, fields: Fields, usage: Ints, total: Ints) -> Ints:
    """Return (queues, resources) how much more each may use."""
    book = account(structure, fields, usage, total)
    return np.stack([book.room(row) for row in range(len(usage))])
