"""Which group a pod belongs to, and what state a group's members are in: pure functions for the store.

Order of membership: the group object that the pod names (the dialects settle which reference wins), the owner that is
annotated with a minimum (on the owner or on the pods), else a group of one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from scheduler.dialects.registry import DIALECTS
from scheduler.model.groups import GroupState, PodGroup
from scheduler.model.parts import STRAY, dealt, make_tree
from scheduler.model.pods import Pod, Problem
from scheduler.model.queues import leaf_of
from scheduler.model.verdict import Verdict

_API_VERSIONS = {
    dialect.name: f"{resource.group}/{resource.versions[0]}"
    for dialect in DIALECTS
    for resource in dialect.resources
    if resource.role == "group"
}
"""Under which API a missing object was looked for, by dialect."""

KAI_NOT_PREEMPTIBLE = 100
"""Priority from which on a group of KAI's dialect that does not say otherwise is not evicted for others."""


def group_key(pod: Pod, groups: Mapping[str, PodGroup]) -> str:
    """Return the key of the pod's group."""
    if pod.group:
        return pod.group
    if pod.owner_uid:
        key = f"owner/{pod.namespace}/{pod.owner_uid}"
        if pod.min_member > 0 or key in groups:
            return key
    return f"pod/{pod.namespace}/{pod.uid}"


def charged_queue(members: Iterable[Pod]) -> str:
    """Return the queue to which the members that run were charged when they were bound, or "".

    It stays what it was until they end, whatever becomes of the objects and labels that named it then: nobody is let
    off a limit by changing or deleting these. Of several that of the oldest counts.
    """
    bound = [pod for pod in members if pod.charged_to and pod.node and not pod.finished]
    return min(bound, key=lambda pod: (pod.created, pod.uid)).charged_to if bound else ""


def queue_of(group: PodGroup | None, members: Sequence[Pod], namespace_queue: Callable[[str, str], str]) -> str:
    """Return the name of the leaf queue that the members are charged to (the last part of a path)."""
    return leaf_of(_path_of(group, members, namespace_queue))


def _path_of(group: PodGroup | None, members: Sequence[Pod], namespace_queue: Callable[[str, str], str]) -> str:
    """Return the queue as it is named: where members run, by their charge, else by the group's object, its members,
    their namespace. Of members that name several the oldest counts; such a gang does not start."""
    stated = charged_queue(members) or (group.queue if group is not None else "")
    if stated:
        return stated
    if len({pod.queue for pod in members}) > 1:
        named = [pod for pod in members if pod.queue]
        alive = [pod for pod in named if not pod.finished and not pod.deleting]
        return min(alive or named, key=lambda pod: (pod.created, pod.uid)).queue
    own = members[0].queue if members else ""
    namespace = group.namespace if group is not None else members[0].namespace if members else ""
    return own or namespace_queue(namespace, "")


def _unlike_queues(group: PodGroup | None, waiting: Sequence[Pod], members: Sequence[Pod]) -> tuple[Problem, ...]:
    """Return that waiting members name different queues, where nothing else says to which the gang is charged."""
    if (group is not None and group.queue) or len({pod.queue for pod in waiting}) < 2 or charged_queue(members):
        return ()
    first: dict[str, Pod] = {}
    for pod in _sorted(list(waiting)):
        if pod.queue:
            first.setdefault(leaf_of(pod.queue), pod)
    if len(first) < 2:
        return ()
    (one, pod), (other, unlike) = list(first.items())[:2]
    text = f'names queue "{other}", pod {pod.name} names "{one}": a gang is charged to one; name it in its object'
    return (Problem(f"pod {unlike.name}", text),)


def _made_group(key: str, members: Iterable[Pod]) -> tuple[PodGroup, bool]:
    """Return the group for a key that has no object, and whether an object is missing."""
    dialect, namespace, name = key.split("/", 2)
    first = min(members, key=lambda pod: (pod.created, pod.name))
    if dialect == "pod":
        problems = first.problems
        if first.min_member > 1 and not first.owner_uid:
            problems = (
                *problems,
                Problem(
                    "metadata.annotations[scheduling.muster.sh/min-member]",
                    f"is {first.min_member} on a pod without a controlling owner; its gang is not known",
                ),
            )
        return (
            PodGroup(
                key=key, uid=first.uid, dialect=dialect, namespace=namespace, name=first.name, queue=first.queue,
                preemptible=first.preemptible, created=first.created, problems=problems,
            ),
            False,
        )  # fmt: skip
    if dialect == "owner":
        minimum = max(pod.min_member for pod in members)
        return (
            PodGroup(
                key=key, uid=first.owner_uid, dialect=dialect, namespace=namespace, name=first.owner_name,
                kind=first.owner_kind, min_member=minimum, queue=first.queue, created=first.created,
            ),
            False,
        )  # fmt: skip
    return (
        PodGroup(
            key=key, uid="", dialect=dialect, namespace=namespace, name=name, created=first.created,
            api_version=_API_VERSIONS.get(dialect, ""),
        ),
        True,
    )  # fmt: skip


def _sorted(pods: list[Pod]) -> tuple[Pod, ...]:
    return tuple(sorted(pods, key=lambda pod: (pod.index < 0, pod.index, len(pod.name), pod.name, pod.uid)))


def _reached_minimum(group: PodGroup, placed: list[Pod]) -> bool:
    if len(placed) < group.min_member:
        return False
    if not all(sum(pod.role == role.name for pod in placed) >= role.count for role in group.roles):
        return False
    if not group.subgroups:
        return True
    tree = make_tree(group, placed=placed)
    return sum(part.met for part in tree.parts) >= tree.least


