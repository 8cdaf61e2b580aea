"""When the brain runs sessions, and what it does with a session that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from scheduler.cluster import feed
from scheduler.config import SchedulerConfiguration
from scheduler.loop import BREATH, IDLE, PAUSE_AFTER_CRASH, Loop
from scheduler.model.decisions import Assignment, Decisions, Explain, Place
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.snapshot import Snapshot
from scheduler.model.verdict import Code, verdict
from scheduler.sim import replay

SHAPE = Shape(key="s1", requests=(("cpu", 1000),))


class Clock:
    """Time that passes only while the loop waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Outcome:
    decisions: Decisions
    seconds: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    wake_at: float | None = None
    overcommitted: tuple[str, ...] = ()
    session: object = None


class Script:
    """The io process: at each time, what it sends; then it ends the link."""

    def __init__(self, clock: Clock, sends: list[tuple[float, list[feed.ToBrain]]], end: float) -> None:
        self.clock, self.sends, self.end = clock, list(sends), end
        self.sent: list[tuple[float, feed.FromBrain]] = []

    def receive(self, timeout: float) -> Sequence[feed.ToBrain]:
        until = self.clock.now + timeout
        if self.sends and self.sends[0][0] <= until:
            at, items = self.sends.pop(0)
            self.clock.now = max(self.clock.now, at)
            return items
        if until >= self.end:
            self.clock.now = self.end
            raise EOFError
        self.clock.now = until
        return []

    def send(self, items: Sequence[feed.FromBrain]) -> None:
        self.sent += [(self.clock.now, item) for item in items]


class Recorder:
    """Sessions that note when they ran, and decide what they are told."""

    def __init__(self, clock: Clock, decide=lambda snapshot, session: Outcome(Decisions(session, 0))) -> None:  # type: ignore[no-untyped-def]
        self.clock, self.decide = clock, decide
        self.ran: list[float] = []
        self.snapshots: list[Snapshot] = []

    counts_owners = False

    def run(self, snapshot: Snapshot, session_id: str) -> Outcome:
        self.ran.append(self.clock.now)
        self.snapshots.append(snapshot)
        return self.decide(snapshot, session_id)


START: list[feed.ToBrain] = [
    feed.ShapeSet(SHAPE),
    feed.NodeSet(Node(name="n1", allocatable=(("cpu", 4000),))),
    feed.PodSet(Pod(uid="u1", namespace="a", name="p", shape="s1", ours=True)),
]


def play(sends: list[tuple[float, list[feed.ToBrain]]], *, end: float, decide=None) -> tuple[Recorder, Script]:  # type: ignore[no-untyped-def]
    clock = Clock()
    script = Script(clock, sends, end)
    recorder = Recorder(clock, *([decide] if decide else []))
    config = SchedulerConfiguration()
    Loop(script, config, lambda _: recorder, lambda _: config, clock=clock, timer=clock).run()
    return recorder, script


def test_no_session_before_every_cache_is_synced_and_the_lease_is_held() -> None:
    recorder, _ = play([(1001, START), (1002, [feed.Leading(1)]), (1005, [feed.Synced()])], end=1010)
    assert recorder.ran == pytest.approx([1005 + BREATH], abs=0.01)
    recorder, _ = play([(1001, [*START, feed.Synced()])], end=2000)
    assert recorder.ran == []


def test_a_burst_of_events_is_answered_by_one_session() -> None:
    more = [
        (1010.0 + i / 10000, [feed.PodSet(Pod(uid=f"x{i}", namespace="a", name=f"x{i}", shape="s1", ours=True))])
        for i in range(20)
    ]
    recorder, _ = play([(1001, [*START, feed.Synced(), feed.Leading(1)]), *more], end=1100)
    assert len(recorder.ran) == 2
    assert len(recorder.snapshots[-1].groups) == 21


