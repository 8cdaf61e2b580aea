"""The figures at /metrics, all with the prefix muster_.

Decided here: names, labels and buckets. Counters and durations arrive by their short name (`count`, `seconds`, and the
counters of a session); gauges are set when somebody looks (`observe`). Must not know where a figure comes from.
Invariant: no label holds the name of a pod, a node or a group, so the number of series does not grow with the cluster.

A counter that is not declared below (a third-party plugin may count what it likes) is declared by its first use.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scheduler import __version__
from scheduler.model.queues import Queue, QueueFacts
from scheduler.model.resources import Amounts

log = structlog.get_logger(__name__)

PREFIX = "muster_"
_CHILDREN = 5000
UNDECLARED = 200
"""Counters that others may add; more than that is a fault of theirs."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter that nobody asks for

_SESSION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)
_BIND_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_WAIT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 1800, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600)

_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "pod_group_schedule_attempts": ("Groups placed by sessions.", ("result", "queue")),
    "pods_placed": ("Pods placed by sessions.", ()),
    "session_failures": ("Sessions that raised; nothing of them was done.", ()),
    "plugin_failures": ("Plugins that raised; the group concerned waits.", ("plugin", "hook")),
    "action_failures": ("Actions that raised.", ("action",)),
    "group_failures": ("Groups on which a session failed.", ()),
    "invariant_violations": ("Promises of the design that did not hold; each is a bug.", ("invariant",)),
    "binds": ("Bindings that were sent.", ()),
    "unbinds": ("Pods that were deleted because their gang could not start whole.", ()),
    "evictions": ("Pods that were evicted to make room, or to drain a queue.", ("why",)),
    "room_searches": ("Searches for room by eviction or by moves.", ("action", "result")),
    "eviction_failures": ("Requests to evict that were refused or not answered.", ("cause",)),
    "bind_failures": ("Members that could not be bound.", ("cause",)),
    "gangs_ended": ("Gangs of bind requests that ended, by how.", ("phase",)),
    "gangs_unwound": ("Gangs that were unwound after some member was bound.", ()),
    "bind_requests_left": ("Bind requests that were left to another leader.", ()),
    "bind_request_write_failures": ("Writes to bind requests that failed and were repeated.", ("what",)),
    "handover_failures": ("Bind requests that could not be written.", ()),
    "owner_groups": ("PodGroups for owners that state none, by what was done with them.", ("result",)),
    "perform_failures": ("Decisions that could not be put into words; each is a bug.", ()),
    "writes": ("Writes to the API server, bindings aside, by how they ended.", ("kind", "result")),
    "api_requests": ("Requests to the API server; code 0 is no answer.", ("method", "resource", "code")),
    "events_dropped": ("Events that were not written.", ("cause",)),
}
_HISTOGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "session_duration_seconds": ("How long a session takes.", (), _SESSION_BUCKETS),
    "action_duration_seconds": ("How long an action takes.", ("action",), _SESSION_BUCKETS),
    "bind_duration_seconds": ("From a bind request's first sight to its end.", ("phase",), _BIND_BUCKETS),
    "handover_duration_seconds": ("How long it takes to write a bind request.", (), _REQUEST_BUCKETS),
    "pod_group_wait_seconds": (
        "From the creation of a group to the binding of its minimum.",
        ("queue",),
        _WAIT_BUCKETS,
    ),
    "api_request_duration_seconds": ("Requests to the API server.", ("method", "resource"), _REQUEST_BUCKETS),
}
_QUEUE_GAUGES = {
    "usage": "What pods of a queue and those below it hold; cpu in cores, memory in bytes.",
    "fair_share": "What a queue is entitled to now.",
    "deserved": "What a queue's object says that it deserves.",
    "guarantee": "What is held for a queue while it is idle.",
    "limit": "What a queue's object says that it may never exceed.",
    "borrowed": "What a queue holds above what it deserves.",
}
QUEUES_SHOWN = 1000
"""Queues with figures of their own, the first by name."""
_ALIASES = {
    "groups_placed": "pod_group_schedule_attempts",
    "bind_request_seconds": "bind_duration_seconds",
    "handover_seconds": "handover_duration_seconds",
}
_INVARIANTS = ("session", "binder-transition")
"""Checks that count violations."""
_FIXED_LABELS = {"groups_placed": {"result": "scheduled"}}
_COUNTER = re.compile(r"^([a-zA-Z_][a-zA-Z0-9_]*)(?:\{(.*)\})?$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="([^"]*)"(?:,|$)')


_Key = tuple[str, tuple[tuple[str, str], ...]]


def _key(name: str, labels: Mapping[str, str]) -> _Key:
    """Name a series for look-up; looking labels up in the library costs ten times as much."""
    return name, tuple(labels.items())


class SessionDone(Protocol):
    """The figures of one session."""

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by action, and those of the whole under "session"."""

    @property
    def counters(self) -> Mapping[str, float]:
        """name or name{label="value",...} -> how many."""

    @property
    def overcommitted(self) -> int:
        """How many nodes held more than they have when it began."""


class WatchCounters(Protocol):
    """What one reflector has counted since it began."""

    @property
    def events(self) -> int: ...
    @property
    def lists(self) -> int: ...
    @property
    def watches(self) -> int: ...
    @property
    def failures(self) -> int: ...


class WatchStatus(Protocol):
    """How one resource is followed."""

    @property
    def resource(self) -> str: ...
    @property
    def objects(self) -> int: ...
    @property
    def stale(self) -> float: ...
    @property
    def bad(self) -> int: ...
    @property
    def counters(self) -> WatchCounters: ...


class Metrics:
    """See the module. One a process; used from the event loop only. component: as which the process leads."""

    def __init__(self, component: str = "scheduler") -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._counters = {
            name: Counter(PREFIX + name, text, labels, registry=self.registry)
            for name, (text, labels) in _COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(PREFIX + name, text, labels, buckets=buckets, registry=self.registry)
            for name, (text, labels, buckets) in _HISTOGRAMS.items()
        }
        self._labels = {name: labels for name, (_, labels) in _COUNTERS.items()}
        self._reloads = Counter(
            PREFIX + "config_reloads",
            "Changed configurations, taken over or refused.",
            ("result",),
            registry=self.registry,
        )
        self._misfits = Counter(
            PREFIX + "metric_misfits", "Figures that could not be counted; each is a bug.", registry=self.registry
        )
        self._complained: set[str] = set()
        self._children: dict[_Key, Counter] = {}
        self._timers: dict[_Key, Histogram] = {}
        for name in _INVARIANTS:  # an alert looks at the increase, and a series that begins with 1 has none
            self.count("invariant_violations", 0.0, invariant=name)
        leader = self._gauge("leader", "1 while this process leads; of all in one, as scheduler.", ("component",))
        self._leader = leader.labels(component)
        self._leader.set(0)
        self._config_ok = self._gauge("config_valid", "0 while the configuration file is refused and the old one kept.")
        self._config_ok.set(1)
        info = self._gauge("build_info", "What runs.", ("version", "python"))
        info.labels(__version__, platform.python_version()).set(1)
        self._objects = self._gauge("cache_objects", "Objects in the picture of the cluster.", ("resource",))
        self._backlog = self._gauge("write_queue_depth", "Writes that wait or are in flight.", ("kind",))
        self._bind_depth = self._gauge("bind_queue_depth", "Bindings that wait or are in flight.")
        self._open_requests = self._gauge("bind_requests_open", "Bind requests that are not finished.")
        self._assumed = self._gauge("assumed_pods", "Pods that are placed and not yet seen to be bound.")
        self._overcommitted = self._gauge("overcommitted_nodes", "Nodes that hold more than they have.")
        self._pending = self._gauge("pending_pod_groups", "Groups that wait.", ("queue", "reason"))
        self._queues = {
            name: self._gauge(f"queue_{name}", text, ("queue", "resource")) for name, text in _QUEUE_GAUGES.items()
        }
        self._queue_groups = self._gauge(
            "queue_pod_groups", "Groups of a queue and those below it.", ("queue", "state")
        )
        self._faults = self._gauge(
            "topology_faults", "What is wrong with topologies and hyper-nodes, by reason.", ("reason",)
        )
        self._watches = _Watches()
        self.registry.register(self._watches)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(PREFIX + name, text, labels, registry=self.registry)

    # -- what is told ---------------------------------------------------------------------------------------------

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter, by its name without prefix and without _total."""
        key = _key(name, labels)
        child = self._children.get(key)
        if child is None:
            child = self._child(name, labels)
            if child is None:
                return
            if len(self._children) < _CHILDREN:
                self._children[key] = child
        child.inc(amount)

    def _child(self, name: str, labels: dict[str, str]) -> Counter | None:
        """Return the series of a counter with these labels, or None when there cannot be one."""
        name = name.removesuffix("_total")
        labels = {**_FIXED_LABELS.get(name, {}), **labels}
        name = _ALIASES.get(name, name)
        counter = self._counters.get(name)
        if counter is None:
            counter = self._declare(name, tuple(sorted(labels)))
        if counter is None:
            return None
        known = self._labels[name]
        if any(label not in known for label in labels):
            self._misfit(name, f"labels {sorted(labels)} instead of {sorted(known)}")
            return None
        return counter.labels(*(labels.get(label, "") for label in known)) if known else counter

    def _declare(self, name: str, labels: tuple[str, ...]) -> Counter | None:
        if len(self._counters) >= len(_COUNTERS) + UNDECLARED:
            self._misfit(name, f"more than {UNDECLARED} counters that are not declared")
            return None
        if _COUNTER.fullmatch(name) is None or "{" in name:
            self._misfit(name, "no name of a metric")
            return None
        try:
            counter = Counter(PREFIX + name, "Counted by a plugin.", labels, registry=self.registry)
        except ValueError as error:
            self._misfit(name, str(error))
            return None
        self._counters[name] = counter
        self._labels[name] = labels
        return counter

    def seconds(self, name: str, value: float, **labels: str) -> None:
        """Note a duration."""
        key = _key(name, labels)
        timer = self._timers.get(key)
        if timer is None:
            timer = self._timer(name, labels)
            if timer is None:
                return
            if len(self._timers) < _CHILDREN:
                self._timers[key] = timer
        timer.observe(value)

    def _timer(self, name: str, labels: dict[str, str]) -> Histogram | None:
        """Return the series of a histogram with these labels, or None when there cannot be one."""
        name = _ALIASES.get(name, name)
        histogram = self._histograms.get(name)
        if histogram is None:
            self._misfit(name, "a duration that is not declared")
            return None
        known = _HISTOGRAMS[name][1]
        if any(label not in known for label in labels):
            self._misfit(name, f"labels {sorted(labels)} instead of {sorted(known)}")
            return None
        return histogram.labels(*(labels.get(label, "") for label in known)) if known else histogram

    def _misfit(self, name: str, problem: str) -> None:
        self._misfits.inc()
        if name not in self._complained:
            self._complained.add(name)
            log.error("metric_misfit", metric=name, problem=problem)

    def session(self, done: SessionDone) -> None:
        """Take the figures of a session."""
        for action, value in done.seconds.items():
            if action == "session":
                self.seconds("session_duration_seconds", value)
            else:
                self.seconds("action_duration_seconds", value, action=action)
        self._overcommitted.set(done.overcommitted)
        for text, amount in done.counters.items():
            match = _COUNTER.match(text)
            if match is None:
                self._misfit(text, 'not of the form name{label="value"}')
                continue
            self.count(match[1], amount, **dict(_LABEL.findall(match[2] or "")))

    def on_request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Note one request to the API server."""
        resource = resource_of(path)
        self.count("api_requests", method=method, resource=resource, code=str(status))
        if method != "WATCH":
            self.seconds("api_request_duration_seconds", seconds, method=method, resource=resource)

    def leading(self, leads: bool) -> None:
        """Note whether this process leads."""
        self._leader.set(1 if leads else 0)

    def reload(self, *, ok: bool) -> None:
        """Note that a changed configuration was taken over or refused."""
        self._reloads.labels("ok" if ok else "refused").inc()
        self._config_ok.set(1 if ok else 0)

    # -- what is looked at ----------------------------------------------------------------------------------------

    def observe(
        self,
        *,
        cache: Mapping[str, int] | None = None,
        watches: Sequence[WatchStatus] = (),
        backlog: Mapping[str, int] | None = None,
        bind_depth: int = 0,
        open_requests: int = 0,
        assumed: int = 0,
        pending: Mapping[tuple[str, str], int] | None = None,
        queues: Iterable[tuple[Queue, QueueFacts]] = (),
        faults: Mapping[str, int] | None = None,
    ) -> None:
        """Set the gauges, just before they are read. pending: (queue, reason) -> groups. queues: as last told. faults:
        reason -> how many, of topology objects."""
        _set(self._objects, (((name,), number) for name, number in (cache or {}).items()))
        _set(self._backlog, (((name,), number) for name, number in (backlog or {}).items()))
        _set(self._pending, (pending or {}).items())
        _set(self._faults, (((reason,), number) for reason, number in (faults or {}).items()))
        self._bind_depth.set(bind_depth)
        self._open_requests.set(open_requests)
        self._assumed.set(assumed)
        self._watches.status = tuple(watches)
        self._observe_queues(sorted(queues, key=lambda told: told[0].name)[:QUEUES_SHOWN])

    def _observe_queues(self, queues: Sequence[tuple[Queue, QueueFacts]]) -> None:
        for name, gauge in self._queues.items():
            gauge.clear()
            for queue, facts in queues:
                for resource, value in _figures(name, queue, facts):
                    if value >= 0:  # unlimited is no number
                        gauge.labels(queue.name, resource).set(value / 1000 if resource == "cpu" else value)
        self._queue_groups.clear()
        for queue, facts in queues:
            for state in ("pending", "admitted", "running"):
                self._queue_groups.labels(queue.name, state).set(getattr(facts, state))

    def render(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        return generate_latest(self.registry)


def _figures(name: str, queue: Queue, facts: QueueFacts) -> Amounts:
    match name:
        case "deserved":
            return queue.deserved
        case "limit":
            return queue.limit
        case "guarantee":
            return facts.guarantee
        case "fair_share":
            return facts.entitlement
        case "borrowed":
            return facts.borrowed
        case _:
            return facts.allocated


def _set(gauge: Gauge, values: Iterable[tuple[tuple[str, ...], int]]) -> None:
    """Set a gauge to these values only: what is no longer there is no longer shown."""
    gauge.clear()
    for labels, value in values:
        gauge.labels(*labels).set(value)


class _Watches(Collector):
    """The reflectors count for themselves; here their figures are only shown."""

    def __init__(self) -> None:
        self.status: tuple[WatchStatus, ...] = ()

    def collect(self) -> Iterator[Metric]:
        def counter(name: str, text: str, values: Iterable[tuple[str, float]]) -> CounterMetricFamily:
            family = CounterMetricFamily(PREFIX + name, text, labels=("resource",))
            for resource, value in values:
                family.add_metric((resource,), value)
            return family

        def gauge(name: str, text: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
            family = GaugeMetricFamily(PREFIX + name, text, labels=("resource",))
            for resource, value in values:
                family.add_metric((resource,), value)
            return family

        status = self.status
        yield counter("cache_events", "Events read.", ((s.resource, s.counters.events) for s in status))
        yield counter("cache_lists", "Full lists.", ((s.resource, s.counters.lists) for s in status))
        yield counter(
            "watch_restarts",
            "Watches opened after the first.",
            ((s.resource, max(0, s.counters.watches - 1)) for s in status),
        )
        yield counter(
            "watch_failures", "Lists and watches that failed.", ((s.resource, s.counters.failures) for s in status)
        )
        yield gauge(
            "cache_age_seconds",
            "For how long a resource has not been followed.",
            ((s.resource, s.stale) for s in status),
        )
        yield gauge("cache_bad_objects", "Objects that cannot be read.", ((s.resource, s.bad) for s in status))


def resource_of(path: str) -> str:
    """Return what a path of the API server is about ("pods", "pods/binding"), never a name."""
    parts = [part for part in path.split("/") if part]
    parts = parts[2:] if parts[:1] == ["api"] else parts[3:] if parts[:1] == ["apis"] else parts
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    if not parts:
        return "discovery"
    return f"{parts[0]}/{parts[2]}" if len(parts) > 2 else parts[0]
