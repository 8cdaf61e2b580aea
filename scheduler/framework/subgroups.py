"""What is asked of placement about a gang's sub-groups: which must be completed, which may be chosen, which come later.

Decided here: a part that is begun is completed before others are begun, unless it has no room; of the others so many
are asked for as the minimum lacks, and placement chooses which; parts that nobody needs may be among them, whole or not
at all as well. Once the minimum stands, further parts start as whole units, and only then come single members above the
minimums. Members of a part that cannot be completed now are not asked about.

The tree itself is `model.parts`. Pure values; nothing here knows how a placement is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler.model.groups import GroupState
from scheduler.model.parts import Part, Tree, choose, leaves_of, tree_of
from scheduler.model.pods import Pod


@dataclass(frozen=True, slots=True)
class Need:
    """A part that is placed whole or not at all: so many of its members, and `least` of its parts."""

    path: str
    minimum: int = 0
    parts: tuple[Need, ...] = ()
    least: int = 0

    @property
    def size(self) -> int:
        """How many members it takes at least."""
        return self.minimum + sum(sorted(part.size for part in self.parts)[: self.least])


@dataclass(frozen=True, slots=True)
class Choice:
    """At least `least` of these parts are placed, each whole or not at all."""

    parts: tuple[Need, ...]
    least: int


@dataclass(frozen=True, slots=True)
class Lacking:
    """minimums: (path of a begun part, members that it lacks). choices: parts of which some have to start."""

    minimums: tuple[tuple[str, int], ...] = ()
    choices: tuple[Choice, ...] = ()

    @property
    def size(self) -> int:
        """How many members are asked for at least."""
        fresh = (sorted(part.size for part in choice.parts)[: choice.least] for choice in self.choices)
        return sum(count for _, count in self.minimums) + sum(map(sum, fresh))

    @property
    def possible(self) -> bool:
        """Whether there are as many parts to choose from as have to start."""
        return all(len(choice.parts) >= choice.least for choice in self.choices)

    def without(self, paths: Collection[str]) -> Lacking:
        """Return the same where these sub-groups, and those below them, are not there to be chosen."""
        minimums = tuple((path, count) for path, count in self.minimums if not _is_any(path, paths))
        choices = (Choice(_left(choice.parts, paths), choice.least) for choice in self.choices)
        return Lacking(minimums, tuple(choice for choice in choices if choice.parts or choice.least))


NOTHING = Lacking()


@dataclass(frozen=True, slots=True)
class Step:
    """One decision about some waiting members: exactly `total` of them, or (each) as many as there is room for.

    roles: so many of each at least.
    """

    pods: tuple[Pod, ...]
    total: int
    each: bool
    lacking: Lacking = NOTHING
    roles: tuple[tuple[str, int], ...] = ()


def is_under(path: str, part: str) -> bool:
    """Whether a sub-group is the other or below it; "" is the whole group."""
    return not part or path == part or path.startswith(part + "/")


def _is_any(path: str, paths: Collection[str]) -> bool:
    return any(is_under(path, other) for other in paths)


def _left(parts: Sequence[Need], paths: Collection[str]) -> tuple[Need, ...]:
    kept = (replace(part, parts=_left(part.parts, paths)) for part in parts if not _is_any(part.path, paths))
    return tuple(part for part in kept if len(part.parts) >= part.least)


def lacking_of(tree: Tree) -> Lacking:
    """Return what the parts of a group need for its minimum."""
    minimums: list[tuple[str, int]] = []
    choices: list[Choice] = []
    _walk(tree.parts, tree.least, minimums, choices)
    return Lacking(tuple(minimums), tuple(choices))


def _walk(parts: Sequence[Part], least: int, minimums: list[tuple[str, int]], choices: list[Choice]) -> None:
    begun = [part for part in parts if part.started and not part.met and part.lack is not None]
    for part in begun:
        if part.parts:
            _walk(part.parts, part.least, minimums, choices)
        else:
            minimums.append((part.path, part.minimum - part.placed))
    more = max(0, least - sum(part.met for part in parts) - len(begun))
    fresh = tuple(_need_of(part) for part in parts if _is_fresh(part))
    if fresh or more:
        choices.append(Choice(fresh, more))
    for part in parts:
        if part not in begun:
            _spare(part, choices)


def _spare(part: Part, choices: list[Choice]) -> None:
    """Add the parts below one that may start though it does not need them."""
    if part.lack is None and not part.started:
        return
    if not _is_fresh(part):  # else they are in what it needs
        fresh = tuple(_need_of(below) for below in part.parts if _is_fresh(below))
        if fresh:
            choices.append(Choice(fresh, 0))
    for below in part.parts:
        _spare(below, choices)


def without_begun(tree: Tree) -> Tree:
    """Return the tree without the parts that are begun and not whole: what could start in their place."""
    return replace(tree, parts=_unbegun(tree.parts))


def _unbegun(parts: Sequence[Part]) -> tuple[Part, ...]:
    kept = (part for part in parts if part.parts or not part.started or part.met)
    return tuple(replace(part, parts=_unbegun(part.parts)) if part.parts else part for part in kept)


def _is_fresh(part: Part) -> bool:
    return not part.met and not part.started and part.lack is not None


def _need_of(part: Part) -> Need:
    if not part.parts:
        return Need(part.path, part.minimum)
    fresh = tuple(_need_of(below) for below in part.parts if _is_fresh(below))
    return Need(part.path, parts=fresh, least=max(0, part.least - sum(below.met for below in part.parts)))


def offered(tree: Tree) -> tuple[Pod, ...]:
    """Return the waiting members that may be placed: not those of parts that cannot be completed."""
    return (*tree.loose, *(pod for part in tree.parts for pod in _offered(part)))


def _offered(part: Part) -> Iterator[Pod]:
    if part.lack is None and not part.started:
        return
    yield from part.waiting
    for below in part.parts:
        yield from _offered(below)


def pick(pods: Iterable[Pod], lacking: Lacking, roles: Mapping[str, int], total: int) -> tuple[Pod, ...]:
    """Return `total` of the pods (or all): first those that begun parts, the cheapest choice and the roles lack, which
    may be more than `total`.

    Where that leaves only members of parts that nobody needs, more than `total` if the smallest of these is larger.
    """
    left = dict(lacking.minimums)
    others: set[str] = set()
    for choice in lacking.choices:
        _take(choice.parts, choice.least, left, others)
    wanted = dict(roles)
    inside: dict[str, list[Pod]] = {}
    rest: list[Pod] = []
    last: list[Pod] = []
    for pod in pods:
        (inside.setdefault(pod.part, []) if pod.part in left else last if pod.part in others else rest).append(pod)
    chosen: list[Pod] = []
    for path, mine in inside.items():
        taken = _of_roles(mine, wanted, left[path])
        chosen.extend(taken)
        kept = {pod.uid for pod in taken}
        rest.extend(pod for pod in mine if pod.uid not in kept)
    needed = [pod for pod in rest if _spend(wanted, pod.role)]
    kept = {pod.uid for pod in needed}
    total = max(total, len(chosen) + len(needed))
    sure = chosen + needed + [pod for pod in rest if pod.uid not in kept]
    if len(sure) >= total or not last or any(choice.least for choice in lacking.choices):
        return tuple(sure + last)[:total]
    useful = {pod.part for pod in last if wanted.get(pod.role, 0) > 0}
    parts = (part for choice in lacking.choices for part in choice.parts)
    smallest = min(parts, key=lambda part: (useful.isdisjoint(_paths(part)), part.size))
    whole = pick(last, Lacking(choices=(Choice((smallest,), 1),)), wanted, smallest.size)
    kept = {pod.uid for pod in whole}
    further = [pod for pod in last if pod.uid not in kept]
    return tuple(sure + [*whole, *further][: max(total - len(sure), len(whole))])


def _of_roles(pods: Sequence[Pod], wanted: dict[str, int], count: int) -> tuple[Pod, ...]:
    """Return so many of the pods, those of which roles lack some first, in their order; they lack these no longer."""
    kept: set[str] = set()
    for pod in pods:
        if len(kept) < count and _spend(wanted, pod.role):
            kept.add(pod.uid)
    for pod in pods:
        if len(kept) < count:
            kept.add(pod.uid)
    return tuple(pod for pod in pods if pod.uid in kept)


def _spend(wanted: dict[str, int], role: str) -> bool:
    if wanted.get(role, 0) <= 0:
        return False
    wanted[role] -= 1
    return True


def _take(parts: Sequence[Need], least: int, left: dict[str, int], others: set[str]) -> None:
    """Count on the cheapest parts, and note those that are not counted on."""
    cheapest = sorted(parts, key=lambda part: part.size)[:least]
    kept = {part.path for part in cheapest}
    for part in parts:
        if part.path not in kept:
            others.update(_paths(part))
        elif part.parts:
            _take(part.parts, part.least, left, others)
        else:
            left[part.path] = part.minimum


def _paths(part: Need) -> Iterator[str]:
    yield part.path
    for below in part.parts:
        yield from _paths(below)


# -- a group that runs ------------------------------------------------------------------------------------------------


def repairs(
    state: GroupState, placed: Mapping[str, object] | None = None, roles: Mapping[str, int] | None = None
) -> Iterator[Step]:
    """Yield what brings a running group back to its minimum: lost members, then parts that have to start, then others.

    placed: waiting members (uid) that are placed by now. roles: how many members of each lack then.
    """
    tree = tree_of(state, placed)
    lacking = lacking_of(tree)
    wanted = dict(roles or {})
    counts = dict(lacking.minimums)
    for part in tree.leaves():  # what is not there yet does not hold up the rest
        if part.started and part.lack is None:
            counts[part.path] = len(part.waiting)
    lost = tuple(pod for leaf in tree.leaves() for pod in _of_roles(leaf.waiting, wanted, counts.get(leaf.path, 0)))
    if lost:
        yield Step(lost, len(lost), each=True)
    named = {pod.uid for pod in lost}
    begun = tuple(pod for leaf in tree.leaves() if leaf.started and not leaf.met for pod in leaf.waiting)
    alone = tuple(pod for pod in (*singles(tree), *begun) if pod.uid not in named and _spend(wanted, pod.role))
    if alone:
        yield Step(alone, len(alone), each=True)
    named.update(pod.uid for pod in alone)
    for choice in lacking.choices:
        asked = Lacking(choices=(choice,))
        if choice.least and len(choice.parts) >= choice.least:
            pods = _members(tree, choice.parts)
            yield Step(pods, asked.size, each=False, lacking=asked)
            named.update(pod.uid for pod in pods)
    more = state.group.min_member - state.placed - len(placed or ()) - lacking.size - len(alone)
    rest = tuple(pod for pod in singles(tree) if pod.uid not in named)[: max(0, more)]
    if rest:
        yield Step(rest, len(rest), each=True)


def at_once(
    state: GroupState, placed: Mapping[str, object] | None = None, roles: Sequence[tuple[str, int]] = ()
) -> Step | None:
    """Return the one decision that brings a running group back to its minimum, which lacks members of roles; None where
    they do not exist. placed, roles: as in `repairs`."""
    tree = tree_of(state, placed)
    lacking, pods = lacking_of(tree), offered(tree)
    there = Counter(pod.role for pod in pods)
    missing = state.group.min_member - state.placed - len(placed or ())
    total = max(missing, lacking.size, sum(count for _, count in roles))
    if len(pods) < total or not lacking.possible or any(there[role] < count for role, count in roles):
        return None
    return Step(pods, total, each=False, lacking=lacking, roles=tuple(roles))


def _members(tree: Tree, parts: Iterable[Need]) -> tuple[Pod, ...]:
    paths = {path for part in parts for path in _paths(part)}
    return tuple(pod for leaf in tree.leaves() if leaf.path in paths for pod in leaf.waiting)


def units(tree: Tree) -> Iterator[Step]:
    """Yield the parts that could start beyond what the minimum needs, each as a whole; in their author's order."""
    yield from _units(tree, tree.parts)


