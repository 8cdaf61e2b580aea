"""Sub-groups that a running gang does not need: each may go as a whole while the gang lives on.

Decided here: of sub-groups of which more run than have to (K of N), any one may go with all its members, as far as the
minimum of the gang allows; one of a gang in one decision. Where it is one of several, the later ones are looked at
first, and so many of them as `_LOOKED_AT`. Who may go at all is decided by `rights`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from scheduler.actions.candidates import Candidate
from scheduler.actions.narrowing import WHOLE
from scheduler.actions.rights import Rights
from scheduler.framework.session import Session
from scheduler.framework.subgroups import is_under
from scheduler.model.parts import Part, tree_of
from scheduler.model.pods import held_together

_LOOKED_AT = 4


def by_parts(session: Session, rights: Rights) -> Iterator[Rights]:
    """Yield the rights with one spare sub-group in place of each gang that has some, choice after choice."""
    if not any(one.running.parted for one in rights.candidates):
        return
    if sum(len(one.pods) for one in rights.candidates) > WHOLE:
        return
    spare = [_spare(session, one) if one.running.parted else [] for one in rights.candidates]
    for choice in range(min(_LOOKED_AT, max(map(len, spare)))):
        chosen = tuple(
            parts[choice] if choice < len(parts) else one for one, parts in zip(rights.candidates, spare, strict=True)
        )
        yield replace(rights, chosen=chosen, parts=())


def _spare(session: Session, candidate: Candidate) -> list[Candidate]:
    """Return the sub-groups of a candidate that may go, each as a candidate that is nothing else."""
    running = candidate.running
    state = session.snapshot.groups[running.key]
    if len(running.pods) != len(state.bound):
        return []  # some are about to go: what is spare then is not known
    tree = tree_of(state)
    may_go = {pod.uid for pod in candidate.pods}
    found = []
    for part in _unneeded(tree.parts, tree.least):
        pods = tuple(pod for pod in running.pods if is_under(pod.part, part.path))
        fixed = any(is_under(pod.part, part.path) for pod in state.assumed)
        left = len(running.pods) + running.fixed - len(pods)
        if pods and not fixed and left >= running.minimum and all(pod.uid in may_go for pod in pods):
            minimum = len(pods) if part.parts else max(1, part.minimum)
            held = held_together(pods, session.snapshot.shapes)
            alone = replace(running, pods=pods, minimum=minimum, roles=(), fixed=0, held=held)
            found.append(Candidate(alone, pods))
    return found


def _unneeded(parts: Sequence[Part], least: int) -> Iterator[Part]:
    """Yield the sub-groups that run and of which one may go, the later ones first, outer ones before inner ones."""
    if sum(part.met for part in parts) > least:
        yield from (part for part in reversed(parts) if part.started and part.met)
    for part in reversed(parts):
        if part.started and part.parts:
            yield from _unneeded(part.parts, part.least)
