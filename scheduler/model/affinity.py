"""What a pod spec says about other pods: selectors, affinity terms, spread constraints, host ports. Values only.

Decided here: the resolved form. `matchLabelKeys` and `mismatchLabelKeys` are already merged into the label selector, an
absent namespace list is already the pod's own namespace, so equal values mean the same pods whoever carries them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression: In, NotIn, Exists, DoesNotExist, Gt, Lt over a label or, in matchFields, a field."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements (In, NotIn, Exists, DoesNotExist) hold; without any it matches everything."""

    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods whose labels match, in one of the namespaces or in one whose own labels match `namespace_selector`.

    labels None: no pod. namespace_selector None: only the namespaces listed. living: pods being deleted do not count.
    """

    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    labels: LabelSelector | None = None
    living: bool = False


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Pods, and the node label whose domains are meant (`topologyKey`)."""

    selector: PodSelector
    key: str


@dataclass(frozen=True, slots=True)
class WeightedPodTerm:
    """A preferred term; weight 1 to 100, negative where the pod would rather be away from them."""

    weight: int
    term: PodTerm


@dataclass(frozen=True, slots=True)
class SpreadTerm:
    """A topology spread constraint. hard: DoNotSchedule. honor_...: nodeAffinityPolicy, nodeTaintsPolicy."""

    selector: PodSelector
    key: str
    max_skew: int = 1
    min_domains: int = 1
    hard: bool = True
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that a pod claims; ip "0.0.0.0" is every address."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"

    def conflicts(self, other: HostPort) -> bool:
        """Whether both cannot be on one node."""
        anywhere = "0.0.0.0" in (self.ip, other.ip)
        return self.port == other.port and self.protocol == other.protocol and (anywhere or self.ip == other.ip)
