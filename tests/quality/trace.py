"""The trace in its published form: a list of nodes and lists of pods, CSV files given by path.

Decided here: what a line means. Anything that cannot be used is an error that names file, line and column. Pods that
are alike are one kind; nodes of one model are one sort.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
MILLI = 1000
"""A device in the unit of shares."""
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_MOST_DEVICES = 64


class BadTrace(ValueError):
    """A file that is not a trace; the message names file, line and column."""


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """N nodes. other: (2, N) cpu in milli, memory in MiB. devices: (N,). sort: (N,) index into models."""

    names: tuple[str, ...]
    other: Ints
    devices: Ints
    sort: Ints
    models: tuple[str, ...]

    @property
    def left(self) -> Ints:
        """What is left of each device when nothing runs: (N, most devices of a node)."""
        return np.where(np.arange(int(self.devices.max(initial=1))) < self.devices[:, None], MILLI, 0)

    def some(self, count: int, seed: int) -> Nodes:
        """Return so many of them, picked at random, all when there are not more."""
        picked = np.sort(np.random.default_rng((seed, 3)).permutation(len(self.names))[:count])
        names = tuple(self.names[node] for node in picked.tolist())
        return Nodes(names, self.other[:, picked], self.devices[picked], self.sort[picked], self.models)

    @property
    def capacity(self) -> int:
        """All devices, in milli."""
        return int(self.devices.sum()) * MILLI


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """P pods of K kinds. amount: (K,) milli of each device. count: (K,). other: (2, K). suits: (K, models). pods: (P,)
    their kinds."""

    amount: Ints
    count: Ints
    other: Ints
    suits: NDArray[np.bool_]
    pods: Ints

    @property
    def asked(self) -> Ints:
        """What a pod of each kind asks of devices, in milli."""
        return self.amount * self.count


def read_nodes(path: Path) -> Nodes:
    """Read a list of nodes. Raises `BadTrace`."""
    names, other, devices, models = [], [], [], []
    for row in _rows(path, _NODE_COLUMNS):
        names.append(row.text("sn"))
        other.append((row.number("cpu_milli"), row.number("memory_mib")))
        devices.append(row.number("gpu", high=_MOST_DEVICES))
        models.append(row.text("model") if devices[-1] else row.get("model"))
        if names[-1] in names[:-1]:
            raise row.refuse("sn", f"{names[-1]!r} is there twice")
    if not sum(devices):
        raise BadTrace(f"{path}: no node has a GPU")
    known = tuple(sorted(set(models)))
    sort = np.array([known.index(model) for model in models], dtype=np.int64)
    return Nodes(tuple(names), np.array(other, dtype=np.int64).T.copy(), np.array(devices, dtype=np.int64), sort, known)


def read_pods(path: Path, nodes: Nodes) -> Workload:
    """Read a list of pods for these nodes. Raises `BadTrace`."""
    kinds: dict[tuple[int, int, int, int, tuple[bool, ...]], int] = {}
    pods = []
    for row in _rows(path, _POD_COLUMNS):
        count = row.number("num_gpu", high=_MOST_DEVICES)
        amount = row.number("gpu_milli", low=1, high=MILLI) if count else 0
        if count > 1 and amount < MILLI:
            raise row.refuse("gpu_milli", f"{amount} of each of {count} GPUs: only whole ones are taken together")
        spec = row.get("gpu_spec")
        suits = tuple(not spec or not count or model in spec.split("|") for model in nodes.models)
        key = (row.number("cpu_milli"), row.number("memory_mib"), count, amount, suits)
        pods.append(kinds.setdefault(key, len(kinds)))
    if not any(key[2] for key in kinds):
        raise BadTrace(f"{path}: no pod asks for a GPU")
    table = list(kinds)
    return Workload(
        amount=np.array([key[3] for key in table], dtype=np.int64),
        count=np.array([max(1, key[2]) for key in table], dtype=np.int64),
        other=np.array([key[:2] for key in table], dtype=np.int64).T.copy(),
        suits=np.array([key[4] for key in table], dtype=np.bool_),
        pods=np.array(pods, dtype=np.int64),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    values: dict[str, str]
    refuse: Callable[[str, str], BadTrace]

    def get(self, column: str) -> str:
        """Return a value, "" where the column is missing."""
        return (self.values.get(column) or "").strip()

    def text(self, column: str) -> str:
        value = self.get(column)
        if not value:
            raise self.refuse(column, "is empty")
        return value

    def number(self, column: str, *, low: int = 0, high: int = 2**40) -> int:
        value = self.text(column)
        try:
            number = int(value)
        except ValueError:
            raise self.refuse(column, f"{value!r} is not an integer") from None
        if not low <= number <= high:
            raise self.refuse(column, f"{number} is not between {low} and {high}")
        return number


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    try:
        file = path.open(encoding="utf-8", newline="")
    except OSError as error:
        raise BadTrace(f"{path}: {error.strerror or error}") from error
    with file:
        reader = csv.DictReader(file)
        try:
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise BadTrace(f"{path}: line 1: there is no column {', '.join(missing)}")
            empty = True
            for values in reader:
                line, empty = reader.line_num, False

                def refuse(column: str, message: str, line: int = line) -> BadTrace:
                    return BadTrace(f"{path}: line {line}: column {column}: {message}")

                if None in values or None in values.values():
                    raise BadTrace(f"{path}: line {line}: not as many values as line 1 has columns")
                yield _Row(values, refuse)
        except (UnicodeDecodeError, csv.Error) as error:
            raise BadTrace(f"{path}: line {reader.line_num + 1}: not a CSV file in UTF-8: {error}") from error
        if empty:
            raise BadTrace(f"{path}: there is nothing after line 1")
