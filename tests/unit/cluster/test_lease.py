"""The elector against a Lease server that hangs, refuses, loses answers and serves two candidates."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from scheduler.cluster.client import ApiClient
from scheduler.cluster.lease import Elector, LeadershipLost, unique_identity
from tests.unit.cluster.scripted import client_of, scripted, status

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"


@dataclass
class Clock:
    """A clock that stands still until it is told to go on."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class LeaseServer:
    """One Lease with optimistic concurrency. `trouble` may answer instead, before or after the write."""

    lease: dict[str, Any] | None = None
    version: int = 0
    before: Callable[[web.Request], Awaitable[web.StreamResponse | None]] | None = None
    after: Callable[[web.Request], Awaitable[web.StreamResponse | None]] | None = None
    writes: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if self.before is not None and (answer := await self.before(request)) is not None:
            return answer
        answer = await self._serve(request)
        if self.after is not None and (other := await self.after(request)) is not None:
            return other
        return answer

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        assert request.path in (PATH, f"{PATH}/muster")
        if request.method == "GET":
            return status(404, "NotFound") if self.lease is None else web.json_response(self.lease)
        body = json.loads(await request.read())
        if request.method == "POST" and self.lease is not None:
            return status(409, "AlreadyExists")
        if request.method == "PUT":
            if self.lease is None:
                return status(404, "NotFound")
            if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                return status(409, "Conflict")
        self.write(body)
        return web.json_response(self.lease)

    def write(self, body: dict[str, Any]) -> None:
        self.version += 1
        self.lease = body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}
        self.writes.append(self.lease["spec"])

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec


@asynccontextmanager
async def lease_server() -> AsyncIterator[tuple[LeaseServer, ApiClient]]:
    state = LeaseServer()
    async with scripted(state) as server, client_of(server, qps=0.001, burst=1) as client:
        yield state, client


def elector(client: ApiClient, who: str, clock: Callable[[], float] | None = None, **options: Any) -> Elector:
    more = {} if clock is None else {"clock": clock}
    return Elector(client, "ns", "muster", who, seed=1, **more, **options)


async def _unavailable(_: web.Request) -> web.StreamResponse:
    return status(500, "InternalError")


async def _abort(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_a_candidate_looks_often_and_at_the_latest_when_the_lease_is_free() -> None:
    async with lease_server() as (_, client):
        clock = Clock()
        first, second = elector(client, "a", clock), elector(client, "b", clock)
        assert await first.try_acquire()
        assert not await second.try_acquire()
        assert 0.5 <= second.pause() <= 0.6, "a quarter of the retry period, and a little"
        clock.now += 13.4
        assert not await second.try_acquire()
        assert second.pause() == pytest.approx(0.1)
        clock.now += second.pause()
        assert await second.try_acquire()
        await second.release()
        assert not first.may_write()
        third = elector(client, "c", clock)
        assert third.pause() >= 0.5, "nothing is known yet"


async def test_a_lease_counts_as_free_early_enough_to_take_over_within_it_and_later_than_its_leader_stops() -> None:
    async with lease_server() as (state, client):
        clock = Clock()
        short = {"lease_duration": 3.0, "renew_deadline": 2.5, "retry_period": 1.0}
        for options, free in (({}, 13.5), (short, 2.75)):
            first, second = elector(client, "a", clock, **options), elector(client, "b", clock, **options)
            assert await first.try_acquire()
            assert not await second.try_acquire()
            clock.now += free - 0.01
            assert not first.may_write() and not await second.try_acquire()
            clock.now += 0.02
            assert await second.try_acquire()
            state.lease = None


async def test_a_lease_of_other_settings_is_waited_for_in_full() -> None:
    async with lease_server() as (_, client):
        clock = Clock()
        first = elector(client, "a", clock, lease_duration=30.0, renew_deadline=29.0)
        second = elector(client, "b", clock)
        assert await first.try_acquire()
        assert not await second.try_acquire()
        clock.now += 29.9
        assert not await second.try_acquire()
        clock.now += 0.2
        assert await second.try_acquire()


async def test_the_first_candidate_creates_the_lease_and_leads_with_the_first_epoch() -> None:
    async with lease_server() as (server, client):
        first = elector(client, "a", Clock())
        assert not first.may_write()
        assert await first.try_acquire()
        assert first.may_write()
        assert (first.epoch, first.holder) == (1, "a")
    spec = server.spec
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 15, 1)
    assert spec["acquireTime"].endswith("Z")
    assert spec["renewTime"] == spec["acquireTime"]


async def test_a_second_candidate_counts_the_lease_from_the_last_change_that_it_saw() -> None:
    clock = Clock()
    async with lease_server() as (server, client):
        first, second = elector(client, "a", clock), elector(client, "b", clock)
        assert await first.try_acquire()
        assert not await second.try_acquire()
        assert second.holder == "a"
        clock.now += 9
        assert await first.renew()
        clock.now += 9
        assert not await second.try_acquire()  # sees the renewal only now
        clock.now += 13.4
        assert not await second.try_acquire()
        clock.now += 0.2
        assert not first.may_write()
        assert await second.try_acquire()
        assert second.epoch == 2
        assert server.spec["holderIdentity"] == "b"


