"""From the claims of members to bars, further resources and rules: how volumes limit what is placed in one decision.

Decided here: that volumes which several members could take are counted once each, exactly. Claims of one class that the
same volumes serve are one wish. By Hall's theorem members find distinct volumes exactly when, in each cell (nodes that
the same volumes reach), for every set of wishes the claims are no more than the volumes that serve any of them: each
such set becomes a resource of the nodes, or a cap over the cells where a volume reaches several nodes. Where volumes
reach overlapping sets of nodes there are no cells: each is then counted on one of its nodes, so what is found is right
but something may be missed. Pure: nothing here keeps state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from scheduler.framework import meeting
from scheduler.framework.claims import Named, Reach, Rows, given_to, node_of, wish_of
from scheduler.framework.relations import Bar, Extra, Level, Relations, Scored
from scheduler.framework.shelves import Mask, Shelf, Shelves
from scheduler.model.pods import Pod
from scheduler.model.rules import Cap, Follow, MemberRule
from scheduler.model.snapshot import NodeTable
from scheduler.model.volumes import Claim, Storage, StorageCapacity, StorageClass, Volume, in_zone

NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
NO_SPACE = "node(s) did not have enough free storage"
MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
ZONE = "node(s) had no available volume zone"

SHARED = "volume of"
"""How the level of the nodes that can reach the volume of a claim is called: this and the claim."""

PLENTY = 2**50
"""More of a resource than members can ask for."""
_MOST_WISHES = 5
"""Sets of wishes are counted for so many of one class; more are counted as if each were the hardest to serve."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Interchangeable members: their number in the question, how many, the first of them and its claims."""

    number: int
    count: int
    pod: Pod
    claims: tuple[Named, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """What is so now: `taken` volumes and `chosen` nodes of claims include what this session has decided.

    left_out: uids of nominated pods that do not count. lost: uid -> row of pods that are thought gone. known: by class,
    the volumes that are not taken.
    """

    storage: Storage
    table: NodeTable
    reach: Reach
    taken: Mapping[str, str]
    chosen: Mapping[str, str]
    rows: Mapping[str, int]
    shelves: Shelves
    left_out: frozenset[str] = frozenset()
    lost: Mapping[str, int] = field(default_factory=dict)
    known: dict[str, Mask] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.table.names)

    def counts(self, uid: str) -> bool:
        """Whether a pod of the storage is thought to be there."""
        return uid not in self.left_out and uid not in self.lost

    def node_of(self, claim: Claim) -> str:
        """The node for which a claim is being provisioned, or ""."""
        return self.chosen.get(claim.uid) or node_of(claim, self.storage)

    def held(self, claim: Claim) -> Volume | None:
        """The volume that a placement under way, or this session, has given to a claim that several pods name."""
        if claim.key not in self.storage.shared:
            return None
        name = next((volume for volume, uid in self.taken.items() if uid == claim.uid), "")
        return self.storage.volumes.get(name)

    def shelf(self, claim: Claim) -> Shelf:
        """The volumes of a claim's class."""
        return self.shelves.of(self.storage, claim.storage_class)

    def offered(self, claim: Claim) -> Mask:
        """Which volumes of its class can be given to a claim."""
        shelf = self.shelf(claim)
        known = self.known.get(claim.storage_class)
        if known is None:
            known = self.known[claim.storage_class] = shelf.without(self.taken)
        return known & shelf.serving(claim)


@dataclass(slots=True)
class Parts:
    """Relations in the making."""

    bars: list[Bar] = field(default_factory=list)
    rules: list[MemberRule] = field(default_factory=list)
    wanted: list[MemberRule] = field(default_factory=list)
    extras: list[Extra] = field(default_factory=list)
    scores: list[Scored] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)

    def bar(self, kind: int, allowed: NDArray[np.bool_], reason: str, *, passing: bool = False) -> None:
        """Keep a kind off all other nodes."""
        if not allowed.all():
            self.bars.append(Bar(kind, ~allowed, reason, passing=passing))

    def relations(self) -> Relations:
        """Return them."""
        return Relations(
            bars=tuple(self.bars),
            rules=tuple(self.rules),
            wanted=tuple(self.wanted),
            extras=tuple(self.extras),
            scores=tuple(self.scores),
            levels=tuple(self.levels),
        )


