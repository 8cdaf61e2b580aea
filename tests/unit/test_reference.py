"""docs/reference/config.md says what the program accepts: no key, default, plugin or argument more or less."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugins import built_in
from scheduler.actions.run import ACTIONS
from scheduler.config import API_VERSION, KIND, ConfigError, PluginConfig, SchedulerConfiguration, parse
from scheduler.framework.registry import Arguments
from scheduler.model.verdict import Code

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "config.md"
RESOURCE = "RESOURCE"
REASONS = PAGE.with_name("reasons.md")
Row = list[str]


def rows(columns: int) -> list[Row]:
    """The rows of the page's tables that have so many columns, without their headers."""
    lines = [line.strip().strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line] for line in lines]
    return [row for row in cells if len(row) == columns and not row[0].startswith("---") and row[0][:1] == "`"]


def bare(cell: str) -> str:
    return cell.strip("`")


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def paths(of: Any, prefix: str = "") -> set[str]:
    """Paths of all keys of a configuration object, as they are written in a file."""
    found = set()
    for one in dataclasses.fields(of):
        value, path = getattr(of, one.name), prefix + camel(one.name)
        found |= paths(value, f"{path}.") if dataclasses.is_dataclass(value) else {path}
    return found


KEYS = {bare(row[0]): row for row in rows(4)}
PLAIN = sorted(path for path in KEYS if not path.startswith("tiers"))


def document(path: str, value: object) -> dict[str, Any]:
    """A file that sets one key."""
    *outer, last = path.split(".")
    inner: dict[str, Any] = {last: value}
    for name in reversed(outer):
        inner = {name: inner}
    return {"apiVersion": API_VERSION, "kind": KIND, **inner}


def configured(path: str, value: object) -> SchedulerConfiguration:
    return parse(document(path, value), actions=list(ACTIONS), plugins=built_in().names())


def test_every_key_is_on_the_page_and_no_other() -> None:
    of_plugin = {f"tiers[].plugins[].{one.name}" for one in dataclasses.fields(PluginConfig)}
    assert set(KEYS) == (paths(SchedulerConfiguration()) - {"warnings"}) | of_plugin


@pytest.mark.parametrize("path", PLAIN)
def test_the_default_on_the_page_is_the_one_that_holds(path: str) -> None:
    default = yaml.safe_load(bare(KEYS[path][2]))
    if default == "":
        return  # cannot be written into a file; it is what holds without the key
    assert configured(path, default) == SchedulerConfiguration()


@pytest.mark.parametrize("path", PLAIN)
def test_a_value_of_another_type_is_refused_at_its_path(path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(path, {"no": "such type"})
    assert refused.value.path.startswith(path)


def test_the_bounds_on_the_page_are_those_that_hold() -> None:
    bounded = {path: row[1] for path, row in KEYS.items() if path in PLAIN and " to " in row[1]}
    assert bounded
    for path, words in bounded.items():
        low, high = (int(number) for number in re.findall(r"\d+", words))
        for good in (low, high):
            configured(path, good)
        for bad in (low - 1, high + 1):
            with pytest.raises(ConfigError):
                configured(path, bad)


class Recorder(Arguments):
    """Arguments that are all absent; notes what was asked for: name -> (type, default)."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: dict[str, tuple[str, object]] = {}

    def integer(self, name: str, default: int, *, low: int = 0, high: int = 1_000_000) -> int:
        self.asked[name] = (f"integer, {low} to {high}", default)
        return super().integer(name, default, low=low, high=high)

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        self.asked[name] = (f"one of {', '.join(choices)}", default)
        return super().choice(name, default, choices)

    def texts(self, name: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        self.asked[name] = ("list of strings", list(default))
        return super().texts(name, default)

    def remaining_integers(
        self, *, is_name: Callable[[str], bool], low: int = 0, high: int = 1_000_000
    ) -> dict[str, int]:
        self.asked[RESOURCE] = (f"integer, {low} to {high}", None)
        return super().remaining_integers(is_name=is_name, low=low, high=high)


def asked(name: str, factories: Mapping[str, Callable[[Arguments], object]]) -> dict[str, tuple[str, object]]:
    recorder = Recorder()
    factories[name](recorder)
    return recorder.asked


@pytest.mark.parametrize("name", built_in().names())
def test_every_plugin_is_on_the_page_with_its_arguments(name: str) -> None:
    written = [row for row in rows(5) if bare(row[0]) == name]
    assert written, f"{name} is missing in {PAGE.name}"
    documented = {
        bare(row[1]): (row[2], None if row[1] == RESOURCE else yaml.safe_load(bare(row[3])))
        for row in written
        if row[1]
    }
    assert documented == asked(name, built_in()._factories)


def test_no_plugin_is_on_the_page_that_does_not_exist() -> None:
    assert {bare(row[0]) for row in rows(5)} <= set(built_in().names())


def test_every_reason_that_is_given_has_its_row() -> None:
    lines = [line.split("|")[1] for line in REASONS.read_text().splitlines() if line.startswith("| `")]
    told = {word for first in lines for word in re.findall(r"`(\w+)[` ]", first)}
    words = {code.value for code in Code if code is not Code.NEVER_FITS}
    assert told == words
