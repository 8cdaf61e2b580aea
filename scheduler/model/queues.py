"""Queues as read from their objects, and what is written back. The arithmetic of shares is in `quota`.

A resource field is an integer, `UNLIMITED`, or absent (unset: the queue does not constrain that resource).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.model.affinity import LabelSelector
from scheduler.model.pods import Condition, Problem
from scheduler.model.resources import Amounts

UNLIMITED = -1
DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"
WEIGHT_UNIT = 1000
"""Weights are in thousandths, because some APIs have fractions: this is the weight 1."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue. `state` is Open, Hold or Drain; other dialects are translated (Volcano Closed and Closing = Hold).

    weight: share of the surplus among siblings, in thousandths; `weights` replaces it for single resources.
    order: BestEffort, or StrictFIFO (nothing passes the head). within_queue: who may be preempted by groups of the same
    queue: LowerPriority, LowerOrNewerEqualPriority or Never. reclaim: whom groups of this queue may reclaim from other
    queues: Any, LowerPriority or Never. reclaimable: whether others may reclaim from this queue at all.
    min_runtime: seconds for which a group of this queue that started is not preempted; reclaim_min_runtime: the same
    against other queues (None: as min_runtime, None there: that of the queue above, in the end 0).
    namespaces: labels of the namespaces that may use it (None: all). half_life: seconds, of its decayed usage (None:
    that of the queue above, in the end what is configured).
    decayed, decayed_at: decayed usage as last written (resource seconds), and when (seconds since the epoch).
    conditions, raw_status: as last read; only its dialect looks into the raw status. What is written back, and the
    versions, make no difference when queues are compared.
    """

    name: str
    uid: str = ""
    dialect: str = "muster"
    parent: str = ""
    weight: int = WEIGHT_UNIT
    weights: Amounts = ()
    priority: int = 0
    guarantee: Amounts = ()
    deserved: Amounts = ()
    limit: Amounts = ()
    reclaimable: bool = True
    state: str = "Open"
    order: str = "BestEffort"
    within_queue: str = "LowerPriority"
    reclaim: str = "Any"
    min_runtime: float | None = None
    reclaim_min_runtime: float | None = None
    namespaces: LabelSelector | None = None
    half_life: float | None = None
    created: float = 0.0
    problems: tuple[Problem, ...] = ()
    generation: int = field(default=0, compare=False)
    decayed: Amounts = field(default=(), compare=False)
    decayed_at: float = field(default=0.0, compare=False)
    conditions: tuple[Condition, ...] = field(default=(), compare=False)
    resource_version: str = field(default="", compare=False)
    raw_status: bytes = field(default=b"", compare=False)


def leaf_of(path: str) -> str:
    """Return the name of the queue at the end of a path; that of the default queue for nothing."""
    return path.strip("/").rpartition("/")[2] or DEFAULT_QUEUE


def that_counts(by_dialect: Mapping[str, Queue]) -> Queue:
    """Return the one that counts of queues of one name, by dialect: Muster's own, else the first by dialect."""
    return by_dialect.get("muster") or by_dialect[min(by_dialect)]


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What a queue's status should say. Amounts are sums over the queue and everything below it.

    state: what holds now: Open, Hold, Drain, or Closing (held, and something of it still runs). entitlement, borrowed:
    by resource, for the resources that the queue or its siblings name. pending, running, admitted: groups that wait,
    that run, and that wait after they were let in. decayed, decayed_at: decayed usage and its time.
    problem: what is wrong with the queue or its place in the tree ("" = nothing), as code and sentence.
    over: the resources of which it uses more than its limit (a limit that was lowered), with how much more.
    pods: how many pods hold what is allocated. requested: what its groups hold or ask for. fixed: what those of them
    hold that may not be evicted. The last two are None where nobody has summed them.
    """

    state: str
    allocated: Amounts = ()
    entitlement: Amounts = ()
    borrowed: Amounts = ()
    guarantee: Amounts = ()
    pending: int = 0
    admitted: int = 0
    running: int = 0
    decayed: Amounts = ()
    decayed_at: float = 0.0
    children: tuple[str, ...] = ()
    problem: tuple[str, str] = ("", "")
    over: Amounts = ()
    pods: int = 0
    requested: Amounts | None = None
    fixed: Amounts | None = None
