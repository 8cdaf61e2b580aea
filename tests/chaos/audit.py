"""What really happened, seen by a watch of its own, straight at the API server; and whether it was allowed.

Decided here: the laws of a day. Every pod carries in its labels what it was made for (gang, minimum, queue), so nothing
that the scheduler says is believed. A law about an amount that may change (what a node has, what a queue may hold) is
judged by the most that held in the last `GRACE` seconds: a decision under way may not have heard yet. Must not know the
scheduler. Invariant: events are judged one by one, in the order in which the API server wrote them.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.chaos import plan
from tests.controlplane.rest import ApiError, Json, Rest

GRACE = 25.0
"""Seconds in which a change must have reached every decision: a lease, a binder's deadline, and a lagging watch."""
GPU = "example.com/gpu"
PREFIX = "chaos.muster.sh/"
FOREVER = float("inf")


def labels(gang: plan.Gang) -> dict[str, str]:
    """What the audit reads of a pod."""
    return {
        PREFIX + "gang": gang.name, PREFIX + "min": str(gang.minimum), PREFIX + "queue": gang.queue,
        PREFIX + "rack": str(int(gang.rack)),
    }  # fmt: skip


@dataclass
class Seen:
    """A pod as it is now."""

    name: str
    gang: str
    minimum: int
    queue: str
    rack: bool
    gpu: int
    node: str = ""
    phase: str = ""
    leaving: bool = False
    since: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether it takes room on its node."""
        return bool(self.node) and self.phase not in ("Succeeded", "Failed")


@dataclass
class History:
    """A number that changes, and the most that it was lately."""

    values: list[tuple[float, float]] = field(default_factory=list)

    def set(self, value: float) -> None:
        """It is `value` from now on."""
        self.values.append((time.monotonic(), value))

    def most(self, seconds: float = GRACE) -> float:
        """Return the most that it was in the last seconds."""
        horizon = time.monotonic() - seconds
        last_before = max((i for i, (at, _) in enumerate(self.values) if at <= horizon), default=0)
        return max((value for _, value in self.values[last_before:]), default=0.0)

    @property
    def now(self) -> float:
        """Return what it is."""
        return self.values[-1][1] if self.values else 0.0


class Audit(threading.Thread):
    """See the module. `violations` is what must be empty."""

    def __init__(self, rest: Rest, namespace: str) -> None:
        super().__init__(name="audit", daemon=True)
        self._rest, self._path = rest, f"/api/v1/namespaces/{namespace}/pods"
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.pods: dict[str, Seen] = {}
        self.room = {name: History() for name in plan.nodes()}
        self.usable = {name: History() for name in plan.nodes()}
        self.limits = {name: History() for name in plan.QUEUES}
        for name in plan.nodes():
            self.room[name].set(plan.GPUS)
            self.usable[name].set(1)
        for name, (_, limit) in plan.QUEUES.items():
            self.limits[name].set(limit)
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self._half: dict[str, float] = {}
        self._whole: set[str] = set()
        self.longest_half = (0.0, "")
        self._version = ""
        self._began = time.monotonic()
        self._stories: dict[str, list[str]] = {}

    # -- watching -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """List once, then watch until the end; a watch that loses its place would be no audit."""
        try:
            listed = self._rest.get(self._path)
            self._version = listed["metadata"]["resourceVersion"]
            for pod in listed["items"]:
                self.see("ADDED", pod)
            while not self._over.is_set():
                try:
                    for event in self._rest.watch(
                        self._path, timeout=5, resourceVersion=self._version, allowWatchBookmarks="true"
                    ):
                        if event["type"] == "ERROR":
                            raise RuntimeError(f"the audit lost its place: {event}")
                        self.see(event["type"], event["object"])
                except (OSError, http.client.HTTPException):
                    time.sleep(0.1)
        except (RuntimeError, ApiError, KeyError, ValueError) as error:
            self._violation(f"the audit ended: {error!r}")

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()
        self.join(15)

    def _violation(self, text: str) -> None:
        self.violations.append(f"{time.strftime('%H:%M:%S')} {text}")

    # -- laws at each event ---------------------------------------------------------------------------------------

    def see(self, kind: str, pod: Json) -> None:
        """Judge one event."""
        meta = pod["metadata"]
        self._version = meta["resourceVersion"]
        marks = meta.get("labels") or {}
        if kind == "BOOKMARK" or PREFIX + "gang" not in marks:
            return
        uid = meta["uid"]
        with self._lock:
            before = self.pods.get(uid)
            if kind == "DELETED":
                self.pods.pop(uid, None)
                self._tell(marks[PREFIX + "gang"], f"{meta['name']} is gone")
            else:
                node, phase = pod["spec"].get("nodeName", ""), pod.get("status", {}).get("phase", "")
                seen = Seen(
                    meta["name"], marks[PREFIX + "gang"], int(marks[PREFIX + "min"]), marks[PREFIX + "queue"],
                    marks[PREFIX + "rack"] == "1", _gpus(pod), node, phase, "deletionTimestamp" in meta,
                    before.since if before else time.monotonic(),
                )  # fmt: skip
                self.pods[uid] = seen
                state = (seen.node, seen.phase, seen.leaving)
                if before is None or state != (before.node, before.phase, before.leaving):
                    leaves = ", leaves" if seen.leaving else ""
                    self._tell(seen.gang, f"{seen.name} {seen.phase} on {seen.node or '-'}{leaves}")
                if before is not None and before.node and before.node != node:
                    self._violation(f"{seen.name} was on {before.node} and is on {node}")
                if node and (before is None or not before.node):
                    self._bound(seen)
            self._note_half(marks[PREFIX + "gang"])

    def _tell(self, gang: str, text: str) -> None:
        self._stories.setdefault(gang, []).append(f"{time.monotonic() - self._began:.2f} {text}")

    def story(self, gang: str) -> list[str]:
        """Return what was seen of the members of a gang, each with its second."""
        with self._lock:
            return list(self._stories.get(gang, ()))

    def _bound(self, pod: Seen) -> None:
        self.counts["bound"] += 1
        holders = [one for one in self.pods.values() if one.holds]
        on = sum(one.gpu for one in holders if one.node == pod.node)
        if on > self.room[pod.node].most():
            self._violation(f"{pod.name} makes {on} GPUs on {pod.node}, which has {self.room[pod.node].most():g}")
        if not self.usable[pod.node].most():
            self._violation(f"{pod.name} was bound to {pod.node}, which has long been unusable")
        used = sum(one.gpu for one in holders if one.queue == pod.queue)
        if used > self.limits[pod.queue].most():
            held = Counter(one.gang for one in holders if one.queue == pod.queue)
            self._violation(
                f"{pod.name} makes {used} GPUs in {pod.queue}: limit {self.limits[pod.queue].most():g}; pods on nodes: "
                + ", ".join(f"{gang} {count}" for gang, count in sorted(held.items()))
            )
        if pod.rack:
            racks = {rack_of(one.node) for one in holders if one.gang == pod.gang and not one.leaving}
            if len(racks) > 1:
                self._violation(f"{pod.gang} wants one rack and is in {sorted(racks)}")

    def _note_half(self, gang: str) -> None:
        on, minimum = self._on(gang)
        now = time.monotonic()
        if on and on >= minimum:
            self._whole.add(gang)
        if gang in self._whole or not 0 < on < minimum:
            since = self._half.pop(gang, now)
            self.longest_half = max(self.longest_half, (now - since, gang))
        else:
            self._half.setdefault(gang, now)

    def _on(self, gang: str) -> tuple[int, int]:
        members = [one for one in self.pods.values() if one.gang == gang]
        started = sum((one.holds and not one.leaving) or one.phase == "Succeeded" for one in members)
        return started, max((one.minimum for one in members), default=0)

    # -- laws at rest ---------------------------------------------------------------------------------------------

    def half(self) -> list[str]:
        """Return the gangs of which enough members exist, and some but too few are on nodes."""
        with self._lock:
            exist = Counter(one.gang for one in self.pods.values() if not one.leaving and one.phase != "Failed")
            found = {gang: self._on(gang) for gang in sorted(exist)}
        return [gang for gang, (on, minimum) in found.items() if 0 < on < minimum <= exist[gang]]

    def idle(self) -> list[str]:
        """Return the gangs that wait although they fit as things are, for longer than a moment."""
        with self._lock:
            pods = [*self.pods.values()]
        free = {name: room.now if self.usable[name].now else 0 for name, room in self.room.items()}
        used: Counter[str] = Counter()
        waiting: dict[str, list[Seen]] = {}
        started = set()
        for one in pods:
            if one.holds:
                free[one.node] -= one.gpu
                used[one.queue] += one.gpu
            if one.node:
                started.add(one.gang)
            elif not one.leaving and one.phase == "Pending":
                waiting.setdefault(one.gang, []).append(one)
        return [
            gang
            for gang, members in sorted(waiting.items())
            if gang not in started and _fits(members, free, self.limits[members[0].queue].now - used[members[0].queue])
        ]

    def waiting(self) -> int:
        """Return how many pods are on no node."""
        with self._lock:
            return sum(not one.node for one in self.pods.values())

    def present(self) -> set[str]:
        """Return the gangs of which there are pods."""
        with self._lock:
            return {one.gang for one in self.pods.values()}


def _gpus(pod: Json) -> int:
    return sum(int(one["resources"]["requests"][GPU]) for one in pod["spec"]["containers"])


def rack_of(node: str) -> str:
    """Return the rack of a node, by its name."""
    return f"r{plan.nodes().index(node) // plan.RACK}"


def _fits(members: list[Seen], free: dict[str, float], quota: float) -> bool:
    """Whether the minimum of a gang of equal members has room, as it is and in its queue."""
    first = members[0]
    if len(members) < first.minimum or first.gpu * first.minimum > quota:
        return False
    room: Counter[str] = Counter()
    for node, amount in free.items():
        room[rack_of(node) if first.rack else ""] += max(0, int(amount) // first.gpu)
    return max(room.values()) >= first.minimum
