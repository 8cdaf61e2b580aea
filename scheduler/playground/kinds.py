"""Which resources exist: the built-in kinds that are served and what is special about each.

Decided here: names, scope, sub-resources and short names of built-in resources. CustomResourceDefinitions add to the
same registry at runtime (crds.py). Nothing here knows how objects are stored or validated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class Resource:
    """One served resource. `versions` starts with the storage version; views of other versions share the storage."""

    group: str
    versions: tuple[str, ...]
    plural: str
    singular: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    generation: bool = False
    """The server bumps metadata.generation when anything but metadata and status changes."""
    status_reset: bool = True
    """With a status sub-resource: plain writes never touch status, and create drops it."""
    ephemeral: bool = False
    """Reviews: answered, never stored."""
    crd: Any = None
    """crds.CustomResource for resources defined at runtime."""
    storage: str = ""
    """Key of the collection; another resource's key when the two share objects (events)."""
    schemas: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.storage:
            self.storage = f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        """Tell whether the status sub-resource is served."""
        return "status" in self.subresources

    def api_version(self, version: str) -> str:
        """Return "v1" or "batch/v1"."""
        return f"{self.group}/{version}" if self.group else version


_STATUS = frozenset({"status"})
_SCALED = frozenset({"status", "scale"})


def _core(plural: str, kind: str, **options: Any) -> Resource:
    return Resource("", ("v1",), plural, kind.lower(), kind, **options)


def _of(group: str, version: str, plural: str, kind: str, **options: Any) -> Resource:
    return Resource(group, (version,), plural, kind.lower(), kind, **options)


