"""The tree of a gang's sub-groups: which member is in which, and what of it is there, started, whole or missing.

Decided here, once for all: how members are dealt to sub-groups, when a part counts as started (something of it is
placed) and as met (its minimum is), and which of several choices of parts takes the fewest members. Pure arithmetic.

A part that needs nothing (minimum 0) is always met. A part of which something is placed has to be made whole before
others are begun; of the others the cheapest are counted on, ties in their author's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from scheduler.model.groups import GroupState, PodGroup, SubGroup
from scheduler.model.pods import Pod, Problem
from scheduler.model.selecting import selects
from scheduler.model.wishes import TopologyWish

STRAY = "?"
"""No path: the part of a member that names a sub-group which is not there."""

# -- who is in which part ---------------------------------------------------------------------------------------------


def dealt(group: PodGroup, members: Sequence[Pod]) -> tuple[PodGroup, dict[str, str], tuple[Problem, ...]]:
    """Return the group with its concrete sub-groups, the part of each member (by uid; absent: none), and what is wrong.

    A member that names a sub-group which is not there has the part `STRAY`. Where no object says anything about
    domains or sub-groups, members' own wishes make parts without a minimum.
    """
    if not group.subgroups:
        return _by_wish(group, members) if group.topology is None else (group, {}, ())
    leaves = _leaves(group.subgroups)
    named = group.dialect != "volcano" and any(leaf.selector is None and not leaf.keys for leaf in leaves)
    part: dict[str, str] = {}
    found: dict[str, dict[tuple[str, ...], None]] = {}
    problems: list[Problem] = []
    used: set[str] = set()
    for pod in members:
        labels = dict(pod.labels)
        own = [leaf for leaf in leaves if _is_in(leaf, pod, labels)]
        if len(own) > 1:
            fields = " and ".join(f"{leaf.field or leaf.path} ({leaf.path})" for leaf in own[:2])
            problems.append(Problem(own[1].field or "spec.subGroups", f"pod {pod.name} is in two sub-groups: {fields}"))
        if not own:
            if named and pod.role:
                part[pod.uid] = STRAY
            continue
        leaf = own[0]
        used.add(leaf.path)
        if leaf.keys:
            values = tuple(labels[key] for key in leaf.keys)
            found.setdefault(leaf.path, {})[values] = None
            part[pod.uid] = f"{leaf.path}/{_named(values)}"
        else:
            part[pod.uid] = leaf.path
    if group.topology is None and not any(one.topology for one in group.subgroups):
        said = {pod.wish for pod in members if pod.wish is not None}
        if len(said) == 1:
            group = replace(group, topology=said.pop().wish)
        elif said:
            problems.append(Problem("spec.topology", "is not there, and its pods ask for the domains of several sets"))
    idle = ((leaf.path, _said_by(leaf, group.dialect)) for leaf in leaves if leaf.path not in used and members)
    unmatched = tuple((path, field) for path, field in idle if field)
    if unmatched:
        group = replace(group, unmatched=unmatched)
    if any(leaf.keys for leaf in leaves):
        group = replace(group, subgroups=tuple(_concrete(group.subgroups, found)))
    return group, part, tuple(dict.fromkeys(problems))


def _said_by(leaf: SubGroup, dialect: str) -> str:
    """Return the field that says which members are those of a sub-group."""
    if leaf.selector is not None:
        return f"{leaf.field}.{'labelSelector' if dialect == 'volcano' else 'selector'}"
    return f"{leaf.field}.matchLabelKeys" if leaf.keys else leaf.field


def _named(values: tuple[str, ...]) -> str:
    return ",".join(value.replace("/", "_") for value in values)


def _natural(values: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    return tuple((len(value) if value.isdigit() else 0, value) for value in values)


def _concrete(subgroups: Iterable[SubGroup], found: Mapping[str, Mapping[tuple[str, ...], None]]) -> Iterator[SubGroup]:
    for one in subgroups:
        if not one.keys:
            yield one
            continue
        yield replace(one, min_member=0, topology=None, selector=None, keys=())
        for values in sorted(found.get(one.path, ()), key=_natural):
            yield SubGroup(f"{one.path}/{_named(values)}", one.min_member, topology=one.topology, field=one.field)


def _leaves(subgroups: Sequence[SubGroup]) -> list[SubGroup]:
    above = {one.above for one in subgroups}
    return [one for one in subgroups if one.path not in above]


def _is_in(leaf: SubGroup, pod: Pod, labels: Mapping[str, str]) -> bool:
    if leaf.keys and not all(key in labels for key in leaf.keys):
        return False
    if leaf.selector is not None:
        return selects(leaf.selector, labels)
    return bool(leaf.keys) or (bool(pod.role) and pod.role in (leaf.name, leaf.path))


def _by_wish(group: PodGroup, members: Sequence[Pod]) -> tuple[PodGroup, dict[str, str], tuple[Problem, ...]]:
    wishes: dict[str, TopologyWish] = {}
    part: dict[str, str] = {}
    problems: list[Problem] = []
    for pod in members:
        if pod.wish is None:
            continue
        part[pod.uid] = pod.wish.podset
        known = wishes.setdefault(pod.wish.podset, pod.wish.wish)
        if known != pod.wish.wish:
            problems.append(Problem(f"pod {pod.name}: {pod.wish.wish.field}", "differs from that of its other members"))
    if not wishes:
        return group, {}, ()
    if len(part) == len(members) and len(wishes) == 1:
        wish = next(iter(wishes.values()))
        if group.dialect != "pod":
            sizes = [size for size, _ in wish.segments if group.min_member % size]
            problems.extend(
                Problem(
                    f"pod {members[0].name}: {wish.sizes_field or wish.field}",
                    f"{size} does not divide the minimum ({group.min_member})",
                )
                for size in sizes[:1]
            )
        return replace(group, topology=wish), {}, tuple(problems)
    named = {podset: (podset or "pods").replace("/", "_") for podset in wishes}
    subgroups = tuple(SubGroup(named[podset], topology=wishes[podset]) for podset in sorted(wishes))
    return replace(group, subgroups=subgroups), {uid: named[podset] for uid, podset in part.items()}, tuple(problems)


# -- what of the tree is there ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Part:
    """A sub-group with its members. minimum: of members, of a part without parts. least: so many of its parts are met.

    waiting, gated, failed: its own members, and `placed` how many of them are placed; a part with parts has none.
    """

    path: str
    minimum: int = 0
    least: int = 0
    parts: tuple[Part, ...] = ()
    waiting: tuple[Pod, ...] = ()
    placed: int = 0
    gated: int = 0
    failed: int = 0
    topology: TopologyWish | None = None

    @cached_property
    def started(self) -> bool:
        """Whether something of it is placed."""
        return self.placed > 0 or any(part.started for part in self.parts)

    @cached_property
    def lack(self) -> int | None:
        """How many members it needs to be met, by the cheapest choice; None: not even all that wait suffice."""
        if not self.parts:
            missing = max(0, self.minimum - self.placed)
            return missing if missing <= len(self.waiting) else None
        chosen = self.chosen()
        return None if chosen is None else sum(part.lack or 0 for part in chosen)

    @property
    def met(self) -> bool:
        """Whether its minimum is placed."""
        return self.lack == 0

    def chosen(self) -> tuple[Part, ...] | None:
        """Return the parts that have to be made whole for this one to be met, by the cheapest choice."""
        return choose(self.parts, self.least)

    def everyone(self) -> tuple[Pod, ...]:
        """Return all its waiting members."""
        return (*self.waiting, *(pod for part in self.parts for pod in part.everyone()))


def choose(parts: Sequence[Part], least: int) -> tuple[Part, ...] | None:
    """Return the unmet parts that have to be made whole so that `least` are met; None where that cannot be.

    Begun parts that cannot be completed now do not stand in the way of others.
    """
    begun = [part for part in parts if not part.met and part.started and part.lack is not None]
    more = least - sum(part.met for part in parts) - len(begun)
    fresh = [part for part in parts if not part.met and not part.started and part.lack is not None]
    if more > len(fresh):
        return None
    cheapest = sorted(fresh, key=lambda part: part.lack or 0)[: max(0, more)]
    kept = {id(part) for part in (*begun, *cheapest)}
    return tuple(part for part in parts if id(part) in kept)


def least_of(subgroups: Sequence[SubGroup], least: int | None) -> int:
    """Return how many members the minimum of these sub-groups takes, by the cheapest choice."""
    below: dict[str, list[SubGroup]] = {}
    for one in subgroups:
        below.setdefault(one.above, []).append(one)

    def size(path: str, chosen: int | None) -> int:
        sizes = sorted(
            size(one.path, one.min_subgroups) if one.path in below else one.min_member for one in below[path]
        )
        return sum(sizes[: len(sizes) if chosen is None else chosen])

    return size("", least) if subgroups else 0


@dataclass(frozen=True, eq=False)
class Tree:
    """The outermost parts of a group and how many of them start together. loose: waiting members that are in none."""

    parts: tuple[Part, ...]
    least: int
    loose: tuple[Pod, ...] = ()

    def chosen(self) -> tuple[Part, ...] | None:
        """Return the outermost parts that have to be made whole, by the cheapest choice; None where that cannot be."""
        return choose(self.parts, self.least)

    def at(self, path: str) -> Part | None:
        """Return the part of a path, or None."""
        parts = self.parts
        while parts:
            found = next((part for part in parts if path == part.path or path.startswith(f"{part.path}/")), None)
            if found is None or found.path == path:
                return found
            parts = found.parts
        return None

    def leaves(self) -> Iterator[Part]:
        """Yield the parts that have members of their own."""
        yield from (leaf for part in self.parts for leaf in leaves_of(part))


def leaves_of(part: Part) -> Iterator[Part]:
    """Yield the parts below one that have members of their own; it, if it has no parts."""
    if part.parts:
        for below in part.parts:
            yield from leaves_of(below)
    else:
        yield part


_TREES = 4096
_trees: dict[int, tuple[GroupState, Tree]] = {}


def tree_of(state: GroupState, placed: Mapping[str, object] | None = None) -> Tree:
    """Return the tree of a group. placed: waiting members (uid) that count as placed all the same."""
    if placed:
        return _tree(state, placed)
    known = _trees.get(id(state))
    if known is None or known[0] is not state:
        if len(_trees) >= _TREES:
            _trees.clear()
        known = _trees[id(state)] = (state, _tree(state, {}))
    return known[1]


def _tree(state: GroupState, placed: Mapping[str, object]) -> Tree:
    return make_tree(
        state.group,
        placed=(*state.assumed, *state.bound, *state.succeeded, *(pod for pod in state.waiting if pod.uid in placed)),
        waiting=tuple(pod for pod in state.waiting if pod.uid not in placed),
        gated=state.gated,
        failed=state.failed,
    )


def make_tree(
    group: PodGroup,
    *,
    placed: Iterable[Pod],
    waiting: Iterable[Pod] = (),
    gated: Iterable[Pod] = (),
    failed: Iterable[Pod] = (),
) -> Tree:
    """Return the tree of a group whose members these are."""
    paths = {one.path for one in group.subgroups}
    below: dict[str, list[SubGroup]] = {}
    for one in group.subgroups:
        below.setdefault(one.above if one.above in paths else "", []).append(one)
    members: dict[str, list[Pod]] = {}
    for pod in waiting:
        members.setdefault(pod.part if pod.part in paths else "", []).append(pod)
    there, gates, ends = _count(placed), _count(gated), _count(failed)

    def made(one: SubGroup) -> Part:
        parts = tuple(made(child) for child in below.get(one.path, ()))
        if not parts and one.min_subgroups is not None:
            return _empty(one)
        return Part(
            one.path,
            minimum=0 if parts else one.min_member,
            least=one.min_subgroups if one.min_subgroups is not None else len(parts),
            parts=parts,
            waiting=tuple(members.get(one.path, ())),
            placed=there.get(one.path, 0),
            gated=gates.get(one.path, 0),
            failed=ends.get(one.path, 0),
            topology=one.topology,
        )

    roots = tuple(made(one) for one in below.get("", ()))
    least = len(roots) if group.min_subgroups is None else group.min_subgroups
    return Tree(roots, least, tuple(members.get("", ())))


def _empty(one: SubGroup) -> Part:
    """A sub-group whose parts do not exist yet: it is met where it needs none of them, else nothing suffices."""
    return Part(one.path, minimum=1 if one.min_subgroups else 0)


def _count(pods: Iterable[Pod]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for pod in pods:
        counts[pod.part] = counts.get(pod.part, 0) + 1
    return counts
