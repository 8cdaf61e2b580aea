"""docs/reference/operators.md names the stories that are told, all of them, and every kind of owner that is known."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from scheduler.controllers.kin import BETWEEN
from scheduler.dialects.owners import KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "operators.md").read_text()
SCENARIOS = ROOT / "tests" / "scenarios"
OF_THE_CONTROLLER = {"OPGBAD", "OPGRES", "OPGCFG", "OPGOFF", "OPGOUT"}


def ids(*names: str) -> set[str]:
    return {one["id"] for name in names for one in yaml.safe_load((SCENARIOS / f"{name}.yaml").read_text())}


def test_the_page_and_the_stories_are_the_same() -> None:
    named = set(re.findall(r"\b(?:OP[A-Z]+|DJ\d|DN\d)\b", PAGE))
    assert named <= ids("operators", "dialects")
    assert ids("operators") - OF_THE_CONTROLLER <= named


def test_every_known_kind_is_on_the_page_and_may_be_read() -> None:
    roles = {
        one["metadata"]["name"]: one["rules"]
        for one in yaml.safe_load_all((ROOT / "config" / "rbac" / "muster.yaml").read_text())
        if one["kind"] == "ClusterRole"
    }
    others = {
        group
        for name, rules in roles.items()
        if name not in ("muster-owners", "muster-groups")
        for rule in rules
        for group in rule["apiGroups"]
    }
    rules = roles["muster-owners"]
    for kind in KINDS:
        assert f"`{kind.plural}" in PAGE and kind.group in PAGE, kind.title
        assert any(
            kind.group in rule["apiGroups"] and kind.plural in rule["resources"] and "watch" in rule["verbs"]
            for rule in rules
        ), kind.title
        assert kind.group not in others, "read although grouping is off"


def test_what_takes_made_groups_away_needs_no_right_of_grouping() -> None:
    """Switched off, the role of owners is not there: climbing to them by uid and deleting groups must go on."""
    documents = yaml.safe_load_all((ROOT / "config" / "rbac" / "muster.yaml").read_text())
    of = ("ClusterRole", "muster-controllers")
    [base] = [one for one in documents if (one["kind"], one["metadata"]["name"]) == of]
    granted = {
        (verb, group, resource)
        for rule in base["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    needed = {("get", group, plural) for (group, _), plural in BETWEEN.items()}
    assert needed | {("delete", "scheduling.muster.sh", "podgroups")} <= granted
