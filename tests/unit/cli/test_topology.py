"""`muster get topology` and `muster topology --plot`, on a saved snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

from scheduler.cli.main import app
from scheduler.config import SchedulerConfiguration
from scheduler.model.decisions import Decisions
from scheduler.model.nodes import HOSTNAME, Taint
from scheduler.model.topology import HyperNodeMember
from scheduler.observe.heatmap import colour
from scheduler.sim import replay
from tests.unit.framework.world import GPU, World, shape

BLOCK, RACK = "t.example/block", "t.example/rack"
SVG = "{http://www.w3.org/2000/svg}"


def fabric() -> World:
    """b1 {r1: a whole and a half node, r2: a cordoned one}, b2 {r1: a full one}, n5 has no rack, one has no GPUs."""
    world = World()
    for name, block, rack, barred in (
        ("n1", "b1", "r1", False),
        ("n2", "b1", "r1", False),
        ("n3", "b1", "r2", True),
        ("n4", "b2", "r1", False),
        ("n5", "b2", "", False),
    ):
        labels = {BLOCK: block, **({RACK: rack} if rack else {})}
        world.node(name, gpu=4, labels=labels, unschedulable=barred)
    world.node("cpu", cpu=8)
    world.running("half", "n2", shape(gpu=2))
    world.running("full", "n4", shape(gpu=4))
    return world.topology("fabric", ("block", BLOCK), ("rack", RACK), ("host", HOSTNAME), ("row", "t.example/row"))


def saved(world: World, folder: Path) -> str:
    data = replay.dump("s-1", SchedulerConfiguration(), world.take(), Decisions("s-1", 1))
    file = folder / "snapshot.zip"
    file.write_bytes(data)
    return str(file)


def muster(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_topology_is_told_as_a_tree_with_the_largest_gang_of_each_level(tmp_path: Path) -> None:
    told = muster("get", "topology", "fabric", "--snapshot", saved(fabric(), tmp_path))
    assert told.exit_code == 0, told.output
    assert (
        told.stdout
        == f"""topology fabric (muster), by {GPU}
DOMAIN         NODES   WHOLE   TOTAL   FREE
block b1       3       1       12      6
  rack b1/r1   2       1       8       6
    host n1    1       1       4       4
    host n2    1       0       4       2
  rack r2      1       0       4       0
    host n3    1       0       4       0
block b2       2       1       8       4
  rack b2/r1   1       0       4       0
    host n4    1       0       4       0
unlabelled     2       1       4       4
all nodes      6       2       20      10

