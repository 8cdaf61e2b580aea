"""`muster share`: the tree of queues with what each is owed, holds, borrows, and what its past does to its weight.

Decided here: how it reads. The numbers are those of a session on the cluster as it is (`picture`), and not of the
queues' status, so that they are there also where no scheduler runs.
"""

from __future__ import annotations

from typing import Any

from scheduler.cli.output import NOT_FOUND, OK, complain, emit, hint, note, table
from scheduler.cli.picture import Picture, Source, with_picture
from scheduler.framework.shares import standings
from scheduler.model.quantity import format_amount
from scheduler.model.queues import WEIGHT_UNIT
from scheduler.model.shares import GONE, Share, Standing

Row = dict[str, Any]
COLUMNS = (
    *("queue", "resource", "guarantee", "deserved", "limit", "used", "waiting", "entitled", "borrowed"),
    *("weight", "decayed", "factor"),
)
_SECONDS = 3600.0


def show(queue: str | None, source: Source, output: str) -> int:
    """Print the tree, or one queue with what is below it; exit code."""

    def work(picture: Picture, _: str) -> int:
        found = standings(picture.session())
        chosen = _below(found, queue) if queue is not None else found
        if not chosen:
            complain(f"there is no queue {queue}{hint(str(queue), (one.name for one in found))}")
            return NOT_FOUND
        if output in ("json", "yaml"):
            emit([_document(one) for one in chosen], (), output)
            return OK
        rows = [row for one in chosen for row in _rows(one, chosen[0].depth)]
        table(rows, [name for name in COLUMNS if name not in ("decayed", "factor") or any(row[name] for row in rows)])
        for one in chosen:
            if one.fault:
                note(f"queue {one.name} takes no part: {one.fault}")
        return OK

    return with_picture(source, work)


def _below(found: tuple[Standing, ...], name: str) -> tuple[Standing, ...]:
    wanted = name.strip("/").rpartition("/")[2]
    first = next((number for number, one in enumerate(found) if one.name == wanted), None)
    if first is None:
        return ()
    last = first + 1
    while last < len(found) and found[last].depth > found[first].depth:
        last += 1
    return found[first:last]


def _amount(resource: str, value: int | None) -> str:
    return "unlimited" if value is None else format_amount(resource, value)


def _document(one: Standing) -> Row:
    said = {"fault": one.fault} if one.fault else {}
    return {
        "name": one.name,
        "parent": one.parent,
        "state": one.state,
        "priority": one.priority,
        **said,
        "resources": {share.resource: _facts(share) for share in one.shares},
    }


def _facts(share: Share) -> Row:
    """Amounts as text, as in manifests; decayed usage in resource seconds, as in the queue's status."""
    name = share.resource
    shown = {
        "guarantee": share.guarantee, "deserved": share.deserved, "limit": share.limit, "used": share.used,
        "waiting": share.waiting, "entitled": share.entitled, "owed": share.owed, "borrowed": share.borrowed,
    }  # fmt: skip
    past: Row = {}
    if share.decayed is not None:
        past = {
            "decayed": share.decayed,
            "usedShare": share.used_share,
            "factor": share.factor,
        }
    return {key: _amount(name, value) for key, value in shown.items()} | {"weight": share.weight / WEIGHT_UNIT} | past


def _rows(one: Standing, above: int) -> list[Row]:
    """One line for each resource; the queue is named once, indented below those above it."""
    indent = "  " * (one.depth - above)
    state = "" if one.state == "Open" else f" ({one.state})"
    state = " (takes no part)" if one.fault and one.state != GONE else state
    named = f"{indent}{one.name}{state}"
    if not one.shares:
        return [dict.fromkeys(COLUMNS, "") | {"queue": named}]
    return [
        {key: value for key, value in _facts(share).items() if key in COLUMNS}
        | {"queue": named if number == 0 else indent, "resource": share.resource}
        | {
            "weight": f"{share.weight / WEIGHT_UNIT:g}",
            "decayed": "" if share.decayed is None else f"{format_amount(share.resource, _hours(share))} h",
            "factor": "" if share.factor is None else f"{share.factor:g}",
        }
        for number, share in enumerate(one.shares)
    ]


def _hours(share: Share) -> int:
    return round((share.decayed or 0) / _SECONDS)
