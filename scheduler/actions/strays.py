"""Running groups of which something is wrong all the same: their queue takes no part any more (its object is gone, or
there is something wrong with it), or one of their sub-groups selects no pod.

Decided here: that their objects say so although they run, a queue's fault in the words in which a waiting group would
be told, and that nothing else about them changes. What others may take of them is decided by `rights`.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.framework.gangs import is_running
from scheduler.framework.session import Session
from scheduler.model.verdict import Code, Verdict, verdict


def strays(session: Session) -> dict[str, Verdict]:
    """Return what to say of each, by group."""
    found: dict[str, Verdict] = {}
    for queue in session.book.tree.aside:
        for running in session.cache.residents.of_queue(queue):
            state = session.snapshot.groups.get(running.key)
            if state is None or not state.group.has_object:
                continue
            with session.guard(state):
                why = session.hooks.admits(state, session)
                if why is not None:
                    found[running.key] = replace(why, facts=tuple(sorted((*why.facts, ("runs", True)))))
    for key, state in session.snapshot.groups.items():
        if state.group.unmatched and key not in found and is_running(state):
            found[key] = verdict(Code.MISCONFIGURED, field=state.group.unmatched[0][1], message="matches no pod")
    return found
