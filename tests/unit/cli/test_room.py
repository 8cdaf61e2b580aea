"""Which nodes `muster why` counts, and how it says so."""

from __future__ import annotations

import pytest

from scheduler.cli.output import tell
from scheduler.cli.room import Facts, left_out, scarce, sentence
from scheduler.cli.why import _tell
from scheduler.model.nodes import Node, Taint
from scheduler.model.pods import Pod, Shape, Toleration
from scheduler.model.quantity import MAX_AMOUNT

GPU = "example.com/gpu"
DEDICATED = Taint("dedicated", "infra")


def shape(gpu: int = 1, **fields: object) -> Shape:
    made = {"requests": ((GPU, gpu),), **fields}
    return Shape(key=repr(sorted(made.items())), **made)  # type: ignore[arg-type]


def node(name: str, gpu: int = 2, **fields: object) -> Node:
    return Node(name, allocatable=((GPU, gpu),), **fields)  # type: ignore[arg-type]


def held(name: str, where: str, gpu: int = 1) -> tuple[Pod, Shape]:
    made = shape(gpu)
    return Pod(uid=name, namespace="a", name=name, shape=made.key, node=where), made


def row(waiting: list[Shape], nodes: list[Node], *pods: tuple[Pod, Shape], reason: str = "") -> Facts:
    (found,) = scarce(waiting, nodes, list(pods), reason)
    return found


CLUSTER = [
    node("a"),
    node("b"),
    node("cordoned", unschedulable=True),
    node("going", deleting=True),
    node("tainted", taints=(DEDICATED,)),
    node("labelled", labels=(("pool", "x"),)),
]
BUSY = (held("p", "a"), held("q", "cordoned"), held("r", "labelled", 2))


def test_what_is_free_on_nodes_that_take_none_of_the_members_is_not_counted() -> None:
    found = row([shape()] * 4, CLUSTER, *BUSY, reason=f"{GPU} is short")
    assert (found["wanted"], found["free"], found["allocatable"], found["nodes"]) == ("4", "3", "6", 3)
    assert found["excluded"] == {
        "node(s) were unschedulable": 2,
        "node(s) had untolerated taint {dedicated: infra}": 1,
    }
    assert [one["holder"] for one in found["holders"]] == ["a/r", "a/p"]


def test_a_selector_and_a_toleration_move_the_line() -> None:
    picky = row([shape(node_selector=(("pool", "x"),))] * 4, CLUSTER, *BUSY)
    assert (picky["free"], picky["nodes"]) == ("0", 1)
    assert picky["excluded"]["node(s) didn't match Pod's node affinity/selector"] == 2
    everywhere = row([shape(tolerations=(Toleration(operator="Exists"),))] * 9, CLUSTER, *BUSY)
    assert (everywhere["free"], everywhere["nodes"], everywhere["excluded"]) == ("8", 6, {})


def test_a_node_counts_that_takes_any_one_of_the_members() -> None:
    infra = shape(tolerations=(Toleration("dedicated", "Equal", "infra"),))
    found = row([shape(), shape(2), infra, *[shape()] * 9], CLUSTER, *BUSY)
    assert (found["nodes"], found["excluded"]) == (4, {"node(s) were unschedulable": 2})


def test_what_is_enough_is_told_only_when_the_reason_names_it() -> None:
    assert scarce([shape()], CLUSTER, [], "") == []
    assert row([shape()], CLUSTER, reason=f"Insufficient {GPU}")["free"] == "6"


def test_a_node_that_is_overcommitted_takes_nothing_from_the_others() -> None:
    found = row([shape()] * 4, [node("a"), node("b")], held("p", "a", 5))
    assert (found["free"], found["allocatable"]) == ("2", "4")


def test_the_largest_holders_are_shown_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    found = row([shape(99)] * 4, [node("a", 99), node("b", 99)], *(held(f"p{n:02}", "ab"[n % 2], n) for n in range(14)))
    assert [one["holder"] for one in found["holders"][:2]] == ["a/p13", "a/p12"]
    assert len(found["holders"]) == 13
    tell([{"reason": "-", "resources": [found]}], "table", _tell)
    text = capsys.readouterr().out
    assert "a/p04" in text
    assert "a/p03" not in text
    assert text.endswith("and 3 more\n")


def test_an_amount_that_was_cut_is_told_as_at_least() -> None:
    assert row([shape(MAX_AMOUNT)], [node("a")])["wanted"] == f"at least {MAX_AMOUNT}"


@pytest.mark.parametrize(
    ("nodes", "excluded", "first", "second"),
    [
        (0, {}, "no node may run it", ""),
        (1, {}, "1 of 2 free on the node that may run it", ""),
        (2, {"were x": 1}, "1 of 2 free on the 2 nodes that may run it", "1 other node not counted: 1 were x"),
        (0, {"had y": 2, "were x": 1}, "no node may run it", "3 nodes not counted: 2 had y, 1 were x"),
    ],
)
def test_the_words(nodes: int, excluded: dict[str, int], first: str, second: str) -> None:
    facts = {"resource": GPU, "wanted": "4", "free": "1", "allocatable": "2", "nodes": nodes, "excluded": excluded}
    assert sentence(facts) == f"{GPU}: 4 wanted, {first}"
    assert left_out(facts) == second
