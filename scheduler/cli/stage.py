"""The stage of the demo: what its story does through the API, what it sees, and what it expects.

Decided here: how an expectation is checked. All that is seen comes from one watch of pods, and every event is looked
at, so that "not one of them was bound" is said of the whole time and not of a few samples. Must not know schedulers,
nor how things are shown. Invariant: `until`, `stays` and `never` either hold or raise `StoryBroken` with what was seen.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from scheduler.playground.client import Client, HttpError
from scheduler.playground.run import apply_manifests, resource_path

Obj = dict[str, Any]
Test = Callable[[], bool]
WITHIN = 15.0
"""Seconds that an expectation may take to come true."""


class StoryBroken(Exception):
    """Something that the story promises did not happen, or something that it excludes did."""


@dataclass(slots=True)
class Actor:
    """A pod as last seen. Times are seconds of the stage's clock; None: not yet."""

    uid: str
    namespace: str
    name: str
    gang: str
    phase: str = "Pending"
    node: str = ""
    reason: str = ""
    started: float | None = None
    """status.startTime, in seconds since the epoch."""
    ending: bool = False
    bound_at: float | None = None
    running_at: float | None = None

    @property
    def active(self) -> bool:
        """Whether it holds its node."""
        return bool(self.node) and self.phase not in ("Succeeded", "Failed")

    @property
    def state(self) -> str:
        """What a person is told: the phase, or that it is being deleted."""
        return "Terminating" if self.ending else self.phase


class Screen(Protocol):
    """Shows what happens."""

    def act(self, title: str) -> None:
        """Open an act."""

    def say(self, text: str) -> None:
        """Tell what is done and why."""

    def met(self, text: str) -> None:
        """Tell that an expectation came true."""

    def quote(self, text: str) -> None:
        """Show words of the cluster."""

    def show(self, actors: list[Actor], nodes: dict[str, int], changed: Actor | None) -> None:
        """Show the pods and, of each node, how many GPUs it has."""


