from __future__ import annotations

from typing import Any

import numpy as np

from scheduler.framework.fits import StaticFits
from scheduler.framework.hooks import Hooks
from scheduler.framework.protocols import Misfit
from scheduler.framework.registry import Configured
from scheduler.model.affinity import HostPort, LabelSelector, PodSelector, PodTerm, Requirement, SpreadTerm
from scheduler.model.nodes import HOSTNAME, NodeClass
from scheduler.model.pods import Shape, Toleration
from scheduler.model.snapshot import NodeTable
from tests.unit.framework.world import World, shape


class Curious:
    """Says no to the class "wet", and remembers what it was asked."""

    name = "curious"

    def __init__(self) -> None:
        self.asked: list[Shape] = []

    def fits(self, of: Shape, node_class: NodeClass) -> Misfit | None:
        self.asked.append(of)
        return Misfit("node(s) were wet") if node_class.label("kind") == "wet" else None


def table(*kinds: str) -> NodeTable:
    world = World()
    for number, kind in enumerate(kinds):
        world.node(f"n{number}", labels={"kind": kind})
    return world.take().table


def term(team: str) -> PodTerm:
    labels = LabelSelector((Requirement("team", "In", (team,)),))
    return PodTerm(PodSelector(namespaces=("ns",), labels=labels), HOSTNAME)


def made(*kinds: str) -> tuple[Curious, StaticFits]:
    plugin = Curious()
    known = StaticFits(Hooks([[Configured(plugin, 1)]]))
    known.refresh(table(*kinds), {})
    return plugin, known


def test_shapes_that_differ_in_what_they_say_about_other_pods_are_one_question() -> None:
    plugin, known = made("dry", "wet", "dry")
    rules: tuple[dict[str, Any], ...] = (
        {"anti_affinity": (term("a"),)},
        {"affinity": (term("b"),)},
        {"spread": (SpreadTerm(term("c").selector, "zone"),)},
        {"host_ports": (HostPort(80),)},
        {},
    )
    masks = [known.fit(shape(cpu=1, **rule)).mask.tolist() for rule in rules]
    assert masks == [[True, False, True]] * 5
    assert len(plugin.asked) == 2  # the two classes
    asked = plugin.asked[0]
    assert not (asked.anti_affinity or asked.affinity or asked.spread or asked.host_ports)


def test_shapes_that_differ_in_anything_else_are_asked_about_each() -> None:
    plugin, known = made("dry", "wet")
    known.fit(shape(cpu=1, anti_affinity=(term("a"),)))
    known.fit(shape(cpu=2, anti_affinity=(term("a"),)))
    known.fit(shape(cpu=1, anti_affinity=(term("a"),), tolerations=(Toleration("wet", "Exists"),)))
    assert len(plugin.asked) == 6
    assert len({one.key for one in plugin.asked}) == 3


def test_what_is_known_outlives_the_shape_that_it_was_asked_for() -> None:
    plugin, known = made("dry", "wet")
    first = shape(cpu=1, anti_affinity=(term("gone"),))
    known.fit(first)
    for number in range(600):
        known.fit(shape(cpu=2, anti_affinity=(term(f"t{number}"),)))
    kept = shape(cpu=1, anti_affinity=(term("kept"),))
    known.fit(kept)
    known.refresh(table("dry", "wet"), {kept.key: kept})
    plugin.asked.clear()
    assert known.fit(kept).mask.tolist() == [True, False]
    assert known.fit(first).mask.tolist() == [True, False]
    assert not plugin.asked
    assert np.array_equal(known.fit(shape(cpu=2)).mask, [True, False])
    assert len(plugin.asked) == 2
