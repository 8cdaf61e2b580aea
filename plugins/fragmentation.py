"""Put each pod where least of the devices (GPUs) is expected to be lost to the pods that are seen in this cluster.

Decided here: what is seen, and how nodes are judged by it (`stranding`). All pods of the snapshot are counted by their
shape, running and waiting alike: what was asked for until now is the best guess of what will be. Nodes that are of use
to few, or to hardly anyone, are taken first; those that others need and that have become scarce are kept for them.

The node at which least is lost scores 100, each next worse one less. Argument: `devices`, names of resources; without
it every resource named gpu, whatever its vendor.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plugins.stranding import Floats, Ints, Kinds, Outlook, States, after, common
from scheduler.framework.matching import matches_affinity, untolerated
from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState
from scheduler.model.nodes import NodeClass
from scheduler.model.pods import Shape

_REST = ("cpu", "memory")
_WHOLE = 1000
_COMMON, _KINDS = 0.95, 64
_BEST = 100


@dataclass(slots=True, eq=False)
class _Known:
    """What a shape costs on each node, as of these free amounts."""

    free: Ints
    growth: Floats


@dataclass(slots=True, eq=False)
class _Judge:
    """One resource as it is judged in a session: its row, those of the rest, what is expected, and what is scarce."""

    row: int
    rest: list[int]
    width: int
    outlook: Outlook
    wanted: Floats
    known: dict[str, _Known]

    def states(self, free: Ints, sort: Ints) -> States:
        """Return nodes with so much free (the resource, then the rest)."""
        left = np.where(np.arange(self.width) < free[0][:, None], _WHOLE, 0)
        return States(left, np.maximum(free[1:], 0), sort)


class Fragmentation:
    """See the module."""

    name = "fragmentation"

    def __init__(self, arguments: Arguments) -> None:
        self._devices = arguments.texts("devices")
        self._counted: dict[str, tuple[GroupState, Counter[str]]] = {}
        self._classes: tuple[NodeClass, ...] = ()
        self._rows: dict[str, list[bool]] = {}
        self._judges: list[_Judge] | None = None

    def on_session(self, view: View) -> None:
        """Forget the judgements of the session before."""
        self._judges = None

    def scores_nodes(self, shape: Shape, view: View) -> NDArray[np.int64]:
        """Return 100 for the nodes at which least is lost, one less for each next worse; 0 where it does not fit."""
        if self._judges is None:
            self._judges = self._judge(view)
        table = view.snapshot.table
        growth = np.zeros(len(table.names))
        request = view.request(shape)
        for judge in self._judges:
            growth = growth + self._growth(judge, shape, request, view)
        fits = np.isfinite(growth)
        scores = np.zeros(growth.size, dtype=np.int64)
        if self._judges and fits.any():
            order = np.unique(np.round(growth[fits], 6), return_inverse=True)[1]
            scores[fits] = np.maximum(_BEST - order, 0)
        return scores

    def _growth(self, judge: _Judge, shape: Shape, request: Ints, view: View) -> Floats:
        """Return by how much the cost of each node grows; only nodes that changed are judged again."""
        rows = [judge.row, *judge.rest]
        free = view.free[rows]
        known = judge.known.get(shape.key)
        if known is None:
            known = judge.known[shape.key] = _Known(free.copy(), np.zeros(free.shape[1]))
            changed = np.arange(free.shape[1])
        else:
            changed = np.flatnonzero((free != known.free).any(axis=0))
        if changed.size:
            known.free[:, changed] = free[:, changed]
            first, alike = _alike(np.vstack([free[:, changed], view.snapshot.table.class_of[changed]]))
            here = changed[first]
            states = judge.states(free[:, here], view.snapshot.table.class_of[here].astype(np.int64))
            pieces = int(request[judge.row])
            amount, count = (_WHOLE, pieces) if pieces else (0, 1)
            then, fits = after(states, amount, count, request[judge.rest])
            grows = np.full(here.size, np.inf)
            before = judge.outlook.cost(states[fits], judge.wanted)
            grows[fits] = judge.outlook.cost(then[fits], judge.wanted) - before
            known.growth[changed] = grows[alike]
        return known.growth

    def _judge(self, view: View) -> list[_Judge]:
        """Return a judge for each resource of which a node has any."""
        table = view.snapshot.table
        names = self._devices or [name for name in table.resources if name.rpartition("/")[2] == "gpu"]
        rest = [table.resources.index(name) for name in _REST if name in table.resources]
        seen = self._seen(view)
        judges = []
        for name in names:
            row = table.resources.index(name) if name in table.resources else -1
            width = int(table.allocatable[row].max(initial=0)) if row >= 0 else 0
            if width <= 0:
                continue
            outlook = Outlook(self._kinds(view, seen, row, rest))
            judge = _Judge(row, rest, width, outlook, np.zeros(0), {})
            free = view.free[[row, *rest]]
            first, alike = _alike(np.vstack([free, table.class_of]))
            states = judge.states(free[:, first], table.class_of[first].astype(np.int64))
            nodes = np.bincount(alike, minlength=first.size)
            everywhere = outlook.usable(states).T @ nodes
            judge.wanted = outlook.wanted(everywhere, float(states.left.sum(axis=1) @ nodes))
            judges.append(judge)
        return judges

    def _seen(self, view: View) -> Counter[str]:
        """Return how many pods of each shape there are. Groups that did not change are not counted again."""
        groups = view.snapshot.groups
        for key in self._counted.keys() - groups.keys():
            del self._counted[key]
        seen: Counter[str] = Counter(pod.shape for pod, _ in view.snapshot.singles.values())
        for key, state in groups.items():
            counted = self._counted.get(key)
            if counted is None or counted[0] is not state:
                members = (*state.waiting, *state.gated, *state.assumed, *state.bound)
                counted = self._counted[key] = (state, Counter(pod.shape for pod in members))
            seen.update(counted[1])
        return seen

    def _kinds(self, view: View, seen: Counter[str], row: int, rest: list[int]) -> Kinds:
        """Return the commonest shapes as kinds of pods that take whole pieces of a resource."""
        shapes = [view.snapshot.shapes[key] for key in sorted(seen)]
        width = len(view.snapshot.table.resources)
        requests = np.array([view.request(shape) for shape in shapes], dtype=np.int64).reshape(len(shapes), width)
        often = np.array([seen[shape.key] for shape in shapes], dtype=np.float64)
        picked = np.flatnonzero(common(often, often * requests[:, row], _COMMON, _KINDS))
        pieces = requests[picked, row]
        return Kinds(
            amount=np.where(pieces > 0, _WHOLE, 0),
            count=np.maximum(pieces, 1),
            other=requests[picked][:, rest].T,
            suits=self._suits([shapes[number] for number in picked.tolist()], view.snapshot.table.classes),
            often=often[picked],
            size=_WHOLE,
        )

    def _suits(self, shapes: list[Shape], classes: tuple[NodeClass, ...]) -> NDArray[np.bool_]:
        """Return which classes of nodes may host each shape."""
        if classes is not self._classes:
            self._classes, self._rows = classes, {}
        for shape in shapes:
            if shape.key not in self._rows:
                self._rows[shape.key] = [
                    matches_affinity(shape, one) and not untolerated(shape, one, ("NoSchedule", "NoExecute"))
                    for one in classes
                ]
        rows = [self._rows[shape.key] for shape in shapes]
        return np.array(rows, dtype=np.bool_).reshape(len(shapes), len(classes))


def _alike(rows: Ints) -> tuple[Ints, Ints]:
    """Return the first of each of the different columns, and which of these each column is."""
    part = np.zeros(rows.shape[1], dtype=np.int64)
    for row in rows:
        values, place = np.unique(row, return_inverse=True)
        part = np.unique(part * values.size + place, return_inverse=True)[1].astype(np.int64)
    return np.unique(part, return_index=True)[1], part
