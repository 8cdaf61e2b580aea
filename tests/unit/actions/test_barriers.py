"""Why nobody goes for a group that waits: each obstacle with who it is about, true of the cluster as it is."""

from __future__ import annotations

import pytest

from scheduler.actions.ask import Ask
from scheduler.actions.barriers import barriers
from scheduler.actions.run import decided
from scheduler.actions.steps import asked_again
from scheduler.cluster import feed
from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.barrier import Barrier
from scheduler.model.budgets import DisruptionBudget
from scheduler.observe import explain
from scheduler.web.outlook import in_lines
from tests.unit.actions.test_making_room import Story, gpus
from tests.unit.framework.world import GPU


def said(w: Story, name: str) -> list[str]:
    """What stands in the way of a group that a whole session did not place."""
    session = decided(w.take(), w.config, w.sessions.cache, "s")
    key = f"muster/ns/{name}"
    assert key not in session.placed_of
    ask = asked_again(session, session.snapshot.groups[key])
    assert isinstance(ask, Ask)
    return [f"{one.action}: {explain.barrier(one)}" for one in barriers(session, ask, w.config.actions)]


@pytest.fixture
def w() -> Story:
    story = Story(check=True)
    story.node("n", gpu=2)
    return story


def test_an_equal_priority_is_in_the_way(w: Story) -> None:
    w.runs("train", ["n", "n"])
    w.asks("other", 1)
    assert said(w, "other") == ["preempt: of no lower priority in queue default: ns/train"]


def test_one_that_may_not_be_preempted_is_named(w: Story) -> None:
    w.runs("train", ["n", "n"], preemptible=False)
    w.asks("build", 1, priority=100)
    assert said(w, "build") == ["preempt: not preemptible in queue default: ns/train"]


def test_time_that_protects_is_told_with_its_end(w: Story) -> None:
    w.queue("q", min_runtime=3600.0)
    w.runs("train", ["n", "n"], queue="q", since=900.0)
    w.asks("build", 1, queue="q", priority=100)
    assert said(w, "build") == [
        "preempt: protected by minRuntime in queue q, the first until 1970-01-01T01:15:00Z: ns/train"
    ]


def test_a_delay_is_told_with_its_end(w: Story) -> None:
    w.runs("train", ["n", "n"])
    w.asks("build", 1, priority=100, evicts_after=600.0, created=w.now)
    assert w.now == 1000.0
    assert said(w, "build") == ["preempt: nobody goes for it before 1970-01-01T00:26:40Z (preemptionDelay)"]


def test_a_queue_that_holds_what_it_is_owed_gives_nothing(w: Story) -> None:
    w.queue("a", **gpus(deserved=1)).queue("b", **gpus(deserved=1))
    w.runs("one", ["n"], queue="a")
    w.runs("two", ["n"], queue="b")
    w.asks("more", 1, queue="a")
    assert said(w, "more") == [
        "preempt: of no lower priority in queue a: ns/one",
        f"reclaim: with it queue a would hold 1 {GPU} more than it is owed, so it takes nothing back from others",
    ]


def test_a_queue_that_gives_nothing_back_is_named(w: Story) -> None:
    w.queue("a", **gpus(deserved=1)).queue("b", reclaimable=False, **gpus(deserved=1))
    w.runs("two", ["n", "n"], queue="b")
    w.asks("more", 1, queue="a")
    assert said(w, "more") == ["reclaim: queue b gives nothing back (reclaimable: false): ns/two"]


def test_a_disruption_budget_that_allows_nothing_is_named(w: Story) -> None:
    w.runs("train", ["n", "n"], pod={"labels": (("app", "train"),)})
    selector = LabelSelector((Requirement("app", "In", ("train",)),))
    w._queue.append(feed.BudgetSet(DisruptionBudget("ns", "keep", "u", selector)))
    w.asks("build", 1, priority=100)
    told = said(w, "build")
    assert told[0] == "preempt: disruption budget ns/keep allows none of its 2 pods to go"


def test_those_who_may_go_and_do_not_suffice_are_named(w: Story) -> None:
    w.runs("low", ["n"], priority=10)
    w.runs("high", ["n"], priority=200)
    w.asks("build", 2, priority=100)
    assert said(w, "build") == [
        "preempt: of no lower priority in queue default: ns/high",
        "preempt: may go, but no set of them makes room for the whole minimum: ns/low",
    ]


def test_pods_that_never_preempt_say_so(w: Story) -> None:
    w.runs("low", ["n", "n"], priority=10)
    w.gang("build", 1, pod={"priority": 100, "preempts": False})
    assert said(w, "build") == ["preempt: its pods say that they never preempt (preemptionPolicy: Never)"]


def test_of_many_queues_the_first_are_told_and_the_others_named() -> None:
    owed = [Barrier("within_owed", "reclaim", f"q{number}", (f"ns/train{number}",)) for number in range(9)]
    budgets = [Barrier("budget", "reclaim", who=(f"ns/b{number}",), count=1) for number in range(5)]
    assert in_lines([Barrier("never", "preempt"), *owed, *budgets]) == [
        "preempt: its pods say that they never preempt (preemptionPolicy: Never)",
        *(f"reclaim: queue q{one} holds no more than it is owed: ns/train{one}" for one in range(3)),
        "reclaim: the same of 6 other queues: q3, q4, q5 and 3 more",
        *(f"reclaim: disruption budget ns/b{one} allows none of its 1 pod to go" for one in range(3)),
        "reclaim: the same of 2 others: ns/b3, ns/b4",
    ]
    assert len(in_lines(owed[:4])) == 4