LEVEL   DOMAINS   LARGEST GANG            OF {GPU.upper()}
block   2         1 whole node in b1      6 in b1
rack    3         1 whole node in b1/r1   6 in b1/r1
host    4         1 whole node in n1      4 in n1
"""
    )
    assert told.stderr == (
        "Topology fabric: spec.levels[3].label: "
        'no node has the label t.example/row of level "row" of topology "fabric"\n'
    )


@pytest.mark.parametrize("why", ["not-ready", "unreachable"])
def test_a_node_that_is_not_ready_has_nothing_free(tmp_path: Path, why: str) -> None:
    world = World().topology("fabric", ("rack", RACK))
    world.node("n1", gpu=4, labels={RACK: "r1"}, taints=(Taint(f"node.kubernetes.io/{why}", effect="NoExecute"),))
    world.node("n2", gpu=2, labels={RACK: "r2"}, taints=(Taint("nvidia.com/gpu"),))
    file = saved(world, tmp_path)
    (told,) = json.loads(muster("get", "topology", "--snapshot", file, "-o", "json").stdout)
    assert told["levels"][0]["largest"] == {"nodes": 1, "nodesIn": "r2", "units": "2", "unitsIn": "r2"}
    assert [(one["name"], one["total"], one["free"], one["whole"]) for one in told["domains"]] == [
        ("r1", "4", "0", 0),
        ("r2", "2", "2", 1),
    ]
    nodes = json.loads(muster("nodes", "--snapshot", file, "-o", "json").stdout)
    assert [(one["state"], one["free"]) for one in nodes] == [("not ready", "0"), ("ready", "2")]


def test_a_large_one_is_shown_as_far_as_it_fits(tmp_path: Path) -> None:
    world = World()
    for number in range(90):
        world.node(f"n{number:02}", gpu=1, labels={BLOCK: f"b{number // 45}", RACK: f"r{number // 3:02}"})
    file = saved(world.topology("fabric", ("block", BLOCK), ("rack", RACK), ("host", HOSTNAME)), tmp_path)
    told = muster("get", "topology", "--snapshot", file).stdout
    assert "  rack r29" in told
    assert "host n00" not in told.partition("LEVEL")[0]
    assert told.endswith("not shown: 90 of host; --level 'host'\n")
    wide = muster("get", "topology", "--snapshot", file, "--level", "block").stdout
    assert "rack r" not in wide.partition("LEVEL")[0]
    assert "not shown" not in wide
    assert "    host n89" in muster("get", "topology", "--snapshot", file, "--level", "host").stdout


def test_it_is_told_as_data(tmp_path: Path) -> None:
    file = saved(fabric(), tmp_path)
    told = json.loads(muster("get", "topology", "--snapshot", file, "-o", "json", "--level", "rack").stdout)
    assert len(told) == 1
    one = told[0]
    assert [level["name"] for level in one["levels"]] == ["block", "rack", "host"]
    assert one["levels"][1]["largest"] == {"nodes": 1, "nodesIn": "b1/r1", "units": "6", "unitsIn": "b1/r1"}
    assert one["domains"][1] == {
        "level": "block",
        "name": "b2",
        "nodes": 2,
        "whole": 1,
        "total": "8",
        "free": "4",
        "domains": [{"level": "rack", "name": "b2/r1", "nodes": 1, "whole": 0, "total": "4", "free": "0"}],
    }
    assert one["unlabelled"] == {"nodes": 2, "whole": 1, "total": "4", "free": "4"}
    assert [fault["reason"] for fault in one["faults"]] == ["LevelNotFound"]
    assert muster("get", "topology", "--snapshot", file, "-o", "name").stdout == "fabric\n"


def test_another_resource_may_be_counted(tmp_path: Path) -> None:
    file = saved(fabric(), tmp_path)
    gpus = muster("get", "topology", "--snapshot", file, "--resource", "gpu").stdout
    assert gpus.startswith(f"topology fabric (muster), by {GPU}\n")
    told = muster("get", "topology", "--snapshot", file, "--resource", "cpu").stdout
    assert told.startswith("topology fabric (muster), by cpu\n")
    assert "all nodes      6       5       328     264" in told


def test_a_hyper_node_is_shown_once_at_its_own_tier(tmp_path: Path) -> None:
    world = World().nodes(3, gpu=1).hypernode("s0", 1, "n000").hypernode("s1", 1, "n001", "nowhere")
    world.hypernode("top", 3, HyperNodeMember("HyperNode", exact="s0"), "n002")
    told = muster("get", "topology", "--snapshot", saved(world, tmp_path))
    assert told.stdout.split("\n\n")[0].splitlines()[2:] == [
        "tier 4 all nodes   3       3       3       3",
        "    tier 1 s1      1       1       1       1",
        "  tier 3 top       2       2       2       2",
        "    tier 1 s0      1       1       1       1",
        "unlabelled         1       1       1       1",
        "all nodes          3       3       3       3",
    ]
    assert told.stderr == "HyperNode s1: spec.members[1].selector.exactMatch.name: there is no node nowhere\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["get", "topology", "fabrik"], 3, 'there is no topology fabrik; did you mean "fabric"?'),
        (["get", "topology", "--level", "rak"], 3, 'topology fabric has no level rak; did you mean "rack"?'),
        (
            ["get", "topology", "--resource", "a.com/gpu"],
            3,
            f'no node has the resource a.com/gpu; did you mean "{GPU}"?',
        ),
        (["topology", "--plot", "x.jpg"], 2, "x.jpg: must end in .svg or .png"),
        (["topology", "fabrik", "--plot", "x.svg"], 3, 'there is no topology fabrik; did you mean "fabric"?'),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    told = muster(*arguments, "--snapshot", saved(fabric(), tmp_path))
    assert (told.exit_code, told.stderr) == (code, f"error: {message}\n")


def test_without_any_topology_nothing_is_found_and_nothing_drawn(tmp_path: Path) -> None:
    file = saved(World().node("a"), tmp_path)
    told = muster("get", "topology", "--snapshot", file)
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "no topology found\n")
    assert muster("topology", "--snapshot", file, "--plot", str(tmp_path / "x.svg")).exit_code == 3


def test_one_of_several_must_be_named_to_be_drawn(tmp_path: Path) -> None:
    file = saved(fabric().topology("other", ("rack", RACK)), tmp_path)
    told = muster("topology", "--snapshot", file, "--plot", str(tmp_path / "x.svg"))
    assert (told.exit_code, told.stderr) == (2, "error: which topology? There are fabric, other\n")


def test_options_of_a_topology_are_refused_elsewhere() -> None:
    told = muster("get", "nodes", "--level", "rack")
    assert told.exit_code == 2
    assert "--level is for `get topology`" in told.stderr


def test_the_picture_has_a_square_for_every_node_in_the_box_of_its_domain(tmp_path: Path) -> None:
    file = saved(fabric(), tmp_path)
    assert muster("topology", "--snapshot", file, "--plot", str(tmp_path / "x.svg")).exit_code == 0
    root = ElementTree.parse(tmp_path / "x.svg").getroot()
    boxes = {(box.findtext(f"{SVG}title") or ""): box.attrib for box in root.iter(f"{SVG}rect")}
    fills = {title.partition(":")[0]: box["fill"] for title, box in boxes.items() if " free" in title}
    assert fills == {
        "n1": colour(4, 4, barred=False),
        "n2": colour(4, 2, barred=False),
        "n3": colour(4, 0, barred=True),
        "n4": colour(4, 0, barred=False),
        "n5": colour(4, 4, barred=False),
        "cpu": colour(0, 0, barred=False),
    }
    for node, domains in (("n1", ["b1", "b1/r1"]), ("n5", ["b2", "b2, unlabelled"]), ("cpu", ["unlabelled"])):
        inner = next(box for title, box in boxes.items() if title.startswith(f"{node}: "))
        for domain in domains:
            outer = boxes[domain]
            for place, size in (("x", "width"), ("y", "height")):
                assert float(outer[place]) <= float(inner[place])
                assert float(inner[place]) + float(inner[size]) <= float(outer[place]) + float(outer[size])


def test_the_png_is_the_same_picture(tmp_path: Path) -> None:
    file = saved(fabric(), tmp_path)
    for name in ("x.svg", "x.png"):
        assert muster("topology", "--snapshot", file, "--plot", str(tmp_path / name)).exit_code == 0
    root = ElementTree.parse(tmp_path / "x.svg").getroot()
    image = Image.open(tmp_path / "x.png")
    assert image.size == (2 * int(root.attrib["width"]), 2 * int(root.attrib["height"]))
    for box in root.iter(f"{SVG}rect"):
        if " free" in (box.findtext(f"{SVG}title") or ""):
            middle = (2 * int(float(box.attrib["x"]) + 6), 2 * int(float(box.attrib["y"]) + 6))
            assert "#{:02x}{:02x}{:02x}".format(*image.getpixel(middle)) == box.attrib["fill"]
