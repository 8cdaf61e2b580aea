"""When the status of a queue is written, and what is not written at all."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from scheduler.cluster import feed, statuses
from scheduler.cluster.queuestatus import QueueStatuses
from scheduler.cluster.statuses import PERIOD
from scheduler.cluster.writer import Request, Worth, Write
from scheduler.model.decisions import Decisions, SetQueueStatus
from scheduler.model.queues import Queue, QueueFacts

FACTS = QueueFacts("Open", allocated=(("cpu", 1000),), pending=1, requested=(("cpu", 2000),))


class World:
    """A cache with one queue, a dialect that says the number of waiting groups, and a writer that writes at once."""

    def __init__(self) -> None:
        self.known: dict[str, Queue] = {"research": Queue("research", "u1", resource_version="1")}
        self.time = 100.0
        self.says: dict[str, Any] = {}
        self.sent: list[Request] = []
        self.forgotten: list[Any] = []
        self.statuses = QueueStatuses(self, self, {"muster": self}, lambda: "now", timer=lambda: self.time)

    def queue(self, dialect: str, name: str) -> Queue | None:
        found = self.known.get(name)
        return found if found is not None and found.dialect == dialect else None

    def queue_path(self, queue: Queue) -> str:
        return f"/queues/{queue.name}"

    def queue_status_patch(self, queue: Queue, facts: QueueFacts, now: str) -> dict[str, Any] | None:
        wish = {"pending": facts.pending, "state": facts.state}
        if facts.over:
            wish["conditions"] = [{"type": "OverQuota"}]
        return None if wish == self.says else {"status": wish}

    def offer(self, write: Write) -> None:
        assert (write.worth, write.method) == (Worth.STATUS, "PATCH")
        request = write.build()
        if request is not None:
            self.sent.append(request)
            self.says = request.body["status"]
            queue = self.known["research"]
            self.known["research"] = replace(queue, resource_version=str(int(queue.resource_version) + 1))

    def forget(self, key: Any) -> None:
        self.forgotten.append(key)

    def say(self, uid: str = "u1", queue: str = "research", **facts: Any) -> None:
        self.statuses.say(SetQueueStatus(queue, uid, "muster", replace(FACTS, **facts)))

    @property
    def pending(self) -> list[int]:
        return [request.body["status"]["pending"] for request in self.sent]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(statuses, "PERIOD", 0.05)
    return World()


async def test_a_status_is_written_to_the_object_that_it_is_about(world: World) -> None:
    world.say()
    assert [(request.path, request.body) for request in world.sent] == [
        ("/queues/research/status", {"metadata": {"uid": "u1"}, "status": {"pending": 1, "state": "Open"}})
    ]


async def test_a_queue_without_an_object_or_with_another_of_its_name_is_not_written(world: World) -> None:
    world.say(queue="default", uid="")
    world.say(uid="u0")
    assert world.sent == []


async def test_what_changes_fast_is_held_back_and_said_in_its_newest_form(world: World) -> None:
    world.say()
    for number in range(2, 5):
        world.say(pending=number)
    assert world.pending == [1]
    async with asyncio.timeout(20):
        while len(world.sent) < 2:
            await asyncio.sleep(0.01)
    assert world.pending == [1, 4]


async def test_a_state_or_a_condition_that_changes_is_written_at_once(world: World) -> None:
    world.say()
    world.say(state="Hold")
    world.say(state="Hold", over=(("cpu", 5),))
    world.say(state="Hold", over=(("cpu", 5),), problem=("Misconfigured", "x"))
    assert [request.body["status"]["state"] for request in world.sent] == ["Open", "Hold", "Hold"]
    # A list may only meet the list that it was made from.
    assert [request.body["metadata"].get("resourceVersion") for request in world.sent] == [None, None, "3"]
    world.statuses.close()


async def test_after_a_while_the_next_change_is_written_at_once(world: World) -> None:
    world.say()
    world.time += PERIOD
    world.say(pending=2)
    assert world.pending == [1, 2]


async def test_what_the_object_says_is_not_written_again(world: World) -> None:
    for _ in range(3):
        world.say()
        world.time += PERIOD
    assert world.pending == [1]


async def test_what_another_writer_changed_is_set_right(world: World) -> None:
    world.say()
    world.says = {"pending": 0}
    world.known["research"] = replace(world.known["research"], resource_version="9")
    world.time += PERIOD
    world.say()
    assert world.pending == [1, 1]


async def test_use_over_time_alone_is_not_offered_every_session(world: World) -> None:
    asked: list[float] = []
    world.queue_status_patch = lambda _queue, facts, _now: asked.append(facts.decayed_at)  # type: ignore[method-assign]
    for second in range(0, 121, 30):
        world.time += 30
        world.say(decayed=(("cpu", second),), decayed_at=1000.0 + second)
    assert asked == [1000.0, 1060.0, 1120.0]


async def test_a_queue_that_is_gone_is_forgotten_with_what_was_to_be_said(world: World) -> None:
    world.say()
    world.say(pending=2)
    world.statuses.gone("muster", "research")
    await asyncio.sleep(0.1)
    assert (world.pending, world.forgotten) == ([1], [("queue", "u1")])


def test_statuses_of_queues_cross_the_border_of_the_processes() -> None:
    status = SetQueueStatus("research", "u1", "muster", replace(FACTS, problem=("Misconfigured", "x"), children=("a",)))
    sent = feed.Handover.of(Decisions("s-1", 1, (status,)))
    assert sent.queue_statuses == (status,)
    assert feed.from_brain.decode(feed.encode([sent])) == [sent]
