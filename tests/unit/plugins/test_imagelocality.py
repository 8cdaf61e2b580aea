"""Images that are on a node already pull pods there, the larger the more."""

from __future__ import annotations

import json

import pytest

from plugins.imagelocality import ImageLocality
from scheduler.actions.run import Sessions
from scheduler.dialects.core import decode_node, decode_pod
from scheduler.framework.registry import Arguments
from tests.unit.framework.world import World, shape, with_plugins

MB = 1024 * 1024


def world(**images: tuple[tuple[str, int], ...]) -> World:
    made = World(with_plugins(["gang", "predicates", "imagelocality"]))
    made.sessions = Sessions(made.config, made.registry, check=True)
    for name in ("a", "b", "c"):
        made.node(name, cpu=8, images=images.get(name, ()))
    return made


@pytest.mark.parametrize("node", ["a", "b", "c"])
def test_a_pod_goes_where_its_image_is(node: str) -> None:
    w = world(**{node: (("big:1", 2000 * MB),)})
    w.pod("p", shape(cpu=1), images=("big:1",))
    w.session()
    assert w.placed == {"p": node}


def test_pods_of_one_shape_with_other_images_go_their_own_ways() -> None:
    w = world(b=(("x:1", 900 * MB),), c=(("y:1", 900 * MB),))
    w.pod("px", shape(cpu=1), images=("x:1",))
    w.pod("py", shape(cpu=1), images=("y:1",))
    w.session()
    assert w.placed == {"px": "b", "py": "c"}


def test_scores_follow_size_and_spread_and_forget_nodes_that_are_gone() -> None:
    w = world(a=(("x:1", 600 * MB),), b=(("x:1", 600 * MB), ("y:1", 3000 * MB)))
    plugin = ImageLocality(Arguments({}))
    row = {"a": 0, "b": 1, "c": 2}
    view = type("V", (), {})()
    view.snapshot = w.take()
    plugin.on_session(view)
    assert plugin._scores(("x:1",), row).tolist() == [38, 38, 0]
    assert plugin._scores(("x:1", "y:1"), row).tolist() == [19, 69, 0]
    w.node("b", cpu=8)
    view.snapshot = w.take()
    plugin.on_session(view)
    assert plugin._scores(("x:1",), row).tolist() == [18, 0, 0]
    assert "y:1" not in plugin._where


def test_names_are_compared_with_their_tag_and_small_images_do_not_count() -> None:
    containers = [{"name": "b", "image": "host:5000/x"}, {"name": "a", "image": "y:2"}]
    spec = {"containers": containers, "initContainers": [{"name": "i", "image": "z@sha256:1"}]}
    raw = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}
    assert decode_pod(json.dumps(raw).encode(), frozenset())[0].images == ("host:5000/x:latest", "y:2", "z@sha256:1")
    images = [{"names": ["y@sha256:2", "y:2"], "sizeBytes": 50 * MB}, {"names": ["s:1"], "sizeBytes": 22 * MB}]
    node = decode_node(json.dumps({"metadata": {"name": "n"}, "status": {"images": images}}).encode())
    assert node.images == (("y:2", 50 * MB), ("y@sha256:2", 50 * MB))