async def test_two_candidates_for_a_free_lease_make_one_leader() -> None:
    async with lease_server() as (_, client):
        both = [elector(client, name) for name in "ab"]
        won = await asyncio.gather(*(one.try_acquire() for one in both))
        assert sorted(won) == [False, True]
        assert [one.may_write() for one in both] == won


async def test_a_released_lease_is_free_at_once_and_the_epoch_grows_even_for_the_same_identity() -> None:
    async with lease_server() as (server, client):
        first = elector(client, "a", Clock())
        assert await first.try_acquire()
        await first.release()
        assert not first.may_write()
        assert server.spec["holderIdentity"] == ""
        again = elector(client, "a", Clock())
        assert await again.try_acquire()
        assert again.epoch == 2


async def test_an_unreleased_lease_of_the_same_identity_is_respected() -> None:
    """The old process may still be alive; a name proves nothing."""
    async with lease_server() as (_, client):
        assert await elector(client, "a", Clock()).try_acquire()
        assert not await elector(client, "a", Clock()).try_acquire()


async def test_the_epoch_is_above_everything_that_still_carries_one() -> None:
    async with lease_server() as (_, client):
        late = elector(client, "a", Clock(), floor=lambda: 41)
        assert await late.try_acquire()
        assert late.epoch == 42


async def test_writing_is_over_as_soon_as_the_deadline_counted_from_the_start_of_the_renewal_is() -> None:
    clock = Clock()
    async with lease_server() as (server, client):
        first = elector(client, "a", clock)
        assert await first.try_acquire()

        async def slow(_: web.Request) -> None:
            clock.now += 3

        server.before = slow
        assert await first.renew()
        clock.now += 7
        assert first.may_write()
        clock.now += 0.01
        assert not first.may_write()


async def test_a_process_that_was_stopped_past_the_deadline_does_not_renew_but_ends() -> None:
    clock = Clock()
    async with lease_server() as (server, client):
        first = elector(client, "a", clock)
        assert await first.try_acquire()
        writes = len(server.writes)
        clock.now += 60  # SIGSTOP ... SIGCONT
        assert not first.may_write()
        with pytest.raises(LeadershipLost, match="not renewed for 10 s"):
            await first.renew()
        assert len(server.writes) == writes
        assert first.lost.is_set()
        clock.now -= 60
        assert not first.may_write()


async def test_a_lease_taken_by_somebody_else_ends_the_leader_at_its_next_renewal() -> None:
    async with lease_server() as (server, client):
        first = elector(client, "a", Clock())
        assert await first.try_acquire()
        assert server.lease is not None
        server.write(server.lease | {"spec": server.spec | {"holderIdentity": "b", "leaseTransitions": 2}})
        with pytest.raises(LeadershipLost, match="held by b"):
            await first.renew()


async def test_a_deleted_lease_ends_the_leader() -> None:
    async with lease_server() as (server, client):
        first = elector(client, "a", Clock())
        assert await first.try_acquire()
        server.lease = None
        with pytest.raises(LeadershipLost, match="deleted"):
            await first.renew()


async def test_a_lost_answer_to_a_renewal_is_survived() -> None:
    async with lease_server() as (server, client):
        first = elector(client, "a", Clock())
        assert await first.try_acquire()
        server.after = _abort
        assert not await first.renew()
        server.after = None
        assert await first.renew()  # conflict with our own write; reads it, and renews
        assert first.may_write()
        assert server.spec["leaseTransitions"] == 1


async def test_a_lost_answer_to_the_acquisition_is_recognised_and_renewed_before_it_is_believed() -> None:
    async with lease_server() as (server, client):
        first = elector(client, "a", Clock())

        async def lose_writes(request: web.Request) -> web.StreamResponse | None:
            return None if request.method == "GET" else await _abort(request)

        server.after = lose_writes
        assert not await first.try_acquire()
        assert not first.may_write()
        server.after = None
        assert await first.try_acquire()
        assert first.epoch == 1
        assert len(server.writes) == 2


async def test_what_others_wrote_into_the_metadata_stays() -> None:
    async with lease_server() as (server, client):
        first = elector(client, "a", Clock())
        assert await first.try_acquire()
        assert server.lease is not None
        server.write(server.lease | {"metadata": server.lease["metadata"] | {"labels": {"team": "x"}}})
        assert await first.renew()
        assert server.lease["metadata"]["labels"] == {"team": "x"}


async def test_a_lease_that_somebody_writes_all_the_time_is_not_fought_over_in_a_loop() -> None:
    async with lease_server() as (server, client):
        first = elector(client, "a", Clock())
        assert await first.try_acquire()
        tries = 0

        async def meddle(request: web.Request) -> web.StreamResponse | None:
            nonlocal tries
            if request.method == "PUT":
                tries += 1
                assert server.lease is not None
                server.write(server.lease)
            return None

        server.before = meddle
        assert not await first.renew()
        assert tries == 2
        assert first.may_write()


