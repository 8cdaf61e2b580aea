"""The commands behind `muster config`; what they do lives in `settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scheduler.cli.options import Data

config_app = typer.Typer(help="Work with configuration files.", no_args_is_help=True)


@config_app.command("check")
def config_check(
    file: Annotated[Path, typer.Argument(help="A SchedulerConfiguration or Volcano's scheduler.conf.")],
) -> None:
    """Check a configuration file; exit 2 with the path of the key that is wrong."""
    from scheduler.cli.settings import check

    raise typer.Exit(check(file))


@config_app.command("show")
def config_show(
    file: Annotated[Path | None, typer.Argument(help="A configuration; without it the defaults.")] = None,
    output: Annotated[Data, typer.Option("--output", "-o", help="yaml: a file; json: by path.")] = Data.YAML,
) -> None:
    """Print everything that holds with a configuration, each value with where it comes from."""
    from scheduler.cli.settings import show

    raise typer.Exit(show(file, output.value))


@config_app.command("diff")
def config_diff(
    first: Annotated[Path, typer.Argument(help="A configuration; alone it is compared with the defaults.")],
    second: Annotated[Path | None, typer.Argument(help="Another one.")] = None,
) -> None:
    """Print in what two configurations differ; exit 1 where they do."""
    from scheduler.cli.settings import diff

    raise typer.Exit(diff(first, second))
