"""Rules about domains that no cluster could keep together: at most so many in each domain, and all in too few of them.

Decided here: only what follows from the rules and the minimums is a contradiction. What depends on which nodes there
are is not, since other nodes can help; nor what is asked of a part that others can start instead of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scheduler.framework.protocols import ApartDomains, FewDomains, PartsApart, Sized, Wish, WithinDomain
from scheduler.framework.subgroups import is_under
from scheduler.framework.topology_tree import Domains
from scheduler.model.groups import PodGroup, SubGroup


def contradiction(
    group: PodGroup, wishes: Sequence[Wish], domains: Domains
) -> tuple[ApartDomains | PartsApart, str] | None:
    """Return the first rule that keeps members or parts apart which another rule contradicts, and how; else None."""
    for wish in wishes:
        if isinstance(wish, ApartDomains) and has_to_start(wish.part, group):
            why = _of_members(group, wish, wishes, domains)
        elif isinstance(wish, PartsApart):
            why = _of_parts(group, wish, wishes, domains)
        else:
            continue
        if why:
            return wish, why
    return None


def _of_members(group: PodGroup, wish: ApartDomains, wishes: Sequence[Wish], domains: Domains) -> str:
    level = _name(wish.label, domains)
    least = _members(group, wish.part)
    for most, rule in _confined(wish.label, wish.part, wishes, domains):
        if most * wish.limit < least:
            return f"at most {wish.limit} in each {level} leaves room for {most * wish.limit} of {least}, by {rule}"
    for other in wishes:
        if isinstance(other, Sized) and other.part == wish.part and _is_inside(other.label, wish.label, domains):
            narrow = _name(other.label, domains)
            if other.size > wish.limit:
                return f"at most {wish.limit} in each {level}, but {other.size} in one {narrow}, by segments"
    return ""


def _of_parts(group: PodGroup, wish: PartsApart, wishes: Sequence[Wish], domains: Domains) -> str:
    above = {path.rpartition("/")[0] for path in wish.parts}
    if len(above) != 1:
        return ""
    part = above.pop()
    siblings = [one for one in group.subgroups if one.above == part]
    own = next((one.min_subgroups for one in group.subgroups if one.path == part), group.min_subgroups)
    least = len(siblings) if own is None else own
    if not has_to_start(part, group):
        return ""
    # Those that need nothing, or that may be anywhere, count first.
    least -= sum(one.path not in wish.parts or not _starts(one, group) for one in siblings)
    for most, rule in _confined(wish.label, part, wishes, domains):
        if most * wish.limit < least:
            level = _name(wish.label, domains)
            apart = f"each in a {level} of its own" if wish.limit == 1 else f"at most {wish.limit} in each {level}"
            wanted = f"{least} sub-groups start together, {apart}"
            return f"{wanted}, which leaves room for {most * wish.limit}, by {rule}"
    return ""


def has_to_start(part: str, group: PodGroup) -> bool:
    """Whether the minimum of the group takes a part: where some of several suffice, the others can start instead."""
    while part:
        above = part.rpartition("/")[0]
        siblings = [one for one in group.subgroups if one.above == above]
        least = next((one.min_subgroups for one in group.subgroups if one.path == above), group.min_subgroups)
        if least is not None and least < len(siblings):
            return False
        part = above
    return True


def _starts(part: SubGroup, group: PodGroup) -> bool:
    """Whether a part has members when its minimum is met."""
    below = [one for one in group.subgroups if one.above == part.path]
    return part.min_subgroups != 0 if below else part.min_member > 0


def _members(group: PodGroup, part: str) -> int:
    """Return how many members of the group, or of a part of it, start together."""
    return next((one.min_member for one in group.subgroups if one.path == part), group.min_member)


def _confined(label: str, part: str, wishes: Sequence[Wish], domains: Domains) -> Iterator[tuple[int, str]]:
    """Yield in how many domains of a level the members of a part are at most, and the rule that says so."""
    for wish in wishes:
        if not isinstance(wish, WithinDomain | FewDomains) or not is_under(part, wish.part):
            continue
        if not _is_inside(wish.label, label, domains):
            continue
        name = _name(wish.label, domains)
        if isinstance(wish, FewDomains):
            yield wish.limit, f"atMostDomains {wish.limit} of {name}"
        elif wish.required:
            yield 1, f"required {name}"


def _is_inside(label: str, other: str, domains: Domains) -> bool:
    """Whether every domain of a level is in one domain of the other."""
    return label == other or other in domains.wider(label)


def _name(label: str, domains: Domains) -> str:
    found = domains.level(label)
    return found.name if found is not None else label
