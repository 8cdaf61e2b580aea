"""What a pod spec says about other pods, resolved: affinity, anti-affinity, spread constraints, host ports.

Decided here: own namespaces, merged `matchLabelKeys`, defaults, and what is wrong with a term. A term that cannot be
used is left out of the shape and is a problem of its field, for which the pod waits. What Kubernetes' own API server
has merged already merges to the same value again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from scheduler.dialects.meta import Int64
from scheduler.model.affinity import (
    HostPort,
    LabelSelector,
    PodSelector,
    PodTerm,
    Requirement,
    SpreadTerm,
    WeightedPodTerm,
)
from scheduler.model.pods import Problem

Labels = tuple[tuple[str, str], ...]
T = TypeVar("T")

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TO_OTHERS = (b'"podAffinity"', b'"podAntiAffinity"')
_LIMIT = 2**31 - 1


class RequirementStruct(msgspec.Struct, gc=False):
    """One expression of a selector."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class SelectorStruct(msgspec.Struct, gc=False, rename="camel"):
    """A LabelSelector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[RequirementStruct] | None = None


class _TermStruct(msgspec.Struct, gc=False, rename="camel"):
    topology_key: str = ""
    label_selector: SelectorStruct | None = None
    namespaces: list[str] | None = None
    namespace_selector: SelectorStruct | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class _WeightedStruct(msgspec.Struct, gc=False, rename="camel"):
    weight: Int64 = 0
    pod_affinity_term: _TermStruct | None = None


class PodAffinityStruct(msgspec.Struct, gc=False):
    """spec.affinity.podAffinity or podAntiAffinity."""

    required: list[_TermStruct] | None = msgspec.field(name=REQUIRED, default=None)
    preferred: list[_WeightedStruct] | None = msgspec.field(name=PREFERRED, default=None)


class _SpreadStruct(msgspec.Struct, gc=False, rename="camel"):
    topology_key: str = ""
    max_skew: Int64 = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: SelectorStruct | None = None
    min_domains: Int64 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class PortStruct(msgspec.Struct, gc=False, rename="camel"):
    """A container port."""

    container_port: Int64 | None = None
    host_port: Int64 | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(name="hostIP", default=None)


_spread = msgspec.json.Decoder(list[_SpreadStruct] | None)


def speaks_of_others(affinity: bytes, spread: bytes) -> bool:
    """Whether raw parts of a spec may name other pods, so that namespace and labels of the pod itself matter."""
    return bool(spread) or any(word in affinity for word in _TO_OTHERS)


class Terms:
    """The terms of one pod spec; what cannot be used is added to `problems`."""

    def __init__(self, namespace: str, labels: Labels, problems: list[Problem]) -> None:
        self._namespace, self._labels, self._problems = namespace, dict(labels), problems

    def required(self, affinity: PodAffinityStruct | None, path: str) -> tuple[PodTerm, ...]:
        """Return the required terms, in an order of their own."""
        found = set()
        for i, struct in enumerate((affinity.required if affinity else None) or ()):
            term = self._term(struct, f"{path}.{REQUIRED}[{i}]")
            if term is not None:
                found.add(term)
        return _ordered(found)

    def preferred(self, affinity: PodAffinityStruct | None, path: str, sign: int) -> list[WeightedPodTerm]:
        """Return the preferred terms, weights multiplied by `sign`."""
        found = []
        for i, struct in enumerate((affinity.preferred if affinity else None) or ()):
            where = f"{path}.{PREFERRED}[{i}]"
            if not 1 <= struct.weight <= 100:
                self._say(f"{where}.weight", f"must be from 1 to 100, not {struct.weight}")
                continue
            term = self._term(struct.pod_affinity_term or _TermStruct(), f"{where}.podAffinityTerm")
            if term is not None:
                found.append(WeightedPodTerm(sign * struct.weight, term))
        return found

    def spread(self, raw: bytes) -> tuple[SpreadTerm, ...]:
        """Return the spread constraints of spec.topologySpreadConstraints."""
        found = set()
        for i, struct in enumerate((_spread.decode(raw) if raw else None) or ()):
            term = self._constraint(struct, f"spec.topologySpreadConstraints[{i}]")
            if term is not None:
                found.add(term)
        return _ordered(found)

    def _say(self, field: str, message: str) -> None:
        self._problems.append(Problem(field, message))

    def _term(self, struct: _TermStruct, path: str) -> PodTerm | None:
        if not struct.topology_key:
            self._say(f"{path}.topologyKey", "is missing")
            return None
        labels = label_selector(struct.label_selector, f"{path}.labelSelector", self._problems)
        others = label_selector(struct.namespace_selector, f"{path}.namespaceSelector", self._problems)
        if labels is UNUSABLE or others is UNUSABLE:
            return None
        if labels is not None:
            labels = self._merged(labels, struct.match_label_keys, "In")
            labels = self._merged(labels, struct.mismatch_label_keys, "NotIn")
        namespaces = tuple(sorted(set(struct.namespaces or ())))
        if not namespaces and others is None:
            namespaces = (self._namespace,)
        return PodTerm(PodSelector(namespaces, others, labels), struct.topology_key)

    def _constraint(self, struct: _SpreadStruct, path: str) -> SpreadTerm | None:
        before = len(self._problems)
        if not struct.topology_key:
            self._say(f"{path}.topologyKey", "is missing")
        if not 1 <= struct.max_skew <= _LIMIT:
            self._say(f"{path}.maxSkew", f"must be at least 1, not {struct.max_skew}")
        if struct.min_domains is not None and not 1 <= struct.min_domains <= _LIMIT:
            self._say(f"{path}.minDomains", f"must be at least 1, not {struct.min_domains}")
        for name, value, known in (
            ("whenUnsatisfiable", struct.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway")),
            ("nodeAffinityPolicy", struct.node_affinity_policy, (None, "Honor", "Ignore")),
            ("nodeTaintsPolicy", struct.node_taints_policy, (None, "Honor", "Ignore")),
        ):
            if value not in known:
                self._say(f"{path}.{name}", f"must be {' or '.join(word for word in known if word)}, not {value!r}")
        labels = label_selector(struct.label_selector, f"{path}.labelSelector", self._problems)
        if len(self._problems) > before:
            return None
        if labels is not None:
            labels = self._merged(labels, struct.match_label_keys, "In")
            # Where affinity lets an empty selector match every pod, kube-scheduler counts none for a spread.
            labels = labels if labels.requirements else None
        hard = struct.when_unsatisfiable == "DoNotSchedule"
        return SpreadTerm(
            selector=PodSelector((self._namespace,), None, labels, living=True),
            key=struct.topology_key,
            max_skew=struct.max_skew,
            min_domains=(struct.min_domains or 1) if hard else 1,
            hard=hard,
            honor_affinity=struct.node_affinity_policy != "Ignore",
            honor_taints=struct.node_taints_policy == "Honor",
        )

    def _merged(self, selector: LabelSelector, keys: Sequence[str] | None, operator: str) -> LabelSelector:
        more = {Requirement(key, operator, (self._labels[key],)) for key in keys or () if key in self._labels}
        return LabelSelector(_ordered(more.union(selector.requirements))) if more else selector


UNUSABLE = LabelSelector((Requirement("", "bad"),))
"""What is returned for a selector with an expression that cannot be used; it matches nothing."""


def label_selector(struct: SelectorStruct | None, path: str, problems: list[Problem]) -> LabelSelector | None:
    """Return a selector, None where there is none, `UNUSABLE` (and why, in `problems`) where it cannot be used."""
    if struct is None:
        return None
    needs = {Requirement(key, "In", (value,)) for key, value in (struct.match_labels or {}).items()}
    before = len(problems)
    for i, one in enumerate(struct.match_expressions or ()):
        where = f"{path}.matchExpressions[{i}]"
        values = tuple(sorted(set(one.values or ())))
        wants = one.operator in ("In", "NotIn")
        if not one.key:
            problems.append(Problem(f"{where}.key", "is missing"))
        elif not wants and one.operator not in ("Exists", "DoesNotExist"):
            wish = f"must be In, NotIn, Exists or DoesNotExist, not {one.operator!r}"
            problems.append(Problem(f"{where}.operator", wish))
        elif wants != bool(values):
            wish = f"must {'not be empty' if wants else 'be empty'} for {one.operator}"
            problems.append(Problem(f"{where}.values", wish))
        else:
            needs.add(Requirement(one.key, one.operator, values))
    return UNUSABLE if len(problems) > before else LabelSelector(_ordered(needs))


def _ordered(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(sorted(values, key=repr))


def host_ports(containers: Iterable[Sequence[PortStruct]], *, host_network: bool) -> tuple[HostPort, ...]:
    """Return the ports of the node that containers claim; on the host's network every container port is one."""
    found = set()
    for ports in containers:
        for one in ports:
            number = one.host_port or (one.container_port if host_network else None)
            if number and number > 0:
                found.add(HostPort(number, one.protocol or "TCP", one.host_ip or "0.0.0.0"))
    return _ordered(found)


def port_key(ports: Sequence[PortStruct] | None) -> tuple[Any, ...]:
    """Equal for ports that claim the same."""
    return tuple((one.container_port, one.host_port, one.protocol, one.host_ip) for one in ports or ())
