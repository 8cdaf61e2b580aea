"""Running groups whose queue takes no part any more: its object is gone, or there is something wrong with it.

Decided here: that their objects say so although they run, in the words in which a waiting group of that queue would be
told, and that nothing else about them changes. What others may take of them is decided by `rights`.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.framework.session import Session
from scheduler.model.verdict import Verdict


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
    return found
