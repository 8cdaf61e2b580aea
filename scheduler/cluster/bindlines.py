"""The lines of a bind request: members, claims and victims as text, and back again.

Decided here: the words of each line. A text, because the API server takes an object for each line apart at every write
of the status. No name of an object has a space in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from scheduler.model.decisions import Assignment, Victim
from scheduler.model.podvolumes import VolumeStep

MADE = "-"
"""In place of a volume's name: one is made for the claim. No object has this name."""
NONE = "-"
"""In place of a word of a victim's line that is empty."""


class BadRequest(ValueError):
    """An object that is no BindRequest; the message names the object and the field."""


def member_line(namespace: str, assignment: Assignment) -> str:
    """Return the line of a member; namespace: that of its group."""
    line = f"{assignment.pod} {assignment.uid} {assignment.node}"
    return line if assignment.namespace == namespace else f"{line} {assignment.namespace}"


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
        if len(words) not in (3, 4):
            raise BadRequest(
                f"{where}.placements: line {number} must be: pod uid node [namespace]; it is {line!r:.100}"
            )
        pod, uid, node = words[:3]
        if uid in seen:
            raise BadRequest(f"{where}.placements: line {number}: uid {uid:.100} is there already")
        seen.add(uid)
        yield Assignment(uid, words[3] if len(words) == 4 else namespace, pod, node)


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
