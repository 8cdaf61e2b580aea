"""`muster convert`: queues of Volcano, KAI and Kueue as queues of Muster, as manifests to look at and apply.

Decided here: how a model queue is written as an object, and what of Kueue's ClusterQueue and Cohort becomes what
(nominal quota = deserved, nominal + borrowing limit = limit, nominal - lending limit = guarantee; flavours of one
resource are added up, because Muster has none). What has no counterpart is told, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from scheduler.cli.documents import documents_of
from scheduler.cli.output import OK, USAGE, complain, note
from scheduler.cli.workloads import Unusable
from scheduler.dialects.meta import Undecodable
from scheduler.dialects.neighbours import SelectorStruct, label_selector
from scheduler.dialects.registry import DIALECTS
from scheduler.model.affinity import LabelSelector
from scheduler.model.pods import Problem
from scheduler.model.quantity import BadQuantity, amount, format_amount, parse_quantity
from scheduler.model.queues import ROOT_QUEUE, UNLIMITED, WEIGHT_UNIT, Queue
from scheduler.model.resources import Amounts

Json = dict[str, Any]
_KUEUE = "kueue.x-k8s.io"
_STATES = {"None": "Open", "Hold": "Hold", "HoldAndDrain": "Drain"}
_RECLAIM = {"Never": "Never", "LowerPriority": "LowerPriority", "Any": "Any"}
_SHARES = ("guarantee", "deserved", "limit")
_VOLCANO_ONLY = ("dequeueStrategy", "affinity", "extendClusters")
_PARENTS = ("parentName", "cohortName", "cohort")
_HIERARCHY = ("volcano.sh/hierarchy", "volcano.sh/hierarchy-weights")
_Number = str | int | float


class _Quota(msgspec.Struct, rename="camel"):
    name: str
    nominal_quota: _Number | None = None
    borrowing_limit: _Number | None = None
    lending_limit: _Number | None = None


class _Flavor(msgspec.Struct, rename="camel"):
    resources: list[_Quota] | None = None


class _Group(msgspec.Struct, rename="camel"):
    flavors: list[_Flavor] | None = None


class _Borrow(msgspec.Struct, rename="camel"):
    policy: Literal["Never", "LowerPriority"] = "Never"


class _Preemption(msgspec.Struct, rename="camel"):
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    borrow_within_cohort: _Borrow | None = None


class _Fair(msgspec.Struct, rename="camel"):
    weight: _Number = 1


class _KueueSpec(msgspec.Struct, rename="camel"):
    """What is read of a ClusterQueue or Cohort: a field of another type is told with its path."""

    parent_name: str | None = None
    cohort_name: str | None = None
    cohort: str | None = None
    resource_groups: list[_Group] | None = None
    preemption: _Preemption | None = None
    fair_sharing: _Fair | None = None
    stop_policy: Literal["None", "Hold", "HoldAndDrain"] | None = None
    queueing_strategy: Literal["StrictFIFO", "BestEffortFIFO"] | None = None


class _LocalQueueSpec(msgspec.Struct, rename="camel"):
    cluster_queue: str = ""


class Unreadable(ValueError):
    """An object that is no queue, or has a field that cannot be read; the message names both."""


def convert(files: list[Path]) -> int:
    """Print every queue of the files as a Queue of Muster; exit code."""
    read: list[tuple[Path, Json]] = []
    for file in files:
        try:
            read += ((file, one) for one in documents_of([file]))
        except OSError as error:
            complain(f"{file}: {error.strerror}")
            return USAGE
        except Unusable as error:
            complain(str(error))
            return USAGE
    made: dict[str, Json] = {}
    objects = _apart([obj for _, obj in read])
    for (file, _), obj in zip(read, objects, strict=True):
        try:
            found = _converted(obj)
            if found is not None and found["metadata"]["name"] in made:
                raise Unreadable(f"{obj['kind']} {obj['metadata']['name']}: another object makes a queue of this name")
        except Unreadable as error:
            complain(f"{file}: {error}")
            return USAGE
        if found is not None:
            made[found["metadata"]["name"]] = found
    made |= _implied(objects, set(made))
    if not made:
        complain("there is no queue in these files")
        return USAGE
    print("---\n".join(yaml.safe_dump(one, sort_keys=False) for one in made.values()), end="")
    return OK


def _of_tree(obj: Json) -> bool:
    """Whether it is a queue or a cohort of Kueue, in the form that it has to have."""
    is_kind = obj["kind"] in ("ClusterQueue", "Cohort") and str(obj.get("apiVersion", "")).startswith(f"{_KUEUE}/")
    return is_kind and isinstance(obj.get("metadata"), dict) and isinstance(obj.get("spec"), dict)


def _apart(objects: list[Json]) -> list[Json]:
    """Return the objects, cohorts of the name of a ClusterQueue under another: here both are queues."""
    names: dict[str, set[str]] = {"ClusterQueue": set(), "Cohort": set()}
    for obj in filter(_of_tree, objects):
        names[obj["kind"]].add(str(obj["metadata"].get("name")))
        names["Cohort"].add(_parent(obj))
    other = {name: f"{name}-cohort" for name in names["Cohort"] & names["ClusterQueue"]}
    for name in sorted(other):
        note(f"Cohort {name}: a ClusterQueue has this name; its queue is {other[name]}")
    return [_renamed(obj, other) if other and _of_tree(obj) else obj for obj in objects]


def _renamed(obj: Json, other: Mapping[str, str]) -> Json:
    spec, meta = obj["spec"], obj["metadata"]
    fields = {field: other[str(spec[field])] for field in _PARENTS if str(spec.get(field)) in other}
    if obj["kind"] == "Cohort":
        meta = {**meta, "name": other.get(str(meta.get("name")), meta.get("name"))}
    return {**obj, "spec": {**spec, **fields}, "metadata": meta}


def _implied(objects: Iterable[Json], known: set[str]) -> dict[str, Json]:
    """Return the cohorts that Kueue's objects name and that need no object there; here a parent has to exist."""
    found: dict[str, Json] = {}
    for obj in filter(_of_tree, objects):
        name = _parent(obj)
        if name and name not in known and name not in found:
            note(f"Cohort {name}: has no object in these files; a queue is made for it")
            found[name] = manifest(Queue(name=name, reclaim="Any"))
    return found


