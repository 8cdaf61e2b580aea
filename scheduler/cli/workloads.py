"""The pods that controllers and operators make of their objects, for what is asked before anything is created.

Decided here: for each kind that is understood how many pods there are, of which template, and with which of the labels
and annotations that scheduling reads; as its operator does where no gang scheduler is chosen in it. What comes only
once other pods are ready or done is not made, and told. Not known here: how many of them start together
(`dialects.owners`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from scheduler.dialects.base import Reader
from scheduler.dialects.owners import GROUP_INDEX, KINDS, pods_at_once, ray_workers, replicas_of
from scheduler.model.hints import near
from scheduler.model.pods import Problem

Json = dict[str, Any]
MOST_PODS = 100_000
Marks: TypeAlias = Callable[[int], tuple[Mapping[str, str], Mapping[str, str]]]
"""Number of a pod -> its labels and its annotations."""
_NONE: Mapping[str, str] = MappingProxyType({})
_JOBSET = "jobset.sigs.k8s.io/"
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_LWS = "leaderworkerset.sigs.k8s.io/"
_KUBEFLOW = "training.kubeflow.org/"
_INDEX = "batch.kubernetes.io/job-completion-index"
_RAY_AUTOSCALER = {"cpu": "500m", "memory": "512Mi"}
"""What KubeRay gives the container that scales the cluster, where `autoscalerOptions` does not say it."""


class Unusable(ValueError):
    """An object of a file that cannot be understood; the message names it. problems: its fields, where these are it."""

    def __init__(self, text: str, problems: Iterable[Problem] = ()) -> None:
        super().__init__(text)
        self.problems = tuple(problems)


class NotUnderstood(Unusable):
    """An object of a kind of which nobody here knows what becomes of it."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What becomes of an object. owner: the object above the pods. pods: path of the template in the file, and the pod.

    unseen: what there will be besides, in words. groups: PodGroups that are made for the pods.
    """

    owner: Json
    pods: tuple[tuple[str, Json], ...]
    unseen: tuple[str, ...] = ()
    groups: tuple[Json, ...] = ()


class _Making:
    """Pods of one owner while they are made. spec: the owner's, `path` as it is in the file."""

    def __init__(self, owner: Json, path: str = "spec") -> None:
        self.owner, self.problems = owner, list[Problem]()
        self.spec = Reader(owner["spec"], path, self.problems)
        self.pods: list[tuple[str, Json]] = []
        self.unseen: list[str] = []

    @property
    def name(self) -> str:
        """The owner's."""
        return str(self.owner["metadata"]["name"])

    def add(
        self, template: Reader, names: Iterable[str], marks: Marks, *, count: int, beside: Json | None = None
    ) -> None:
        """Make pods of a template, under the first of these names. beside: a container more."""
        if not self.room_for(count, template.path):
            return
        spec, meta = template.fields.get("spec"), template.object("metadata")
        if not isinstance(spec, dict):
            self.problems.append(Problem(template.path, "has no pod spec"))
            return
        if beside is not None:
            own_containers = spec.get("containers") or []
            if not isinstance(own_containers, list):
                self.problems.append(Problem(f"{template.path}.spec.containers", "must be a list"))
                return
            spec = {**spec, "containers": [*own_containers, beside]}
        owner = self.owner
        own = owner["metadata"]
        above = {key: owner[key] for key in ("apiVersion", "kind")} | {"name": own["name"], "uid": own["uid"]}
        labels, annotations = meta.object("labels").fields, meta.object("annotations").fields
        for number, name in zip(range(count), names, strict=False):
            more_labels, more_annotations = marks(number)
            metadata = {
                **meta.fields,
                "labels": {**labels, **more_labels},
                "annotations": {**annotations, **more_annotations},
                "name": name,
                "namespace": own["namespace"],
                "uid": f"{own['uid']}-{name}",
                "resourceVersion": "1",
                "creationTimestamp": own["creationTimestamp"],
                "ownerReferences": [{**above, "controller": True}],
            }
            self.pods.append((template.path, {"kind": "Pod", "metadata": metadata, "spec": spec}))

    def room_for(self, count: int, path: str) -> bool:
        """Whether so many pods more are not too many; else that is noted."""
        if len(self.pods) + count <= MOST_PODS:
            return True
        self.problems.append(Problem(path, f"more than {MOST_PODS} pods are not looked at"))
        return False

    def suspended(self, reader: Reader) -> None:
        """Tell of an owner that is suspended."""
        if reader.flag("suspend") is True:
            self.unseen.append(f"{reader.at('suspend')} (as if it were false)")

    def done(self) -> Workload:
        """Return what there is. Raises `Unusable`."""
        title = f"{self.owner['kind']} {self.name}"
        if self.problems:
            first = self.problems[0]
            raise Unusable(f"{title}: {first.field}: {first.message}", self.problems)
        return Workload(self.owner, tuple(self.pods), tuple(f"{title}: {one}" for one in self.unseen))


