"""How questions of the page find their answers."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from scheduler.cluster import feed
from scheduler.config import SchedulerConfiguration
from scheduler.observe.journal import Journal
from scheduler.web.port import Page, digest
from tests.unit.web.house import LEADS


async def test_each_question_gets_its_own_answer_and_a_late_one_harms_nobody() -> None:
    sent: list[feed.PageAsk] = []

    def send(event: feed.ToBrain) -> None:
        assert isinstance(event, feed.PageAsk)
        sent.append(event)

    page = Page(send, lambda: LEADS)
    asking = [asyncio.create_task(page.answer(f"/page/queues/{name}", "")) for name in ("a", "b")]
    async with asyncio.timeout(10):
        while len(sent) < 2:
            await asyncio.sleep(0.01)
    assert [ask.arguments["name"] for ask in sorted(sent, key=lambda ask: ask.number)] == ["a", "b"]
    first, second = sorted(sent, key=lambda ask: ask.number)
    page.reply(feed.PageReply(second.number, fault="ValueError: b"))
    page.reply(feed.PageReply(first.number))
    page.reply(feed.PageReply(first.number))
    page.reply(feed.PageReply(99))
    replies = [(await one).body.decode() for one in asking]
    assert "has not finished its first session" in replies[0]
    assert "could not answer: ValueError: b" in replies[1]


async def test_what_became_of_a_decision_is_passed_on_and_remembered() -> None:
    sent: list[feed.ToBrain] = []
    page = Page(sent.append, lambda: LEADS)
    failed = feed.HandoverFailed("s-000001", ("muster/ns/a",), "409 Conflict")
    page.passing(failed)
    assert sent == [failed]
    assert [step.kind for step in page._journal.life("muster/ns/a")] == ["failed"]


async def test_what_goes_wrong_in_the_journal_stops_nobody_and_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no words")

    for name in ("handover", "done", "watch", "refused"):
        monkeypatch.setattr(Journal, name, broken)
    sent: list[feed.ToBrain] = []
    page = Page(sent.append, lambda: LEADS)
    failed = feed.HandoverFailed("s-000001", ("muster/ns/a",), "409 Conflict")
    with capture_logs() as told:
        page.handover(feed.Handover("s-000001", 1))
        page.done(feed.SessionDone("s-000001", {}, {}))
        page.watch([])
        page.passing(failed)
    assert sent == [failed]
    assert [line["event"] for line in told] == ["page_not_told"] * 4


def test_the_digest_tells_configurations_apart() -> None:
    plain = SchedulerConfiguration()
    assert digest(plain) == digest(SchedulerConfiguration())
    assert digest(plain) != digest(SchedulerConfiguration(session_period=2.0))
