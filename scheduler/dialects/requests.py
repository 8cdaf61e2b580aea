"""What a pod asks of its node: the sums of Kubernetes over containers, init containers, sidecars, pod level, overhead.

Decided here: the arithmetic, and which of spec, allocated and actuated resources a running pod is charged with. Sums
are exact fractions and are rounded up once, at the end, as Kubernetes does. Nothing here reads JSON or knows a cluster.
A quantity that does not parse is reported, left out of the sum, and stops nothing else. One that is larger than what is
counted is reported too, and clamped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from scheduler.model.pods import Problem
from scheduler.model.quantity import MAX_AMOUNT, BadQuantity, parse_quantity, scaled, too_much
from scheduler.model.resources import Amounts, amounts

Exact: TypeAlias = dict[str, Fraction]

_LITTLE: Exact = {"cpu": Fraction(1, 10), "memory": Fraction(200 * 2**20)}
"""What kube-scheduler's scores count for a container that asks for none."""
_parse = lru_cache(maxsize=16384)(parse_quantity)


@dataclass(frozen=True, slots=True)
class ContainerAsk:
    """One container. `allocated` and `actuated` come from its status (None or empty: the status does not say)."""

    requests: Exact
    sidecar: bool = False
    allocated: Exact | None = None
    actuated: Exact | None = None


@dataclass(frozen=True, slots=True)
class PodAsk:
    """Everything that the sums depend on.

    pod_level: spec.resources.requests (None: not set). status_allocated, status_actuated: pod-level status values,
    which replace the sums over containers when both say something; status_actuated is {} when the status has resources
    but no requests among them. infeasible: a resize that the kubelet refused for good.
    """

    containers: tuple[ContainerAsk, ...] = ()
    init_containers: tuple[ContainerAsk, ...] = ()
    pod_level: Exact | None = None
    overhead: Exact = field(default_factory=dict)
    status_allocated: Exact | None = None
    status_actuated: Exact | None = None
    infeasible: bool = False


def exact(values: Mapping[str, object], path: str, problems: list[Problem], *, bounded: bool = True) -> Exact:
    """Return quantities as exact numbers in base units; what does not parse or is negative goes to `problems`.

    With `bounded` so does what is more than can be counted. (A limit of that size is as good as none.)
    """
    result: Exact = {}
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            problems.append(Problem(f"{path}[{name}]", "is not a quantity"))
            continue
        try:
            number = _parse(str(value))
        except BadQuantity as bad:
            problems.append(Problem(f"{path}[{name}]", str(bad)))
            continue
        if number < 0:
            problems.append(Problem(f"{path}[{name}]", f"{str(value)!r} is negative"))
            continue
        if bounded and scaled(name, number) > MAX_AMOUNT:
            problems.append(Problem(f"{path}[{name}]", f"{str(value)!r} is {too_much(name)}"))
        result[name] = number
    return result


def rounded(values: Mapping[str, Fraction]) -> Amounts:
    """Return exact numbers as amounts: cpu in millicores, all rounded up, without zeros."""
    return amounts([(name, min(MAX_AMOUNT, scaled(name, value))) for name, value in values.items()])


def requested(ask: PodAsk, problems: list[Problem] | None = None) -> Amounts:
    """Return what a pod that is not on a node asks for: its spec alone. A sum that is too large goes to `problems`."""
    total = _aggregate(ask, lambda container: container.requests)
    if _pod_level_set(ask):
        _replace(total, ask.pod_level or {})
    _add(total, ask.overhead)
    if problems is not None:
        for name, value in total.items():
            told = any(problem.field.endswith(f"[{name}]") for problem in problems)
            if not told and scaled(name, value) > MAX_AMOUNT:
                problems.append(Problem("spec", f"asks in sum for {name} of {too_much(name)}"))
    return rounded(total)


def unstated(ask: PodAsk) -> Amounts:
    """Return how much more a pod asks for when each container that asks for no cpu or no memory asks for a little."""
    total = _aggregate(ask, lambda container: {**_LITTLE, **container.requests})
    if _pod_level_set(ask):
        _replace(total, ask.pod_level or {})
    _add(total, ask.overhead)
    stated = dict(requested(ask))
    return amounts([(name, value - stated.get(name, 0)) for name, value in rounded(total) if name in _LITTLE])


def charged(ask: PodAsk) -> Amounts:
    """Return what a pod on a node is charged with: the maximum of what it asks, was allocated and has in effect.

    A resize that is refused for good (Infeasible) leaves the spec out of the maximum; a deferred one does not.
    """

    def unknown(container: ContainerAsk) -> Exact:
        return {} if ask.infeasible else container.requests

    if ask.status_allocated and ask.status_actuated:
        allocated, actuated = ask.status_allocated, ask.status_actuated
    else:
        allocated = _aggregate(ask, lambda c: c.allocated or unknown(c))
        actuated = _aggregate(ask, lambda c: c.actuated or c.allocated or unknown(c))
    spec = {} if ask.infeasible else _aggregate(ask, lambda c: c.requests)
    total = _maximum((spec, actuated, allocated))
    if _pod_level_set(ask):
        level: Exact = ask.pod_level or {}
        if ask.status_actuated is not None:
            spec_level = {} if ask.infeasible else level
            level = _maximum((spec_level, ask.status_actuated, ask.status_allocated or {}))
        _replace(total, level)
    _add(total, ask.overhead)
    return rounded(total)


def _aggregate(ask: PodAsk, of: Callable[[ContainerAsk], Exact]) -> Exact:
    """Sum containers and sidecars; an init container needs its own plus the sidecars that were started before it."""
    total: Exact = {}
    for container in ask.containers:
        _add(total, of(container))
    sidecars: Exact = {}
    peak: Exact = {}
    for container in ask.init_containers:
        own = of(container)
        if container.sidecar:
            _add(total, own)
            _add(sidecars, own)
            peak = _maximum((peak, sidecars))
        else:
            during = dict(sidecars)
            _add(during, own)
            peak = _maximum((peak, during))
    return _maximum((total, peak))


def _pod_level_set(ask: PodAsk) -> bool:
    return bool(ask.pod_level) and any(_is_pod_level(name) for name in ask.pod_level or ())


def _is_pod_level(name: str) -> bool:
    """Only these can be set for a pod as a whole; the others stay sums over containers."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _replace(total: Exact, level: Exact) -> None:
    total.update((name, value) for name, value in level.items() if _is_pod_level(name))


def _add(total: Exact, part: Exact) -> None:
    for name, value in part.items():
        total[name] = total.get(name, Fraction(0)) + value


def _maximum(parts: Iterable[Exact]) -> Exact:
    result: Exact = {}
    for part in parts:
        for name, value in part.items():
            if name not in result or value > result[name]:
                result[name] = value
    return result
