"""Who runs, group by group, as those see it who look for room: who may go, and what must stay if anything does.

Decided here: what counts as a running group (bound, alive members that no request evicts already), how many of them
must stay, since when it runs, and whether it may be a victim at all by what it or its pods say. Who may evict whom is
not decided here. Kept across sessions while the states and pods that it was made from are the same objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from scheduler.framework.gangs import count_by_role
from scheduler.model.decisions import Victim
from scheduler.model.groups import GroupState
from scheduler.model.parts import tree_of
from scheduler.model.pods import Pod, Shape, held_together
from scheduler.model.queues import leaf_of
from scheduler.model.resources import Amounts
from scheduler.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """A running group. pods: its members on nodes that may still be evicted, in order of rank and name.

    minimum: how many of `pods` and `fixed` must stay if any stay. roles: the same for single roles, of `pods` alone.
    parts: the same for sub-groups of which something runs, by path; `parted`: it has sub-groups.
    fixed: members that count toward the minimum and cannot be evicted now (they are being bound). since: when the first
    of the pods was bound. queue: name of the leaf queue. held: what its pods hold together.
    """

    key: str
    holder: str
    queue: str
    priority: int
    pods: tuple[Pod, ...]
    minimum: int = 1
    roles: tuple[tuple[str, int], ...] = ()
    fixed: int = 0
    since: float = 0.0
    created: float = 0.0
    preemptible: bool = True
    min_runtime: float | None = None
    held: Amounts = ()
    parted: bool = False
    parts: tuple[tuple[str, int], ...] = ()

    def floors(self) -> Iterator[tuple[str, tuple[Pod, ...], int]]:
        """Yield each role and each sub-group with its pods, and how many of them must stay if any pod stays."""
        for role, least in self.roles:
            yield role, tuple(pod for pod in self.pods if pod.role == role), least
        for part, least in self.parts:
            yield part, tuple(pod for pod in self.pods if pod.part == part), least


def victim_of(running: Running, pod: Pod, why: str) -> Victim:
    """Return a pod of a running group as a victim. why: as in `Victim`."""
    return Victim(
        uid=pod.uid, namespace=pod.namespace, pod=pod.name, node=pod.node, group=running.key,
        holder=running.holder, why=why, grace=pod.grace,
    )  # fmt: skip


class Residents:
    """All running groups; kept by whoever runs sessions."""

    def __init__(self) -> None:
        self._states: dict[str, GroupState] = {}
        self._groups: dict[str, Running] = {}
        self._view: Mapping[str, tuple[Pod, str]] | None = None
        self._seen: dict[str, tuple[Pod, str]] = {}
        self._singles: dict[str, Running] = {}
        self._leaving: frozenset[str] = frozenset()
        self._shapes: Mapping[str, Shape] = {}
        self._by_queue: dict[str, tuple[Running, ...]] | None = None
        self.version = 0
        """Changes when anything here does."""
        self.losses = 0
        """Changes when somebody is gone or goes no longer, or what protects somebody here has changed."""

    def refresh(self, snapshot: Snapshot) -> None:
        """Take over what runs now."""
        self._shapes = snapshot.shapes
        fresh = self._refresh_groups(snapshot) | self._refresh_singles(snapshot)
        if fresh or snapshot.leaving != self._leaving:
            self.losses += not self._leaving <= snapshot.leaving
            self._leaving = snapshot.leaving
            self._by_queue = None
            self.version += 1

    def _refresh_groups(self, snapshot: Snapshot) -> bool:
        changed = False
        for key in [key for key in self._states if key not in snapshot.groups]:
            del self._states[key]
            if self._groups.pop(key, None) is not None:
                self.losses, changed = self.losses + 1, True
        for key, state in snapshot.groups.items():
            if self._states.get(key) is not state:
                self._states[key] = state
                before = self._groups.pop(key, None)
                made = _of_group(state, snapshot.shapes)
                if made is not None:
                    self._groups[key] = made
                self.losses += before is not None and not _only_grew(before, made)
                changed = changed or before is not None or made is not None
        return changed

    def _refresh_singles(self, snapshot: Snapshot) -> bool:
        view = snapshot.singles
        if view is self._view:
            return False
        changed = False
        for uid in [uid for uid in self._seen if uid not in view]:
            del self._seen[uid], self._singles[uid]
            self.losses, changed = self.losses + 1, True
        for uid, single in view.items():
            if self._seen.get(uid) is not single:
                before = self._singles.get(uid)
                self._seen[uid] = single
                self._singles[uid] = _of_single(*single, snapshot.shapes)
                self.losses += before is not None and not _only_grew(before, self._singles[uid])
                changed = True
        self._view = view
        return changed

    def of_queue(self, queue: str) -> tuple[Running, ...]:
        """Return what runs in a leaf queue, sorted by key."""
        return self._sorted().get(queue, ())

    def everybody(self) -> Iterator[Running]:
        """Yield all that runs, by queue and key."""
        for queue in self.queues():
            yield from self.of_queue(queue)

    def queues(self) -> Iterable[str]:
        """Return the leaf queues in which something runs, sorted."""
        return sorted(self._sorted())

    def _sorted(self) -> dict[str, tuple[Running, ...]]:
        if self._by_queue is None:
            found: dict[str, list[Running]] = {}
            for part in (self._groups, self._singles):
                for one in part.values():
                    left = without(one, self._leaving, self._shapes)
                    if left is not None:
                        found.setdefault(left.queue, []).append(left)
            self._by_queue = {queue: tuple(sorted(part, key=lambda one: one.key)) for queue, part in found.items()}
        return self._by_queue


def _only_grew(before: Running, now: Running | None) -> bool:
    """Whether nobody of a group went, and it is protected by the same as before."""
    if now is None or now.fixed < before.fixed or _protected_by(before) != _protected_by(now):
        return False
    return {(pod.uid, pod.preemptible) for pod in before.pods} <= {(pod.uid, pod.preemptible) for pod in now.pods}


def _protected_by(one: Running) -> tuple[object, ...]:
    return one.queue, one.priority, one.minimum, one.roles, one.parts, one.preemptible, one.min_runtime


def without(running: Running, leaving: Container[str], shapes: Mapping[str, Shape]) -> Running | None:
    """The group as it will be when these pods (uid) are gone; None when nobody is left."""
    if not leaving or not any(pod.uid in leaving for pod in running.pods):
        return running
    pods = tuple(pod for pod in running.pods if pod.uid not in leaving)
    if not pods:
        return None
    return Running(
        key=running.key, holder=running.holder, queue=running.queue, priority=running.priority, pods=pods,
        minimum=running.minimum, roles=running.roles, fixed=running.fixed, since=running.since,
        created=running.created, preemptible=running.preemptible, min_runtime=running.min_runtime,
        held=held_together(pods, shapes), parted=running.parted, parts=running.parts,
    )  # fmt: skip


def is_preemptible(state: GroupState) -> bool:
    """Whether a group may be a victim, by its object, else by what its members say, else by its API's default."""
    group = state.group
    if group.preemptible is not None:
        return group.preemptible
    members = (*state.bound, *state.assumed, *state.waiting)
    if any(pod.preemptible is not None for pod in members):
        return any(pod.preemptible is not False for pod in members)
    return group.dialect != "kai" or state.priority < KAI_PREEMPTIBLE_BELOW