def _converted(obj: Json) -> Json | None:
    version, kind = str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
    meta = obj.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    where = f"{kind} {name or ''}"
    if not isinstance(name, str) or not name:
        raise Unreadable(f"{kind or 'an object'}: metadata.name must be a string")
    if version.startswith(f"{_KUEUE}/"):
        if kind in ("ClusterQueue", "Cohort"):
            return manifest(_of_kueue(obj, where))
        if kind == "LocalQueue":
            try:
                target = msgspec.convert(obj.get("spec") or {}, _LocalQueueSpec).cluster_queue
            except msgspec.ValidationError as error:
                raise Unreadable(f"{where}: spec: {error}") from error
            note(f"{where}: annotate its namespace with scheduling.muster.sh/queue={target}")
            return None
    for dialect in DIALECTS:
        for resource in dialect.resources:
            if resource.role == "queue" and resource.kind == kind and version.split("/")[0] == resource.group:
                known = {**obj, "metadata": {"uid": "not known", **obj["metadata"]}}  # a manifest has none yet
                try:
                    queue = dialect.decode_queue(msgspec.json.encode(known), version)
                except Undecodable as error:
                    raise Unreadable(str(error)) from error
                if queue.problems:
                    told = "; ".join(f"{problem.field} {problem.message}" for problem in queue.problems)
                    raise Unreadable(f"{where}: {told}")
                _tell_losses(obj, where)
                return manifest(queue)
    note(f"{where} ({version}) is no queue and is left out")
    return None


