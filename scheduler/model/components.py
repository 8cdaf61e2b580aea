"""What of Muster can run as a process of its own."""

from __future__ import annotations

from enum import StrEnum


class Component(StrEnum):
    """scheduler: sessions, statuses, the page. binder: BindRequests. controllers: groups of owners."""

    SCHEDULER = "scheduler"
    BINDER = "binder"
    CONTROLLERS = "controllers"


WHOLE = frozenset(Component)
