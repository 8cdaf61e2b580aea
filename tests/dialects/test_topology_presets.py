"""The topology presets are read without a problem, and find the levels that the labels of their nodes show."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scheduler.dialects.registry import BY_NAME
from scheduler.model.topology import Topology
from tests.dialects.golden import encode
from tests.unit.framework.test_domains import domains
from tests.unit.framework.world import World

PRESETS = Path(__file__).parents[2] / "config" / "presets" / "topologies"
FILES = sorted(PRESETS.glob("*.yaml"))


def read(path: Path) -> list[Topology]:
    objects = [obj for obj in yaml.safe_load_all(path.read_text()) if obj]
    for number, obj in enumerate(objects):
        obj["metadata"]["uid"] = str(number)
    return [BY_NAME["muster"].decode_topology(encode(obj), obj["apiVersion"]) for obj in objects]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_preset_is_read_and_all_of_its_levels_are_found(path: Path) -> None:
    found = read(path)
    labels = {level.label or f"{level.prefix}0": "x" for topology in found for level in topology.levels}
    labels.pop("kubernetes.io/hostname")
    world = World().node("n1", labels=labels).node("n2", labels=labels).node("cpu")
    for topology in found:
        assert topology.problems == ()
        world.topology(topology.name, levels=topology.levels)
    seen = domains(world)
    assert seen.faults == {}
    for topology in found:
        tree = seen.trees[topology.name]
        assert len(tree.levels) == len(topology.levels)
        assert tree.unlabelled.tolist() == [True, False, False]


def test_topographs_tiers_are_as_deep_as_the_fabric() -> None:
    fabric, nvlink = read(PRESETS / "topograph.yaml")
    labels = {f"fabric.topograph.run/tier-{number}": f"s{number}" for number in range(4)}
    world = World().node("n1", labels=labels).topology(fabric.name, levels=fabric.levels)
    world.topology(nvlink.name, levels=nvlink.levels)
    levels = domains(world).trees["fabric"].levels
    assert [level.name for level in levels] == ["tier-3", "tier-2", "tier-1", "tier-0", "host"]


def test_layers_of_eks_begin_at_the_top() -> None:
    (fabric,) = read(PRESETS / "eks.yaml")
    labels = {f"topology.k8s.aws/network-node-layer-{number}": f"nn-{number}" for number in (1, 2, 3, 4)}
    levels = domains(World().node("n1", labels=labels).topology("fabric", levels=fabric.levels)).trees["fabric"].levels
    assert [level.name for level in levels] == ["layer-1", "layer-2", "layer-3", "layer-4", "host"]
