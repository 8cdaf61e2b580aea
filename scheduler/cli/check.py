"""`muster config check`: the same reading as `muster run`, without running."""

from __future__ import annotations

from pathlib import Path

from scheduler.app import load_configuration
from scheduler.cli.output import OK, USAGE, complain
from scheduler.config import ConfigError


def check(file: Path) -> int:
    """Print what a file would configure; exit code 2 with the path of the key that is wrong."""
    try:
        config = load_configuration(file)
    except ConfigError as error:
        complain(f"{file}: {error}")
        return USAGE
    for warning in config.warnings:
        print(f"warning: {warning}")
    print(f"schedulerNames: {', '.join(config.scheduler_names)}")
    print(f"actions: {', '.join(config.actions)}")
    for number, tier in enumerate(config.tiers):
        print(f"tier {number}: {', '.join(plugin.name for plugin in tier)}")
    print(f"{file}: ok")
    return OK
