"""A node autoscaler as Cluster Autoscaler and Karpenter look at pods, for stories.

Decided here: which pods it works for (unbound, alive, PodScheduled False with the reason Unschedulable, no
nominatedNodeName, old enough), and how many nodes it adds: it first puts pods on what is free, each by itself, since it
knows no gangs, and makes nodes of one template for the rest. Every change of a pod is watched, so that a condition that
comes and goes is seen, however short. The conditions of a gang are several writes, so a look between them sees a part
of it, as that of a real one does: what counts is a part that is still one at a second look, `SCAN` later. Knows neither
Muster nor its objects.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from scheduler.model.quantity import parse_quantity
from tests.controlplane.rest import Rest, resource_path

Json = dict[str, Any]
PERIOD, SETTLE, SCAN = 0.3, 1.0, 1.0
"""Seconds between looks; that a pod asks before nodes are added for it; from a look at a part to the second one."""
KEYS = {"template", "most", "at_once"}


class Autoscaler:
    """Looks now and then, when `look` is called. template: a node as in `nodes`; most: of them; at_once: how many.

    asks: whether a pod asks for nodes. add: makes a node.
    """

    def __init__(
        self, rest: Rest, namespace: str, asks: Callable[[Json], bool], add: Callable[[Json], None], spec: Json
    ) -> None:
        unknown = set(spec) - KEYS
        if unknown:
            raise ValueError(f"autoscaler: unknown keys {sorted(unknown)}; known: {sorted(KEYS)}")
        self.added = 0
        self.changes: dict[str, int] = {}
        """Pod -> how often it began or ceased to ask while it waited."""
        self._seen: list[tuple[float, frozenset[str], frozenset[str]]] = []
        """Each look: when, for which pods it worked, and which had a node then: a gang is bound one by one."""
        self._rest, self._namespace, self._asks, self._add = rest, namespace, asks, add
        self._template, self._most, self._at_once = spec["template"], spec.get("most", 8), spec.get("at_once", 8)
        self._looked = 0.0
        self._asking: dict[str, bool] = {}
        self._first: dict[str, float] = {}
        self._pods = resource_path("v1", "pods", namespace=namespace)
        self._ended = False
        threading.Thread(target=self._watch, name="autoscaler", daemon=True).start()

    def stop(self) -> None:
        """End it; its watch ends with the pods' namespace or by itself."""
        self._ended = True

    def parts(self, names: set[str]) -> set[int]:
        """For how many of these pods it worked while it did not for the others, at a look and all through a scan."""
        found, since = set[int](), None
        for now, asking, placed in self._seen:
            number = len(names & asking)
            if names & placed or number in (0, len(names)):
                since = None
                continue
            since = now if since is None else since
            if now - since >= SCAN:
                found.add(number)
        return found

    def _watch(self) -> None:
        for event in self._rest.watch(self._pods, timeout=120.0):
            if self._ended:
                return
            pod = event["object"]
            if event["type"] in ("ADDED", "MODIFIED") and not pod["spec"].get("nodeName"):
                name, asks = pod["metadata"]["name"], self._asks(pod)
                self.changes[name] = self.changes.get(name, 0) + (asks != self._asking.get(name, False))
                self._asking[name] = asks

    def look(self) -> None:
        """Add nodes for the pods that ask for them, if it is time to look again."""
        now = time.monotonic()
        if now - self._looked < PERIOD:
            return
        self._looked = now
        everyone = self._rest.list("/api/v1/pods")
        pods = [pod for pod in everyone if pod["metadata"]["namespace"] == self._namespace]
        asking = [pod for pod in pods if self._asks(pod)]
        for pod in asking:
            self._first.setdefault(pod["metadata"]["uid"], now)
        old = [pod for pod in asking if now - self._first[pod["metadata"]["uid"]] >= SETTLE]
        placed = (pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName"))
        self._seen.append((now, frozenset(pod["metadata"]["name"] for pod in old), frozenset(placed)))
        for _ in range(min(self._at_once, self._needed(old, everyone), self._most - self.added)):
            name = f"{self._template.get('name', 'added')}-{self.added}"
            self._add({**self._template, "name": name})
            self.added += 1

    def _needed(self, pods: list[Json], everyone: list[Json]) -> int:
        """How many nodes pods need beside what is free, put one by one where they fit first."""
        rooms = [_free(node, everyone) for node in self._rest.list("/api/v1/nodes")]
        new: list[dict[str, Fraction]] = []
        whole = {key: parse_quantity(str(value)) for key, value in _capacity(self._template).items()}
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
            wants = _requests(pod)
            room = next((one for one in (*rooms, *new) if _fits(wants, one)), None)
            if room is None and _fits(wants, whole):
                room = dict(whole)
                new.append(room)
            for key, value in wants.items() if room is not None else ():
                room[key] = room.get(key, Fraction(0)) - value
        return len(new)


def _free(node: Json, everyone: Iterable[Json]) -> dict[str, Fraction]:
    free = {key: parse_quantity(value) for key, value in node["status"].get("allocatable", {}).items()}
    for pod in everyone:
        here = pod["spec"].get("nodeName") == node["metadata"]["name"]
        if here and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            for key, value in _requests(pod).items():
                free[key] = free.get(key, Fraction(0)) - value
    return free


def _capacity(template: Json) -> Json:
    given = {"cpu": template.get("cpu", 64), "memory": template.get("memory", "512Gi"), "pods": 110}
    return {**given, **({"nvidia.com/gpu": template["gpu"]} if "gpu" in template else {})}


def _requests(pod: Json) -> dict[str, Fraction]:
    total = {"pods": Fraction(1)}
    for container in pod["spec"]["containers"]:
        for key, value in container.get("resources", {}).get("requests", {}).items():
            total[key] = total.get(key, Fraction(0)) + parse_quantity(value)
    return total


def _fits(wants: dict[str, Fraction], room: dict[str, Fraction]) -> bool:
    return all(room.get(key, Fraction(0)) >= value for key, value in wants.items())
