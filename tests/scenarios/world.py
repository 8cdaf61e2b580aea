"""The world in which a scenario is played: objects in, bindings, conditions and evictions out.

Decided here: how steps act on an API server; what is expected of it is read in `observer`. It speaks to the API server
only, through a test client that shares nothing with the product; the scheduler itself is asked for one thing, how much
it has seen. Each resource has a watch of its own, and nothing says which of two is served first: a pod may be seen
before the node that was there before it, unless the story waits in between.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import yaml

from scheduler.model.quantity import parse_quantity
from tests.controlplane.rest import ApiError, Rest, resource_path
from tests.scenarios import reasons
from tests.scenarios.autoscaler import Autoscaler
from tests.scenarios.form import (
    LOADER,
    PRIORITY_CLASSES,
    NodeSpec,
    Scenario,
    gang_objects,
    nodes_of,
    pod_names,
    queue_object,
)
from tests.scenarios.observer import POLL, QUIET, Observer, Unmet, asks_for_nodes, condition, finished, live

Json = dict[str, Any]
HOLD = "scenarios.muster.sh/hold"
SEEN = 60.0
"""Seconds that a watch may lag behind on a busy machine."""
_COUNTED = {
    "nodes": ["/api/v1/nodes"],
    "persistentvolumes": ["/api/v1/persistentvolumes"],
    "persistentvolumeclaims": ["/api/v1/persistentvolumeclaims"],
    "priorityclasses": ["/apis/scheduling.k8s.io/v1/priorityclasses"],
    "queues": [
        "/apis/scheduling.muster.sh/v1alpha1/queues",
        "/apis/scheduling.volcano.sh/v1beta1/queues",
        "/apis/scheduling.run.ai/v2/queues",
    ],
    "topologies": [
        "/apis/scheduling.muster.sh/v1alpha1/topologies",
        "/apis/kai.scheduler/v1alpha1/topologies",
        "/apis/kueue.x-k8s.io/v1beta2/topologies",
    ],
    "hypernodes": ["/apis/topology.volcano.sh/v1alpha1/hypernodes"],
    "storageclasses": ["/apis/storage.k8s.io/v1/storageclasses"],
    "csidrivers": ["/apis/storage.k8s.io/v1/csidrivers"],
    "csinodes": ["/apis/storage.k8s.io/v1/csinodes"],
    "csistoragecapacities": ["/apis/storage.k8s.io/v1/csistoragecapacities"],
}
"""What the scheduler is waited for to have seen, before pods are made: plural -> where all of it is listed."""
_HAVE_PODS = ("Pod", "Job", "Deployment")


class Plane(Protocol):
    """An API server with whatever makes nodes and controllers there."""

    name: str
    rest: Rest
    kubeconfig: Path

    def register_node(self, spec: NodeSpec) -> None:
        """Create a Ready node."""


class SchedulerProcess(Protocol):
    """The scheduler under test."""

    def start(self) -> None:
        """Start and wait until it is ready."""

    def kill(self) -> None:
        """Kill -9, every process of it."""

    def running(self) -> bool:
        """Whether it lives."""

    def tail(self) -> str:
        """The end of its log."""

    @property
    def configuration(self) -> Path:
        """The file with which it is started."""

    def known(self, what: str) -> int:
        """How many objects of a resource are in its picture of the cluster."""

    def figure(self, name: str) -> int:
        """One of its metrics, with its labels."""


class World(Observer):
    """One scenario on one plane, in one dialect, for one schedulerName."""

    def __init__(
        self, plane: Plane, scheduler: SchedulerProcess, scenario: Scenario, dialect: str, namespace: str, sched: str
    ) -> None:
        super().__init__(plane.rest, namespace, sched)
        self._plane, self._scheduler = plane, scheduler
        self._scenario, self._dialect = scenario, dialect
        self._made: list[str] = []
        self._unseen: set[str] = set()

    # -- objects --------------------------------------------------------------------------------------------------

    def put(self, obj: Json) -> None:
        """Create an object, or merge it into the one that exists."""
        collection, path = self._path(obj)
        self._name_owners(obj)
        plural = collection.rpartition("/")[2]
        if plural in _COUNTED:
            self._unseen.add(plural)
        elif obj["kind"] in _HAVE_PODS:
            self._wait_seen()
        try:
            self.rest.create(collection, obj)
        except ApiError as error:
            if error.status != 409:
                raise
            if obj["kind"] == "Pod":
                return  # a gang that is told again only gets what it lacks
            self.rest.patch(path, {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")})
        if obj["metadata"].get("namespace") != self.namespace and path not in self._made:
            self._made.append(path)

    def _name_owners(self, obj: Json) -> None:
        """Make references of owners that are written as KIND.GROUP/NAME; the first one is the controller."""
        references = obj["metadata"].get("ownerReferences", [])
        for number, owner in enumerate(references):
            if isinstance(owner, str):
                found = self.rest.get(self._object_path(owner)[0])
                references[number] = {
                    "apiVersion": found["apiVersion"],
                    "kind": found["kind"],
                    "name": found["metadata"]["name"],
                    "uid": found["metadata"]["uid"],
                    "controller": number == 0,
                }

    def apply(self, text: str) -> None:
        """Create or change every object of a YAML text."""
        text = text.replace("{{ns}}", self.namespace).replace("{{sched}}", self._sched)
        for obj in yaml.load_all(text, LOADER):
            if obj:
                self.put(obj)

    # -- set-up and clean-up --------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Create namespace, priority classes, nodes, queues and objects."""
        self.rest.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        there = {one["metadata"]["name"] for one in self.rest.list(_COUNTED["priorityclasses"][0])}
        for name in sorted(PRIORITY_CLASSES.keys() - there):
            body = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": PRIORITY_CLASSES[name],
            }
            self.rest.create(_COUNTED["priorityclasses"][0], body)
            self._unseen.add("priorityclasses")
        if self._plane.name == "real":
            self._wait_for_service_account()
        self._add_nodes(self._scenario.nodes)
        for queue in self._scenario.queues:
            self.put(queue_object(queue, self._dialect))
        self.apply(self._scenario.objects)

    def _wait_for_service_account(self) -> None:
        deadline = time.monotonic() + 90
        path = resource_path("v1", "serviceaccounts", "default", namespace=self.namespace)
        while True:
            try:
                self.rest.get(path)
                return
            except ApiError as error:
                if error.status != 404 or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _add_nodes(self, listed: list[Json]) -> None:
        for spec in nodes_of(listed):
            self._unseen.add("nodes")
            self._plane.register_node(spec)
            self._node_specs[spec.name] = spec
            self._made.append(resource_path("v1", "nodes", spec.name))

    def tear_down(self) -> None:
        """Delete everything that the scenario made; the API server serves the next one."""
        if self._scaler is not None:
            self._scaler.stop()
        for pod in self.rest.list(resource_path("v1", "pods", namespace=self.namespace)):
            self._drop_finalizers(self._pod_path(pod["metadata"]["name"]), pod)
        groups = (("batch/v1", "jobs"), ("apps/v1", "deployments"), ("apps/v1", "replicasets"))
        for version, plural in groups:
            for obj in self.rest.list(resource_path(version, plural, namespace=self.namespace)):
                path = resource_path(version, plural, obj["metadata"]["name"], namespace=self.namespace)
                self._ignore_missing(lambda path=path: self.rest.delete(path, propagation="Background"))
        self._ignore_missing(lambda: self.rest.delete(f"/api/v1/namespaces/{self.namespace}"))
        for path in reversed(self._made):
            self._ignore_missing(lambda path=path: self.rest.delete(path))
        deadline = time.monotonic() + 90
        while self.rest.list(resource_path("v1", "pods", namespace=self.namespace)):
            for pod in self.rest.list(resource_path("v1", "pods", namespace=self.namespace)):
                path = self._pod_path(pod["metadata"]["name"])
                self._drop_finalizers(path, pod)
                self._ignore_missing(lambda path=path: self.rest.delete(path, grace=0))
            if time.monotonic() > deadline:
                raise TimeoutError(f"pods of {self.namespace} cannot be deleted")
            time.sleep(0.05)

    def _drop_finalizers(self, path: str, obj: Json) -> None:
        if obj["metadata"].get("finalizers"):
            self._ignore_missing(lambda: self.rest.patch(path, {"metadata": {"finalizers": None}}))

    @staticmethod
    def _ignore_missing(call: Callable[[], object]) -> None:
        try:
            call()
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def _wait_seen(self) -> None:
        """Wait until the scheduler, if it runs, knows as many of what was made or deleted as there are."""
        while self._unseen and self._scheduler.running():
            plural = min(self._unseen)
            deadline = time.monotonic() + SEEN
            while (known := self._scheduler.known(plural)) != (there := self._count(plural)):
                if time.monotonic() > deadline:
                    raise Unmet(f"of {there} {plural} the scheduler has seen {known} after {SEEN:g} s")
                time.sleep(POLL)
            self._unseen.remove(plural)

    def _count(self, plural: str) -> int:
        return sum(len(self.rest.list(path)) for path in _COUNTED[plural])

    def _expect_metrics(self, wanted: Mapping[str, object], _: list[Json]) -> list[str]:
        found = {name: self._scheduler.figure(name) for name in wanted}
        return [f"{name} is {found[name]}, wanted {want}" for name, want in wanted.items() if found[name] != want]

    # -- steps ----------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Play all steps; what is expected last holds until nothing changes any more. Raises `Unmet` with what was seen
        instead."""
        *steps, last = self._scenario.steps
        ends: Json = {}
        if list(last)[-1] == "expect":
            expects = last["expect"] if isinstance(last["expect"], list) else [last["expect"]]
            last, ends = {**last, "expect": expects[:-1]}, expects[-1]
        for number, step in enumerate([*steps, last]):
            try:
                self._play_step(step)
                if number == len(steps):
                    self._become(ends)
                    self._finally_quiet(ends)
            except Unmet as error:
                raise Unmet(f"{self._scenario.id} step {number}: {error}\n{self._picture()}") from None

    def _play_step(self, step: Json) -> None:
        for key, value in step.items():
            if key != "patch_type":
                getattr(self, f"_step_{key}")(value, step)

    def _step_repeat(self, repeat: Json, _: Json) -> None:
        """{times: N, steps: [...]}: the steps, N times over."""
        for _round in range(repeat["times"]):
            for step in repeat["steps"]:
                self._play_step(step)

    def _step_gang(self, gang: Json, _: Json) -> None:
        self._gangs[gang["name"]] = gang
        for obj in gang_objects(gang, self._dialect, self.namespace, self._sched):
            self.put(obj)

    def _step_gangs(self, gangs: list[Json], step: Json) -> None:
        for gang in gangs:
            self._step_gang(gang, step)

    def _step_apply(self, text: str, _: Json) -> None:
        self.apply(text)

    def _step_queue(self, queue: Json, _: Json) -> None:
        self.put(queue_object(queue, self._dialect))

    def _step_queues(self, queues: list[Json], step: Json) -> None:
        for queue in queues:
            self._step_queue(queue, step)

    def _step_autoscaler(self, spec: Json, _: Json) -> None:
        self._scaler = Autoscaler(self.rest, self.namespace, asks_for_nodes, lambda node: self._add_nodes([node]), spec)

    def _step_nodes(self, nodes: list[Json], _: Json) -> None:
        self._add_nodes(nodes)

    def _step_patch_node(self, patches: Mapping[str, Json], _: Json) -> None:
        for name, patch in patches.items():
            rest = {key: value for key, value in patch.items() if key != "status"}
            if "status" in patch:
                body = {"status": patch["status"]}
                self.rest.patch(resource_path("v1", "nodes", name, subresource="status"), body)
            if rest:
                self.rest.patch(resource_path("v1", "nodes", name), rest)

    def _step_delete_nodes(self, names: list[str], _: Json) -> None:
        for name in names:
            self._unseen.add("nodes")
            self.rest.delete(resource_path("v1", "nodes", name))
            self._node_specs.pop(name, None)

    def _step_delete(self, selections: list[str], _: Json) -> None:
        for pod in self._select_all(selections):
            self._deleted_by_us.add(pod["metadata"]["uid"])
            self._ignore_missing(lambda pod=pod: self.rest.delete(self._pod_path(pod["metadata"]["name"])))

    def _step_delete_objects(self, names: list[str], _: Json) -> None:
        for text in names:
            path, namespaced = self._object_path(text)
            del namespaced
            self._deleted_by_us |= {pod["metadata"]["uid"] for pod in self.pods() if self._owned_by(pod, text)}
            self.rest.delete(path, propagation="Background")

    @staticmethod
    def _owned_by(pod: Json, text: str) -> bool:
        kind, name = text.split("/", 1)
        owners = pod["metadata"].get("ownerReferences", [])
        kind = kind.split(".")[0].lower().rstrip("s")
        return any(
            owner["name"] == name or (kind == "deployment" and owner["name"].startswith(f"{name}-")) for owner in owners
        )

    def _step_finish(self, phases: Mapping[str, str], _: Json) -> None:
        for selection, phase in phases.items():
            for pod in self._select(selection, self.pods()):
                self._set_status(pod["metadata"]["name"], {"phase": phase})

    def _step_patch(self, patches: Mapping[str, Json], step: Json) -> None:
        kind = "merge" if "merge-patch" in step.get("patch_type", "") else "strategic"
        for selection, patch in patches.items():
            status = {"status": patch["status"]} if "status" in patch else {}
            rest = {key: value for key, value in patch.items() if key != "status"}
            if "/" in selection and not selection.startswith(("gang:", "label:")):
                paths, kind = [self._object_path(selection)[0]], "merge"
            else:
                paths = [self._pod_path(pod["metadata"]["name"]) for pod in self._select(selection, self.pods())]
            for path in paths:
                if rest:
                    self.rest.patch(path, rest, kind=kind)
                if status:
                    self.rest.patch(f"{path}/status", status)

    def _step_refused(self, cases: list[Json], _: Json) -> None:
        """Objects that the API server must not accept: {apply: YAML of one object, says: regex}."""
        for case in cases:
            text = case["apply"].replace("{{ns}}", self.namespace).replace("{{sched}}", self._sched)
            try:
                self.put(yaml.safe_load(text))
            except ApiError as error:
                if error.status != 422 or not re.search(case["says"], error.message):
                    raise
            else:
                raise Unmet(f"the API server accepted {text}")

    def _step_remember(self, selections: list[str], _: Json) -> None:
        """Note the version of pods, for `unwritten`."""
        for pod in self._select_all(selections):
            self._versions_seen[pod["metadata"]["uid"]] = pod["metadata"]["resourceVersion"]

    def _step_hold_terminating(self, selections: list[str], _: Json) -> None:
        for pod in self._select_all(selections):
            self.rest.patch(self._pod_path(pod["metadata"]["name"]), {"metadata": {"finalizers": [HOLD]}})

    def _step_release_terminating(self, selections: list[str], _: Json) -> None:
        for pod in self._select_all(selections):
            self._drop_finalizers(self._pod_path(pod["metadata"]["name"]), pod)

    def _step_kill_scheduler(self, _: object, __: Json) -> None:
        self._scheduler.kill()

    def _step_start_scheduler(self, changes: object, __: Json) -> None:
        if isinstance(changes, dict):
            assert self._scenario.config, "a story that changes the configuration needs a scheduler of its own (config)"
            self._scheduler.configure(changes)
        self._scheduler.start()

    def _step_seen(self, _: object, __: Json) -> None:
        self._wait_seen()

    def _step_sleep(self, seconds: float, _: Json) -> None:
        time.sleep(seconds)

    def _step_forget_evictions(self, _: object, __: Json) -> None:
        self._forgotten |= {uid for uid, _ in self._evicted(self.pods())}

    # -- the end --------------------------------------------------------------------------------------------------

    def _finally_quiet(self, ends: Json) -> None:
        """Five quiet sessions: nothing that the scheduler writes changes any more, what is expected at the end stays
        true until then, and the invariants hold."""
        before, deadline = self._written(), time.monotonic() + 20.0
        since, quiet = time.monotonic(), max(QUIET, float(ends.get("quiet", QUIET)))
        while time.monotonic() - since < quiet:
            self._stay(ends)
            time.sleep(POLL)
            now = self._written()
            if now != before:
                before, since = now, time.monotonic()
                if time.monotonic() > deadline:
                    raise Unmet("the scheduler never comes to rest")
        self._stay(ends)
        problems = self._broken_invariants()
        if self._plane.name == "embedded" and self._scheduler.running():
            waiting = {pod["metadata"]["name"]: condition(pod) for pod in self.pods() if live(pod)}
            problems += reasons.disagreements(
                self._plane.kubeconfig, self._scheduler.configuration, self.namespace, waiting
            )
        if problems:
            raise Unmet("; ".join(problems))

    def _written(self) -> object:
        return sorted(
            (pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"].get("nodeName"), condition(pod))
            for pod in self.pods()
        )

    def _broken_invariants(self) -> list[str]:
        """No node over its allocatable, unless the scenario itself put pods there."""
        preset = {name for gang in self._gangs.values() for name, role, _ in pod_names(gang) if _is_preset(gang, role)}
        problems = []
        everywhere = self.rest.list("/api/v1/pods")
        for node in self._node_specs:
            here = [pod for pod in everywhere if pod["spec"].get("nodeName") == node and not finished(pod)]
            ours = [p for p in here if p["metadata"]["namespace"] == self.namespace]
            if any(pod["metadata"]["name"] in preset for pod in ours) or not ours:
                continue
            allocatable = self.rest.get(resource_path("v1", "nodes", node))["status"]["allocatable"]
            used: dict[str, Fraction] = {"pods": Fraction(len(here))}
            for pod in here:
                refused = any(one.get("reason") == "Infeasible" for one in pod["status"].get("conditions", []))
                given = {one["name"]: one for one in pod["status"].get("containerStatuses", [])} if refused else {}
                for container in pod["spec"]["containers"]:
                    asked = container.get("resources", {}).get("requests", {})
                    for key, value in given.get(container["name"], {}).get("allocatedResources", asked).items():
                        used[key] = used.get(key, Fraction(0)) + parse_quantity(value)
            problems += [
                f"node {node} holds {float(value)} of {allocatable.get(key, 0)} {key}"
                for key, value in used.items()
                if value > parse_quantity(allocatable.get(key, 0))
            ]
        return problems

    def _picture(self) -> str:
        lines = [f"-- {self._scenario.file} {self._dialect} on {self._plane.name}, namespace {self.namespace}"]
        for pod in self.pods():
            node, phase = pod["spec"].get("nodeName"), pod.get("status", {}).get("phase")
            lines.append(f"   {pod['metadata']['name']}: node={node} phase={phase} {condition(pod)}")
        return "\n".join([*lines, "-- scheduler log", self._scheduler.tail()])


def _is_preset(gang: Json, role: Json) -> bool:
    return "node" in gang or "node" in role or "nodeName" in gang.get("spec", {})
