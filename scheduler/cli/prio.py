"""`muster prio`: a waiting group's place in the order, what decides it, and who is ahead.

Decided here: how it reads. The order and its factors are those of a session on the cluster as it is (`picture`), before
anything is placed.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from scheduler.actions.lineup import Level, Turn, turn_of
from scheduler.cli.choosing import Refused, target_of
from scheduler.cli.output import NOT_FOUND, OK, complain, hint, listing, named, table, tell
from scheduler.cli.picture import Picture, Source, with_picture
from scheduler.framework.hooks import HookRaised
from scheduler.framework.protocols import SortKey
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.quantity import format_amount
from scheduler.observe.explain import sentence

Facts = dict[str, Any]
_NAMED = 5
"""Names of those ahead that are told in a table."""
_KINDS = {"": "", "group": "", "pod": ""}
_FORMS = "NAME, NAMESPACE/NAME, group/NAME or pod/NAME"
_STEPS = {
    "repair": "its lost members come back, before anybody starts",
    "start": "it starts with its minimum",
    "grow": "its members above the minimum, after all that start",
}


def show(target: str, namespace: str | None, source: Source, output: str) -> int:
    """Print the factors of a group, or of a pod that stands alone (see `_FORMS`); exit code."""
    try:
        meant = target_of(target, namespace, _KINDS, _FORMS)
    except Refused as refused:
        complain(str(refused))
        return refused.code

    def work(picture: Picture, default: str) -> int:
        session = picture.session()
        where, name = meant.namespace or default, meant.name
        states = [
            one for one in session.snapshot.groups.values() if (one.group.namespace, one.group.name) == (where, name)
        ]
        if not states:
            known = (one.group.name for one in session.snapshot.groups.values() if one.group.namespace == where)
            complain(f"namespace {where} has no group and no waiting pod {name}{hint(name, known)}")
            return NOT_FOUND
        tell([_facts(session, state) for state in states], output, _tell)
        return OK

    return with_picture(source, work)


def _facts(session: Session, state: GroupState) -> Facts:
    facts: Facts = {
        "group": f"{state.group.namespace}/{state.group.name}",
        "queue": session.queue_of(state),
        "priority": state.priority,
    }
    try:
        turn = turn_of(session, state.key)
    except HookRaised as raised:
        return facts | {"outside": str(raised)}
    if turn is None:
        why = session.verdicts.get(state.key)
        nothing = "it has no members that wait" if not state.waiting else "it is being bound"
        return facts | {"outside": sentence(why) if why is not None else nothing}
    return facts | {
        "position": turn.position,
        "inQueue": turn.in_queue,
        "positionInAll": turn.in_all,
        "inAll": turn.waiting,
        "step": turn.step,
        "levels": [_level(level) for level in turn.levels],
        "keys": _keys(turn),
        "ahead": [_name(one) for one in turn.ahead],
        "before": [{"group": _name(one), "queue": session.queue_of(one)} for one in turn.before],
    }


def _name(state: GroupState) -> str:
    return f"{state.group.namespace}/{state.group.name}"


def _level(level: Level) -> Facts:
    return {
        "queue": level.queue,
        "withinOwed": level.within,
        "over": {name: format_amount(name, value) for name, value in level.over},
        "priority": level.priority,
        "share": round(level.share, 4) if math.isfinite(level.share) else None,
    }


def _keys(turn: Turn) -> list[Facts]:
    """The group's own keys; the last resort of every order is when it was made."""
    created = datetime.fromtimestamp(turn.state.group.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    keys = [{"by": plugin, "key": list(key), "means": _means(plugin, key)} for plugin, key in turn.keys if key]
    return [*keys, {"by": "created", "key": [turn.state.group.created], "means": f"made at {created}"}]


def _means(plugin: str, key: SortKey) -> str:
    first = key[0]
    match plugin:
        case "priority" if isinstance(first, int):
            return f"priority {-first}"
        case "age" if isinstance(first, int | float):
            return "older first"
        case "drf" if isinstance(first, int | float):
            return f"dominant share {first:.4f} with its next members"
        case _:
            return "smaller first"


def _tell(facts: Facts) -> None:
    lines = {"group": facts["group"], "queue": facts["queue"], "priority": facts["priority"]}
    if "outside" in facts:
        lines["order"] = f"it takes no part: {facts['outside']}"
    else:
        lines["turn"] = _STEPS[facts["step"]]
        lines["position"] = (
            f"{facts['position']} of {facts['inQueue']} in queue {facts['queue']}, "
            f"{facts['positionInAll']} of {facts['inAll']} in all"
        )
        lines["ahead"] = named([one["group"] for one in facts["before"]], _NAMED) or "nobody"
    listing(tuple(lines.items()))
    if facts.get("levels"):
        print("\nIts queue, level by level (with its next members counted in):")
        table([_shown_level(level) for level in facts["levels"]], ("queue", "owed", "priority", "share"))
    if facts.get("keys"):
        print("\nInside its queue:")
        table([{"by": one["by"], "means": one["means"]} for one in facts["keys"]], ("by", "means"))


def _shown_level(level: Facts) -> Facts:
    over = ", ".join(f"{value} {name}" for name, value in level["over"].items())
    return {
        "queue": level["queue"],
        "owed": "within" if level["withinOwed"] else f"over by {over}",
        "priority": level["priority"],
        "share": "of nothing" if level["share"] is None else level["share"],
    }
