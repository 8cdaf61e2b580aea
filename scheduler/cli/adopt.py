"""`muster adopt NAMESPACE`: what would change if a namespace became Muster's; --yes does it, --undo takes it back.

Decided here: what adopting is: the label that the policy `muster-scheduler-name` looks for, and that policy where it is
missing and served. Nothing else is written: pods that exist are not touched, because a pod keeps the scheduler that it
was made for; queues of other APIs are read as they are. The rest is told: which workloads become what, and what of
them this version cannot run. Each step is taken only where it is needed, so that a second call changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from scheduler.app import load_configuration
from scheduler.cli import reading
from scheduler.cli.get import dialect_of
from scheduler.cli.kin import OTHERS
from scheduler.cli.manifests import ANY_CLASS, pod_events, templates_of
from scheduler.cli.output import FAILED, OK, USAGE, complain, emit, listing, note, table, with_client
from scheduler.cli.shipped import NotShipped, shipped
from scheduler.cli.workloads import Unusable
from scheduler.cluster import feed
from scheduler.cluster.client import ApiClient, ApiError, path_of
from scheduler.config import ConfigError, SchedulerConfiguration
from scheduler.dialects import core
from scheduler.dialects.meta import Undecodable
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Pod

Json = dict[str, Any]
LABEL, OURS = "scheduling.muster.sh/schedule", "muster"
BEFORE = "scheduling.muster.sh/schedule-before"
"""Annotation of a namespace: what its label was before."""
KEPT = frozenset({"kube-system", "kube-public", "kube-node-lease"})
"""Namespaces without which nobody schedules anything."""
POLICY = "muster-scheduler-name"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_STALE = 60.0
"""Seconds after which a lease that nobody renewed says that no scheduler runs."""
_WORKLOADS = (
    ("batch", "jobs", "Job"),
    ("batch", "cronjobs", "CronJob"),
    ("apps", "deployments", "Deployment"),
    ("apps", "replicasets", "ReplicaSet"),
    ("", "replicationcontrollers", "ReplicationController"),
    ("apps", "statefulsets", "StatefulSet"),
    ("apps", "daemonsets", "DaemonSet"),
)
_MINIMUM = "scheduling.muster.sh/min-member"


@dataclass(frozen=True, slots=True)
class _Step:
    """One write. path, body: of a PATCH, or of a POST where `creates`."""

    what: str
    path: str
    body: Json
    creates: bool = False


@dataclass
class _Facts:
    steps: list[_Step]
    rows: dict[str, Any]


def adopt(
    namespace: str,
    *,
    yes: bool,
    undo: bool,
    config: Path | None,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> int:
    """Print what would change, and change it where that is wanted; exit code. config: the file of `muster run`."""
    try:
        running = load_configuration(config)
    except (OSError, ConfigError) as error:
        complain(f"{config}: {error}")
        return USAGE

    async def work(client: ApiClient) -> int:
        found = msgspec.json.decode(await client.request("GET", f"/api/v1/namespaces/{namespace}"))
        meta = found["metadata"]
        marked = ((meta.get("labels") or {}).get(LABEL)) or ""
        before = (meta.get("annotations") or {}).get(BEFORE)
        if not undo and (why := await _never(client, namespace, running)):
            complain(f"namespace {namespace} is not adopted: {why}")
            return FAILED
        facts = (
            await _undone(client, namespace, marked, before)
            if undo
            else await _adopted(client, namespace, marked, running)
        )
        for step in facts.steps if yes else ():
            if step.creates:
                await client.post_json(step.path, step.body)
            else:
                await client.patch(step.path, step.body)
        done = {"namespace": namespace, "applied": yes and bool(facts.steps)}
        told = done | {"steps": [step.what for step in facts.steps]} | facts.rows
        if output in ("json", "yaml"):
            emit([told], (), output)
        else:
            _tell(told, yes=yes)
        return OK if not (undo and marked and marked != OURS) else FAILED

    return with_client(kubeconfig, context, work)


async def _never(client: ApiClient, namespace: str, running: SchedulerConfiguration) -> str:
    """Return why a namespace must not be Muster's; "" where it may."""
    if namespace in KEPT:
        return "the cluster's own pods must not wait for Muster"
    own = namespace == running.namespace
    if not own:
        try:
            raws = await reading.items(client, path_of("apps", "v1", "deployments", namespace))
        except ApiError as error:
            if error.status != 403:
                raise
            raws = []
        labels = [msgspec.json.decode(raw)["metadata"].get("labels") or {} for raw in raws]
        own = any(one.get("app.kubernetes.io/name") == "muster" for one in labels)
    return "Muster runs there, and a scheduler that waits for itself does not come back" if own else ""