def _tell_losses(obj: Json, where: str) -> None:
    """Say what of a queue of Volcano or KAI that can be read is not in the queue that is made of it."""
    spec, meta = obj["spec"] if isinstance(obj.get("spec"), dict) else {}, obj["metadata"]
    if str(obj["apiVersion"]).startswith("scheduling.volcano.sh/"):
        for field in _VOLCANO_ONLY:
            if spec.get(field):
                note(f"{where}: spec.{field} has no counterpart")
        for key in _HIERARCHY:
            if key in (meta.get("annotations") or {}):
                note(f"{where}: annotation {key} is not read; spec.parent says where a queue stands")
    elif str(obj["apiVersion"]).startswith("scheduling.run.ai/"):
        gpu = (spec.get("resources") or {}).get("gpu") or {}
        for field in ("quota", "limit"):
            value = gpu.get(field)
            if isinstance(value, float) and not value.is_integer():
                note(f"{where}: spec.resources.gpu.{field} {value:g} is rounded down to whole GPUs")


def manifest(queue: Queue) -> Json:
    """Return the object of `scheduling.muster.sh` that says the same as a queue; what is at its default is left out."""
    spec: Json = {}
    if queue.parent and queue.parent != ROOT_QUEUE:
        spec["parent"] = queue.parent
    weight, rest = divmod(queue.weight, WEIGHT_UNIT)
    if rest or queue.weights:
        note(f"Queue {queue.name}: weights are whole numbers and the same for all resources; look at spec.weight")
        weight = max(1, weight)
    if weight != 1:
        spec["weight"] = weight
    if queue.priority:
        spec["priority"] = queue.priority
    resources = _resources(queue)
    if resources:
        spec["resources"] = resources
    if queue.order != "BestEffort":
        spec["order"] = queue.order
    preemption = _preemption(queue)
    if preemption:
        spec["preemption"] = preemption
    if queue.namespaces is not None:
        spec["namespaceSelector"] = _selector(queue.namespaces)
    if queue.state != "Open":
        spec["state"] = queue.state
    meta = {"name": queue.name}
    return {"apiVersion": "scheduling.muster.sh/v1alpha1", "kind": "Queue", "metadata": meta, "spec": spec}


def _resources(queue: Queue) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for field in _SHARES:
        shares: Amounts = getattr(queue, field)
        for name, value in shares:
            found.setdefault(name, {})[field] = "unlimited" if value == UNLIMITED else _exactly(name, value)
    return {name: found[name] for name in sorted(found)}


def _exactly(resource: str, value: int) -> str:
    """Return an amount as a person writes it where that loses nothing."""
    text = format_amount(resource, value)
    return text if amount(resource, text) == value else str(value)


def _preemption(queue: Queue) -> Json:
    default = Queue(name="")
    found: Json = {}
    if queue.within_queue != default.within_queue:
        found["withinQueue"] = queue.within_queue
    if queue.reclaim != default.reclaim:
        found["reclaim"] = queue.reclaim
    if queue.min_runtime is not None:
        found["minRuntime"] = f"{queue.min_runtime:g}s"
    if queue.reclaim_min_runtime is not None:
        note(f"Queue {queue.name}: its own minimal run time against other queues has no counterpart")
    if not queue.reclaimable:
        found["reclaimable"] = False
    return found


def _selector(selector: LabelSelector) -> Json:
    return {
        "matchExpressions": [
            {"key": need.key, "operator": need.operator, **({"values": list(need.values)} if need.values else {})}
            for need in selector.requirements
        ]
    }


# -- Kueue ------------------------------------------------------------------------------------------------------------


def _parent(obj: Json) -> str:
    spec = obj.get("spec") or {}
    return str(spec.get("parentName" if obj["kind"] == "Cohort" else "cohortName") or spec.get("cohort") or "")