# -- claims that are bound -------------------------------------------------------------------------------------------


def bound(kind: Kind, moment: Moment, parts: Parts) -> None:
    """Keep members where their volumes can be reached."""
    reach = moment.reach
    for one in kind.claims:
        if not one.bound:
            continue
        volume = moment.storage.volumes.get(one.claim.volume)
        if volume is None:
            parts.bar(kind.number, np.zeros(moment.size, dtype=np.bool_), MISSING)
            continue
        if volume.terms is not None or volume.moved is not None:
            parts.bar(kind.number, _reached(volume, moment), AFFINITY)
        if volume.zones and not one.ephemeral:
            rows = reach.where(("zones", volume.zones), lambda labels, volume=volume: in_zone(volume, labels))  # type: ignore[misc]
            parts.bar(kind.number, reach.mask(rows), ZONE)


def _reached(volume: Volume, moment: Moment) -> NDArray[np.bool_]:
    reached = moment.reach.mask(moment.reach.of_terms(volume.terms))
    if volume.moved != volume.terms and volume.plugin:
        nodes = moment.storage.node_drivers.items()
        rows = [moment.rows[name] for name, one in nodes if volume.plugin in one.moved and name in moment.rows]
        reached[rows] = moment.reach.mask(moment.reach.of_terms(volume.moved))[rows]
    return reached


# -- claims that wait for their first consumer -----------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Wish:
    """Claims of one class that the same volumes serve. need: for each kind, how many of them one member has.

    makes: nodes on which a volume can be made; served: those, and those that a volume reaches.
    """

    claim: Claim
    shelf: Shelf
    volumes: Mask
    makes: NDArray[np.bool_]
    served: NDArray[np.bool_]
    need: dict[int, int] = field(default_factory=dict)


def delayed(kinds: Sequence[Kind], moment: Moment, parts: Parts, *, empty: bool) -> None:
    """Keep members where each of their claims can get a volume, all of them at once."""
    wishes: dict[Hashable, _Wish] = {}
    together = named_together(((kind.count, one.claim) for kind in kinds for one in kind.claims), moment.storage)
    shared = shared_volumes(together.values(), moment)
    met = _meet(kinds, together, shared, moment, parts)
    left_out = {volume.name for volume in shared.values()}
    for kind in kinds:
        for one in kind.claims:
            claim = one.claim
            if one.bound:
                continue
            makes, why = provisions(claim, moment)
            node, held = moment.node_of(claim), moment.held(claim)
            if node:
                here = np.zeros(moment.size, dtype=np.bool_)
                here[[moment.rows[node]] if node in moment.rows else []] = True
                parts.bar(kind.number, here, NO_VOLUME)
                parts.bar(kind.number, makes | ~here, why)
            elif held is not None:
                parts.bar(kind.number, moment.reach.mask(moment.reach.of_terms(held.terms)), NO_VOLUME)
            elif given := given_to(claim, moment.storage):
                parts.bar(kind.number, makes | moment.reach.mask(moment.reach.of_terms(given[0].terms)), NO_VOLUME)
            elif claim.key in met:
                parts.bar(kind.number, met[claim.key], NO_VOLUME)
            elif empty:
                if moment.storage.classes[claim.storage_class].provisions and not moment.offered(claim).any():
                    parts.bar(kind.number, _allowed(moment.storage.classes[claim.storage_class], moment), NO_VOLUME)
            elif claim.key in together:
                parts.bar(kind.number, makes, why)
            else:
                key = wish_of(claim)
                if key not in wishes:
                    shelf = moment.shelf(claim)
                    volumes = moment.offered(claim) & shelf.without(left_out)
                    served = makes | moment.reach.mask(shelf.reaching(volumes)[0])
                    wishes[key] = _Wish(claim, shelf, volumes, makes, served)
                wish = wishes[key]
                wish.need[kind.number] = wish.need.get(kind.number, 0) + 1
                parts.bar(kind.number, wish.served, why)
    by_class: dict[str, list[_Wish]] = {}
    for wish in wishes.values():
        by_class.setdefault(wish.claim.storage_class, []).append(wish)
    for name, listed in sorted(by_class.items()):
        _count(name, listed, {kind.number: kind.count for kind in kinds}, moment, parts)