async def test_a_busy_server_gets_more_than_the_retry_period_for_a_renewal() -> None:
    async with lease_server() as (server, client):
        first = elector(client, "a", lease_duration=60.0, renew_deadline=50.0, retry_period=0.05)
        async with asyncio.timeout(20):
            while not await first.try_acquire():  # a try has only the retry period, which may be short for this machine
                pass

        async def slowly(_: web.Request) -> None:
            await asyncio.sleep(0.3)

        server.before = slowly
        assert await first.renew()
        second = elector(client, "b", lease_duration=60.0, renew_deadline=50.0, retry_period=0.05)
        assert not await second.try_acquire()
        assert "no answer within 0.05 s" in second.problem


@pytest.mark.parametrize("trouble", ["refuses", "hangs", "drops"])
async def test_a_leader_that_cannot_renew_ends_by_itself(trouble: str) -> None:
    async def hang(_: web.Request) -> None:
        await asyncio.sleep(60)

    async with lease_server() as (server, client):
        first = elector(client, "a", lease_duration=1.0, renew_deadline=0.3, retry_period=0.05)
        running = asyncio.create_task(first.run())
        await asyncio.wait_for(first.leading.wait(), 10)
        server.before = {"refuses": _unavailable, "hangs": hang, "drops": _abort}[trouble]
        with pytest.raises(LeadershipLost):
            await asyncio.wait_for(running, 10)
        assert first.lost.is_set()
        assert not first.may_write()


async def _trouble(one: Elector) -> None:
    async with asyncio.timeout(20):
        while not one.problem:
            await asyncio.sleep(0.005)


async def test_trouble_shorter_than_the_deadline_is_survived() -> None:
    async with lease_server() as (server, client):
        first = elector(client, "a", lease_duration=60.0, renew_deadline=50.0, retry_period=0.05)
        running = asyncio.create_task(first.run())
        await asyncio.wait_for(first.leading.wait(), 10)
        server.before = _unavailable
        await _trouble(first)
        server.before = None
        writes = len(server.writes)
        async with asyncio.timeout(10):
            while len(server.writes) < writes + 2:
                await asyncio.sleep(0.01)
        assert first.may_write()
        assert first.problem == ""
        running.cancel()
        await asyncio.wait([running])


ROOT = Path(__file__).parents[3]
_STOPPED = """
import asyncio, sys, structlog
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
from tests.unit.cluster.scripted import client_of
from scheduler.cluster.lease import Elector, LeadershipLost

async def main():
    async with client_of(sys.argv[1]) as client:
        elector = Elector(client, "ns", "muster", "a", 2.0, 1.0, 0.2)
        running = asyncio.create_task(elector.run())
        await elector.leading.wait()
        print("leading", elector.may_write(), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print("woken", elector.may_write(), flush=True)
        try:
            await running
        except LeadershipLost:
            print("lost", elector.may_write(), flush=True)

asyncio.run(main())
"""


async def test_a_stopped_process_may_not_write_when_it_wakes_up() -> None:
    async with lease_server() as (server, client):
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _STOPPED, client.credentials.server, stdin=pipe, stdout=pipe, cwd=ROOT
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(30):
                assert await process.stdout.readline() == b"leading True\n"
                process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(1.5)
                writes = len(server.writes)
                process.stdin.write(b"\n")
                process.send_signal(signal.SIGCONT)
                said = [line.strip() async for line in process.stdout]
            # Which of the two wakes up first is not ours to say; neither may write.
            assert sorted(said) == [b"lost False", b"woken False"]
            # One renewal may have been under way when it was stopped; none was begun afterwards.
            assert len(server.writes) <= writes + 1
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_shutting_down_releases_the_lease_and_the_next_takes_over() -> None:
    async with lease_server() as (server, client):
        options = {"lease_duration": 60.0, "renew_deadline": 50.0, "retry_period": 0.05}
        first, second = elector(client, "a", **options), elector(client, "b", **options)
        one = asyncio.create_task(first.run())
        await asyncio.wait_for(first.leading.wait(), 10)
        two = asyncio.create_task(second.run())
        await asyncio.sleep(0.15)
        assert not second.leading.is_set()
        one.cancel()
        await asyncio.wait_for(second.leading.wait(), 10)
        assert (first.may_write(), second.may_write(), second.epoch) == (False, True, 2)
        two.cancel()
        await asyncio.wait([one, two])
    assert server.spec["holderIdentity"] == ""


async def test_a_candidate_keeps_trying_while_the_server_is_away() -> None:
    async with lease_server() as (server, client):
        server.before = _abort
        first = elector(client, "a", lease_duration=60.0, renew_deadline=50.0, retry_period=0.02)
        running = asyncio.create_task(first.run())
        await _trouble(first)
        server.before = None
        await asyncio.wait_for(first.leading.wait(), 10)
        running.cancel()
        await asyncio.wait([running])


def test_deadlines_in_the_wrong_order_are_refused() -> None:
    client: Any = None
    with pytest.raises(ValueError, match="must hold"):
        Elector(client, "ns", "n", "a", lease_duration=10, renew_deadline=10, retry_period=2)


def test_identities_differ() -> None:
    assert unique_identity() != unique_identity()
