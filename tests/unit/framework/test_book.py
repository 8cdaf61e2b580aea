"""The account of what queues hold, want and are owed."""

from __future__ import annotations

import numpy as np

from scheduler.framework.book import Book, Ground, capacity, rows_of
from scheduler.framework.queue_tree import build
from scheduler.model.filling import CEILING
from scheduler.model.queues import Queue
from scheduler.model.quota import subtree
from scheduler.model.resources import Amounts, add
from scheduler.observe.explain import sentence
from tests.unit.framework.world import GPU, World, shape

QUEUES = (
    Queue(name="research", limit=(("gpu", 6),)),
    Queue(name="nlp", parent="research", deserved=(("gpu", 3),)),
    Queue(name="bio", parent="research", guarantee=(("gpu", 1),), deserved=(("gpu", 1),)),
    Queue(name="serving", guarantee=(("gpu", 2),), deserved=(("gpu", 4),)),
    Queue(name="lost", parent="gone"),
)
RESOURCES = ("cpu", "gpu")


def gpu(number: int) -> Amounts:
    return (("gpu", number),)


def book(
    usage: dict[str, Amounts] | None = None,
    waiting: dict[str, Amounts] | None = None,
    leaving: dict[str, Amounts] | None = None,
    queues: tuple[Queue, ...] = QUEUES,
) -> Book:
    tree = build({queue.name: queue for queue in queues})
    used, more = usage or {}, waiting or {}
    demand = {name: add(used.get(name, ()), more.get(name, ())) for name in {**used, **more}}
    ground = Ground.of(tree, RESOURCES, np.array([100, 8]), demand)
    return Book(ground, subtree(tree.structure, rows_of(used, tree, RESOURCES)), leaving or {})


def limited(found: Book, name: str, ask: Amounts) -> tuple[str, str] | None:
    answer = found.limited(found.tree.index[name], found.vector(ask))
    return None if answer is None else (found.tree.names[answer[0]], RESOURCES[answer[1]])


def reserved(found: Book, name: str, ask: Amounts) -> tuple[str, str] | None:
    answer = found.reserved(found.tree.index[name], found.vector(ask))
    return None if answer is None else (found.tree.names[answer[0]], RESOURCES[answer[1]])


def test_what_queues_hold_and_are_owed() -> None:
    found = book({"nlp": gpu(2)}, {"nlp": gpu(9), "serving": gpu(4)})
    row = found.tree.index
    assert found.used[row["research"]].tolist() == [0, 2]
    assert found.ground.entitled[row["serving"]].tolist() == [0, 4]
    assert found.ground.entitled[row["nlp"]].tolist() == [0, 3]
    assert found.ground.deserved[row["research"]].tolist()[1] == 4
    assert [found.tree.names[one] for one in found.lineage(row["nlp"])] == ["nlp", "research", "root"]


def test_room_ends_at_a_limit_or_at_the_guarantees_of_others() -> None:
    found = book()
    assert limited(found, "nlp", (("cpu", 100), ("gpu", 5))) is None
    assert limited(found, "nlp", gpu(7)) == ("research", "gpu")
    # Beside serving's 2 and bio's 1 there are 5, and the limit of research leaves 6.
    assert reserved(found, "nlp", gpu(5)) is None
    assert reserved(found, "nlp", gpu(6)) == ("nlp", "gpu")
    assert reserved(found, "nlp", gpu(9)) is None, "what the whole cluster lacks is not about queues"
    row = found.tree.index
    undo = found.charge(row["serving"], found.vector(gpu(2)))
    assert reserved(found, "nlp", gpu(5)) is None
    assert found.room(row["nlp"]).tolist() == [100, 5]
    undo()
    assert found.room(row["nlp"]).tolist() == [100, 5]
    found.charge(row["bio"], found.vector(gpu(1)))
    assert found.room(row["nlp"]).tolist() == [100, 5]