async def _undone(client: ApiClient, namespace: str, marked: str, before: str | None) -> _Facts:
    if marked and marked != OURS:
        complain(f"namespace {namespace}: its label {LABEL} is {marked}, which this command did not write")
        return _Facts([], {})
    path = f"/api/v1/namespaces/{namespace}"
    what = f"set the label {LABEL} of namespace {namespace} to {before} again"
    if before is None:
        what = f"take the label {LABEL} from namespace {namespace}"
    body = {"metadata": {"labels": {LABEL: before}, "annotations": {BEFORE: None}}}
    steps = [_Step(what, path, body)] if marked else []
    pods = await _pods(client, namespace)
    served = [pod for pod in pods if pod.scheduler_name == OURS and not pod.node and not pod.finished]
    notes = [
        f"{len(served)} pods that wait are Muster's until they are made again" if served else "",
        f"the policy {POLICY} stays: other namespaces may need it" if steps else "",
    ]
    return _Facts(steps, {"notes": [one for one in notes if one]})


async def _adopted(client: ApiClient, namespace: str, marked: str, running: SchedulerConfiguration) -> _Facts:
    steps, notes = [], []
    if marked != OURS:
        body: Json = {"metadata": {"labels": {LABEL: OURS}}}
        instead = ""
        if marked:
            body["metadata"]["annotations"] = {BEFORE: marked}
            instead = f" instead of {marked}, which --undo brings back"
        what = (
            f"label namespace {namespace} with {LABEL}={OURS}{instead}: new pods that name no scheduler become Muster's"
        )
        steps.append(_Step(what, f"/api/v1/namespaces/{namespace}", body))
    made, said = await _policy(client)
    steps, notes = [*made, *steps], [*said, *await _leads(client, running)]
    pods = await _pods(client, namespace)
    alive = [pod for pod in pods if not pod.finished]
    placed = [pod for pod in alive if pod.node]
    waiting = [pod for pod in alive if not pod.node and pod.scheduler_name in ("", OTHERS)]
    notes.append(f"{len(placed)} pods on nodes are not touched")
    if waiting:
        notes.append(f"{len(waiting)} pods that wait for {OTHERS} stay its own until they are made again")
    workloads, unsupported = await _workloads(client, namespace, alive)
    queues = [
        {"name": queue.name, "api": queue.dialect, "read": "as it is; `muster convert` makes a Muster queue of it"}
        for queue in await reading.queues(client)
        if queue.dialect != "muster"
    ]
    local = await _local_queues(client, namespace)
    queues += [
        {"name": name, "api": "kueue", "read": f"not at all: kubectl annotate namespace {namespace} "
         f"scheduling.muster.sh/queue={target}, and `muster convert` the ClusterQueue"}
        for name, target in local
    ]  # fmt: skip
    rows = {"notes": notes, "workloads": workloads, "queues": queues, "unsupported": unsupported}
    return _Facts(steps, rows)


# -- what is there ----------------------------------------------------------------------------------------------------


async def _pods(client: ApiClient, namespace: str) -> list[Pod]:
    return [pod for pod, _ in await reading.pods(client, namespace)]


async def _policy(client: ApiClient) -> tuple[list[_Step], list[str]]:
    """Return what makes the policy where it is missing, and what is to be known about it."""
    kinds = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
    try:
        served = {one["name"] for one in (await client.get_json(_ADMISSION))["resources"]}
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        served = set()
    if not served >= set(kinds):
        text = f"this API server has no MutatingAdmissionPolicy: the label does nothing; write schedulerName: {OURS}"
        return [], [text]
    missing = []
    for kind in kinds:
        try:
            await client.get_json(f"{_ADMISSION}/{kind}/{POLICY}")
        except ApiError as error:
            if error.status == 403:
                return [], [f"whether the policy {POLICY} is installed may not be read: {error}"]
            if error.status != 404:
                raise
            missing.append(kind)
    if not missing:
        return [], []
    try:
        text = shipped("config/policies/scheduler-name.yaml").read_text()
    except NotShipped:
        return [], [f"the policy {POLICY} is not installed: kubectl apply -f config/policies/scheduler-name.yaml"]
    bodies = {f"{one['kind'].lower()[:-1]}ies" if one["kind"].endswith("y") else f"{one['kind'].lower()}s": one
              for one in yaml.safe_load_all(text)}  # fmt: skip
    return [
        _Step(f"create {bodies[kind]['kind']} {POLICY}", f"{_ADMISSION}/{kind}", bodies[kind], creates=True)
        for kind in missing
    ], []


