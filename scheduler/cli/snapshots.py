"""`muster snapshot` and `muster replay`: take a session away, and run it again."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from scheduler.app import load_configuration, make_sessions
from scheduler.cli.health_port import NoAnswer, fetch
from scheduler.cli.output import FAILED, OK, UNREACHABLE, USAGE, complain
from scheduler.config import ConfigError
from scheduler.framework.registry import BadPlugin
from scheduler.sim import replay


def save(address: str, output: Path) -> int:
    """Fetch the last session of a running scheduler; exit code."""
    try:
        data = fetch(address, "/debug/snapshot", timeout=60)
    except NoAnswer as error:
        complain(str(error))
        return FAILED if error.status else UNREACHABLE
    if not data:
        complain(f"{address}: no session has run yet; is this the leader, and are its caches synced?")
        return FAILED
    try:
        output.write_bytes(data)
    except OSError as error:
        complain(f"{output}: {error.strerror}")
        return FAILED
    print(f"{output}: {len(data)} bytes")
    return OK


def run_again(file: Path, config: Path | None, output: str) -> int:
    """Run the saved session and print its decisions; 1 when they are not those that were saved."""
    try:
        saved = replay.load(file.read_bytes())
        configuration = load_configuration(config) if config else saved.config
        outcome = make_sessions(configuration).run(saved.snapshot, saved.session)
    except replay.BadSnapshotFile as error:
        complain(f"{file}: {error}")
        return USAGE
    except (ConfigError, BadPlugin) as error:
        complain(f"{config or file}: {error}")
        return USAGE
    decided = replay.plain(outcome.decisions)
    document = {"session": saved.session, "generation": saved.snapshot.generation, "decisions": decided}
    if output == "json":
        print(json.dumps(document, indent=2))
    else:
        print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
    before = [item for item in saved.decisions if item["decision"] == "Place"]
    again = [item for item in json.loads(json.dumps(decided)) if item["decision"] == "Place"]
    if config is None and before != again:
        complain("these are not the placements that the scheduler decided")
        return FAILED
    return OK
