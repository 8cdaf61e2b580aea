"""What the dialects share that say how nodes are wired: levels of node labels, and what is said of them.

Decided here: which lists of levels can be used (names and labels of their own, the hostname only at the end), and that
a condition is there only while there is something to say, unless an API always has one. Not known here: any particular
API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from scheduler.dialects.base import Envelope, Reader, copied_conditions, open_envelope, open_spec, set_condition
from scheduler.dialects.meta import seconds
from scheduler.model.nodes import HOSTNAME
from scheduler.model.pods import Problem
from scheduler.model.topology import HyperNode, Level, Topology, TopologyFacts


def read(
    dialect: str, kind: str, raw: bytes | msgspec.Raw, api_version: str, level: Callable[[Reader], tuple[Level, str]]
) -> tuple[Topology, Envelope]:
    """Return a topology of levels, and its envelope for what else an API has. level: reads one, with its path."""
    envelope = open_envelope(kind, raw)
    meta, problems = envelope.metadata, list[Problem]()
    levels = [level(item) for item in open_spec(envelope, problems).objects("levels")]
    topology = Topology(
        name=meta.name,
        uid=meta.uid,
        dialect=dialect,
        levels=usable(levels, problems),
        api_version=api_version,
        created=seconds(meta.creation_timestamp),
        problems=tuple(dict.fromkeys(problems)),
        generation=meta.generation,
        resource_version=meta.resource_version,
    )
    return topology, envelope


def usable(levels: Sequence[tuple[Level, str]], problems: list[Problem]) -> tuple[Level, ...]:
    """Return the levels that can be used; those that cannot are problems. levels: with the path of each."""
    found: list[Level] = []
    for number, (level, path) in enumerate(levels):
        if not level.label and not level.prefix:
            problems.append(Problem(path, "names no node label"))
        elif any(level.name == one.name for one in found):
            problems.append(Problem(path, f"the name {level.name!r} is taken by a level above"))
        elif any((level.label, level.prefix) == (one.label, one.prefix) for one in found):
            problems.append(Problem(path, f"the label {level.label or level.prefix!r} is that of a level above"))
        elif level.label == HOSTNAME and number < len(levels) - 1:
            problems.append(Problem(path, f"{HOSTNAME} can only be the last level"))
        else:
            found.append(level)
    return tuple(found)


def conditions(
    one: Topology | HyperNode, before: dict[str, Any], facts: TopologyFacts, now: str, *, always: bool
) -> list[Any]:
    """Return the conditions: Ready, False while anything is wrong (True only if `always` or if it was told)."""
    found = copied_conditions(before)
    observed = {"observedGeneration": one.generation} if one.generation else {}
    if facts.faults:
        text = "; ".join(message for _, message in facts.faults)
        set_condition(found, "Ready", "False", facts.faults[0][0], text, now, **observed)
    elif always or any(condition.type == "Ready" for condition in one.conditions):
        set_condition(found, "Ready", "True", "Ready", "", now, **observed)
    return found
