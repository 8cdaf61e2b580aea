"""What is said of a group that waits, beyond its reason: what the next session would do, its turn, who keeps its place.

Decided here: the words, for `muster why` and the page alike. The facts are those of a session in which every action has
run; nothing of it is carried out.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.actions.ask import Ask
from scheduler.actions.barriers import barriers
from scheduler.actions.lineup import Turn
from scheduler.actions.steps import asked_again
from scheduler.framework.session import Session
from scheduler.model.barrier import Barrier
from scheduler.model.groups import GroupState
from scheduler.model.verdict import CAPACITY_CODES, Code, Verdict
from scheduler.observe import explain

NAMED = 3
_ROOM = CAPACITY_CODES | {Code.WAITING_FOR_QUOTA}
"""Verdicts against which eviction could help."""


def named(names: Sequence[str], most: int = NAMED) -> str:
    """Return the first `most` names and how many more there are; "" for none."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def placing(session: Session, key: str) -> str:
    """Return what the session decided to place of a group, "" where nothing."""
    places = session.placed_of.get(key, [])
    if not places:
        return ""
    pods = sum(len(place.assignments) for place in places)
    said = f"the next session would place {pods} {'pod' if pods == 1 else 'pods'} of it"
    victims = [f"{victim.namespace}/{victim.pod}" for place in places for victim in place.victims]
    if not victims:
        return said
    moved = sum(bool(victim.move_to) for place in places for victim in place.victims)
    gone = len(victims) - moved
    parts = [f"{gone} evicted" if gone else "", f"{moved} moved" if moved else ""]
    return f"{said}, with {' and '.join(part for part in parts if part)} before: {named(victims)}"


def order(session: Session, turn: Turn) -> str:
    """Return where a group stands, and behind whom."""
    ahead = [f"{one.group.namespace}/{one.group.name}" for one in turn.before]
    behind = f", behind {named(ahead)}" if ahead else ""
    queue = session.queue_of(turn.state)
    return f"{turn.position} of {turn.in_queue} in queue {queue}, {turn.in_all} of {turn.waiting} in all{behind}"


def obstacles(session: Session, state: GroupState, why: Verdict | None, actions: Sequence[str]) -> list[str]:
    """Return one line for each thing that keeps others from going for a group; none where room is not what it lacks.

    actions: those that are configured. Raises `HookRaised`.
    """
    if why is None or why.code not in _ROOM or why.permanent:
        return []
    ask = asked_again(session, state)
    if not isinstance(ask, Ask):
        return []
    found = barriers(session, ask.for_one() if ask.each else ask, tuple(actions))
    return in_lines(found)


def in_lines(found: Sequence[Barrier]) -> list[str]:
    """Return obstacles in words: where many queues are alike, those of the first, and names of the others."""
    alike: dict[tuple[str, str], list[Barrier]] = {}
    for one in found:
        alike.setdefault((one.action, one.kind), []).append(one)
    lines: list[str] = []
    for (action, _), some in alike.items():
        told = some if len(some) <= NAMED + 1 else some[:NAMED]
        lines += [f"{action}: {explain.barrier(one)}" for one in told]
        rest = [one.queue or ", ".join(one.who) for one in some[len(told) :]]
        others = "other queues" if some[0].queue else "others"
        lines += [f"{action}: the same of {len(rest)} {others}: {named(rest)}"] if rest else []
    return lines
