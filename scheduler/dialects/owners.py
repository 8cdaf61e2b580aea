"""Kinds whose pods start together although nobody states a group: how many of them, read from the owner's spec.

Decided here: which kinds these are, and what of their pods is needed before the work can begin. What their controllers
make only later (sets that start in order, workers that wait for their leader, a launcher that waits for its workers)
does not count: a gang that waited for it would wait for ever. An annotation `scheduling.muster.sh/min-member` on the
owner goes first. Also how the PodGroup looks that is made for an owner. Not known here: which pods there are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from scheduler.dialects import membership
from scheduler.dialects.base import Reader, plain
from scheduler.dialects.membership import MADE_FOR, MAX_MEMBERS, NO_KEYS, Keys
from scheduler.dialects.meta import Identity, OwnerReference, undecodable
from scheduler.model.owners import Owner, Reference
from scheduler.model.pods import Problem

GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
"""The label that tells the replicas of a LeaderWorkerSet apart."""
GROUP_API = "scheduling.muster.sh/v1alpha1"
_NAME = 57
_STEP = re.compile(r"([A-Za-z0-9_-]+)(\[\*\])?")


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """A kind of owners. versions: those that are understood, best first. minimum: its spec -> pods that start together.

    shard: see `Owner`.
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    minimum: Callable[[Reader], int]
    shard: str = ""

    @property
    def title(self) -> str:
        """As kubectl writes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class _Meta(Identity, gc=False, rename="camel"):
    labels: Keys | None = None
    annotations: Keys | None = None
    owner_references: list[OwnerReference] | None = None


class _Struct(msgspec.Struct, gc=False, rename="camel"):
    metadata: _Meta
    api_version: str = ""
    kind: str = ""
    spec: msgspec.Raw = msgspec.Raw(b"")


class _Kin(msgspec.Struct, gc=False):
    metadata: _Meta


_decode = msgspec.json.Decoder(_Struct)
_decode_kin = msgspec.json.Decoder(_Kin)


def controller(references: Iterable[OwnerReference] | None) -> Reference | None:
    """Return the one of an object's owners that controls it."""
    for one in references or ():
        if one.controller:
            return Reference(one.api_version, one.kind, one.name, one.uid)
    return None


