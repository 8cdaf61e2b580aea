"""`muster top`: how a scheduler does and how the cluster is used, at a glance and again and again.

Decided here: what is shown and over which time. Figures of the scheduler are read from its metrics and are those
between two looks; the quantiles of sessions are estimated from their histogram, as Prometheus does, and over all
sessions since it started where none ran between the looks. Pools and queues are those of the cluster as it is, so that
they are there also where no scheduler is in reach.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from scheduler.cli.choosing import Refused, resource_of
from scheduler.cli.health_port import NoAnswer, fetch
from scheduler.cli.live import again
from scheduler.cli.nodes import pools
from scheduler.cli.output import OK, complain, emit, listing, note, table
from scheduler.cli.picture import Picture, Source, with_picture
from scheduler.cli.queue import waiting
from scheduler.framework.session import Session
from scheduler.framework.shares import line_of, standings
from scheduler.model.quantity import format_amount

Facts = dict[str, Any]
_SESSIONS = "muster_session_duration_seconds"
_QUANTILES = {"p50": 0.5, "p99": 0.99}
_POOL_COLUMNS = ("pool", "nodes", "cordoned", "total", "used", "free", "use", "gangs")
_QUEUE_COLUMNS = ("queue", "used", "deserved", "limit", "use", "running", "waiting")


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of a process at a time (seconds): name -> sum over its labels; buckets: upper bound -> count.

    component: what runs there; all in one is a scheduler.
    """

    at: float
    sums: Mapping[str, float]
    buckets: Mapping[float, float]
    component: str = "scheduler"


def show(
    source: Source, address: str, *, resource: str | None, pool: str | None, once: bool, interval: float, output: str
) -> int:
    """Print it once, or until Ctrl-C; exit code."""
    last: list[Sample | None] = [sample(address)]
    if once:
        there = last[0] is not None
        time.sleep(interval if there else 0)
        return _look(source, address, last, resource, pool, output, ask=there)
    return again(lambda: _look(source, address, last, resource, pool, output), interval)


def _look(
    source: Source, address: str, last: list[Sample | None], resource: str | None, pool: str | None, output: str,
    *, ask: bool = True,
) -> int:  # fmt: skip
    """Print one look. ask: ask the scheduler for its figures."""

    def work(picture: Picture, _: str) -> int:
        session = picture.session()
        try:
            counted = resource_of(session, resource)
            label, rows = pools(session, counted, pool)
        except Refused as refused:
            complain(str(refused))
            return refused.code
        now = sample(address) if ask else None
        figures = between(last[0], now)
        last[0] = now
        facts: Facts = {
            "resource": counted,
            "scheduler": figures,
            "poolLabel": label,
            "pools": rows,
            "queues": _queues(session, counted),
        }
        if output in ("json", "yaml"):
            emit([facts], (), output)
        else:
            _tell(facts, address)
        return OK

    return with_picture(source, work)


# -- the scheduler ----------------------------------------------------------------------------------------------------


def sample(address: str) -> Sample | None:
    """Return the figures of a scheduler; None where it cannot be reached or does not tell, which is told."""
    try:
        found = read(fetch(address, "/metrics", timeout=5).decode(), time.time())
        if found.component == "scheduler":
            return found
        said = f"{address} is no scheduler but {found.component}, a process of its own"
    except NoAnswer as error:
        said = str(error)
    except (ValueError, LookupError) as error:  # of the parser, whatever it stumbles over
        said = f"http://{address}/metrics: these are no metrics: {error}"
    note(f"{said}; the scheduler's own figures are left out")
    return None


def read(text: str, at: float) -> Sample:
    """Return the sums of everything that is counted, and the buckets of the durations of sessions."""
    sums: dict[str, float] = {}
    buckets: dict[float, float] = {}
    component = "scheduler"
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            if one.name == f"{_SESSIONS}_bucket":
                buckets[float(one.labels["le"])] = one.value
            else:
                sums[one.name] = sums.get(one.name, 0.0) + one.value
            if one.name == "muster_leader":
                component = one.labels.get("component", component)
    return Sample(at, sums, buckets, component)


