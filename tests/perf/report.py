"""The one table that the benchmarks print."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

_began = time.monotonic()


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `target` is words, `met` None where there is none."""

    case: str
    figure: str
    target: str = ""
    met: bool | None = None
    machine: str = ""
    command: str = ""

    @property
    def verdict(self) -> str:
        """Return yes, NO or nothing."""
        return "" if self.met is None else "yes" if self.met else "NO"


def say(text: str) -> None:
    """One progress line for the person who waits."""
    print(f"[bench {time.monotonic() - _began:6.1f} s] {text}", file=sys.stderr, flush=True)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, columns aligned; what is the same in all of them is said once, above."""
    machines = list(dict.fromkeys(row.machine for row in rows if row.machine))
    head = ("case", "command", "figure", "target", "met?", "machine")
    number = {machine: str(index) for index, machine in enumerate(machines, start=1)}
    cells = [(row.case, row.command, row.figure, row.target, row.verdict, number.get(row.machine, "")) for row in rows]
    widths = [max(len(line[column]) for line in [head, *cells]) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [head, *cells]
    ]
    legend = [f"machine {number[machine]}: {machine}" for machine in machines]
    return "\n".join([*lines, "", *legend])


def as_json(rows: Sequence[Row]) -> str:
    """Return the rows for other programs."""
    return json.dumps([asdict(row) for row in rows], indent=1)
