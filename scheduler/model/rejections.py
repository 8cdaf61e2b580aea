"""Which pods were bound and then refused by the kubelet at admission, as opposed to having run and failed.

A refused pod is over: only its controller can make another. Its node takes no pod of the same shape for a while,
because the node knows something that the API does not show (a device that died, a pod that is not quite gone).
"""

from __future__ import annotations

from scheduler.model.pods import Pod

_REASONS = frozenset(
    {
        "InitContainerRestartPolicyForbidden",
        "InvalidNodeInfo",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "NodeShutdown",
        "PodFeatureUnsupported",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SMTAlignmentError",
        "SupplementalGroupsPolicyNotSupported",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)


def rejected(pod: Pod) -> str | None:
    """Return the kubelet's reason when it refused the pod at admission, else None.

    "Evicted" is a refusal only of a pod that never started: a node under pressure also evicts pods that ran.
    """
    if pod.phase != "Failed" or not pod.node:
        return None
    reason = pod.status_reason
    if reason.startswith("OutOf") or reason in _REASONS or (reason == "Evicted" and not pod.started):
        return reason
    return None
