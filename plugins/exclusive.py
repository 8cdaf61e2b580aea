"""Who holds which domains for itself, as `topology` asks when a group wants to be exclusive in one.

Decided here: a group, or a set of single pods that is exclusive as a whole, is one owner. Looked up once a session and
brought up to date with each placement, because every group that is exclusive asks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

from scheduler.framework.protocols import View
from scheduler.framework.subgroups import is_under
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod
from scheduler.model.wishes import TopologyWish

Owner: TypeAlias = Hashable


class Claims:
    """The domains in which the members of exclusive groups (by key) and exclusive single pods are."""

    def __init__(self, states: Mapping[str, GroupState], singles: Sequence[Pod], view: View) -> None:
        self._states = states
        self._owners: dict[str, dict[int, dict[Owner, set[str]]]] = {}
        self._holders: dict[tuple[str, int], frozenset[str]] = {}
        rows = {node: row for row, node in enumerate(view.snapshot.table.names)}
        for state in states.values():
            for pod in (*state.bound, *state.assumed):
                row = rows.get(pod.node or pod.nominated)
                if row is not None:
                    self._note(state, pod, row, view, undone=False)
        for pod in singles:
            row = rows.get(pod.node)
            level = view.resolve(pod.wish.wish.name, pod.wish.wish.exclusive) if pod.wish is not None else None
            if row is not None and pod.wish is not None and isinstance(level, str):
                owner = (pod.namespace, pod.wish.podset) if pod.wish.podset else pod.uid
                self._add(level, int(view.domains(level)[0][row]), owner, pod.uid)

    def placed(self, pod: Pod, row: int, view: View, *, undone: bool) -> None:
        """Take note that a pod goes (or, undone, does not go) to a row of the node table."""
        state = self._states.get(pod.group) or self._states.get(f"pod/{pod.namespace}/{pod.uid}")
        if state is not None:
            self._note(state, pod, row, view, undone=undone)

    def beside(self, level: str, state: GroupState) -> tuple[tuple[int, ...], tuple[frozenset[str], ...]]:
        """Return the domains of a level that others than this group hold, and the pods (uid) that hold each."""
        mine = owner_of(state)
        domains: list[int] = []
        holders: list[frozenset[str]] = []
        for domain, owners in sorted(self._owners.get(level, {}).items()):
            if mine not in owners:
                held = self._holders.get((level, domain))
                if held is None:
                    held = self._holders[level, domain] = frozenset().union(*owners.values())
            else:
                held = frozenset[str]().union(*(uids for owner, uids in owners.items() if owner != mine))
            if held:
                domains.append(domain)
                holders.append(held)
        return tuple(domains), tuple(holders)

    def _note(self, state: GroupState, pod: Pod, row: int, view: View, *, undone: bool) -> None:
        for path, wish, name in exclusive_wishes(state):
            level = view.resolve(name, wish.exclusive)
            if not isinstance(level, str) or not is_under(pod.part, path):
                continue
            domain = int(view.domains(level)[0][row])
            if undone and domain >= 0:
                self._owners[level][domain][owner_of(state)].discard(pod.uid)
                self._holders.pop((level, domain), None)
            elif not undone:
                self._add(level, domain, owner_of(state), pod.uid)

    def _add(self, level: str, domain: int, owner: Owner, uid: str) -> None:
        if domain >= 0:
            self._owners.setdefault(level, {}).setdefault(domain, {}).setdefault(owner, set()).add(uid)
            self._holders.pop((level, domain), None)


def exclusive_wishes(state: GroupState) -> Iterator[tuple[str, TopologyWish, str]]:
    """Yield each part ("" = the whole group) that is exclusive, with its wish and the topology that is meant."""
    group = state.group
    own = group.topology.name if group.topology is not None else ""
    for path, wish in (("", group.topology), *((one.path, one.topology) for one in group.subgroups)):
        if wish is not None and wish.exclusive:
            yield path, wish, wish.name or own


def owner_of(state: GroupState) -> Owner:
    """Return who holds what the group holds: single pods of one set are exclusive together."""
    if state.group.dialect == "pod":
        for pod in (*state.waiting, *state.assumed, *state.bound):
            if pod.wish is not None and pod.wish.podset:
                return pod.namespace, pod.wish.podset
    return state.key
