"""Queues as read from their objects. The arithmetic of shares is not here.

A resource field is an integer, `UNLIMITED`, or absent (unset: the queue does not constrain that resource).
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.pods import Problem
from scheduler.model.resources import Amounts

UNLIMITED = -1
DEFAULT_QUEUE = "default"


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue. `state` is Open, Hold or Drain; other dialects are translated (Volcano Closed and Closing = Hold)."""

    name: str
    uid: str = ""
    dialect: str = "muster"
    parent: str = ""
    weight: int = 1
    priority: int = 0
    guarantee: Amounts = ()
    deserved: Amounts = ()
    limit: Amounts = ()
    reclaimable: bool = True
    state: str = "Open"
    created: float = 0.0
    problems: tuple[Problem, ...] = ()
    resource_version: str = ""