def test_what_is_charged_and_taken_back_leaves_nothing() -> None:
    found = book({"bio": gpu(1)})
    before = [found.room(row).tolist() for row in range(len(found.tree.names))]
    undo = found.charge(found.tree.index["bio"], found.vector(gpu(2)))
    away = found.leave(found.tree.index["bio"], found.vector(gpu(1)))
    assert found.staying[found.tree.index["bio"]].tolist() == [0, 2]
    away()
    undo()
    assert [found.room(row).tolist() for row in range(len(found.tree.names))] == before
    assert found.staying.tolist() == found.used.tolist()


def test_use_outside_the_tree_counts_at_the_root() -> None:
    found = book({"lost": gpu(3)}, {"serving": gpu(4), "nlp": gpu(4)})
    row = found.tree.index
    assert found.used[row["root"]].tolist() == [0, 3]
    assert found.ground.entitled[row["research"]][1] + found.ground.entitled[row["serving"]][1] == 5


def test_over_and_within_look_at_what_counts_and_is_asked_for() -> None:
    found = book({"nlp": (("cpu", 50), ("gpu", 4))}, {"serving": gpu(4), "nlp": gpu(1)})
    row = found.tree.index
    assert found.over(row["nlp"], found.vector(gpu(1))) == ((1, 1),)
    assert found.over(row["nlp"], found.vector((("cpu", 1),))) == ()
    assert not found.within(row["nlp"], found.vector(gpu(1)))
    assert found.within(row["nlp"], found.vector((("cpu", 5),)))
    assert found.within(row["serving"], found.vector(gpu(4)))
    assert not found.within(row["serving"], found.vector(gpu(5)))


def test_who_is_about_to_go_counts_for_limits_and_not_for_what_is_owed() -> None:
    found = book({"nlp": gpu(6)}, {"serving": gpu(4)}, {"nlp": gpu(2)})
    row = found.tree.index["nlp"]
    assert limited(found, "nlp", gpu(1)) == ("research", "gpu")
    assert dict(found.over(row, found.vector(gpu(1)))) == {1: 1}


def test_where_more_is_deserved_than_there_is_whoever_has_it_keeps_it_but_not_from_a_higher_priority() -> None:
    def found(priority: int) -> Book:
        queues = (
            Queue(name="a", deserved=gpu(6), priority=priority),
            Queue(name="b", deserved=gpu(6)),
        )
        return book({"b": gpu(6), "a": gpu(2)}, {"a": gpu(4)}, queues=queues)

    same, higher = found(0), found(5)
    assert same.over(same.tree.index["b"], same.vector(gpu(1))) == ()
    assert higher.over(higher.tree.index["b"], higher.vector(gpu(1))) == ((1, 4),)


def test_an_unlimited_deserved_is_the_ceiling() -> None:
    found = book(queues=(Queue(name="a", deserved=(("gpu", -1),)),))
    assert found.ground.deserved[found.tree.index["a"], 1] == CEILING


def test_the_capacity_is_what_takes_pods_and_what_is_held_elsewhere() -> None:
    allocatable, used = np.array([[4, 4, 4]]), np.array([[1, 3, 0]])
    usable = np.array([True, False, False])
    names, total = capacity(("gpu",), allocatable, used, usable, (("gpu", 2),), ["licence"])
    assert (names, total.tolist()) == (("gpu", "licence"), [5, 0])


def test_who_is_guaranteed_what_is_free_is_named() -> None:
    w = World()
    w.node("n", gpu=4).queue("team", guarantee=((GPU, 2),)).queue("a", parent="team", guarantee=((GPU, 1),))
    w.queue("b", parent="team").queue("other")
    w.gang("g", 3, of=shape(gpu=1), queue="other")
    w.session()
    found = w.verdict("g")
    assert found is not None
    assert sentence(found) == (
        "WaitingForQuota: needs 3 example.com/gpu, 4 free; guaranteed: 2 to queue team; queue other uses 0"
    )


def test_no_sum_is_too_large_for_a_queue_without_a_limit() -> None:
    found = book({"serving": (("cpu", CEILING),)})
    assert limited(found, "serving", (("cpu", CEILING),)) is None
