"""Groups that rest after a failure that no other node would cure: the API server refuses the bind itself.

Decided here: which causes these are, and for how long a group rests. A bind is refused as such when a right is missing,
an admission rule objects, the namespace is being deleted, or the binder serves other schedulerNames; trying node after
node would only repeat it, and where some members were bound, unwind them again and again. By group, so that members
made anew do not start from nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.bindrequest import GangOutcome, given_up
from scheduler.model.decisions import Place
from scheduler.model.verdict import Verdict

CAUSES = frozenset({"Forbidden", "Rejected", "ForeignPod"})
"""Causes of a failure that are about the pod or the right to bind it, not about a node."""
_FIRST, _LAST = 1.0, 60.0
_FORGOTTEN_AFTER = 600.0


@dataclass(slots=True)
class _Rest:
    until: float
    wait: float
    why: Verdict


class Setbacks:
    """See the module. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self._rests: dict[str, _Rest] = {}
        self._over: set[str] = set()

    def take(self, place: Place, outcome: GangOutcome, now: float) -> bool:
        """Take note of a gang that was given up; return whether its group has to rest."""
        told = next((one for one in outcome.failures if one.cause in CAUSES), None)
        if told is None:
            return False
        known = self._rests.get(place.group)
        wait = _FIRST if known is None else min(_LAST, known.wait * 2)
        why = given_up(place, outcome, told)
        self._rests[place.group] = _Rest(now + wait, wait, why)
        self._over.discard(place.group)
        return True

    def bound(self, key: str) -> None:
        """A gang of the group was bound: whatever it was is over."""
        self._rests.pop(key, None)
        self._over.discard(key)

    def held(self, key: str) -> Verdict | None:
        """Return why the group rests, or None."""
        known = self._rests.get(key)
        return None if known is None or key in self._over else known.why

    def due(self) -> list[float]:
        """Return when rests end that have not ended yet."""
        return [rest.until for key, rest in self._rests.items() if key not in self._over]

    def end(self, now: float) -> list[str]:
        """Return the groups whose rest is over by now, each once; forget those that had no setback for long."""
        ended = [key for key, rest in self._rests.items() if rest.until <= now and key not in self._over]
        self._over.update(ended)
        for key in [key for key in self._over if self._rests[key].until + _FORGOTTEN_AFTER <= now]:
            self.bound(key)
        return ended
