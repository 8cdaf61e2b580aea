"""The account of what queues use, by name."""

from __future__ import annotations

from scheduler.framework.queue_tree import build
from scheduler.model.division import Division, Shortage
from scheduler.model.filling import CEILING
from scheduler.model.queues import Queue
from scheduler.model.resources import Amounts

QUEUES = (
    Queue(name="research", limit=(("gpu", 6),)),
    Queue(name="nlp", parent="research", deserved=(("gpu", 3),)),
    Queue(name="bio", parent="research", guarantee=(("gpu", 1),), deserved=(("gpu", 1),)),
    Queue(name="serving", guarantee=(("gpu", 2),), deserved=(("gpu", 4),)),
    Queue(name="lost", parent="gone"),
)
TOTAL = (("cpu", 100), ("gpu", 8))


def gpu(number: int) -> Amounts:
    return (("gpu", number),)


def division(usage: dict[str, Amounts] | None = None, waiting: dict[str, Amounts] | None = None) -> Division:
    tree = build({queue.name: queue for queue in QUEUES})
    resources = ("cpu", "gpu")
    fields = tree.fields(resources)
    return Division(tree.names, tree.structure, fields, resources, TOTAL, usage or {}, waiting or {})


def test_it_answers_by_name() -> None:
    found = division({"nlp": gpu(2)}, {"nlp": gpu(9), "serving": gpu(4)})
    assert found.used("research") == gpu(2)
    assert found.demand("research") == gpu(11)
    assert found.entitlement("serving") == gpu(4)
    assert found.entitlement("research") == gpu(4)
    assert found.entitlement("nlp") == gpu(3)
    assert found.deserved("research") == gpu(4)
    assert found.guaranteed("research") == gpu(1)
    assert found.lineage("nlp") == ("nlp", "research", "root")
    assert found.apart("nlp", "serving") == ("research", "serving")
    assert found.apart("nlp", "bio") == ("nlp", "bio")
    assert found.apart("nlp", "research") is None


def test_room_ends_at_a_limit_at_guarantees_or_with_the_cluster() -> None:
    found = division()
    assert found.shortages("nlp", (("cpu", 100), ("gpu", 5))) == ()
    # Beside serving's 2 and bio's 1 there are 5, and the limit of research leaves 6.
    assert found.shortages("nlp", gpu(6)) == (Shortage("research", "gpu", 6, 5, "guarantees"),)
    assert found.shortages("nlp", (("cpu", 101),)) == (Shortage("root", "cpu", 101, 100, "total"),)
    assert found.shortages("nlp", (("tpu", 1),)) == (Shortage("root", "tpu", 1, 0, "total"),)
    for name, number in (("bio", 1), ("serving", 3), ("nlp", 3), ("lost", 1)):
        found.charge(name, gpu(number))
    assert found.shortages("nlp", gpu(1)) == (Shortage("root", "gpu", 1, 0, "total"),)
    found.charge("serving", gpu(-2))
    assert found.shortages("nlp", gpu(2)) == (Shortage("root", "gpu", 2, 1, "guarantees"),)
    for name, number in (("lost", -1), ("serving", -1), ("bio", 1), ("nlp", 2)):
        found.charge(name, gpu(number))
    assert found.headroom("nlp") == (("cpu", 100), ("gpu", -1))
    assert found.shortages("nlp", gpu(1)) == (Shortage("research", "gpu", 1, -1, "limit"),)


def test_what_is_charged_and_taken_back_leaves_nothing() -> None:
    found = division({"bio": gpu(1)})
    before = [found.headroom(name) for name in found.names]
    found.charge("bio", gpu(2), 3)
    found.charge("bio", gpu(2), -3)
    assert [found.headroom(name) for name in found.names] == before
    assert found.used("root") == gpu(1)


def test_use_outside_the_tree_counts_at_the_root() -> None:
    found = division({"lost": gpu(3), "root": gpu(1)}, {"serving": gpu(4), "nlp": gpu(4)})
    assert found.used("root") == gpu(4)
    assert found.entitlement("serving") == gpu(2)
    found.charge("lost", gpu(1))
    assert found.used("root") == gpu(5)


def test_beyond_and_within_look_at_what_counts() -> None:
    found = division({"nlp": (("cpu", 50), ("gpu", 4))}, {"serving": gpu(4), "nlp": gpu(1)})
    assert found.beyond("nlp") == gpu(1)
    assert found.beyond("nlp", gpu(1), deserved=True) == gpu(2)
    assert not found.within("nlp", gpu(1))
    assert found.within("nlp", (("cpu", 5),))
    assert found.within("serving", gpu(4))
    assert not found.within("serving", gpu(5))


def test_the_share_counts_what_is_asked_for() -> None:
    found = division({"serving": (("cpu", 99), ("gpu", 1))}, {"serving": gpu(4), "nlp": gpu(4)})
    assert found.share("serving") == 0.25
    assert found.share("serving", gpu(1)) == 0.5
    assert found.share("default") == 0.0
    assert found.share("default", gpu(1)) == float("inf")


def test_an_unlimited_deserved_is_the_ceiling() -> None:
    tree = build({"a": Queue(name="a", deserved=(("gpu", -1),))})
    found = Division(tree.names, tree.structure, tree.fields(("gpu",)), ("gpu",), gpu(8), {}, {})
    assert found.deserved("a") == gpu(CEILING)
