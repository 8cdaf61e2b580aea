"""Kubernetes' rules about nodes, as tables: the rows are those of kube-scheduler's documentation."""

from __future__ import annotations

import pytest

from plugins.predicates import Predicates
from scheduler.framework.registry import Arguments
from scheduler.model.affinity import Requirement
from scheduler.model.nodes import HOSTNAME, NodeClass, Taint
from scheduler.model.pods import SelectorTerm, Toleration
from tests.unit.framework.world import shape

AFFINITY = "node(s) didn't match Pod's node affinity/selector"
predicates = Predicates(Arguments({}))


def node(*, taints: tuple[Taint, ...] = (), unschedulable: bool = False, name: str = "", **labels: str) -> NodeClass:
    return NodeClass(tuple(sorted(labels.items())), taints, unschedulable, name)


def why(node_class: NodeClass, **fields: object) -> str:
    misfit = predicates.fits(shape(**fields), node_class)  # type: ignore[arg-type]
    return misfit.reason if misfit is not None else ""


def term(*needs: tuple[str, str, tuple[str, ...]], fields: tuple[Requirement, ...] = ()) -> SelectorTerm:
    return SelectorTerm(tuple(Requirement(*need) for need in needs), fields)


@pytest.mark.parametrize(
    ("operator", "values", "label", "fits"),
    [
        ("In", ("a", "b"), "a", True), ("In", ("a",), "c", False), ("In", ("a",), None, False),
        ("NotIn", ("a",), "a", False), ("NotIn", ("a",), "c", True), ("NotIn", ("a",), None, True),
        ("Exists", (), "", True), ("Exists", (), None, False),
        ("DoesNotExist", (), "x", False), ("DoesNotExist", (), None, True),
        ("Gt", ("3",), "4", True), ("Gt", ("3",), "3", False), ("Gt", ("3",), "many", False),
        ("Gt", ("3",), None, False),
        ("Gt", ("3",), "9223372036854775807", True), ("Gt", ("3",), "9223372036854775808", False),
        ("Lt", ("3",), "-9223372036854775809", False), ("Gt", ("3",), "0000000000000000000000004", True),
        ("Gt", ("x",), "4", False), ("Gt", ("1", "2"), "4", False), ("Gt", ("3",), "1_0", False),
        ("Lt", ("3",), "-1", True), ("Lt", ("3",), "3", False),
        ("Matches", ("a",), "a", False),
    ],
)  # fmt: skip
def test_node_affinity_operators(operator: str, values: tuple[str, ...], label: str | None, fits: bool) -> None:
    labels = {} if label is None else {"k": label}
    assert (why(node(**labels), required_terms=(term(("k", operator, values)),)) == "") is fits


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        (None, True), ((), False), ((term(),), False),
        ((term(("disk", "In", ("ssd",)), ("zone", "In", ("z",))),), False),
        ((term(("disk", "In", ("ssd",)), ("zone", "In", ("z",))), term(("zone", "In", ("a",)))), True),
    ],
    ids=["absent", "empty list", "empty term", "all of a term", "any of the terms"],
)  # fmt: skip
def test_terms_are_alternatives_and_all_of_a_term_must_hold(terms: tuple[SelectorTerm, ...] | None, fits: bool) -> None:
    assert why(node(disk="ssd", zone="a"), required_terms=terms) == ("" if fits else AFFINITY)


def test_selector_and_affinity_must_both_hold() -> None:
    here = node(zone="a")
    assert why(here, node_selector=(("zone", "a"),)) == ""
    assert why(here, node_selector=(("zone", "b"),)) == AFFINITY
    assert why(here, node_selector=(("zone", "a"),), required_terms=(term(("zone", "In", ("b",))),)) == AFFINITY


@pytest.mark.parametrize(
    ("operator", "key", "name", "fits"),
    [("In", "metadata.name", "n1", True), ("In", "metadata.name", "", False), ("NotIn", "metadata.name", "n1", False),
     ("NotIn", "metadata.name", "", True), ("Exists", "metadata.name", "n1", False),
     ("In", "metadata.uid", "n1", False)],
)  # fmt: skip
def test_match_fields_know_only_the_name(operator: str, key: str, name: str, fits: bool) -> None:
    field = Requirement(key, operator, ("n1",))
    assert why(node(name=name), required_terms=(term(fields=(field,)),)) == ("" if fits else AFFINITY)