def workload_of(body: Json) -> Workload | None:
    """Return what becomes of an object with completed metadata; None for one of which no pods are made as such.

    Raises `Unusable`, and `NotUnderstood` where it makes pods in a way that is not known here.
    """
    group, _, version = str(body.get("apiVersion", "")).rpartition("/")
    kind, name = body["kind"], body["metadata"]["name"]
    if (group, kind) == ("trainer.kubeflow.org", "TrainJob"):
        runtime = Reader(body["spec"], "spec", []).object("runtimeRef").text("name") or "of its own"
        wish = f"its pods are those of its runtime {runtime}; look at the JobSet that it makes instead"
        raise NotUnderstood(f"TrainJob {name}: {wish}")
    make = _MAKERS.get((group, kind))
    if make is None:
        return None
    versions = _VERSIONS.get((group, kind), ())
    if versions and version not in versions:
        wish = f"{group} has no version {version}{near(version, versions)}"
        raise Unusable(f"{kind} {name}: apiVersion: {wish}", [Problem("apiVersion", wish)])
    return make(body)


# -- Kubernetes -------------------------------------------------------------------------------------------------------


def _numbered(name: str) -> Iterable[str]:
    number = 0
    while True:
        yield f"{name}-{number}"
        number += 1


def _always(labels: Mapping[str, str]) -> Marks:
    return lambda _: (labels, _NONE)


