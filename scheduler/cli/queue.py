"""`muster queue`: who waits, in the order in which they are looked at, with place, size and a short reason.

Decided here: how it reads. The order is that of a session on the cluster as it is (`picture`), before anything is
placed; the reason is the one that the scheduler wrote, cut to what fits beside the place; who takes no part in the
order (suspended, wrong, without members) stands behind the others of its queue, without a place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from scheduler.actions.lineup import lineup
from scheduler.cli.get import dialect_of, phase_of, waiting_reason
from scheduler.cli.output import NOT_FOUND, OK, age, complain, emit, hint, note, timestamp
from scheduler.cli.picture import Picture, Source, with_picture
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.quantity import format_amount
from scheduler.observe.explain import sentence

Row = dict[str, Any]
COLUMNS = ("pos", "group", "queue", "priority", "members", "wants", "age", "behind", "reason")
WIDE = (*COLUMNS[:4], "all", "step", "phase", "dialect", *COLUMNS[4:])
_UPSTREAM = re.compile(r"^\d+/\d+ nodes are available: .*?\. (?=[A-Z]\w+: )")
"""How a reason begins that autoscalers read; it says less than what follows."""
_SHORT = 64


def show(queue: str | None, source: Source, output: str) -> int:
    """Print who waits, of all queues or of one; exit code."""

    def work(picture: Picture, _: str) -> int:
        session = picture.session()
        rows = waiting(session)
        if queue is not None:
            wanted = queue.strip("/").rpartition("/")[2]
            known = {row["queue"] for row in rows} | set(session.book.tree.names)
            if wanted not in known:
                complain(f"there is no queue {queue}{hint(wanted, known)}")
                return NOT_FOUND
            rows = [row for row in rows if row["queue"] == wanted]
        if output in ("json", "yaml", "name"):
            emit(rows, (), output)
            return OK
        if not rows:
            note("nobody waits" + (f" in queue {queue}" if queue else ""))
            return OK
        emit([_shown(row, wide=output == "wide") for row in rows], WIDE if output == "wide" else COLUMNS, "table")
        return OK

    return with_picture(source, work)


def waiting(session: Session) -> list[Row]:
    """Return a row for each group that waits, queue by queue, in order; amounts as text, as in manifests."""
    line = [(step, state) for step, state in lineup(session)]
    placed = {state.key for _, state in line}
    apart = [state for key, state in session.waiting.items() if key not in placed and _lacks(session, state)]
    apart.sort(key=lambda state: (state.group.created, state.key))
    rows: list[Row] = []
    before: dict[str, list[GroupState]] = {}
    for place, (step, state) in enumerate(line, 1):
        ahead = before.setdefault(session.queue_of(state), [])
        rows.append(_row(session, state, step, len(ahead) + 1, place, ahead))
        ahead.append(state)
    rows += [_row(session, state, "", None, None, ()) for state in apart]
    return sorted(rows, key=lambda row: (row["queue"], row["position"] is None))


def _lacks(session: Session, state: GroupState) -> bool:
    return bool(state.waiting or state.gated or (state.key in session.verdicts and not state.placed))


def _row(
    session: Session, state: GroupState, step: str, position: int | None, place: int | None, ahead: Sequence[GroupState]
) -> Row:
    group = state.group
    why = session.verdicts.get(state.key)
    reason = sentence(why) if why is not None and position is None else waiting_reason(state)
    return {
        "namespace": group.namespace,
        "name": group.name,
        "dialect": dialect_of(group),
        "queue": session.queue_of(state),
        "position": position,
        "positionInAll": place,
        "step": step,
        "phase": "Suspended" if group.suspended and not state.placed else phase_of(state),
        "priority": state.priority,
        "bound": len(state.bound),
        "minimum": group.min_member,
        "waiting": len(state.waiting),
        "wants": {name: format_amount(name, value) for name, value in session.least_of(state)} if state.waiting else {},
        "behind": f"{ahead[-1].group.namespace}/{ahead[-1].group.name}" if ahead else "",
        "created": timestamp(group.created),
        "age": age(group.created),
        "reason": reason,
    }


def _shown(row: Row, *, wide: bool) -> Row:
    wants = row["wants"] if wide else {name: row["wants"][name] for name in _telling(row["wants"])}
    return row | {
        "pos": row["position"],
        "all": row["positionInAll"],
        "group": f"{row['namespace']}/{row['name']}",
        "members": f"{row['bound']}/{row['minimum']}",
        "wants": ",".join(f"{amount} {name.rpartition('/')[2]}" for name, amount in wants.items()),
        "reason": row["reason"] if wide else short(row["reason"]),
    }


def _telling(wants: dict[str, str]) -> list[str]:
    """Return the resources that say most: what is not on every node, else cpu and memory."""
    return [name for name in wants if "/" in name] or [name for name in ("cpu", "memory") if name in wants]


def short(reason: str) -> str:
    """Return the first clause of a reason, in a width that fits beside the other columns."""
    text = _UPSTREAM.sub("", reason).partition(";")[0]
    return text if len(text) <= _SHORT else text[: _SHORT - 3].rstrip() + "..."