async def _leads(client: ApiClient, config: SchedulerConfiguration) -> list[str]:
    """Return a warning where nobody serves the pods: they would wait."""
    if OURS not in config.scheduler_names:
        names = ", ".join(config.scheduler_names)
        return [
            f"schedulerName {OURS}, which the policy sets, is not served (schedulerNames: {names}): pods would wait"
        ]
    where = f"{config.namespace}/{config.leader_election.name}"
    try:
        leases = path_of("coordination.k8s.io", "v1", "leases", config.namespace)
        lease = await client.get_json(f"{leases}/{config.leader_election.name}")
    except ApiError as error:
        if error.status == 403:
            return [f"whether a scheduler leads may not be read (Lease {where})"]
        if error.status != 404:
            raise
        return [
            f"no scheduler leads (there is no Lease {where}; --config FILE if it has another name): new pods would wait"
        ]
    renewed = str((lease.get("spec") or {}).get("renewTime") or "")
    at = datetime.fromisoformat(renewed).timestamp() if renewed else 0.0
    if time.time() - at > _STALE:
        last = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") if at else "never"
        return [f"no scheduler leads (Lease {where} was last renewed: {last}): new pods would wait"]
    return []


async def _local_queues(client: ApiClient, namespace: str) -> list[tuple[str, str]]:
    """Return Kueue's LocalQueues with the ClusterQueue of each; none where the kind is not served or not readable."""
    for version in ("v1beta2", "v1beta1"):
        try:
            raws = await reading.items(client, path_of("kueue.x-k8s.io", version, "localqueues", namespace))
        except ApiError as error:
            if error.status in (403, 404):
                continue
            raise
        found = [msgspec.json.decode(raw) for raw in raws]
        return [(one["metadata"]["name"], str((one.get("spec") or {}).get("clusterQueue", ""))) for one in found]
    return []


async def _workloads(client: ApiClient, namespace: str, pods: list[Pod]) -> tuple[list[Json], list[Json]]:
    """Return the workloads with what they become, and what of them cannot be run."""
    rows, unsupported, listed = [], [], set()
    groups = await reading.groups(client, namespace)
    for group in groups:
        if group.dialect != "owner":
            members = f"{sum(pod.group == group.key for pod in pods)} pods"
            rows.append(_row(f"PodGroup ({dialect_of(group)})", group.name, members, f"gang of {group.min_member}"))
        unsupported += [
            {"object": f"{group.kind} {group.name}", "field": one.field, "why": one.message} for one in group.problems
        ]
    minimums = _minimums(groups)
    for api, plural, kind in _WORKLOADS:
        for raw in await reading.items(client, path_of(api, "v1", plural, namespace)):
            body = msgspec.json.decode(raw)
            meta = body["metadata"]
            listed.add((kind, meta["name"]))
            if any(owner.get("controller") for owner in meta.get("ownerReferences") or ()):
                continue
            rows.append(_workload(body | {"kind": kind}, minimums))
            unsupported += _unsupported(body | {"kind": kind})
    rows += _others(pods, listed)
    return rows, unsupported


def _row(kind: str, name: str, size: str, becomes: str) -> Json:
    return {"kind": kind, "name": name, "size": size, "becomes": becomes}


