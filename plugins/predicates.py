"""Which nodes may host a pod at all, as kube-scheduler decides it.

Decided here: cordons, taints, node selector and node affinity, and the features that the kubelet must have declared.

Amounts of resources and pod slots are kept by placement and need no predicate. The reasons are kube-scheduler's words,
in its order: the first that holds is the node's reason.
"""

from __future__ import annotations

from scheduler.framework.matching import matches_affinity, tolerates, untolerated
from scheduler.framework.protocols import Misfit
from scheduler.framework.registry import Arguments
from scheduler.model.nodes import NodeClass, Taint
from scheduler.model.pods import Shape

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints that the node controllers set and take away; what they reject today may fit tomorrow."""


class Predicates:
    """See the module."""

    name = "predicates"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def fits(self, shape: Shape, node_class: NodeClass) -> Misfit | None:
        """Return the first reason against the class, or None."""
        if node_class.unschedulable and not any(tolerates(one, UNSCHEDULABLE) for one in shape.tolerations):
            return Misfit("node(s) were unschedulable", lasting=not _suits(shape, node_class))
        taints = untolerated(shape, node_class, ("NoSchedule", "NoExecute"))
        if taints:
            first = taints[0]
            passing = all(taint.key.startswith(_PASSING) for taint in taints)
            return Misfit(
                f"node(s) had untolerated taint {{{first.key}: {first.value}}}",
                lasting=not (passing and _suits(shape, node_class)),
            )
        if not matches_affinity(shape, node_class):
            return Misfit("node(s) didn't match Pod's node affinity/selector")
        if not _able(shape, node_class):
            return Misfit("node(s) didn't match Pod's required features")
        return None


def _able(shape: Shape, node_class: NodeClass) -> bool:
    return set(shape.features).issubset(node_class.features)


def _suits(shape: Shape, node_class: NodeClass) -> bool:
    """Whether it would fit without what passes."""
    return matches_affinity(shape, node_class) and _able(shape, node_class)
