"""How the demo looks: a live table on a terminal, one plain line for each thing that happens elsewhere.

Decided here: form only. What happened and whether it should have is the story's.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import IO

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scheduler.cli.stage import Actor, Screen

_COLOURS = {"Running": "green", "Pending": "yellow", "Succeeded": "dim", "Failed": "red"}


def open_screen(file: IO[str]) -> LiveScreen | PlainScreen:
    """Return the screen that fits: live on a terminal, plain elsewhere."""
    console = Console(file=file, highlight=False)
    return LiveScreen(console) if console.is_terminal and not console.is_dumb_terminal else PlainScreen(file)


class PlainScreen(Screen):
    """Lines, for files, pipes and logs."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._started = file, time.monotonic()

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.flush()

    def _line(self, text: str) -> None:
        print(text, file=self._file, flush=True)

    def act(self, title: str) -> None:
        """Open an act."""
        self._line(f"\n== {title}")

    def say(self, text: str) -> None:
        """Tell what is done and why."""
        self._line(f"  > {text}")

    def met(self, text: str) -> None:
        """Tell that an expectation came true."""
        self._line(f"  ok: {text}")

    def quote(self, text: str) -> None:
        """Show words of the cluster."""
        self._line(f'    "{text}"')

    def show(self, actors: list[Actor], nodes: dict[str, int], changed: Actor | None) -> None:
        """Tell of a pod that is new or changed."""
        if changed is not None:
            where = f" on {changed.node}" if changed.node else ""
            self._line(f"    {time.monotonic() - self._started:6.2f} s  {changed.name} {changed.state}{where}")


class LiveScreen(Screen):
    """Nodes with what runs on them and pods with their state, below what has been told so far."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=12, transient=True)

    def __enter__(self) -> LiveScreen:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def act(self, title: str) -> None:
        """Open an act."""
        self._console.print(Text(f"\n{title}", style="bold"))

    def say(self, text: str) -> None:
        """Tell what is done and why."""
        self._print("> ", text, "cyan")

    def met(self, text: str) -> None:
        """Tell that an expectation came true."""
        self._print("ok ", text, "green")

    def quote(self, text: str) -> None:
        """Show words of the cluster."""
        self._console.print(Padding(Text(f'"{text}"', style="yellow"), (0, 0, 0, 5)))

    def _print(self, mark: str, text: str, style: str) -> None:
        grid = Table.grid(padding=(0, 0, 0, 2))
        grid.add_row(Text(mark, style=f"bold {style}"), Text(text))
        self._console.print(grid)

    def show(self, actors: list[Actor], nodes: dict[str, int], changed: Actor | None) -> None:
        """Draw both tables anew."""
        self._live.update(Padding(Group(_nodes(actors, nodes), Text(), _pods(actors)), (1, 2)))


def _nodes(actors: list[Actor], nodes: dict[str, int]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("NODE", min_width=10)
    for number in range(max(nodes.values(), default=0)):
        table.add_column(f"GPU {number}", min_width=16)
    for name, gpus in nodes.items():
        holders = [one for one in actors if one.node == name and one.active][:gpus]
        cells = [Text(one.name, style="magenta" if one.gang == "gpu-hog" else "green") for one in holders]
        table.add_row(name, *cells, *(Text("free", style="dim") for _ in range(gpus - len(cells))))
    return table


def _pods(actors: list[Actor]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, width in (("POD", 22), ("GANG", 10), ("STATE", 10), ("NODE", 10)):
        table.add_column(column, min_width=width)
    for one in actors:
        table.add_row(one.name, one.gang, Text(one.state, style=_COLOURS.get(one.state, "")), one.node or "-")
    return table
