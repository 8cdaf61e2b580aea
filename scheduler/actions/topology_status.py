"""What the status of each topology object should say: how many domains and nodes there are, and what is wrong.

Decided here: that an object is only spoken of when that differs from what was last said of it. How often that becomes a
write, and in which words, is decided at the edge.
"""

from __future__ import annotations

from scheduler.framework.session import Session


def run(session: Session) -> None:
    """Say what differs."""
    facts, said = session.topology.facts, session.cache.wiring
    if facts is said:
        return
    for uid, status in facts.items():
        if said.get(uid) != status:
            session.say(status)
    session.cache.wiring = facts
