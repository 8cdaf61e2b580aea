"""Makes HTML of answers: the templates, and the words and numbers in them.

Decided here: how amounts, times and addresses are written, what a phase looks like, and that a large page gives way to
the event loop every few milliseconds while it is made. Everything that is put into a template is escaped by it: names,
messages and labels come from users. No address, script or style of anybody else is ever named.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from scheduler.model.floorplan import Domain, Picture
from scheduler.model.quantity import format_amount
from scheduler.model.queues import WEIGHT_UNIT
from scheduler.model.shares import Share
from scheduler.model.verdict import Verdict
from scheduler.observe import explain
from scheduler.observe.health import PAGE
from scheduler.observe.heatmap import LOADS, Box, Text, plan
from scheduler.web import answers
from scheduler.web.answers import GANGS, GUESTS, MEMBERS, NODES, Answer

MAP = 1300.0
"""Pixels to which the heat map is laid out."""
TURN = 0.002
"""Seconds after which a page that is being made lets others go on."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))
_PHASES = {
    "Running": "good", "bound": "good", "Scheduling": "soon", "Binding": "soon", "placed": "soon", "on its way": "soon",
    "comes": "soon",
    "Completed": "past", "Finished": "past", "succeeded": "past", "being deleted": "past",
    "Degraded": "bad", "Unknown": "bad", "Failed": "bad", "failed": "bad", "evicted": "bad",
}  # fmt: skip
_VIEWS: Mapping[str, type[Answer]] = {
    "overview": answers.Overview, "gangs": answers.GangList, "gang": answers.Gang, "queue": answers.QueuePage,
    "nodes": answers.NodeList, "node": answers.NodePage, "topology": answers.Wiring,
}  # fmt: skip


class _Head(msgspec.Struct):
    """What tells an answer from one that says that there is nothing."""

    message: str = ""


class Renderer:
    """See the module. mark: differs when a file that pages name differs."""

    def __init__(self, mark: str) -> None:
        self._decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {
            view: msgspec.msgpack.Decoder(kind) for view, kind in _VIEWS.items()
        }
        self._head = msgspec.msgpack.Decoder(_Head)
        self._nothing = msgspec.msgpack.Decoder(answers.Nothing)
        self._templates = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "amount": amount, "amounts": amounts, "age": age, "clock": clock, "iso": iso, "ms": milliseconds,
            "short": short, "sentence": sentence, "gist": gist, "tone": tone, "percent": percent, "plural": plural,
        }  # fmt: skip
        self._templates.globals |= {
            "url": url, "gang_url": gang_url, "mark": mark, "bar": bar, "heat": Heat, "bounds": bounds, "LOADS": LOADS,
            "weight_unit": WEIGHT_UNIT, "domains": domains, "GANGS": GANGS, "MEMBERS": MEMBERS, "NODES": NODES,
            "GUESTS": GUESTS,
        }  # fmt: skip
        for name in self._templates.list_templates():
            self._templates.get_template(name)  # compiled here, beside the loop

    def decode(self, view: str, data: bytes) -> Answer:
        """Return the answer to a question."""
        answer: Answer = (self._nothing if self._head.decode(data).message else self._decoders[view]).decode(data)
        return answer

    async def page(self, name: str, **values: Any) -> bytes:
        """Return a page as UTF-8."""
        pieces: list[str] = []
        began = time.perf_counter()
        for piece in self._templates.get_template(f"{name}.html").generate(page=name, **values):
            pieces.append(piece)
            if time.perf_counter() - began > TURN:
                await asyncio.sleep(0)
                began = time.perf_counter()
        return "".join(pieces).encode("utf-8", "replace")


# -- words ------------------------------------------------------------------------------------------------------------


def amount(value: int | None, resource: str) -> str:
    """Return an amount as people write it; None: no limit."""
    return "no limit" if value is None else format_amount(resource, value)


def amounts(held: Iterable[tuple[str, int]]) -> str:
    """Return several amounts: "4 example.com/gpu, 16 cpu", devices first."""
    ordered = sorted(held, key=lambda one: ("/" not in one[0], one[0]))
    return ", ".join(f"{format_amount(name, value)} {name}" for name, value in ordered if value)


def short(resource: str) -> str:
    """Return a resource without its domain, for headings that have the whole name beside it."""
    return resource.rpartition("/")[2]


def age(then: float, now: float) -> str:
    """Return how long ago something was: 45s, 12m, 3h, 2d."""
    if then <= 0:
        return "-"
    seconds = max(0, int(now - then))
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def iso(when: float) -> str:
    """Return a time for machines."""
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock(when: float) -> str:
    """Return a time of day, UTC."""
    return datetime.fromtimestamp(when, UTC).strftime("%H:%M:%S")


def milliseconds(seconds: float) -> str:
    """Return a duration: "0.4 ms", "12 ms", "1.2 s"."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def percent(used: int, total: int) -> int:
    """Return a share in percent; only what is all is 100, only nothing is 0."""
    if total <= 0 or used <= 0:
        return 0
    return 100 if used >= total else min(99, max(1, round(100 * used / total)))


def plural(count: int, word: str) -> str:
    """Return "1 gang", "2 gangs"."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def sentence(why: Verdict | None) -> str:
    """Return why something waits, in the words of its condition."""
    return "" if why is None else explain.sentence(why)


def gist(why: Verdict | None) -> str:
    """Return the first clause of why something waits, for lists: without who holds what."""
    return sentence(why).partition("; ")[0]


def tone(phase: str) -> str:
    """Return the class that colours a phase or a step."""
    return _PHASES.get(phase, "waits")


def url(*parts: str, **query: str | int) -> str:
    """Return an address of the page; parameters that are "" are left out."""
    path = "/".join([PAGE, *(quote(part, safe="") for part in parts)]) if parts else f"{PAGE}/"
    asked = {name: str(value) for name, value in query.items() if value not in ("", None)}
    return f"{path}?{urlencode(asked)}" if asked else path


def gang_url(name: str, **query: str | int) -> str:
    """Return the address of a group, from "namespace/name"."""
    namespace, _, rest = name.partition("/")
    return url("gangs", namespace, rest, **query)


# -- pictures ---------------------------------------------------------------------------------------------------------


def bounds(share: Share) -> int:
    """Return what the whole width of a queue's bar stands for."""
    top = max(share.used, share.guarantee, share.deserved or 0, share.used + share.waiting if not share.limit else 0)
    return max(top, share.limit or 0, 1)


def bar(share: Share) -> dict[str, float]:
    """Return the ends of the parts of a queue's bar, in percent of its width, each -1 where there is no such part."""
    top = bounds(share)
    own = share.used - share.borrowed

    def at(value: int | None) -> float:
        return -1.0 if value is None else round(100 * min(value, top) / top, 2)

    return {
        "own": at(own),
        "used": at(share.used),
        "waiting": at(share.used + share.waiting),
        "guarantee": at(share.guarantee),
        "deserved": at(share.deserved),
        "limit": at(share.limit),
    }


class Heat:
    """A drawing, box by box, so that making the page of a large cluster can be interrupted."""

    def __init__(self, picture: Picture) -> None:
        self.width, self.height, self._boxes = plan(picture, MAP)

    def parts(self) -> Iterator[tuple[str, Box | Text]]:
        """Yield what is drawn, once, each with its kind."""
        for part in self._boxes:
            yield ("box" if isinstance(part, Box) else "text"), part


def domains(picture: Picture, rows: int) -> list[Domain]:
    """Return the domains of as many levels as fit in so many rows, at least one level."""
    return list(picture.walk(picture.depth(rows)))[: 2 * rows]
