"""Who has to go, in cases that users of other schedulers know: whom it costs what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scheduler.placement import (
    AtMostEvicted,
    BadProblem,
    Infeasible,
    MadeRoom,
    MustFree,
    Resident,
    RunningGang,
    SinglePods,
    VictimProblem,
    WhileOver,
    Within,
    cost_of,
    make_room,
    verify_room,
)
from tests.unit.placement.cases import nodes, pods, problem


class Cluster:
    """Nodes with so many GPUs in all, and gangs that run on them; `asks` makes the question."""

    def __init__(self, *gpus, slots=110, **domains):
        self.left = list(gpus)
        self.slots, self.domains = slots, domains
        self.residents, self.gangs, self.named = [], [], {}

    def runs(self, name, *placed, least=None, priority=0, roles=(), fixed=0, ran=None):
        """A gang: (node, gpus) of each pod; roles by places in the gang."""
        mine = tuple(range(len(self.residents), len(self.residents) + len(placed)))
        for place, (node, gpu) in enumerate(placed):
            self.left[node] -= gpu
            seconds = ran[place] if ran else 60
            self.residents.append(Resident(node, np.array([gpu, 0, 0], dtype=np.int64), seconds, f"{name}-{place}"))
        turned = tuple((tuple(mine[place] for place in places), count) for places, count in roles)
        minimum = len(placed) + fixed if least is None else least
        self.gangs.append(RunningGang(mine, minimum, turned, fixed, priority))
        self.named[name] = mine
        return self

    def asks(self, *demands, rules=(), rows=(), refine=None):
        view = nodes(*((gpu,) for gpu in self.left), slots=self.slots, **self.domains)
        asked = problem(view, demands, *rules)
        return VictimProblem(asked, tuple(self.residents), tuple(self.gangs), tuple(rows), refine)

    def evicts(self, *demands, **more):
        """Return the names of those who go, or None; the answer is checked."""
        question = self.asks(*demands, **more)
        answer = make_room(question)
        if isinstance(answer, Infeasible):
            assert answer.proven
            return None
        assert answer.optimal
        assert verify_room(question, answer, minimal=True) == []
        self.answer = answer
        return [self.residents[resident].name for resident in answer.evicted]


def test_one_pod_of_the_right_size_goes_not_two_small_ones():
    cluster = Cluster(20).runs("half", (0, 5)).runs("one", (0, 10)).runs("other", (0, 5))
    assert cluster.evicts(pods("build", 1, 10)) == ["one-0"]


def test_the_lower_priority_goes():
    cluster = Cluster(2).runs("train", (0, 1), priority=50).runs("bp", (0, 1), priority=75)
    assert cluster.evicts(pods("build", 1, 1)) == ["train-0"]


def test_two_of_the_lower_priority_go_not_one_of_the_higher():
    cluster = Cluster(2, 2).runs("a", (0, 1), priority=50).runs("b", (0, 1), priority=50).runs("c", (1, 2), priority=75)
    assert cluster.evicts(pods("build", 1, 2)) == ["a-0", "b-0"]


def test_a_gang_goes_whole():
    cluster = Cluster(2).runs("train", (0, 1), (0, 1))
    assert cluster.evicts(pods("build", 1, 1)) == ["train-0", "train-1"]


def test_one_pod_makes_room_for_a_gang():
    assert Cluster(2).runs("train", (0, 2)).evicts(pods("build", 2, 1)) == ["train-0"]


def test_surplus_goes_and_the_minimum_stays():
    cluster = Cluster(4).runs("train", *[(0, 1)] * 4, least=1)
    assert len(cluster.evicts(pods("infer", 1, 2))) == 2


def test_surplus_that_does_not_suffice_takes_the_gang_along():
    cluster = Cluster(2).runs("train", (0, 1), (0, 1), least=1)
    assert cluster.evicts(pods("infer", 1, 2)) == ["train-0", "train-1"]


def test_each_of_two_gangs_gives_its_surplus():
    cluster = Cluster(4).runs("a", (0, 1), (0, 1), least=1).runs("b", (0, 1), (0, 1), least=1)
    gone = cluster.evicts(pods("infer", 1, 2))
    assert sorted(name[0] for name in gone) == ["a", "b"]


def test_one_surplus_pod_goes_for_one_pod():
    cluster = Cluster(3).runs("train", (0, 1), (0, 1), least=1)
    cluster.left[0] -= 1
    assert len(cluster.evicts(pods("infer", 1, 1))) == 1


def test_a_pod_slot_can_be_all_that_is_needed():
    cluster = Cluster(8, slots=0).runs("low", (0, 0), priority=0).runs("high", (0, 0), priority=9)
    assert cluster.evicts(pods("pod", 1, 0)) == ["low-0"]


def test_surplus_on_several_nodes_goes_for_a_gang():
    cluster = Cluster(1, 1, 1, 1).runs("low", *((node, 1) for node in range(4)), least=2)
    assert len(cluster.evicts(pods("high", 2, 1))) == 2


def test_no_gang_breaks_where_two_have_surplus():
    cluster = Cluster(1, 1, 1, 1).runs("a", (0, 1), (1, 1), least=1).runs("b", (2, 1), (3, 1), least=1)
    gone = cluster.evicts(pods("high", 2, 1))
    assert sorted(name[0] for name in gone) == ["a", "b"]


def test_exactly_one_gang_breaks_where_none_has_surplus():
    cluster = Cluster(1, 1, 1, 1).runs("a", (0, 1), (2, 1)).runs("b", (1, 1), (3, 1))
    gone = cluster.evicts(pods("high", 2, 1))
    assert gone in (["a-0", "a-1"], ["b-0", "b-1"])


def test_a_role_keeps_its_minimum():
    roles = (((0,), 1), ((1, 2, 3), 2))
    cluster = Cluster(1, 1, 1, 1).runs("job", *((node, 1) for node in range(4)), least=3, roles=roles)
    gone = cluster.evicts(pods("high", 1, 1))
    assert len(gone) == 1
    assert gone[0] != "job-0"


def test_only_the_domain_in_which_the_gang_goes_is_cleared():
    racks = ["a", "a", "b", "b"]
    cluster = Cluster(1, 1, 1, 1, rack=racks).runs("low", *((node, 1) for node in range(4)), least=2)
    gone = cluster.evicts(pods("high", 2, 1), rules=[Within("rack")])
    assert gone in (["low-0", "low-1"], ["low-2", "low-3"])


def test_nobody_goes_for_what_does_not_pack():
    cluster = Cluster(8, 8, 8, 8, rack=["a", "a", "b", "b"])
    for node in range(4):
        cluster.runs(f"low{node}", *[(node, 1)] * 8, least=1)
    assert cluster.evicts(pods("high", 3, 5), rules=[Within("rack")]) is None


def test_a_gang_breaks_where_its_surplus_is_too_little_for_a_wider_domain():
    racks, blocks = ["a", "a", "b", "b"], ["x"] * 4
    cluster = Cluster(1, 1, 1, 1, rack=racks, block=blocks).runs("low", *((node, 1) for node in range(4)), least=2)
    rules = [Within("block"), Within("rack", hard=False)]
    assert len(cluster.evicts(pods("high", 3, 1), rules=rules)) == 4
    gone = cluster.evicts(pods("high", 2, 1), rules=rules)
    assert gone in (["low-0", "low-1"], ["low-2", "low-3"])


def test_a_preferred_domain_is_worth_lost_time_but_not_a_pod():
    racks = ["a", "a", "b", "b"]
    cluster = Cluster(1, 1, 1, 1, rack=racks)
    for node, ran in enumerate([10, 500, 20, 500]):
        cluster.runs(f"low{node}", (node, 1), ran=[ran])
    assert cluster.evicts(pods("high", 2, 1)) == ["low0-0", "low2-0"]
    assert cluster.evicts(pods("high", 2, 1), rules=[Within("rack", hard=False)]) == ["low0-0", "low1-0"]
    assert len(cluster.evicts(pods("high", 3, 1), rules=[Within("rack", hard=False)])) == 3


def test_queues_give_only_what_they_are_over():
    cluster = Cluster(*[4] * 16)
    rows = []
    for name, first in (("b", 4), ("c", 10)):
        taken = []
        for place in range(24):
            cluster.runs(f"{name}{place}", (first + place // 4, 1), priority=0)
            taken.append(len(cluster.residents) - 1)
        rows.append(WhileOver(tuple(taken), ((0, 8),)))
    for node in range(4):
        cluster.left[node] = 0
    gone = cluster.evicts(pods("a", 16, 1), rows=rows)
    assert [sum(name.startswith(queue) for name in gone) for queue in ("b", "c")] == [8, 8]
    assert cluster.evicts(pods("a", 17, 1), rows=rows) is None


def test_one_large_victim_is_cheaper_than_two_small_ones():
    cluster = Cluster(8).runs("v1", (0, 2)).runs("v2", (0, 2)).runs("v3", (0, 4))
    assert cluster.evicts(pods("high", 1, 4)) == ["v3-0"]


def test_a_queue_gives_the_chunk_that_brings_it_below():
    cluster = Cluster(8).runs("gang", *[(0, 2)] * 4)
    over = WhileOver(tuple(range(4)), ((0, 1),))
    assert len(cluster.evicts(pods("high", 1, 8), rows=[over])) == 4
    several = Cluster(8).runs("a", (0, 4)).runs("b", (0, 4))
    assert several.evicts(pods("high", 1, 8), rows=[WhileOver((0, 1), ((0, 4),))]) is None
    assert several.evicts(pods("high", 1, 8), rows=[WhileOver((0, 1), ((0, 5),))]) == ["a-0", "b-0"]


def test_a_queue_that_is_over_in_nothing_gives_nothing():
    assert Cluster(1).runs("low", (0, 1)).evicts(pods("high", 1, 1), rows=[WhileOver((0,), ())]) is None


def test_a_budget_moves_the_choice_elsewhere():
    cluster = Cluster(1, 1).runs("cheap", (0, 1), ran=[5]).runs("dear", (1, 1), ran=[500])
    assert cluster.evicts(pods("high", 1, 1)) == ["cheap-0"]
    assert cluster.evicts(pods("high", 1, 1), rows=[AtMostEvicted((0,), 0)]) == ["dear-0"]


def test_a_full_queue_must_lose_something_although_nodes_are_free():
    cluster = Cluster(2, 1).runs("mine", (0, 1)).runs("other", (1, 1), ran=[5])
    assert cluster.evicts(pods("high", 1, 1)) == []
    assert cluster.evicts(pods("high", 1, 1), rows=[MustFree(((0, 1),), 1)]) == ["mine-0"]
    assert cluster.evicts(pods("high", 1, 1), rows=[MustFree(((0, 1),), 2)]) is None


def test_free_capacity_comes_first():
    assert Cluster(2).runs("low", (0, 1)).evicts(pods("high", 1, 1)) == []


def test_a_fixed_member_keeps_its_gang():
    cluster = Cluster(2).runs("low", (0, 1), (0, 1), fixed=1)
    assert cluster.evicts(pods("high", 1, 1)) is None
    elastic = Cluster(2).runs("low", (0, 1), (0, 1), least=2, fixed=1)
    assert len(elastic.evicts(pods("high", 1, 1))) == 1


def test_who_is_in_the_way_goes_too_when_the_exact_question_says_so():
    """The pod repels what is left on a node: `refine` takes the node away until nobody that is repelled is there."""
    cluster = Cluster(2, 2).runs("near", (0, 1), ran=[1]).runs("repelled", (0, 0), ran=[1]).runs("far", (1, 1), ran=[9])
    cluster.left[0] -= 1
    cluster.left[1] -= 1

    def refine(gone):
        question = asked.freed(sorted(gone))
        mask = np.array([1 in gone, True])
        return replace(question, demands=(replace(question.demands[0], mask=mask),))

    asked = cluster.asks(pods("high", 1, 1))
    assert cluster.evicts(pods("high", 1, 1), refine=refine) == ["far-0"]
    asked = cluster.asks(pods("high", 2, 1))
    assert cluster.evicts(pods("high", 2, 1), refine=refine) == ["near-0", "repelled-0", "far-0"]


def test_an_answer_that_never_passes_the_exact_question_ends():
    cluster = Cluster(4).runs("a", (0, 1)).runs("b", (0, 1)).runs("c", (0, 2))
    never = problem(nodes((0,)), [pods("high", 1, 1)])
    assert cluster.evicts(pods("high", 1, 1), refine=lambda gone: never) is None


def test_the_order_in_which_pods_are_given_changes_nothing():
    cluster = Cluster(4, 4)
    for number in range(8):
        cluster.runs(f"pod{number}", (number // 4, 1), ran=[60])
    question = cluster.asks(pods("high", 3, 1))
    mirrored = VictimProblem(
        question.problem,
        question.residents[::-1],
        tuple(replace(gang, residents=(7 - gang.residents[0],)) for gang in question.gangs[::-1]),
    )
    one, other = make_room(question), make_room(mirrored)
    names = [question.residents[r].name for r in one.evicted]
    assert names == sorted(mirrored.residents[r].name for r in other.evicted)


def test_a_cost_names_what_is_lost():
    cluster = (
        Cluster(4).runs("a", (0, 1), (0, 1), priority=3, ran=[5, 6]).runs("b", (0, 1), (0, 1), least=1, ran=[7, 8])
    )
    question = cluster.asks(pods("high", 1, 1))
    assert cost_of(question, (2,)) == (0, 0, 1, 7)
    assert cost_of(question, (0, 1, 2)) == (3, 1, 3, 18)
    assert cost_of(question, ()) < cost_of(question, (2,))


@pytest.mark.parametrize(
    ("evicted", "words"),
    [
        ((0,), "not surplus"),
        ((0, 1, 2), "need not go"),
        ((2,), "free"),
        ((2, 3), "not surplus"),
        ((9,), "does not exist"),
        ((1, 0), "not in order"),
    ],
)
def test_wrong_answers_are_told_apart(evicted, words):
    cluster = Cluster(4).runs("a", (0, 1), (0, 1)).runs("b", (0, 1), (0, 1), least=3, fixed=2)
    question = cluster.asks(pods("high", 1, 2))
    right = make_room(question)
    assert isinstance(right, MadeRoom)
    assert words in " ".join(verify_room(question, replace(right, evicted=evicted), minimal=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gangs": ()}, "in no gang"),
        ({"gangs": (RunningGang((0, 0), 1),)}, "in two gangs"),
        ({"gangs": (RunningGang((0,), 1), RunningGang((), 1))}, "none is given"),
        ({"gangs": (RunningGang((0,), 1, (((3,), 1),)),)}, "roles"),
        ({"rows": (WhileOver((0,), ((0, 0),)),)}, "not positive"),
        ({"rows": (WhileOver((0,), ((7, 1),)),)}, "no resource 7"),
        ({"rows": (MustFree(((5, 1),), 1),)}, "no resident 5"),
        ({"residents": (Resident(4, np.zeros(3, dtype=np.int64)),)}, "no node 4"),
        ({"residents": (Resident(0, np.zeros(2, dtype=np.int64)),)}, "holds"),
    ],
)
def test_what_means_nothing_is_refused_with_its_place(change, words):
    question = replace(Cluster(1).runs("a", (0, 1)).asks(pods("high", 1, 1)), **change)
    with pytest.raises(BadProblem, match=words):
        make_room(question)


def test_single_pods_are_decided_one_after_the_other():
    cluster = Cluster(2, 2)
    for number, ran in enumerate([40, 10, 30, 20]):
        cluster.runs(f"pod{number}", (number // 2, 1), ran=[ran])
    singles = SinglePods(cluster.asks())
    gone = []
    for _ in range(5):
        answer = singles.ask(pods("new", 1, 1))
        if isinstance(answer, MadeRoom):
            assert answer.optimal
            singles.book(answer, pods("new", 1, 1))
            gone.append(cluster.residents[answer.evicted[0]].name)
    assert gone == ["pod1-0", "pod3-0", "pod2-0", "pod0-0"]
    assert isinstance(answer, Infeasible)
    assert answer.proven
    with pytest.raises(BadProblem, match="not 2 to 2"):
        singles.ask(pods("two", 2, 1))


def only(cluster, gpus):
    """Return who goes for one pod, which `make_room` and `SinglePods` must agree on."""
    question = cluster.asks(pods("new", 1, gpus))
    answer = SinglePods(question).ask(question.problem.demands[0])
    assert answer.evicted == make_room(question).evicted
    assert answer.optimal
    return [cluster.residents[resident].name for resident in answer.evicted]


def test_a_single_pod_takes_two_of_a_lower_priority_before_one_of_a_higher():
    cluster = Cluster(2, 2).runs("a", (0, 1)).runs("b", (0, 1)).runs("c", (1, 2), priority=5)
    assert only(cluster, 2) == ["a-0", "b-0"]


def test_a_single_pod_takes_two_surplus_pods_before_it_breaks_a_gang_of_one():
    cluster = Cluster(4, 2).runs("elastic", *[(0, 1)] * 4, least=2).runs("alone", (1, 2))
    assert only(cluster, 2) == ["elastic-0", "elastic-1"]


def test_a_single_pod_takes_a_small_gang_with_surplus_before_a_large_gang():
    cluster = Cluster(3, 4).runs("large", *[(1, 1)] * 4).runs("small", (0, 2)).runs("elastic", *[(0, 1)] * 2, least=2)
    cluster.left[0] = 0
    cluster.gangs[2] = replace(cluster.gangs[2], minimum=1)
    assert only(cluster, 3) == ["small-0", "elastic-0"]
