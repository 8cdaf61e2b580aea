"""Which request to the API server meets which fault: a function of the seed, the weather and how often it was asked.

Decided here: what can go wrong between a client and the API server without breaking what the API promises, and how
often. Knows no sockets. Invariant: a write arrives within `LATEST` seconds or never, because a lease protects nobody
from a write that was sent in time and arrives a minute later; its answer may take for ever. A list is never older than
its request, but it may arrive late, and what a watch tells may lag behind it for seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

LATEST = 1.0
"""Seconds after which no write arrives any more: less than lies between the end of a lease and the next leader's."""
WINDOW = 4.0
"""Seconds for which the weather stays."""

Weather = Literal["calm", "rain", "storm", "busy", "broken", "cut", "hang"]
_WEATHER: tuple[tuple[Weather, int], ...] = (
    ("calm", 40), ("rain", 30), ("storm", 14), ("busy", 5), ("broken", 5), ("cut", 3), ("hang", 3),
)  # fmt: skip
_RATE: dict[Weather, float] = {"calm": 0.01, "rain": 0.12, "storm": 0.4}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request is about. `what`: the resource, with its subresource."""

    method: str
    what: str
    watch: bool = False
    list: bool = False

    @property
    def kind(self) -> str:
        """Say it in a word or two, for counting."""
        return f"{'WATCH' if self.watch else self.method} {self.what}"


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong.

    refuse: answered with `status` and not done. reset: the connection breaks before it is done. lost: done, and the
    connection breaks. held: done, and the answer comes after `seconds`. slow: done after `seconds`. torn: half of the
    answer comes. Of watches: lag: everything comes `seconds` late. stall: after `after` events nothing comes for
    `seconds`. cut, tear (within a line), gone (an event of 410), noise (a line that is none): after `after` events.
    """

    name: str
    status: int = 0
    seconds: float = 0.0
    after: int = 0


def asked(method: str, path: str, query: dict[str, str]) -> Asked:
    """Read what a request is about from its path."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    what = rest[0] if rest else path
    if len(rest) > 2:
        what += "/" + rest[2]
    watch = query.get("watch") in ("1", "true")
    return Asked(method, what, watch, method == "GET" and len(rest) == 1 and not watch)


class Sky:
    """The faults of one way to the API server; deterministic for each kind of request, whatever comes between."""

    def __init__(self, seed: int, name: str) -> None:
        self._seed, self._name = seed, name
        self._numbers: dict[str, int] = {}

    def weather(self, at: float) -> Weather:
        """Return the weather `at` seconds after the beginning; it begins calm, so that somebody leads."""
        window = int(at / WINDOW)
        if window < 2:
            return "calm"
        names, weights = zip(*_WEATHER, strict=True)
        found: Weather = Random(f"{self._seed}/{self._name}/{window}").choices(names, weights)[0]
        return found

    def fault(self, request: Asked, at: float) -> Fault | None:
        """Return what happens to the next request of this kind."""
        number = self._numbers[request.kind] = self._numbers.get(request.kind, 0) + 1
        dice = Random(f"{self._seed}/{self._name}/{request.kind}/{number}")
        weather = self.weather(at)
        if weather in ("busy", "broken", "cut", "hang"):
            return _outage(weather, request, dice)
        if dice.random() >= _RATE[weather]:
            return None
        return _watched(dice) if request.watch else _read(request, dice) if request.method == "GET" else _write(dice)


def _outage(weather: Weather, request: Asked, dice: Random) -> Fault:
    if weather == "busy":
        return Fault("refuse", 429)
    if weather == "broken":
        return Fault("refuse", dice.choice((500, 502, 503, 504)))
    if weather == "cut":
        return Fault("reset")
    if request.watch:
        return Fault("stall", seconds=WINDOW)
    return Fault("held", seconds=WINDOW)


def _write(dice: Random) -> Fault:
    name = dice.choices(("conflict", "busy", "broken", "reset", "lost", "held", "slow"), (2, 2, 2, 2, 4, 1, 3))[0]
    if name == "conflict":
        return Fault("refuse", 409)
    if name == "busy":
        return Fault("refuse", 429)
    if name == "broken":
        return Fault("refuse", dice.choice((500, 502, 503, 504)))
    if name == "held":
        return Fault("held", seconds=dice.uniform(5, 20))
    return Fault(name, seconds=dice.uniform(0.05, LATEST) if name == "slow" else 0.0)


def _read(request: Asked, dice: Random) -> Fault:
    name = dice.choices(("busy", "broken", "reset", "torn", "slow", "held", "gone"), (2, 2, 2, 2, 2, 3, 2))[0]
    if name == "busy":
        return Fault("refuse", 429)
    if name == "gone" and request.list:
        return Fault("refuse", 410)
    if name in ("broken", "gone"):
        return Fault("refuse", dice.choice((500, 502, 503, 504)))
    # A list that is held is old when it arrives: it was read when it was asked for.
    return Fault(name, seconds=dice.uniform(0.1, 3.0) if name in ("slow", "held") else 0.0)


def _watched(dice: Random) -> Fault:
    name = dice.choices(
        ("busy", "broken", "expired", "reset", "lag", "stall", "cut", "tear", "gone", "noise"),
        (1, 1, 1, 1, 5, 3, 3, 3, 3, 1),
    )[0]
    if name in ("busy", "broken", "expired"):
        return Fault("refuse", {"busy": 429, "broken": dice.choice((500, 503)), "expired": 410}[name])
    seconds = {"lag": dice.uniform(0.2, 3.0), "stall": dice.uniform(1.0, 6.0)}.get(name, 0.0)
    return Fault(name, seconds=seconds, after=dice.randint(1, 30))
