"""Where a gang and its sub-groups run: what their objects say about domains becomes rules that placement keeps.

Decided here: which level each wish means, and what a preference is: the preferred level, and where that cannot be, each
wider one up to what is required. A level that is not there, or that no node carries, is said, not ignored: the
group waits, or the sub-group, where others can start instead. A domain in which another group is exclusive takes no
group that is exclusive there itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from plugins.exclusive import Claims, exclusive_wishes
from scheduler.framework.contradictions import contradiction, has_to_start
from scheduler.framework.protocols import (
    ApartDomains,
    Barred,
    EvenDomains,
    FewDomains,
    PartsApart,
    Sized,
    Unusable,
    View,
    Wish,
    WithinDomain,
)
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState, PodGroup
from scheduler.model.pods import Pod
from scheduler.model.verdict import Code, Verdict, verdict
from scheduler.model.wishes import NARROWEST, TopologyWish


class _Bad(Exception):
    """A wish that cannot be understood."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.message = field, message


class Topology:
    """See the module."""

    name = "topology"

    def __init__(self, arguments: Arguments) -> None:
        self._exclusive: dict[str, GroupState] = {}
        self._seen: object = None
        self._singles: list[Pod] = []
        self._claims: Claims | None = None

    def on_session(self, view: View) -> None:
        """Collect the groups, and the running single pods, that are exclusive somewhere."""
        self._exclusive = {key: state for key, state in view.snapshot.groups.items() if any(exclusive_wishes(state))}
        singles = view.snapshot.singles
        if singles is not self._seen:
            self._seen = singles
            pods = (pod for pod, _ in singles.values())
            self._singles = [pod for pod in pods if pod.wish is not None and pod.wish.wish.exclusive]
        self._claims = Claims(self._exclusive, self._singles, view) if self._exclusive else None

    def on_place(self, members: tuple[tuple[Pod, int], ...], view: View, *, undone: bool) -> None:
        """Bring up to date who holds which domain for itself."""
        if self._claims is not None:
            for pod, row in members:
                self._claims.placed(pod, row, view, undone=undone)

    def wishes(self, state: GroupState, view: View) -> tuple[Wish | Unusable, ...] | Verdict:
        """Return the rules about domains of the group and of its sub-groups."""
        group = state.group
        if group.topology is None and not any(one.topology for one in group.subgroups):
            return ()
        try:
            stated = tuple(dict.fromkeys(self._stated(state, view)))
            found = contradiction(group, [one for one in stated if not isinstance(one, Unusable)], view.topology)
            if found is not None:
                raise _Bad(_field_of(found[0], group, view), found[1])
            return stated
        except _Bad as bad:
            return verdict(Code.BAD_CONSTRAINTS, field=bad.field, message=bad.message)

    def _stated(self, state: GroupState, view: View) -> Iterator[Wish | Unusable]:
        names: dict[str, str] = {}
        unusable: set[str] = set()
        for part, wish in _wishes(state.group):
            name = names[part] = (wish.name if wish is not None else "") or names.get(part.rpartition("/")[0], "")
            if wish is None:
                continue
            try:
                yield from tuple(self._rules(state, part, wish, name, view))
            except _Bad as bad:
                if has_to_start(part, state.group):
                    raise
                unusable.add(part)
                yield Unusable(part, bad.field, bad.message)
        alone: dict[str, list[str]] = {}
        for part, wish in _wishes(state.group):
            if wish is not None and wish.exclusive and part and part not in unusable:
                alone.setdefault(_key(wish, names[part], wish.exclusive, _at(wish, "exclusive"), view), []).append(part)
        for level, parts in alone.items():
            if len(parts) > 1:
                yield PartsApart(level, tuple(parts))

    def _rules(self, state: GroupState, part: str, wish: TopologyWish, name: str, view: View) -> Iterator[Wish]:
        required = ""
        if wish.required:
            required = _key(wish, name, wish.required, wish.field, view)
            yield WithinDomain(required, required=True, part=part)
        for level, most in wish.at_most:
            yield FewDomains(_key(wish, name, level, _at(wish, "atMostDomains.level"), view), most, part)
        for number, (size, level) in enumerate(wish.segments):
            yield Sized(_key(wish, name, level, _at(wish, f"segments[{number}].level"), view), size, part)
        below = tuple(one.path for one in state.group.subgroups if one.above == part)
        for number, (level, most) in enumerate(wish.apart):
            key = _key(wish, name, level, _at(wish, f"apart[{number}].level"), view)
            if not below:
                yield ApartDomains(key, most, part)
            else:
                yield PartsApart(key, below, most)
        if wish.exclusive:
            level = _key(wish, name, wish.exclusive, _at(wish, "exclusive"), view)
            domains, holders = self._claims.beside(level, state) if self._claims is not None else ((), ())
            yield Barred(level, domains, part, holders)
        if wish.packed:
            _key(wish, name, wish.packed, _at(wish, "layout.level"), view)
        if wish.balanced:
            yield EvenDomains(_key(wish, name, wish.balanced, _at(wish, "layout.level"), view), part)
        for level in self._preferred(wish, name, required, _at(wish, "preferred"), view):
            yield WithinDomain(level, required=False, part=part)

    def _preferred(self, wish: TopologyWish, name: str, required: str, field: str, view: View) -> Iterator[str]:
        """Yield the levels of a preference, the narrowest first."""
        if not wish.preferred:
            return
        if wish.preferred == NARROWEST:
            tree = view.topology.trees.get(name)
            if tree is None or not tree.levels:
                return
            first = tree.levels[-1].key
        else:
            first = _key(wish, name, wish.preferred, field, view)
        for level in (first, *view.topology.wider(first)):
            if level == required or len(view.domains(level)[1]) <= 1:
                return
            yield level


def _wishes(group: PodGroup) -> Iterator[tuple[str, TopologyWish | None]]:
    yield "", group.topology
    for one in group.subgroups:
        yield one.path, one.topology


def _field_of(rule: ApartDomains | PartsApart, group: PodGroup, view: View) -> str:
    """Return the path of the field that keeps members or parts apart."""
    parts = {rule.part} if isinstance(rule, ApartDomains) else {path.rpartition("/")[0] for path in rule.parts}
    names = {part: wish.name for part, wish in _wishes(group) if wish is not None}
    for part, wish in _wishes(group):
        for number, (level, _) in enumerate(wish.apart if wish is not None else ()):
            assert wish is not None
            if part in parts and view.resolve(_named(names, part), level) == rule.label:
                return _at(wish, f"apart[{number}]")
    own = rule.parts if isinstance(rule, PartsApart) else ()
    return next(_at(wish, "exclusive") for part, wish in _wishes(group) if wish is not None and part in own)


def _named(names: dict[str, str], part: str) -> str:
    """Return the topology that a part names, or else the part above it."""
    while part and not names.get(part):
        part = part.rpartition("/")[0]
    return names.get(part, "")


_OF_KAI = {"name": "topology", "preferred": "preferredTopologyLevel"}


def _at(wish: TopologyWish, field: str) -> str:
    """Return the path of a field beside the one that says what is required."""
    base, found, rest = wish.field.rpartition(".required")
    if not found:
        return wish.field
    return f"{base}.{_OF_KAI.get(field, field) if rest == 'TopologyLevel' else field}"


def _key(wish: TopologyWish, name: str, level: str, field: str, view: View) -> str:
    found = view.resolve(name, level)
    if isinstance(found, str):
        return found
    raise _Bad(_at(wish, "name") if found.topology else field, found.message)
