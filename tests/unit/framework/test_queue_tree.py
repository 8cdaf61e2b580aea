"""The queue tree: its shape, its names, and how far damage reaches."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from scheduler.framework import queue_tree
from scheduler.framework.queue_tree import STANDS_ASIDE, QueueTree, Trees, build
from scheduler.model.pods import Problem
from scheduler.model.queues import UNLIMITED, Queue
from scheduler.model.resources import Amounts


def x(value: int) -> Amounts:
    return (("x", value),)


def tree(*queues: Queue) -> QueueTree:
    return build({queue.name: queue for queue in queues})


def part(found: QueueTree) -> tuple[str, ...]:
    return tuple(name for name in found.names if name in found)


def told(found: QueueTree, name: str) -> tuple[str, str]:
    problem = found.problem_of(name)
    assert problem is not None
    assert problem[1].endswith(f"; {STANDS_ASIDE}")
    return problem[0], problem[1].removesuffix(f"; {STANDS_ASIDE}")


RESEARCH = (Queue(name="research"), Queue(name="nlp", parent="research"), Queue(name="bio", parent="root/research"))


def test_it_is_top_down_and_by_name() -> None:
    found = tree(Queue(name="zoo"), *RESEARCH, Queue(name="cat", parent="zoo"))
    assert found.names == ("root", "default", "research", "zoo", "bio", "nlp", "cat")
    assert found.parents == (-1, 0, 0, 0, 2, 2, 3)
    assert found.depth == (0, 1, 1, 1, 2, 2, 2)
    assert found.structure.root == 0
    assert not found.out
    assert not found.warnings


def test_nothing_is_a_root_and_a_default() -> None:
    found = tree()
    assert found.names == ("root", "default")
    assert found.is_leaf("default")
    assert not found.is_leaf("root")


def test_a_queue_has_a_path_and_a_lineage() -> None:
    found = tree(*RESEARCH)
    assert found.path("nlp") == "research/nlp"
    assert found.path("root") == "root"
    assert found.lineage("nlp") == ("nlp", "research", "root")
    assert found.children("research") == ("bio", "nlp")
    assert found.children("nlp") == ()
    assert (found.is_leaf("nlp"), found.is_leaf("research")) == (True, False)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "default"),
        ("nlp", "nlp"),
        ("research/nlp", "nlp"),
        ("root/research/nlp", "nlp"),
        ("root/nlp", "nlp"),
        ("root/research", "research"),
        ("root", "root"),
        ("zoo/nlp", None),
        ("zoo/research/nlp", None),
        ("other", None),
        ("research/other", None),
        ("nlp/research", None),
    ],
)
def test_a_group_names_a_queue_by_name_or_path(text: str, name: str | None) -> None:
    assert tree(*RESEARCH, Queue(name="zoo")).lookup(text) == name


def test_a_missing_parent_takes_its_subtree_out() -> None:
    found = tree(*RESEARCH, Queue(name="lost", parent="gone"), Queue(name="below", parent="lost"))
    assert told(found, "lost") == ("ParentNotFound", "its parent gone does not exist")
    fault = found.fault_of("below")
    assert fault is not None
    assert (fault.queue, fault.parent) == ("lost", "gone")
    assert "below" not in found
    assert found.lineage("below") == ("below", "lost")
    assert part(found) == ("root", "default", "research", "bio", "nlp")


def test_a_parent_that_stands_elsewhere_is_missing() -> None:
    found = tree(
        *RESEARCH, Queue(name="zoo"), Queue(name="cat", parent="zoo/nlp"), Queue(name="dog", parent="root/zoo")
    )
    assert told(found, "cat") == ("ParentNotFound", "its parent zoo/nlp does not exist")
    assert found.path("dog") == "zoo/dog"
    assert found.is_leaf("nlp")


def test_nothing_stands_below_a_default_without_an_object() -> None:
    found = tree(Queue(name="a", parent="default"))
    assert found.fault_of("a") is not None
    assert found.is_leaf("default")
    assert not tree(Queue(name="default"), Queue(name="a", parent="default")).is_leaf("default")


def test_a_cycle_takes_out_itself_and_what_hangs_on_it() -> None:
    found = tree(
        Queue(name="a", parent="b"),
        Queue(name="b", parent="a"),
        Queue(name="c", parent="a"),
        Queue(name="self", parent="self"),
        Queue(name="fine"),
    )
    assert part(found) == ("root", "default", "fine")
    assert told(found, "a") == ("QueueCycle", "it stands below itself (with b)")
    assert told(found, "self") == ("QueueCycle", "it is its own parent")
    fault = found.fault_of("c")
    assert fault is not None
    assert fault.queue == "a"
    assert found.lineage("c") == ("c", "a", "b")


@pytest.mark.parametrize(
    ("queue", "code", "message"),
    [
        (
            Queue(name="a", guarantee=x(3), deserved=x(2)),
            "Contradiction",
            "its guarantee of x (3) is above its deserved (2)",
        ),
        (Queue(name="a", guarantee=x(3), limit=x(2)), "Contradiction", "its guarantee of x (3) is above its limit (2)"),
        (Queue(name="a", deserved=x(3), limit=x(2)), "Contradiction", "its deserved of x (3) is above its limit (2)"),
        (Queue(name="a", guarantee=x(UNLIMITED)), "Contradiction", "its guarantee of x has no number"),
        (
            Queue(name="a", problems=(Problem("spec.limit.x", "is no quantity"),)),
            "BadField",
            "spec.limit.x: is no quantity",
        ),
    ],
)
def test_a_queue_that_contradicts_itself_is_out(queue: Queue, code: str, message: str) -> None:
    found = tree(queue, Queue(name="b", parent="a"), Queue(name="c"))
    assert told(found, "a") == told(found, "b") == (code, message)
    assert part(found) == ("root", "c", "default")


def test_unlimited_and_unset_contradict_nothing() -> None:
    found = tree(
        Queue(name="a", guarantee=x(3), limit=x(UNLIMITED)),
        Queue(name="b", guarantee=x(3), deserved=x(UNLIMITED), limit=x(4)),
    )
    assert not found.out


@pytest.mark.parametrize("label", ["guarantee", "deserved", "limit"])
def test_guarantees_above_what_the_parent_has_take_the_parent_out(label: str) -> None:
    parent = replace(Queue(name="a"), **{label: x(5)})
    below = (Queue(name="a1", parent="a", guarantee=x(3)), Queue(name="a2", parent="a", guarantee=x(3)))
    found = tree(parent, *below, Queue(name="b"))
    assert part(found) == ("root", "b", "default")
    code, message = told(found, "a1")
    assert code == queue_tree.OVERCOMMITTED
    assert message == f"the guarantees of x directly below it (6) exceed its {label} (5)"
    assert not tree(replace(parent, **{label: x(6)}), *below).out


def test_guarantees_count_through_a_queue_that_has_none() -> None:
    found = tree(
        Queue(name="a", guarantee=x(1)),
        Queue(name="m", parent="a"),
        Queue(name="m1", parent="m", guarantee=x(2)),
    )
    assert told(found, "a") == (
        queue_tree.OVERCOMMITTED,
        "the guarantees of x directly below it (2) exceed its guarantee (1)",
    )


def test_a_child_that_is_out_does_not_take_its_parent_out() -> None:
    found = tree(Queue(name="a", limit=x(5)), Queue(name="a1", parent="a", guarantee=x(9), limit=x(8)))
    assert part(found) == ("root", "a", "default")
    assert not found.is_leaf("a")


def test_the_root_is_never_out() -> None:
    found = tree(Queue(name="root", limit=x(5), deserved=x(7)), Queue(name="a", guarantee=x(6)))
    assert part(found) == ("root", "a", "default")
    assert [fault.code for fault in found.warnings["root"]] == [queue_tree.CONTRADICTION, queue_tree.OVERCOMMITTED]
    assert found.fields(("x",)).limit[0, 0] == 5


def test_deserved_above_the_parents_is_a_warning() -> None:
    found = tree(Queue(name="a", deserved=x(3)), Queue(name="b", parent="a", deserved=x(4)))
    assert "b" in found
    assert found.problem_of("b") == (
        queue_tree.OVERSUBSCRIBED,
        "its deserved x (4) is above that of a (3)",
    )


def test_the_nearest_queue_that_is_not_open_is_found() -> None:
    research, nlp, bio = RESEARCH
    found = tree(replace(research, state="Hold"), nlp, replace(bio, state="Drain"), Queue(name="zoo"))
    assert found.closed("nlp") == ("research", "Hold")
    assert found.closed("bio") == ("bio", "Drain")
    assert found.closed("zoo") is None
    assert tree(Queue(name="root", state="Hold")).closed("default") == ("root", "Hold")


def test_a_deep_chain_and_many_queues_are_no_problem() -> None:
    chain = [Queue(name=f"q{number}", parent=f"q{number - 1}" if number else "") for number in range(2000)]
    found = tree(*chain)
    assert len(found.lineage("q1999")) == 2001
    deep = found.fault_of("q1999")
    assert deep is not None
    assert deep.code == queue_tree.TOO_DEEP


def test_the_same_content_gives_the_same_tree() -> None:
    trees = Trees()
    queues = {queue.name: queue for queue in RESEARCH}
    first = trees.of(queues)
    assert trees.of(dict(queues)) is first
    decayed = {name: replace(queue, decayed=x(1), resource_version="7") for name, queue in queues.items()}
    assert trees.of(decayed) is first
    assert trees.of({**queues, "nlp": replace(queues["nlp"], limit=x(1))}) is not first
    assert trees.of({**queues, "nlp": replace(queues["nlp"], state="Hold")}).closed("nlp") == ("nlp", "Hold")
    assert trees.of({"nlp": replace(queues["nlp"], parent="")}).names == ("root", "default", "nlp")


def test_what_takes_no_part_stands_aside_below_the_root() -> None:
    queues = (
        Queue(name="a", parent="b", limit=x(4)),
        Queue(name="b", parent="a"),
        Queue(name="below", parent="a", limit=x(2), deserved=x(1)),
        Queue(name="fine"),
    )
    found = build({queue.name: queue for queue in queues}, ("gone", "fine", "default", "root", "below"))
    assert found.names == ("root", "a", "b", "default", "fine", "gone", "below")
    assert found.parents == (-1, 0, 0, 0, 0, 0, 1)
    assert found.aside == {"a": x(4), "b": (), "below": x(2), "gone": ()}
    assert found.gone == ("gone",)
    assert part(found) == ("root", "default", "fine")
    assert found.queues[-1] == Queue(name="below", weight=0)
    assert found.lookup("gone") is None


def test_a_tree_is_kept_until_something_runs_in_a_queue_that_is_gone() -> None:
    trees = Trees()
    queues = {"a": Queue(name="a")}
    first = trees.of(queues, ("a", "default"))
    assert trees.of(queues, ()) is first
    second = trees.of(queues, ("gone",))
    assert second.gone == ("gone",)
    assert trees.of(dict(queues), ("gone", "a")) is second
    assert not trees.of(queues, ("a",)).gone


def test_of_a_long_cycle_only_a_few_are_named() -> None:
    names = [f"q{number:04}" for number in range(2000)]
    found = tree(*(Queue(name=name, parent=names[number - 1]) for number, name in enumerate(names)))
    assert told(found, "q0007")[1] == "it stands below itself (with q0000, q0001, q0002, q0003, q0004 and 1994 others)"


def test_what_stands_too_deep_takes_no_part_and_what_is_above_it_does() -> None:
    names = ["root", *(f"q{number:04}" for number in range(1, 1501))]
    found = tree(*(Queue(name=name, parent=above) for above, name in pairwise(names)))
    assert part(found) == ("root", "default", *names[1 : queue_tree.MAX_DEPTH + 1])
    assert told(found, names[queue_tree.MAX_DEPTH + 1]) == (
        queue_tree.TOO_DEEP,
        "it stands more than 64 levels below the root",
    )
    assert max(found.depth) == queue_tree.MAX_DEPTH
