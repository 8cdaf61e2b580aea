"""A group that did not fit is searched for again when something happened that can help it, and not before."""

from __future__ import annotations

from scheduler.actions.run import Sessions
from scheduler.framework.growth import AGAIN_AFTER
from scheduler.model.affinity import LabelSelector, PodSelector, PodTerm, Requirement
from scheduler.model.verdict import Code
from tests.unit.framework.world import World, shape

DB = PodSelector(("ns",), None, LabelSelector((Requirement("app", "In", ("db",)),)))


def world() -> World:
    made = World().nodes(2, gpu=4)
    made.sessions = Sessions(made.config, made.registry, check=True)
    made.gang("big", 6)
    made.running("hog", "n000", shape(gpu=3))
    made.session()
    return made


def searches(w: World) -> int:
    assert w.result is not None
    return int(sum(value for name, value in w.result.counters.items() if name.startswith("solver_results_total")))


def reason(w: World) -> dict[str, object]:
    assert w.result is not None
    return dict(w.result.verdicts["muster/ns/big"].facts)


def test_what_only_takes_is_no_reason_to_search_but_the_numbers_follow() -> None:
    w = world()
    assert reason(w)["free"] == 5
    w.running("more", "n001", shape(gpu=2))
    w.session(later=1.0)
    assert searches(w) == 0
    assert w.result is not None and w.result.wake_at is not None and w.result.wake_at <= w.now + 5.0
    w.session(later=5.0)
    assert (reason(w)["free"], reason(w)["short"]) == (3, 3)


def test_what_becomes_free_is() -> None:
    w = world()
    w.drop_pod("hog")
    w.session(later=1.0)
    assert len(w.placed_of("big")) == 6


def test_a_new_node_is() -> None:
    w = world()
    w.node("n2", gpu=1)
    w.session(later=1.0)
    assert len(w.placed_of("big")) == 6


def test_so_is_a_pod_that_is_followed_or_one_less_that_keeps_it_away() -> None:
    w = World().nodes(2, cpu=8)
    w.pod("follower", shape(cpu=1, affinity=(PodTerm(DB, "kubernetes.io/hostname"),)))
    w.running("lone", "n001", shape(anti_affinity=(PodTerm(DB, "kubernetes.io/hostname"),)))
    w.pod("db", shape(cpu=8), labels=(("app", "db"),), priority=-1)
    w.running("full", "n000", shape(cpu=1))
    w.session()
    assert w.placed == {}
    w.drop_pod("lone")
    w.session(later=1.0)
    assert w.placed == {"db": "n001"}
    w.running("db2", "n000", shape(cpu=1), labels=(("app", "db"),))
    w.session(later=1.0)
    assert w.placed["follower"] == "n000"


def test_after_five_minutes_everybody_is_searched_for_again() -> None:
    w = world()
    w.running("more", "n001", shape(gpu=1))
    w.session(later=AGAIN_AFTER - 1.0)
    assert searches(w) == 0 or reason(w)["free"] == 4
    w.running("more2", "n001", shape(gpu=1))
    w.session(later=2.0)
    assert searches(w) > 0
    assert w.result is not None
    assert w.result.verdicts["muster/ns/big"].code is Code.RESOURCES
