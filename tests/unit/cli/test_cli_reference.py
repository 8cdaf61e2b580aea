"""docs/reference/cli.md lists every command with all of its arguments and options, as the program has them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from scheduler.cli.main import app

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "cli.md"
README = ROOT / "README.md"
HEADING = "## Arguments and options\n"


def commands(group: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that is not hidden, with its words."""
    for word, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, f"{name}{word} ")
        else:
            yield f"{name}{word}", command


def _row(parameter: Any) -> str:
    default = getattr(parameter.default, "value", parameter.default)
    absent = default is None or default is False or default in ("", (), [])
    shown = "" if absent else f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}{'...' if parameter.nargs < 0 else ''}`" + (
            "" if parameter.required else " (may be left out)"
        )
    else:
        names = ", ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))
    return f"| {names} | {parameter.help or ''} | {shown} |"


def rendered() -> str:
    """The part of the page that is made from the program."""
    root = typer.main.get_command(app)
    parts = [HEADING]
    for name, command in commands(root):
        rows = [_row(one) for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
        parts.append(f"### muster {name}\n\n{(command.help or '').strip()}\n")
        if rows:
            parts.append("\n".join(("| | | Default |", "|---|---|---|", *rows, "")))
    return "\n".join(parts)


def test_the_page_lists_every_option_as_the_program_has_it() -> None:
    written, _, _ = PAGE.read_text().partition(HEADING)
    if os.environ.get("GOLDEN") == "write":
        PAGE.write_text(written + rendered())
    assert PAGE.read_text() == written + rendered(), f"GOLDEN=write writes that part of {PAGE.name} anew"


def test_the_page_and_the_readme_have_a_row_for_every_command() -> None:
    root = typer.main.get_command(app)
    page = [line.split(" | ")[0] for line in PAGE.read_text().partition(HEADING)[0].splitlines() if line[:2] == "| "]
    readme = README.read_text().partition("## Commands")[2].partition("\n## ")[0]
    for name, _ in commands(root):
        word = name.split()[0]
        assert any(f"`{name}" in cell for cell in page), f"{PAGE.name} has no row for {name}"
        assert re.search(rf"(`muster |\\\|){word}\b", readme), f"the table of README.md has no {word}"
