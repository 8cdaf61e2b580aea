"""Preempt and reclaim, told as small clusters: who goes, who comes, and that it is quiet afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from scheduler.model.affinity import LabelSelector, PodSelector, PodTerm, Requirement
from scheduler.model.nodes import HOSTNAME
from scheduler.model.pods import Shape
from scheduler.model.queues import WEIGHT_UNIT
from scheduler.model.verdict import Code
from tests.unit.framework.world import GPU, World, shape


def gpus(**values: int) -> dict[str, tuple[tuple[str, int], ...]]:
    """deserved=2, limit=4, guarantee=1 in GPUs."""
    return {name: ((GPU, value),) for name, value in values.items()}


class Story(World):
    """A cluster with running gangs; `node`, `queue` and `gang` as in `World`."""

    def runs(
        self,
        name: str,
        nodes: Sequence[str],
        *,
        gpu: int = 1,
        of: Shape | None = None,
        minimum: int | None = None,
        queue: str = "default",
        priority: int = 50,
        since: float = 10.0,
        pod: Mapping[str, object] | None = None,
        **fields: object,
    ) -> None:
        """A gang with a member on each of these nodes."""
        group = self.group(name, len(nodes) if minimum is None else minimum, queue=queue, **fields)
        for number, node in enumerate(nodes):
            values = {"priority": priority, "since": since, "node": node, "phase": "Running", "started": True}
            self.member(group, number, of or shape(gpu=gpu), **{**values, **(pod or {})})

    def asks(
        self, name: str, count: int, *, gpu: int = 1, queue: str = "default", priority: int = 50, **fields: object
    ) -> None:
        minimum = int(str(fields.pop("minimum", count)))
        self.gang(name, minimum, count=count, of=shape(gpu=gpu), queue=queue, pod={"priority": priority}, **fields)

    def expect(self, evicted: Sequence[str], placed: Sequence[str] = ()) -> None:
        """Run until nothing happens; these pods went, the members of these gangs are on nodes."""
        gone: list[str] = []
        quiet = 0
        for _ in range(40):
            self.session(later=1.0)
            gone += self.victims
            for place in self.places:
                assert place.assignments, "an eviction without a placement"
            quiet = 0 if self.places else quiet + 1
            if quiet > 5:
                break
            self.carry_out()
        assert quiet > 5, "it does not come to rest"
        assert sorted(gone) == sorted(evicted)
        on = {pod.name.rpartition("-")[0] for pod in self.pods.values() if pod.node}
        assert set(placed) <= on, f"{sorted(set(placed) - on)} are not placed"


@pytest.fixture
def w() -> Story:
    return Story(check=True)


def test_a_higher_priority_takes_the_place_of_a_lower_one(w: Story) -> None:
    w.node("n", gpu=1)
    w.runs("train", ["n"])
    w.asks("build", 1, priority=100)
    w.expect(["train-0"], ["build"])


def test_an_equal_priority_never_preempts(w: Story) -> None:
    w.node("n", gpu=1)
    w.runs("train", ["n"])
    w.asks("other", 1)
    w.expect([])


def test_the_lowest_priority_goes(w: Story) -> None:
    w.node("n", gpu=2)
    w.runs("train", ["n"], priority=50)
    w.runs("bp", ["n"], priority=75)
    w.asks("build", 1, priority=100)
    w.expect(["train-0"], ["build", "bp"])


def test_a_gang_goes_whole(w: Story) -> None:
    w.node("n", gpu=2)
    w.runs("train", ["n", "n"])
    w.asks("build", 1, priority=100)
    w.expect(["train-0", "train-1"], ["build"])


@pytest.mark.parametrize("victim", ["bound", "surplus"])
def test_a_group_of_which_members_go_gets_nothing_more_before_it_is_seen_that_they_go(w: Story, victim: str) -> None:
    """A member that waits would be placed alone in the room of its own gang, as if that still ran."""
    w.nodes(1, gpu=4).queue("a", **gpus(deserved=1)).queue("b", **gpus(deserved=4))
    w.runs("train", ["n000"] * 4, minimum=4 if victim == "bound" else 1, queue="a")
    train = w.groups["muster/ns/train"]
    w.member(train, 4, priority=50)
    w.asks("build", 1, queue="b")
    w.session()
    assert [place.name for place in w.places] == ["build"]
    assert len(w.victims) == (4 if victim == "bound" else 1)
    why = w.verdict("train")
    assert why is not None
    assert (why.code, dict(why.facts)["victims"]) == (Code.WAITING_FOR_VICTIMS, len(w.victims))
    [place] = w.places
    w.store.assume(place, "r")
    for _ in range(3):
        w.session(later=1.0)
        assert w.places == []
    for gone in place.victims:
        w.drop_pod(gone.pod)
    w.session(later=1.0)
    assert w.places == [], "it starts whole, or has no room"


def test_no_member_of_a_gang_that_goes_whole_is_placed_in_the_room_of_that_gang(w: Story) -> None:
    w.nodes(3, gpu=4)
    w.queue("a", **gpus(deserved=1), weight=2 * WEIGHT_UNIT).queue("b", **gpus(deserved=5))
    w.queue("c", **gpus(deserved=3, limit=6), weight=3 * WEIGHT_UNIT)
    w.runs("train", ["n000"] * 4, queue="a")
    w.member(w.groups["muster/ns/train"], 4, priority=50)
    w.runs("b", ["n001"] * 2, minimum=1, queue="b")
    w.runs("c", ["n001", *["n002"] * 4], minimum=1, queue="c")
    w.asks("build", 2, minimum=1, queue="b")
    w.session()
    assert {place.name for place in w.places} == {"build"}
    assert w.victims == [f"train-{number}" for number in range(4)]
    w.carry_out()
    w.session(later=1.0)
    assert w.places == []


def test_surplus_goes_first(w: Story) -> None:
    w.node("n", gpu=4)
    w.runs("train", ["n"] * 4, minimum=1)
    w.asks("infer", 2, priority=125, minimum=2)
    w.session()
    assert len(w.victims) == 2
    w.carry_out()
    w.expect([], ["infer", "train"])


def test_nobody_goes_when_it_does_not_suffice(w: Story) -> None:
    w.node("n", gpu=4)
    w.runs("train", ["n"] * 2)
    w.runs("high", ["n"] * 2, priority=200)
    w.asks("build", 3, priority=100)
    w.expect([], ["train", "high"])


def test_no_room_is_made_where_there_is_room(w: Story) -> None:
    w.node("n", gpu=2).node("m", gpu=2)
    w.runs("train", ["n", "n"])
    w.asks("build", 2, priority=100)
    w.expect([], ["train", "build"])


@pytest.mark.parametrize("fields", [{"preemptible": False}, {"min_runtime": 1e9}])
def test_who_is_protected_stays(w: Story, fields: Mapping[str, object]) -> None:
    w.node("n", gpu=1)
    w.runs("train", ["n"], since=900.0, **fields)
    w.asks("build", 1, priority=100)
    w.expect([], ["train"])


def test_a_pod_that_never_preempts_waits(w: Story) -> None:
    w.node("n", gpu=1)
    w.runs("train", ["n"])
    w.gang("build", 1, of=shape(gpu=1), pod={"priority": 100, "preempts": False})
    w.expect([], ["train"])


def test_who_takes_room_of_another_one_s_victims_awaits_them_too(w: Story) -> None:
    w.node("n0", gpu=3).node("n1", gpu=2)
    w.runs("train", ["n0", "n1"], gpu=2, priority=10)
    w.runs("low", ["n0"], priority=40)
    w.asks("high", 1, priority=100)
    w.asks("pair", 2, priority=50)
    w.session()
    awaited = {place.name: {victim.pod for victim in place.victims} for place in w.places}
    assert awaited["high"] == {"train-0", "train-1"}
    nodes = {w.placed[one] for one in w.placed_of("pair")}
    assert nodes and awaited["pair"] == {f"train-{node[1]}" for node in nodes}
    w.carry_out()
    w.expect([], ["high", "pair", "low"])


def test_who_cannot_be_preempted_takes_nothing_above_what_is_deserved(w: Story) -> None:
    w.node("n", gpu=4).queue("q1", **gpus(deserved=1)).queue("q2", weight=0, **gpus(deserved=1))
    w.runs("big", ["n"] * 4, minimum=1, queue="q2")
    w.asks("firm", 2, queue="q1", preemptible=False)
    w.expect([], ["big"])


# -- between queues ----------------------------------------------------------------------------------------------------


def test_a_queue_takes_back_what_it_deserves(w: Story) -> None:
    w.node("n", gpu=4).queue("q1", **gpus(deserved=2)).queue("q2", **gpus(deserved=2))
    w.runs("big", ["n"] * 4, minimum=2, queue="q2")
    w.asks("mine", 2, queue="q1")
    w.session()
    assert len(w.victims) == 2
    w.carry_out()
    w.expect([], ["big", "mine"])


def test_a_queue_at_its_share_loses_nothing(w: Story) -> None:
    w.node("n", gpu=2).queue("q0", **gpus(deserved=2)).queue("q1", **gpus(deserved=2))
    w.runs("a", ["n"], queue="q0")
    w.runs("b", ["n"], queue="q0")
    w.asks("c", 1, queue="q1")
    w.expect([], ["a", "b"])


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has(w: Story) -> None:
    w.node("n", gpu=4).queue("q1", **gpus(deserved=2)).queue("q2", reclaimable=False, **gpus(deserved=2))
    w.runs("big", ["n"] * 4, minimum=1, queue="q2")
    w.asks("mine", 2, queue="q1")
    w.expect([], ["big"])


def test_the_rounded_share_decides(w: Story) -> None:
    w.node("n", gpu=4)
    w.queue("q0", weight=2 * WEIGHT_UNIT, **gpus(deserved=2)).queue("q1", **gpus(deserved=1))
    w.runs("a", ["n"] * 3, queue="q0")
    w.asks("b", 2, queue="q1")
    w.expect([], ["a"])


def test_one_from_each_of_two_queues(w: Story) -> None:
    w.node("n", gpu=6).queue("d1").queue("q0", parent="d1", **gpus(deserved=1))
    w.queue("q1", parent="d1", **gpus(deserved=1)).queue("r", parent="d1", weight=0, **gpus(deserved=2))
    for number in range(3):
        w.runs(f"a{number}", ["n"], queue="q0", priority=10 if number == 2 else 50)
        w.runs(f"b{number}", ["n"], queue="q1", priority=10 if number == 2 else 50)
    w.asks("mine", 2, queue="r")
    w.expect(["a2-0", "b2-0"], ["mine", "a0", "a1", "b0", "b1"])


def test_what_is_lent_comes_back_where_the_rest_lies_in_pieces(w: Story) -> None:
    w.node("n0", gpu=16).node("n1", gpu=16).queue("q0", **gpus(deserved=10)).queue("q1", **gpus(deserved=10))
    w.runs("two", ["n0", "n1"], gpu=10, queue="q0")
    w.asks("more", 1, gpu=7, queue="q0")
    w.asks("mine", 1, gpu=10, queue="q1")
    w.expect(["two-0", "two-1"], ["mine"])


def test_weights_alone_lend_nothing(w: Story) -> None:
    w.node("n0", gpu=16).node("n1", gpu=16).queue("q0").queue("q1")
    w.runs("two", ["n0", "n1"], gpu=10, queue="q0")
    w.asks("mine", 1, gpu=10, queue="q1")
    w.expect([], ["two"])


def test_exactly_what_is_over_goes(w: Story) -> None:
    w.node("n", gpu=64)
    w.queue("a", **gpus(deserved=32)).queue("b", **gpus(deserved=16)).queue("c", **gpus(deserved=16))
    for number in range(16):
        w.runs(f"a{number}", ["n"], queue="a")
    for number in range(24):
        w.runs(f"b{number}", ["n"], queue="b")
        w.runs(f"c{number}", ["n"], queue="c")
    w.asks("more", 16, queue="a")
    w.session()
    assert sum(name.startswith("b") for name in w.victims) == 8
    assert sum(name.startswith("c") for name in w.victims) == 8
    w.carry_out()
    w.expect([], ["more"])


def test_a_department_within_its_share_is_left_alone(w: Story) -> None:
    w.node("n", gpu=4).queue("d1", **gpus(deserved=2)).queue("d2", **gpus(deserved=2))
    w.queue("q0", parent="d1", **gpus(deserved=1)).queue("q1", parent="d2", **gpus(deserved=1))
    w.queue("q2", parent="d2", **gpus(deserved=1))
    w.runs("a", ["n"] * 3, queue="q0")
    w.runs("b", ["n"], queue="q1", preemptible=False)
    w.asks("c", 2, queue="q1")
    w.expect([], ["a", "b"])


def test_several_askers_of_one_session_do_not_share_the_same_surplus(w: Story) -> None:
    w.node("n", gpu=6).queue("q", min_runtime=10_000.0)
    w.runs("big", ["n"] * 6, minimum=4, queue="q", since=900.0)
    for number in range(3):
        w.asks(f"mine{number}", 1, queue="q", priority=90)
    w.session()
    assert len(set(w.victims)) == 2 and len(w.places) == 2


def test_the_neighbour_in_the_department_gives(w: Story) -> None:
    w.node("n0", gpu=3).node("n1", gpu=3)
    w.queue("d1", **gpus(deserved=3)).queue("d2", **gpus(deserved=3))
    w.queue("q0", parent="d1", **gpus(deserved=3)).queue("q1", parent="d2", **gpus(deserved=2))
    w.queue("q2", parent="d2", **gpus(deserved=1))
    w.runs("a", ["n0"], gpu=2, queue="q0")
    w.runs("b", ["n0"], queue="q0", preemptible=False)
    w.runs("c", ["n1"], gpu=2, queue="q1")
    w.runs("d", ["n1"], queue="q1")
    w.asks("mine", 1, queue="q2")
    w.expect(["d-0"], ["mine", "a", "b", "c"])


def test_a_group_that_cannot_be_preempted_stays_within_what_is_deserved(w: Story) -> None:
    w.node("n", gpu=4).queue("q0", **gpus(deserved=2))
    w.asks("build", 2, gpu=2, queue="q0", preemptible=False)
    w.session()
    why = w.verdict("build")
    assert why is not None and why.code is Code.WAITING_FOR_QUOTA
    assert not w.places


def test_idle_guarantees_are_held(w: Story) -> None:
    w.node("n", gpu=2).queue("q1", **gpus(guarantee=1)).queue("q2")
    w.asks("large", 2, queue="q2")
    w.asks("small", 1, queue="q2")
    w.session()
    assert w.placed_of("small") == ["small-0"]
    why = w.verdict("large")
    assert why is not None and why.code is Code.WAITING_FOR_QUOTA


def test_a_limit_is_never_exceeded_and_says_its_numbers(w: Story) -> None:
    w.node("n", gpu=8).queue("q", **gpus(limit=2))
    for number in range(3):
        w.asks(f"g{number}", 1, queue="q")
    w.asks("never", 3, queue="q")
    w.session()
    assert len(w.places) == 2
    why, never = w.verdict("g2"), w.verdict("never")
    assert why is not None and why.code is Code.WAITING_FOR_QUOTA
    assert (why.fact("used"), why.fact("limit"), why.fact("needed")) == (2, 2, 1)
    assert never is not None and never.code is Code.EXCEEDS_LIMIT and never.permanent


def test_priority_counts_inside_a_full_limit(w: Story) -> None:
    w.node("n", gpu=8).queue("q", **gpus(limit=2))
    w.runs("low", ["n", "n"], queue="q", minimum=1)
    w.asks("high", 1, queue="q", priority=100)
    w.session()
    assert len(w.victims) == 1
    w.carry_out()
    w.expect([], ["low", "high"])


def test_room_that_is_about_to_be_free_is_waited_for(w: Story) -> None:
    w.node("n", gpu=2)
    w.runs("low", ["n"])
    w.runs("leaves", ["n"], pod={"deleting": True})
    w.asks("high", 1, priority=100)
    w.asks("small", 1, priority=10)
    w.session()
    assert not w.places
    why = w.verdict("high")
    assert why is not None and why.code is Code.WAITING_FOR_VICTIMS
    w.drop_pod("leaves-0")
    w.expect([], ["low", "high"])


def test_room_that_is_about_to_be_free_counts(w: Story) -> None:
    w.node("n", gpu=3)
    w.runs("top", ["n"], priority=200)
    w.runs("low", ["n"])
    w.runs("leaves", ["n"], pod={"deleting": True})
    w.asks("high", 2, priority=100)
    w.session()
    assert set(w.victims) == {"low-0", "leaves-0"}


def test_who_cannot_be_lived_with_goes(w: Story) -> None:
    w.node("n", gpu=4)
    theirs = PodSelector(namespaces=("ns",), labels=LabelSelector((Requirement("app", "In", ("theirs",)),)))
    w.runs("blocker", ["n"], pod={"labels": (("app", "theirs"),)})
    w.runs("by", ["n"])
    w.gang("high", 1, of=shape(gpu=3, anti_affinity=(PodTerm(theirs, HOSTNAME),)), pod={"priority": 100})
    w.expect(["blocker-0"], ["high", "by"])


def test_whoever_borrows_waits_for_whoever_takes_back(w: Story) -> None:
    w.node("n", gpu=4).queue("owner", **gpus(deserved=4)).queue("guest")
    for number in range(3):
        w.runs(f"old{number}", ["n"], queue="guest")
    w.asks("mine", 4, queue="owner")
    w.asks("more", 1, queue="guest")
    w.expect(["old0-0", "old1-0", "old2-0"], ["mine"])


def test_a_gang_that_gets_a_member_back_does_not_lose_all_others_at_once(w: Story) -> None:
    w.node("n0", gpu=2).node("n1", gpu=1).queue("mine", **gpus(deserved=2)).queue("guest", weight=0)
    w.runs("pair", ["n0"], minimum=2, queue="guest", was_running=True)
    w.member(w.groups["muster/ns/pair"], 1, shape(gpu=1), priority=50)
    w.runs("own", ["n0"], queue="mine")
    w.asks("more", 1, queue="mine", priority=10)
    w.session()
    assert w.placed_of("pair") == ["pair-1"]
    assert w.victims == []


def test_what_runs_in_a_queue_that_got_others_below_it_can_be_taken_back(w: Story) -> None:
    w.node("n", gpu=2).queue("mine", **gpus(deserved=2)).queue("guest").queue("part", parent="guest")
    w.runs("old", ["n"], queue="guest")
    w.asks("own", 2, queue="mine")
    w.expect(["old-0"], ["own"])


def test_no_surplus_is_taken_that_a_guarantee_keeps(w: Story) -> None:
    w.node("n", gpu=4).queue("q1", **gpus(deserved=1)).queue("q2", **gpus(guarantee=3, deserved=3))
    w.runs("big", ["n"] * 2, gpu=2, minimum=1, queue="q2")
    w.asks("mine", 1, queue="q1")
    w.expect([], ["big"])


def test_several_gangs_together_leave_what_is_guaranteed(w: Story) -> None:
    cpu, both = (("cpu", 3000),), (("cpu", 3000), (GPU, 2))
    w.node("n", gpu=4, cpu=4).queue("q1", **gpus(deserved=2)).queue("q2", guarantee=cpu, deserved=both)
    for number in range(4):
        group = w.group(f"a{number}", 1, queue="q2")
        w.member(group, 0, shape(gpu=1, cpu=1), since=10.0, node="n", phase="Running", started=True)
    w.asks("mine", 2, queue="q1")
    w.expect([])
    w.asks("less", 1, queue="q1")
    w.session(later=70.0)
    assert len(w.victims) == 1


def two_branches(w: Story) -> None:
    """16 GPUs: `one` deserves 8 (`a` and `b` 4 each), `two` 8 (all of it `c`)."""
    w.nodes(4, gpu=4).queue("one", **gpus(deserved=8)).queue("two", **gpus(deserved=8))
    w.queue("a", parent="one", **gpus(deserved=4)).queue("b", parent="one", **gpus(deserved=4, guarantee=4))
    w.queue("c", parent="two", **gpus(deserved=8))


def test_queues_beside_and_far_give_in_one_decision(w: Story) -> None:
    """`one` would hold too much if only `c` gave; with what `a` gives it does not."""
    two_branches(w)
    for number in range(6):
        w.runs(f"a{number}", [f"n{number // 4:03}"], queue="a")
    for number in range(10):
        w.runs(f"c{number}", [f"n{(number + 6) // 4:03}"], queue="c")
    w.asks("mine", 4, queue="b")
    w.session()
    assert sorted(pod[0] for pod in w.victims) == ["a", "a", "c", "c"]
    w.carry_out()
    w.expect([], ["mine"])


def test_no_gang_breaks_where_surplus_beside_and_far_suffices(w: Story) -> None:
    two_branches(w)
    w.runs("a", [f"n{number // 4:03}" for number in range(6)], minimum=1, queue="a")
    w.runs("c", [f"n{(number + 6) // 4:03}" for number in range(10)], minimum=1, queue="c")
    w.asks("mine", 4, queue="b")
    w.session()
    assert sorted(pod[0] for pod in w.victims) == ["a", "a", "c", "c"]
    w.carry_out()
    w.expect([], ["mine"])


def test_who_is_far_gives_nothing_where_those_beside_cannot_give_first(w: Story) -> None:
    two_branches(w)
    w.runs("a", [f"n{number // 4:03}" for number in range(6)], minimum=6, queue="a", preemptible=False)
    w.runs("c", [f"n{(number + 6) // 4:03}" for number in range(10)], minimum=1, queue="c")
    w.asks("mine", 4, queue="b")
    w.expect([])


def test_where_the_cheapest_set_would_take_what_is_guaranteed_another_goes(w: Story) -> None:
    """Of `cheap`, which have the lower priority, two together would leave the queue above with too little memory."""
    keeps, both = (("cpu", 3000),), (("cpu", 3000), (GPU, 2))
    w.node("n0", gpu=2, cpu=4).node("n1", gpu=2, cpu=4).node("n2", cpu=4).queue("q1", **gpus(deserved=2))
    w.queue("above", guarantee=keeps, deserved=both).queue("q2", parent="above")
    for name, node, gpu, cpu, priority in (
        ("cheap0", "n0", 1, 2, 10), ("cheap1", "n0", 1, 2, 10), ("rest", "n2", 0, 2, 10),
        ("dear0", "n1", 1, 0, 20), ("dear1", "n1", 1, 0, 20),
    ):  # fmt: skip
        w.runs(name, [node], of=shape(gpu=gpu, cpu=cpu), queue="q2", priority=priority)
    w.asks("mine", 1, gpu=2, queue="q1")
    w.expect(["dear0-0", "dear1-0"], ["mine"])


def test_so_many_go_that_what_others_are_guaranteed_stays_free(w: Story) -> None:
    w.node("n", gpu=8).queue("q1", **gpus(deserved=3)).queue("q2", **gpus(deserved=3))
    w.queue("idle", **gpus(guarantee=2, deserved=2))
    w.runs("lent", ["n"] * 6, minimum=1, queue="q2")
    w.asks("mine", 3, queue="q1")
    w.expect(["lent-0", "lent-1", "lent-2"], ["mine"])


def test_what_an_idle_queue_below_the_same_is_guaranteed_stays_free(w: Story) -> None:
    w.node("n", gpu=8).queue("all", **gpus(deserved=8)).queue("other")
    w.queue("a", parent="all", **gpus(deserved=2)).queue("b", parent="all", **gpus(deserved=4))
    w.queue("c", parent="all", **gpus(guarantee=2, deserved=2))
    w.runs("a", ["n"] * 4, minimum=1, queue="a")
    w.asks("mine", 4, queue="b")
    w.expect(["a-0", "a-1"], ["mine"])


def test_a_lower_priority_goes_where_only_what_another_queue_is_guaranteed_is_free(w: Story) -> None:
    w.node("n", gpu=8).queue("mine").queue("idle", **gpus(guarantee=2))
    w.runs("low", ["n"] * 6, minimum=1, queue="mine")
    w.asks("high", 2, queue="mine", priority=100)
    w.expect(["low-0", "low-1"], ["high"])


def test_what_is_kept_idle_below_a_queue_counts_as_held_by_it(w: Story) -> None:
    """`one` deserves 1, which is kept for its idle `kept`; what `lent` holds beside that is more than `one` is owed."""
    w.node("n", gpu=5).queue("one", **gpus(deserved=1)).queue("two", **gpus(deserved=4))
    w.queue("kept", parent="one", **gpus(guarantee=1, deserved=1)).queue("lent", parent="one", **gpus(deserved=0))
    w.queue("mine", parent="two", **gpus(deserved=4))
    w.runs("lent", ["n"], queue="lent")
    w.runs("has", ["n"] * 3, queue="mine")
    w.asks("more", 1, queue="mine")
    w.expect(["lent-0"], ["more"])


def test_single_pods_leave_what_is_guaranteed_too(w: Story) -> None:
    w.node("n", gpu=6).queue("q1", **gpus(deserved=3)).queue("q2", **gpus(guarantee=2, deserved=2))
    w.queue("idle", **gpus(guarantee=1, deserved=1))
    for number in range(5):
        w.runs(f"lent{number}", ["n"], queue="q2")
    for number in range(4):
        w.asks(f"mine{number}", 1, queue="q1")
    w.expect(["lent0-0", "lent1-0", "lent2-0"], ["mine0", "mine1", "mine2"])
    assert [pod.name for pod in w.pods.values() if not pod.node] == ["mine3-0"]


def test_nobody_is_moved_for_what_others_are_guaranteed(w: Story) -> None:
    w.node("n0", gpu=4).node("n1", gpu=4).queue("q1").queue("idle", **gpus(guarantee=2))
    w.runs("a", ["n0"], gpu=2, queue="q1", pod=owned(0))
    w.runs("b", ["n1"], gpu=2, queue="q1", pod=owned(1))
    w.asks("c", 1, gpu=3, queue="q1")
    w.expect([])


# -- moves -------------------------------------------------------------------------------------------------------------


def owned(number: int) -> dict[str, object]:
    """What a pod has that a controller of its own makes again."""
    return {"owner_uid": f"uid-owner-{number}", "owner_name": f"owner-{number}", "owner_kind": "ReplicaSet"}


def test_a_pod_moves_so_that_another_has_a_place(w: Story) -> None:
    w.node("n0", gpu=4).node("n1", gpu=4)
    w.runs("a", ["n0"], gpu=2, pod=owned(0))
    w.runs("b", ["n1"], gpu=2, pod=owned(1))
    w.asks("c", 1, gpu=3)
    w.session()
    assert len(w.victims) == 1
    (victim,) = w.places[0].victims
    assert victim.move_to in {"n0", "n1"} - {victim.node} and victim.why == "consolidate"
    w.carry_out()
    w.asks("thief", 1, gpu=2)  # the room of the moved pod is kept for it
    w.session()
    assert "thief-0" not in w.placed
    moved = victim.pod.rpartition("-")[0]
    group = w.groups[f"muster/ns/{moved}"]
    w.member(group, 9, shape(gpu=2), priority=50, created=w.now, **owned({"a": 0, "b": 1}[moved]))
    w.session(later=1.0)
    assert w.placed == {f"{moved}-9": victim.move_to}
    w.carry_out()
    w.expect([], ["a", "b", "c"])


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_left_of_a_gang_below_its_minimum_is_not_moved(w: Story, lost: bool) -> None:
    for name, rack in (("p0", "p"), ("p1", "p"), ("q0", "q"), ("q1", "q")):
        w.node(name, gpu=1, labels={"rack": rack})
    low = w.group("low", 2)
    for number, node in enumerate(("p0", "q1")):
        w.member(low, number, shape(gpu=1), node=node, phase="Running", started=True, since=10.0, owner_uid="job")
    w.session()
    if lost:
        w.drop_pod("low-1")
        w.drop_node("q1")
    w.asks("other", 2, topology="rack", priority=0)
    w.session(later=1)
    assert bool(w.victims) is not lost


def test_nobody_moves_before_the_time_of_a_queue_that_is_out_of_the_tree(w: Story) -> None:
    w.node("n0", gpu=4).node("n1", gpu=4).queue("lost", parent="gone", min_runtime=1e9)
    w.runs("a", ["n0"], gpu=2, queue="lost", pod=owned(0))
    w.runs("b", ["n1"], gpu=2, queue="lost", pod=owned(1))
    w.asks("c", 1, gpu=3)
    w.expect([], ["a", "b"])


def test_a_pod_that_nobody_makes_again_is_not_moved(w: Story) -> None:
    w.node("n0", gpu=4).node("n1", gpu=4)
    w.runs("a", ["n0"], gpu=2)
    w.runs("b", ["n1"], gpu=2)
    w.asks("c", 1, gpu=3)
    w.expect([], ["a", "b"])


def test_who_cannot_be_preempted_is_not_placed_by_moves(w: Story) -> None:
    w.node("n0", gpu=4).node("n1", gpu=4)
    w.runs("a", ["n0"], gpu=2, pod=owned(0))
    w.runs("b", ["n1"], gpu=2, pod=owned(1))
    w.asks("c", 1, gpu=3, preemptible=False)
    w.expect([], ["a", "b"])


def test_nothing_is_lost_where_a_move_suffices(w: Story) -> None:
    w.node("n0", gpu=3).node("n1", gpu=2).queue("q0", **gpus(deserved=3)).queue("q1", **gpus(deserved=2))
    w.runs("a", ["n0"], gpu=2, queue="q0", pod=owned(0))
    w.runs("b", ["n1"], gpu=1, queue="q0", pod=owned(1))
    w.asks("c", 1, gpu=2, queue="q1")
    w.session()
    assert [(victim.pod, victim.move_to) for victim in w.places[0].victims] == [("b-0", "n0")]


def test_the_lower_priority_moves(w: Story) -> None:
    w.node("n0", gpu=4).node("n1", gpu=4)
    w.runs("train", ["n0"], gpu=2, priority=50, pod=owned(0))
    w.runs("bp", ["n1"], gpu=2, priority=75, pod=owned(1))
    w.asks("c", 1, gpu=3, priority=20)
    w.session()
    assert w.victims == ["train-0"]


# -- the administrator's word ------------------------------------------------------------------------------------------


def test_a_queue_that_is_drained_loses_all_that_runs_and_nothing_else_does(w: Story) -> None:
    w.node("n", gpu=4).queue("team").queue("away", parent="team", state="Drain").queue("stays", parent="team")
    w.runs("a", ["n", "n"], queue="away", preemptible=False)
    w.runs("b", ["n"], queue="stays")
    w.pod("single", shape(gpu=1), queue="away", node="n", phase="Running", started=True)
    w.session()
    assert w.victims == ["a-0", "a-1", "single"]
    w.carry_out()
    w.session(later=1.0)
    assert not w.victims


def test_nothing_passes_the_head_of_a_strict_queue(w: Story) -> None:
    w.node("n", gpu=4).queue("strict", order="StrictFIFO").queue("open")
    w.runs("held", ["n", "n"], queue="strict")
    w.asks("head", 3, queue="strict", created=1.0)
    w.asks("small", 1, queue="strict", created=2.0)
    w.asks("other", 1, queue="open", created=3.0)
    for number in range(3):
        w.session(later=1.0)
        assert "small-0" not in w.placed
        why = w.verdict("small")
        assert number or (why is not None and why.code is Code.PRIORITY and why.fact("group") == "ns/head")
        w.carry_out()
    assert w.pods["uid-other-0"].node
    for name in ("other-0", "held-0", "held-1"):
        w.drop_pod(name)
    w.session(later=1.0)
    assert set(w.placed) == {"head-0", "head-1", "head-2", "small-0"}


def test_what_an_object_asks_for_is_let_in_where_it_can_be_taken_back(w: Story) -> None:
    w.node("n", gpu=4).queue("owner", **gpus(deserved=4)).queue("guest")
    for number in range(4):
        w.runs(f"old{number}", ["n"], queue="guest")
    w.asks("mine", 4, queue="owner", min_resources=((GPU, 4),))
    w.asks("huge", 4, queue="owner", min_resources=((GPU, 40),))
    w.expect([f"old{number}-0" for number in range(4)], ["mine"])
    assert not any(pod.node for pod in w.pods.values() if pod.name.startswith("huge"))


def test_a_victim_that_has_room_elsewhere_is_moved(w: Story) -> None:
    w.node("n0", gpu=2).node("n1", gpu=1)
    w.runs("train", ["n0", "n0"], minimum=1, pod=owned(0))
    w.asks("infer", 1, gpu=2, priority=125, preemptible=False)
    w.session()
    victims = [victim for place in w.places for victim in place.victims]
    assert w.victims == ["train-0", "train-1"]
    assert sorted(victim.move_to for victim in victims) == ["", "n1"]
    w.asks("thief", 1)
    w.carry_out()
    w.session(later=1.0)
    assert "thief-0" not in w.placed


@pytest.mark.parametrize(("limit", "minimum", "kept"), [(6, 2, 2), (5, 2, 0), (5, 1, 1), (4, 1, 0)])
def test_no_room_is_kept_for_victims_that_their_queue_does_not_let_start_again(
    w: Story, limit: int, minimum: int, kept: int
) -> None:
    """It would stay idle. Those who go hold four, who comes holds four, and two are free."""
    w.node("n0", gpu=4).node("n1", gpu=2).queue("a", **gpus(limit=limit))
    w.runs("train", ["n0"] * 4, minimum=minimum, queue="a", priority=10, pod=owned(0))
    w.asks("high", 1, gpu=4, queue="a", priority=100)
    w.session()
    victims = [victim for place in w.places for victim in place.victims]
    assert len(victims) == 4
    assert sum(victim.move_to == "n1" for victim in victims) == kept


def test_members_that_never_preempt_wait_while_the_others_take_their_place(w: Story) -> None:
    w.node("n", gpu=2)
    w.runs("low", ["n"])
    w.runs("lower", ["n"], priority=10)
    group = w.group("elastic", 1)
    w.member(group, 0, shape(gpu=1), priority=100, preempts=False)
    w.member(group, 1, shape(gpu=1), priority=100)
    w.session()
    assert w.placed == {"elastic-1": "n"} and w.victims == ["lower-0"]


def test_what_is_free_now_is_not_kept_where_enough_will_be_free(w: Story) -> None:
    w.node("n", gpu=4)
    w.runs("leaves", ["n"], gpu=3, pod={"deleting": True})
    w.asks("large", 1, gpu=2, created=1.0)
    w.asks("small", 1, gpu=1, created=2.0)
    w.session()
    assert w.placed == {"small-0": "n"}
    w.carry_out()
    w.drop_pod("leaves-0")
    w.session(later=1.0)
    assert w.placed == {"large-0": "n"}


def test_no_room_is_made_for_who_cannot_give_it_back_beyond_what_is_deserved(w: Story) -> None:
    w.node("n", gpu=2).queue("q0", weight=0).queue("q1", **gpus(deserved=1))
    w.runs("a", ["n"], queue="q0")
    w.runs("b", ["n"], queue="q0")
    w.asks("firm", 1, gpu=2, queue="q1", preemptible=False)
    w.expect([], ["a", "b"])


def test_who_is_over_in_what_is_not_short_gives_nothing(w: Story) -> None:
    w.node("n", gpu=4, cpu=10)
    w.queue("q0", deserved=(("cpu", 2000), (GPU, 2))).queue("q1", deserved=(("cpu", 4000), (GPU, 3)))
    w.runs("a", ["n"], of=shape(cpu=6, gpu=2), queue="q0")
    w.runs("b", ["n"], of=shape(cpu=1, gpu=2), queue="q1")
    w.gang("c", 1, of=shape(cpu=1, gpu=1), queue="q1")
    w.expect([], ["a", "b"])


def test_of_two_that_would_do_the_smaller_goes(w: Story) -> None:
    w.node("n0", gpu=2).node("n1", gpu=2)
    w.queue("q0", weight=2 * WEIGHT_UNIT, **gpus(deserved=2)).queue("q1", weight=2 * WEIGHT_UNIT, **gpus(deserved=2))
    w.runs("mine", ["n0"], queue="q0")
    w.runs("small", ["n0"], queue="q1", since=999.0)
    w.runs("large", ["n1"], gpu=2, queue="q1", since=1001.0)
    w.asks("more", 1, queue="q0")
    w.expect(["small-0"], ["mine", "large", "more"])


def test_of_two_queues_below_one_the_smaller_share_is_served_first(w: Story) -> None:
    w.node("n", gpu=130).queue("b").queue("c")
    w.queue("d", parent="b").queue("e", parent="b").queue("g", parent="c")
    w.runs("d0", ["n"], gpu=10, queue="d")
    w.runs("e0", ["n"], gpu=20, queue="e")
    w.runs("g0", ["n"], gpu=100, queue="g")
    w.asks("d70", 1, gpu=70, queue="d", preemptible=False)
    w.asks("e61", 1, gpu=61, queue="e", preemptible=False)
    w.asks("g1", 1, queue="g")
    w.session()
    assert not w.places
    w.node("m", gpu=70)
    w.session(later=1.0)
    assert [place.name for place in w.places] == ["d70"]


def test_a_limit_above_both_is_no_reason_not_to_take_back(w: Story) -> None:
    w.node("n", gpu=8).queue("d", **gpus(limit=4))
    w.queue("q0", parent="d", **gpus(deserved=1)).queue("q1", parent="d", **gpus(deserved=1)).queue("other")
    w.runs("a", ["n"] * 3, minimum=1, queue="q0")
    w.runs("b", ["n"], queue="q1")
    w.runs("c", ["n"] * 4, minimum=1, queue="other")
    w.asks("more", 1, queue="q1")
    w.session()
    assert [name[0] for name in w.victims] == ["a"]
    w.carry_out()
    w.expect([], ["a", "b", "c", "more"])


def test_who_is_over_in_what_is_not_short_keeps_it(w: Story) -> None:
    w.node("n", cpu=10, gpu=4)
    w.queue("q0", deserved=(("cpu", 2), (GPU, 2))).queue("q1", deserved=(("cpu", 4), (GPU, 3)))
    for name, queue, cpu in (("a", "q0", 6), ("b", "q1", 1)):
        pod = {"priority": 50, "since": 10.0, "node": "n", "phase": "Running", "started": True}
        w.member(w.group(name, 1, queue=queue), 0, shape(cpu=cpu, gpu=2), **pod)
    w.gang("c", 1, of=shape(cpu=1, gpu=1), queue="q1", pod={"priority": 50})
    w.expect([], ["a", "b"])


def test_a_queue_that_may_take_back_from_now_on_does(w: Story) -> None:
    w.node("n", gpu=2).queue("q1", reclaim="Never", **gpus(deserved=1)).queue("q2", **gpus(deserved=1))
    w.runs("b", ["n"] * 2, minimum=1, queue="q2")
    w.asks("mine", 1, queue="q1")
    w.session()
    assert not w.victims
    w.queue("q1", reclaim="Any", **gpus(deserved=1))
    w.session(later=1.5)
    assert len(w.victims) == 1


def test_that_it_never_fits_either_is_said_beside_what_a_queue_forbids(w: Story) -> None:
    w.node("n", gpu=4).queue("q", **gpus(limit=2))
    w.runs("a", ["n", "n"], queue="q", preemptible=False)
    w.gang("never", 1, of=shape(cpu=500, gpu=1), queue="q")
    w.asks("later", 1, queue="q")
    w.session()
    never, later = w.verdict("never"), w.verdict("later")
    assert never is not None and never.permanent and never.code is Code.WAITING_FOR_QUOTA
    assert "never fits" in str(never.fact("message"))
    assert later is not None and later.code is Code.WAITING_FOR_QUOTA


def test_who_goes_where_there_is_room_is_not_waited_for(w: Story) -> None:
    w.node("n", gpu=4)
    w.runs("low", ["n"], gpu=3)
    w.runs("leaves", ["n"], pod={"deleting": True})
    w.asks("high", 1, gpu=3, priority=100)
    w.session()
    assert w.victims == ["low-0"]


def test_nobody_goes_for_a_group_before_its_delay_is_over_and_free_room_is_its_own_at_once() -> None:
    w = Story().nodes(1, gpu=2)
    w.runs("low", ["n000", "n000"], priority=1)
    w.asks("late", 2, evicts_after=600.0, created=w.now)
    assert w.session(later=300).wake_at is not None
    assert not w.victims
    w.session(later=299)
    assert not w.victims
    assert w.result is not None
    assert w.result.wake_at is not None
    assert w.result.wake_at <= w.now + 1
    w.session(later=1)
    assert w.victims == ["low-0", "low-1"]
    fresh = Story().nodes(1, gpu=2)
    fresh.asks("early", 2, evicts_after=600.0, created=fresh.now)
    fresh.session()
    assert [place.name for place in fresh.places] == ["early"]


@pytest.mark.parametrize("deserved", [1, 2])
def test_a_queue_gives_surplus_before_a_gang_goes_whole_to_below_what_it_deserves(w: Story, deserved: int) -> None:
    """Each queue is over what it is owed by one, and two of one node are wanted."""
    w.nodes(4, gpu=2)
    w.queue("a", **gpus(deserved=deserved)).queue("b", **gpus(deserved=deserved)).queue("c", **gpus(deserved=2))
    w.runs("a", ["n000", "n000", "n001", "n001"], queue="a", minimum=1)
    w.runs("b", ["n002", "n002", "n003", "n003"], queue="b", minimum=1)
    w.asks("c", 1, gpu=2, queue="c")
    w.session()
    assert sorted(w.victims) in (["a-0", "a-1"], ["a-2", "a-3"], ["b-0", "b-1"], ["b-2", "b-3"])
    w.carry_out()
    w.expect([], ["a", "b", "c"])


def test_a_gang_goes_whole_to_below_what_its_queue_deserves_where_its_surplus_does_not_suffice(w: Story) -> None:
    w.nodes(2, gpu=4)
    w.queue("a", **gpus(deserved=1)).queue("c", **gpus(deserved=6))
    w.runs("a", ["n000"] * 4, queue="a", minimum=3)
    w.runs("mine", ["n001"] * 2, queue="c")
    w.asks("c", 1, gpu=4, queue="c")
    w.expect(["a-0", "a-1", "a-2", "a-3"], ["c", "mine"])
