"""When a brain that does not answer counts as hanging."""

from __future__ import annotations

import asyncio

from scheduler.cluster import feed
from scheduler.pulse import Pulse


class Timer:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made(timer: Timer) -> tuple[Pulse, list[feed.Ping]]:
    asked: list[feed.Ping] = []
    return Pulse(asked.append, patience=180.0, timer=timer), asked


def beats(pulse: Pulse, timer: Timer, count: int, *, each: float = 5.0) -> list[bool]:
    found = []
    for _ in range(count):
        timer.now += each
        found.append(pulse.beat())
    return found


def test_a_brain_that_answers_is_asked_again_and_never_hangs():
    timer = Timer()
    pulse, asked = made(timer)
    for _ in range(20):
        assert beats(pulse, timer, 1) == [False]
        pulse.heard()
    assert len(asked) == 20
    assert pulse.words == (True, "ok")


def test_a_silent_brain_hangs_after_the_patience_and_is_asked_once():
    timer = Timer()
    pulse, asked = made(timer)
    assert beats(pulse, timer, 37) == [False] * 36 + [True]
    assert len(asked) == 1
    assert pulse.words == (False, "the deciding process has not answered for 180 s")


def test_any_word_ends_the_silence():
    timer = Timer()
    pulse, asked = made(timer)
    beats(pulse, timer, 5)
    assert pulse.words == (True, "the deciding process has not answered for 20 s")
    pulse.heard()
    assert pulse.words == (True, "ok")
    assert beats(pulse, timer, 36) == [False] * 36
    assert len(asked) == 2


def test_a_process_that_was_stopped_itself_does_not_blame_the_brain():
    timer = Timer()
    pulse, _ = made(timer)
    pulse.beat()
    assert beats(pulse, timer, 2, each=3600.0) == [False, False]
    assert pulse.silent == 20.0


def test_the_watch_ends_once_it_hangs():
    timer = Timer()
    sent = []

    def send(ping: feed.Ping) -> None:
        sent.append(ping)
        timer.now += 1.0

    pulse = Pulse(send, patience=0.0, timer=timer)
    asyncio.run(asyncio.wait_for(pulse.run(), 10))
    assert sent == [feed.Ping()]