def builtin_resources(native_groups: bool = True) -> list[Resource]:
    """Return the built-in resources; `native_groups` serves scheduling.k8s.io PodGroup and Workload.

    Long because it is a table: one entry a resource, nothing is decided in it.
    """
    everywhere = ("all",)
    rows = [
        _core(
            "pods",
            "Pod",
            short_names=("po",),
            categories=everywhere,
            subresources=frozenset({"status", "binding", "eviction", "resize"}),
            generation=True,
        ),
        _core("nodes", "Node", namespaced=False, short_names=("no",), subresources=_STATUS, status_reset=False),
        _core(
            "namespaces",
            "Namespace",
            namespaced=False,
            short_names=("ns",),
            subresources=frozenset({"status", "finalize"}),
        ),
        _core("services", "Service", short_names=("svc",), categories=everywhere, subresources=_STATUS),
        _core("configmaps", "ConfigMap", short_names=("cm",)),
        _core("secrets", "Secret"),
        _core("serviceaccounts", "ServiceAccount", short_names=("sa",)),
        _core("events", "Event", short_names=("ev",)),
        _core("endpoints", "Endpoints", short_names=("ep",)),
        _core("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), subresources=_STATUS),
        _core("persistentvolumes", "PersistentVolume", namespaced=False, short_names=("pv",), subresources=_STATUS),
        _core(
            "replicationcontrollers",
            "ReplicationController",
            short_names=("rc",),
            categories=everywhere,
            subresources=_SCALED,
            generation=True,
        ),
        _core("resourcequotas", "ResourceQuota", short_names=("quota",), subresources=_STATUS),
        _core("limitranges", "LimitRange", short_names=("limits",)),
        _core("podtemplates", "PodTemplate", generation=True),
        _of("events.k8s.io", "v1", "events", "Event", short_names=("ev",), storage="events"),
        _of(
            "apps",
            "v1",
            "deployments",
            "Deployment",
            short_names=("deploy",),
            categories=everywhere,
            subresources=_SCALED,
            generation=True,
        ),
        _of(
            "apps",
            "v1",
            "replicasets",
            "ReplicaSet",
            short_names=("rs",),
            categories=everywhere,
            subresources=_SCALED,
            generation=True,
        ),
        _of(
            "apps",
            "v1",
            "statefulsets",
            "StatefulSet",
            short_names=("sts",),
            categories=everywhere,
            subresources=_SCALED,
            generation=True,
        ),
        _of(
            "apps",
            "v1",
            "daemonsets",
            "DaemonSet",
            short_names=("ds",),
            categories=everywhere,
            subresources=_STATUS,
            generation=True,
        ),
        _of("apps", "v1", "controllerrevisions", "ControllerRevision"),
        _of("batch", "v1", "jobs", "Job", categories=everywhere, subresources=_STATUS, generation=True),
        _of(
            "batch",
            "v1",
            "cronjobs",
            "CronJob",
            short_names=("cj",),
            categories=everywhere,
            subresources=_STATUS,
            generation=True,
        ),
        _of("coordination.k8s.io", "v1", "leases", "Lease"),
        _of("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", generation=True),
        _of(
            "policy",
            "v1",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            short_names=("pdb",),
            subresources=_STATUS,
            generation=True,
        ),
        _of(
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
            "PriorityClass",
            namespaced=False,
            short_names=("pc",),
            generation=True,
        ),
        _of(
            "storage.k8s.io",
            "v1",
            "storageclasses",
            "StorageClass",
            namespaced=False,
            short_names=("sc",),
        ),
        _of("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False),
        _of("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False),
        _of("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
        _of("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False, subresources=_STATUS),
        _of("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False),
        _of("rbac.authorization.k8s.io", "v1", "roles", "Role"),
        _of("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
        _of("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
        _of("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        _of(
            "admissionregistration.k8s.io",
            "v1",
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
            namespaced=False,
            generation=True,
        ),
        _of(
            "admissionregistration.k8s.io",
            "v1",
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
            namespaced=False,
            generation=True,
        ),
        _of(
            "admissionregistration.k8s.io",
            "v1",
            "validatingadmissionpolicies",
            "ValidatingAdmissionPolicy",
            namespaced=False,
            subresources=_STATUS,
            generation=True,
        ),
        _of(
            "admissionregistration.k8s.io",
            "v1",
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
            namespaced=False,
            generation=True,
        ),
        _of("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", subresources=_STATUS),
        _of(
            "networking.k8s.io",
            "v1",
            "networkpolicies",
            "NetworkPolicy",
            short_names=("netpol",),
            generation=True,
        ),
        _of(
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            namespaced=False,
            short_names=("crd", "crds"),
            categories=("api-extensions",),
            subresources=_STATUS,
            generation=True,
        ),
        _of(
            "authorization.k8s.io",
            "v1",
            "selfsubjectaccessreviews",
            "SelfSubjectAccessReview",
            namespaced=False,
            ephemeral=True,
        ),
        _of(
            "authorization.k8s.io",
            "v1",
            "subjectaccessreviews",
            "SubjectAccessReview",
            namespaced=False,
            ephemeral=True,
        ),
        _of(
            "authentication.k8s.io",
            "v1",
            "selfsubjectreviews",
            "SelfSubjectReview",
            namespaced=False,
            ephemeral=True,
        ),
    ]
    if native_groups:
        rows += [
            _of("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", subresources=_STATUS),
            _of("scheduling.k8s.io", "v1beta1", "workloads", "Workload"),
        ]
    return rows


class Registry:
    """The served resources, by (group, version, plural)."""

    def __init__(self, resources: list[Resource]) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self.generation = 0
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        """Serve a resource in all its versions."""
        for version in resource.versions:
            self._by_path[resource.group, version, resource.plural] = resource
        self.generation += 1

    def remove(self, resource: Resource) -> None:
        """Stop serving a resource."""
        for path in [path for path, one in self._by_path.items() if one is resource]:
            del self._by_path[path]
        self.generation += 1

    def get(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource at a path."""
        return self._by_path.get((group, version, plural))

    def serves(self, group: str, version: str) -> bool:
        """Tell whether anything is served in a group version."""
        return any(path[0] == group and path[1] == version for path in self._by_path)

    def find(self, group: str, plural: str) -> Resource | None:
        """Return the resource of a group in whatever version."""
        for (one_group, _, one_plural), resource in self._by_path.items():
            if one_group == group and one_plural == plural:
                return resource
        return None

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource that an ownerReference names."""
        group, _, version = api_version.rpartition("/")
        for (one_group, one_version, _), resource in self._by_path.items():
            if one_group == group and one_version == version and resource.kind == kind:
                return resource
        return None

    def rows(self) -> Iterator[tuple[str, str, Resource]]:
        """Yield (group, version, resource) in order."""
        for (group, version, _), resource in sorted(self._by_path.items(), key=lambda row: row[0]):
            yield group, version, resource
