"""What can be seen of a scenario's world, and whether it is what its author expects.

Decided here: how pods are selected and how each expectation is read from the API server. Reading plays the kubelet of
the fake nodes on the way: what is bound runs. What is done to the world is decided in `world`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from tests.controlplane.rest import ApiError, Rest, resource_path
from tests.scenarios.autoscaler import Autoscaler
from tests.scenarios.form import NodeSpec, pod_names

Json = dict[str, Any]
WITHIN, QUIET, POLL = 40.0, 0.5, 0.04


class Unmet(AssertionError):
    """An expectation that did not become, or did not stay, true."""


class Observer:
    """One namespace of one API server, as the test sees it; `sched` is the schedulerName of its pods."""

    def __init__(self, rest: Rest, namespace: str, sched: str) -> None:
        self.rest, self.namespace, self._sched = rest, namespace, sched
        self._gangs: dict[str, Json] = {}
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}
        self._seen: dict[str, str] = {}
        self._deleted_by_us: set[str] = set()
        self._forgotten: set[str] = set()
        self._node_specs: dict[str, NodeSpec] = {}
        self._versions_seen: dict[str, str] = {}
        self._asked_for_nodes: set[str] = set()
        self._scaler: Autoscaler | None = None

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

    def _object_path(self, text: str) -> tuple[str, bool]:
        kind, name = text.split("/", 1)
        plural, _, group = kind.partition(".")
        known = {"job": "batch/v1", "deployment": "apps/v1", "replicaset": "apps/v1", "pod": "v1", "node": "v1"}
        known |= {"persistentvolumeclaim": "v1", "persistentvolume": "v1", "statefulset": "apps/v1"}
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

    def _pod_path(self, name: str, sub: str = "") -> str:
        return resource_path("v1", "pods", name, namespace=self.namespace, subresource=sub)

    def pods(self) -> list[Json]:
        """Return the pods of the namespace after having run those that were bound since."""
        pods = self.rest.list(resource_path("v1", "pods", namespace=self.namespace))
        current = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods}
        self._seen |= current
        for pod in pods:
            spec, status, meta = pod["spec"], pod.get("status", {}), pod["metadata"]
            if asks_for_nodes(pod):
                self._asked_for_nodes.add(meta["uid"])
            runs = spec.get("nodeName") in self._node_specs and status.get("phase", "Pending") == "Pending"
            if runs and not meta.get("deletionTimestamp"):
                self._set_status(meta["name"], {"phase": "Running", "startTime": meta["creationTimestamp"]})
                pod.setdefault("status", {})["phase"] = "Running"
        if self._scaler is not None:
            self._scaler.look()
        return pods

    def _set_status(self, name: str, status: Json) -> None:
        try:
            self.rest.patch(self._pod_path(name, "status"), {"status": status})
        except ApiError as error:
            if error.status != 404:
                raise

    # -- expectations --------------------------------------------------------------------------------------------------

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
        self._become(expect)
        until = time.monotonic() + float(expect.get("quiet", QUIET))
        while time.monotonic() < until:
            self._stay(expect)
            time.sleep(POLL)

    def _become(self, expect: Json) -> None:
        deadline = time.monotonic() + float(expect.get("within", WITHIN))
        while problems := self._problems(expect):
            if time.monotonic() > deadline:
                raise Unmet("; ".join(problems))
            time.sleep(POLL)

    def _stay(self, expect: Json) -> None:
        if problems := self._problems(expect):
            raise Unmet("did not stay true: " + "; ".join(problems))

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
            chosen = [pod for pod in self._select(selection, pods) if live(pod)]
            bound = sum(bool(pod["spec"].get("nodeName")) for pod in chosen)
            if want == "all":
                ok = bool(chosen) and bound == len(chosen)
            else:
                ok = within(bound, "0" if want == "none" else want)
            if not ok:
                problems.append(f"{selection}: {bound} of {len(chosen)} bound, wanted {want}")
        return problems

    def _expect_pending(self, selections: list[str], pods: list[Json]) -> list[str]:
        problems = []
        for selection in selections:
            chosen = [pod for pod in self._select(selection, pods) if live(pod)]
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
            chosen = [pod for pod in self._select(selection, pods) if live(pod)]
            where = sorted(str(pod["spec"].get("nodeName")) for pod in chosen)
            if not chosen or any(node not in allowed for node in where):
                problems.append(f"{selection}: on {where}, wanted {allowed}")
        return problems

    def _values(self, selection: str, label: str, pods: list[Json]) -> list[str]:
        labels = {spec.name: spec.labels for spec in self._node_specs.values()}
        nodes = [
            pod["spec"]["nodeName"]
            for pod in self._select(selection, pods)
            if live(pod) and pod["spec"].get("nodeName")
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
        ok = names == sorted(want) if isinstance(want, list) else within(len(names), want)
        return [] if ok else [f"evicted {names}, wanted {want}"]

    def _expect_object(self, wanted: Mapping[str, Mapping[str, str]], _: list[Json]) -> list[str]:
        problems = []
        for text, fields in wanted.items():
            if text.endswith("/*"):
                there = self._all_of(text[:-2])
                text = f"{text[:-1]}{there[0]['metadata']['name']}" if len(there) == 1 else text
                if len(there) != 1:
                    problems.append(f"{text}: there are {len(there)}")
                    continue
            try:
                obj = self.rest.get(self._object_path(text)[0])
            except ApiError as error:
                problems.append(f"{text}: {error.reason}")
                continue
            for path, pattern in fields.items():
                value = dig(obj, path)
                if not re.search(str(pattern), "" if value is None else str(value)):
                    problems.append(f"{text} {path}: {value!r} does not match {pattern!r}")
        return problems

    def _all_of(self, kind: str) -> list[Json]:
        return self.rest.list(self._object_path(f"{kind}/")[0].rstrip("/"))

    def _expect_count(self, wanted: Mapping[str, int], _: list[Json]) -> list[str]:
        """{kind: how many of it there are in the namespace}."""
        found = {kind: len(self._all_of(kind)) for kind in wanted}
        return [f"{found[kind]} {kind}, wanted {want}" for kind, want in wanted.items() if found[kind] != want]

    def _expect_condition(self, wanted: Mapping[str, str], pods: list[Json]) -> list[str]:
        problems = []
        for selection, pattern in wanted.items():
            chosen = [pod for pod in self._select(selection, pods) if live(pod)]
            texts = [condition(pod) for pod in chosen]
            if not texts or not all(re.search(pattern, text) for text in texts):
                problems.append(f"{selection}: conditions {sorted(set(texts))} do not match {pattern!r}")
        return problems

    def _expect_autoscaler(self, wanted: Mapping[str, str], pods: list[Json]) -> list[str]:
        """{selection: all, or none}: for which pods an autoscaler would add nodes; none = never until now."""
        problems = []
        for selection, want in wanted.items():
            chosen = [pod for pod in self._select(selection, pods) if live(pod)]
            if want == "none":
                wrong = [pod for pod in chosen if pod["metadata"]["uid"] in self._asked_for_nodes]
            else:
                wrong = [pod for pod in chosen if not asks_for_nodes(pod)]
            if wrong or not chosen:
                problems.append(f"{selection}: {len(wrong)} of {len(chosen)} are not so: autoscaler {want}")
        return problems

    def _expect_added(self, want: object, _: list[Json]) -> list[str]:
        """How many nodes the autoscaler has added."""
        scaler = self._the_scaler()
        return [] if within(scaler.added, want) else [f"{scaler.added} nodes were added, wanted {want}"]

    def _expect_steady(self, selections: list[str], pods: list[Json]) -> list[str]:
        """Pods that began to ask for nodes once and did not cease to; the autoscaler worked for all of them or none."""
        scaler, problems = self._the_scaler(), []
        for selection in selections:
            names = {pod["metadata"]["name"] for pod in self._select(selection, pods)}
            wrong = {name: scaler.changes[name] for name in sorted(names) if scaler.changes.get(name, 0) > 1}
            if wrong:
                problems.append(f"{selection}: changed their minds about nodes {wrong}")
            parts = scaler.parts(names)
            if parts or not names:
                problems.append(f"{selection}: of {len(names)} the autoscaler saw {sorted(parts)}")
        return problems

    def _the_scaler(self) -> Autoscaler:
        if self._scaler is None:
            raise KeyError("no step `autoscaler` comes before")
        return self._scaler

    def _expect_unwritten(self, selections: list[str], pods: list[Json]) -> list[str]:
        """Pods that nobody wrote to since `remember`."""
        return [
            f"{pod['metadata']['name']} was written since"
            for selection in selections
            for pod in self._select(selection, pods)
            if pod["metadata"]["resourceVersion"] != self._versions_seen[pod["metadata"]["uid"]]
        ]

    def _expect_events(self, wanted: Mapping[str, Mapping[str, object]], pods: list[Json]) -> list[str]:
        """{selection: {reason, or reason and words of its note: how many}}; all in the name of the pods' scheduler.

        The selection "group:NAME" means the events about that PodGroup, "KIND:NAME" those about an object of another
        kind, any other those about the selected pods.
        """
        problems = []
        events = self.rest.list(resource_path("events.k8s.io/v1", "events", namespace=self.namespace))
        for selection, counts in wanted.items():
            kind, names = "Pod", set[str]()
            if selection.startswith("group:"):
                kind, names = "PodGroup", {selection[6:]}
            elif selection[0].isupper():
                kind, _, name = selection.partition(":")
                names = {name}
            else:
                names = {pod["metadata"]["name"] for pod in self._select(selection, pods)}
            about = [e for e in events if e["regarding"].get("kind") == kind and e["regarding"]["name"] in names]
            for told, want in counts.items():
                reason, _, words = told.partition(" ")
                found = [e for e in about if e["reason"] == reason and words in e.get("note", "")]
                if not within(len(found), want):
                    problems.append(f"{selection}: {len(found)} events {told}, wanted {want}")
                problems += [
                    f"{selection}: event {reason} comes from {e.get('reportingController')!r}"
                    for e in found
                    if e.get("reportingController") != self._sched
                ]
        return problems


def live(pod: Json) -> bool:
    """Whether a pod has neither ended nor is about to."""
    return not pod["metadata"].get("deletionTimestamp") and not finished(pod)


def finished(pod: Json) -> bool:
    """Whether a pod has ended."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def condition(pod: Json) -> str:
    """Return what PodScheduled says: status, reason, message; "" without one."""
    for one in pod.get("status", {}).get("conditions", []):
        if one["type"] == "PodScheduled":
            return f"{one['status']} {one.get('reason', '')} {one.get('message', '')}"
    return ""


def asks_for_nodes(pod: Json) -> bool:
    """Whether Cluster Autoscaler and Karpenter look for nodes for this pod, by what its status says."""
    free = not pod["spec"].get("nodeName") and not pod.get("status", {}).get("nominatedNodeName")
    return free and live(pod) and condition(pod).startswith("False Unschedulable ")


def within(number: int, want: object) -> bool:
    """Whether a number is the one, or in the range LOW..HIGH, that is wanted."""
    low, _, high = str(want).partition("..")
    return int(low) <= number <= int(high or low)


def dig(value: Any, path: str) -> Any:
    """Return what is at a path of field names, list positions, and types or names of list items; None: nothing."""
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
