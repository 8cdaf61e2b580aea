"""Host ports, affinity, anti-affinity and spread: against pods that run, and inside one decision."""

from __future__ import annotations

import pytest

from scheduler.actions.run import Sessions
from scheduler.cluster import feed
from scheduler.framework.session import THOROUGH
from scheduler.model.affinity import (
    HostPort,
    LabelSelector,
    PodSelector,
    PodTerm,
    Requirement,
    SpreadTerm,
    WeightedPodTerm,
)
from scheduler.model.nodes import HOSTNAME
from scheduler.model.pods import Shape
from scheduler.model.verdict import Code
from tests.unit.framework.world import World, shape, with_plugins

ZONE = "zone"


def app(*values: str, living: bool = False) -> PodSelector:
    return PodSelector(("ns",), None, LabelSelector((Requirement("app", "In", values),)), living)


def labelled(value: str) -> tuple[tuple[str, str], ...]:
    return (("app", value),)


def near(value: str, key: str = ZONE) -> Shape:
    return shape(cpu=1, affinity=(PodTerm(app(value), key),))


def away(value: str, key: str = HOSTNAME) -> Shape:
    return shape(cpu=1, anti_affinity=(PodTerm(app(value), key),))


def evenly(value: str, key: str = ZONE, **fields: object) -> Shape:
    values = {"honor_affinity": False, **fields}
    return shape(cpu=1, spread=(SpreadTerm(app(value, living=True), key, **values),))  # type: ignore[arg-type]


def world() -> World:
    """Zones: n1, n2 in a; n3 in b; n4 has no zone."""
    made = World()
    made.sessions = Sessions(made.config, made.registry, check=True)
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "")):
        made.node(name, cpu=16, labels={ZONE: zone} if zone else {})
    return made


def nodes(w: World) -> dict[str, str]:
    return {one.pod: one.node for place in w.places for one in place.assignments}


def reasons(w: World, name: str) -> dict[str, int]:
    assert w.result is not None
    return dict(w.result.verdicts[f"pod/ns/uid-{name}"].nodes)


def feasible(w: World, of: Shape, **fields: object) -> set[str]:
    """The nodes on which one more pod could go: found by asking for each alone."""
    found = set()
    for name in ("n1", "n2", "n3", "n4"):
        one = Shape(**{**{f: getattr(of, f) for f in Shape.__slots__}, "node_selector": ((HOSTNAME, name),)})
        one = Shape(**{**{f: getattr(one, f) for f in Shape.__slots__}, "key": repr(one)})
        w.pod("probe", one, **fields)
        w.session()
        if "probe" in nodes(w):
            found.add(name)
        w.drop_pod("probe")
    w.session()
    return found


def test_the_first_of_a_kind_goes_anywhere_that_has_the_label() -> None:
    assert feasible(world(), near("w"), labels=labelled("w")) == {"n1", "n2", "n3"}
    assert feasible(world(), near("w"), labels=labelled("other")) == set()


def test_affinity_follows_what_runs() -> None:
    w = world()
    w.running("db", "n1", labels=labelled("db"))
    assert feasible(w, near("db")) == {"n1", "n2"}


def test_anti_affinity_is_symmetric() -> None:
    w = world()
    w.running("lonely", "n1", away("x", ZONE))
    assert feasible(w, shape(cpu=1), labels=labelled("x")) == {"n3", "n4"}
    assert feasible(w, shape(cpu=1), labels=labelled("y")) == {"n1", "n2", "n3", "n4"}
    w.running("x", "n3", labels=labelled("x"))
    assert feasible(w, away("x", ZONE)) == {"n1", "n2", "n4"}


def test_a_term_over_namespaces_by_their_labels() -> None:
    w = world()
    w._queue.append(feed.NamespaceSet("t2", labels=(("team", "ml"),)))
    w.running("db", "n3", namespace="t2", labels=labelled("db"))
    team = LabelSelector((Requirement("team", "In", ("ml",)),))
    term = PodTerm(PodSelector((), team, LabelSelector((Requirement("app", "In", ("db",)),))), ZONE)
    assert feasible(w, shape(cpu=1, affinity=(term,))) == {"n3"}
    assert feasible(w, near("db")) == set()
    w._queue.append(feed.NamespaceSet("t2", labels=(("team", "web"),)))
    assert feasible(w, shape(cpu=1, affinity=(term,))) == set()


def test_ports_conflict_by_protocol_number_and_address() -> None:
    w = world()
    w.running("dns", "n1", shape(host_ports=(HostPort(53),)))
    w.running("web", "n2", shape(host_ports=(HostPort(53, ip="10.0.0.1"),)))
    everywhere = {"n1", "n2", "n3", "n4"}
    assert feasible(w, shape(host_ports=(HostPort(53, "UDP"),))) == everywhere
    assert feasible(w, shape(host_ports=(HostPort(53, ip="10.0.0.2"),))) == everywhere - {"n1"}
    assert feasible(w, shape(host_ports=(HostPort(53),))) == {"n3", "n4"}


