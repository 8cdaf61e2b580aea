"""The tree of queues: built, and checked, from the queue objects.

Decided here: which queues take part. A fault (a cycle, a parent that does not exist, fields that contradict each other
or what stands below them) takes a queue and everything below it out of the division, and nothing else; what is doubtful
but works is a warning. The root cannot be taken out: what would be its fault is a warning.

What runs in a queue is counted in it also when it takes no part: such queues stand aside, below the root, and nothing
starts in them. One at fault keeps what it holds, within the limits that it states; one that is gone (something runs in
it, and there is no object) is owed nothing.

"root" and "default" need no object. A queue named root may exist: its limits and its state count. Without an object,
default is a leaf below the root.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import networkx as nx

from scheduler.model.queues import DEFAULT_QUEUE, ROOT_QUEUE, UNLIMITED, Queue
from scheduler.model.quota import Fields, Structure
from scheduler.model.resources import Amounts

CYCLE = "QueueCycle"
PARENT_NOT_FOUND = "ParentNotFound"
BAD_FIELD = "BadField"
CONTRADICTION = "Contradiction"
OVERCOMMITTED = "GuaranteesOvercommitted"
OVERSUBSCRIBED = "DeservedOversubscribed"
TOO_DEEP = "TooDeep"
MAX_DEPTH = 64
"""Levels below the root; a queue that stands deeper takes no part."""
_NAMED = 5
"""Queues of a cycle that are named."""
STANDS_ASIDE = "nothing new starts in it; what runs there goes on, within the limits that it states"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a queue: a code of this module, the field to change (dotted), and a sentence.

    queue: whose fault it is, which may stand above the queue that was asked about. parent: the parent that is missing.
    """

    queue: str
    code: str
    field: str
    message: str
    parent: str = ""