def decode_above(raw: bytes | msgspec.Raw, kind: str) -> tuple[str, Reference | None]:
    """Return an object's uid and its controller; metadata is enough. Raises `Undecodable`."""
    try:
        meta = _decode_kin.decode(raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise undecodable(kind, raw, cause) from cause
    return meta.uid, controller(meta.owner_references)


def group_name(owner: Reference) -> str:
    """Return the name of the PodGroup that is made for an owner."""
    return f"{owner.name[:_NAME].rstrip('-.')}-{hashlib.sha256(owner.uid.encode()).hexdigest()[:5]}"


def group_spec(owner: Owner) -> dict[str, Any]:
    """Return the spec of the PodGroup that is made for an owner."""
    if not owner.shard:
        return {"minMember": owner.minimum}
    part = {"name": "replica", "matchLabelKeys": [owner.shard], "minMember": owner.minimum, "minSubGroups": 1}
    return {"minMember": owner.minimum, "subGroups": [part]}


def group_for(owner: Owner, *, preemptible: bool | None) -> dict[str, Any]:
    """Return the PodGroup that is made for an owner, as JSON. preemptible: what its pods say of themselves."""
    reference = owner.reference
    spec = group_spec(owner)
    if preemptible is False:
        spec["preemptible"] = False
    above = {"apiVersion": reference.api, "kind": reference.kind, "name": reference.name, "uid": reference.uid}
    meta = {
        "name": group_name(reference),
        "namespace": owner.namespace,
        "labels": {MADE_FOR: owner.uid},
        "ownerReferences": [above],
    }
    return {"apiVersion": GROUP_API, "kind": "PodGroup", "metadata": meta, "spec": spec}


def decode(raw: bytes | msgspec.Raw, kind: OwnerKind, api_version: str) -> Owner:
    """Return an owner. Raises `Undecodable`; fields that cannot be used are in its `problems`."""
    try:
        struct = _decode.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise undecodable(kind.kind, raw, cause) from cause
    meta, problems = struct.metadata, list[Problem]()
    labels, annotations = meta.labels or NO_KEYS, meta.annotations or NO_KEYS
    minimum = membership.min_member(labels, annotations, problems)
    if not minimum and not problems:
        minimum = kind.minimum(Reader(plain(struct.spec), "spec", problems))
    where = f"{kind.kind} {meta.name}: "
    return Owner(
        reference=Reference(api_version, kind.kind, meta.name, meta.uid),
        namespace=meta.namespace,
        minimum=0 if problems else minimum,
        shard=kind.shard,
        above=controller(meta.owner_references),
        deleting=meta.deletion_timestamp is not None,
        problems=tuple(Problem(where + one.field, one.message) for one in problems),
        resource_version=meta.resource_version,
    )


# -- the kinds --------------------------------------------------------------------------------------------------------


def _job_set(spec: Reader) -> int:
    """Sets that are to start after others are not waited for."""
    jobs = list(spec.objects("replicatedJobs"))
    if spec.object("startupPolicy").text("startupPolicyOrder") == "InOrder":
        jobs = jobs[:1]
    total = 0
    for job in jobs:
        if job.fields.get("dependsOn"):
            continue
        total += job.integer("replicas", 1, 0) * pods_at_once(job.object("template").object("spec"))
    return total


def pods_at_once(job: Reader) -> int:
    """Return how many pods of a Job there are at once, from its spec."""
    parallel = job.integer("parallelism", 1, 0)
    return min(parallel, job.integer("completions", parallel, 0))


def ray_workers(workers: Reader) -> int:
    """Return how many pods there are of one group of Ray's workers."""
    least, most = workers.integer("minReplicas", 0, 0), workers.integer("maxReplicas", MAX_MEMBERS, 0)
    return min(max(least, workers.integer("replicas", least, 0)), most) * workers.integer("numOfHosts", 1, 1)


def _ray_cluster(spec: Reader) -> int:
    """The head and all workers; where Ray scales by itself, as few workers as it may."""
    scales = spec.flag("enableInTreeAutoscaling") is True
    total = 1
    for workers in spec.objects("workerGroupSpecs"):
        if workers.flag("suspend") is True:
            continue
        least = workers.integer("minReplicas", 0, 0) * workers.integer("numOfHosts", 1, 1)
        total += min(least, ray_workers(workers)) if scales else ray_workers(workers)
    return total


def _leader_worker_set(spec: Reader) -> int:
    """Each replica by itself; the leader alone where workers are made once it is ready."""
    size = spec.object("leaderWorkerTemplate").integer("size", 1, 1)
    return 1 if spec.text("startupPolicy") == "LeaderReady" else size


def _replica_specs(spec: Reader) -> int:
    """All kinds of replicas of a job of Kubeflow; its own minimum goes first."""
    given = spec.object("runPolicy").object("schedulingPolicy").integer("minAvailable", 0, 0)
    if given:
        return given
    waits = spec.text("launcherCreationPolicy") == "WaitForWorkersReady"
    least = spec.object("elasticPolicy").integer("minReplicas", 0, 0)
    total = 0
    for name in spec.fields:
        if not name.endswith("ReplicaSpecs"):
            continue
        replicas = spec.object(name)
        for role in replicas.fields:
            if role == "Launcher" and waits:
                continue
            number = replicas_of(replicas.object(role), name, role)
            total += min(number, least) if least and role == "Worker" else number
    return total


def replicas_of(one: Reader, field: str, role: str) -> int:
    """Return how many pods there are of a role of a job of Kubeflow; of workers of MPI there are none by default."""
    return one.integer("replicas", 0 if (field, role) == ("mpiReplicaSpecs", "Worker") else 1, 0)


def _mini_cluster(spec: Reader) -> int:
    return spec.integer("minSize", 0, 0) or spec.integer("size", 1, 0)


_KUBEFLOW = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
KINDS: tuple[OwnerKind, ...] = (
    OwnerKind("jobset.x-k8s.io", ("v1alpha2",), "jobsets", "JobSet", _job_set),
    OwnerKind("ray.io", ("v1",), "rayclusters", "RayCluster", _ray_cluster),
    OwnerKind(
        "leaderworkerset.x-k8s.io", ("v1",), "leaderworkersets", "LeaderWorkerSet", _leader_worker_set, GROUP_INDEX
    ),
    OwnerKind("kubeflow.org", ("v2beta1", "v1"), "mpijobs", "MPIJob", _replica_specs),
    *(OwnerKind("kubeflow.org", ("v1",), f"{kind.lower()}s", kind, _replica_specs) for kind in _KUBEFLOW),
    OwnerKind("flux-framework.org", ("v1alpha2",), "miniclusters", "MiniCluster", _mini_cluster),
)
"""The kinds that are known without configuration; README and docs/reference/operators.md list them."""


def by_paths(group: str, version: str, plural: str, kind: str, paths: Iterable[str]) -> OwnerKind:
    """Return a kind whose minimum is the sum of integers at paths such as "spec.roles[*].replicas".

    Raises `ValueError` for a path that is none. What is absent counts nothing.
    """
    steps = [_steps(path) for path in paths]

    def minimum(spec: Reader) -> int:
        return sum(_sum(spec, path) for path in steps)

    return OwnerKind(group, (version,), plural, kind, minimum)


def _steps(path: str) -> tuple[tuple[str, bool], ...]:
    found = []
    for word in path.split("."):
        match = _STEP.fullmatch(word)
        if match is None:
            raise ValueError(f'{path!r} is no path (write "spec.replicas" or "spec.roles[*].replicas")')
        found.append((match[1], bool(match[2])))
    if len(found) < 2 or found[0] != ("spec", False) or found[-1][1]:
        raise ValueError(f'{path!r} is no path of a number below "spec."')
    return tuple(found[1:])


def _sum(reader: Reader, steps: tuple[tuple[str, bool], ...]) -> int:
    (name, every), rest = steps[0], steps[1:]
    if not rest:
        return reader.integer(name, 0, 0)
    below = reader.objects(name) if every else (reader.object(name),)
    return sum(_sum(one, rest) for one in below)


def with_more(more: Iterable[OwnerKind]) -> tuple[OwnerKind, ...]:
    """Return the known kinds and more; one of the same resource replaces a known one."""
    found = {(one.group, one.plural): one for one in (*KINDS, *more)}
    return tuple(found.values())


class Stated(Protocol):
    """A kind as a configuration states it; minimum: paths."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def resource(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def minimum(self) -> Iterable[str]: ...


def configured(more: Iterable[Stated]) -> tuple[OwnerKind, ...]:
    """Return the known kinds and those that a configuration states. Raises `ValueError` for a path that is none."""
    return with_more(by_paths(one.group, one.version, one.resource, one.kind, one.minimum) for one in more)