def _of_kueue(obj: Json, where: str) -> Queue:
    spec = obj.get("spec") or {}
    try:
        msgspec.convert(spec, _KueueSpec)
    except msgspec.ValidationError as error:
        raise Unreadable(f"{where}: spec: {error}") from error
    weight = _weight(spec, where)
    cohort = obj["kind"] == "Cohort"
    parent = _parent(obj)
    shares = _quotas(spec, where, bounded=not parent)
    preemption = spec.get("preemption") or {}
    for field in ("admissionChecksStrategy", "admissionChecks", "flavorFungibility", "admissionScope"):
        if spec.get(field):
            note(f"{where}: spec.{field} has no counterpart")
    if (preemption.get("borrowWithinCohort") or {}).get("policy", "Never") != "Never":
        note(f"{where}: spec.preemption.borrowWithinCohort has no counterpart")
    within = preemption.get("withinClusterQueue", "Never")
    return Queue(
        name=str(obj["metadata"]["name"]),
        parent=parent,
        weight=round(weight * WEIGHT_UNIT),
        guarantee=shares["guarantee"],
        deserved=shares["deserved"],
        limit=shares["limit"],
        order="StrictFIFO" if spec.get("queueingStrategy") == "StrictFIFO" else "BestEffort",
        within_queue="LowerPriority" if cohort else within,
        reclaim="Any" if cohort else _RECLAIM[preemption.get("reclaimWithinCohort", "Never")],
        state=_STATES[spec.get("stopPolicy") or "None"],
        namespaces=None if cohort else _namespaces(spec, where),
    )


def _weight(spec: Json, where: str) -> Fraction:
    """Return the weight, a quantity there: `500m` is half of one."""
    given = (spec.get("fairSharing") or {}).get("weight", 1)
    try:
        weight = parse_quantity(given)
    except BadQuantity as error:
        raise Unreadable(f"{where}: spec.fairSharing.weight: {error}") from error
    if weight < 0:
        raise Unreadable(f"{where}: spec.fairSharing.weight {given} is negative")
    return weight


def _quotas(spec: Json, where: str, *, bounded: bool) -> dict[str, Amounts]:
    """Return guarantee, deserved and limit, flavours added up. bounded: nobody is there to borrow from."""
    sums: dict[str, dict[str, int]] = {field: {} for field in _SHARES}
    endless: set[str] = set()
    for number, group in enumerate(spec.get("resourceGroups") or []):
        flavors = group.get("flavors") or []
        if len(flavors) > 1:
            note(f"{where}: the {len(flavors)} flavours of spec.resourceGroups[{number}] are added up")
        for flavor in flavors:
            for one in flavor.get("resources") or []:
                name = str(one.get("name"))
                nominal = _quantity(one, "nominalQuota", where) or 0
                borrowing, lending = (_quantity(one, field, where) for field in ("borrowingLimit", "lendingLimit"))
                if lending is not None and lending > nominal:
                    raise Unreadable(f"{where}: lendingLimit of {name} is more than its nominalQuota")
                _add(sums["deserved"], name, nominal)
                _add(sums["guarantee"], name, 0 if lending is None else nominal - lending)
                _add(sums["limit"], name, nominal + (borrowing or 0))
                if borrowing is None and not bounded:
                    endless.add(name)
    limit = {name: value for name, value in sums["limit"].items() if name not in endless}
    guarantee = {name: value for name, value in sums["guarantee"].items() if value}
    return {
        "guarantee": tuple(sorted(guarantee.items())),
        "deserved": tuple(sorted(sums["deserved"].items())),
        "limit": tuple(sorted(limit.items())),
    }


def _add(sums: dict[str, int], name: str, value: int) -> None:
    sums[name] = sums.get(name, 0) + value


def _quantity(one: Json, field: str, where: str) -> int | None:
    value = one.get(field)
    if value is None:
        return None
    try:
        found = amount(str(one.get("name")), value)
    except BadQuantity as error:
        raise Unreadable(f"{where}: {field} of {one.get('name')}: {error}") from error
    if found < 0:
        raise Unreadable(f"{where}: {field} of {one.get('name')}: {value} is negative")
    return found


def _namespaces(spec: Json, where: str) -> LabelSelector | None:
    if spec.get("namespaceSelector") is None:
        note(f"{where}: no namespace may use it there (spec.namespaceSelector is absent); here all may")
        return None
    problems: list[Problem] = []
    try:
        struct = msgspec.convert(spec["namespaceSelector"], SelectorStruct)
    except msgspec.ValidationError as error:
        raise Unreadable(f"{where}: spec.namespaceSelector is no selector: {error}") from error
    selector = label_selector(struct, "spec.namespaceSelector", problems)
    if problems:
        raise Unreadable(f"{where}: {problems[0].field} {problems[0].message}")
    return selector if selector is not None and selector.requirements else None
