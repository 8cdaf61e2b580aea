"""Pods that have to go for a placement, and room that is kept for what their controllers make in their place.

Decided here: for how long a pod counts as leaving (while a request that names it is open, and after its gang was bound
until it is seen to be gone), and when kept room is given
up: when as many pods that the controller made since have been placed as were moved (for good, once they are on their
nodes: what becomes of them then keeps no room again), when the time is over, or when the request has been forgotten.
Pods that were there at the decision, or that it places itself, are not made since. A process that starts later knows of
these only what the request says, and goes by the time of the others. Must not know: why anybody was chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from scheduler.model.bindrequest import BindRequest, names_of
from scheduler.model.decisions import Place, Victim
from scheduler.model.pods import Pod
from scheduler.model.snapshot import Hold

KEPT_FOR = 300.0
"""Seconds after the decision for which room is kept for a pod that is to be made again."""


LAG = 10.0
"""Seconds in which every watch must have told what had happened when a request ended."""


@dataclass(slots=True)
class _Moved:
    """Victims for which room is kept. since: when that was decided. there: pods (uid) that are not made in their place.
    back: by controller, the pods (uid) that were made in their place and have reached a node."""

    since: float
    victims: tuple[Victim, ...]
    there: frozenset[str]
    back: dict[str, set[str]] = field(default_factory=dict)


class Departures:
    """The victims of the requests that exist, and of placements whose request is not seen yet; one thread uses it."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], tuple[Victim, ...]] = {}
        self._moved: dict[tuple[str, str], _Moved] = {}
        self._unseen: dict[str, float] = {}

    def assume(self, session: str, place: Place, now: float, owned: Callable[[str], Iterable[Pod]]) -> None:
        """Take note of the victims of a placement whose request is not seen yet. owned: the pods of a controller."""
        if place.victims:
            self._open[session, place.group] = place.victims
            owners = {victim.owner for victim in place.victims if victim.move_to and victim.owner}
            self._move(session, place, now, (pod.uid for owner in owners for pod in owned(owner)))

    def _move(self, source: str, place: Place, since: float, there: Iterable[str] = ()) -> None:
        moved = tuple(victim for victim in place.victims if victim.move_to and victim.owner)
        if moved and (source, place.group) not in self._moved:
            named = (*(one.uid for one in place.assignments), *(victim.uid for victim in place.victims))
            self._moved[source, place.group] = _Moved(since, moved, frozenset((*there, *named)))

    def settle(self, source: str, group: str) -> None:
        """The gang of this request is over: its victims are free to stay; room is kept for those that moved."""
        self._open.pop((source, group), None)

    def lose(self, source: str, group: str) -> None:
        """What this session or request decided about the gang will not be, or is told by another one."""
        self.settle(source, group)
        self._moved.pop((source, group), None)

    def see(self, request: BindRequest, place: Place, *, open_: bool) -> None:
        """Take note of one gang of a request."""
        if not place.victims:
            return
        known = self._moved.get((request.session, place.group))
        self.lose(request.session, place.group)
        if open_:
            self._open[request.name, place.group] = place.victims
        else:
            self.settle(request.name, place.group)
        if known is not None:
            self._moved.setdefault((request.name, place.group), replace(known, since=request.created))
        self._move(request.name, place, request.created)

    def went(self, victims: Iterable[str], now: float) -> None:
        """These pods (uid), still there as far as is seen, went for a gang that is bound.

        A watch of pods may lag behind that of requests, and the picture of who binds may be ahead of this one.
        """
        self._unseen.update(dict.fromkeys(victims, now + LAG))

    def gone(self, uid: str) -> None:
        """A pod is gone."""
        self._unseen.pop(uid, None)

    def forget(self, request: str, groups: Iterable[str]) -> None:
        """The request is gone."""
        for group in groups:
            self.lose(request, group)

    def leaving(self, now: float) -> frozenset[str]:
        """Return the pods (uid) that are to go."""
        open_ = frozenset(victim.uid for victims in self._open.values() for victim in victims)
        for uid in [uid for uid, until in self._unseen.items() if now >= until]:
            del self._unseen[uid]  # it stayed after all: its gang did not need it to go
        return open_.union(self._unseen) if self._unseen else open_

    def awaited(self, is_there: Callable[[str], bool]) -> dict[str, tuple[str, ...]]:
        """Return the victims (namespace/name) of each group for which some have still to go. is_there: by uid."""
        found: dict[str, tuple[str, ...]] = {}
        for (_, group), victims in self._open.items():
            if any(is_there(victim.uid) for victim in victims):
                found[group] = (*found.get(group, ()), *names_of(victims))
        return found

    def holds(
        self,
        now: float,
        owned: Callable[[str], Iterable[Pod]],
        placed: Callable[[Pod], bool],
    ) -> tuple[Hold, ...]:
        """Return the room that is kept now. owned: the pods of a controller. placed: whether a pod holds a node."""
        found: list[Hold] = []
        for key, one in sorted(self._moved.items()):
            until = one.since + KEPT_FOR
            if now >= until:
                del self._moved[key]
                continue
            left = {owner: _back(one, owner, owned, placed) for owner in {victim.owner for victim in one.victims}}
            for victim in one.victims:
                if left[victim.owner] > 0:
                    left[victim.owner] -= 1
                    continue
                found.append(Hold(victim.move_to, victim.owner, victim.group, victim.requests, until, victim.uid))
        return tuple(found)


def _back(one: _Moved, owner: str, owned: Callable[[str], Iterable[Pod]], placed: Callable[[Pod], bool]) -> int:
    """Return how many pods of a controller have come in place of those that were moved; note who reached a node."""
    back = one.back.setdefault(owner, set())
    begun = int(one.since)
    came = [pod for pod in owned(owner) if pod.created >= begun and pod.uid not in one.there and placed(pod)]
    back.update(pod.uid for pod in came if pod.node)
    return len(back) + sum(pod.uid not in back for pod in came)
