"""Two pods that claim the same port of the host are never on one node; addresses are compared as in kube-scheduler."""

from __future__ import annotations

from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.framework.relations import NO_RELATIONS, Bar, Members, Relations
from scheduler.model.pods import Shape
from scheduler.model.rules import Repel

REASON = "node(s) didn't have free ports for the requested pod ports"


class HostPorts:
    """See the module."""

    name = "hostports"
    keeps = ("hostPorts",)

    def __init__(self, arguments: Arguments) -> None:
        pass

    def relates(self, members: tuple[Members, ...], view: View, *, empty: bool) -> Relations:
        """Bar nodes on which a port is taken, and keep members apart that claim the same."""
        asking = [kind for kind, one in enumerate(members) if one.shape.host_ports]
        if not asking:
            return NO_RELATIONS
        bars = []
        for kind in () if empty else asking:
            taken = view.neighbours.ports_in_use(members[kind].shape.host_ports)
            if taken.any():
                bars.append(Bar(kind, taken, REASON, early=True))
        rules = []
        for position, kind in enumerate(asking):
            against = tuple(other for other in asking[position:] if conflict(members[kind].shape, members[other].shape))
            if against and (against != (kind,) or len(members[kind].pods) > 1):
                rules.append(Repel("", (kind,), against))
        return Relations(bars=tuple(bars), rules=tuple(rules))


def conflict(one: Shape, other: Shape) -> bool:
    """Whether pods of the two shapes cannot share a node."""
    return any(port.conflicts(taken) for port in one.host_ports for taken in other.host_ports)