def _meet(
    kinds: Sequence[Kind],
    together: Mapping[str, Claim],
    shared: Mapping[str, Volume],
    moment: Moment,
    parts: Parts,
) -> dict[str, NDArray[np.bool_]]:
    """Keep members that share a claim in one domain of its volume to be; return where volumes that exist are reached.

    Claims for which a volume is made are not in the answer: that is barred by what is made where.
    """
    found: dict[str, NDArray[np.bool_]] = {}
    asked = [(one.claim.storage_class, one.claim.key) for kind in kinds for one in kind.claims if not one.bound]
    for key, claim in sorted(together.items()):
        if is_settled(claim, moment):
            continue
        if is_made(claim, moment):
            ids, certain = meeting.made(claim, moment.storage, moment.table)
        else:
            alone = all(other == key for name, other in asked if name == claim.storage_class)
            ids = meeting.there(moment.shelf(claim), moment.offered(claim), moment.size) if alone else None
            if ids is None and key in shared:
                found[key] = moment.reach.mask(moment.reach.of_terms(shared[key].terms))
            elif ids is not None:
                found[key] = ids >= 0
            certain = True
        if ids is not None:
            level = f"{SHARED} {key}"
            users = tuple(kind.number for kind in kinds if any(one.claim.key == key for one in kind.claims))
            nobody = np.zeros(int(ids.max(initial=-1)) + 1, dtype=np.bool_)
            parts.levels.append(Level(level, ids))
            rules = parts.rules if certain else parts.wanted
            rules.append(Follow((level,), users, users, (nobody,), first=True))
    return found


def named_together(claims: Iterable[tuple[int, Claim]], storage: Storage) -> dict[str, Claim]:
    """Return the claims that several members name, from (members of a kind, claim of each)."""
    counts: dict[str, int] = {}
    found: dict[str, Claim] = {}
    for count, claim in claims:
        if claim.key not in storage.shared:
            continue
        counts[claim.key] = counts.get(claim.key, 0) + count
        if counts[claim.key] > 1:
            found[claim.key] = claim
    return found


def shared_volumes(claims: Iterable[Claim], moment: Moment) -> dict[str, Volume]:
    """Return the volume that claims of several members get: that with the widest reach, of these the smallest.

    None where a volume can be made instead. A claim that nobody competes with may get another one that is reached from
    where all its members are.
    """
    found: dict[str, Volume] = {}
    chosen: set[str] = set()
    for claim in sorted(claims, key=lambda one: (one.size, one.key)):
        if is_settled(claim, moment) or is_made(claim, moment):
            continue
        offered = [one for one in moment.shelf(claim).named(moment.offered(claim)) if one.name not in chosen]
        if offered:
            best = max(offered, key=lambda volume: len(moment.reach.of_terms(volume.terms)))
            found[claim.key] = best
            chosen.add(best.name)
    return found


def is_settled(claim: Claim, moment: Moment) -> bool:
    """Whether it is known which volume a claim has or gets, or for which node one is being made."""
    known = claim.bound or moment.node_of(claim) or moment.held(claim) or given_to(claim, moment.storage)
    return bool(known)


def is_made(claim: Claim, moment: Moment) -> bool:
    """Whether a volume is made for a claim of several members: where that is possible, or nothing else would do."""
    known = moment.storage.classes[claim.storage_class]
    return known.provisions and (bool(provisions(claim, moment)[0].any()) or not moment.offered(claim).any())


def provisions(claim: Claim, moment: Moment) -> tuple[NDArray[np.bool_], str]:
    """Return on which nodes a volume can be made for a claim, and what the others say."""
    known = moment.storage.classes[claim.storage_class]
    if not known.provisions:
        return np.zeros(moment.size, dtype=np.bool_), NO_VOLUME
    allowed = _allowed(known, moment)
    driver = moment.storage.drivers.get(known.provisioner)
    if driver is None or not driver.tracks:
        return allowed, NO_VOLUME
    room = np.zeros(moment.size, dtype=np.bool_)
    for capacity in moment.storage.capacities.get(known.name, ()):
        if capacity.largest >= claim.size:
            room[moment.reach.of_selector(capacity.nodes)] = True
    return allowed & room, NO_SPACE if (allowed & ~room).any() else NO_VOLUME


