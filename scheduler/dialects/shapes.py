"""From the parts of a pod spec that can change where it may run to a `Shape`, once per distinct spec.

Decided here: what belongs to a shape, its canonical form and key, and which fields must hold but are not honoured by
this version. Not known here: names, owners, groups, state. Invariant: pods with equal specs get the same key, in
whatever order lists without a meaning of their own were written; a shape is built once, then found by the raw bytes.
Where a spec speaks of other pods, it means them as seen from its namespace and its labels, which are part of it then.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import Any

import msgspec

from scheduler.dialects import features
from scheduler.dialects.meta import Int64
from scheduler.dialects.neighbours import (
    PREFERRED,
    REQUIRED,
    Labels,
    PodAffinityStruct,
    PortStruct,
    RequirementStruct,
    Terms,
    host_ports,
    port_key,
    speaks_of_others,
)
from scheduler.dialects.requests import ContainerAsk, Exact, PodAsk, exact, requested, unstated
from scheduler.dialects.storage import VolumeStruct
from scheduler.model.affinity import Requirement
from scheduler.model.pods import PreferredTerm, Problem, SelectorTerm, Shape, Toleration

_CACHE_LIMIT = 8192
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_NULL = (b"", b"null", b"{}", b"[]")


class ResourcesStruct(msgspec.Struct, gc=False):
    """spec.resources of a pod or a container; only requests matter."""

    requests: msgspec.Raw = msgspec.Raw(b"")


class ContainerStruct(msgspec.Struct, gc=False, rename="camel"):
    """A container; `name` finds its status."""

    name: str = ""
    image: str | None = None
    resources: ResourcesStruct | None = None
    restart_policy: str | None = None
    ports: list[PortStruct] | None = None
    restart_policy_rules: msgspec.Raw = msgspec.Raw(b"")
    volume_mounts: msgspec.Raw = msgspec.Raw(b"")


class _TermStruct(msgspec.Struct, gc=False, rename="camel"):
    match_expressions: list[RequirementStruct] | None = None
    match_fields: list[RequirementStruct] | None = None


class _RequiredStruct(msgspec.Struct, gc=False, rename="camel"):
    node_selector_terms: list[_TermStruct] | None = None


class _PreferredStruct(msgspec.Struct, gc=False):
    weight: Int64 = 0
    preference: _TermStruct | None = None


class _NodeAffinityStruct(msgspec.Struct, gc=False):
    required: _RequiredStruct | None = msgspec.field(name=REQUIRED, default=None)
    preferred: list[_PreferredStruct] | None = msgspec.field(name=PREFERRED, default=None)


class _AffinityStruct(msgspec.Struct, gc=False, rename="camel"):
    node_affinity: _NodeAffinityStruct | None = None
    pod_affinity: PodAffinityStruct | None = None
    pod_anti_affinity: PodAffinityStruct | None = None


class _TolerationStruct(msgspec.Struct, gc=False):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class SpecStruct(msgspec.Struct, gc=False, rename="camel"):
    """spec of a pod: identity fields typed, what belongs to the shape raw, so that equal bytes are decoded once."""

    scheduler_name: str | None = None
    node_name: str | None = None
    priority: Int64 | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    containers: list[ContainerStruct] | None = None
    init_containers: list[ContainerStruct] | None = None
    ephemeral_containers: list[ContainerStruct] | None = None
    resources: ResourcesStruct | None = None
    volumes: list[VolumeStruct] | None = None
    scheduling_gates: list[msgspec.Raw] | None = None
    scheduling_group: msgspec.Raw = msgspec.Raw(b"")
    node_selector: msgspec.Raw = msgspec.Raw(b"")
    affinity: msgspec.Raw = msgspec.Raw(b"")
    tolerations: msgspec.Raw = msgspec.Raw(b"")
    topology_spread_constraints: msgspec.Raw = msgspec.Raw(b"")
    resource_claims: msgspec.Raw = msgspec.Raw(b"")
    overhead: msgspec.Raw = msgspec.Raw(b"")


_selector = msgspec.json.Decoder(dict[str, str] | None)
_affinity = msgspec.json.Decoder(_AffinityStruct | None)
_tolerations = msgspec.json.Decoder(list[_TolerationStruct] | None)
_mapping = msgspec.json.Decoder(dict[str, Any] | None)
_cache: dict[tuple[Any, ...], tuple[Shape, tuple[Problem, ...]]] = {}


def shape_of(
    spec: SpecStruct, extra: tuple[str, ...] = (), namespace: str = "", labels: Labels = ()
) -> tuple[Shape, tuple[Problem, ...]]:
    """Return the shape of a pod spec and what in it could not be used.

    `extra` are paths outside the spec that must hold but cannot be honoured; `namespace` and `labels` those of the pod.
    Raises `msgspec.DecodeError`.
    """
    spread = _bare(spec.topology_spread_constraints)
    seen_from = (namespace, labels) if speaks_of_others(bytes(spec.affinity), spread) else ("", ())
    needs = _needed_features(spec)
    key = (
        tuple(
            (bytes(c.resources.requests) if c.resources else b"", port_key(c.ports) if c.ports else None)
            for c in spec.containers or ()
        ),
        tuple(
            (
                bytes(c.resources.requests) if c.resources else b"",
                port_key(c.ports) if c.ports else None,
                c.restart_policy,
            )
            for c in spec.init_containers or ()
        ),
        bytes(spec.resources.requests) if spec.resources else b"",
        bytes(spec.node_selector),
        bytes(spec.affinity),
        bytes(spec.tolerations),
        spread,
        seen_from,
        spec.host_network,
        bytes(spec.resource_claims) not in _NULL,
        bytes(spec.overhead),
        needs,
        extra,
    )
    found = _cache.get(key)
    if found is None:
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        found = _cache[key] = _build(spec, extra, *seen_from, needs)
    return found


def _needed_features(spec: SpecStruct) -> tuple[str, ...]:
    regular = [*(spec.containers or ()), *(spec.init_containers or ())]
    mounting = regular if spec.ephemeral_containers is None else [*regular, *spec.ephemeral_containers]
    if spec.host_users is None:  # most pods need nothing, and that is found out for each of them
        for one in mounting:
            if one.restart_policy_rules or features.OPTIONS in bytes(one.volume_mounts):
                break
        else:
            return ()
    return features.needed(
        host_network=bool(spec.host_network),
        host_users=spec.host_users,
        rules=(one.restart_policy_rules for one in regular),
        mounts=(one.volume_mounts for one in mounting),
    )


def _bare(raw: msgspec.Raw) -> bytes:
    """Return a raw part, empty where it says nothing."""
    part = bytes(raw)
    return b"" if part in _NULL else part


def pod_ask(spec: SpecStruct, problems: list[Problem]) -> PodAsk:
    """Return what a spec asks for, without anything from a status."""
    return PodAsk(
        containers=tuple(_asks(spec.containers, "spec.containers", problems)),
        init_containers=tuple(_asks(spec.init_containers, "spec.initContainers", problems)),
        pod_level=quantities(spec.resources.requests, "spec.resources.requests", problems) if spec.resources else None,
        overhead=quantities(spec.overhead, "spec.overhead", problems),
    )


def quantities(raw: msgspec.Raw, path: str, problems: list[Problem]) -> Exact:
    """Return a raw map of quantities; one that is absent or null is empty."""
    return exact(_mapping.decode(raw) or {}, path, problems) if raw else {}


def _asks(containers: list[ContainerStruct] | None, path: str, problems: list[Problem]) -> list[ContainerAsk]:
    asks = []
    for i, container in enumerate(containers or ()):
        requests: Exact = {}
        if container.resources:
            requests = quantities(container.resources.requests, f"{path}[{i}].resources.requests", problems)
        sidecar = container.restart_policy == "Always" and path == "spec.initContainers"
        asks.append(ContainerAsk(requests=requests, sidecar=sidecar))
    return asks


def _build(
    spec: SpecStruct, extra: tuple[str, ...], namespace: str, labels: Labels, needs: tuple[str, ...]
) -> tuple[Shape, tuple[Problem, ...]]:
    problems: list[Problem] = []
    affinity = (_affinity.decode(spec.affinity) if spec.affinity else None) or _AffinityStruct()
    required, preferred = _node_affinity(affinity.node_affinity, problems)
    terms = Terms(namespace, labels, problems)
    near, away = "spec.affinity.podAffinity", "spec.affinity.podAntiAffinity"
    wishes = (
        *terms.preferred(affinity.pod_affinity, near, 1),
        *terms.preferred(affinity.pod_anti_affinity, away, -1),
    )
    selector = (_selector.decode(spec.node_selector) if spec.node_selector else None) or {}
    ask = pod_ask(spec, problems)
    shape = Shape(
        key="",
        requests=requested(ask, problems),
        unstated=unstated(ask),
        node_selector=tuple(sorted(selector.items())),
        required_terms=required,
        preferred_terms=preferred,
        tolerations=_tolerated(spec.tolerations),
        host_ports=host_ports(
            (
                *((one.ports or ()) for one in spec.containers or ()),
                *((one.ports or ()) for one in spec.init_containers or () if one.restart_policy == "Always"),
            ),
            host_network=bool(spec.host_network),
        ),
        affinity=terms.required(affinity.pod_affinity, near),
        anti_affinity=terms.required(affinity.pod_anti_affinity, away),
        preferred_pods=tuple(sorted(wishes, key=repr)),
        spread=terms.spread(_bare(spec.topology_spread_constraints)),
        features=needs,
        unsupported=tuple(_unsupported(spec)) + extra,
    )
    return keyed(shape), tuple(problems)


def keyed(shape: Shape) -> Shape:
    """Return the shape with the key that follows from its other fields."""
    bare = replace(shape, key="")
    return replace(bare, key=blake2b(msgspec.msgpack.encode(bare), digest_size=16).hexdigest())


def _node_affinity(
    affinity: _NodeAffinityStruct | None, problems: list[Problem]
) -> tuple[tuple[SelectorTerm, ...] | None, tuple[PreferredTerm, ...]]:
    if affinity is None:
        return None, ()
    required = None
    if affinity.required is not None:
        path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
        for i, term in enumerate(affinity.required.node_selector_terms or ()):
            _check_term(term, f"{path}[{i}]", problems)
        terms = {_term(term) for term in affinity.required.node_selector_terms or ()}
        required = tuple(sorted(terms, key=_order))
    preferred = [PreferredTerm(p.weight, _term(p.preference or _TermStruct())) for p in affinity.preferred or ()]
    # An empty preferred term matches every node alike, so it orders nothing.
    useful = [p for p in preferred if p.term.expressions or p.term.fields]
    return required, tuple(sorted(useful, key=lambda p: (p.weight, _order(p.term))))


def _term(term: _TermStruct) -> SelectorTerm:
    return SelectorTerm(_expressions(term.match_expressions), _expressions(term.match_fields))


def _check_term(term: _TermStruct, path: str, problems: list[Problem]) -> None:
    """Note what Kubernetes would not have let in; such an expression matches no node."""
    for name, expressions, known in (
        ("matchExpressions", term.match_expressions, _OPERATORS),
        ("matchFields", term.match_fields, ("In", "NotIn")),
    ):
        for i, one in enumerate(expressions or ()):
            if one.operator not in known:
                problems.append(
                    Problem(f"{path}.{name}[{i}].operator", f"{one.operator!r} is none of {', '.join(known)}")
                )


def _expressions(expressions: list[RequirementStruct] | None) -> tuple[Requirement, ...]:
    found = {Requirement(e.key, e.operator, tuple(sorted(set(e.values or ())))) for e in expressions or ()}
    return tuple(sorted(found, key=lambda e: (e.key, e.operator, e.values)))


def _order(term: SelectorTerm) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [("e", e.key, e.operator, e.values) for e in term.expressions] + [
        ("f", f.key, f.operator, f.values) for f in term.fields
    ]


def _tolerated(raw: msgspec.Raw) -> tuple[Toleration, ...]:
    structs = (_tolerations.decode(raw) if raw else None) or ()
    found = {Toleration(t.key or "", t.operator or "Equal", t.value or "", t.effect or "") for t in structs}
    return tuple(sorted(found, key=lambda t: (t.key, t.operator, t.value, t.effect)))


def _unsupported(spec: SpecStruct) -> list[str]:
    return ["spec.resourceClaims"] if bytes(spec.resource_claims) not in _NULL else []
