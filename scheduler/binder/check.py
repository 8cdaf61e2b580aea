"""The last look at pods and nodes before a gang is bound, from what the caches have.

Decided here: which members can no longer be bound where the scheduler put them, and the cause. Must not know: whether
the gang survives that (the machine decides). Members that pass are charged to their nodes at once, in order, or (while
victims are there) noted as those who come in their stead, so that two gangs never pass into the same room.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from scheduler.binder.causes import CONFLICT, MALFORMED, POD_ENDED, POD_GATED, POD_GONE
from scheduler.binder.ledger import Ledger
from scheduler.binder.record import Checked, Failure
from scheduler.model.decisions import Assignment, Place
from scheduler.model.nodes import Node, Taint
from scheduler.model.pods import Pod, Shape, Toleration

NODE_GONE = "NodeGone"
NODE_CORDONED = "NodeCordoned"
NODE_FULL = "NodeFull"
NODE_TAINTED = "NodeTainted"
FOREIGN = "ForeignPod"

_NAMES = re.compile(r"[a-z0-9][a-z0-9.-]*/[a-z0-9][a-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9._:-]*/[a-z0-9][a-z0-9.-]*")
_CORDON = "node.kubernetes.io/unschedulable"


def check(
    place: Place,
    *,
    now: float,
    pod_of: Callable[[str], Pod | None],
    node_of: Callable[[str], Node | None],
    claimed: Callable[[str], bool],
    ledger: Ledger,
    resumed: bool,
    room: bool = True,
    covered: Callable[[Pod], bool] = lambda _: False,
) -> Checked:
    """Return what was found, and charge the members that may be bound.

    `claimed`: whether another gang under way has this pod. `resumed`: a member that ran on its node counts as bound.
    `covered`: whether a disruption budget covers a victim; victims are looked at only where there need not be room yet.
    """
    failures: list[Failure] = []
    present: list[int] = []
    ended: list[int] = []
    seen: set[str] = set()
    victims = frozenset(victim.uid for victim in place.victims)
    for member, assignment in enumerate(place.assignments):
        pod = pod_of(assignment.uid)
        twice = assignment.uid in seen
        seen.add(assignment.uid)
        if pod is not None and pod.node == assignment.node and not twice and not claimed(pod.uid):
            if pod.finished and (resumed or pod.phase == "Succeeded"):
                ended.append(member)
                continue
            if not pod.finished and not pod.deleting:
                present.append(member)
                continue
        cause, permanent = _pod_cause(assignment, pod)
        if not cause and (twice or (pod is not None and claimed(pod.uid))):
            cause, permanent = (MALFORMED, True) if twice else (CONFLICT, False)
        if not cause and pod is not None:
            cause, permanent = _node_cause(pod, node_of(assignment.node), ledger, room)
        if cause:
            failures.append(Failure(member, cause, permanent))
        elif pod is not None and room:
            ledger.assume(pod, assignment.node)
        elif pod is not None:
            ledger.expect(pod, assignment.node, victims)
    gone, leaving, under = ((), (), ()) if room else _victims(place, pod_of, covered)
    return Checked(now, tuple(failures), tuple(present), tuple(ended), gone, leaving, under)


def _victims(
    place: Place, pod_of: Callable[[str], Pod | None], covered: Callable[[Pod], bool]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return those that are gone, those that are leaving, and those of the others that a budget covers."""
    gone: list[int] = []
    leaving: list[int] = []
    under: list[int] = []
    for number, victim in enumerate(place.victims):
        pod = pod_of(victim.uid)
        if pod is None or pod.finished:
            gone.append(number)
        elif pod.deleting:
            leaving.append(number)
        elif covered(pod):
            under.append(number)
    return tuple(gone), tuple(leaving), tuple(under)


def bad_victim(place: Place) -> bool:
    """Whether there is a victim that no path can name, or that is itself to be bound."""
    members = {assignment.uid for assignment in place.assignments}
    return any(
        victim.uid in members or _NAMES.fullmatch(f"{victim.namespace}/{victim.pod}/{victim.uid}/{victim.node}") is None
        for victim in place.victims
    )


def foreign_victim(place: Place, pod_of: Callable[[str], Pod | None]) -> bool:
    """Whether there is a victim that is another scheduler's pod: no session names one."""
    return any(pod is not None and not pod.ours for pod in (pod_of(victim.uid) for victim in place.victims))


def barred(assignment: Assignment, pod: Pod | None, node: Node | None, ledger: Ledger) -> tuple[str, bool]:
    """Return why a member could not be bound to its node even if all victims were gone, or ""; and if that is for good.

    A taint that it does not tolerate has come since it was placed: the victims there may never end.
    """
    cause, permanent = _pod_cause(assignment, pod)
    if not cause and pod is not None:
        cause, permanent = _node_cause(pod, node, ledger, room=False)
        if not cause and node is not None and _repels(node, ledger.shape(pod)):
            return NODE_TAINTED, False
    return cause, permanent


def recheck(pod: Pod | None, node: Node | None, ledger: Ledger) -> str:
    """Return why a member that passed its check, and is charged, may not be tried again after a while, or ""."""
    if pod is None:
        return POD_GONE
    if node is None or node.deleting:
        return NODE_GONE
    if node.unschedulable and not _tolerates_cordon(ledger.shape(pod)):
        return NODE_CORDONED
    return "" if ledger.holds(ledger.requests(pod), node) else NODE_FULL


def _pod_cause(assignment: Assignment, pod: Pod | None) -> tuple[str, bool]:
    names = f"{assignment.namespace}/{assignment.pod}/{assignment.uid}/{assignment.node}"
    if _NAMES.fullmatch(names) is None:
        return MALFORMED, True
    if pod is None or pod.deleting:
        return POD_GONE, True
    if (pod.namespace, pod.name) != (assignment.namespace, assignment.pod):
        return MALFORMED, True
    if pod.finished:
        return POD_ENDED, True
    if pod.node:
        return CONFLICT, True
    if not pod.ours:
        return FOREIGN, True
    return (POD_GATED, False) if pod.gated else ("", False)


def _node_cause(pod: Pod, node: Node | None, ledger: Ledger, room: bool) -> tuple[str, bool]:
    if node is None or node.deleting:
        return NODE_GONE, True
    if node.unschedulable and not _tolerates_cordon(ledger.shape(pod)):
        return NODE_CORDONED, False
    if room and not ledger.fits(ledger.requests(pod), node):
        return NODE_FULL, False
    return "", False


def _repels(node: Node, shape: Shape) -> bool:
    return any(
        taint.effect in ("NoSchedule", "NoExecute")
        and not any(_tolerates(toleration, taint) for toleration in shape.tolerations)
        for taint in node.taints
        if taint.key != _CORDON
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration accepts a taint; one that compares numbers was found to do so by the scheduler."""
    if toleration.effect not in ("", taint.effect) or (toleration.key and toleration.key != taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return bool(toleration.key) and toleration.value == taint.value
    return True


def _tolerates_cordon(shape: Shape) -> bool:
    return any(
        toleration.effect in ("", "NoSchedule")
        and (toleration.key == _CORDON or (not toleration.key and toleration.operator == "Exists"))
        and (toleration.operator == "Exists" or not toleration.value)
        for toleration in shape.tolerations
    )