def _allowed(known: StorageClass, moment: Moment) -> NDArray[np.bool_]:
    if not known.topologies:
        return np.ones(moment.size, dtype=np.bool_)
    return moment.reach.mask(moment.reach.of_terms(known.topologies))


# -- counting volumes ------------------------------------------------------------------------------------------------


def _count(name: str, wishes: list[_Wish], counts: Mapping[int, int], moment: Moment, parts: Parts) -> None:
    """Limit the members of one class of claims by the volumes that there are for them, and by the space."""
    total = sum(need * counts[kind] for wish in wishes for kind, need in wish.need.items())
    if total < 2:
        return
    if not any(wish.volumes.any() for wish in wishes):
        _count_space(name, wishes, moment, parts)
        return
    wishes = [wish for wish in wishes if not wish.makes.all()]
    if len(wishes) > _MOST_WISHES:
        wishes = [_hardest(wishes)]
    if not wishes:
        return
    cells = _Cells.make(wishes[0].shelf, np.logical_or.reduce([wish.volumes for wish in wishes]))
    for size in range(1, len(wishes) + 1):
        for some in combinations(range(len(wishes)), size):
            _limit(f"{name}/{'+'.join(map(str, some))}", [wishes[i] for i in some], cells, parts)


def _hardest(wishes: list[_Wish]) -> _Wish:
    """Count all claims as if each could only take what serves every one of them."""
    need: dict[int, int] = {}
    for wish in wishes:
        for kind, one in wish.need.items():
            need[kind] = need.get(kind, 0) + one
    makes = np.logical_and.reduce([wish.makes for wish in wishes])
    volumes = np.logical_and.reduce([wish.volumes for wish in wishes])
    return _Wish(wishes[0].claim, wishes[0].shelf, volumes, makes, makes, need)


@dataclass(slots=True, eq=False)
class _Cells:
    """Disjoint sets of rows on which volumes are counted. rows, cell: rows, and the set of each; owner: of a volume."""

    count: int
    rows: Rows
    cell: Rows
    owner: Rows

    @property
    def single(self) -> bool:
        """Whether each is one row."""
        return self.count == len(self.rows)

    @classmethod
    def make(cls, shelf: Shelf, volumes: Mask) -> _Cells:
        """Count volumes where they are reached; where reaches overlap, on the one of their nodes with the fewest."""
        rows, cell_of = shelf.reaching(volumes)
        if len(np.unique(rows)) == len(rows):
            used, cell = np.unique(cell_of, return_inverse=True)
            number = np.full(len(shelf.cells) + 1, -1, dtype=np.intp)
            number[used] = np.arange(len(used))
            return cls(len(used), rows, cell, number[shelf.cell])
        loads: dict[int, int] = {}
        place: dict[int, int] = {}
        reached = np.flatnonzero(volumes & (shelf.cell >= 0)).tolist()
        for volume in sorted(reached, key=lambda one: len(shelf.cells[shelf.cell[one]])):
            row = min(shelf.cells[shelf.cell[volume]].tolist(), key=lambda row: (loads.get(row, 0), row))
            loads[row] = loads.get(row, 0) + 1
            place[volume] = row
        single = np.array(sorted(loads), dtype=np.intp)
        owner = np.full(len(shelf.volumes), -1, dtype=np.intp)
        owner[list(place)] = np.searchsorted(single, list(place.values()))
        return cls(len(single), single, np.arange(len(single), dtype=np.intp), owner)