def test_spread_counts_what_runs() -> None:
    w = world()
    for number, node in enumerate(("n1", "n1", "n3")):
        w.running(f"r{number}", node, labels=labelled("w"))
    assert feasible(w, evenly("w"), labels=labelled("w")) == {"n3"}
    assert feasible(w, evenly("w", max_skew=2), labels=labelled("w")) == {"n1", "n2", "n3"} - {"n1", "n2"} | {
        "n1",
        "n2",
    }
    assert feasible(w, evenly("w", min_domains=3), labels=labelled("w")) == set()


def test_members_that_claim_one_port_are_on_nodes_of_their_own() -> None:
    w = world()
    w.gang("g", 4, of=shape(cpu=1, host_ports=(HostPort(80),)))
    w.session()
    assert sorted(nodes(w).values()) == ["n1", "n2", "n3", "n4"]
    w = world()
    w.gang("g", 5, of=shape(cpu=1, host_ports=(HostPort(80),)))
    w.session()
    assert nodes(w) == {}
    verdict = w.verdict("g")
    assert verdict is not None and verdict.permanent


def test_a_gang_with_mutual_anti_affinity_needs_as_many_nodes() -> None:
    w = world()
    w.gang("g", 4, of=away("w"), pod={"labels": labelled("w")})
    w.session()
    assert sorted(nodes(w).values()) == ["n1", "n2", "n3", "n4"]


def test_single_pods_with_mutual_anti_affinity_are_placed_as_far_as_they_go() -> None:
    w = world()
    for number in range(6):
        w.pod(f"p{number}", away("w"), labels=labelled("w"))
    w.session()
    assert sorted(nodes(w).values()) == ["n1", "n2", "n3", "n4"]
    waiting = [name for name in (f"p{number}" for number in range(6)) if name not in nodes(w)]
    assert reasons(w, waiting[0]) == {"node(s) didn't match pod anti-affinity rules": 4}


def test_a_gang_that_wants_to_be_together_is_in_one_zone() -> None:
    w = world()
    w.running("hog", "n3", shape(cpu=15))
    w.gang("g", 4, of=near("w"), pod={"labels": labelled("w")})
    w.session()
    assert set(nodes(w).values()) <= {"n1", "n2"} and len(nodes(w)) == 4


def test_followers_and_what_they_follow_start_in_one_decision() -> None:
    w = world()
    group = w.group("g", 3)
    w.pod("db", shape(cpu=16), group=group.key, labels=labelled("db"))
    w.pod("f1", near("db"), group=group.key)
    w.pod("f2", near("db"), group=group.key)
    w.session()
    placed = nodes(w)
    zones = {"n1": "a", "n2": "a", "n3": "b"}
    assert len(placed) == 3
    assert len({zones[node] for node in placed.values()}) == 1


def test_a_gang_spreads_over_its_own_members() -> None:
    w = world()
    w.gang("g", 5, of=evenly("w"), pod={"labels": labelled("w")})
    w.session()
    zones = [{"n1": "a", "n2": "a", "n3": "b"}[node] for node in nodes(w).values()]
    assert sorted((zones.count("a"), zones.count("b"))) == [2, 3]


def test_what_a_session_placed_before_counts() -> None:
    w = world()
    w.pod("first", away("w", ZONE), labels=labelled("w"), created=1.0)
    w.pod("second", away("w", ZONE), labels=labelled("w"), created=2.0, priority=-1)
    w.pod("third", shape(cpu=2), labels=labelled("w"), created=3.0, priority=-2)
    w.session()
    placed = nodes(w)
    zones = {"n1": "a", "n2": "a", "n3": "b", "n4": "none"}
    assert len({zones[placed[name]] for name in ("first", "second", "third")}) == 3


def test_preferences_pull_and_push() -> None:
    w = world()
    w.running("db", "n3", labels=labelled("db"))
    like, dislike = (
        shape(cpu=1, preferred_pods=(WeightedPodTerm(weight, PodTerm(app("db"), ZONE)),)) for weight in (9, -9)
    )
    w.pod("fan", like)
    w.pod("foe", dislike)
    w.session()
    assert nodes(w)["fan"] == "n3"
    assert nodes(w)["foe"] != "n3"


@pytest.mark.parametrize("key", [HOSTNAME, ZONE])
def test_members_that_prefer_to_be_apart_are_laid_out_evenly(key: str) -> None:
    w = world()
    wish = shape(cpu=1, preferred_pods=(WeightedPodTerm(-9, PodTerm(app("w"), key)),))
    for number in range(4):
        w.pod(f"p{number}", wish, labels=labelled("w"))
    w.session()
    used = list(nodes(w).values())
    assert len(used) == 4
    if key == HOSTNAME:
        assert sorted(used) == ["n1", "n2", "n3", "n4"]
    else:
        assert sum(node == "n3" for node in used) >= 1


