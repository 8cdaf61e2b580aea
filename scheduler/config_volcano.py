"""Volcano's scheduler.conf in our words: names of actions, plugins and arguments that stand for others here.

Decided here: what has a counterpart. Everything else is left out, and each of it is a warning that names its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ACTIONS: Mapping[str, str] = {"gangpreempt": "preempt", "gangreclaim": "reclaim"}
WITHOUT = frozenset({"preempt", "reclaim", "backfill", "shuffle"})
"""Actions of Volcano that may be left out."""
PLUGINS: Mapping[str, str] = {
    "proportion": "queues",
    "capacity": "queues",
    "network-topology-aware": "topology",
}
PARTS: Mapping[str, tuple[str, ...]] = {
    "predicates": ("hostports", "volumes", "spreading", "interpod"),
    "nodeorder": ("imagelocality",),
}
"""Plugins that are parts of one plugin there."""
_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "binpack": {"binpack.cpu": "cpu", "binpack.memory": "memory"},
    "nodeorder": {
        "nodeaffinity.weight": "nodeAffinity",
        "tainttoleration.weight": "taints",
        "leastrequested.weight": "leastAllocated",
        "mostrequested.weight": "mostAllocated",
        "balancedresource.weight": "balancedAllocation",
    },
}
_RESOURCE = "binpack.resources."
_LISTED = "binpack.resources"
"""Names the resources whose weights follow; those say it all."""


def arguments(plugin: str, given: Mapping[str, Any], where: str, warnings: list[str]) -> dict[str, Any]:
    """Return the arguments of a plugin (our name) in our words; the others are warned of."""
    known = _ARGUMENTS.get(plugin, {})
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in known:
            found[known[name]] = value
        elif plugin == "binpack" and str(name).startswith(_RESOURCE):
            found[str(name).removeprefix(_RESOURCE)] = value
        elif not (plugin == "binpack" and name in (_LISTED, "binpack.weight")):
            warnings.append(f"{where}.{name}: left out, it has no counterpart here")
    both = {name: found[name] for name in ("leastAllocated", "mostAllocated") if isinstance(found.get(name), int)}
    if len(both) == 2 and all(both.values()):
        less = min(both, key=lambda name: both[name])
        del found[less]
        warnings.append(f"{where}: {less} is left out, it contradicts the other and weighs less")
    return found


def weight(plugin: str, given: Mapping[str, Any], default: Any) -> Any:
    """Return the weight of a plugin's scores, which binpack has among its arguments."""
    return given.get("binpack.weight", default) if plugin == "binpack" else default


def without_switches(entry: Mapping[str, Any], where: str, warnings: list[str]) -> dict[str, Any]:
    """Return a plugin's entry without the switches of its hooks; those that are not at their default are warned of."""
    for key, value in entry.items():
        if str(key).startswith("enable") and value is not (key != "enableHierarchy"):
            warnings.append(f"{where}.{key}: left out, the parts of a plugin cannot be switched here")
    return {key: value for key, value in entry.items() if not str(key).startswith("enable")}