def test_an_idle_cluster_runs_no_session_until_the_resync() -> None:
    recorder, _ = play([(1001, [*START, feed.Synced(), feed.Leading(1)])], end=1001 + 650)
    assert recorder.ran == pytest.approx([1001 + BREATH, 1301 + BREATH, 1601 + BREATH], abs=0.02)


def test_a_session_that_asks_to_be_woken_is_woken() -> None:
    def decide(snapshot: Snapshot, session: str) -> Outcome:
        return Outcome(Decisions(session, 0), wake_at=1007.0 if snapshot.now < 1005 else None)

    recorder, _ = play([(1001, [*START, feed.Synced(), feed.Leading(1)])], end=1100, decide=decide)
    assert recorder.ran == pytest.approx([1001 + BREATH, 1007], abs=0.01)


def test_what_need_not_be_done_at_once_is_done_when_the_loop_is_idle_and_once() -> None:
    clock = Clock()
    script = Script(clock, [(1001, [*START, feed.Synced(), feed.Leading(1)])], 1100)
    recorder, idle = Recorder(clock), []
    config = SchedulerConfiguration()
    Loop(
        script,
        config,
        lambda _: recorder,
        lambda _: config,
        when_idle=lambda: idle.append(clock.now),
        clock=clock,
        timer=clock,
    ).run()
    assert len(idle) == 1
    assert recorder.ran[0] < idle[0] < 1001 + 2 * IDLE


def test_the_end_of_a_cool_down_wakes_the_loop() -> None:
    refused = Pod(uid="r", namespace="a", name="r", shape="s1", node="n1", phase="Failed", status_reason="OutOfcpu")
    recorder, _ = play([(1001, [*START, feed.Synced(), feed.Leading(1)]), (1010, [feed.PodSet(refused)])], end=1100)
    assert recorder.ran == pytest.approx([1001 + BREATH, 1010 + BREATH, 1040], abs=0.01)
    assert [len(snapshot.no_goods) for snapshot in recorder.snapshots] == [0, 1, 0]


def test_a_session_that_raises_is_counted_and_tried_again_after_a_pause() -> None:
    def decide(snapshot: Snapshot, session: str) -> Outcome:
        if session == "s-000001":
            raise RuntimeError("boom")
        return Outcome(Decisions(session, 0))

    recorder, script = play([(1001, [*START, feed.Synced(), feed.Leading(1)])], end=1100, decide=decide)
    assert recorder.ran == pytest.approx([1001 + BREATH, 1001 + BREATH + PAUSE_AFTER_CRASH], abs=0.01)
    done = [item for _, item in script.sent if isinstance(item, feed.SessionDone)]
    assert done[0].counters == {"session_failures": 1.0}


def test_the_number_of_overcommitted_nodes_is_told_with_each_session() -> None:
    names = [("n1", "n2"), ("n1",), ()]

    def decide(snapshot: Snapshot, session: str) -> Outcome:
        return Outcome(Decisions(session, 0), overcommitted=names[int(session[-1]) - 1])

    pokes: list[list[feed.ToBrain]] = [[feed.NodeSet(Node(name=f"x{number}"))] for number in range(2)]
    sends = [(1001, [*START, feed.Synced(), feed.Leading(1)]), (1002, pokes[0]), (1003, pokes[1])]
    _, script = play(sends, end=1010, decide=decide)
    assert [item.overcommitted for _, item in script.sent if isinstance(item, feed.SessionDone)] == [2, 1, 0]


def test_a_placement_is_handed_over_once_and_assumed_from_then_on() -> None:
    place = Place("pod/a/u1", "u1", "a", "p", "", "Pod", 1, (Assignment("u1", "a", "p", "n1"),))

    def decide(snapshot: Snapshot, session: str) -> Outcome:
        waits = "pod/a/u1" in snapshot.groups and bool(snapshot.groups["pod/a/u1"].waiting)
        return Outcome(Decisions(session, snapshot.generation, (place,) if waits else ()))

    poke: list[feed.ToBrain] = [feed.NodeSet(Node(name="n2", allocatable=(("cpu", 4000),)))]
    recorder, script = play([(1001, [*START, feed.Synced(), feed.Leading(1)]), (1002, poke)], end=1100, decide=decide)
    handed = [item for _, item in script.sent if isinstance(item, feed.Handover)]
    assert [item.places for item in handed] == [(place,)]
    table = recorder.snapshots[-1].table
    assert int(table.used[table.resources.index("cpu"), table.names.index("n1")]) == 1000


