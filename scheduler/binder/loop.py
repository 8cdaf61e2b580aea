"""The binder at work: feeds the machine, performs what it asks for, reports once a request has ended.

Decided here: the order of gangs (by arrival; a gang is checked only when there is room to bind it, so that the check
is fresh) and what an outage of the API server does to deadlines (it stops them). Must not know: where pods should go.
Invariants: nothing is written without the lease; a request is reported exactly once, when all its gangs have ended;
whatever this process forgets by dying can be read again from pods and requests.

No state of a gang is written while it is under way: after a crash the pods themselves tell which members are bound. How
a gang was given up is written soon after, while others of its request go on: its nodes are free again, and it is not
taken up again from that request.

A little over 500 lines, because every part here changes the same table of requests under way; what could be told apart
(pool, desk, fence, ledger, check, awaiting, silence) is in modules of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from scheduler.binder import answers
from scheduler.binder.arrivals import Arrivals, Epoch
from scheduler.binder.awaiting import Awaiting, barred_members
from scheduler.binder.causes import MALFORMED, POD_GONE
from scheduler.binder.check import FOREIGN, NODE_GONE, bad_victim, check, foreign_victim, recheck
from scheduler.binder.clearing import expects
from scheduler.binder.desk import Desk
from scheduler.binder.evictions import eviction_body
from scheduler.binder.fence import STALE_EPOCH, Fencing, fence
from scheduler.binder.ledger import Ledger
from scheduler.binder.machine import ImpossibleTransition, step
from scheduler.binder.pool import Alarms, Job, LeaseLost, Pool
from scheduler.binder.ports import (
    Api,
    Cache,
    Elector,
    Meter,
    NoMeter,
    Observer,
    PreStep,
    Requests,
    Words,
    no_budgets,
    no_queues,
    observe_nothing,
    tell_nobody,
)
from scheduler.binder.record import (
    ABOUT_VICTIMS,
    Answer,
    Answered,
    Ask,
    AwaitVictims,
    Check,
    Clear,
    Effect,
    Event,
    Extend,
    Finish,
    Kind,
    Member,
    Phase,
    Prepare,
    Prepared,
    Recall,
    Record,
    Refuse,
    Start,
    Undo,
    Undone,
    Verb,
    VictimsAnswered,
    VictimsSeen,
    Wake,
    Watched,
    Withdraw,
    Woke,
)
from scheduler.binder.run import GIVEN_UP, Run, Settings, begin, prepare
from scheduler.binder.silence import Silence
from scheduler.cluster import feed
from scheduler.model.bindrequest import BindRequest, GangOutcome
from scheduler.model.decisions import Assignment, Place, Victim
from scheduler.model.pods import Pod

log = structlog.get_logger(__name__)


_NOTE_AFTER = 0.5
"""Seconds in which gangs that are given up share one write."""


class Binder:
    """See the module. `run` until it is cancelled, or until it raises `LeaseLost`."""

    def __init__(
        self,
        cache: Cache,
        api: Api,
        requests: Requests,
        elector: Elector,
        *,
        settings: Settings | None = None,
        clock: Callable[[], float] = time.time,
        observer: Observer = observe_nothing,
        meter: Meter | None = None,
        steps: tuple[PreStep, ...] = (),
        words: Words | None = None,
        covered: Callable[[Pod], bool] = no_budgets,
        told: Callable[[BindRequest, Place, Victim], None] = tell_nobody,
        charged: Callable[[Place, str], str] = no_queues,
        deciding: Epoch | None = None,
    ) -> None:
        """Set it up.

        `covered`: whether a disruption budget covers a pod; `told`: hears of each accepted eviction; `charged`: the
        queue of a member (uid), which is written on it; `deciding`: where another process decides, what reads the epoch
        with which it does.
        """
        self._cache = cache
        self._elector = elector
        self._settings = settings or Settings()
        self._clock = clock
        self._observer = observer
        self._meter = meter or NoMeter()
        self._steps = steps
        self._words = words
        self._covered = covered
        self._told = told
        self._charged = charged
        self._arrivals = Arrivals(deciding, self._begin_late, clock) if deciding is not None else None
        self._ledger = Ledger()
        self._alarms = Alarms(clock)
        self._pool = Pool(
            api,
            self,
            elector.may_write,
            self._alarms,
            clock,
            self._spawn,
            most=self._settings.in_flight,
            timeout=self._settings.timeout,
        )
        self._desk = Desk(
            requests, cache, elector, self._alarms, clock, self._spawn, observer, self._meter, self._settings
        )
        self._runs: dict[str, Run] = {}
        self._waiting: deque[tuple[Run, int]] = deque()
        self._under_way: dict[str, tuple[Run, int, int]] = {}
        self._awaiting = Awaiting()
        self._answers: dict[tuple[int, int, bool], tuple[Run, int, list[tuple[int, Answer]]]] = {}
        self._flushing = False
        recent = 2 * (self._settings.timeout + self._settings.timing.last_wait)
        self._silence = Silence(clock, self._settings.silence, recent)
        self._tasks: set[asyncio.Task[None]] = set()
        self._fatal: asyncio.Future[None] | None = None

    # -- life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take over what is there, then serve. The caches must be synced and the lease held before.

        Raises `LeaseLost` before the first write that the lease does not cover; whatever else it raises is a defect.
        """
        self._fatal = asyncio.get_running_loop().create_future()
        unsubscribe: Callable[[], None] | None = None
        try:
            found: list[BindRequest] = []

            def gather(events: list[feed.Event]) -> None:
                self._ledger.apply(events)
                found.extend(event.request for event in events if isinstance(event, feed.RequestSet))

            live = False
            unsubscribe = self._cache.subscribe(lambda events: self._on_events(events) if live else gather(events))
            live = True
            for request in sorted(found, key=lambda request: (request.created, request.name)):
                self._admit(request, found=True)
            self._desk.start()
            if self._arrivals is not None:
                self._spawn(self._arrivals.run())
            self._pool.kick()
            await self._fatal
        finally:
            if unsubscribe is not None:
                unsubscribe()
            self._alarms.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._die(error)

    def _die(self, error: BaseException) -> None:
        if self._fatal is not None and not self._fatal.done():
            if not isinstance(error, LeaseLost):
                log.error("binder.defect", error=repr(error))
            self._fatal.set_exception(error)

    @property
    def open_requests(self) -> int:
        """Return how many requests are under way."""
        return len(self._runs)

    @property
    def depth(self) -> int:
        """Return how many requests about pods and how many gangs wait."""
        return self._pool.depth + len(self._waiting)

    # -- requests -------------------------------------------------------------------------------------------------

    def _admit(self, request: BindRequest, *, found: bool) -> None:
        known = self._runs.get(request.name)
        if known is not None and known.request.uid == request.uid:
            known.request = request
            return
        if known is not None:
            self._withdraw(known)
        if not self._desk.is_new(request):
            if self._arrivals is not None:
                self._arrivals.gone(request.name)
        elif self._arrivals is not None:
            self._arrivals.came(request, found=found)
        else:
            self._begin(request, fence(request.epoch, self._elector.epoch, found=found), found)

    def _begin(self, request: BindRequest, fencing: Fencing, found: bool) -> None:
        if fencing is Fencing.LEAVE:
            log.warning("binder.newer-epoch", request=request.name, epoch=request.epoch, ours=self._elector.epoch)
            self._meter.count("bind_requests_left")
            return
        now = self._clock()
        deadline = max(request.deadline, now + self._settings.grace) if found else request.deadline
        run = begin(request, deadline, now, self._settings.timing, found=found)
        self._runs[request.name] = run
        self._point("received", run)
        if not run.open:
            self._finished(run)
            return
        if fencing is Fencing.REFUSE:
            log.warning("binder.stale-epoch", request=request.name, epoch=request.epoch, ours=self._elector.epoch)
            for index, record in enumerate(run.records):
                if not record.ended:
                    self._step(run, index, Refuse(STALE_EPOCH))
            return
        for index, place in enumerate(request.gangs):
            if not run.records[index].ended and bad_victim(place):
                self._step(run, index, Refuse(MALFORMED))
        if fencing is Fencing.ADOPT:
            self._spawn(self._adopt(run))
        else:
            self._waiting.extend((run, index) for index in range(len(run.records)))

    def _begin_late(self, request: BindRequest, fencing: Fencing, half: bool) -> None:
        self._begin(request, fencing, half)
        self._pool.kick()

    async def _adopt(self, run: Run) -> None:
        if not await self._desk.adopt(run.request):
            self._withdraw(run)
            return
        self._point("adopted", run)
        self._waiting.extend((run, index) for index, record in enumerate(run.records) if not record.ended)
        self._pool.kick()

    def _withdraw(self, run: Run) -> None:
        """The object is gone: what has not begun does not begin; what has, ends as it must."""
        run.withdrawn = True
        for index in range(len(run.records)):
            self._step(run, index, Withdraw())

    def _finished(self, run: Run) -> None:
        if self._runs.get(run.request.name) is run:
            del self._runs[run.request.name]
        bound = bool(run.records) and all(record.phase is Phase.BOUND for record in run.records)
        phase = Phase.BOUND if bound else Phase.FAILED
        self._meter.seconds("bind_request_seconds", self._clock() - run.began, phase=phase.value)
        if not run.withdrawn:
            self._desk.report(run.request, phase.value, self._outcomes(run))

    def _outcomes(self, run: Run) -> tuple[GangOutcome, ...]:
        return tuple(run.told.get(record.index) or record.outcome() for record in run.records if record.ended)

    async def _note(self, run: Run) -> None:
        """Say which gangs were given up while the others of their request are still under way."""
        wait = _NOTE_AFTER
        while True:
            await asyncio.sleep(wait)
            run.noting = False
            if run.withdrawn or self._runs.get(run.request.name) is not run:
                return
            if await self._desk.note(run.request, self._outcomes(run)):
                return
            run.noting = True
            wait = min(5.0, wait * 2)

    # -- events from the cache ------------------------------------------------------------------------------------

    def _on_events(self, events: list[feed.Event]) -> None:
        try:
            self._take(events)
        except Exception as error:  # noqa: BLE001 - a defect here must end the process, not the cache's delivery
            self._die(error)

    def _take(self, events: list[feed.Event]) -> None:
        self._ledger.apply(events)
        on: dict[tuple[int, int], tuple[Run, int, list[tuple[int, str]], list[int]]] = {}
        look: dict[tuple[Run, int], None] = dict.fromkeys(self._awaiting.shaken(events))
        for event in events:
            if isinstance(event, feed.PodSet):
                entry = self._under_way.get(event.pod.uid)
                if entry is not None and event.pod.node:
                    run, gang, member = entry
                    on.setdefault((id(run), gang), (run, gang, [], []))[2].append((member, event.pod.node))
                elif entry is not None and (not event.pod.waiting or event.pod.gated or not event.pod.ours):
                    look[entry[:2]] = None
            elif isinstance(event, feed.PodGone):
                entry = self._under_way.get(event.uid)
                if entry is not None:
                    run, gang, member = entry
                    on.setdefault((id(run), gang), (run, gang, [], []))[3].append(member)
            elif isinstance(event, feed.RequestSet):
                self._admit(event.request, found=False)
            elif isinstance(event, feed.RequestGone):
                known = self._runs.get(event.name)
                if known is not None:
                    self._withdraw(known)
                if self._arrivals is not None:
                    self._arrivals.gone(event.name)
                self._desk.gone(event.name)
        now = self._clock()
        for run, gang, there, gone in on.values():
            self._step(run, gang, Watched(now, tuple(there), tuple(gone)))
        for run, gang in look:
            self._look_again(run, gang)
        for (run, gang), (ended, leaving) in self._awaiting.victims(events).items():
            self._step(run, gang, VictimsSeen(now, tuple(ended), tuple(leaving)))
        self._pool.kick()

    def _look_again(self, run: Run, gang: int) -> None:
        """While victims are awaited: tell which members can not be bound any more, however much room there will be."""
        record = run.records[gang]
        if record.phase is Phase.AWAITING_VICTIMS:
            failures = barred_members(record, self._cache.pod, self._cache.node, self._ledger)
            if failures:
                self._step(run, gang, Watched(self._clock(), barred=failures))

    # -- the pool's side ------------------------------------------------------------------------------------------

    def start_next(self) -> bool:
        """Start the gang that has waited longest."""
        while self._waiting:
            run, gang = self._waiting.popleft()
            if run.records[gang].phase is not Phase.QUEUED:
                continue
            if foreign_victim(run.request.gangs[gang], self._cache.pod):
                self._step(run, gang, Refuse(FOREIGN))
                continue
            self._step(run, gang, Start(self._clock()))
            return True
        return False

    def veto(self, job: Job) -> Answer | None:
        """Look again at the node of a bind that waited to be tried again: the check was a while ago."""
        pod, node = self._cache.pod(job.target.uid), self._cache.node(job.target.node)
        cause = recheck(pod, node, self._ledger)
        return Answer(Verb.BIND, Kind.REFUSED, cause, permanent=cause in (NODE_GONE, POD_GONE)) if cause else None

    def obsolete(self, job: Job) -> bool:
        """Whether the gang does not want this victim to go any more, or the victim has moved on."""
        record: Record = job.owner.records[job.gang]
        return record.phase is not Phase.AWAITING_VICTIMS or not expects(record.fates[job.member], job.verb)

    def charged(self, job: Job) -> str:
        """Return the queue that a pod is charged to which is bound."""
        return self._charged(job.owner.records[job.gang].place, job.target.uid)

    def answered(self, job: Job, answer: Answer) -> None:
        """Keep an answer; all that arrive in one turn of the event loop go to the machine together."""
        run: Run = job.owner
        victims = job.verb in ABOUT_VICTIMS
        if victims:
            self._victim_answered(run, job, answer)
        elif answer.kind is Kind.DONE:
            self._meter.count("binds" if job.verb is Verb.BIND else "unbinds")
            self._point("after-first-bind" if job.verb is Verb.BIND else "after-first-delete", run)
        elif answer.kind is not Kind.SEEN and answer.kind is not Kind.NOT_SENT:
            self._meter.count("bind_failures", cause=answer.cause)
        key = (id(run), job.gang, victims)
        self._answers.setdefault(key, (run, job.gang, []))[2].append((job.member, answer))
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _victim_answered(self, run: Run, job: Job, answer: Answer) -> None:
        if answer.kind is not Kind.DONE:
            if answer.kind is not Kind.SEEN:
                self._meter.count("eviction_failures", cause=answer.cause)
            return
        if job.verb in (Verb.EVICT, Verb.REMOVE):
            place = run.request.gangs[job.gang]
            victim = place.victims[job.member]
            self._meter.count("evictions", why=victim.why)
            self._point("after-first-eviction", run)
            self._told(run.request, place, victim)

    def _flush(self) -> None:
        self._flushing = False
        batch, self._answers = self._answers, {}
        now = self._clock()
        try:
            for (_, _, victims), (run, gang, items) in batch.items():
                self._step(run, gang, (VictimsAnswered if victims else Answered)(now, tuple(items)))
            self._pool.kick()
        except Exception as error:  # noqa: BLE001 - a defect here must end the process, not hide in the event loop
            self._die(error)

    def listen(self, answer: Answer) -> None:
        """Notice that the API server is back after an outage, and give every gang the time that it lost."""
        away = self._silence.hear(answer)
        if away > 0:
            log.warning("binder.outage", seconds=round(away, 1))
            for run in tuple(self._runs.values()):
                for gang in range(len(run.records)):
                    self._step(run, gang, Extend(self._clock() + self._settings.grace))

    # -- the machine ----------------------------------------------------------------------------------------------

    def _step(self, run: Run, gang: int, event: Event) -> None:
        before = run.records[gang]
        try:
            after, effects = step(before, event)
        except ImpossibleTransition as error:
            log.error("binder.impossible", request=run.request.name, error=str(error))
            self._meter.count("invariant_violations", invariant="binder-transition")
            return
        run.records[gang] = after
        if after.phase is not before.phase:
            self._entered(run, before, after)
        for effect in effects:
            self._perform(run, gang, effect)

    def _entered(self, run: Run, before: Record, after: Record) -> None:
        if before.phase is Phase.AWAITING_VICTIMS:
            self._awaiting.end((run, after.index), after)
            if after.cleared:
                self._point("victims-gone", run)
        if before.phase is Phase.BINDING and after.phase in (Phase.CONFIRMING, Phase.BOUND):
            self._point("after-last-bind", run)
        facts = {"request": run.request.name, "session": run.request.session, "group": after.place.group}
        causes = sorted({failure.cause for failure in after.failures})
        if after.phase is Phase.FAILED and before.phase is not Phase.UNWINDING:
            log.info("binder.given-up", **facts, causes=causes)
        elif after.phase is Phase.UNWINDING:
            log.warning("binder.unwinding", **facts, causes=causes)
            self._meter.count("gangs_unwound")
            self._point("unwinding", run)

    def _point(self, point: str, run: Run) -> None:
        """Call the observer, once a request and point."""
        if point not in run.points:
            run.points.add(point)
            self._observer(point, run.request)

    def _perform(self, run: Run, gang: int, effect: Effect) -> None:
        record = run.records[gang]
        match effect:
            case Ask():
                self._ask(run, gang, effect)
            case Check():
                self._check(run, gang, effect.room)
            case Prepare():
                self._prepare(run, gang, effect.members)
            case Undo():
                self._undo(run, gang, effect.members)
            case Wake():
                self._alarms.at(effect.at, lambda: self._wake(run, gang))
            case Recall():
                for job in self._pool.recall(run, gang):
                    self.answered(job, answers.NOT_SENT)
            case AwaitVictims():
                self._awaiting.begin((run, gang), record, effect.victims)
            case Clear():
                self._clear(run, gang, effect)
            case Finish():
                self._finish(run, record)

    def _ask(self, run: Run, gang: int, effect: Ask) -> None:
        if effect.verb is Verb.BIND:
            self._point("before-first-bind", run)
        elif effect.verb is Verb.DELETE:
            self._point("before-first-delete", run)
        targets = run.records[gang].place.assignments
        for position, member in enumerate(effect.members):
            version = effect.versions[position] if effect.versions else ""
            self._pool.put(Job(effect.verb, run, gang, member, targets[member], version), effect.at)

    def _check(self, run: Run, gang: int, room: bool) -> None:
        record = run.records[gang]

        def claimed(uid: str) -> bool:
            entry = self._under_way.get(uid)
            return entry is not None and (entry[0] is not run or entry[1] != gang)

        for assignment in record.place.assignments:
            if assignment.uid in self._under_way and not claimed(assignment.uid):
                self._ledger.release(assignment.uid)  # charged by the check before the victims went
        for victim in record.place.victims:
            pod = self._cache.pod(victim.uid)
            if pod is None or pod.finished:
                self._ledger.gone(victim.uid)  # the cache may know more than it has delivered
        found = check(
            record.place,
            now=self._clock(),
            pod_of=self._cache.pod,
            node_of=self._cache.node,
            claimed=claimed,
            ledger=self._ledger,
            resumed=record.resumed,
            room=room,
            covered=self._covered,
        )
        failed = {failure.member for failure in found.failures}
        for member, assignment in enumerate(record.place.assignments):
            if member not in failed:
                self._under_way[assignment.uid] = (run, gang, member)
        self._step(run, gang, found)

    def _clear(self, run: Run, gang: int, effect: Clear) -> None:
        if effect.verb in (Verb.EVICT, Verb.REMOVE):
            self._point("before-first-eviction", run)
        place = run.records[gang].place
        for number in effect.victims:
            victim = place.victims[number]
            target = Assignment(victim.uid, victim.namespace, victim.pod, victim.node)
            text = self._words.eviction(place, victim) if self._words is not None else ""
            body = eviction_body(effect.verb, target, text, self._clock())
            self._pool.put(Job(effect.verb, run, gang, number, target, body=body), effect.at)

    def _prepare(self, run: Run, gang: int, members: tuple[int, ...]) -> None:
        if not self._steps:
            self._step(run, gang, Prepared(self._clock()))
            return

        async def work() -> None:
            failures = await prepare(self._steps, run, gang, members)
            self._step(run, gang, Prepared(self._clock(), failures))
            self._pool.kick()

        self._spawn(work())

    def _undo(self, run: Run, gang: int, members: tuple[int, ...]) -> None:
        if not self._steps:
            self._step(run, gang, Undone())
            return

        async def work() -> None:
            for pre_step in reversed(self._steps):
                await pre_step.undo(run.records[gang].place, members)
            self._step(run, gang, Undone())

        self._spawn(work())

    def _wake(self, run: Run, gang: int) -> None:
        if run.records[gang].ended:
            return
        if self._silence.now:  # the deadline is for the gang, not for the API server
            self._alarms.at(self._clock() + 1.0, lambda: self._wake(run, gang))
            return
        self._step(run, gang, Woke(self._clock()))
        self._pool.kick()

    def _finish(self, run: Run, record: Record) -> None:
        free = (Member.IDLE, Member.LOST, Member.UNWOUND)
        for member, assignment in enumerate(record.place.assignments):
            entry = self._under_way.get(assignment.uid)
            if entry is None or entry[0] is not run or entry[1] != record.index:
                continue
            del self._under_way[assignment.uid]
            if record.states[member] in free:
                self._ledger.release(assignment.uid)
        self._meter.count("gangs_ended", phase=record.phase.value)
        run.open -= 1
        if run.open == 0:
            self._finished(run)
        elif record.phase in GIVEN_UP and not run.noting:
            run.noting = True
            self._spawn(self._note(run))