class Stage:
    """See the module. `async with Stage(url, screen) as stage`."""

    def __init__(self, url: str, screen: Screen, *, resource: str, within: float = WITHIN, linger: float = 0.0) -> None:
        """`linger`: seconds of rest after what a person should have time to read."""
        self.screen, self.resource = screen, resource
        self.actors: dict[str, Actor] = {}
        self.nodes: dict[str, int] = {}
        self.expectations = 0
        self._client, self._within, self._linger = Client(url), within, linger
        self._started = time.monotonic()
        self._changed = asyncio.Event()
        self._guards: list[tuple[str, Test]] = []
        self._broken: StoryBroken | None = None
        self._follower: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Stage:
        self._follower = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
        await self._client.close()

    @property
    def clock(self) -> float:
        """Seconds since the stage was made."""
        return time.monotonic() - self._started

    # -- acting ---------------------------------------------------------------------------------------------------

    async def apply(self, documents: list[Obj]) -> None:
        """Apply objects, in order."""
        await apply_manifests(self._client, copy.deepcopy(documents))

    async def delete(self, documents: list[Obj]) -> None:
        """Delete objects and what they own."""
        for one in reversed(documents):
            try:
                await self._client.request(
                    "DELETE", await resource_path(self._client, one), {"propagationPolicy": "Background"}
                )
            except HttpError as error:
                if error.status != 404:
                    raise

    async def read(self, document: Obj) -> Obj:
        """Return an object as it is now."""
        found: Obj = await self._client.request("GET", await resource_path(self._client, document))
        return found

    async def count_nodes(self) -> None:
        """Look at which nodes there are."""
        listed = await self._client.request("GET", "/api/v1/nodes")
        self.nodes = {
            node["metadata"]["name"]: int(node["status"]["allocatable"].get(self.resource, 0))
            for node in listed["items"]
        }
        self._show(None)

    async def rest(self) -> None:
        """Give a person time to read."""
        await asyncio.sleep(self._linger)

    # -- seeing ---------------------------------------------------------------------------------------------------

    def gang(self, name: str) -> list[Actor]:
        """Return the pods of a gang, Job or group, by name."""
        return sorted((one for one in self.actors.values() if one.gang == name), key=lambda one: one.name)

    def bound(self, name: str) -> int:
        """Return how many pods of a gang hold a node."""
        return sum(one.active for one in self.gang(name))

    def running(self, name: str) -> int:
        """Return how many pods of a gang run."""
        return sum(one.phase == "Running" for one in self.gang(name))

    async def _follow(self) -> None:
        async for kind, data in self._client.follow("/api/v1/pods"):
            if kind == "SYNC":
                present = {pod["metadata"]["uid"] for pod in data}
                for uid in [uid for uid in self.actors if uid not in present]:
                    self.actors.pop(uid)
                for pod in data:
                    self._observe(pod)
            elif kind == "DELETED":
                self.actors.pop(data["metadata"]["uid"], None)
                self._show(None)
            else:
                self._observe(data)
            self._check_guards()
            self._changed.set()

    def _observe(self, pod: Obj) -> None:
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        actor = self.actors.get(meta["uid"])
        new = actor is None
        if actor is None:
            labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
            group = labels.get("scheduling.muster.sh/pod-group") or annotations.get("scheduling.k8s.io/group-name")
            actor = Actor(meta["uid"], meta["namespace"], meta["name"], group or labels.get("job-name") or meta["name"])
            self.actors[actor.uid] = actor
        before = (actor.state, actor.node)
        actor.node, actor.phase = spec.get("nodeName", ""), status.get("phase", "Pending")
        actor.ending = bool(meta.get("deletionTimestamp"))
        if status.get("startTime"):
            actor.started = datetime.fromisoformat(status["startTime"]).timestamp()
        actor.reason = next(
            (
                row.get("message", "")
                for row in status.get("conditions") or ()
                if row["type"] == "PodScheduled" and row["status"] == "False"
            ),
            "",
        )
        if actor.node and actor.bound_at is None:
            actor.bound_at = self.clock
        if actor.phase == "Running" and actor.running_at is None:
            actor.running_at = self.clock
        self._show(actor if new or before != (actor.state, actor.node) else None)

    def _show(self, changed: Actor | None) -> None:
        ordered = sorted(self.actors.values(), key=lambda one: (one.namespace, one.name))
        self.screen.show(ordered, self.nodes, changed)

    # -- expecting ------------------------------------------------------------------------------------------------

    def _check_guards(self) -> None:
        for text, test in self._guards:
            if self._broken is None and not test():
                self._broken = StoryBroken(f"it did not hold that {text}; seen: {self.seen()}")

    def seen(self) -> str:
        """Return the pods and their state in one line."""
        shown = (f"{one.name} {one.state}{' on ' + one.node if one.node else ''}" for one in self.actors.values())
        return ", ".join(sorted(shown)) or "no pods"

    async def until(self, text: str, test: Test, within: float | None = None) -> None:
        """Wait until something is true."""
        deadline = time.monotonic() + (within or self._within)
        while not test():
            self._raise_if_broken()
            left = deadline - time.monotonic()
            if left <= 0:
                raise StoryBroken(f"it did not become true within {within or self._within:g} s that {text}; "
                                  f"seen: {self.seen()}")  # fmt: skip
            self._changed.clear()
            try:
                async with asyncio.timeout(min(left, 0.5)):  # wait_for may lose an interruption before Python 3.12
                    await self._changed.wait()
            except TimeoutError:
                continue
        self._raise_if_broken()

    def met(self, text: str) -> None:
        """Tell of an expectation that came true, and count it."""
        self.expectations += 1
        self.screen.met(text)

    def require(self, text: str, holds: bool, detail: str = "") -> None:
        """Check something once."""
        if not holds:
            raise StoryBroken(f"it is not so that {text}" + (f": {detail}" if detail else ""))

    @asynccontextmanager
    async def never(self, text: str, excluded: Test) -> AsyncIterator[None]:
        """Let nothing that happens meanwhile make `excluded` true."""
        guard = (text, lambda: not excluded())
        self._guards.append(guard)
        try:
            self._check_guards()
            yield
            self._raise_if_broken()
        finally:
            self._guards.remove(guard)

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._follower is not None and self._follower.done():
            self._follower.result()
            raise StoryBroken("the watch of pods ended")
