"""What the journal keeps of sessions and of groups."""

from __future__ import annotations

from scheduler.cluster import feed
from scheduler.model.bindrequest import BindFailure, BindRequest, GangOutcome
from scheduler.model.decisions import Assignment, Explain, Place, SetStatus, Victim
from scheduler.model.verdict import Code, Verdict, verdict
from scheduler.observe import journal as module
from scheduler.observe.journal import Journal


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def place(name: str, pods: int, *victims: Victim, key: str = "") -> Place:
    assigned = tuple(
        Assignment(f"u{name}{number}", "ns", f"{name}-{number}", f"n{number // 2}") for number in range(pods)
    )
    return Place(
        key or f"muster/ns/{name}", f"u{name}", "ns", name, "x/v1", "PodGroup", pods, assigned, victims=victims
    )


def short(free: int) -> Verdict:
    return verdict(Code.RESOURCES, resource="gpu", needed=4, free=free, short=4 - free, members=4, nodes=2)


def status(name: str, why: Verdict | None, phase: str = "Inqueue") -> SetStatus:
    return SetStatus(f"muster/ns/{name}", f"u{name}", phase, verdict=why)


def session(told: Journal, name: str, took: float = 0.01, **decided: object) -> None:
    if decided:
        told.handover(feed.Handover(session=name, generation=1, **decided))  # type: ignore[arg-type]
    told.done(feed.SessionDone(name, {"session": took, "allocate": took}, {}))


def life(told: Journal, name: str) -> list[tuple[str, str]]:
    return [(step.kind, step.text) for step in told.life(f"muster/ns/{name}")]


def test_the_life_of_a_gang_from_waiting_to_running() -> None:
    clock = Clock()
    told = Journal(clock)
    session(told, "s-1", statuses=(status("a", short(1)),))
    clock.now = 1010.0
    session(told, "s-2", statuses=(status("a", short(2)),))
    clock.now = 1020.0
    gone = Victim("v", "ns", "old-0", "n0", "muster/ns/old", "ns/old")
    session(told, "s-3", places=(place("a", 4, gone),))
    request = BindRequest("r", "u", "s-3", 1, 0.0, (place("a", 4, gone),), outcomes=(GangOutcome(0, "Bound", 4),))
    told.watch([feed.RequestSet(request), feed.RequestSet(request)])
    session(told, "s-4", statuses=(status("a", None, "Running"),))
    assert [kind for kind, _ in life(told, "a")] == ["Running", "bound", "placed", "waits"]
    assert life(told, "a")[1:3] == [
        ("bound", "4 of 4 members bound"),
        ("placed", "4 pods on 2 nodes, once ns/old-0 have gone"),
    ]
    waits = told.life("muster/ns/a")[-1]
    assert (waits.since, waits.at, waits.session) == (1000.0, 1010.0, "s-2")
    assert "2 free" in waits.text
    assert life(told, "old") == [("evicted", "1 pod. Evicted for PodGroup ns/a, which has a higher priority")]


def test_a_bind_that_was_given_up_and_a_decision_that_could_not_be_written() -> None:
    told = Journal(Clock())
    failure = BindFailure("u", "a-1", "n1", "NodeGone")
    outcome = GangOutcome(0, "Unwound", 0, (failure,))
    told.watch([feed.RequestSet(BindRequest("r", "u", "s-1", 1, 0.0, (place("a", 2),), outcomes=(outcome,)))])
    told.refused("s-2", ["muster/ns/a", "pod/ns/x"], "500 Internal")
    assert [kind for kind, _ in life(told, "a")] == ["failed", "failed"]
    assert life(told, "a")[0][1] == "the decision could not be written: 500 Internal"
    assert "NodeGone" in life(told, "a")[1][1]
    assert told.life("pod/ns/x") == []


def test_a_request_from_before_this_process_keeps_its_own_time() -> None:
    told = Journal(Clock())
    request = BindRequest(
        "r", "u", "s-9", 1, 0.0, (place("a", 2),), outcomes=(GangOutcome(0, "Bound", 2),), created=5.0
    )
    told.watch([feed.RequestSet(request)])
    assert told.life("muster/ns/a")[0].at == 5.0


def test_sessions_that_decided_nothing_are_counted_and_not_kept() -> None:
    told = Journal(Clock())
    session(told, "s-1")
    session(told, "s-2", places=(place("a", 3),), explains=(Explain("pod/ns/x", short(0)),))
    told.done(feed.SessionDone("s-3", {}, {"session_failures": 1.0}))
    session(told, "s-4")
    assert told.count == 4
    assert told.last is not None
    assert told.last.session == "s-4"
    assert [one.session for one in told.sessions()] == ["s-3", "s-2"]
    found = told.session("s-2")
    assert found is not None
    assert (found.gangs, found.pods, found.said, found.failed) == (1, 3, 1, False)
    assert found.seconds == {"session": 0.01, "allocate": 0.01}
    assert told.sessions()[0].failed
    assert told.session("s-1") is None


def test_what_is_kept_does_not_grow() -> None:
    told = Journal(Clock())
    for number in range(module.SESSIONS + 50):
        session(told, f"s-{number}", places=tuple(place(f"g{number}-{one}", 1) for one in range(150)))
    for number in range(100):
        session(told, f"t-{number}", statuses=(status("a", None, f"P{number}"),))
    assert len(told.sessions()) == module.SESSIONS
    assert max(len(one.placements) for one in told.sessions()) == module.PLACES
    assert len(told._groups) == module.GROUPS
    assert len(told.life("muster/ns/a")) == module.STEPS
    session(told, "u", places=(place("x", 1, key="pod/ns/x"),))
    assert told.life("pod/ns/x") == []
    told.watch([feed.GroupGone("muster/ns/a")])
    assert told.life("muster/ns/a") == []
