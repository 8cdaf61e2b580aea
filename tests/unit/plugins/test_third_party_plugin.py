"""The example in docs/how-to/write-a-plugin.md: built, installed and run as another distribution would be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins import built_in
from scheduler.config import PluginConfig
from scheduler.framework.registry import BadPlugin, Registry
from scheduler.model.verdict import Code
from tests.unit.framework.world import World, shape, with_plugins

SOURCE = Path(__file__).parent / "example_plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The example, installed with pip into a directory of its own."""
    work = tmp_path_factory.mktemp("plugin")
    source, target = work / "source", work / "target"
    (source / "example_muster_plugin").mkdir(parents=True)
    for file in (Path("pyproject.toml"), Path("example_muster_plugin/__init__.py")):
        (source / file).write_bytes((SOURCE / file).read_bytes())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--target", str(target), str(source)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(target))
    yield target
    sys.path.remove(str(target))
    sys.modules.pop("example_muster_plugin", None)


@pytest.fixture
def registry(installed: Path) -> Registry:
    found = built_in().with_entry_points([str(installed)])
    assert found.problems == ()
    return found


def test_an_installed_plugin_is_found_by_its_entry_point(registry: Registry) -> None:
    assert "reserved" in registry.names()
    assert "reserved" not in built_in().names()


def test_it_is_also_found_on_the_import_path(installed: Path) -> None:
    assert "reserved" in built_in().with_entry_points().names()


def test_it_decides_where_pods_may_run_and_its_reason_is_told(registry: Registry) -> None:
    config = with_plugins(["gang", "predicates", "reserved"])
    world = World(config, registry=registry)
    world.node("free", gpu=1).node("kept", gpu=8, labels={"example.com/reserved": "team-a"})
    world.gang("theirs", 1, of=shape(gpu=2, node_selector=(("example.com/reserved", "team-a"),)))
    world.gang("others", 1, of=shape(gpu=2))
    world.session()
    assert world.placed == {"theirs-0": "kept"}
    verdict = world.verdict("others")
    assert verdict is not None
    assert dict(verdict.nodes) == {"node(s) were reserved for team-a": 1, "Insufficient example.com/gpu": 1}


def test_it_orders_groups_with_its_arguments(registry: Registry) -> None:
    config = with_plugins([PluginConfig("reserved", arguments={"smallestFirst": 1})])
    world = World(config, registry=registry).node("n", gpu=3)
    world.gang("large", 3, created=1.0)
    world.gang("small", 2, created=2.0)
    world.session()
    assert world.placed_of("small") == ["small-0", "small-1"]
    assert world.placed_of("large") == []


def test_it_can_keep_a_group_waiting_with_its_own_reason(registry: Registry) -> None:
    world = World(with_plugins(["reserved"]), registry=registry).node("n", gpu=1)
    world.gang("huge", 2000, count=1)
    world.gang("one", 1)
    world.session()
    status = world.status("huge")
    assert status is not None
    assert status.verdict is not None
    assert status.verdict.code is Code.SUSPENDED
    assert list(world.placed) == ["one-0"]


def test_its_arguments_are_checked(registry: Registry) -> None:
    with pytest.raises(BadPlugin, match=r"tiers\[0\]\.plugins\[0\]\.arguments\.label: .*did you mean \"labels\""):
        registry.build(((PluginConfig("reserved", arguments={"label": "x"}),),))
    with pytest.raises(BadPlugin, match="must name at least one label"):
        registry.build(((PluginConfig("reserved", arguments={"labels": []}),),))


def test_a_plugin_with_a_taken_name_or_that_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    info = tmp_path / "bad-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[muster.plugins]\ngang = json:loads\nlost = no_such_module:X\n")
    found = built_in().with_entry_points([str(tmp_path)])
    assert found.names() == built_in().names()
    assert len(found.problems) == 2
    assert "the name is taken" in found.problems[0]
    assert "cannot be loaded" in found.problems[1]
