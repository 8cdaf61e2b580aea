"""What a pod asks for and is charged with, as Kubernetes sums it."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.dialects.core import decode_pod
from scheduler.model.resources import Amounts

Json = dict[str, Any]
NAMES = frozenset({"muster"})


def box(name: str = "main", sidecar: bool = False, **requests: str) -> Json:
    container: Json = {"name": name, "image": "x", "resources": {"requests": dotted(requests)}}
    return container | ({"restartPolicy": "Always"} if sidecar else {})


def dotted(requests: dict[str, str]) -> dict[str, str]:
    return {("example.com/gpu" if name == "gpu" else name): value for name, value in requests.items()}


def pod(
    *containers: Json, init: tuple[Json, ...] = (), node: str = "", status: Json | None = None, **spec: Any
) -> Json:
    full: Json = {"containers": list(containers), "initContainers": list(init), "schedulerName": "muster"} | spec
    if node:
        full["nodeName"] = node
    return {"metadata": {"name": "p", "namespace": "a", "uid": "u"}, "spec": full, "status": status or {}}


def asked(obj: Json) -> Amounts:
    return decode_pod(json.dumps(obj).encode(), NAMES)[1].requests


def charge(obj: Json) -> Amounts:
    """What its node is charged with."""
    decoded, shape = decode_pod(json.dumps(obj).encode(), NAMES)
    return shape.requests if decoded.charge is None else decoded.charge


def test_fit_1_one_container_asks_for_what_it_says() -> None:
    assert asked(pod(box(cpu="1"))) == (("cpu", 1000),)
    assert asked(pod(box(cpu="1001m"))) == (("cpu", 1001),)


def problems(obj: Json) -> list[tuple[str, str]]:
    decoded, _ = decode_pod(json.dumps(obj).encode(), NAMES)
    return [(problem.field, problem.message) for problem in decoded.problems]


def test_an_amount_beyond_what_is_counted_is_named_as_written() -> None:
    most, cores = "more than 64Pi, the most that is counted", "more than 72057594037927936m, the most that is counted"
    assert problems(pod(box(memory="64Pi", cpu="72057594037927936m", gpu="64Pi"))) == []
    assert problems(pod(box(memory="65Pi", cpu="80T", gpu="1E"))) == [
        ("spec.containers[0].resources.requests[memory]", f"'65Pi' is {most}"),
        ("spec.containers[0].resources.requests[cpu]", f"'80T' is {cores}"),
        ("spec.containers[0].resources.requests[example.com/gpu]", f"'1E' is {most}"),
    ]
    assert asked(pod(box(memory="65Pi"))) == (("memory", 2**56),)


def test_amounts_that_are_beyond_what_is_counted_in_sum_are_named_once() -> None:
    two = pod(box("a", memory="40Pi", cpu="1"), box("b", memory="40Pi"))
    assert problems(two) == [("spec", "asks in sum for memory of more than 64Pi, the most that is counted")]
    assert len(problems(pod(box("a", memory="65Pi"), box("b", memory="1Gi")))) == 1


def test_fit_2_an_init_container_counts_where_it_is_larger_than_the_sum() -> None:
    assert asked(pod(box("a", cpu="1"), box("b", cpu="1"), init=(box("i", cpu="3"),))) == (("cpu", 3000),)
    assert asked(pod(box("a", cpu="2"), box("b", cpu="2"), init=(box("i", cpu="3"),))) == (("cpu", 4000),)


def test_a_sidecar_runs_beside_the_containers() -> None:
    assert asked(pod(box(cpu="1"), init=(box("s", sidecar=True, cpu="2"),))) == (("cpu", 3000),)


def test_an_init_container_needs_the_sidecars_before_it_and_not_those_after_it() -> None:
    sidecar, init = box("s", sidecar=True, cpu="2"), box("i", cpu="3")
    assert asked(pod(box(cpu="1"), init=(sidecar, init))) == (("cpu", 5000),)
    assert asked(pod(box(cpu="1"), init=(init, sidecar))) == (("cpu", 3000),)


def test_fit_4_pod_level_requests_replace_cpu_and_memory_only_and_overhead_comes_on_top() -> None:
    obj = pod(
        box("a", cpu="500m", gpu="1"),
        box("b", cpu="500m"),
        resources={"requests": {"cpu": "2"}},
        overhead={"cpu": "250m"},
    )
    assert asked(obj) == (("cpu", 2250), ("example.com/gpu", 1))


def test_absurd_requests_are_cut_so_that_a_full_node_of_them_still_adds_up() -> None:
    ((_, memory),) = asked(pod(box(memory="9000Ei")))
    assert memory > 2**50
    assert 110 * memory < 2**63


def test_pod_level_hugepages_count_and_pod_level_extended_resources_do_not() -> None:
    obj = pod(box(gpu="1"), resources={"requests": {"hugepages-2Mi": "4Mi", "example.com/gpu": "7"}})
    assert asked(obj) == (("example.com/gpu", 1), ("hugepages-2Mi", 4 * 2**20))


def test_fit_5_a_deferred_resize_is_charged_and_an_infeasible_one_is_not() -> None:
    def resizing(reason: str) -> Json:
        return pod(
            box(cpu="3"),
            node="n1",
            status={
                "phase": "Running",
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                "containerStatuses": [
                    {"name": "main", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}
                ],
            },
        )

    assert charge(resizing("Deferred")) == (("cpu", 3000),)
    assert charge(resizing("Infeasible")) == (("cpu", 1000),)


def test_a_shrinking_pod_is_charged_until_the_kubelet_has_done_it() -> None:
    status = {
        "phase": "Running",
        "containerStatuses": [
            {"name": "main", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "4"}}}
        ],
    }
    assert charge(pod(box(cpu="1"), node="n1", status=status)) == (("cpu", 4000),)


def test_pod_level_status_replaces_the_sum_over_containers() -> None:
    status = {"phase": "Running", "allocatedResources": {"cpu": "5"}, "resources": {"requests": {"cpu": "6"}}}
    obj = pod(box(cpu="1"), node="n1", status=status, resources={"requests": {"cpu": "4"}})
    assert charge(obj) == (("cpu", 6000),)


def test_a_pod_that_runs_as_it_asks_has_no_charge_of_its_own() -> None:
    requests = {"cpu": "1", "memory": "1Gi"}
    status = {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "allocatedResources": requests, "resources": {"requests": requests}}],
    }
    decoded, _ = decode_pod(json.dumps(pod(box(**requests), node="n1", status=status)).encode(), NAMES)
    assert decoded.charge is None


def test_equal_amounts_in_other_words_are_no_charge_of_their_own() -> None:
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "1000m"}}]}
    decoded, _ = decode_pod(json.dumps(pod(box(cpu="1"), node="n1", status=status)).encode(), NAMES)
    assert decoded.charge is None


def test_the_status_of_a_pod_that_is_on_no_node_or_has_ended_charges_nothing() -> None:
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "9"}}]}
    for obj in (pod(box(cpu="1"), status=status), pod(box(cpu="1"), node="n1", status=status | {"phase": "Failed"})):
        assert decode_pod(json.dumps(obj).encode(), NAMES)[0].charge is None


def test_the_sum_is_rounded_up_once() -> None:
    assert asked(pod(box("a", memory="500m"), box("b", memory="500m"))) == (("memory", 1),)
    assert asked(pod(box(cpu="100u"))) == (("cpu", 1),)


def test_scores_count_a_little_for_each_container_that_says_nothing() -> None:
    def little(obj: Json) -> dict[str, int]:
        return dict(decode_pod(json.dumps(obj).encode(), NAMES)[1].unstated)

    mi = 2**20
    assert little(pod(box(cpu="1", memory="1Gi"))) == {}
    assert little(pod(box(cpu="1"), box())) == {"cpu": 100, "memory": 400 * mi}
    assert little(pod(box(cpu="0", memory="0"))) == {}
    assert little(pod(box(), init=(box(cpu="50m"),))) == {"cpu": 50, "memory": 200 * mi}
    assert little(pod(box(cpu="1"), init=(box(memory="300Mi"),))) == {}
    assert little(pod(box(), init=(box(sidecar=True),))) == {"cpu": 200, "memory": 400 * mi}
    level = {"requests": {"cpu": "2"}}
    assert little(pod(box(), box(), resources=level, overhead={"memory": "1Mi"})) == {"memory": 400 * mi}


def test_limits_do_not_count_and_zero_is_nothing() -> None:
    container = {"name": "main", "resources": {"limits": {"cpu": "8"}, "requests": {"memory": "0"}}}
    assert asked(pod(container)) == ()


def test_a_quantity_that_does_not_parse_is_named_and_the_rest_is_charged() -> None:
    obj = pod(box("a", cpu="1"), box("b", cpu="one", memory="1Gi", gpu="-1"))
    decoded, shape = decode_pod(json.dumps(obj).encode(), NAMES)
    assert shape.requests == (("cpu", 1000), ("memory", 2**30))
    assert [problem.field for problem in decoded.problems] == [
        "spec.containers[1].resources.requests[cpu]",
        "spec.containers[1].resources.requests[example.com/gpu]",
    ]


# --- against the formula, written down as it is documented ----------------------------------------------------------

_QUANTITIES = st.sampled_from(["0", "1", "250m", "1500m", "3", "1e3", "2Ki", "0.5"])
_REQUESTS = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/gpu", "hugepages-2Mi"]), _QUANTITIES)
_VALUE = {
    "0": Fraction(0),
    "1": Fraction(1),
    "250m": Fraction(1, 4),
    "1500m": Fraction(3, 2),
    "3": Fraction(3),
    "1e3": Fraction(1000),
    "2Ki": Fraction(2048),
    "0.5": Fraction(1, 2),
}


def naive(
    containers: list[dict[str, str]],
    inits: list[tuple[bool, dict[str, str]]],
    level: dict[str, str],
    overhead: dict[str, str],
) -> Amounts:
    total = []
    for name in sorted({"cpu", "memory", "example.com/gpu", "hugepages-2Mi"}):

        def of(requests: dict[str, str], name: str = name) -> Fraction:
            return _VALUE[requests.get(name, "0")]

        sidecars = [of(requests) if always else Fraction(0) for always, requests in inits]
        steady = sum(map(of, containers), Fraction(0)) + sum(sidecars, Fraction(0))
        peaks = [of(requests) + sum(sidecars[:i], Fraction(0)) for i, (_, requests) in enumerate(inits)]
        need = max([steady, *peaks])
        supported = [each for each in level if each != "example.com/gpu"]
        if supported and name in supported:
            need = of(level)
        need += of(overhead)
        scaled = need * 1000 if name == "cpu" else need
        rounded = -((-scaled.numerator) // scaled.denominator)
        if rounded:
            total.append((name, rounded))
    return tuple(total)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(_REQUESTS, min_size=1, max_size=3),
    st.lists(st.tuples(st.booleans(), _REQUESTS), max_size=4),
    _REQUESTS,
    _REQUESTS,
)
def test_requests_agree_with_the_documented_formula(
    containers: list[dict[str, str]],
    inits: list[tuple[bool, dict[str, str]]],
    level: dict[str, str],
    overhead: dict[str, str],
) -> None:
    obj = pod(
        *({"name": f"c{i}", "resources": {"requests": requests}} for i, requests in enumerate(containers)),
        init=tuple(
            {"name": f"i{i}", "resources": {"requests": requests}} | ({"restartPolicy": "Always"} if always else {})
            for i, (always, requests) in enumerate(inits)
        ),
        resources={"requests": level},
        overhead=overhead,
    )
    assert asked(obj) == naive(containers, inits, level, overhead)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(_REQUESTS, st.none() | _REQUESTS, st.none() | _REQUESTS), min_size=1, max_size=3), st.booleans()
)
def test_a_running_pods_charge_is_the_largest_of_asked_allocated_and_actuated(
    containers: list[tuple[dict[str, str], dict[str, str] | None, dict[str, str] | None]], infeasible: bool
) -> None:
    statuses = []
    for i, (_, allocated, actuated) in enumerate(containers):
        status: Json = {"name": f"c{i}"}
        if allocated:
            status["allocatedResources"] = allocated
        if actuated:
            status["resources"] = {"requests": actuated}
        statuses.append(status)
    conditions = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}] if infeasible else []
    boxes = [{"name": f"c{i}", "resources": {"requests": requests}} for i, (requests, _, _) in enumerate(containers)]
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": statuses}
    spec_if_unknown = [{} if infeasible else requests for requests, _, _ in containers]
    asked_, allocated_, actuated_ = (
        [{} if infeasible else requests for requests, _, _ in containers],
        [allocated or spec_if_unknown[i] for i, (_, allocated, _) in enumerate(containers)],
        [actuated or allocated or spec_if_unknown[i] for i, (_, allocated, actuated) in enumerate(containers)],
    )
    expected: dict[str, int] = {}
    for part in (asked_, allocated_, actuated_):
        for name, value in naive(part, [], {}, {}):
            expected[name] = max(expected.get(name, 0), value)
    assert charge(pod(*boxes, node="n1", status=status)) == tuple(sorted(expected.items()))
