"""`muster convert`: queues of Volcano, KAI and Kueue as queues of Muster, as manifests to look at and apply.

Decided here: how a model queue is written as an object, and what of Kueue's ClusterQueue and Cohort becomes what
(nominal quota = deserved, nominal + borrowing limit = limit, nominal - lending limit = guarantee; flavours of one
resource are added up, because Muster has none). What has no counterpart is told, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from scheduler.cli.output import FAILED, OK, USAGE, complain, note
from scheduler.dialects.meta import Undecodable
from scheduler.dialects.neighbours import SelectorStruct, label_selector
from scheduler.dialects.registry import DIALECTS
from scheduler.model.affinity import LabelSelector
from scheduler.model.pods import Problem
from scheduler.model.quantity import BadQuantity, amount, format_amount
from scheduler.model.queues import ROOT_QUEUE, UNLIMITED, WEIGHT_UNIT, Queue
from scheduler.model.resources import Amounts

Json = dict[str, Any]
_KUEUE = "kueue.x-k8s.io"
_STATES = {"None": "Open", "Hold": "Hold", "HoldAndDrain": "Drain"}
_RECLAIM = {"Never": "Never", "LowerPriority": "LowerPriority", "Any": "Any"}
_SHARES = ("guarantee", "deserved", "limit")


class Unreadable(ValueError):
    """An object that is no queue, or has a field that cannot be read; the message names both."""


def convert(files: list[Path]) -> int:
    """Print every queue of the files as a Queue of Muster; exit code."""
    made: list[Json] = []
    for file in files:
        try:
            documents = [one for one in yaml.safe_load_all(file.read_text()) if one]
        except OSError as error:
            complain(f"{file}: {error.strerror}")
            return FAILED
        except yaml.YAMLError as error:
            complain(f"{file}: {error}")
            return USAGE
        try:
            found = [_converted(one) for document in documents for one in _items(document)]
        except Unreadable as error:
            complain(f"{file}: {error}")
            return USAGE
        made += [one for one in found if one is not None]
    if not made:
        complain("there is no queue in these files")
        return USAGE
    print("---\n".join(yaml.safe_dump(one, sort_keys=False) for one in made), end="")
    return OK


def _items(document: Any) -> Iterator[Json]:
    if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
        yield from document.get("items") or []
    elif isinstance(document, dict):
        yield document
    else:
        raise Unreadable(f"{document!r} is no object")


def _converted(obj: Json) -> Json | None:
    version, kind = str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
    name = str((obj.get("metadata") or {}).get("name", ""))
    where = f"{kind} {name}"
    if version.startswith(f"{_KUEUE}/"):
        if kind in ("ClusterQueue", "Cohort"):
            return manifest(_of_kueue(obj, where))
        if kind == "LocalQueue":
            target = (obj.get("spec") or {}).get("clusterQueue", "")
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
                return manifest(queue)
    note(f"{where} ({version}) is no queue and is left out")
    return None


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


def _of_kueue(obj: Json, where: str) -> Queue:
    spec = obj.get("spec") or {}
    cohort = obj["kind"] == "Cohort"
    parent = str(spec.get("parentName" if cohort else "cohortName") or spec.get("cohort") or "")
    shares = _quotas(spec, where, bounded=not parent)
    preemption = spec.get("preemption") or {}
    weight = float((spec.get("fairSharing") or {}).get("weight", 1))
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
        state=_STATES.get(spec.get("stopPolicy", "None"), "Open"),
        namespaces=None if cohort else _namespaces(spec, where),
    )


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
        return amount(str(one.get("name")), value)
    except BadQuantity as error:
        raise Unreadable(f"{where}: {field} of {one.get('name')}: {error}") from error


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
