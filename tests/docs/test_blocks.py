"""What stands in fences: YAML that a real API server takes, configurations that load, commands that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
import yaml

from scheduler.app import load_configuration
from scheduler.cli.main import app
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.rest import ApiError, resource_path
from tests.docs.pages import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
_FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\s*(?:\$ )?(?:\.venv/bin/muster|muster|kubectl muster) (.*)$", re.MULTILINE)
_INLINE = re.compile(r"`(?:\.venv/bin/)?muster ([^`]+)`")


def fences(mark: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every fence with a mark."""
    for page in PAGES:
        text = page.read_text()
        for fence in _FENCE.finditer(text):
            if fence[2] == mark:
                yield f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, fence.start()) + 1}", fence[3]


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for where, text in fences("yaml"):
        for one in yaml.safe_load_all(text):
            if isinstance(one, dict) and "kind" in one and "apiVersion" in one:
                yield where, one


def test_every_yaml_block_is_yaml():
    read = [where for where, text in fences("yaml") if list(yaml.safe_load_all(text))]
    assert len(read) > 5


def test_configurations_load():
    for where, one in documents():
        if one["kind"] == "SchedulerConfiguration":
            assert load_configuration(None, content=yaml.safe_dump(one).encode()), where


@pytest.mark.real
def test_a_real_api_server_takes_the_objects(real_control_plane: ControlPlane):
    rest, refused = real_control_plane.rest, []
    served = {
        (version, resource["kind"]): resource
        for version in {one["apiVersion"] for _, one in documents()}
        for resource in _resources(rest, version)
        if "/" not in resource["name"]
    }
    for where, one in documents():
        resource = served.get((one["apiVersion"], one["kind"]))
        if resource is None:
            assert one["apiVersion"].split(".")[0] not in ("v1", "batch/v1", "scheduling"), f"{where}: {one['kind']}"
            continue
        namespace = one["metadata"].get("namespace", "default") if resource["namespaced"] else None
        try:
            rest.create(resource_path(one["apiVersion"], resource["name"], namespace=namespace), one, dryRun="All")
        except ApiError as error:
            if error.status not in (404, 409):  # the namespace of the example, or the object, is or is not there
                refused.append(f"{where}: {error}")
    assert refused == []


def _resources(rest: Any, version: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = rest.get(f"/{'apis/' if '/' in version else 'api/'}{version}")["resources"]
    except ApiError as error:
        if error.status != 404:
            raise
        return []
    return found


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = page.read_text()
        lines = [line for fence in _FENCE.finditer(text) for line in _COMMAND.findall(fence[3])]
        inline = _INLINE.findall(_FENCE.sub("", text))
        found += [(str(page.relative_to(ROOT)), line) for line in (*lines, *inline)]
    return found


def parse(line: str) -> None:
    """Raise ValueError for a subcommand or an option that does not exist."""
    words = shlex.split(re.split(r"\s+[#|>&]|\s+2>", line)[0], comments=True)
    command: Any = typer.main.get_command(app)
    while inside := getattr(command, "commands", {}):
        if not words or words[0] == "...":
            return
        names = words.pop(0).replace("\\", "").split("|")
        for name in names:
            if name not in inside:
                raise ValueError(f"{command.name} has no command {name}")
        command = inside[names[0]]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
    for word in words:
        if word.startswith("-") and word != "-" and word.split("=")[0] not in known:
            raise ValueError(f"{command.name} has no option {word}")


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_every_command_exists(page: str, line: str):
    parse(line)


@pytest.mark.parametrize("line", ["fly", "get groups --colour", "why train --no-such"])
def test_a_command_that_does_not_exist_is_found(line: str):
    with pytest.raises(ValueError, match="has no"):
        parse(line)