def _units(tree: Tree, parts: Sequence[Part]) -> Iterator[Step]:
    for part in parts:
        if part.started or (part.met and part.parts):
            yield from _units(tree, part.parts)
        elif _is_fresh(part):
            need = _need_of(part)
            lacking = Lacking(choices=(Choice((need,), 1),))
            yield Step(_members(tree, (need,)), need.size, each=False, lacking=lacking)


def singles(tree: Tree) -> tuple[Pod, ...]:
    """Return the members that may be placed one by one: those above the minimum of their part, and those in none."""
    above = (pod for leaf in tree.leaves() if leaf.met for pod in leaf.waiting)
    return (*tree.loose, *above)


# -- what is missing --------------------------------------------------------------------------------------------------


def first_missing(tree: Tree) -> tuple[str, int, int, Part | None] | None:
    """Return what keeps the minimum from being complete: a path ("" = the group itself), how many are there and how
    many are needed; of members where the part has any (it is returned), else of its sub-groups. None: nothing does."""
    return _missing("", tree.parts, tree.least)


def _missing(path: str, parts: Sequence[Part], least: int) -> tuple[str, int, int, Part | None] | None:
    if choose(parts, least) is not None:
        return None
    able = [part for part in parts if part.lack is not None]
    if least != len(parts) or not parts:  # also more than there are, in a group that is wrong
        return path, len(able), least, None
    part = next(part for part in parts if part.lack is None)
    if part.parts:
        return _missing(part.path, part.parts, part.least) or (part.path, 0, part.least, None)
    return part.path, part.placed + len(part.waiting), part.minimum, part


def gates_suffice(tree: Tree) -> bool:
    """Whether the minimum could be complete if no member had scheduling gates."""
    return _opened(tree.parts) >= tree.least


def _opened(parts: Collection[Part]) -> int:
    return sum(
        _opened(part.parts) >= part.least
        if part.parts
        else part.placed + len(part.waiting) + part.gated >= part.minimum
        for part in parts
    )


def part_of(tree: Tree, path: str) -> Part | None:
    """Return the part with members of its own that has this path, or None."""
    return next((leaf for part in tree.parts for leaf in leaves_of(part) if leaf.path == path), None)