@dataclass(frozen=True, eq=False)
class QueueTree:
    """All queues, top down: the root, then depth by depth, those below one queue together by name.

    parents: the row of the queue above each row (-1: the root). out: the fault of each queue that has one; those that
    are out only because a queue above them is, are there with that queue's fault. warnings: by name. aside: the queues
    that take no part, with the limits that they state: those of `out`, and those that are gone.
    state: of every queue that has an object (and of root and default), whether it takes part or not.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    depth: tuple[int, ...]
    out: Mapping[str, Fault]
    aside: Mapping[str, Amounts]
    warnings: Mapping[str, tuple[Fault, ...]]
    state: Mapping[str, str]
    above: Mapping[str, str] = field(repr=False)
    queues: tuple[Queue, ...] = field(repr=False)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The row of each queue."""
        return {name: row for row, name in enumerate(self.names)}

    @cached_property
    def structure(self) -> Structure:
        """The same as arrays."""
        return Structure.of(self.parents, self.names)

    @cached_property
    def below(self) -> tuple[tuple[int, ...], ...]:
        """The rows directly below each row."""
        found: list[list[int]] = [[] for _ in self.names]
        for row, parent in enumerate(self.parents):
            if parent >= 0:
                found[parent].append(row)
        return tuple(map(tuple, found))

    @cached_property
    def _children(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for name, parent in sorted(self.above.items()):
            found.setdefault(parent, []).append(name)
        return {name: tuple(below) for name, below in found.items()}

    @cached_property
    def _fields(self) -> dict[tuple[str, ...], Fields]:
        return {}

    def __contains__(self, name: str) -> bool:
        """Whether the queue takes part."""
        return name in self.index and name not in self.aside

    @property
    def gone(self) -> tuple[str, ...]:
        """The queues in which something runs and that have no object, sorted."""
        return tuple(name for name in self.aside if name not in self.out)

    def fields(self, resources: Sequence[str]) -> Fields:
        """Return what the queues that take part say about these resources; remembered, so not to be changed.

        Those that stand aside say nothing.
        """
        key = tuple(resources)
        if key not in self._fields:
            self._fields[key] = Fields.of(self.queues, key)
        return self._fields[key]

    def children(self, name: str) -> tuple[str, ...]:
        """Return the queues directly below, sorted, also those that do not take part."""
        return self._children.get(name, ())

    def is_leaf(self, name: str) -> bool:
        """Return whether groups may name this queue: it exists, and no object names it as its parent."""
        return name in self.state and name != ROOT_QUEUE and not self.children(name)

    def lineage(self, name: str) -> tuple[str, ...]:
        """Return the queue and those above it, the root last; it ends early where the tree is broken."""
        found: dict[str, None] = {}
        while name in self.state and name not in found:
            found[name] = None
            if name == ROOT_QUEUE:
                break
            name = self.above[name]
        return tuple(found)

    def path(self, name: str) -> str:
        """Return the names from below the root down, with slashes: "research/nlp"; "root" for the root."""
        return "/".join(reversed([one for one in self.lineage(name) if one != ROOT_QUEUE])) or ROOT_QUEUE

    def lookup(self, text: str) -> str | None:
        """Return the queue that a group names: "nlp", "research/nlp" or "root/research/nlp"; "" is default.

        None: no such queue, or it does not stand there. Whether it takes part and is a leaf is not looked at.
        """
        *line, name = (text or DEFAULT_QUEUE).strip("/").split("/")
        if name not in self.state:
            return None
        if not line or (line == [ROOT_QUEUE] and name != ROOT_QUEUE):
            return name
        above = list(reversed(self.lineage(name)))[:-1]
        return name if above[-len(line) :] == line else None

    def fault_of(self, name: str) -> Fault | None:
        """Return why a queue does not take part: its own fault or that of a queue above it."""
        return self.out.get(name)

    def problem_of(self, name: str) -> tuple[str, str] | None:
        """Return what to write on a queue: code and sentence of its fault, else of its first warning."""
        fault = self.out.get(name)
        if fault is not None:
            return fault.code, f"{fault.message}; {STANDS_ASIDE}"
        doubt = next(iter(self.warnings.get(name, ())), None)
        return None if doubt is None else (doubt.code, doubt.message)

    def closed(self, name: str) -> tuple[str, str] | None:
        """Return the nearest queue, from this one up to the root, that is not Open, and its state."""
        for one in self.lineage(name):
            if self.state[one] != "Open":
                return one, self.state[one]
        return None


def build(queues: Mapping[str, Queue], running: Iterable[str] = ()) -> QueueTree:
    """Return the tree of these queues, by name. running: names of queues in which something runs, known or not."""
    known = dict(queues)
    known.setdefault(ROOT_QUEUE, Queue(name=ROOT_QUEUE))
    implicit = DEFAULT_QUEUE not in queues
    known.setdefault(DEFAULT_QUEUE, Queue(name=DEFAULT_QUEUE))
    own: dict[str, Fault] = {}
    above: dict[str, str] = {}
    for name in sorted(known):
        if name != ROOT_QUEUE:
            parent = known[name].parent.strip("/").split("/")[-1] or ROOT_QUEUE
            missing = parent not in known or (implicit and parent == DEFAULT_QUEUE)
            above[name] = "" if missing else parent
    for name, parent in above.items():
        if not parent or not _stands(known[name].parent, above):
            own[name] = _missing(name, known[name].parent)
            above[name] = ""
    graph = nx.DiGraph()
    graph.add_nodes_from(known)
    graph.add_edges_from((parent, name) for name, parent in above.items() if name not in own)
    for cycle in nx.strongly_connected_components(graph):
        if len(cycle) > 1 or any(graph.has_edge(name, name) for name in cycle):
            for name in cycle:
                own[name] = _cycle(name, cycle)
    for name in known:
        fault = next(iter(_contradictions(known[name])), None)
        if fault is not None and name != ROOT_QUEUE:
            own.setdefault(name, fault)
    graph.remove_edges_from([(above[name], name) for name in own if graph.has_edge(above[name], name)])
    doubt = _check_sums(graph, known, own)
    graph.remove_edges_from([(above[name], name) for name in own if graph.has_edge(above[name], name)])
    too_deep = [name for name, depth in zip(*_top_down(graph), strict=True) if depth > MAX_DEPTH]
    own |= {name: _deep(name) for name in too_deep}
    graph.remove_edges_from([(above[name], name) for name in too_deep])
    out = dict(own)
    for name in own:
        for below in nx.descendants(graph, name):
            out.setdefault(below, own[name])
    warnings = _warnings(_top_down(graph)[0], known, above, doubt)
    aside = {name: known[name].limit for name in out} | {name: () for name in running if name not in known}
    stands = above | {name: ROOT_QUEUE for name in aside if name in own or name not in known}
    graph.add_edges_from((ROOT_QUEUE, name) for name in aside if stands[name] == ROOT_QUEUE)
    names, depth = _top_down(graph)
    row = {name: number for number, name in enumerate(names)}
    return QueueTree(
        names=names,
        parents=tuple(-1 if name == ROOT_QUEUE else row[stands[name]] for name in names),
        depth=depth,
        out={name: out[name] for name in sorted(out)},
        aside={name: aside[name] for name in sorted(aside)},
        warnings=warnings,
        state={name: queue.state for name, queue in known.items()},
        above=above,
        queues=tuple(Queue(name=name, weight=0) if name in aside else known[name] for name in names),
    )


def _stands(path: str, above: Mapping[str, str]) -> bool:
    """Whether the last name of a path stands below the others."""
    *line, name = path.strip("/").split("/")
    for part in reversed(line):
        name = above.get(name, "")
        if name != part:
            return False
    return True


def _missing(name: str, parent: str) -> Fault:
    message = f"its parent {parent} does not exist"
    if parent == DEFAULT_QUEUE:
        message = f"its parent {parent} has no object, and nothing can stand below it without one"
    return Fault(name, PARENT_NOT_FOUND, "spec.parent", message, parent)


def _deep(name: str) -> Fault:
    return Fault(name, TOO_DEEP, "spec.parent", f"it stands more than {MAX_DEPTH} levels below the root")


def _cycle(name: str, cycle: Iterable[str]) -> Fault:
    names = sorted(set(cycle) - {name})
    rest = len(names) - _NAMED
    others = ", ".join(names[:_NAMED]) + (f" and {rest} others" if rest > 0 else "")
    return Fault(
        name, CYCLE, "spec.parent", f"it stands below itself (with {others})" if others else "it is its own parent"
    )


def _top_down(graph: nx.DiGraph) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names: list[str] = []
    depth: list[int] = []
    level = [ROOT_QUEUE]
    while level:
        depth += [depth[-1] + 1 if depth else 0] * len(level)
        names += level
        level = [name for parent in level for name in sorted(graph.successors(parent))]
    return tuple(names), tuple(depth)


def _contradictions(queue: Queue) -> Iterator[Fault]:
    for problem in queue.problems:
        yield Fault(queue.name, BAD_FIELD, problem.field, f"{problem.field}: {problem.message}")
    tables = {"guarantee": dict(queue.guarantee), "deserved": dict(queue.deserved), "limit": dict(queue.limit)}
    for name, value in queue.guarantee:
        if value == UNLIMITED:
            yield Fault(queue.name, CONTRADICTION, "spec.guarantee", f"its guarantee of {name} has no number")
    for lower, upper in (("guarantee", "deserved"), ("guarantee", "limit"), ("deserved", "limit")):
        for name, value in tables[lower].items():
            most = tables[upper].get(name, UNLIMITED)
            if most != UNLIMITED and value > most:
                yield Fault(
                    queue.name,
                    CONTRADICTION,
                    f"spec.{lower}",
                    f"its {lower} of {name} ({value}) is above its {upper} ({most})",
                )


def _check_sums(graph: nx.DiGraph, known: Mapping[str, Queue], own: dict[str, Fault]) -> Fault | None:
    """Add the queues whose children are guaranteed more than they have, from the leaves up; return the root's fault."""
    fault: Fault | None = None
    total: dict[str, dict[str, int]] = {}
    for name in reversed(_top_down(graph)[0]):
        below: dict[str, int] = {}
        for child in graph.successors(name):
            if child not in own:
                for resource, value in total[child].items():
                    below[resource] = below.get(resource, 0) + value
        fault = _overcommitted(known[name], below)
        if fault is not None and name != ROOT_QUEUE:
            own[name] = fault
        total[name] = below | dict(known[name].guarantee)
    return fault


def _overcommitted(queue: Queue, below: Mapping[str, int]) -> Fault | None:
    for label, values in (("guarantee", queue.guarantee), ("deserved", queue.deserved), ("limit", queue.limit)):
        for resource, value in values:
            if value != UNLIMITED and below.get(resource, 0) > value:
                message = (
                    f"the guarantees of {resource} directly below it ({below[resource]}) exceed its {label} ({value})"
                )
                return Fault(queue.name, OVERCOMMITTED, f"spec.{label}", message)
    return None


def _warnings(
    names: Iterable[str], known: Mapping[str, Queue], above: Mapping[str, str], doubt: Fault | None
) -> Mapping[str, tuple[Fault, ...]]:
    found: dict[str, tuple[Fault, ...]] = {}
    for name in names:
        if name == ROOT_QUEUE:
            faults = [*_contradictions(known[name]), *([doubt] if doubt is not None else [])]
        else:
            faults = list(_oversubscribed(known[name], known[above[name]]))
        if faults:
            found[name] = tuple(faults)
    return found


def _oversubscribed(queue: Queue, parent: Queue) -> Iterator[Fault]:
    owed = dict(parent.deserved)
    for resource, value in queue.deserved:
        most = owed.get(resource, UNLIMITED)
        if most != UNLIMITED and value > most:
            message = f"its deserved {resource} ({value}) is above that of {parent.name} ({most})"
            yield Fault(queue.name, OVERSUBSCRIBED, "spec.deserved", message)


class Trees:
    """Remembers the last tree: the same queues, or queues that say the same about the tree, give the same object."""

    def __init__(self) -> None:
        self._given: tuple[Queue, ...] = ()
        self._gone: tuple[str, ...] = ()
        self._key: tuple[object, ...] | None = None
        self._tree: QueueTree | None = None

    def of(self, queues: Mapping[str, Queue], running: Iterable[str] = ()) -> QueueTree:
        """Return the tree of these queues. running: as in `build`."""
        given = tuple(queues.values())
        gone = tuple(sorted({*running} - {*queues, ROOT_QUEUE, DEFAULT_QUEUE}))
        same = len(given) == len(self._given) and all(a is b for a, b in zip(given, self._given, strict=True))
        if self._tree is None or not same or gone != self._gone:
            key = (gone, *sorted(_content(queue) for queue in given))
            if self._tree is None or key != self._key:
                self._tree, self._key = build(queues, gone), key
            self._given, self._gone = given, gone
        return self._tree


Content = tuple[str, str, str, int, int, Amounts, Amounts, Amounts, Amounts, tuple[tuple[str, str], ...]]


def _content(queue: Queue) -> Content:
    return (
        queue.name,
        queue.parent,
        queue.state,
        queue.weight,
        queue.priority,
        queue.weights,
        queue.guarantee,
        queue.deserved,
        queue.limit,
        tuple((problem.field, problem.message) for problem in queue.problems),
    )
