"""Domains and sub-groups as objects state them: what the dialects that have such fields share.

Decided here: which labels and annotations of a pod (or of an owner with a minimum) say where its group runs, and which
of them wins (Muster's, Kueue's while Kueue itself is not at work, KAI's, Volcano's; that of JobSet goes along with any
of them); how a tree of sub-groups is read and what makes one unusable. A wrong field is a `Problem` naming it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from scheduler.dialects.base import Reader
from scheduler.dialects.membership import Keys, role
from scheduler.dialects.neighbours import SelectorStruct, label_selector
from scheduler.model.affinity import LabelSelector
from scheduler.model.groups import SubGroup
from scheduler.model.pods import Problem
from scheduler.model.wishes import NARROWEST, PodWish, TopologyWish

MAX_DEPTH = 8
_KUEUE = "metadata.annotations[kueue.x-k8s.io/podset-"
_KAI = "metadata.annotations[kai.scheduler/"
_VOLCANO = "metadata.annotations[volcano.sh/network-topology-"
_MUSTER = "metadata.annotations[scheduling.muster.sh/topology-required]"
_EXCLUSIVE = "metadata.annotations[alpha.jobset.sigs.k8s.io/exclusive-topology]"


# -- labels and annotations -------------------------------------------------------------------------------------------


def pod_wish(labels: Keys, annotations: Keys, problems: list[Problem]) -> PodWish | None:
    """Return what a pod or an owner says about domains, or None."""
    found = _muster(labels, annotations) or _kueue(labels, annotations, problems)
    found = found or _kai(annotations, problems) or _volcano(annotations, problems)
    exclusive = annotations.exclusive_topology
    if not exclusive:
        return found
    wish = found.wish if found is not None else TopologyWish()
    required = wish.required or exclusive
    field = wish.field if wish.required else _EXCLUSIVE
    own = TopologyWish(wish.name, required, wish.preferred, field, segments=wish.segments, exclusive=exclusive)
    return PodWish(own, labels.job_key or (found.podset if found is not None else ""))


def _muster(labels: Keys, annotations: Keys) -> PodWish | None:
    required = annotations.topology_required or labels.topology_required
    preferred = annotations.topology_preferred or labels.topology_preferred
    if not required and not preferred:
        return None
    return PodWish(TopologyWish(required=required, preferred=preferred, field=_MUSTER))


def _kueue(labels: Keys, annotations: Keys, problems: list[Problem]) -> PodWish | None:
    if labels.kueue_tas or annotations.kueue_workload:
        return None  # Kueue has chosen the domains itself and says so by node selectors
    required, preferred = annotations.kueue_required, annotations.kueue_preferred
    if required and preferred:
        problems.append(Problem(f"{_KUEUE}preferred-topology]", "must not stand beside a required topology"))
    segments = _slices(annotations, problems)
    if not required and not preferred and not segments:
        return None
    sizes = "slice-required-topology-constraints]" if annotations.kueue_slices else "slice-size]"
    wish = TopologyWish(
        required=required,
        preferred=preferred,
        field=f"{_KUEUE}required-topology]",
        segments=segments,
        sizes_field=f"{_KUEUE}{sizes}" if segments else "",
    )
    return PodWish(wish, annotations.kueue_group or role(labels, annotations) or labels.replicated_job)


def _slices(annotations: Keys, problems: list[Problem]) -> tuple[tuple[int, str], ...]:
    if annotations.kueue_slices:
        return _layers(annotations.kueue_slices, problems)
    if not annotations.kueue_slice_level:
        if annotations.kueue_slice_size:
            problems.append(Problem(f"{_KUEUE}slice-required-topology]", "must be there beside slice-size"))
        return ()
    size = _size(annotations.kueue_slice_size, f"{_KUEUE}slice-size]", problems)
    return ((size, annotations.kueue_slice_level),) if size else ()


def _layers(text: str, problems: list[Problem]) -> tuple[tuple[int, str], ...]:
    field = f"{_KUEUE}slice-required-topology-constraints]"
    try:
        layers = msgspec.json.decode(text, type=list[dict[str, str | int]])
    except msgspec.DecodeError as bad:
        problems.append(Problem(field, f"is not a list of constraints: {bad}"))
        return ()
    found = []
    for layer in layers:
        size = _size(str(layer.get("size", "")), field, problems)
        level = layer.get("topology", "")
        if size and isinstance(level, str) and level:
            found.append((size, level))
    return tuple(found)


def _size(text: str, field: str, problems: list[Problem]) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not number:
        problems.append(Problem(field, f"must be a whole number of at least 1, not {text!r}"))
    return number


def _kai(annotations: Keys, problems: list[Problem]) -> PodWish | None:
    segments: tuple[tuple[int, str], ...] = ()
    if annotations.kai_segment_level:
        size = _size(annotations.kai_segment_size, f"{_KAI}segment-size]", problems)
        segments = ((size, annotations.kai_segment_level),) if size else ()
    elif annotations.kai_segment_size and not annotations.kai_segment_wish:
        problems.append(Problem(f"{_KAI}segment-topology-required-placement]", "must be there beside segment-size"))
    required, preferred = annotations.kai_required, annotations.kai_preferred
    if not required and not preferred and not segments:
        return None
    field = f"{_KAI}topology-required-placement]"
    return PodWish(TopologyWish(annotations.kai_topology, required, preferred, field, segments=segments))


def _volcano(annotations: Keys, problems: list[Problem]) -> PodWish | None:
    mode, tier = annotations.volcano_topology_mode, annotations.volcano_topology_tier
    if not mode and not tier:
        return None
    if mode not in ("", "hard", "soft"):
        problems.append(Problem(f"{_VOLCANO}mode]", f"must be hard or soft, not {mode!r}"))
    if mode == "soft":
        return PodWish(TopologyWish(name="volcano", preferred=f"tier {tier}" if tier else NARROWEST))
    number = _size(tier, f"{_VOLCANO}highest-tier]", problems)
    wish = TopologyWish("volcano", f"tier {number}", NARROWEST, f"{_VOLCANO}highest-tier]")
    return PodWish(wish) if number else None


# -- fields -----------------------------------------------------------------------------------------------------------


def selector_of(spec: Reader, name: str) -> LabelSelector | None:
    """Read a label selector; None where there is none or it cannot be used."""
    value = spec.fields.get(name)
    if value is None:
        return None
    path = spec.at(name)
    try:
        struct = msgspec.convert(value, SelectorStruct)
    except msgspec.ValidationError as bad:
        spec.problems.append(Problem(path, f"is not a selector: {bad}"))
        return None
    return label_selector(struct, path, spec.problems)


def texts(spec: Reader, name: str) -> tuple[str, ...]:
    """Read a list of strings."""
    value = spec.fields.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        spec.problems.append(Problem(spec.at(name), "must be a list of strings"))
        return ()
    return tuple(dict.fromkeys(value))


def check_segments(segments: Sequence[tuple[int, str]], members: int, where: str, problems: list[Problem]) -> None:
    """Note where segments do not nest, or do not divide the members that start together."""
    whole = members
    of = "the minimum"
    for number, (size, _) in enumerate(segments):
        if whole and whole % size:
            problems.append(Problem(f"{where}[{number}].size", f"{size} does not divide {of} ({whole})"))
            return
        whole, of = size, "the segment around it"


def check_tree(subgroups: Sequence[SubGroup], least: int | None, path: str, problems: list[Problem]) -> None:
    """Note where more parts are needed than there are."""
    count: dict[str, int] = {}
    for one in subgroups:
        count[one.above] = count.get(one.above, 0) + 1
    _check_least(least, count.get("", 0), path, problems)
    for one in subgroups:
        if not one.keys and one.min_subgroups is not None:
            _check_least(one.min_subgroups, count.get(one.path, 0), f"{one.field}.minSubGroups", problems)


def _check_least(least: int | None, there: int, field: str, problems: list[Problem]) -> None:
    if least is not None and least > there:
        problems.append(Problem(field, f"is {least}, more than there are sub-groups ({there})"))


def in_order(subgroups: Iterable[SubGroup]) -> tuple[SubGroup, ...]:
    """Return sub-groups each behind the one above it, siblings as they came."""
    below: dict[str, list[SubGroup]] = {}
    for one in subgroups:
        below.setdefault(one.above, []).append(one)

    def listed(path: str) -> Iterable[SubGroup]:
        for one in below.get(path, ()):
            yield one
            yield from listed(one.path)

    return tuple(listed(""))
