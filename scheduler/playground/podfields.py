"""The field names of pods: what is unknown is dropped, and said.

Decided here: which names exist directly in a pod, its spec and its containers; deeper fields are kept as they come. It
must not know values. Invariant: a field that the real server knows is never dropped.
"""

from __future__ import annotations

from scheduler.playground.errors import Obj

_POD = frozenset(["apiVersion", "kind", "metadata", "spec", "status"])
_SPEC = frozenset(
    [
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "evictionResponders",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "os",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "schedulingGroup",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    ]
)
_CONTAINER = frozenset(
    [
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "name",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "resources",
        "restartPolicy",
        "restartPolicyRules",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    ]
)


def _drop(obj: Obj, known: frozenset[str], where: str) -> list[str]:
    unknown = sorted(name for name in obj if name not in known)
    for name in unknown:
        del obj[name]
    return [f"{where}{name}" for name in unknown]


def drop_unknown(pod: Obj) -> list[str]:
    """Drop unknown fields of a pod in place and return their paths."""
    dropped = _drop(pod, _POD, "")
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return dropped
    dropped += _drop(spec, _SPEC, "spec.")
    for kind in ("containers", "initContainers"):
        rows = spec.get(kind)
        for index, row in enumerate(rows if isinstance(rows, list) else ()):
            if isinstance(row, dict):
                dropped += _drop(row, _CONTAINER, f"spec.{kind}[{index}].")
    return sorted(dropped)
