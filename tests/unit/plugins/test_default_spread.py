"""Constraints for pods that state none, by configuration: over the pods of the same controller, and only as scores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugins.spreading import Spreading, SpreadingByDefault, spreading
from scheduler.config import PluginConfig
from scheduler.framework.registry import Arguments, BadPlugin
from scheduler.model.pods import Pod, Shape
from tests.unit.framework.world import World, shape, with_plugins

ZONE = "topology.kubernetes.io/zone"
SMALL = shape(cpu=1)


def world(*constraints: str) -> World:
    arguments = {"defaultConstraints": list(constraints)} if constraints else {}
    made = World(with_plugins(["predicates", PluginConfig("spreading", arguments=arguments), "gang"]))
    for number in range(4):
        made.node(f"n{number}", cpu=16, labels={ZONE: "ab"[number // 2]})
    return made


def of(w: World, owner: str, name: str, node: str = "", *, kind: str = "ReplicaSet", what: Shape = SMALL) -> Pod:
    where = {"node": node, "phase": "Running", "started": True} if node else {}
    return w.pod(name, what, owner_kind=kind, owner_uid=owner, owner_name=owner, **where)


def test_a_pod_goes_away_from_those_of_its_controller() -> None:
    w = world("system")
    for number, node in enumerate(("n0", "n0", "n1", "n2")):
        of(w, "rs", f"runs-{number}", node)
    of(w, "rs", "new")
    w.session()
    assert w.placed == {"new": "n3"}


def test_pods_of_one_decision_and_of_others_in_a_session_count() -> None:
    w = world("system")
    for number in range(3):
        of(w, "rs", f"a-{number}")
    of(w, "rs", "b", what=shape(cpu=2))
    w.session()
    assert sorted(w.placed.values()) == ["n0", "n1", "n2", "n3"]


@pytest.mark.parametrize(("owner", "kind"), [("other", "ReplicaSet"), ("rs", "Job"), ("", "")])
def test_others_are_packed_as_before(owner: str, kind: str) -> None:
    w = world("system")
    of(w, "rs", "runs", "n0")
    of(w, owner, "new", kind=kind)
    w.session()
    packed = world()
    of(packed, "rs", "runs", "n0")
    of(packed, owner, "new", kind=kind)
    packed.session()
    assert w.placed == packed.placed


def test_it_is_only_a_wish() -> None:
    w = world("kubernetes.io/hostname=1")
    for number in range(1, 4):
        w.running(f"hog-{number}", f"n{number}", shape(cpu=16))
    for number in range(3):
        of(w, "rs", f"a-{number}")
    w.session()
    assert set(w.placed.values()) == {"n0"} and len(w.placed) == 3


def test_a_pod_that_is_being_deleted_does_not_count() -> None:
    w = world("kubernetes.io/hostname=1")
    for number in range(3):
        of(w, "rs", f"runs-{number}", f"n{number}")
    w.set_pod(replace(of(w, "rs", "going", "n3"), deleting=True))
    of(w, "rs", "new")
    w.session()
    assert w.placed == {"new": "n3"}


def test_without_the_argument_nobody_counts() -> None:
    assert type(spreading(Arguments({}))) is Spreading
    assert isinstance(spreading(Arguments({"defaultConstraints": ["system"]})), SpreadingByDefault)


@pytest.mark.parametrize("texts", [["none"], ["zone=0"], ["zone=x"], ["=1"], ["system", "zone=1"], ["a=1", "a=2"]])
def test_what_cannot_be_used_is_refused(texts: list[str]) -> None:
    with pytest.raises(BadPlugin, match="defaultConstraints"):
        spreading(Arguments({"defaultConstraints": texts}))
