"""Whatever a field of an object holds, it keeps its identity and says which field is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.dialects.base import Dialect
from scheduler.dialects.core import decode_pod, decode_priority_class
from scheduler.dialects.meta import Undecodable
from scheduler.dialects.registry import BY_NAME, DIALECTS
from scheduler.model.decisions import SetStatus
from scheduler.model.pods import Problem
from scheduler.model.quantity import MAX_AMOUNT
from scheduler.model.queues import QueueFacts
from scheduler.model.topology import TopologyFacts
from scheduler.model.verdict import Code, verdict
from tests.dialects.golden import merged

Json = dict[str, Any]
META = {"name": "g", "namespace": "a", "uid": "u", "resourceVersion": "1"}
VERSIONS = {
    "muster": "scheduling.muster.sh/v1alpha1",
    "native": "scheduling.k8s.io/v1beta1",
    "volcano": "scheduling.volcano.sh/v1beta1",
    "coscheduling": "scheduling.x-k8s.io/v1alpha1",
    "kai": "scheduling.run.ai/v2alpha2",
}
MINIMUM = {
    "muster": lambda value: {"minMember": value},
    "native": lambda value: {"schedulingPolicy": {"gang": {"minCount": value}}},
    "volcano": lambda value: {"minMember": value},
    "coscheduling": lambda value: {"minMember": value},
    "kai": lambda value: {"minMember": value},
}
PATHS = dict.fromkeys(MINIMUM, "spec.minMember") | {"native": "spec.schedulingPolicy.gang.minCount"}
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        *("minMember", "minTaskMember", "minResources", "queue", "priorityClassName", "networkTopology"),
        *("subGroupPolicy", "schedulingPolicy", "schedulingConstraints", "topology", "subGroups", "preemptible"),
        *("resourceClaims", "weight", "priority", "resources", "capability", "deserved", "guarantee", "parent"),
        *("state", "preemption", "order", "fairShare", "namespaceSelector", "minRuntime", "parentQueue"),
        *("preemptMinRuntime", "reclaimMinRuntime", "preemptibility", "topologyConstraint", "minSubGroup"),
    ]
)


def group(name: str, spec: Any, status: Any = None) -> Any:
    raw = json.dumps({"metadata": META, "spec": spec, "status": status}).encode()
    return BY_NAME[name].decode_group(raw, VERSIONS[name])


@pytest.mark.parametrize("name", sorted(VERSIONS))
@pytest.mark.parametrize("value", [-1, 2**31, 2**70, "4", 1.5, True, [4]])
def test_a_minimum_that_cannot_be_used_is_a_problem_of_its_field(name: str, value: object) -> None:
    read = group(name, MINIMUM[name](value))
    assert [problem.field for problem in read.problems] == [PATHS[name]]
    assert (read.uid, read.key, read.min_member) == ("u", f"{name}/a/g", 1)


@pytest.mark.parametrize("name", sorted(VERSIONS))
@pytest.mark.parametrize("value", [1, 4, 2**31 - 1])
def test_a_minimum_within_bounds_is_read(name: str, value: int) -> None:
    read = group(name, MINIMUM[name](value))
    assert (read.min_member, read.problems) == (value, ())


def test_a_minimum_of_zero_is_legal_in_volcano_and_kai_only_and_means_that_nobody_waits() -> None:
    for name in ("volcano", "kai"):
        assert (group(name, {"minMember": 0}).min_member, group(name, {}).min_member) == (1, 1)
        assert group(name, {"minMember": 0}).problems == ()
    for name in ("muster", "native", "coscheduling"):
        assert [problem.field for problem in group(name, MINIMUM[name](0)).problems] == [PATHS[name]]


def test_the_message_says_what_is_there() -> None:
    problem = Problem("spec.minMember", 'must be an integer, not "four"')
    assert group("volcano", {"minMember": "four"}).problems == (problem,)


@pytest.mark.parametrize("name", ["volcano", "coscheduling"])
def test_resources_beyond_what_is_counted_are_a_problem_of_their_field_with_the_value_as_written(name: str) -> None:
    read = group(name, MINIMUM[name](2) | {"minResources": {"memory": "65Pi", "cpu": "1", "example.com/gpu": "64Pi"}})
    assert read.problems == (
        Problem("spec.minResources[memory]", "'65Pi' is more than 64Pi, the most that is counted"),
    )


def test_a_queue_limit_beyond_what_is_counted_is_as_good_as_none() -> None:
    raw = json.dumps({"metadata": META, "spec": {"capability": {"memory": "100Pi"}}}).encode()
    queue = BY_NAME["volcano"].decode_queue(raw, VERSIONS["volcano"])
    assert (queue.limit, queue.problems) == ((("memory", MAX_AMOUNT),), ())


@pytest.mark.parametrize(
    ("name", "spec", "field"),
    [
        ("muster", {"topology": {"name": "t", "required": "rack"}}, "spec.topology.required"),
        ("volcano", {"networkTopology": {"highestTierAllowed": 2}}, "spec.networkTopology.highestTierAllowed"),
        ("volcano", {"networkTopology": {"highestTierName": "rack"}}, "spec.networkTopology.highestTierName"),
        (
            "native",
            {"schedulingConstraints": {"topology": [{"key": "rack"}]}},
            "spec.schedulingConstraints.topology[0].key",
        ),
    ],
)
def test_a_required_domain_knows_its_path_in_the_object(name: str, spec: Json, field: str) -> None:
    read = group(name, MINIMUM[name](2) | spec)
    assert read.topology is not None
    assert (bool(read.topology.required), read.topology.field) == (True, field)


WITH_GROUPS = [dialect for dialect in DIALECTS if any(one.role == "group" for one in dialect.resources)]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(WITH_GROUPS), st.dictionaries(FIELDS, JUNK, max_size=4) | JUNK, JUNK)
def test_no_content_of_spec_and_status_is_an_exception(dialect: Dialect, spec: Any, status: Any) -> None:
    raw = json.dumps({"metadata": META, "spec": spec, "status": status}).encode()
    read = dialect.decode_group(raw, VERSIONS[dialect.name])
    assert (read.uid, read.namespace, read.name) == ("u", "a", "g")
    assert 1 <= read.min_member < 2**31
    said = SetStatus(read.key, "u", "Pending", (("running", 1),), verdict(Code.MISCONFIGURED))
    patch = dialect.status_patch(read, said, "spec.minMember: wrong", "2026-11-01T00:00:00Z")
    assert patch is None or set(patch) == {"status"}
    if any(resource.role == "queue" for resource in dialect.resources):
        queue = dialect.decode_queue(raw, VERSIONS[dialect.name])
        assert (queue.uid, queue.name) == ("u", "g")
        assert queue.weight >= 0
        assert all(value >= -1 for part in (queue.guarantee, queue.deserved, queue.limit) for _, value in part)
        assert all(value >= 0 for _, value in queue.weights)
        facts = QueueFacts("Open", allocated=(("cpu", 1500),), decayed=(("cpu", 7),), decayed_at=1793520000.0)
        patch = dialect.queue_status_patch(queue, facts, "2026-11-01T00:00:00Z")
        assert patch is not None and set(patch) == {"status"}
        after = merged({"metadata": META, "spec": spec, "status": status}, patch)
        again = dialect.decode_queue(json.dumps(after).encode(), VERSIONS[dialect.name])
        assert dialect.queue_status_patch(again, facts, "2026-11-02T00:00:00Z") is None


WIRING = [
    (dialect, one.role) for dialect in DIALECTS for one in dialect.resources if one.role in ("topology", "hypernode")
]
WIRES = st.sampled_from(["levels", "name", "label", "labelPrefix", "widest", "nodeLabel", "alias", "tier", "tierName"])
SELECTORS = st.sampled_from(["type", "selector", "exactMatch", "regexMatch", "labelMatch", "matchLabels", "pattern"])
NESTED = st.dictionaries(WIRES | SELECTORS, JUNK | st.dictionaries(SELECTORS, JUNK, max_size=3), max_size=3)
LISTS = st.fixed_dictionaries(
    {}, optional={"levels": st.lists(NESTED, max_size=3), "members": st.lists(NESTED, max_size=3)}
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(WIRING), LISTS | st.dictionaries(WIRES, JUNK, max_size=3) | JUNK, JUNK)
def test_no_content_of_a_topology_is_an_exception(which: tuple[Dialect, str], spec: Any, status: Any) -> None:
    dialect, role = which
    decode = dialect.decode_hypernode if role == "hypernode" else dialect.decode_topology
    raw = json.dumps({"metadata": META, "spec": spec, "status": status}).encode()
    read = decode(raw, "g/v1")
    assert (read.uid, read.name, read.dialect) == ("u", "g", dialect.name)
    facts = TopologyFacts((("rack", 3),), 2, 7, (("Cycle", "spec.members[0]: odd"),))
    patch = dialect.topology_status_patch(read, facts, "2026-11-01T00:00:00Z")
    if dialect.name in ("kai", "kueue"):
        assert patch is None
        return
    assert patch is not None and set(patch) == {"status"}
    after = merged({"metadata": META, "spec": spec, "status": status}, patch)
    again = decode(json.dumps(after).encode(), "g/v1")
    assert dialect.topology_status_patch(again, facts, "2026-11-02T00:00:00Z") is None


@pytest.mark.parametrize("name", sorted(VERSIONS))
def test_an_object_without_identity_is_refused_by_what_is_known_of_it(name: str) -> None:
    for raw in (b"[]", b"{", b'{"metadata": {"name": 7}}', b'{"metadata": {"name": "g", "namespace": "a"}}'):
        with pytest.raises(Undecodable, match=r"PodGroup\.scheduling"):
            BY_NAME[name].decode_group(raw, VERSIONS[name])


@pytest.mark.parametrize("name", ["native", "coscheduling"])
def test_a_dialect_without_queues_says_so(name: str) -> None:
    with pytest.raises(Undecodable, match="has no queues"):
        BY_NAME[name].decode_queue(b"{}", VERSIONS[name])


def test_a_dialect_without_some_kind_says_so() -> None:
    for dialect in DIALECTS:
        roles = {resource.role for resource in dialect.resources}
        for role, decode in (
            ("group", dialect.decode_group),
            ("topology", dialect.decode_topology),
            ("hypernode", dialect.decode_hypernode),
        ):
            if role not in roles:
                with pytest.raises(Undecodable, match=f"{dialect.name} has no"):
                    decode(b"{}", "g/v1")


def test_a_chain_of_sub_groups_without_end_is_a_problem_and_nothing_worse() -> None:
    names = [f"s{number}" for number in range(3000)]
    chain = [{"name": name, "parent": above, "minMember": 1} for name, above in zip(names[1:], names, strict=False)]
    read = group("kai", {"subGroups": [{"name": names[0]}, *chain]})
    assert "is deeper than 8 levels" in {problem.message for problem in read.problems}
    nested: dict[str, Any] = {"name": "leaf"}
    for _ in range(200):
        nested = {"name": "n", "subGroups": [nested]}
    read = group("muster", {"subGroups": [nested]})
    assert [problem.message for problem in read.problems] == ["deeper than 8 levels"]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_a_number_beyond_those_of_the_api_is_the_fault_of_its_object(value: int) -> None:
    pod = json.dumps({"metadata": META, "spec": {"containers": [], "priority": value}}).encode()
    with pytest.raises(Undecodable, match=r"Pod a/g: .*spec.priority"):
        decode_pod(pod, frozenset())
    with pytest.raises(Undecodable, match=r"PriorityClass a/g: .*value"):
        decode_priority_class(json.dumps({"metadata": META, "value": value}).encode())
