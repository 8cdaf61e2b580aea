"""What the dialects share that have queues: durations, and a status that says amounts.

Decided here: which amounts a status keeps exactly, how usage over time is written without a write a second, and that a
queue's condition is there only when there is something to say. Not known here: any particular API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from scheduler.dialects.base import Reader, copied_conditions, plain, set_condition
from scheduler.dialects.meta import seconds
from scheduler.model.pods import Problem
from scheduler.model.quantity import BadQuantity, parse_quantity, scaled
from scheduler.model.queues import Queue, QueueFacts
from scheduler.model.resources import Amounts, amounts

USAGE_PERIOD = 60.0
"""Seconds between two writes that say nothing new but how much was used over time; a restart forgets at most that."""
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZES = (("Ei", 2**60), ("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def duration(reader: Reader, name: str, *, positive: bool = False) -> float | None:
    """Return a duration ("1h30m", "500ms") in seconds; None when it is absent or cannot be used."""
    text = reader.text(name)
    if not text:
        return None
    parts = _PART.findall(text)
    found = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if text != "0" and "".join(number + unit for number, unit in parts) != text:
        reader.problems.append(Problem(reader.at(name), f'must be a duration such as "5m" or "1h30m", not {text!r}'))
        return None
    if positive and not found:
        reader.problems.append(Problem(reader.at(name), f"must be longer than 0, not {text!r}"))
        return None
    return found


def written(resource: str, value: int) -> str:
    """Return an amount as a quantity that reads back as exactly that amount."""
    if resource == "cpu":
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for suffix, size in _SIZES:
            if value and value % size == 0:
                return f"{value // size}{suffix}"
    return str(value)


def read_amounts(value: object) -> Amounts:
    """Return what a status says, without limit of size; what is no quantity is left out, it was not we who wrote it."""
    found: dict[str, int] = {}
    for name, text in value.items() if isinstance(value, dict) else ():
        try:
            found[name] = scaled(name, parse_quantity(text)) if isinstance(text, str | int) else 0
        except BadQuantity:
            continue
    return amounts(found)


def amounts_said(queue: Queue, name: str) -> Amounts:
    """Return amounts of a queue's status by the name of their field; none where its API has no such field."""
    return read_amounts(plain(queue.raw_status).get(name))


def told(before: object, wish: Amounts | Mapping[str, str]) -> dict[str, str | None]:
    """Return the part of a merge patch that makes an object in a status say exactly these amounts."""
    said = before if isinstance(before, dict) else {}
    texts = wish if isinstance(wish, Mapping) else {name: written(name, value) for name, value in wish}
    changed: dict[str, str | None] = {name: text for name, text in texts.items() if said.get(name) != text}
    return {**changed, **dict.fromkeys((name for name in said if name not in texts), None)}


def conditions(queue: Queue, before: dict[str, Any], facts: QueueFacts, now: str, *, ready: bool) -> list[Any]:
    """Return the conditions of a queue: Ready (while all is well only if `ready` or if it was told), and OverQuota."""
    found = copied_conditions(before)
    observed = {"observedGeneration": queue.generation} if queue.generation else {}
    reason, text = facts.problem
    if reason:
        set_condition(found, "Ready", "False", reason, text, now, **observed)
    elif ready or any(condition.type == "Ready" for condition in queue.conditions):
        set_condition(found, "Ready", "True", "Ready", "", now, **observed)
    if facts.over:
        text = ", ".join(f"{written(name, value)} {name}" for name, value in facts.over)
        set_condition(found, "OverQuota", "True", "AboveLimit", f"uses more than its limit: {text}", now, **observed)
    elif any(condition.type == "OverQuota" for condition in queue.conditions):
        set_condition(found, "OverQuota", "False", "WithinLimit", "", now, **observed)
    return found


def usage(queue: Queue, before: dict[str, Any], facts: QueueFacts, *, alone: bool) -> dict[str, Any] | None:
    """Return what a merge patch says of usage over time; None: nothing.

    alone: nothing else is written. Then it is written at most once in `USAGE_PERIOD`, and only while something is in
    use: what decays by itself need not be said again. Where it is not kept, what was said of it is taken back.
    """
    if not facts.decayed_at:
        return {"usage": None} if "usage" in before else None
    if alone and (not facts.allocated or facts.decayed_at - queue.decayed_at < USAGE_PERIOD):
        return None
    if facts.decayed == queue.decayed and not facts.allocated:
        return None
    said = before.get("usage")
    decayed = told(said.get("decayed") if isinstance(said, dict) else None, facts.decayed)
    return {"usage": {"at": timestamp(facts.decayed_at)} | ({"decayed": decayed} if decayed else {})}


def read_usage(status: dict[str, Any]) -> tuple[Amounts, float]:
    """Return the decayed usage that a status says, and its time."""
    said = status.get("usage")
    if not isinstance(said, dict) or not isinstance(said.get("at"), str):
        return (), 0.0
    return read_amounts(said.get("decayed")), seconds(said["at"])


def timestamp(when: float) -> str:
    """Return seconds since the epoch as RFC 3339, to the second."""
    return datetime.fromtimestamp(int(when), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shown(value: object) -> str:
    """Return a JSON value for a message, cut."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