def test_a_soft_constraint_is_kept_where_it_costs_nothing_and_dropped_where_it_would() -> None:
    w = world()
    for number in range(4):
        w.pod(f"p{number}", evenly("w", hard=False), labels=labelled("w"))
    w.session()
    zones = [{"n1": "a", "n2": "a", "n3": "b"}.get(node, "") for node in nodes(w).values()]
    assert (zones.count("a"), zones.count("b")) == (2, 2)
    w = world()
    w.running("hog", "n3", shape(cpu=16))
    for number in range(4):
        w.pod(f"p{number}", evenly("w", hard=False), labels=labelled("w"))
    w.session()
    assert len(nodes(w)) == 4


def test_a_label_that_no_node_has_is_never_fulfilled() -> None:
    w = world()
    w.pod("p", near("w", "nowhere"), labels=labelled("w"))
    w.session()
    assert reasons(w, "p") == {"node(s) didn't match pod affinity rules": 4}
    assert w.result is not None
    (verdict,) = w.result.verdicts.values()
    assert (verdict.code, verdict.permanent) == (Code.RESOURCES, True)


def test_following_somebody_who_is_not_there_may_still_come_true() -> None:
    w = world()
    w.pod("p", near("db"))
    w.session()
    assert w.result is not None
    (verdict,) = w.result.verdicts.values()
    assert not verdict.permanent
    w.running("db", "n3", labels=labelled("db"))
    w.session()
    assert nodes(w) == {"p": "n3"}


@pytest.mark.parametrize(
    ("of", "field"),
    [
        (shape(host_ports=(HostPort(80),)), "hostPort"),
        (near("w"), "spec.affinity"),
        (away("w"), "spec.affinity"),
        (evenly("w"), "spec.topologySpreadConstraints"),
        (evenly("w", hard=False), ""),
    ],
)
def test_a_rule_that_no_configured_plugin_keeps_is_not_ignored(of: Shape, field: str) -> None:
    w = World(with_plugins(["gang", "predicates", "binpack"])).node("n", cpu=8)
    w.pod("p", of)
    w.session()
    assert w.result is not None
    if not field:
        assert w.placed == {"p": "n"}
        return
    (verdict,) = w.result.verdicts.values()
    assert verdict.code is Code.BAD_CONSTRAINTS
    assert field in str(verdict.fact("field"))


def test_the_reason_names_the_rule_and_not_amounts_that_are_there() -> None:
    w = world()
    w.running("dns", "n1", shape(host_ports=(HostPort(53),)))
    w.gang("g", 4, of=shape(cpu=1, host_ports=(HostPort(53),)))
    w.session()
    verdict = w.verdict("g")
    assert verdict is not None and not verdict.permanent
    assert verdict.fact("message") == "there is room, but not with the requested host ports"
    assert (verdict.fact("placeable"), verdict.fact("free"), verdict.fact("short")) == (3, None, None)
    assert dict(verdict.nodes) == {"node(s) didn't have free ports for the requested pod ports": 4}


def test_the_reason_of_a_gang_that_no_cluster_of_this_size_holds_names_the_rule() -> None:
    w = world()
    w.gang("g", 5, of=away("w"), pod={"labels": labelled("w")})
    w.session()
    verdict = w.verdict("g")
    assert verdict is not None and verdict.permanent
    assert verdict.fact("message") == "an empty cluster has room, but not with pod anti-affinity rules"
    assert verdict.fact("placeable") == 4


def test_a_gang_that_lacks_an_amount_says_so_although_it_has_rules() -> None:
    w = world()
    w.running("hog", "n3", shape(cpu=16))
    w.gang("g", 3, of=shape(cpu=12, anti_affinity=(PodTerm(app("w"), HOSTNAME),)), pod={"labels": labelled("w")})
    w.gang("h", 2, of=shape(cpu=12), created=1.0)
    w.session()
    verdict = w.verdict("g")
    assert verdict is not None and verdict.code is Code.RESOURCES
    assert verdict.fact("message") is None
    assert dict(verdict.nodes) == {"Insufficient cpu": 4}


def test_many_groups_that_wait_for_rules_all_get_a_reason_and_few_of_them_a_search_for_more() -> None:
    w = world()
    w.running("lone", "n1", away("w"))
    for number in range(40):
        rules = shape(cpu=1, memory=1 + number, anti_affinity=(PodTerm(app("w", f"v{number}"), HOSTNAME),))
        w.gang(f"g{number}", 5 + number % 5, of=rules, pod={"labels": labelled("w")})
    w.session()
    assert w.result is not None
    verdicts = list(w.result.verdicts.values())
    assert len(verdicts) == 40
    assert all("pod anti-affinity rules" in str(one.fact("message")) for one in verdicts)
    searched = sum(one.fact("placeable") is not None for one in verdicts)
    assert 0 < searched <= THOROUGH
