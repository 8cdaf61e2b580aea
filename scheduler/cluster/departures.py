"""Pods that have to go for a placement, and room that is kept for what their controllers make in their place.

Decided here: for how long a pod counts as leaving (while a request that names it is open), and when kept room is given
up: when as many pods of the controller have been placed since as were moved, when the time is over, or when the request
has been forgotten. Must not know: why anybody was chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler.model.bindrequest import BindRequest
from scheduler.model.decisions import Victim
from scheduler.model.pods import Pod
from scheduler.model.snapshot import Hold

KEPT_FOR = 300.0
"""Seconds after the decision for which room is kept for a pod that is to be made again."""


class Departures:
    """The victims of the requests that exist, and of placements whose request is not seen yet; one thread uses it."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], tuple[Victim, ...]] = {}
        self._moved: dict[tuple[str, str], tuple[float, tuple[Victim, ...]]] = {}

    def assume(self, session: str, group: str, victims: tuple[Victim, ...], now: float) -> None:
        """Take note of victims whose request is not seen yet."""
        if victims:
            self._open[session, group] = victims
            self._move(session, group, victims, now)

    def _move(self, source: str, group: str, victims: tuple[Victim, ...], since: float) -> None:
        moved = tuple(victim for victim in victims if victim.move_to and victim.owner)
        if moved:
            self._moved.setdefault((source, group), (since, moved))

    def settle(self, source: str, group: str) -> None:
        """The gang of this request is over: its victims are free to stay; room is kept for those that moved."""
        self._open.pop((source, group), None)

    def lose(self, source: str, group: str) -> None:
        """What this session or request decided about the gang will not be, or is told by another one."""
        self.settle(source, group)
        self._moved.pop((source, group), None)

    def see(self, request: BindRequest, group: str, victims: tuple[Victim, ...], *, open_: bool) -> None:
        """Take note of one gang of a request."""
        if not victims:
            return
        self.lose(request.session, group)
        if open_:
            self._open[request.name, group] = victims
        else:
            self.settle(request.name, group)
        self._move(request.name, group, victims, request.created)

    def forget(self, request: str, groups: Iterable[str]) -> None:
        """The request is gone."""
        for group in groups:
            self.lose(request, group)

    def leaving(self) -> frozenset[str]:
        """Return the pods (uid) that are to go."""
        return frozenset(victim.uid for victims in self._open.values() for victim in victims)

    def holds(
        self,
        now: float,
        owned: Callable[[str], Iterable[Pod]],
        placed: Callable[[Pod], bool],
    ) -> tuple[Hold, ...]:
        """Return the room that is kept now. owned: the pods of a controller. placed: whether a pod holds a node."""
        found: list[Hold] = []
        for key, (created, moved) in sorted(self._moved.items()):
            until = created + KEPT_FOR
            if now >= until:
                del self._moved[key]
                continue
            back: dict[str, int] = {}
            for victim in moved:
                if victim.owner not in back:
                    back[victim.owner] = sum(placed(pod) and pod.created >= int(created) for pod in owned(victim.owner))
                if back[victim.owner] > 0:
                    back[victim.owner] -= 1
                    continue
                found.append(Hold(victim.move_to, victim.owner, victim.group, victim.requests, until, victim.uid))
        return tuple(found)