def _of_group(state: GroupState, shapes: Mapping[str, Shape]) -> Running | None:
    if not state.bound:
        return None
    group = state.group
    return Running(
        key=state.key,
        holder=f"{group.namespace}/{group.name}",
        queue=leaf_of(state.queue),
        priority=state.priority,
        pods=state.bound,
        minimum=max(1, group.min_member - len(state.succeeded)),
        roles=_roles(state),
        fixed=len(state.assumed),
        since=min((pod.since for pod in state.bound if pod.since), default=0.0),
        created=group.created,
        preemptible=is_preemptible(state),
        min_runtime=group.min_runtime,
        held=held_together(state.bound, shapes),
        parted=bool(group.subgroups),
        parts=_parts(state) if group.subgroups else (),
    )


def _parts(state: GroupState) -> tuple[tuple[str, int], ...]:
    gone = Counter(pod.part for pod in (*state.succeeded, *state.assumed))
    there = {pod.part for pod in state.bound}
    leaves = [leaf for leaf in tree_of(state).leaves() if leaf.path in there]
    return tuple((leaf.path, max(0, leaf.minimum - gone[leaf.path])) for leaf in leaves)


def _roles(state: GroupState) -> tuple[tuple[str, int], ...]:
    counts = count_by_role((*state.succeeded, *state.assumed))
    return tuple((role.name, max(0, role.count - counts.get(role.name, 0))) for role in state.group.roles)


KAI_PREEMPTIBLE_BELOW = 100
"""In KAI's API a group that says nothing may be a victim only below this priority."""


def _of_single(pod: Pod, queue: str, shapes: Mapping[str, Shape]) -> Running:
    name = pod.owner_name or pod.name
    return Running(
        key=f"pod/{pod.namespace}/{pod.uid}",
        holder=f"{pod.namespace}/{name}",
        queue=queue,
        priority=pod.priority,
        pods=(pod,),
        since=pod.since,
        created=pod.created,
        preemptible=pod.preemptible is not False,
        held=held_together((pod,), shapes),
    )