def group_state(
    key: str,
    group: PodGroup | None,
    members: list[Pod],
    *,
    assumed: Mapping[str, tuple[str, str]],
    priorities: Mapping[str, int],
    namespace_queue: Callable[[str, str], str],
    ran: Collection[str],
    starting: bool = False,
    held: Verdict | None = None,
    foreign: int = 0,
    before: GroupState | None = None,
) -> GroupState | None:
    """Return the state of a group, or None for a group of one with nothing left to decide.

    assumed: pod uid -> (node, source). ran: uids of groups that once reached their minimum. before: its last state, to
    know where members were that are gone. A group none of whose members is placed any more starts as a whole again,
    whatever it did before.
    """
    missing, stated = False, group
    if group is None:
        group, missing = _made_group(key, members)
    group, part, unclear = dealt(group, members)
    if unclear:
        group = replace(group, problems=(*group.problems, *unclear))
    sorts = _by_state(group, members, part, assumed)
    if group.dialect == "pod" and not sorts["waiting"] and not sorts["assumed"] and not sorts["gated"]:
        return None
    group = _with_problems(group, sorts["waiting"], _unlike_queues(stated, sorts["waiting"], members))
    settled = sorts["bound"] + sorts["succeeded"]
    alive = sorts["waiting"] + sorts["gated"] + sorts["assumed"] + sorts["bound"]
    own = priorities.get(group.priority_class) if group.priority_class else None
    priority = own if own is not None else max((pod.priority for pod in alive), default=0)
    if group.preemptible is None:
        preemptible = _preemptible(group.dialect, priority, alive)
        group = group if preemptible is None else replace(group, preemptible=preemptible)
    state = GroupState(
        group=group,
        priority=priority,
        queue=_path_of(stated if members else group, members, namespace_queue),
        waiting=_sorted(sorts["waiting"]),
        gated=_sorted(sorts["gated"]),
        assumed=_sorted(sorts["assumed"]),
        bound=_sorted(sorts["bound"]),
        terminating=_sorted(sorts["terminating"]),
        succeeded=_sorted(sorts["succeeded"]),
        failed=_sorted(sorts["failed"]),
        strays=_sorted(sorts["strays"]),
        missing_object=missing,
        starting=starting,
        held=held,
        foreign=foreign,
        ever_ran=bool(settled)
        and not missing
        and (group.uid in ran or group.was_running or _reached_minimum(group, settled)),
    )
    left = _left(before, state, members) if before is not None else ()
    return replace(state, left=left) if left else state


def _by_state(
    group: PodGroup, members: list[Pod], part: Mapping[str, str], assumed: Mapping[str, tuple[str, str]]
) -> dict[str, list[Pod]]:
    """Return the members, each with its sub-group, by the field of `GroupState` in which they are."""
    follows = group.topology is not None or bool(group.subgroups)
    sorts: dict[str, list[Pod]] = {
        name: [] for name in ("waiting", "gated", "assumed", "bound", "terminating", "succeeded", "failed", "strays")
    }
    for pod in members:
        sort = _sort(pod, assumed)
        if part.get(pod.uid):
            pod = replace(pod, part=part[pod.uid])
        if sort == "assumed" and follows:  # the rest of the gang must follow it into its domain
            pod = replace(pod, nominated=assumed[pod.uid][0])
        sorts["strays" if sort == "waiting" and pod.part == STRAY else sort].append(pod)
    return sorts


def _with_problems(group: PodGroup, waiting: list[Pod], unlike: tuple[Problem, ...]) -> PodGroup:
    """Return the group with what is wrong with its waiting members, one by one and (unlike) together; a pod that stands
    alone says it itself."""
    if group.dialect == "pod" or not (unlike or any(pod.problems for pod in waiting)):
        return group
    problems = (
        Problem(f"pod {pod.name}: {problem.field}", problem.message)
        for pod in _sorted(waiting)
        for problem in pod.problems
    )
    return replace(group, problems=(*group.problems, *problems, *unlike))


def _left(before: GroupState, now: GroupState, members: Collection[Pod]) -> tuple[Pod, ...]:
    """Return the members that are gone and whose rank is nobody's, as long as something of the group is placed."""
    if before.group.uid != now.group.uid or not now.ever_ran or not now.placed:
        return ()
    here = {pod.uid for pod in members}
    former = (pod for pod in (*before.left, *before.failed, *before.terminating, *before.bound) if pod.index >= 0)
    gone = {(pod.role, pod.part, pod.index): pod for pod in former if pod.node and pod.uid not in here}
    for pod in (*now.bound, *now.assumed, *now.succeeded) if gone else ():
        gone.pop((pod.role, pod.part, pod.index), None)
    return tuple(gone[key] for key in sorted(gone))


def _preemptible(dialect: str, priority: int, alive: list[Pod]) -> bool | None:
    """Return whether a group that says nothing itself may be evicted for others: as its members say where they agree.

    KAI's groups are by their priority what they do not say.
    """
    said = {pod.preemptible for pod in alive}
    agreed = said.pop() if len(said) == 1 else None
    return priority < KAI_NOT_PREEMPTIBLE if agreed is None and dialect == "kai" else agreed


def _sort(pod: Pod, assumed: Mapping[str, tuple[str, str]]) -> str:
    if pod.phase == "Succeeded":
        return "succeeded"
    if pod.phase == "Failed":
        return "failed"
    if pod.deleting:
        return "terminating"
    if pod.node:
        return "bound"
    if pod.uid in assumed:
        return "assumed"
    return "gated" if pod.gated else "waiting"
