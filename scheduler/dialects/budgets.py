"""PodDisruptionBudget (policy/v1) from raw JSON to a model value.

Decided here: how many evictions a budget allows as long as its controller has not looked at it, which is none, and that
an empty selector means every pod of the namespace, a missing one none.
"""

from __future__ import annotations

import msgspec

from scheduler.dialects.meta import Identity, Int64, Undecodable, undecodable
from scheduler.dialects.neighbours import SelectorStruct, label_selector
from scheduler.model.budgets import DisruptionBudget
from scheduler.model.pods import Problem


class _Meta(Identity, gc=False, rename="camel"):
    pass


class _Spec(msgspec.Struct, gc=False):
    selector: SelectorStruct | None = None


class _Status(msgspec.Struct, gc=False, rename="camel"):
    disruptions_allowed: Int64 = 0
    expected_pods: Int64 | None = None
    observed_generation: Int64 = 0
    disrupted_pods: dict[str, msgspec.Raw] | None = None


class _Budget(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _Spec | None = None
    status: _Status | None = None


_budget = msgspec.json.Decoder(_Budget)
_NO_SPEC, _NO_STATUS = _Spec(), _Status()


def decode_budget(raw: bytes | msgspec.Raw) -> DisruptionBudget:
    """Return a budget. Raises `Undecodable`, also for a selector that cannot be used: half of one protects others."""
    try:
        struct = _budget.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise undecodable("PodDisruptionBudget", raw, cause) from cause
    meta, spec, status = struct.metadata, struct.spec or _NO_SPEC, struct.status or _NO_STATUS
    problems: list[Problem] = []
    selector = label_selector(spec.selector, "spec.selector", problems)
    for problem in problems:
        raise Undecodable(f"PodDisruptionBudget {meta.namespace}/{meta.name}: {problem.field}: {problem.message}")
    known = status.expected_pods is not None and status.observed_generation >= meta.generation
    return DisruptionBudget(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        selector=selector,
        allowed=max(0, status.disruptions_allowed) if known else 0,
        disrupted=tuple(sorted(status.disrupted_pods or ())),
        resource_version=meta.resource_version,
    )
