"""The figures at /metrics, read back in the text format."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import scheduler
from scheduler.model.queues import UNLIMITED, Queue, QueueFacts
from scheduler.observe.metrics import (
    _ALIASES,
    _COUNTERS,
    _HISTOGRAMS,
    QUEUES_SHOWN,
    UNDECLARED,
    Metrics,
    resource_of,
)

GPU = "example.com/gpu"


@dataclass
class Done:
    seconds: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    overcommitted: int = 0


@dataclass
class Counters:
    events: int = 5
    lists: int = 1
    watches: int = 3
    failures: int = 2


@dataclass
class Watch:
    resource: str = "pods"
    objects: int = 10
    stale: float = 1.5
    bad: int = 1
    counters: Counters = field(default_factory=Counters)


def read(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found[(sample.name, tuple(sorted(sample.labels.items())))] = sample.value
    return found


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return read(metrics).get((name, tuple(sorted(labels.items()))))


def test_counters_are_found_under_their_full_names_with_their_labels():
    metrics = Metrics()
    metrics.count("binds")
    metrics.count("binds", 2)
    metrics.count("bind_failures", cause="NodeGone")
    metrics.count("writes", kind="status", result="done")
    assert value(metrics, "muster_binds_total") == 3
    assert value(metrics, "muster_bind_failures_total", cause="NodeGone") == 1
    assert value(metrics, "muster_writes_total", kind="status", result="done") == 1


def test_the_figures_of_a_session_are_durations_and_counters():
    metrics = Metrics()
    metrics.session(
        Done(
            {"session": 0.2, "allocate": 0.1},
            {
                'groups_placed{queue="research"}': 3.0,
                'plugin_failures{hook="filter",plugin="mine"}': 1.0,
                "session_failures": 1.0,
            },
        )
    )
    assert value(metrics, "muster_session_duration_seconds_count") == 1
    assert value(metrics, "muster_session_duration_seconds_sum") == pytest.approx(0.2)
    assert value(metrics, "muster_action_duration_seconds_sum", action="allocate") == pytest.approx(0.1)
    assert value(metrics, "muster_pod_group_schedule_attempts_total", result="scheduled", queue="research") == 3
    assert value(metrics, "muster_plugin_failures_total", plugin="mine", hook="filter") == 1
    assert value(metrics, "muster_session_failures_total") == 1


def test_every_declared_figure_is_counted_somewhere():
    said: set[str] = set()
    for path in Path(scheduler.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if path.name != "metrics.py":
                said |= {str(node.value)} if isinstance(node, ast.Constant) else set()
            elif isinstance(node, ast.Call):  # where it is declared, only a call counts
                said |= {str(one.value) for one in node.args if isinstance(one, ast.Constant)}
    told = {_ALIASES.get(name, name).removesuffix("_total") for name in said}
    assert {*_COUNTERS, *_HISTOGRAMS} <= told


def test_what_an_alert_sees_grow_is_there_before_it_grows():
    rules = (Path(scheduler.__file__).parents[1] / "config" / "prometheus" / "rules.yaml").read_text()
    grown = {f"muster_{name}" for name in re.findall(r"expr: increase\(muster_(\w+)\[", rules)}
    assert "muster_invariant_violations_total" in grown
    there = {
        sample.name
        for family in text_string_to_metric_families(Metrics().render().decode())
        for sample in family.samples
    }
    assert grown - there == set()


def test_a_name_that_ends_in_total_is_not_doubled():
    metrics = Metrics()
    metrics.count("invariant_violations_total", 2, invariant="nodes")
    assert value(metrics, "muster_invariant_violations_total", invariant="nodes") == 2


def test_a_plugin_may_count_what_it_likes():
    metrics = Metrics()
    metrics.session(Done({}, {'my_cache_hits{level="rack"}': 4.0}))
    metrics.count("my_cache_hits", level="block")
    assert value(metrics, "muster_my_cache_hits_total", level="rack") == 4
    assert value(metrics, "muster_my_cache_hits_total", level="block") == 1


def test_figures_that_do_not_fit_are_counted_and_hurt_nobody():
    metrics = Metrics()
    metrics.count("binds", wrong="label")
    metrics.seconds("nobody_knows_this", 1.0)
    metrics.seconds("bind_request_seconds", 1.0, wrong="label")
    metrics.session(Done({}, {"not a name": 1.0}))
    metrics.count("also not a name")
    assert value(metrics, "muster_metric_misfits_total") == 5
    assert value(metrics, "muster_binds_total") == 0


def test_how_many_nodes_are_overcommitted_is_what_the_last_session_saw():
    metrics = Metrics()
    metrics.session(Done(overcommitted=2))
    assert value(metrics, "muster_overcommitted_nodes") == 2
    metrics.session(Done())
    assert value(metrics, "muster_overcommitted_nodes") == 0


def test_the_number_of_counters_that_others_add_is_bounded():
    metrics = Metrics()
    for number in range(UNDECLARED + 10):
        metrics.count(f"mine_{number}")
    assert value(metrics, "muster_metric_misfits_total") == 10
    assert value(metrics, f"muster_mine_{UNDECLARED - 1}_total") == 1
    assert value(metrics, f"muster_mine_{UNDECLARED}_total") is None


def test_durations_of_the_binder_and_the_writer_have_their_places():
    metrics = Metrics()
    metrics.seconds("bind_request_seconds", 0.3, phase="Bound")
    metrics.seconds("handover_seconds", 0.02)
    metrics.seconds("pod_group_wait_seconds", 12.0, queue="research")
    assert value(metrics, "muster_bind_duration_seconds_count", phase="Bound") == 1
    assert value(metrics, "muster_handover_duration_seconds_sum") == pytest.approx(0.02)
    assert value(metrics, "muster_pod_group_wait_seconds_bucket", queue="research", le="15.0") == 1


def test_requests_are_counted_by_what_they_are_about_and_never_by_name():
    metrics = Metrics()
    metrics.on_request("POST", "/api/v1/namespaces/ns/pods/p1/binding", 201, 0.004)
    metrics.on_request("POST", "/api/v1/namespaces/ns/pods/p2/binding", 0, 15.0)
    metrics.on_request("WATCH", "/api/v1/pods", 200, 600.0)
    assert value(metrics, "muster_api_requests_total", method="POST", resource="pods/binding", code="201") == 1
    assert value(metrics, "muster_api_requests_total", method="POST", resource="pods/binding", code="0") == 1
    assert value(metrics, "muster_api_request_duration_seconds_count", method="POST", resource="pods/binding") == 2
    assert value(metrics, "muster_api_request_duration_seconds_count", method="WATCH", resource="pods") is None
    assert b"p1" not in metrics.render()


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/pods", "pods"),
        ("/api/v1/namespaces/ns/pods/p/status", "pods/status"),
        ("/api/v1/namespaces/ns", "namespaces"),
        ("/apis/coordination.k8s.io/v1/namespaces/n/leases/muster", "leases"),
        ("/apis", "discovery"),
        ("/apis/batch/v1", "discovery"),
    ],
)
def test_a_path_is_about_a_resource(path: str, resource: str):
    assert resource_of(path) == resource


def test_gauges_show_what_there_is_now_and_forget_what_is_gone():
    metrics = Metrics()
    metrics.observe(
        cache={"pods": 7},
        watches=[Watch()],
        backlog={"status": 2},
        bind_depth=3,
        open_requests=1,
        assumed=4,
        pending={("research", "Resources"): 2, ("", "Gated"): 1},
    )
    assert value(metrics, "muster_cache_objects", resource="pods") == 7
    assert value(metrics, "muster_write_queue_depth", kind="status") == 2
    assert value(metrics, "muster_bind_queue_depth") == 3
    assert value(metrics, "muster_bind_requests_open") == 1
    assert value(metrics, "muster_assumed_pods") == 4
    assert value(metrics, "muster_pending_pod_groups", queue="research", reason="Resources") == 2
    assert value(metrics, "muster_cache_events_total", resource="pods") == 5
    assert value(metrics, "muster_watch_restarts_total", resource="pods") == 2
    assert value(metrics, "muster_cache_age_seconds", resource="pods") == 1.5
    metrics.observe(pending={("", "Gated"): 1})
    assert value(metrics, "muster_pending_pod_groups", queue="research", reason="Resources") is None
    assert value(metrics, "muster_pending_pod_groups", queue="", reason="Gated") == 1


def test_leadership_and_configuration_are_shown():
    metrics = Metrics()
    assert value(metrics, "muster_leader", component="scheduler") == 0
    metrics.leading(True)
    metrics.reload(ok=False)
    assert value(metrics, "muster_leader", component="scheduler") == 1
    assert value(Metrics("binder"), "muster_leader", component="binder") == 0
    assert value(metrics, "muster_config_valid") == 0
    assert value(metrics, "muster_config_reloads_total", result="refused") == 1
    metrics.reload(ok=True)
    assert value(metrics, "muster_config_valid") == 1


def test_two_sets_of_metrics_do_not_meet():
    first, second = Metrics(), Metrics()
    first.count("binds")
    assert value(second, "muster_binds_total") == 0


def test_queues_have_figures_in_base_units_by_resource() -> None:
    metrics = Metrics()
    queue = Queue("research", deserved=(("cpu", 4000),), limit=((GPU, 8), ("cpu", UNLIMITED)))
    facts = QueueFacts(
        "Open", allocated=(("cpu", 1500), (GPU, 6)), entitlement=((GPU, 4),), borrowed=((GPU, 2),), pending=3
    )
    metrics.observe(queues=[(queue, facts)])
    text = metrics.render().decode()
    for line in (
        'muster_queue_usage{queue="research",resource="cpu"} 1.5',
        'muster_queue_usage{queue="research",resource="example.com/gpu"} 6.0',
        'muster_queue_fair_share{queue="research",resource="example.com/gpu"} 4.0',
        'muster_queue_borrowed{queue="research",resource="example.com/gpu"} 2.0',
        'muster_queue_deserved{queue="research",resource="cpu"} 4.0',
        'muster_queue_limit{queue="research",resource="example.com/gpu"} 8.0',
        'muster_queue_pod_groups{queue="research",state="pending"} 3.0',
    ):
        assert line in text
    assert 'muster_queue_limit{queue="research",resource="cpu"}' not in text
    metrics.observe()
    assert 'queue="research"' not in metrics.render().decode()


def test_faults_of_topologies_are_counted_by_reason() -> None:
    metrics = Metrics()
    metrics.observe(faults={"LevelNotFound": 2})
    assert 'muster_topology_faults{reason="LevelNotFound"} 2.0' in metrics.render().decode()
    metrics.observe()
    assert 'reason="LevelNotFound"' not in metrics.render().decode()


def test_only_so_many_queues_have_figures() -> None:
    metrics = Metrics()
    told = [(Queue(f"q{number:05}"), QueueFacts("Open", allocated=((GPU, 1),))) for number in range(QUEUES_SHOWN + 5)]
    metrics.observe(queues=told)
    assert metrics.render().decode().count("muster_queue_usage{") == QUEUES_SHOWN


def test_searches_for_room_are_counted_by_result() -> None:
    metrics = Metrics()
    metrics.session(Done(counters={'room_searches_total{action="reclaim",result="optimal"}': 2.0}))
    assert 'muster_room_searches_total{action="reclaim",result="optimal"} 2.0' in metrics.render().decode()