def _workload(body: Json, minimums: Mapping[str, int]) -> Json:
    kind, name, spec = body["kind"], body["metadata"]["name"], body["spec"]
    if kind == "CronJob":
        job = _job_of(body)
        group = core.decode_owner(msgspec.json.encode(job), "Job")
        one = _workload(job, _minimums([group] if group is not None else []))
        return {**one, "kind": kind, "size": f"{one['size']} each time"}
    scheduler = spec.get("template", {}).get("spec", {}).get("schedulerName") or OTHERS
    size = str(spec.get("parallelism" if kind == "Job" else "replicas", 1)) if kind != "DaemonSet" else "each node"
    pod = _made_of(body)
    if kind == "DaemonSet":
        becomes = f"left to {scheduler}"
    elif scheduler not in (OTHERS, OURS):
        becomes = f"left to {scheduler}, unless `muster run --scheduler-name {scheduler}`"
    elif pod is not None and pod.group:
        becomes = f"members of gang {pod.group.rpartition('/')[2]}"
    elif kind == "Job" and minimums.get(name) == 0:
        becomes = "pods that wait: its minimum cannot be read"
    elif (kind == "Job" and name in minimums) or (pod is not None and pod.min_member > 1):
        becomes = f"gang of {minimums.get(name) or (pod.min_member if pod is not None else 0)}"
    elif kind == "Job":
        becomes = "pods one by one; a gang with annotation " + _MINIMUM
    else:
        becomes = "pods one by one"
    return _row(kind, name, size, becomes)


def _minimums(groups: Iterable[PodGroup]) -> dict[str, int]:
    """Return how many pods of each Job start together, by name; 0 where what it says cannot be read."""
    return {group.name: 0 if group.problems else group.min_member for group in groups if group.dialect == "owner"}


def _job_of(body: Json) -> Json:
    """Return a Job as a CronJob makes it, under the CronJob's name."""
    made, meta = body["spec"]["jobTemplate"], body["metadata"]
    own = {key: meta[key] for key in ("name", "namespace", "uid", "creationTimestamp")}
    return {**made, "kind": "Job", "metadata": {**(made.get("metadata") or {}), **own}}


def _made_of(body: Json) -> Pod | None:
    """Return a pod of a workload's template; None where it cannot be read, which `_unsupported` tells."""
    for _, pod in templates_of(body, 0):
        try:
            return next(one.pod for one in pod_events(pod, ANY_CLASS) if isinstance(one, feed.PodSet))
        except (Unusable, Undecodable):
            return None
    return None


def _others(pods: list[Pod], listed: set[tuple[str, str]]) -> list[Json]:
    """Return owners of other kinds, and pods that nobody owns."""
    owners = Counter((pod.owner_kind, pod.owner_name) for pod in pods if not pod.group)
    rows = []
    for (kind, name), count in sorted(owners.items()):
        if not kind:
            rows.append(_row("Pod", f"{count} without owner", str(count), "pods one by one"))
        elif (kind, name) not in listed:
            rows.append(
                _row(kind, name, f"{count} pods", "a gang by its owner where its kind is known, else one by one")
            )
    return rows


def _unsupported(body: Json) -> list[Json]:
    """Return what of a workload's template this version cannot run."""
    found: list[Json] = []
    if body["kind"] == "CronJob":
        group = core.decode_owner(msgspec.json.encode(_job_of(body)), "Job")
        name = body["metadata"]["name"]
        found += [
            {"object": f"CronJob {name}", "field": f"spec.jobTemplate.{one.field}", "why": one.message}
            for one in (group.problems if group is not None else ())
        ]
    for path, pod in templates_of(body, 0):
        try:
            events = pod_events(pod, ANY_CLASS)
        except (Unusable, Undecodable) as error:
            found.append({"object": f"{body['kind']} {body['metadata']['name']}", "field": path, "why": str(error)})
            continue
        for one in events:
            fields = one.shape.unsupported if isinstance(one, feed.ShapeSet) else ()
            found += [
                {"object": f"{body['kind']} {body['metadata']['name']}", "field": f"{path}.{field}",
                 "why": "not supported by this version: its pods would wait"}
                for field in fields
            ]  # fmt: skip
    return found


# -- words ------------------------------------------------------------------------------------------------------------


def _tell(told: Json, *, yes: bool) -> None:
    listing((("namespace", told["namespace"]),))
    done = "done" if told["applied"] else "would be done"
    for step in told["steps"]:
        print(f"  {done}: {step}")
    if not told["steps"]:
        print("  nothing to change")
    for one in told.get("notes", ()):
        print(f"  note: {one}")
    for name, columns in (
        ("workloads", ("kind", "name", "size", "becomes")),
        ("queues", ("name", "api", "read")),
        ("unsupported", ("object", "field", "why")),
    ):
        if told.get(name):
            print(f"\n{name}")
            table(told[name], columns)
    if told["steps"] and not yes:
        note("nothing was changed; --yes does it")