@pytest.mark.parametrize(
    ("operator", "named", "fits"),
    [("In", True, True), ("In", False, False), ("NotIn", True, False), ("NotIn", False, True), ("Exists", False, True),
     ("DoesNotExist", False, False)],
)  # fmt: skip
def test_the_hostname_of_nodes_that_nobody_names_is_some_other_one(operator: str, named: bool, fits: bool) -> None:
    here = NodeClass(labels=((HOSTNAME, "n1"),), name="n1") if named else NodeClass()
    values = ("n1",) if operator in ("In", "NotIn") else ()
    assert (why(here, required_terms=(term((HOSTNAME, operator, values)),)) == "") is fits


@pytest.mark.parametrize(
    ("operator", "fits"), [("In", False), ("NotIn", True), ("Exists", False), ("DoesNotExist", True)]
)
def test_a_node_without_a_hostname_label_has_none(operator: str, fits: bool) -> None:
    values = ("n1",) if operator in ("In", "NotIn") else ()
    assert (why(node(name="n1"), required_terms=(term((HOSTNAME, operator, values)),)) == "") is fits


SPOT = Taint("k", "v", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (Toleration("k", "Equal", "v"), True), (Toleration("k", "Equal", "w"), False), (Toleration("k", "", "v"), True),
        (Toleration("k", "Exists"), True), (Toleration("x", "Exists"), False), (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "v"), False), (Toleration("k", "Exists", effect="NoSchedule"), True),
        (Toleration("k", "Exists", effect="NoExecute"), False), (Toleration("k", "Sometimes", "v"), False),
    ],
)  # fmt: skip
def test_tolerations(toleration: Toleration, fits: bool) -> None:
    reason = "" if fits else "node(s) had untolerated taint {k: v}"
    assert why(node(taints=(SPOT,)), tolerations=(toleration,)) == reason


@pytest.mark.parametrize(
    ("taint", "operator", "than", "fits"),
    [("950", "Gt", "900", True), ("950", "Gt", "950", False), ("high", "Gt", "1", False), ("5", "Lt", "9", True),
     ("5", "Lt", "x", False), ("9", "Lt", "9", False), ("007", "Gt", "5", False), ("00", "Lt", "1", False),
     ("0", "Lt", "1", True), ("7", "Gt", "05", False), ("7", "Gt", "-5", True), ("1", "Gt", "-0", False)],
)  # fmt: skip
def test_tolerations_that_compare_numbers(taint: str, operator: str, than: str, fits: bool) -> None:
    assert (why(node(taints=(Taint("sla", taint),)), tolerations=(Toleration("sla", operator, than),)) == "") is fits


def test_every_hard_taint_must_be_tolerated_and_soft_ones_need_not() -> None:
    both = node(taints=(Taint("a"), Taint("b", "", "NoExecute"), Taint("c", "", "PreferNoSchedule")))
    only_a = Toleration("a", "Exists")
    assert why(both, tolerations=(only_a,)) == "node(s) had untolerated taint {b: }"
    assert why(both, tolerations=(only_a, Toleration("b", "Exists"))) == ""


def test_a_cordoned_node_takes_only_what_tolerates_it() -> None:
    cordoned = node(unschedulable=True, taints=(Taint("node.kubernetes.io/unschedulable"),))
    assert why(cordoned) == "node(s) were unschedulable"
    assert why(cordoned, tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),)) == ""


def test_a_node_must_declare_every_feature_that_a_pod_needs() -> None:
    here = NodeClass(features=("a", "b"))
    missing = "node(s) didn't match Pod's required features"
    assert why(here, features=("a", "b")) == why(here) == why(node()) == ""
    assert why(here, features=("a", "c")) == why(node(), features=("a",)) == missing
    cordoned = predicates.fits(shape(features=("a",)), NodeClass(unschedulable=True))
    assert cordoned is not None and cordoned.lasting


@pytest.mark.parametrize(
    ("here", "selector", "lasting"),
    [
        (node(unschedulable=True), "", False), (node(unschedulable=True), "a", True),
        (node(taints=(Taint("node.kubernetes.io/not-ready", "", "NoExecute"),)), "", False),
        (node(taints=(Taint("node.kubernetes.io/not-ready"), SPOT)), "", True), (node(taints=(SPOT,)), "", True),
        (node(), "a", True),
    ],
    ids=["cordon", "cordoned and no match", "not ready", "not ready and tainted", "tainted", "no match"],
)  # fmt: skip
def test_what_passes_by_itself_is_told_from_what_lasts(here: NodeClass, selector: str, lasting: bool) -> None:
    misfit = predicates.fits(shape(node_selector=(("zone", selector),) if selector else ()), here)
    assert misfit is not None
    assert misfit.lasting is lasting
