"""Dashboards and alerts: every query is PromQL, and asks for series and labels that Muster has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from scheduler.observe import metrics
from scheduler.observe.metrics import Metrics

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
BOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
RULES: list[Json] = yaml.safe_load((ROOT / "config" / "prometheus" / "rules.yaml").read_text())["groups"][0]["rules"]
COUNTED_BY_ACTIONS = {"muster_solver_results": ("status",)}
"""Counters that are declared by their first use."""
ADDED_BY_PROMETHEUS = {"job", "instance", "namespace", "pod"}


def series() -> dict[str, set[str]]:
    """Return the labels of every series that a scrape can hold."""
    found: dict[str, set[str]] = {}
    for name, (_, labels) in metrics._COUNTERS.items():
        found[f"muster_{name}_total"] = set(labels)
    for name, labels in COUNTED_BY_ACTIONS.items():
        found[f"{name}_total"] = set(labels)
    for name, (_, labels, _) in metrics._HISTOGRAMS.items():
        for end in ("count", "sum", "bucket"):
            found[f"muster_{name}_{end}"] = {*labels, *(("le",) if end == "bucket" else ())}
    made = Metrics()
    for family in made.registry.collect():
        if family.type == "gauge":
            gauge = made.registry._names_to_collectors.get(family.name)
            labels = getattr(gauge, "_labelnames", ("resource",))
            found[family.name] = set(labels)
        elif family.type == "counter" and f"{family.name}_total" not in found:
            gauge = made.registry._names_to_collectors.get(family.name)
            found[f"{family.name}_total"] = set(getattr(gauge, "_labelnames", ("resource",)))
    return found


def selectors(node: Any) -> Iterator[Any]:
    """Yield every selector of a parsed query."""
    match node:
        case promql.VectorSelector():
            yield node
        case promql.MatrixSelector():
            yield node.vector_selector if hasattr(node, "vector_selector") else node.vs
        case promql.BinaryExpr():
            yield from selectors(node.lhs)
            yield from selectors(node.rhs)
        case promql.Call():
            for one in node.args:
                yield from selectors(one)
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield from selectors(node.expr)


def groupings(node: Any) -> Iterator[str]:
    """Yield every label by which a query aggregates."""
    match node:
        case promql.AggregateExpr():
            if node.modifier is not None:
                yield from node.modifier.labels
            yield from groupings(node.expr)
        case promql.BinaryExpr():
            yield from groupings(node.lhs)
            yield from groupings(node.rhs)
        case promql.Call():
            for one in node.args:
                yield from groupings(one)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield from groupings(node.expr)


def check(query: str) -> None:
    """Fail, naming what does not exist."""
    tree = promql.parse(query.replace("$__rate_interval", "5m").replace("$queue", ".*").replace("$resource", ".*"))
    known, asked = series(), list(selectors(tree))
    assert asked, f"{query}: asks for no series"
    for one in asked:
        assert one.name in known, f"{query}: there is no {one.name}"
        for matcher in one.matchers.matchers:
            assert matcher.name in known[one.name] | ADDED_BY_PROMETHEUS, f"{query}: {one.name} has no {matcher.name}"
    labels = set().union(*(known[one.name] for one in asked))
    for label in groupings(tree):
        assert label in labels | ADDED_BY_PROMETHEUS, f"{query}: no series of it has the label {label}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_there_is_and_has_a_page(rule: Json):
    check(rule["expr"])
    page = ROOT / rule["annotations"]["runbook_url"]
    assert page.read_text().startswith(f"# {rule['alert']}\n")
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"]


def test_every_page_has_an_alert():
    pages = {page.stem for page in (ROOT / "docs" / "runbooks").glob("Muster*.md")}
    assert pages == {rule["alert"] for rule in RULES}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_a_dashboard_asks_for_what_there_is(board: Path):
    read = json.loads(board.read_text())
    assert read["__inputs"][0]["name"] == "DS_PROMETHEUS"
    assert len({panel["id"] for panel in read["panels"]}) == len(read["panels"]) > 5
    for panel in read["panels"]:
        for target in panel["targets"]:
            check(target["expr"])
            assert target["datasource"]["uid"] == "${DS_PROMETHEUS}"
    for variable in read["templating"]["list"]:
        name, label = variable["query"].removeprefix("label_values(").removesuffix(")").split(", ")
        assert label in series()[name]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("sum(muster_nothing)", "muster_nothing"),
        ('muster_leader{queue="a"}', "queue"),
        ("sum by (node) (muster_queue_usage)", "node"),
    ],
)
def test_the_check_finds_what_is_wrong(query: str, named: str):
    with pytest.raises(AssertionError, match=named):
        check(query)


def test_rule_names_are_those_of_the_logs():
    """Runbooks name entries of the log; each is one that the code writes."""
    code = "\n".join(file.read_text() for file in (ROOT / "scheduler").rglob("*.py"))
    for word in ("session_failed", "invariant_violated", "configuration_refused"):
        assert f'"{word}"' in code
