"""How long a group is left alone after a search for room that found nothing, and what ends that at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler.actions import making_room, run
from scheduler.cluster import feed
from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.budgets import DisruptionBudget
from tests.unit.actions.test_making_room import Story, gpus
from tests.unit.framework.world import shape

SOON = 0.01
WEB = LabelSelector((Requirement("app", "In", ("web",)),))


@pytest.fixture
def w() -> Story:
    """A node with 4 GPUs, and one without on which others start."""
    return Story(check=True).node("n", gpu=4).node("other")


def searches(w: Story) -> int:
    """How many searches for room the last session made."""
    assert w.result is not None
    return int(sum(value for name, value in w.result.counters.items() if name.startswith("room_searches_total")))


def starts(w: Story, name: str) -> None:
    """Somebody else starts: who runs has changed, in a way that helps nobody."""
    w.runs(name, ["other"], of=shape(cpu=1), priority=300)


def tire(w: Story) -> None:
    """Let searches find nothing until the group rests for as long as it ever does."""
    for turn in range(6):
        starts(w, f"one-{turn}")
        w.session(later=11.0)
        assert not w.victims
    starts(w, "last")
    w.session(later=SOON)
    assert not searches(w) and not w.victims


def test_a_search_that_found_nothing_is_made_again_later_when_others_only_start(w: Story) -> None:
    w.runs("top", ["n"], gpu=2, priority=200)
    w.runs("low", ["n"], gpu=2)
    w.asks("high", 1, gpu=3, priority=100)
    tire(w)
    w.session(later=5.0)
    assert not searches(w)
    w.session(later=5.0)
    assert searches(w)


def gone(w: Story) -> None:
    w.drop_pod("top-0")


def less_important(w: Story) -> None:
    w.priority("gold", 10)


def may_go_now(w: Story) -> None:
    w.set_pod(replace(w.pods["uid-top-0"], preemptible=True))


def more_of_a_budget(w: Story) -> None:
    w._queue.append(feed.BudgetSet(DisruptionBudget("ns", "web", "u", WEB, allowed=1)))


def another_node(w: Story) -> None:
    w.node("new", gpu=3)


@pytest.mark.parametrize(
    ("top", "event", "count"),
    [
        ({"priority": 200}, gone, 1),
        ({"priority": 200, "priority_class": "gold"}, less_important, 1),
        ({"pod": {"preemptible": False}}, may_go_now, 1),
        ({"pod": {"labels": (("app", "web"),)}}, more_of_a_budget, 1),
        ({"priority": 200}, another_node, 2),
    ],
    ids=["pod gone", "priority", "preemptible", "budget", "node"],
)
def test_a_rest_ends_at_once_when(w: Story, top: dict[str, object], event: Callable[[Story], None], count: int) -> None:
    w.priority("gold", 200)
    w._queue.append(feed.BudgetSet(DisruptionBudget("ns", "web", "u", WEB)))
    w.runs("top", ["n"], gpu=2, **top)
    w.runs("low", ["n"], gpu=2)
    w.asks("high", count, gpu=3 if count == 1 else 2, priority=100)
    tire(w)
    event(w)
    w.session(later=SOON)
    assert "low-0" in w.victims


def test_a_rest_ends_at_once_when_a_pod_of_another_scheduler_is_gone(w: Story) -> None:
    w.pod("foreign", shape(gpu=2), node="n", phase="Running", started=True, ours=False)
    w.runs("low", ["n"], gpu=2)
    w.asks("high", 1, gpu=3, priority=100)
    tire(w)
    w.drop_pod("foreign")
    w.session(later=SOON)
    assert w.victims == ["low-0"]


def test_a_rest_ends_at_once_when_a_victim_is_old_enough(w: Story) -> None:
    w.queue("default", min_runtime=1000.0)
    w.runs("low", ["n"], gpu=2)
    w.runs("young", ["n"], gpu=2, since=w.now - 1000.0 + 66.0 + SOON + 5.0)
    w.asks("high", 1, gpu=3, priority=100)
    tire(w)
    w.session(later=4.9)
    assert not w.victims
    w.session(later=0.2)
    assert "young-0" in w.victims


def test_a_rest_ends_at_once_when_a_queue_is_edited(w: Story) -> None:
    w.queue("mine", **gpus(deserved=1)).queue("theirs", **gpus(deserved=3))
    w.runs("theirs", ["n"], gpu=4, queue="theirs")
    w.asks("high", 1, gpu=2, queue="mine")
    tire(w)
    w.queue("mine", **gpus(deserved=2)).queue("theirs", **gpus(deserved=2))
    w.session(later=SOON)
    assert w.victims == ["theirs-0"]


def test_who_is_cutting_a_rest_short_leaves_half_of_the_work_to_others(
    w: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where pods come and go all the time, those who come first do not keep all others from being looked at."""
    w.runs("top", ["n"], gpu=2, priority=200)
    w.runs("low", ["n", "n"], gpu=1)
    for number in range(8):
        w.asks(f"high{number}", 2, gpu=2, priority=100)
    tire(w)
    work = 6 * making_room.BASE_WORK
    monkeypatch.setattr(making_room, "WORK", work)
    monkeypatch.setattr(run, "WORK", work)
    w.drop_pod("last-0")
    w.asks("new", 2, priority=90)
    w.session(later=SOON)
    assert set(w.placed) == {"new-0", "new-1"}
    assert 2 <= searches(w) <= 5
