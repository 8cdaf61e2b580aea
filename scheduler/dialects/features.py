"""What a pod spec needs a node's kubelet to be able to do (`status.declaredFeatures`).

Decided here: the table of Kubernetes 1.37, the features that it infers for a pod that is to be scheduled. Features that
matter for claims or for changes of a running pod only are not in it. A feature that is not in the table is not asked
for: then the kubelet has the last word.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
_RESTART_ALL = "RestartAllContainersOnContainerExits"
_MOUNT_OPTIONS = "VolumeBindMountOptions"
KNOWN = frozenset((_HOST_NETWORK, _RESTART_ALL, _MOUNT_OPTIONS))
"""The features that a pod may need; no others of a node are kept."""
OPTIONS = b"bindMountOptions"
"""What mounts with options have in their bytes: almost every container has mounts, and almost none has these."""


class _RuleStruct(msgspec.Struct, gc=False):
    action: str = ""


class _MountStruct(msgspec.Struct, gc=False, rename="camel"):
    bind_mount_options: list[str] | None = None


_rules = msgspec.json.Decoder(list[_RuleStruct] | None)
_mounts = msgspec.json.Decoder(list[_MountStruct] | None)


def needed(
    *, host_network: bool, host_users: bool | None, rules: Iterable[msgspec.Raw], mounts: Iterable[msgspec.Raw]
) -> tuple[str, ...]:
    """Return the features that a spec needs, sorted.

    rules, mounts: restartPolicyRules and volumeMounts of its containers, as they are. Raises `msgspec.DecodeError`.
    """
    found: set[str] = set()
    if host_network and host_users is False:
        found.add(_HOST_NETWORK)
    if any(rule.action == "RestartAllContainers" for raw in rules if raw for rule in _rules.decode(raw) or ()):
        found.add(_RESTART_ALL)
    spoken = (raw for raw in mounts if OPTIONS in bytes(raw))
    if any(mount.bind_mount_options for raw in spoken for mount in _mounts.decode(raw) or ()):
        found.add(_MOUNT_OPTIONS)
    return tuple(sorted(found))
