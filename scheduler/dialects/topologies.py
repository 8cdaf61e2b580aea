"""What the dialects share that say how nodes are wired: levels of node labels, and what is said of them.

Decided here: which lists of levels can be used (names and labels of their own, the hostname only at the end), and that
a condition is there only while there is something to say, unless an API always has one. Not known here: any particular
API.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.dialects.base import copied_conditions, set_condition
from scheduler.model.nodes import HOSTNAME
from scheduler.model.pods import Problem
from scheduler.model.topology import HyperNode, Level, Topology, TopologyFacts


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
