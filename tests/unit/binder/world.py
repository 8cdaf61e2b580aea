"""A tiny cluster in memory, in virtual time, for tests of the binder: pods, nodes, requests and every way to fail.

The server side of a request runs in a task of its own, so that a binder that dies does not take its requests back.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from structlog.testing import capture_logs

from scheduler.binder.loop import Binder
from scheduler.binder.pool import LeaseLost
from scheduler.binder.record import Timing
from scheduler.binder.run import Settings
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiError, OutcomeUnknown, Unreachable
from scheduler.model.bindrequest import BindRequest, GangOutcome
from scheduler.model.decisions import Assignment, Place, Victim
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape

START = 1_000_000.0
LATENCY = 0.01
LAG = 0.05
SHAPE = Shape(key="one", requests=(("cpu", 1000),))


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when nothing is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        select = self._selector.select
        self._selector.select = lambda _timeout=None: select(0)

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        if not self._ready:
            if not self._scheduled:
                raise RuntimeError("nothing will ever happen any more")
            self._now = max(self._now, self._scheduled[0]._when)
        super()._run_once()


def run(story: Coroutine[Any, Any, Any]) -> Any:
    """Run a story in virtual time."""
    loop = VirtualLoop()
    try:
        with capture_logs():
            return loop.run_until_complete(asyncio.wait_for(story, 3600))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@dataclass
class Body:
    """A pod as the server has it. takes: seconds to end (negative: it never does). guarded: by the one budget."""

    uid: str
    name: str
    node: str = ""
    gated: bool = False
    deleting: bool = False
    phase: str = "Pending"
    version: int = 1
    takes: float = 1.0
    mark: str = ""
    guarded: bool = False
    ours: bool = True


@dataclass
class Life:
    """One incarnation of the binder."""

    epoch: int = 1
    dead: bool = False
    lease: bool = True
    crash_at: str = ""
    passed: list[str] = field(default_factory=list)

    def may_write(self) -> bool:
        return self.lease


class World:
    """The server. `faults`: (verb, pod) -> kinds of failure, used up in order."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings(
            timeout=2.0,
            grace=8.0,
            history=30.0,
            timing=Timing(first_wait=0.1, last_wait=2.0, settle=2.5, straggle=4.5, confirm=1.0),
        )
        self.loop = asyncio.get_running_loop()
        self.pods: dict[str, Body] = {}
        self.nodes: dict[str, Node] = {}
        self.requests: dict[str, BindRequest] = {}
        self.ended: dict[str, BindRequest] = {}
        self.faults: dict[tuple[str, str], list[str]] = {}
        self.down = False
        self.budget = 0
        self.evicted: list[tuple[float, str, str]] = []
        self.starts = False
        self.bound: list[tuple[float, str, str]] = []
        self.unbound_by_us: set[str] = set()
        self.deleted_by_others: set[str] = set()
        self.writes: list[tuple[float, str, str]] = []
        self.room: list[tuple[float, str, int]] = []
        self.overfull: list[str] = []
        self.reports: list[str] = []
        self.swept = 0
        self.cache = Cache()
        self.cache.mark_synced()
        self.life = Life()
        self._version = 1
        self._side: set[asyncio.Task[Any]] = set()

    # -- contents -------------------------------------------------------------------------------------------------

    def clock(self) -> float:
        return START + self.loop.time()

    def show(self, call: Callable[[], None], lag: float = LAG) -> None:
        """Let the cache see something, after the watch's delay."""
        if lag:
            self.loop.call_later(lag, call)
        else:
            call()

    def touch(self, body: Body, lag: float = LAG) -> None:
        self._version += 1
        body.version = self._version
        started = body.phase == "Running"
        pod = Pod(
            uid=body.uid,
            namespace="ns",
            name=body.name,
            shape=SHAPE.key,
            ours=body.ours,
            node=body.node,
            phase=body.phase,
            gated=body.gated,
            deleting=body.deleting,
            started=started,
            resource_version=str(body.version),
        )
        self.show(lambda: self.cache.pods.put((pod, SHAPE)), lag)

    def add_node(self, name: str, cpu: int, lag: float = 0.0, **changes: Any) -> None:
        self._version += 1
        node = Node(
            name=name,
            uid=f"uid-{name}",
            allocatable=(("cpu", cpu * 1000),),
            resource_version=str(self._version),
            **changes,
        )
        self.nodes[name] = node
        self.room.append((self.clock(), name, cpu))
        self.show(lambda: self.cache.nodes.put(node), lag)

    def add_pod(self, name: str, node: str = "", lag: float = 0.0, **changes: Any) -> Body:
        self._version += 1
        body = self.pods[name] = Body(f"{name}.{self._version}", name, node, **changes)
        self.touch(body, lag)
        return body

    def place(self, name: str, minimum: int, *spots: tuple[str, str], victims: tuple[str, ...] = ()) -> Place:
        assignments = tuple(Assignment(self.pods[pod].uid, "ns", pod, node) for pod, node in spots)
        named = [self.pods[victim] for victim in victims]
        going = tuple(Victim(body.uid, "ns", body.name, body.node, "muster/ns/low", "low") for body in named)
        group = f"muster/ns/{name}"
        return Place(group, f"uid-{name}", "ns", name, "v1", "PodGroup", minimum, assignments, victims=going)

    def request(self, name: str, *gangs: Place, epoch: int = 1, deadline: float = 20.0) -> BindRequest:
        self._version += 1
        request = BindRequest(
            name=name,
            uid=f"uid-{name}-{self._version}",
            session="s-1",
            epoch=epoch,
            deadline=self.clock() + deadline,
            gangs=gangs,
            created=self.clock(),
            resource_version=str(self._version),
        )
        self.set_request(request, 0.0)
        return request

    def set_request(self, request: BindRequest, lag: float = LAG) -> None:
        self.requests[request.name] = request
        self.show(lambda: self.cache.bind_requests.put(request), lag)

    def drop_request(self, name: str) -> None:
        request = self.requests.pop(name, None)
        if request is not None:
            self.show(lambda: self.cache.bind_requests.drop(request.uid))

    # -- what others do -------------------------------------------------------------------------------------------

    def remove_pod(self, name: str, by_us: bool = False) -> None:
        body = self.pods.get(name)
        if body is None or body.deleting:
            return
        (self.unbound_by_us if by_us else self.deleted_by_others).add(body.uid)
        if not body.node:
            self._gone(body)
            return
        body.deleting = True
        self.touch(body)
        if body.takes >= 0:
            self.loop.call_later(body.takes, lambda: self._gone(body))

    def _gone(self, body: Body) -> None:
        if self.pods.get(body.name) is body:
            del self.pods[body.name]
        self.show(lambda: self.cache.pods.drop(body.uid))

    def recreate_pod(self, name: str) -> None:
        body = self.pods.get(name)
        if body is not None:
            self.deleted_by_others.add(body.uid)
            self._gone(body)
        self.add_pod(name, lag=LAG)

    def gate_pod(self, name: str) -> None:
        body = self.pods.get(name)
        if body is not None and not body.node:
            body.gated = True
            self.touch(body)

    def remove_node(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            self.show(lambda: self.cache.nodes.drop(node.uid))

    def cordon(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is not None:
            self.nodes[name] = node = replace(node, unschedulable=True)
            self.show(lambda: self.cache.nodes.put(node))

    def shrink(self, name: str, cpu: int) -> None:
        if name in self.nodes:
            self.add_node(name, cpu, lag=LAG)

    # -- the API --------------------------------------------------------------------------------------------------

    async def call(self, life: Life, method: str, path: str, body: bytes | None) -> bytes:
        parts = path.split("/")
        name = parts[6]
        verb = {"POST": "bind", "GET": "read", "DELETE": "delete", "PATCH": "mark"}[method]
        if path.endswith("/eviction"):
            verb = "evict"
        elif verb == "delete" and body is not None and b"resourceVersion" not in body:
            verb = "remove"
        if life.dead:
            await asyncio.Event().wait()
        if method != "GET":
            self.writes.append((self.clock(), verb, name))
        kinds = self.faults.get((verb, name), [])
        kind = kinds.pop(0) if kinds else ""
        if self.down or kind == "unreachable":
            await asyncio.sleep(LATENCY)
            raise Unreachable("refused")
        if kind in ("429", "503", "403", "500"):
            await asyncio.sleep(LATENCY)
            raise ApiError(int(kind), "Fault", "fault", 1.0 if kind == "429" else None)
        if kind == "lost":
            await asyncio.sleep(self.settings.timeout)
            raise OutcomeUnknown("timed out")
        delay = self.settings.timeout + 1.5 if kind == "late" else LATENCY
        serving = self.loop.create_task(self._serve(delay, verb, name, json.loads(body) if body else {}))
        self._side.add(serving)
        serving.add_done_callback(self._side.discard)
        if kind == "late":
            serving.add_done_callback(lambda task: task.exception())
            await asyncio.sleep(self.settings.timeout)
            raise OutcomeUnknown("timed out")
        answer = await asyncio.shield(serving)
        if kind == "half":
            raise OutcomeUnknown("connection reset")
        if kind == "error-after":
            raise ApiError(500, "InternalError", "fault")
        return answer

    async def _serve(self, delay: float, verb: str, name: str, sent: dict[str, Any]) -> bytes:
        await asyncio.sleep(delay)
        body = self.pods.get(name)
        if body is None:
            raise ApiError(404, "NotFound", "no such pod")
        if verb == "read":
            return self._json(body)
        if verb in ("mark", "evict", "remove"):
            return self._clear(verb, body, sent)
        if verb == "delete":
            guard = sent["preconditions"]
            if guard["uid"] != body.uid or guard["resourceVersion"] != str(body.version):
                raise ApiError(409, "Conflict", "precondition failed")
            self.remove_pod(name, by_us=True)
            return b"{}"
        if sent["metadata"]["uid"] != body.uid or body.node or body.deleting or body.gated:
            raise ApiError(409, "Conflict", "cannot be assigned")
        node = sent["target"]["name"]
        body.node = node
        self.bound.append((self.clock(), body.uid, node))
        self._count(node)
        self.touch(body)
        if self.starts:
            self.loop.call_later(0.5, lambda: self._run_pod(body))
        return b'{"kind":"Status","status":"Success"}'

    def _clear(self, verb: str, body: Body, sent: dict[str, Any]) -> bytes:
        """Serve a request about a victim. An eviction writes a condition of its own, as the API server does."""
        guard = sent["metadata"] if verb == "mark" else sent.get("deleteOptions", sent)["preconditions"]
        if guard["uid"] != body.uid:
            raise ApiError(422 if verb == "mark" else 409, "Conflict", "another pod")
        if verb == "mark":
            body.mark = sent["status"]["conditions"][0]["message"]
            self.touch(body)
            return b"{}"
        if verb == "evict":
            if body.guarded and not body.deleting:
                if self.budget <= 0:
                    text = b'{"details":{"causes":[{"reason":"DisruptionBudget"}]}}'
                    raise ApiError(429, "TooManyRequests", "budget", None, text)
                self.budget -= 1
            body.mark = "Eviction API: evicting"
        if body.deleting:  # a second one changes nothing
            return b"{}"
        self.evicted.append((self.clock(), verb, body.name))
        self.remove_pod(body.name, by_us=True)
        return b"{}"

    def _run_pod(self, body: Body) -> None:
        if self.pods.get(body.name) is body and not body.deleting:
            body.phase = "Running"
            self.touch(body)

    def _count(self, node: str) -> None:
        """Note a node that a bind has made too full, for any size that it had within the last moments."""
        used = sum(1 for body in self.pods.values() if body.node == node and body.phase not in ("Succeeded", "Failed"))
        sizes = [(at, cpu) for at, name, cpu in self.room if name == node]
        recent = [cpu for at, cpu in sizes if at >= self.clock() - 5.0] + [cpu for at, cpu in sizes][-1:]
        older = [cpu for at, cpu in sizes if at < self.clock() - 5.0][-1:]
        if used > max([*recent, *older], default=0):
            self.overfull.append(node)

    def _json(self, body: Body) -> bytes:
        metadata: dict[str, Any] = {"uid": body.uid, "resourceVersion": str(body.version)}
        if body.deleting:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        spec: dict[str, Any] = {"nodeName": body.node} if body.node else {}
        if body.gated:
            spec["schedulingGates"] = [{"name": "g"}]
        return json.dumps({"metadata": metadata, "spec": spec, "status": {"phase": body.phase}}).encode()

    # -- the binder -----------------------------------------------------------------------------------------------

    def binder(self, *, epoch: int = 1, crash_at: str = "", **options: Any) -> asyncio.Task[None]:
        """Start an incarnation of the binder; at the point `crash_at` it dies as by kill -9."""
        life = self.life = Life(epoch=epoch, crash_at=crash_at)
        task: asyncio.Task[None] | None = None

        def observe(point: str, _request: BindRequest) -> None:
            if life.dead:
                return
            life.passed.append(point)
            if point == life.crash_at:
                life.dead = True
                if task is not None:
                    task.cancel()

        settings = options.pop("settings", self.settings)
        self.last = Binder(
            self.cache,
            _Api(self, life),
            _Requests(self, life),
            life,
            settings=settings,
            clock=self.clock,
            observer=observe,
            **options,
        )
        task = self.loop.create_task(self.last.run())
        return task

    async def until_reported(self, within: float = 120.0) -> None:
        """Wait until every request is reported or gone."""
        end = self.loop.time() + within
        while any(request.open for request in self.requests.values()):
            if self.loop.time() > end:
                raise AssertionError(f"still open: {sorted(self.requests)}")
            await asyncio.sleep(0.1)

    async def stop(self, task: asyncio.Task[None]) -> None:
        """End an incarnation; a defect in it is raised here."""
        task.cancel()
        result = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(result, Exception) and not isinstance(result, LeaseLost):
            raise result

    def alive(self, place: Place) -> list[str]:
        """Members that are on their node and not on their way out."""
        by_uid = {body.uid: body for body in self.pods.values()}
        return [
            item.pod
            for item in place.assignments
            if (body := by_uid.get(item.uid)) is not None and body.node == item.node and not body.deleting
        ]


class _Api:
    def __init__(self, world: World, life: Life) -> None:
        self._world = world
        self._life = life

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | Mapping[str, Any] | None = None,
        params: Mapping[str, str | int] | None = None,
        content_type: str = "application/json",
        timeout: float = 15.0,
    ) -> bytes:
        assert body is None or isinstance(body, bytes)
        return await self._world.call(self._life, method, path, body)


class _Requests:
    def __init__(self, world: World, life: Life) -> None:
        self._world = world
        self._life = life

    async def _enter(self, verb: str, name: str) -> None:
        if self._life.dead:
            await asyncio.Event().wait()
        await asyncio.sleep(LATENCY)
        if self._life.dead:
            await asyncio.Event().wait()
        kinds = self._world.faults.get((verb, name), [])
        kind = kinds.pop(0) if kinds else ""
        if self._world.down or kind == "unreachable":
            raise Unreachable("refused")
        if kind:
            raise ApiError(int(kind), "Fault", "fault")
        self._world.writes.append((self._world.clock(), verb, name))

    async def report(self, request: BindRequest, phase: str, outcomes: tuple[GangOutcome, ...]) -> None:
        await self._enter("report", request.name)
        now = self._world.requests.get(request.name)
        if now is None or now.uid != request.uid:
            raise ApiError(404, "NotFound", "gone")
        self._world.reports.append(request.name)
        done = replace(now, phase=phase, outcomes=outcomes, resource_version=now.resource_version + "1")
        self._world.ended[request.name] = done
        self._world.set_request(done)

    async def note(self, request: BindRequest, outcomes: tuple[GangOutcome, ...]) -> None:
        await self._enter("note", request.name)
        now = self._world.requests.get(request.name)
        if now is None or now.uid != request.uid:
            raise ApiError(404, "NotFound", "gone")
        if now.resource_version != request.resource_version:
            raise ApiError(409, "Conflict", "changed")
        self._world.set_request(
            replace(now, phase="Binding", outcomes=outcomes, resource_version=now.resource_version + "1")
        )

    async def adopt(self, request: BindRequest, epoch: int) -> None:
        await self._enter("adopt", request.name)
        now = self._world.requests.get(request.name)
        if now is None:
            raise ApiError(404, "NotFound", "gone")
        if now.resource_version != request.resource_version:
            raise ApiError(409, "Conflict", "changed")
        self._world.set_request(replace(now, epoch=epoch, resource_version=now.resource_version + "1"))

    async def delete(self, request: BindRequest) -> None:
        await self._enter("forget", request.name)
        self._world.drop_request(request.name)

    async def sweep(self) -> int:
        self._world.swept += 1
        return 0