def _job(body: Json) -> Workload:
    making = _Making(body)
    making.suspended(making.spec)
    indexed = making.spec.text("completionMode") == "Indexed"

    def marks(number: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
        return {"batch.kubernetes.io/job-name": making.name}, {_INDEX: str(number)} if indexed else _NONE

    making.add(making.spec.object("template"), _numbered(making.name), marks, count=pods_at_once(making.spec))
    return making.done()


def _replicas(body: Json) -> Workload:
    making = _Making(body)
    count = making.spec.integer("replicas", 1, 0)
    making.add(making.spec.object("template"), _numbered(making.name), _always(_NONE), count=count)
    return making.done()


# -- operators --------------------------------------------------------------------------------------------------------


def _job_set(body: Json) -> Workload:
    making = _Making(body)
    spec, meta = making.spec, Reader(body["metadata"], "metadata", making.problems)
    making.suspended(spec)
    in_order = spec.object("startupPolicy").text("startupPolicyOrder") == "InOrder"
    before = 0
    for place, job in enumerate(spec.objects("replicatedJobs")):
        called, replicas = job.text("name", str(place)), job.integer("replicas", 1, 0)
        first, before = before, before + replicas
        if job.fields.get("dependsOn") or (in_order and place):
            making.unseen.append(f"set {called}, which starts after others")
            continue
        job_spec = job.object("template").object("spec")
        at_once, template = pods_at_once(job_spec), job_spec.object("template")
        indexed = job_spec.text("completionMode", "Indexed") == "Indexed"
        own = {
            **meta.object("annotations").fields,
            **job.object("template").object("metadata").object("annotations").fields,
        }
        exclusive = {_EXCLUSIVE: str(own[_EXCLUSIVE])} if _EXCLUSIVE in own else {}
        if not at_once or not making.room_for(replicas * at_once, template.path):
            continue
        for number in range(replicas):
            name = f"{making.name}-{called}-{number}"
            key = hashlib.sha256(f"{body['metadata']['namespace']}/{name}".encode()).hexdigest()
            labels = {
                f"{_JOBSET}jobset-name": making.name,
                f"{_JOBSET}replicatedjob-name": called,
                f"{_JOBSET}replicatedjob-replicas": str(replicas),
                f"{_JOBSET}job-index": str(number),
                f"{_JOBSET}job-global-index": str(first + number),
                f"{_JOBSET}job-key": key,
            }

            def marks(
                index: int, labels: Json = labels, more: Json = exclusive, indexed: bool = indexed
            ) -> tuple[Json, Json]:
                return labels, {**labels, **more, **({_INDEX: str(index)} if indexed else {})}

            making.add(template, _numbered(name), marks, count=at_once)
    return making.done()


def _ray_cluster(body: Json, path: str = "spec", unseen: Iterable[str] = ()) -> Workload:
    making = _Making(body, path)
    making.unseen += unseen
    spec, name = making.spec, making.name
    making.suspended(spec)
    common = {"ray.io/cluster": name, "ray.io/is-ray-node": "yes"}
    head = {**common, "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    beside = None
    if spec.flag("enableInTreeAutoscaling") is True:
        given = spec.object("autoscalerOptions").object("resources").fields
        beside = {"name": "autoscaler", "image": "ray", "resources": given or {"limits": _RAY_AUTOSCALER}}
    template = spec.object("headGroupSpec").object("template")
    making.add(template, [f"{name}-head"], _always(head), count=1, beside=beside)
    for place, workers in enumerate(spec.objects("workerGroupSpecs")):
        called, count = workers.text("groupName", str(place)), ray_workers(workers)
        if workers.flag("suspend") is True:
            making.unseen.append(f"{workers.path}, which is suspended")
            continue
        labels = {**common, "ray.io/node-type": "worker", "ray.io/group": called}
        names = _numbered(f"{name}-{called}-worker")
        making.add(workers.object("template"), names, _always(labels), count=count)
    return making.done()


def _ray_job(body: Json) -> Workload:
    if body["spec"].get("clusterSelector"):
        wish = "it runs on a cluster that is there, and makes none"
        raise Unusable(f"RayJob {body['metadata']['name']}: spec.clusterSelector: {wish}")
    submits = body["spec"].get("submissionMode", "K8sJobMode") == "K8sJobMode"
    later = ("its submitter, a pod by itself that comes when the cluster is up",) if submits else ()
    return _ray_cluster(_below(body, "rayClusterSpec"), "spec.rayClusterSpec", later)


def _ray_service(body: Json) -> Workload:
    return _ray_cluster(_below(body, "rayClusterConfig"), "spec.rayClusterConfig")


def _below(body: Json, field: str) -> Json:
    """Return the RayCluster that is made of an object, under the object's name."""
    spec = body["spec"].get(field)
    if not isinstance(spec, dict):
        raise Unusable(f"{body['kind']} {body['metadata']['name']}: spec.{field}: must be an object")
    return {"apiVersion": body["apiVersion"], "kind": "RayCluster", "metadata": body["metadata"], "spec": spec}


def _leader_worker_set(body: Json) -> Workload:
    making = _Making(body)
    spec = making.spec
    parts = spec.object("leaderWorkerTemplate")
    replicas, size = spec.integer("replicas", 1, 0), parts.integer("size", 1, 1)
    workers = parts.object("workerTemplate")
    leader = parts.object("leaderTemplate") if "leaderTemplate" in parts else workers
    late = spec.text("startupPolicy") == "LeaderReady" and size > 1
    if late:
        making.unseen.append("its workers, which are made once their leader is ready")
    if f"{_LWS}exclusive-topology" in Reader(body["metadata"], "metadata", making.problems).object("annotations"):
        making.unseen.append(f"metadata.annotations[{_LWS}exclusive-topology], the affinity that its webhook adds")

    def marks(group: int, first: int) -> Marks:
        own = {f"{_LWS}name": making.name, GROUP_INDEX: str(group)}
        sizes = {f"{_LWS}size": str(size)}
        return lambda number: ({**own, f"{_LWS}worker-index": str(first + number)}, sizes)

    if not making.room_for(replicas * (1 if late else size), spec.at("replicas")):
        return making.done()
    for group in range(replicas):
        name = f"{making.name}-{group}"
        making.add(leader, [name], marks(group, 0), count=1)
        if not late and size > 1:
            names = (f"{name}-{worker}" for worker in range(1, size))
            making.add(workers, names, marks(group, 1), count=size - 1)
        if making.problems:
            break
    return making.done()


def _replica_specs(body: Json) -> Workload:
    """Jobs of Kubeflow's training operator, and of the MPI operator."""
    making = _Making(body)
    spec = making.spec
    making.suspended(spec.object("runPolicy"))
    waits = spec.text("launcherCreationPolicy") == "WaitForWorkersReady"
    first = 1 if spec.flag("runLauncherAsWorker") is True else 0
    for field in spec.fields:
        if not field.endswith("ReplicaSpecs"):
            continue
        roles = spec.object(field)
        for role in roles.fields:
            if role == "Launcher" and waits:
                making.unseen.append("its launcher, which is made once the workers are ready")
                continue
            own, name = roles.object(role), f"{making.name}-{role.lower()}"
            count = replicas_of(own, field, role)
            common = {f"{_KUBEFLOW}job-name": making.name, f"{_KUBEFLOW}replica-type": role.lower()}
            offset = first if (field, role) == ("mpiReplicaSpecs", "Worker") else 0

            def marks(number: int, common: Json = common, offset: int = offset) -> tuple[Json, Mapping[str, str]]:
                return {**common, f"{_KUBEFLOW}replica-index": str(number + offset)}, _NONE

            making.add(own.object("template"), _numbered(name), marks, count=count)
    return making.done()


def _volcano_job(body: Json) -> Workload:
    """What Volcano's controller makes: the pods of all tasks, and their PodGroup."""
    making = _Making(body)
    spec, name, meta = making.spec, making.name, body["metadata"]
    scheduler, queue = spec.text("schedulerName", "volcano"), spec.text("queue", "default")
    there, least = 0, dict[str, int]()
    for place, task in enumerate(spec.objects("tasks")):
        called, count = task.text("name", f"default{place}"), task.integer("replicas", 1, 0)
        if task.fields.get("dependsOn"):
            making.unseen.append(f"task {called}, which starts after others")
            continue
        there, least[called] = there + count, task.integer("minAvailable", count, 0)
        keys = {"volcano.sh/job-name": name, "volcano.sh/task-spec": called, "volcano.sh/queue-name": queue}

        def marks(number: int, keys: Json = keys) -> tuple[Json, Json]:
            own = {**keys, "volcano.sh/task-index": str(number)}
            return own, {**own, "scheduling.k8s.io/group-name": name}

        template = task.object("template")
        pod = template.fields.get("spec")
        if isinstance(pod, dict) and not pod.get("schedulerName"):
            pod = {**pod, "schedulerName": scheduler}
            template = Reader({**template.fields, "spec": pod}, template.path, making.problems)
        making.add(template, _numbered(f"{name}-{called}"), marks, count=count)
    minimum = spec.integer("minAvailable", sum(least.values()), 0)
    if making.unseen:
        minimum = min(minimum, there)
    said = {key: spec.fields[key] for key in ("priorityClassName", "networkTopology") if key in spec.fields}
    group: Json = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {**meta, "uid": f"{meta['uid']}-group"},
        "spec": {"minMember": minimum, "minTaskMember": least, "queue": queue, **said},
    }
    return replace(making.done(), groups=(group,) if making.pods else ())


_MAKERS: Mapping[tuple[str, str], Callable[[Json], Workload]] = MappingProxyType(
    {
        ("batch", "Job"): _job,
        **{("apps", kind): _replicas for kind in ("Deployment", "ReplicaSet", "StatefulSet")},
        ("batch.volcano.sh", "Job"): _volcano_job,
        ("jobset.x-k8s.io", "JobSet"): _job_set,
        ("ray.io", "RayCluster"): _ray_cluster,
        ("ray.io", "RayJob"): _ray_job,
        ("ray.io", "RayService"): _ray_service,
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
        **{("kubeflow.org", one.kind): _replica_specs for one in KINDS if one.group == "kubeflow.org"},
    }
)
_VERSIONS: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("batch", "Job"): ("v1",),
        ("batch.volcano.sh", "Job"): ("v1alpha1",),
        **{("apps", kind): ("v1",) for kind in ("Deployment", "ReplicaSet", "StatefulSet")},
        **{(one.group, one.kind): one.versions for one in KINDS},
        **{("ray.io", kind): ("v1",) for kind in ("RayJob", "RayService")},
    }
)
