"""Where pods with volumes may run, and what is to be done to their claims before they are bound.

The rules are those of kube-scheduler's VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits, and they
hold inside one decision: members of a gang get distinct volumes, a claim that they share counts once a node, a claim
for one pod goes to one. What this session has taken counts from the moment that a statement is committed. Claims that
nobody can use yet keep a gang from starting only when its minimum needs them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from scheduler.framework import attached
from scheduler.framework.claims import Reach, claims_of, given_to, is_used, pair, sort_of, wish_of
from scheduler.framework.gangs import needs
from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.framework.relations import NO_RELATIONS, Bar, Extra, Level, Members, Relations
from scheduler.framework.shelves import Shelves
from scheduler.framework.volume_rules import (
    PLENTY,
    Kind,
    Moment,
    Parts,
    bound,
    delayed,
    is_made,
    named_together,
    scored,
    shared_volumes,
)
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod, Shape
from scheduler.model.podvolumes import PodVolumes, VolumeStep
from scheduler.model.rules import Cap, Once, Repel
from scheduler.model.verdict import Code, Verdict, verdict
from scheduler.model.volumes import NO_STORAGE, Attachment, Claim, Storage, Volume

IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
DISK = "node(s) had no available disk"
TOO_MANY = "node(s) exceed max volume count"


class NoVolumeLeft(RuntimeError):
    """A claim was placed and no volume is left for it: the rules that were stated for it were too weak."""


@dataclass(slots=True)
class _Moved:
    """What this session has done so far. `pending`: placed in a statement that is not committed."""

    taken: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    pods: dict[str, tuple[int, str, PodVolumes]] = field(default_factory=dict)
    pending: dict[str, tuple[Pod, int]] = field(default_factory=dict)


class Volumes:
    """See the module."""

    name = "volumes"
    keeps = ("volumes",)

    def __init__(self, arguments: Arguments) -> None:
        self._reach = Reach()
        self._shelves = Shelves(self._reach)
        self._storage: Storage = NO_STORAGE
        self._attachments: Mapping[str, tuple[Attachment, ...]] = {}
        self._attached: frozenset[str] = frozenset()
        self._handles: dict[tuple[str, frozenset[str]], dict[int, frozenset[str]]] = {}
        self._moved = _Moved()
        self._rows: dict[str, int] = {}

    def on_session(self, view: View) -> None:
        """Begin with the snapshot alone."""
        self._moved = _Moved()
        table = view.snapshot.table
        self._reach.refresh(table)
        if self._storage is not view.snapshot.storage or len(self._rows) != len(table.names):
            self._handles.clear()
        if tuple(self._rows) != table.names:
            self._rows = {name: row for row, name in enumerate(table.names)}
            self._handles.clear()
        if self._storage is not view.snapshot.storage:
            self._storage = view.snapshot.storage
            if self._attachments is not self._storage.attachments:
                self._attachments = self._storage.attachments
                listed = self._attachments.values()
                self._attached = frozenset(one.volume for parts in listed for one in parts)

    # -- before nodes are looked at -------------------------------------------------------------------------------

    def sorts(self, pod: Pod, shape: Shape, view: View) -> Hashable:
        """Tell pods apart by what their claims ask of nodes and volumes, not by the names of the claims."""
        return sort_of(pod, view.snapshot.storage, self._attached)

    def ready(self, state: GroupState, view: View) -> Verdict | None:
        """Keep a gang from starting while claims of its minimum cannot be used, or cannot be used together."""
        waiting = [pod for pod in state.waiting if pod.volumes is not None]
        wanted = needs(state).total
        if not waiting or not wanted:
            return None
        storage, total = view.snapshot.storage, len(view.snapshot.table.names)
        missing: dict[str, int] = {}
        exclusive: dict[str, int] = {}
        for pod in waiting:
            claims = claims_of(pod, storage)
            if isinstance(claims, str):
                missing[claims] = missing.get(claims, 0) + 1
                continue
            for one in claims:
                if one.claim.exclusive and not one.ephemeral:
                    exclusive[one.claim.name] = exclusive.get(one.claim.name, 0) + 1
        left = len(state.waiting) - sum(missing.values())
        if left < wanted:
            message = "; ".join(_counted(text, count, len(state.waiting)) for text, count in sorted(missing.items()))
            return verdict(Code.WAITING_FOR_VOLUMES, message=f"0/{total} nodes are available: {message}")
        spare = left - wanted
        for name, count in sorted(exclusive.items()):
            if count - 1 > spare:
                return verdict(
                    Code.BAD_CONSTRAINTS,
                    permanent=True,
                    field=f'persistentvolumeclaim "{name}"',
                    message=f"is for one pod (ReadWriteOncePod), and {count} members of the minimum use it",
                )
        return None

    # -- nodes ----------------------------------------------------------------------------------------------------

    def relates(self, members: tuple[Members, ...], view: View, *, empty: bool) -> Relations:
        """Return where members may go by their volumes, and what limits them together."""
        if all(one.pods[0].volumes is None for one in members):
            return NO_RELATIONS
        moment, parts, kinds = self._moment(view), Parts(), list[Kind]()
        nowhere = np.zeros(moment.size, dtype=np.bool_)
        for number, one in enumerate(members):
            claims = claims_of(one.pods[0], moment.storage)
            if not isinstance(claims, str):
                kinds.append(Kind(number, len(one.pods), one.pods[0], claims))
            elif not empty:
                parts.bars.append(Bar(number, ~nowhere, claims, passing=False, early=True))
        self._restrict(kinds, moment, parts, empty=empty)
        self._limit(kinds, moment, parts, empty=empty)
        for kind in kinds:
            bound(kind, moment, parts)
        delayed(kinds, moment, parts, empty=empty)
        if not empty:
            for kind in kinds:
                scored(kind, moment, parts)
        width = len(members)
        parts.extras = [replace(one, needs=(*one.needs, *(0,) * (width - len(one.needs)))) for one in parts.extras]
        return parts.relations()

    def _moment(self, view: View) -> Moment:
        moment = self._committed(view)
        if not self._moved.pending:
            return moment
        taken, chosen = dict(moment.taken), dict(moment.chosen)
        for uid, step, row in _plan(tuple(self._moved.pending.values()), moment):
            if step.volume:
                taken[step.volume] = uid
            else:
                chosen[uid] = view.snapshot.table.names[row]
        return replace(moment, taken=taken, chosen=chosen, known={})

    def _committed(self, view: View) -> Moment:
        storage, moved = view.snapshot.storage, self._moved
        return Moment(
            storage=storage,
            table=view.snapshot.table,
            reach=self._reach,
            taken={**storage.taken, **moved.taken} if moved.taken else storage.taken,
            chosen={**storage.chosen, **moved.chosen} if moved.chosen else storage.chosen,
            rows=self._rows,
            shelves=self._shelves,
            left_out=view.neighbours.left_out,
            lost=view.neighbours.lost,
        )

    def _restrict(self, kinds: Sequence[Kind], moment: Moment, parts: Parts, *, empty: bool) -> None:
        """A claim for one pod goes to one; a disk that is attached directly is on a node once."""
        exclusive: dict[str, list[Kind]] = {}
        for kind in kinds:
            for one in kind.claims:
                if one.claim.exclusive and not one.ephemeral:
                    exclusive.setdefault(one.claim.key, []).append(kind)
                    users = () if empty else self._users(one.claim, moment)
                    if users:
                        everywhere = np.ones(moment.size, dtype=np.bool_)
                        until = () if "" in users else users
                        parts.bars.append(Bar(kind.number, everywhere, IN_USE, until=until))
        together = {key: some for key, some in exclusive.items() if key in moment.storage.shared}
        for key, some in sorted(together.items()):
            if sum(kind.count for kind in some) > 1:
                level = f"the only pod of {key}"
                parts.levels.append(Level(level, np.zeros(moment.size, dtype=np.int32)))
                weights = tuple((kind.number, 1) for kind in some)
                parts.rules.append(Cap(level, weights, np.ones(1, dtype=np.int64)))
        self._keep_disks_apart(kinds, moment, parts, empty=empty)

    def _users(self, claim: Claim, moment: Moment) -> tuple[str, ...]:
        """Return the pods (uid) that use a claim, "" for those that this session has placed."""
        users = tuple(uid for uid in moment.storage.users.get(claim.key, ()) if moment.counts(uid))
        placed = any(
            f"{namespace}/{one.name}" == claim.key
            for _, namespace, volumes in self._moved.pods.values()
            for one in volumes.claims
        )
        return (*users, "") if placed else users

    def _keep_disks_apart(self, kinds: Sequence[Kind], moment: Moment, parts: Parts, *, empty: bool) -> None:
        with_disks = [kind for kind in kinds if kind.pod.volumes is not None and kind.pod.volumes.disks]
        for position, kind in enumerate(with_disks):
            disks = kind.pod.volumes.disks if kind.pod.volumes else ()
            if not empty:
                free = np.ones(moment.size, dtype=np.bool_)
                for row, volumes in self._hosted(moment):
                    if any(disk.conflicts(other) for disk in disks for other in volumes.disks):
                        free[row] = False
                parts.bar(kind.number, free, DISK, passing=True)
            against = tuple(
                other.number
                for other in with_disks[position:]
                if any(
                    disk.conflicts(one)
                    for disk in disks
                    for one in (other.pod.volumes.disks if other.pod.volumes else ())
                )
            )
            if against and (against != (kind.number,) or kind.count > 1):
                parts.rules.append(Repel("", (kind.number,), against))

    def _hosted(self, moment: Moment) -> Iterable[tuple[int, PodVolumes]]:
        for node, pods in moment.storage.hosted.items():
            row = self._rows.get(node)
            if row is not None:
                for _, uid, volumes in pods:
                    if moment.counts(uid):
                        yield row, volumes
        for row, _, volumes in self._moved.pods.values():
            yield row, volumes

    # -- how much a node can attach -------------------------------------------------------------------------------

    def _limit(self, kinds: Sequence[Kind], moment: Moment, parts: Parts, *, empty: bool) -> None:
        """A node attaches no more volumes of a driver than it says; a shared one counts once."""
        storage = moment.storage
        need: dict[str, dict[int, int]] = {}
        once: dict[tuple[str, str], list[int]] = {}
        plain: set[tuple[str, int]] = set()
        for kind in kinds:
            for driver, handle in kind.pod.volumes.attached if kind.pod.volumes is not None else ():
                need.setdefault(driver, {})
                once.setdefault((driver, handle), []).append(kind.number)
            for one in kind.claims:
                driver, handle = storage.driver_of(one.claim)
                if not driver:
                    continue
                if not storage.is_moved(one.claim):
                    plain.add((driver, kind.number))
                mine = need.setdefault(driver, {})
                if one.claim.key in storage.shared or is_used(one.claim, storage, self._attached):
                    once.setdefault((driver, handle), []).append(kind.number)
                else:
                    mine[kind.number] = mine.get(kind.number, 0) + 1
        for driver, numbers in sorted(need.items()):
            everyone = {*numbers, *(kind for (name, _), some in once.items() if name == driver for kind in some)}
            known = storage.drivers.get(driver)
            if known is not None and known.insists:
                installed = self._limits(driver, moment, missing=-1) >= 0
                silent = np.ones(moment.size, dtype=np.bool_)
                silent[[self._rows[name] for name in storage.node_drivers if name in self._rows]] = False
                for kind_number in sorted(everyone):
                    reason = f"{driver} CSI driver is not installed on the node"
                    allowed = installed if (driver, kind_number) in plain else installed | silent
                    parts.bar(kind_number, allowed, reason, passing=True)
            limits = self._limits(driver, moment, missing=PLENTY)
            if int(limits.min(initial=PLENTY)) >= PLENTY:
                continue
            there: Mapping[int, frozenset[str] | set[str]] = {} if empty else self._on_nodes(driver, moment)
            free = limits.copy()
            for row, handles in there.items():
                free[row] -= len(handles)
            name = f"volumes of driver {driver}"
            needs_of = tuple(numbers.get(kind, 0) for kind in range(max(everyone) + 1))
            wanted = frozenset(handle for other, handle in once if other == driver)
            held = partial(attached.alone, driver, moment, wanted)
            parts.extras.append(Extra(name, free, needs_of, TOO_MANY, held))
            for (other, handle), some in sorted(once.items()):
                if other == driver:
                    already = np.zeros(moment.size, dtype=np.bool_)
                    already[[row for row, handles in there.items() if handle in handles]] = True
                    for kind_number in dict.fromkeys(some):
                        parts.bar(kind_number, already | (free > 0), TOO_MANY, passing=True)
                    parts.rules.append(Once(name, 1, tuple(dict.fromkeys(some)), already))

    def _limits(self, driver: str, moment: Moment, *, missing: int) -> NDArray[np.int64]:
        """Return how many volumes of the driver each node takes; `missing` where it is not installed."""
        limits = np.full(moment.size, missing, dtype=np.int64)
        for node, drivers in moment.storage.node_drivers.items():
            row, limit = self._rows.get(node), drivers.limit(driver)
            if row is not None and limit is not None:
                limits[row] = PLENTY if limit < 0 else limit
        return limits

    def _on_nodes(self, driver: str, moment: Moment) -> dict[int, set[str]]:
        """Return the unique volumes of a driver on each row: of pods there, and attached."""
        storage = moment.storage
        known = self._handles.get((driver, moment.left_out))
        if known is None:
            names = [name for name in {*storage.hosted, *storage.attachments} if name in self._rows]
            there = replace(moment, lost={})
            known = {self._rows[name]: frozenset(attached.on_node(name, driver, there)) for name in names}
            known = self._handles[(driver, moment.left_out)] = {row: some for row, some in known.items() if some}
        now: dict[int, set[str]] = {row: set(handles) for row, handles in known.items()}
        for row in set(moment.lost.values()):
            now[row] = attached.on_node(moment.table.names[row], driver, moment)
        for row, namespace, volumes in self._moved.pods.values():
            now.setdefault(row, set()).update(attached.handles(namespace, volumes, driver, storage))
        return now

    # -- what is placed -------------------------------------------------------------------------------------------

    def on_place(self, members: tuple[tuple[Pod, int], ...], view: View, *, undone: bool) -> None:
        """Count pods with volumes on the nodes that they were given."""
        for pod, row in members:
            if pod.volumes is None:
                continue
            if undone:
                self._moved.pods.pop(pod.uid, None)
                self._moved.pending.pop(pod.uid, None)
            else:
                self._moved.pods[pod.uid] = (row, pod.namespace, pod.volumes)
                if pod.volumes.claims:
                    self._moved.pending[pod.uid] = (pod, row)

    def prepares(self, members: tuple[tuple[Pod, int], ...], view: View) -> tuple[VolumeStep, ...]:
        """Return a step for every claim that is not bound: which volume it gets, or that one is made for it.

        Raises `NoVolumeLeft`.
        """
        if all(pod.volumes is None for pod, _ in members):
            return ()
        planned = _plan(members, self._committed(view))
        for uid, step, row in planned:
            if step.volume:
                self._moved.taken[step.volume] = uid
            else:
                self._moved.chosen[uid] = view.snapshot.table.names[row]
        for pod, _ in members:
            self._moved.pending.pop(pod.uid, None)
        return tuple(step for _, step, _ in planned)


def _plan(members: Sequence[tuple[Pod, int]], moment: Moment) -> list[tuple[str, VolumeStep, int]]:
    """Return (uid of a claim, its step, row) for every claim of these pods that is not bound. Raises `NoVolumeLeft`."""
    asked: dict[str, tuple[Pod, int, Claim]] = {}
    rows: dict[str, set[int]] = {}
    listed: list[tuple[int, Claim]] = []
    for pod, row in members:
        claims = claims_of(pod, moment.storage)
        for one in () if isinstance(claims, str) else claims:
            if not one.bound:
                asked.setdefault(one.claim.uid, (pod, row, one.claim))
                rows.setdefault(one.claim.uid, set()).add(row)
                listed.append((1, one.claim))
    together = named_together(listed, moment.storage)
    steps: dict[str, VolumeStep] = {}
    open_claims: list[tuple[Pod, int, Claim]] = []
    for uid, (pod, row, claim) in asked.items():
        given, held = given_to(claim, moment.storage), moment.held(claim)
        if moment.node_of(claim):
            steps[uid] = _step(pod, claim, kept=True)
        elif held is not None:
            steps[uid] = _step(pod, claim, held.name, kept=True)
        elif given and moment.reach.includes(given[0].terms, row):
            steps[uid] = _step(pod, claim, given[0].name, kept=True)
        elif claim.key not in together:
            open_claims.append((pod, row, claim))
    competing = [claim.storage_class for _, _, claim in asked.values()]
    fixed = shared_volumes(together.values(), moment)
    for uid, (pod, _, claim) in asked.items():
        if uid not in steps and claim.key in together:
            alone = competing.count(claim.storage_class) == 1
            theirs = {one.name for key, one in fixed.items() if key != claim.key}
            theirs |= {step.volume for step in steps.values()}
            mine = None if alone else fixed.get(claim.key)
            exists = alone or not is_made(claim, moment)
            steps[uid] = _step(pod, claim, _common(claim, rows[uid], moment, mine, theirs) if exists else "")
    left_out = {step.volume for step in steps.values() if step.volume}
    for pod, claim, volume in _choose(open_claims, moment, left_out):
        steps[claim.uid] = _step(pod, claim, volume)
    return [(uid, steps[uid], row) for uid, (_, row, _) in asked.items()]


def _common(claim: Claim, rows: set[int], moment: Moment, fixed: Volume | None, theirs: set[str]) -> str:
    """Return the volume that a claim of several members gets, reached from all their rows; "" where one is made.

    fixed: the one that was agreed on, where other claims ask for that class too. theirs: what others get.
    """
    offered = moment.shelf(claim).named(moment.offered(claim))
    for volume in offered if fixed is None else [fixed, *offered]:
        if volume.name not in theirs and all(moment.reach.includes(volume.terms, row) for row in rows):
            return volume.name
    if is_made(claim, moment):
        return ""
    raise NoVolumeLeft(f"no volume is left for {claim.key} that all its members reach")


def _counted(text: str, count: int, of: int) -> str:
    return text if of == 1 else f"{text} ({count} of {of} members)"


def _step(pod: Pod, claim: Claim, volume: str = "", *, kept: bool = False) -> VolumeStep:
    return VolumeStep(pod.uid, claim.namespace, claim.name, claim.uid, volume, kept)


def _choose(
    claims: Sequence[tuple[Pod, int, Claim]], moment: Moment, left_out: set[str]
) -> Iterable[tuple[Pod, Claim, str]]:
    """Give each claim the smallest volume that serves it on its node, so that all that need one have one."""
    claims = sorted(claims, key=lambda one: one[2].size)
    rows_of: dict[Hashable, set[int]] = {}
    for _, row, claim in claims:
        rows_of.setdefault(wish_of(claim), set()).add(row)
    numbers: dict[str, int] = {}
    lists: dict[Hashable, list[int]] = {}
    near: dict[Hashable, tuple[dict[int, list[int]], list[tuple[int, Volume]]]] = {}
    choices: list[list[int]] = []
    for _, row, claim in claims:
        wish = wish_of(claim)
        if wish not in near:
            near[wish] = _near(claim, rows_of[wish], moment, left_out, numbers)
        if (row, wish) not in lists:
            local, wide = near[wish]
            reached = (number for number, volume in wide if moment.reach.includes(volume.terms, row))
            lists[(row, wish)] = [*local.get(row, ()), *reached]
        choices.append(lists[(row, wish)])
    must = [not moment.storage.classes[claim.storage_class].provisions for _, _, claim in claims]
    found = pair(choices, must)
    if found is None:
        names = ", ".join(sorted(claim.key for (_, _, claim), needed in zip(claims, must, strict=True) if needed))
        raise NoVolumeLeft(f"no volumes are left for all of {names}")
    names_of = list(numbers)
    for (pod, _, claim), number in zip(claims, found, strict=True):
        yield pod, claim, names_of[number] if number >= 0 else ""


def _near(
    claim: Claim, rows: set[int], moment: Moment, left_out: set[str], numbers: dict[str, int]
) -> tuple[dict[int, list[int]], list[tuple[int, Volume]]]:
    """Return what serves a claim: volumes of one of the rows, and volumes of several, each the smallest first."""
    local: dict[int, list[int]] = {}
    wide: list[tuple[int, Volume]] = []
    shelf = moment.shelf(claim)
    there = np.isin(shelf.only, sorted(rows)) | ((shelf.only < 0) & (shelf.cell >= 0))
    for position in np.flatnonzero(moment.offered(claim) & shelf.without(left_out) & there).tolist():
        volume, row = shelf.volumes[position], int(shelf.only[position])
        number = numbers.setdefault(volume.name, len(numbers))
        if row >= 0:
            local.setdefault(row, []).append(number)
        else:
            wide.append((number, volume))
    return local, wide
