"""What of Muster can run as a process of its own."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum


class Component(StrEnum):
    """scheduler: sessions, statuses, the page. binder: BindRequests. controllers: groups of owners."""

    SCHEDULER = "scheduler"
    BINDER = "binder"
    CONTROLLERS = "controllers"


WHOLE = frozenset(Component)


def leading_component(components: Collection[Component]) -> Component:
    """Return the one as which a process with these leads: the first that it has."""
    return next(one for one in Component if one in components)
