"""`muster config`: the same reading as `muster run`, without running: check, show and diff.

Decided here: how a configuration is written back as a file (`document_of`: the file that would give exactly it), where
a value comes from, and which differences are told: those of what holds, not of how it is written.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from scheduler import config as configuration
from scheduler.app import load_configuration
from scheduler.cli.output import OK, USAGE, complain, note
from scheduler.config import API_VERSION, KIND, ConfigError, OwnerKindConfig, PluginConfig, SchedulerConfiguration

Json = dict[str, Any]
DIFFERENT = 1
"""Exit code of `diff` where there are differences, as that of diff and of kubectl diff."""
_DURATIONS = frozenset(
    {
        *("session_period", "resync_period", "wall_limit", "lease_duration", "renew_deadline", "retry_period"),
        *("deadline", "history", "volume_timeout", "victim_timeout"),
    }
)


def check(file: Path) -> int:
    """Print what a file would configure; exit code 2 with the path of the key that is wrong."""
    config = _loaded(file)
    if config is None:
        return USAGE
    for warning in config.warnings:
        print(f"warning: {warning}")
    print(f"schedulerNames: {', '.join(config.scheduler_names)}")
    print(f"actions: {', '.join(config.actions)}")
    for number, tier in enumerate(config.tiers):
        print(f"tier {number}: {', '.join(plugin.name for plugin in tier)}")
    print(f"{file}: ok")
    return OK


def show(file: Path | None, output: str) -> int:
    """Print everything that holds with a file (None: the defaults), each value with where it is from; exit code."""
    config = _loaded(file)
    if config is None:
        return USAGE
    for warning in config.warnings:
        note(f"warning: {warning}")
    written = _paths(configuration.read(file)) if file is not None else frozenset()
    origins = {path: _origin(path, config, written, str(file)) for path in flat(config)}
    if output == "json":
        values = flat(config)
        print(json.dumps({path: {"value": values[path], "from": origins[path]} for path in values}, indent=2))
    else:
        print("\n".join(_lines(config, origins)))
    return OK


def diff(first: Path, second: Path | None) -> int:
    """Print what differs between two files, or between the defaults and one; exit code, 1 where something does."""
    before, after = (_loaded(None), _loaded(first)) if second is None else (_loaded(first), _loaded(second))
    if before is None or after is None:
        return USAGE
    old, new = flat(before), flat(after)
    paths = [path for path in (*old, *(path for path in new if path not in old)) if old.get(path) != new.get(path)]
    for path in paths:
        print(f"{path}: {_word(old.get(path))} -> {_word(new.get(path))}")
    if not paths:
        note("they configure the same")
    return DIFFERENT if paths else OK


def _loaded(file: Path | None) -> SchedulerConfiguration | None:
    """Read a file; None where it is wrong, which is told."""
    try:
        return load_configuration(file)
    except ConfigError as error:
        text = str(error)
        complain(text if text.startswith(f"{file}: ") else f"{file}: {text}")
        return None


# -- as a file --------------------------------------------------------------------------------------------------------


def document_of(config: SchedulerConfiguration) -> Json:
    """Return the file that says everything that holds, with durations as text; an empty namespace stands for another
    and cannot be written."""
    return {"apiVersion": API_VERSION, "kind": KIND, **_written(config)}


def _written(part: Any) -> Json:
    found: Json = {}
    for one in dataclasses.fields(part):
        value = getattr(part, one.name)
        if one.name == "warnings" or value == "":
            continue
        found[_camel(one.name)] = _value(one.name, value)
    return found


def _value(name: str, value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _written(value)
    if name in _DURATIONS:
        return duration(value)
    if name == "actions":
        return ", ".join(value)
    if name == "tiers":
        return [{"plugins": [_plugin(plugin) for plugin in tier]} for tier in value]
    if name == "owners":
        return [_owner(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return list(value) if isinstance(value, tuple) else value


def _owner(one: OwnerKindConfig) -> Json:
    version = f"{one.group}/{one.version}".lstrip("/")
    return {"apiVersion": version, "kind": one.kind, "resource": one.resource, "minimum": list(one.minimum)}


def _plugin(plugin: PluginConfig) -> Json:
    weight: Json = {"weight": plugin.weight} if plugin.weight != 1 else {}
    arguments: Json = {"arguments": dict(plugin.arguments)} if plugin.arguments else {}
    return {"name": plugin.name, **weight, **arguments}


def duration(seconds: float) -> str:
    """Return seconds as a file says them: 500ms, 2s, 1m30s, 1h."""
    thousandths = round(seconds * 1000)
    if thousandths % 1000:
        return f"{thousandths}ms"
    left, text = thousandths // 1000, ""
    for size, unit in ((3600, "h"), (60, "m"), (1, "s")):
        if left >= size:
            text += f"{left // size}{unit}"
            left %= size
    return text or "0s"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


# -- by path ----------------------------------------------------------------------------------------------------------


def flat(config: SchedulerConfiguration) -> Json:
    """Return everything that holds by its path; the plugins of a tier by their names, so that one that moves inside it
    does not make all behind it differ."""
    found: Json = {}
    for key, value in _written(config).items():
        if key == "tiers":
            for number, tier in enumerate(config.tiers):
                found |= _flat_tier(f"tiers[{number}]", tier)
        elif isinstance(value, dict):
            found |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            found[key] = value
    return found


def _flat_tier(path: str, tier: tuple[PluginConfig, ...]) -> Json:
    found: Json = {f"{path}.plugins": [plugin.name for plugin in tier]}
    for plugin in tier:
        if plugin.weight != 1:
            found[f"{path}.{plugin.name}.weight"] = plugin.weight
        found |= {f"{path}.{plugin.name}.arguments.{name}": value for name, value in plugin.arguments.items()}
    return found


def _paths(document: object) -> frozenset[str]:
    """Return the keys that a file has, those of mappings one level down too."""
    if not isinstance(document, Mapping):
        return frozenset()
    below = (
        f"{key}.{name}" for key, value in document.items() if isinstance(value, Mapping) for name in value
    )  # fmt: skip
    return frozenset((*map(str, document), *below))


def _origin(path: str, config: SchedulerConfiguration, written: frozenset[str], file: str) -> str:
    """Where a value comes from. What a file of Volcano's form implies without saying it comes from the file too."""
    said = path.partition("[")[0] if path.startswith("tiers") else path
    if said in written or flat(config).get(path) != flat(SchedulerConfiguration()).get(path):
        return file
    return "default"


def _word(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return "-" if value is None else str(value)


def _lines(config: SchedulerConfiguration, origins: Mapping[str, str]) -> Iterator[str]:
    """Yield the file, a line for each value, with where it comes from behind it."""
    for key, value in document_of(config).items():
        if key == "tiers":
            yield f"tiers:  # {origins['tiers[0].plugins']}"
            yield from _flow(value)
        elif isinstance(value, dict):
            yield f"{key}:"
            for name, inner in value.items():
                yield f"  {_pair(name, inner)}  # {origins[f'{key}.{name}']}"
        else:
            yield _pair(key, value) + (f"  # {origins[key]}" if key in origins else "")


def _pair(key: str, value: object) -> str:
    inside = yaml.safe_dump(
        value if isinstance(value, list) else [value], default_flow_style=True, width=10_000
    ).strip()
    return f"{key}: {inside if isinstance(value, list) else inside[1:-1]}"


def _flow(tiers: list[Json]) -> Iterator[str]:
    for tier in tiers:
        yield "- plugins:"
        for plugin in tier["plugins"]:
            yield f"  - {yaml.safe_dump(plugin, default_flow_style=True, sort_keys=False, width=10_000).strip()}"
