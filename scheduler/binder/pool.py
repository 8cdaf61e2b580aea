"""How many requests about pods are under way, and in which order they leave.

Decided here: the number of workers (halved when the server says 429, then slowly back), who goes first (what was asked
again or is urgent, then gangs by arrival), and that nothing is written without the lease. Must not know: what an answer
means for a gang. There is a task for each worker and none for each pod.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from scheduler.binder import answers
from scheduler.binder.ports import Api
from scheduler.binder.record import ABOUT_VICTIMS, Answer, Kind, Verb
from scheduler.cluster.client import JSON, STRATEGIC, RequestFailed
from scheduler.model.decisions import Assignment, Mark


class LeaseLost(Exception):
    """The lease is not held any more: nothing was written after that, and the process must end."""


class Job(NamedTuple):
    """One request about one member, or about one victim, where `member` is its number among those.

    `owner` and `gang` come back with the answer; body: what is sent, where it is not made here.
    """

    verb: Verb
    owner: Any
    gang: int
    member: int
    target: Assignment
    version: str = ""
    body: bytes = b""


class Answering(Protocol):
    """Who hears the answers, and who has more work."""

    def answered(self, job: Job, answer: Answer) -> None:
        """Take an answer."""

    def listen(self, answer: Answer) -> None:
        """Hear what the API server said, or that it said nothing."""

    def start_next(self) -> bool:
        """Start the next gang that waits, which may put jobs; False when none waits."""

    def veto(self, job: Job) -> Answer | None:
        """Return the answer to a bind that waited and must not be sent any more, or None."""

    def obsolete(self, job: Job) -> bool:
        """Whether a request about a victim is not wanted any more."""

    def charged(self, job: Job) -> str:
        """Return the queue that a pod is charged to which is bound, "" where it is told nothing."""


class Alarms:
    """Calls at times of a clock. One handle of the event loop for all of them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._handle: asyncio.TimerHandle | None = None
        self._armed = 0.0

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call `call` at `when`; calls for the same time are made in the order of asking."""
        self._number += 1
        heappush(self._heap, (when, self._number, call))
        self._arm()

    def close(self) -> None:
        """Call nothing any more."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        if not self._heap:
            return
        when = self._heap[0][0]
        if self._handle is not None:
            if self._armed <= when:
                return
            self._handle.cancel()
        self._armed = when
        # An hour at most, so that a clock that was set is noticed.
        delay = min(3600.0, max(0.0, when - self._clock()))
        self._handle = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._handle = None
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            heappop(self._heap)[2]()
        self._arm()


