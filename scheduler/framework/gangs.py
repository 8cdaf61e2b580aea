"""What a gang still needs to be whole: pure arithmetic over a group's state.

Decided here, once for all plugins and actions: who counts toward the minimum (bound, assumed and succeeded members),
how role minimums, those of sub-groups and the total go together, and when a group is repaired instead of started.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.framework.subgroups import (
    NOTHING,
    Lacking,
    first_missing,
    gates_suffice,
    is_under,
    lacking_of,
    offered,
    pick,
)
from scheduler.model.groups import GroupState
from scheduler.model.parts import least_of, tree_of
from scheduler.model.pods import Pod
from scheduler.model.verdict import Code, Verdict, verdict


@dataclass(frozen=True, slots=True)
class Needs:
    """Members still to be placed: `total` in all, among them at least `count` of each role listed, and what the
    sub-groups lack. Where sub-groups are chosen from, more than `total` may be placed: as many as make them whole."""

    total: int
    roles: tuple[tuple[str, int], ...] = ()
    lacking: Lacking = NOTHING


def count_by_role(pods: Iterable[Pod]) -> dict[str, int]:
    """Return how many of the pods have each role."""
    counts: dict[str, int] = {}
    for pod in pods:
        counts[pod.role] = counts.get(pod.role, 0) + 1
    return counts


def needs(state: GroupState) -> Needs:
    """Return what is missing to the minimum. A total below the sum of the roles is raised to it."""
    group = state.group
    lacking = lacking_of(tree_of(state)) if group.subgroups else NOTHING
    if not group.roles:
        return Needs(max(0, group.min_member - state.placed, lacking.size), lacking=lacking)
    roles = roles_lacking(state)
    total = max(0, group.min_member - state.placed, sum(count for _, count in roles), lacking.size)
    return Needs(total, roles, lacking)


def roles_lacking(state: GroupState, placed: Container[str] = ()) -> tuple[tuple[str, int], ...]:
    """Return how many members of each role are missing to its minimum. placed: waiting ones (uid) that count too."""
    more = (pod for pod in state.waiting if pod.uid in placed) if placed else ()
    there = count_by_role((*state.assumed, *state.bound, *state.succeeded, *more))
    return tuple(
        (role.name, role.count - there.get(role.name, 0))
        for role in sorted(state.group.roles, key=lambda role: role.name)
        if role.count > there.get(role.name, 0)
    )


def startable(state: GroupState) -> tuple[Pod, ...]:
    """Return the waiting members of which the minimum may be made."""
    return offered(tree_of(state)) if state.group.subgroups else state.waiting


def is_running(state: GroupState) -> bool:
    """Whether the group once reached its minimum and something of it is still there: its members are then replaced
    one by one, not started as a whole."""
    return state.ever_ran and state.placed > 0


def is_starting(state: GroupState) -> bool:
    """Whether the minimum is being bound and may still be unwound: until that is settled nothing else of the group is
    placed, because it could be left over alone."""
    return state.starting and not is_running(state)


def required_total(state: GroupState) -> int:
    """Return the minimum number of members, those of roles and of sub-groups included."""
    group = state.group
    parts = least_of(group.subgroups, group.min_subgroups) if group.subgroups else 0
    return max(group.min_member, sum(role.count for role in group.roles), parts)


def not_found(state: GroupState) -> Verdict:
    """Return that the object which the members name does not exist (or is about to be gone)."""
    group = state.group
    api, _, _ = group.api_version.rpartition("/")
    return verdict(
        Code.POD_GROUP_NOT_FOUND,
        group=f"{group.namespace}/{group.name}",
        kind=f"{group.kind}.{api}" if api else group.kind,
        members=len(state.waiting) + len(state.gated),
    )


def stray(state: GroupState, pod: Pod) -> Verdict:
    """Return that a member names a sub-group which is not there."""
    known = ", ".join(one.path for one in state.group.subgroups)
    message = f'there is no sub-group "{pod.role}" in {state.group.kind} {state.group.name}, only {known}'
    return verdict(Code.MISCONFIGURED, field=f"pod {pod.name}", message=message)


def membership(state: GroupState) -> Verdict | None:
    """Return None when the waiting members can complete the minimum, else which are missing or gated."""
    missing = needs(state)
    if state.group.subgroups and (why := _of_subgroups(state)) is not None:
        return why
    if len(startable(state)) < missing.total:
        gated_suffice = len(state.waiting) + len(state.gated) >= missing.total
        return verdict(
            Code.GATED if gated_suffice else Code.NOT_ENOUGH_MEMBERS,
            existing=state.existing,
            minimum=required_total(state),
            gated=len(state.gated),
            failed=len(state.failed),
            foreign=state.foreign,
        )
    waiting, gated = count_by_role(startable(state)), count_by_role(state.gated)
    minimums = {role.name: role.count for role in state.group.roles}
    for role, count in missing.roles:
        have = waiting.get(role, 0)
        if have < count:
            gates = gated.get(role, 0)
            return verdict(
                Code.GATED if have + gates >= count else Code.NOT_ENOUGH_MEMBERS,
                role=role,
                existing=minimums[role] - count + have + gates,
                minimum=minimums[role],
                gated=gates,
                failed=sum(pod.role == role for pod in state.failed),
            )
    return None


def _of_subgroups(state: GroupState) -> Verdict | None:
    tree = tree_of(state)
    found = first_missing(tree)
    if found is None:
        return None
    path, there, needed, part = found
    code = Code.GATED if gates_suffice(tree) else Code.NOT_ENOUGH_MEMBERS
    idle = next((field for other, field in state.group.unmatched if is_under(other, path)), "")
    named: dict[str, Any] = {"field": idle} if idle and code is Code.NOT_ENOUGH_MEMBERS else {}
    if part is None:
        return verdict(code, subgroup=path, subgroups=there, minimum=needed, gated=len(state.gated), **named)
    return verdict(
        code,
        subgroup=path,
        existing=there + part.gated,
        minimum=needed,
        gated=part.gated,
        failed=part.failed,
        foreign=state.foreign,
        **named,
    )


def meant(pods: Iterable[Pod], wanted: Needs) -> tuple[Pod, ...]:
    """Return as many of the pods as are wanted, first those that sub-groups and roles lack."""
    if wanted.lacking.minimums or wanted.lacking.choices:
        return pick(pods, wanted.lacking, dict(wanted.roles), wanted.total)
    return by_role(pods, dict(wanted.roles), wanted.total)


def by_role(pods: Iterable[Pod], wanted: Mapping[str, int], total: int) -> tuple[Pod, ...]:
    """Return `total` of the pods (or all), first those that the wanted roles lack; inside each part in their order."""
    left = dict(wanted)
    rest: list[Pod] = []
    chosen: list[Pod] = []
    for pod in pods:
        if left.get(pod.role, 0) > 0:
            left[pod.role] -= 1
            chosen.append(pod)
        else:
            rest.append(pod)
    return tuple(chosen + rest)[:total]
