"""Which rules about other pods keep an ask out, when amounts alone would not: found by leaving them out in turn."""

from __future__ import annotations

from dataclasses import replace

from scheduler.actions.ask import Ask, likeness, relate
from scheduler.actions.placing import would_fit
from scheduler.framework.relations import NO_RELATIONS, Relations
from scheduler.framework.session import Session
from scheduler.framework.volume_rules import SHARED
from scheduler.model.rules import Follow, MemberRule, Repel, Spread
from scheduler.model.verdict import Verdict

_PORTS = "the requested host ports"
_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_NAMED = {
    "node(s) didn't have free ports for the requested pod ports": _PORTS,
    "node(s) didn't find available persistent volumes to bind": "the persistent volumes that are available",
    "node(s) did not have enough free storage": "the storage that is free",
    "node(s) exceed max volume count": "the volume limits of nodes",
    "node(s) had no available disk": "the disks that are in use",
    "node(s) had no available volume zone": "the zones of volumes",
    _IN_USE: "ReadWriteOncePod claims that are in use",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)": "volumes that do not exist",
}
"""What stands in the way, where the reason without its opening does not name it."""
_OPENINGS = ("node(s) didn't match ", "node(s) didn't satisfy ", "node(s) didn't have ", "node(s) ")


def binding(session: Session, ask: Ask, *, empty: bool = False, alone: bool = True) -> str:
    """Return the rules without which the ask would fit, in kube-scheduler's words; "" where rules are not the cause.

    alone: look for single rules that are the cause; else all are named, which takes no further search.
    """
    relations = relate(session, ask, empty=empty)
    if isinstance(relations, Verdict) or not relations:
        return ""
    key = ("binding", session.ledger.token, session.space, likeness(session, ask), relations.digest, empty, alone)
    known: str | None = session.cache.memo.get(key)
    if known is None:
        known = _binding(session, ask, relations, empty=empty, alone=alone)
        session.cache.memo.put(key, known)
    return known


def _binding(session: Session, ask: Ask, relations: Relations, *, empty: bool, alone: bool) -> str:
    if not would_fit(session, ask, NO_RELATIONS, empty=empty):
        return ""
    topics = topics_of(relations)
    causes = topics if alone and len(topics) > 1 else ()
    found = [topic for topic in causes if would_fit(session, ask, without(relations, topic), empty=empty)]
    return " or ".join(found) if found else " and ".join(topics)


def topics_of(relations: Relations) -> tuple[str, ...]:
    """Return what the relations are about, each once, sorted."""
    found = {_of_reason(bar.reason) for bar in relations.bars} | {_of_rule(rule) for rule in relations.rules}
    found |= {_of_reason(extra.reason) for extra in relations.extras}
    return tuple(sorted(found))


def without(relations: Relations, topic: str) -> Relations:
    """Return the relations less everything about one topic."""
    return replace(
        relations,
        bars=tuple(bar for bar in relations.bars if _of_reason(bar.reason) != topic),
        rules=tuple(rule for rule in relations.rules if _of_rule(rule) != topic),
        extras=tuple(
            replace(extra, needs=(0,) * len(extra.needs)) if _of_reason(extra.reason) == topic else extra
            for extra in relations.extras
        ),
    )


def _of_reason(reason: str) -> str:
    if reason in _NAMED:
        return _NAMED[reason]
    for opening in _OPENINGS:
        if reason.startswith(opening):
            return reason.removeprefix(opening).partition(" (")[0]
    return reason


def _of_rule(rule: MemberRule) -> str:
    match rule:
        case Repel():
            return "pod anti-affinity rules" if rule.level else _PORTS
        case Follow(levels) if not levels[0].startswith(SHARED):
            return "pod affinity rules"
        case Spread():
            return "pod topology spread constraints"
        case _:
            return "volumes that members share"