class Pool:
    """Workers over a queue of jobs."""

    def __init__(
        self,
        api: Api,
        hearer: Answering,
        may_write: Callable[[], bool],
        alarms: Alarms,
        clock: Callable[[], float],
        spawn: Callable[[Coroutine[Any, Any, None]], Any],
        *,
        most: int = 64,
        least: int = 4,
        timeout: float = 10.0,
    ) -> None:
        self._api = api
        self._hearer = hearer
        self._may_write = may_write
        self._alarms = alarms
        self._clock = clock
        self._spawn = spawn
        self._most = most
        self._least = min(least, most)
        self._timeout = timeout
        self._queue: deque[Job] = deque()
        self._later: dict[int, Job] = {}
        self._number = 0
        self._active = 0
        self._good = 0
        self._cut_at = float("-inf")
        self._paused_until = 0.0
        self.limit = most

    @property
    def depth(self) -> int:
        """Return how many jobs wait."""
        return len(self._queue) + len(self._later)

    def put(self, job: Job, at: float = 0.0) -> None:
        """Queue a job. One with a time waits for it and then goes first, as do reads and deletions.

        One about a victim is dropped, without an answer, if it is not wanted any more when its turn comes.
        """
        if at > self._clock():
            self._number += 1
            number = self._number
            self._later[number] = job
            self._alarms.at(at, lambda: self._due(number))
        elif at or job.verb in (Verb.READ, Verb.DELETE, Verb.LOOK):
            self._queue.appendleft(job)
        else:
            self._queue.append(job)

    def _due(self, number: int) -> None:
        job = self._later.pop(number, None)
        if job is None:
            return
        refusal = self._hearer.veto(job) if job.verb is Verb.BIND else None
        if refusal is not None:
            self._hearer.answered(job, refusal)
            return
        self._queue.appendleft(job)
        self.kick()

    def recall(self, owner: Any, gang: int) -> list[Job]:
        """Take back the binds of a gang that have not been sent."""

        def mine(job: Job) -> bool:
            return job.verb is Verb.BIND and job.owner is owner and job.gang == gang

        back = [job for job in self._queue if mine(job)]
        if back:
            self._queue = deque(job for job in self._queue if not mine(job))
        late = [number for number, job in self._later.items() if mine(job)]
        return back + [self._later.pop(number) for number in late]

    def kick(self) -> None:
        """Let as many workers run as there is work for."""
        if self._paused_until > self._clock():
            return
        while len(self._queue) < self.limit and self._hearer.start_next():
            pass
        for _ in range(min(self.limit - self._active, len(self._queue))):
            self._active += 1
            self._spawn(self._work())

    async def _work(self) -> None:
        try:
            while self._active <= self.limit and self._paused_until <= self._clock():
                if not self._queue:
                    while len(self._queue) < self.limit and self._hearer.start_next():
                        pass
                    if not self._queue:
                        return
                job = self._queue.popleft()
                if job.verb in ABOUT_VICTIMS and self._hearer.obsolete(job):
                    continue
                answer = await self._send(job)
                self._adapt(answer)
                self._hearer.listen(answer)
                self._hearer.answered(job, answer)
        finally:
            self._active -= 1

    def _binding(self, job: Job) -> bytes:
        return binding(job.target, self._hearer.charged(job))

    async def _send(self, job: Job) -> Answer:
        try:
            match job.verb:
                case Verb.BIND:
                    self._guard()
                    await self._api.request(
                        "POST", f"{pod_path(job.target)}/binding", body=self._binding(job), timeout=self._timeout
                    )
                    return answers.BOUND
                case Verb.READ:
                    data = await self._api.request("GET", pod_path(job.target), timeout=self._timeout)
                    return answers.read_pod(data, job.target.uid)
                case Verb.DELETE:
                    self._guard()
                    await self._api.request(
                        "DELETE", pod_path(job.target), body=deletion(job.target, job.version), timeout=self._timeout
                    )
                    return answers.DELETED
                case Verb.LOOK:
                    data = await self._api.request("GET", pod_path(job.target), timeout=self._timeout)
                    return answers.read_pod(data, job.target.uid, Verb.LOOK)
                case Verb.MARK | Verb.EVICT | Verb.REMOVE:
                    self._guard()
                    method, sub, kind = _ABOUT_A_VICTIM[job.verb]
                    path = pod_path(job.target) + sub
                    await self._api.request(method, path, body=job.body, content_type=kind, timeout=self._timeout)
                    return Answer(job.verb, Kind.DONE)
        except RequestFailed as error:
            return answers.failed(job.verb, error)

    def _guard(self) -> None:
        if not self._may_write():
            raise LeaseLost("the lease is not held: the binder stops writing")

    def _adapt(self, answer: Answer) -> None:
        if answer.kind is Kind.RETRY and answer.cause == answers.TOO_MANY:
            now = self._clock()
            if now - self._cut_at >= 1.0:  # answers to requests of the same burst say the same thing once
                self._cut_at = now
                self.limit = max(self._least, self.limit // 2)
            if answer.after > 0 and now + answer.after > self._paused_until:
                self._paused_until = now + answer.after
                self._alarms.at(self._paused_until, self.kick)
            self._good = 0
        elif self.limit < self._most:
            self._good += 1
            if self._good >= self.limit:
                self._good = 0
                self.limit += 1
                self.kick()


_ABOUT_A_VICTIM = {
    Verb.MARK: ("PATCH", "/status", STRATEGIC),
    Verb.EVICT: ("POST", "/eviction", JSON),
    Verb.REMOVE: ("DELETE", "", JSON),
}
RANK, DOMAINS = "scheduling.muster.sh/rank", "scheduling.muster.sh/domains"
CHARGED_TO = "scheduling.muster.sh/charged-to"
"""Annotations of a pod that its containers may read (downward API)."""


def pod_path(target: Assignment) -> str:
    """Return the path of a pod. The names were checked: they need no escaping."""
    return f"/api/v1/namespaces/{target.namespace}/pods/{target.pod}"


def binding(target: Assignment, queue: str = "") -> bytes:
    """Return a Binding that names the pod's uid, so that a pod re-created under the name is not bound.

    The API server copies its annotations to the pod: its rank, its domains and the queue that it is charged to, before
    any container starts.
    """
    annotations = _annotations(target.mark, queue)
    marks = f',"annotations":{json.dumps(annotations)}' if annotations else ""
    return (
        f'{{"apiVersion":"v1","kind":"Binding","metadata":{{"name":"{target.pod}","namespace":"{target.namespace}",'
        f'"uid":"{target.uid}"{marks}}},"target":{{"apiVersion":"v1","kind":"Node","name":"{target.node}"}}}}'
    ).encode()


def _annotations(mark: Mark | None, queue: str) -> dict[str, str]:
    found = {CHARGED_TO: queue} if queue else {}
    if mark is not None and mark.rank >= 0:
        found[RANK] = str(mark.rank)
    if mark is not None and mark.domains:
        found[DOMAINS] = ",".join(f"{level}={domain}" for level, domain in mark.domains)
    return found


def deletion(target: Assignment, version: str) -> bytes:
    """Return options that delete exactly the pod that was read: it has not started since."""
    return (
        f'{{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{{"uid":"{target.uid}",'
        f'"resourceVersion":"{version}"}}}}'
    ).encode()
