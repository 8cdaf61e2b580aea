"""Makes a case that shows a difference as small as it gets, by leaving out one thing after the other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
Path = tuple[str | int, ...]

_KEPT = {
    *("name", "namespace", "uid", "nodes", "incoming", "pods", "podGroups", "apiVersion", "metadata", "labels"),
    *(
        "spec",
        "status",
        "allocatable",
        "containers",
        "image",
        "schedulerName",
        "nodeName",
        "scheduling.muster.sh/pod-group",
    ),
}
"""Keys that no valid object is without, or that say which object it is."""


def shrink(case: Json, differs: Callable[[Json], object]) -> Json:
    """Return a case of which no part can be left out so that it still differs (`differs` is true of it)."""
    progress = True
    while progress:
        progress = False
        for path in list(_parts(case, ())):
            smaller = _without(case, path)
            if smaller is not None and differs(smaller):
                case, progress = smaller, True
    return case


def _parts(value: Any, path: Path) -> Iterator[Path]:
    """Paths to everything that may be left out, the largest first, the last of a list before the first."""
    if isinstance(value, dict):
        for key in value:
            if key not in _KEPT:
                yield (*path, key)
        for key, part in value.items():
            yield from _parts(part, (*path, key))
    elif isinstance(value, list):
        for number in reversed(range(len(value))):
            yield (*path, number)
            yield from _parts(value[number], (*path, number))


def _without(case: Json, path: Path) -> Json | None:
    """The case without one part; None when that is gone already."""
    if len(path) == 2 and path[0] in ("incoming", "podGroups") and len(case[path[0]]) == 1:
        return None
    smaller = copy.deepcopy(case)
    holder: Any = smaller
    try:
        for step in path[:-1]:
            holder = holder[step]
        del holder[path[-1]]
    except (KeyError, IndexError):
        return None
    return smaller