def _limit(label: str, wishes: list[_Wish], cells: _Cells, parts: Parts) -> None:
    """State that in each cell claims with these wishes are no more than the volumes that serve any of them."""
    owned = cells.owner[np.logical_or.reduce([wish.volumes for wish in wishes])]
    limits = np.bincount(owned[owned >= 0], minlength=max(1, cells.count)).astype(np.int64)
    need: dict[int, int] = {}
    for wish in wishes:
        for kind, one in wish.need.items():
            need[kind] = need.get(kind, 0) + one
    makes = np.logical_or.reduce([wish.makes for wish in wishes])
    if cells.single:
        free = np.where(makes, PLENTY, 0).astype(np.int64)
        counted = ~makes[cells.rows]
        free[cells.rows[counted]] = limits[cells.cell[counted]]
        parts.extras.append(Extra(f"volumes of class {label}", free, _vector(need), NO_VOLUME))
        return
    ids = np.full(len(makes), -1, dtype=np.int32)
    ids[cells.rows] = cells.cell
    ids[makes] = -1
    level = f"volumes of class {label}"
    parts.levels.append(Level(level, ids))
    parts.rules.append(Cap(level, tuple(sorted(need.items())), limits))


def _vector(need: Mapping[int, int]) -> tuple[int, ...]:
    """Kinds that are not named need nothing; the plugin pads to all of them."""
    return tuple(need.get(kind, 0) for kind in range(max(need, default=-1) + 1))


def _count_space(name: str, wishes: list[_Wish], moment: Moment, parts: Parts) -> None:
    """Limit what is made in one decision by the space that the driver says is left, where that is one number a node."""
    driver = moment.storage.drivers.get(moment.storage.classes[name].provisioner)
    listed = [one for one in moment.storage.capacities.get(name, ()) if len(moment.reach.of_selector(one.nodes))]
    if driver is None or not driver.tracks or not listed or any(one.left < 0 for one in listed):
        return
    cells = [moment.reach.of_selector(one.nodes) for one in listed]
    if sum(map(len, cells)) != len(np.unique(np.concatenate(cells))):
        return
    need: dict[int, int] = {}
    for wish in wishes:
        for kind, number in wish.need.items():
            need[kind] = need.get(kind, 0) + number * wish.claim.size
    if all(len(rows) == 1 for rows in cells):
        free = np.zeros(moment.size, dtype=np.int64)
        for rows, one in zip(cells, listed, strict=True):
            free[rows[0]] = one.left
        parts.extras.append(Extra(f"storage of class {name}", free, _vector(need), NO_SPACE))
        return
    ids = np.full(moment.size, -1, dtype=np.int32)
    for cell, rows in enumerate(cells):
        ids[rows] = cell
    level = f"storage of class {name}"
    parts.levels.append(Level(level, ids))
    limits = np.array([one.left for one in listed], dtype=np.int64)
    parts.rules.append(Cap(level, tuple(sorted(need.items())), limits))


# -- scores ----------------------------------------------------------------------------------------------------------


def scored(kind: Kind, moment: Moment, parts: Parts) -> None:
    """Prefer nodes with the most room for what is made there, as kube-scheduler's StorageCapacityScoring does."""
    asked: dict[str, int] = {}
    for one in kind.claims:
        if not one.bound and not moment.node_of(one.claim) and not moment.offered(one.claim).any():
            asked[one.claim.storage_class] = asked.get(one.claim.storage_class, 0) + one.claim.size
    sums = np.zeros(moment.size, dtype=np.int64)
    counted = np.zeros(moment.size, dtype=np.int64)
    for name, size in sorted(asked.items()):
        driver = moment.storage.drivers.get(moment.storage.classes[name].provisioner)
        if driver is None or not driver.tracks:
            continue
        left = np.full(moment.size, -1, dtype=np.int64)
        for capacity in _usable(moment.storage.capacities.get(name, ()), size):
            rows = moment.reach.of_selector(capacity.nodes)
            left[rows] = np.where(left[rows] < 0, capacity.left, left[rows])
        known = left >= 0
        used = np.where(left >= max(1, size), size * 100 // np.maximum(left, 1), 100)
        sums += np.where(known, 100 - used, 0)
        counted += known
    if counted.any():
        scores = np.where(counted > 0, sums // np.maximum(counted, 1), 0)
        if int(scores.max()) != int(scores.min()):
            parts.scores.append(Scored(kind.number, scores))


def _usable(capacities: Iterable[StorageCapacity], size: int) -> list[StorageCapacity]:
    return [one for one in capacities if one.largest >= size and one.left >= 0]


__all__ = [
    "Kind",
    "Moment",
    "Parts",
    "bound",
    "delayed",
    "is_made",
    "named_together",
    "provisions",
    "scored",
    "shared_volumes",
]
