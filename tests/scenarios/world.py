"""The world in which a scenario is played: objects in, bindings, conditions and evictions out.

Decided here: how steps act on an API server and how expectations are read from it. It speaks to the API server only,
through a test client that shares nothing with the product, and plays the kubelet of its fake nodes: what is bound runs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, Protocol

import yaml

from scheduler.model.quantity import parse_quantity
from tests.controlplane.rest import ApiError, Rest, resource_path
from tests.scenarios.form import (
    PRIORITY_CLASSES,
    NodeSpec,
    Scenario,
    gang_objects,
    nodes_of,
    pod_names,
    queue_object,
)

Json = dict[str, Any]
HOLD = "scenarios.muster.sh/hold"
WITHIN, QUIET, POLL = 40.0, 0.5, 0.04


class Plane(Protocol):
    """An API server with whatever makes nodes and controllers there."""

    name: str
    rest: Rest

    def register_node(self, spec: NodeSpec) -> None:
        """Create a Ready node."""


class SchedulerProcess(Protocol):
    """The scheduler under test."""

    def start(self) -> None:
        """Start and wait until it is ready."""

    def kill(self) -> None:
        """Kill -9, every process of it."""

    def tail(self) -> str:
        """The end of its log."""


class Unmet(AssertionError):
    """An expectation that did not become, or did not stay, true."""


class World:
    """One scenario on one plane, in one dialect, for one schedulerName."""

    def __init__(
        self, plane: Plane, scheduler: SchedulerProcess, scenario: Scenario, dialect: str, namespace: str, sched: str
    ) -> None:
        self.rest, self._plane, self._scheduler = plane.rest, plane, scheduler
        self._scenario, self._dialect, self.namespace, self._sched = scenario, dialect, namespace, sched
        self._gangs: dict[str, Json] = {}
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}
        self._seen: dict[str, str] = {}
        self._deleted_by_us: set[str] = set()
        self._forgotten: set[str] = set()
        self._made: list[str] = []
        self._node_specs: dict[str, NodeSpec] = {}
        self._versions_seen: dict[str, str] = {}

    # -- the API --------------------------------------------------------------------------------------------------

    def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        key = (api_version, kind)
        if key not in self._plurals:
            base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            for entry in self.rest.get(base)["resources"]:
                if "/" not in entry["name"]:
                    self._plurals[(api_version, entry["kind"])] = (entry["name"], entry["namespaced"])
        return self._plurals[key]

    def _path(self, obj: Json) -> tuple[str, str]:
        """Return the collection path and the object path; the namespace is ours unless the object names one."""
        plural, namespaced = self._resource(obj["apiVersion"], obj["kind"])
        namespace = obj["metadata"].setdefault("namespace", self.namespace) if namespaced else ""
        return (
            resource_path(obj["apiVersion"], plural, namespace=namespace),
            resource_path(obj["apiVersion"], plural, obj["metadata"]["name"], namespace=namespace),
        )

    def put(self, obj: Json) -> None:
        """Create an object, or merge it into the one that exists."""
        collection, path = self._path(obj)
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

    def apply(self, text: str) -> None:
        """Create or change every object of a YAML text."""
        text = text.replace("{{ns}}", self.namespace).replace("{{sched}}", self._sched)
        for obj in yaml.safe_load_all(text):
            if obj:
                self.put(obj)

    def _pod_path(self, name: str, sub: str = "") -> str:
        return resource_path("v1", "pods", name, namespace=self.namespace, subresource=sub)

    def pods(self) -> list[Json]:
        """Return the pods of the namespace after having run those that were bound since."""
        pods = self.rest.list(resource_path("v1", "pods", namespace=self.namespace))
        current = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods}
        self._seen |= current
        for pod in pods:
            spec, status, meta = pod["spec"], pod.get("status", {}), pod["metadata"]
            runs = spec.get("nodeName") in self._node_specs and status.get("phase", "Pending") == "Pending"
            if runs and not meta.get("deletionTimestamp"):
                self._set_status(meta["name"], {"phase": "Running", "startTime": meta["creationTimestamp"]})
                pod.setdefault("status", {})["phase"] = "Running"
        return pods

    def _set_status(self, name: str, status: Json) -> None:
        try:
            self.rest.patch(self._pod_path(name, "status"), {"status": status})
        except ApiError as error:
            if error.status != 404:
                raise

    # -- set-up and clean-up --------------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Create namespace, priority classes, nodes, queues and objects."""
        self.rest.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        for name, value in PRIORITY_CLASSES.items():
            body = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            try:
                self.rest.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
            except ApiError as error:
                if error.status != 409:
                    raise
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
            self._plane.register_node(spec)
            self._node_specs[spec.name] = spec
            self._made.append(resource_path("v1", "nodes", spec.name))

    def tear_down(self) -> None:
        """Delete everything that the scenario made; the API server serves the next one."""
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

    # -- steps ----------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Play all steps. Raises `Unmet` with what was seen instead."""
        for number, step in enumerate(self._scenario.steps):
            try:
                for key, value in step.items():
                    if key != "patch_type":
                        getattr(self, f"_step_{key}")(value, step)
            except Unmet as error:
                raise Unmet(f"{self._scenario.id} step {number}: {error}\n{self._picture()}") from None
        self._finally_quiet()

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

    def _object_path(self, text: str) -> tuple[str, bool]:
        kind, name = text.split("/", 1)
        plural, _, group = kind.partition(".")
        known = {"job": "batch/v1", "deployment": "apps/v1", "replicaset": "apps/v1", "pod": "v1", "node": "v1"}
        versions = (
            self._versions(group) if group else [known[plural.rstrip("s")]] if plural.rstrip("s") in known else []
        )
        if not versions:
            raise KeyError(f"{text}: write KIND.GROUP/NAME")
        for version in versions:
            base = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for entry in self.rest.get(base)["resources"]:
                if entry["name"] in (plural, f"{plural}s"):
                    namespace = self.namespace if entry["namespaced"] else ""
                    return resource_path(version, entry["name"], name, namespace=namespace), entry["namespaced"]
        raise KeyError(f"{text}: {versions} serve no {plural}")

    def _versions(self, group: str) -> list[str]:
        """Every version of an API group, the server's preferred one first."""
        known = self.rest.get(f"/apis/{group}")
        preferred = str(known["preferredVersion"]["groupVersion"])
        return [preferred, *(v["groupVersion"] for v in known["versions"] if v["groupVersion"] != preferred)]

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

    def _step_start_scheduler(self, _: object, __: Json) -> None:
        self._scheduler.start()

    def _step_sleep(self, seconds: float, _: Json) -> None:
        time.sleep(seconds)

    def _step_forget_evictions(self, _: object, __: Json) -> None:
        self._forgotten |= {uid for uid, _ in self._evicted(self.pods())}

    # -- reading --------------------------------------------------------------------------------------------------

    def _select(self, selection: str, pods: Iterable[Json]) -> list[Json]:
        if selection.startswith("gang:"):
            name, _, role = selection[5:].partition("/")
            names = {pod for pod, spec, _ in pod_names(self._gangs[name]) if not role or spec.get("role") == role}
            return [pod for pod in pods if pod["metadata"]["name"] in names]
        if selection.startswith("label:"):
            key, _, value = selection[6:].partition("=")
            return [pod for pod in pods if pod["metadata"].get("labels", {}).get(key) == value]
        return [pod for pod in pods if pod["metadata"]["name"] == selection]

    def _select_all(self, selections: Iterable[str]) -> list[Json]:
        pods = self.pods()
        found = [pod for selection in selections for pod in self._select(selection, pods)]
        if not found:
            raise KeyError(f"no pod is selected by {list(selections)}")
        return found

    def _evicted(self, pods: Iterable[Json]) -> list[tuple[str, str]]:
        alive = {pod["metadata"]["uid"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}
        return [
            (uid, name)
            for uid, name in self._seen.items()
            if uid not in alive and uid not in self._deleted_by_us and uid not in self._forgotten
        ]

    def _step_expect(self, expects: Json | list[Json], _: Json) -> None:
        for expect in expects if isinstance(expects, list) else [expects]:
            self._expect(expect)

    def _expect(self, expect: Json) -> None:
        deadline = time.monotonic() + float(expect.get("within", WITHIN))
        while problems := self._problems(expect):
            if time.monotonic() > deadline:
                raise Unmet("; ".join(problems))
            time.sleep(POLL)
        until = time.monotonic() + float(expect.get("quiet", QUIET))
        while time.monotonic() < until:
            if problems := self._problems(expect):
                raise Unmet("did not stay true: " + "; ".join(problems))
            time.sleep(POLL)

    def _problems(self, expect: Json) -> list[str]:
        pods = self.pods()
        problems: list[str] = []
        for key, value in expect.items():
            if key not in ("within", "quiet"):
                problems += getattr(self, f"_expect_{key}")(value, pods)
        return problems

    def _expect_bound(self, wanted: Mapping[str, object], pods: list[Json]) -> list[str]:
        problems = []
        for selection, want in wanted.items():
            chosen = [pod for pod in self._select(selection, pods) if _live(pod)]
            bound = sum(bool(pod["spec"].get("nodeName")) for pod in chosen)
            if want == "all":
                ok = bool(chosen) and bound == len(chosen)
            else:
                ok = _within(bound, "0" if want == "none" else want)
            if not ok:
                problems.append(f"{selection}: {bound} of {len(chosen)} bound, wanted {want}")
        return problems

    def _expect_pending(self, selections: list[str], pods: list[Json]) -> list[str]:
        problems = []
        for selection in selections:
            chosen = [pod for pod in self._select(selection, pods) if _live(pod)]
            if not chosen or any(pod["spec"].get("nodeName") for pod in chosen):
                problems.append(f"{selection}: not pending ({len(chosen)} pods)")
        return problems

    def _expect_gone(self, selections: list[str], pods: list[Json]) -> list[str]:
        return [
            f"{selection}: still there"
            for selection in selections
            if any(not pod["metadata"].get("deletionTimestamp") for pod in self._select(selection, pods))
        ]

    def _expect_placed(self, wanted: Mapping[str, str | list[str]], pods: list[Json]) -> list[str]:
        problems = []
        for selection, nodes in wanted.items():
            allowed = [nodes] if isinstance(nodes, str) else nodes
            chosen = [pod for pod in self._select(selection, pods) if _live(pod)]
            where = sorted(str(pod["spec"].get("nodeName")) for pod in chosen)
            if not chosen or any(node not in allowed for node in where):
                problems.append(f"{selection}: on {where}, wanted {allowed}")
        return problems

    def _values(self, selection: str, label: str, pods: list[Json]) -> list[str]:
        labels = {spec.name: spec.labels for spec in self._node_specs.values()}
        nodes = [
            pod["spec"]["nodeName"]
            for pod in self._select(selection, pods)
            if _live(pod) and pod["spec"].get("nodeName")
        ]
        return [node if label == "node" else labels[node].get(label, "") for node in nodes]

    def _expect_same(self, wanted: Mapping[str, str], pods: list[Json]) -> list[str]:
        found = {key: self._values(key, label, pods) for key, label in wanted.items()}
        return [f"{key}: in {sorted(set(v))}, wanted one" for key, v in found.items() if len(set(v)) != 1]

    def _expect_distinct(self, wanted: Mapping[str, str], pods: list[Json]) -> list[str]:
        found = {key: self._values(key, label, pods) for key, label in wanted.items()}
        return [f"{key}: in {sorted(v)}, wanted distinct" for key, v in found.items() if not v or len(set(v)) != len(v)]

    def _expect_spread(self, wanted: Mapping[str, Json], pods: list[Json]) -> list[str]:
        problems = []
        for selection, want in wanted.items():
            values = self._values(selection, want["label"], pods)
            counts = sorted((values.count(value) for value in set(values)), reverse=True)
            if counts != sorted(want["counts"], reverse=True):
                problems.append(f"{selection}: spread {counts}, wanted {want['counts']}")
        return problems

    def _expect_evicted(self, want: object, pods: list[Json]) -> list[str]:
        names = sorted(name for _, name in self._evicted(pods))
        ok = names == sorted(want) if isinstance(want, list) else _within(len(names), want)
        return [] if ok else [f"evicted {names}, wanted {want}"]

    def _expect_object(self, wanted: Mapping[str, Mapping[str, str]], _: list[Json]) -> list[str]:
        problems = []
        for text, fields in wanted.items():
            try:
                obj = self.rest.get(self._object_path(text)[0])
            except ApiError as error:
                problems.append(f"{text}: {error.reason}")
                continue
            for path, pattern in fields.items():
                value = _dig(obj, path)
                if not re.search(str(pattern), "" if value is None else str(value)):
                    problems.append(f"{text} {path}: {value!r} does not match {pattern!r}")
        return problems

    def _expect_condition(self, wanted: Mapping[str, str], pods: list[Json]) -> list[str]:
        problems = []
        for selection, pattern in wanted.items():
            chosen = [pod for pod in self._select(selection, pods) if _live(pod)]
            texts = [_condition(pod) for pod in chosen]
            if not texts or not all(re.search(pattern, text) for text in texts):
                problems.append(f"{selection}: conditions {sorted(set(texts))} do not match {pattern!r}")
        return problems

    def _expect_unwritten(self, selections: list[str], pods: list[Json]) -> list[str]:
        """Pods that nobody wrote to since `remember`."""
        return [
            f"{pod['metadata']['name']} was written since"
            for selection in selections
            for pod in self._select(selection, pods)
            if pod["metadata"]["resourceVersion"] != self._versions_seen[pod["metadata"]["uid"]]
        ]

    def _expect_events(self, wanted: Mapping[str, Mapping[str, object]], pods: list[Json]) -> list[str]:
        """{selection: {reason: how many event objects}}; all are in the name of the pods' scheduler."""
        problems = []
        events = self.rest.list(resource_path("events.k8s.io/v1", "events", namespace=self.namespace))
        for selection, counts in wanted.items():
            names = {pod["metadata"]["name"] for pod in self._select(selection, pods)}
            about = [e for e in events if e["regarding"].get("kind") == "Pod" and e["regarding"]["name"] in names]
            for reason, want in counts.items():
                found = [e for e in about if e["reason"] == reason]
                if not _within(len(found), want):
                    problems.append(f"{selection}: {len(found)} events {reason}, wanted {want}")
                problems += [
                    f"{selection}: event {reason} comes from {e.get('reportingController')!r}"
                    for e in found
                    if e.get("reportingController") != self._sched
                ]
        return problems

    # -- the end --------------------------------------------------------------------------------------------------

    def _finally_quiet(self) -> None:
        """Five quiet sessions: nothing that the scheduler writes changes any more; and the invariants hold."""
        before, deadline = self._written(), time.monotonic() + 20.0
        since = time.monotonic()
        while time.monotonic() - since < QUIET:
            time.sleep(POLL)
            now = self._written()
            if now != before:
                before, since = now, time.monotonic()
                if time.monotonic() > deadline:
                    raise Unmet(f"{self._scenario.id}: the scheduler never comes to rest\n{self._picture()}")
        problems = self._broken_invariants()
        if problems:
            raise Unmet(f"{self._scenario.id}: {'; '.join(problems)}\n{self._picture()}")

    def _written(self) -> object:
        return sorted(
            (pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"].get("nodeName"), _condition(pod))
            for pod in self.pods()
        )

    def _broken_invariants(self) -> list[str]:
        """No node over its allocatable, unless the scenario itself put pods there."""
        preset = {name for gang in self._gangs.values() for name, role, _ in pod_names(gang) if _is_preset(gang, role)}
        problems = []
        everywhere = self.rest.list("/api/v1/pods")
        for node in self._node_specs:
            here = [pod for pod in everywhere if pod["spec"].get("nodeName") == node and not _finished(pod)]
            ours = [p for p in here if p["metadata"]["namespace"] == self.namespace]
            if any(pod["metadata"]["name"] in preset for pod in ours) or not ours:
                continue
            allocatable = self.rest.get(resource_path("v1", "nodes", node))["status"]["allocatable"]
            used: dict[str, Fraction] = {"pods": Fraction(len(here))}
            for pod in here:
                for container in pod["spec"]["containers"]:
                    for key, value in container.get("resources", {}).get("requests", {}).items():
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
            lines.append(f"   {pod['metadata']['name']}: node={node} phase={phase} {_condition(pod)}")
        return "\n".join([*lines, "-- scheduler log", self._scheduler.tail()])


def _is_preset(gang: Json, role: Json) -> bool:
    return "node" in gang or "node" in role or "nodeName" in gang.get("spec", {})


def _live(pod: Json) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and not _finished(pod)


def _finished(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _condition(pod: Json) -> str:
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled":
            return f"{condition['status']} {condition.get('reason', '')} {condition.get('message', '')}"
    return ""


def _within(number: int, want: object) -> bool:
    low, _, high = str(want).partition("..")
    return int(low) <= number <= int(high or low)


def _dig(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, list):
            found = [item for item in value if isinstance(item, dict) and part in (item.get("type"), item.get("name"))]
            if not found and part.isdigit() and int(part) < len(value):
                found = [value[int(part)]]
            value = found[0] if found else None
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value