def between(before: Sample | None, now: Sample | None) -> Facts | None:
    """Return rates and quantiles between two looks; None without a second one. A restart in between counts from 0."""
    if now is None:
        return None
    started_anew = before is None or before.sums.get(f"{_SESSIONS}_count", 0) > now.sums.get(f"{_SESSIONS}_count", 0)
    base = Sample(0.0, {}, {}) if before is None or started_anew else before
    seconds = now.at - base.at if base.at else 0.0

    def rate(name: str) -> float | None:
        return round((now.sums.get(name, 0) - base.sums.get(name, 0)) / seconds, 2) if seconds > 0 else None

    recent = {bound: count - base.buckets.get(bound, 0) for bound, count in now.buckets.items()}
    lately = max(recent.values(), default=0) > 0
    counts = recent if lately else now.buckets
    return {
        "leader": bool(now.sums.get("muster_leader")),
        "sessionsPerSecond": rate(f"{_SESSIONS}_count"),
        "bindsPerSecond": rate("muster_binds_total"),
        **{name: quantile(share, counts) for name, share in _QUANTILES.items()},
        "over": f"the last {seconds:.0f} s" if lately and seconds > 0 else "since it started",
        "pending": int(now.sums.get("muster_pending_pod_groups", 0)),
        "evictions": int(now.sums.get("muster_evictions_total", 0) - base.sums.get("muster_evictions_total", 0)),
        "bindFailures": int(
            now.sums.get("muster_bind_failures_total", 0) - base.sums.get("muster_bind_failures_total", 0)
        ),
    }


def quantile(share: float, buckets: Mapping[float, float]) -> float | None:
    """Return a quantile in seconds from cumulative buckets, linear inside one; None of nothing.

    In the last bucket, which has no end, it is the bound of the one before.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted, low, below = share * total, 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted:
            if bound == float("inf"):
                return low
            inside = buckets[bound] - below
            return round(low + (bound - low) * (wanted - below) / inside, 6) if inside else bound
        low, below = bound, buckets[bound]
    return low


# -- the cluster ------------------------------------------------------------------------------------------------------


def _queues(session: Session, resource: str) -> list[Facts]:
    """A row for each queue that has to do with the resource, or in which, or below which, somebody waits.

    Groups that run and wait are those of the queue and of all below it, as what is used is.
    """
    found = standings(session)
    above = {one.name: one.parent for one in found}
    counts, running = Counter[str](), Counter[str]()
    for row in waiting(session):
        counts.update(line_of(row["queue"], above))
    for state in session.snapshot.groups.values():
        if state.bound:
            running.update(line_of(session.queue_of(state), above))
    rows = []
    for one in found:
        share = next((share for share in one.shares if share.resource == resource), None)
        if share is None and one.name not in counts:
            continue
        used = share.used if share is not None else 0
        of = share and (share.deserved if share.deserved is not None else share.limit)
        rows.append(
            {
                "name": one.name,
                "depth": one.depth,
                "used": format_amount(resource, used),
                "deserved": "" if share is None or share.deserved is None else format_amount(resource, share.deserved),
                "limit": "" if share is None or share.limit is None else format_amount(resource, share.limit),
                "use": round(used / of, 4) if of else None,
                "running": running[one.name],
                "waiting": counts[one.name],
            }
        )
    return rows


def _tell(facts: Facts, address: str) -> None:
    figures = facts["scheduler"]
    if figures is None:
        listing((("scheduler", f"{address}: no figures"), ("by", facts["resource"])))
    else:
        took = ", ".join(f"{name} {_milliseconds(figures[name])}" for name in _QUANTILES)
        listing(
            (
                ("scheduler", f"{address}, {'leads' if figures['leader'] else 'on standby'}"),
                ("sessions", f"{_rate(figures['sessionsPerSecond'])}, {took} ({figures['over']})"),
                ("binds", f"{_rate(figures['bindsPerSecond'])}, {figures['bindFailures']} failed"),
                ("pending", f"{figures['pending']} groups, {figures['evictions']} pods evicted"),
                ("by", facts["resource"]),
            )
        )
    print()
    table([_pool(row) for row in facts["pools"]], _POOL_COLUMNS)
    print()
    table([_queue(row) for row in facts["queues"]], _QUEUE_COLUMNS)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:g}/s"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.3g} ms"


def _pool(row: Facts) -> Facts:
    return row | {
        "pool": row["domain"] or "-",
        "use": _percent(row["share"]),
        "gangs": len(row["gangs"]),
    }


def _queue(row: Facts) -> Facts:
    return row | {"queue": f"{'  ' * row['depth']}{row['name']}", "use": _percent(row["use"])}


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