def test_words_that_cannot_travel_do_not_take_placements_along() -> None:
    place = Place("pod/a/u1", "u1", "a", "p", "", "Pod", 1, (Assignment("u1", "a", "p", "n1"),))
    huge = Explain("g", verdict(Code.RESOURCES, needed=2**70), ("u1",))

    class Strict(Script):
        def send(self, items: Sequence[feed.FromBrain]) -> None:
            feed.encode(items)
            super().send(items)

    clock = Clock()
    script = Strict(clock, [(1001, [*START, feed.Synced(), feed.Leading(1)])], 1010)
    recorder = Recorder(clock, lambda snapshot, session: Outcome(Decisions(session, 1, (place, huge))))
    config = SchedulerConfiguration()
    Loop(script, config, lambda _: recorder, lambda _: config, clock=clock, timer=clock).run()
    handed = [item for _, item in script.sent if isinstance(item, feed.Handover)]
    assert [item.places for item in handed] == [(place,)]
    assert handed[0].explains == ()


def test_the_last_session_can_be_saved_and_read_again() -> None:
    _, script = play([(1001, [*START, feed.Synced(), feed.Leading(1)]), (1002, [feed.SnapshotAsk()])], end=1100)
    (reply,) = [item for _, item in script.sent if isinstance(item, feed.SnapshotReply)]
    saved = replay.load(reply.data)
    assert saved.session == "s-000001"
    assert saved.snapshot.table.names == ("n1",)
    assert [pod.name for pod in saved.snapshot.groups["pod/a/u1"].waiting] == ["p"]
    assert saved.config == SchedulerConfiguration()
    with pytest.raises(replay.BadSnapshotFile):
        replay.load(b"not a zip")


def test_the_page_is_told_of_the_last_session_and_a_fault_there_stays_there() -> None:
    asked: list[tuple[object, str]] = []

    def describe(session: object, actions: Sequence[str], view: str, arguments: Mapping[str, str]) -> bytes:
        asked.append((session, view))
        if view == "broken":
            raise ValueError("no")
        return arguments["q"].encode()

    clock = Clock()
    sends: list[tuple[float, list[feed.ToBrain]]] = [
        (1001, [*START, feed.Synced(), feed.PageAsk(1, "early", {"q": ""})]),
        (1002, [feed.Leading(1)]),
        (1003, [feed.PageAsk(2, "good", {"q": "x"})]),
        (1004, [feed.PageAsk(3, "broken", {})]),
        (1005, [feed.PageAsk(4, "good", {"q": "y"})]),
    ]
    script = Script(clock, sends, 1010)
    recorder = Recorder(clock, lambda snapshot, session: Outcome(Decisions(session, 0), session=session))
    config = SchedulerConfiguration()
    Loop(script, config, lambda _: recorder, lambda _: config, describe=describe, clock=clock, timer=clock).run()
    replies = [item for _, item in script.sent if isinstance(item, feed.PageReply)]
    assert replies == [
        feed.PageReply(1),
        feed.PageReply(2, b"x"),
        feed.PageReply(3, fault="ValueError: no"),
        feed.PageReply(4, b"y"),
    ]
    assert asked == [("s-000001", "good"), ("s-000001", "broken"), ("s-000001", "good")]
    assert len(recorder.ran) == 1


def test_a_question_whether_it_lives_is_answered_between_sessions():
    _, link = play([(1001.0, [feed.Ping()])], end=1010.0)
    assert [(at, item) for at, item in link.sent if isinstance(item, feed.Pong)] == [(1001.0, feed.Pong())]
