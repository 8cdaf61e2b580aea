"""The lines of a bind request: members, claims and victims as text, and back again.

Decided here: the words of each line. A text, because the API server takes an object for each line apart at every write
of the status. No name of an object has a space in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote, unquote

from scheduler.model.decisions import Assignment, Mark, Victim
from scheduler.model.podvolumes import VolumeStep

MADE = "-"
"""In place of a volume's name: one is made for the claim. No object has this name."""
NONE = "-"
"""In place of a word of a victim's line that is empty."""


class BadRequest(ValueError):
    """An object that is no BindRequest; the message names the object and the field."""


def member_line(namespace: str, assignment: Assignment) -> str:
    """Return the line of a member; namespace: that of its group."""
    words = [assignment.pod, assignment.uid, assignment.node]
    if assignment.namespace != namespace:
        words.append(assignment.namespace)
    if assignment.mark is not None:
        words.append(_mark_word(assignment.mark))
    return " ".join(words)


def _mark_word(mark: Mark) -> str:
    """Return rank=N,LEVEL=DOMAIN,...; what is no letter of a name in a level or a domain is written as %XX."""
    pairs = [("rank", str(mark.rank))] if mark.rank >= 0 else []
    pairs += [(f"in:{level}", domain) for level, domain in mark.domains]
    return ",".join(f"{quote(name, safe=':/')}={quote(value, safe='/')}" for name, value in pairs)


def _read_mark(word: str) -> Mark | None:
    """Return what a word says, None where it says nothing that is understood."""
    pairs = [pair.partition("=") for pair in word.split(",")]
    ranks = [value for name, _, value in pairs if name == "rank"]
    if len(ranks) > 1 or not all(rank.isascii() and rank.isdigit() and len(rank) < 10 for rank in ranks):
        return None
    if not all(name == "rank" or (name.startswith("in:") and sign) for name, sign, _ in pairs):
        return None
    domains = tuple((unquote(name[3:]), unquote(value)) for name, _, value in pairs if name.startswith("in:"))
    return Mark(int(ranks[0]) if ranks else -1, domains)


def claim_line(namespace: str, step: VolumeStep) -> str:
    """Return the line of a claim; namespace: that of the group."""
    was = "kept" if step.kept else "new"
    line = f"{step.uid} {step.claim} {step.claim_uid} {step.volume or MADE} {was}"
    return line if step.namespace == namespace else f"{line} {step.namespace}"


def victim_line(victim: Victim) -> str:
    """Return the line of a victim."""
    asked = ",".join(f"{name}={amount}" for name, amount in victim.requests)
    who = (victim.pod, victim.namespace, victim.uid, victim.node, victim.group, victim.why, str(victim.grace))
    return " ".join(word or NONE for word in (*who, victim.move_to, victim.owner, asked, victim.holder))


def read_members(where: str, namespace: str, text: str) -> Iterator[Assignment]:
    """Yield members. where: the request and gang that are read. Raises `BadRequest`, as do the others."""
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        mark = _read_mark(words.pop()) if len(words) > 3 and "=" in words[-1] else None
        if len(words) not in (3, 4) or (mark is None and "=" in line):
            raise BadRequest(
                f"{where}.placements: line {number} must be: pod uid node [namespace] [mark]; it is {line!r:.100}"
            )
        pod, uid, node = words[:3]
        if uid in seen:
            raise BadRequest(f"{where}.placements: line {number}: uid {uid:.100} is there already")
        seen.add(uid)
        yield Assignment(uid, words[3] if len(words) == 4 else namespace, pod, node, mark)


def read_claims(where: str, namespace: str, text: str) -> Iterator[VolumeStep]:
    """Yield what is done about claims."""
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if len(words) not in (5, 6) or words[4] not in ("kept", "new"):
            raise BadRequest(
                f"{where}.volumes: line {number} must be: uid claim claim-uid volume kept|new [namespace]; "
                f"it is {line!r:.100}"
            )
        uid, claim, claim_uid, volume, was = words[:5]
        volume = "" if volume == MADE else volume
        yield VolumeStep(uid, words[5] if len(words) == 6 else namespace, claim, claim_uid, volume, was == "kept")


_VICTIM = "pod namespace uid node group why grace move-to owner requests holder"
_ASKED = re.compile(r"[^=,]+=\d+(,[^=,]+=\d+)*|")


def read_victims(where: str, text: str) -> Iterator[Victim]:
    """Yield victims."""
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        words = ["" if word == NONE else word for word in line.split(" ", 10)]
        if len(words) != 11 or not words[6].isdecimal() or not _ASKED.fullmatch(words[9]):
            raise BadRequest(f"{where}.victims: line {number} must be: {_VICTIM}; it is {line!r:.100}")
        pod, namespace, uid, node, group, why, grace, move_to, owner, asked, holder = words
        if uid in seen:
            raise BadRequest(f"{where}.victims: line {number}: uid {uid:.100} is there already")
        seen.add(uid)
        amounts = (amount.split("=") for amount in asked.split(",") if amount)
        requests = tuple((name, int(amount)) for name, amount in amounts)
        yield Victim(uid, namespace, pod, node, group, holder, why, int(grace), move_to, owner, requests)
