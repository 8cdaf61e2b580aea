"""What is wrong with one manifest by itself: fields that its kind does not have, versions, references that contradict.

Decided here: which schemas an object is held against: those of Muster's own kinds and of the kinds that it reads, as
they stand in `config/crd`. What another API has beyond what Muster reads is a warning; in Muster's own kinds, and where
a value does not have its type, it is an error. Of pods the names of fields are known, not their values.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from scheduler.cli.shipped import NotShipped, shipped
from scheduler.dialects.registry import DIALECTS
from scheduler.model.hints import near
from scheduler.playground.podfields import drop_unknown
from scheduler.playground.schema import validate

Json = dict[str, Any]
_OWN = "scheduling.muster.sh"
_REFERENCES = (
    ("labels", "scheduling.muster.sh/pod-group"),
    ("annotations", "scheduling.muster.sh/pod-group"),
    ("annotations", "scheduling.k8s.io/group-name"),
    ("annotations", "scheduling.volcano.sh/group-name"),
    ("labels", "scheduling.x-k8s.io/pod-group"),
    ("annotations", "pod-group-name"),
)
"""How a pod names its group, first the one that counts; between the first two and the rest `spec.schedulingGroup`."""
_ALIASES = frozenset({"scheduling.volcano.sh/group-name"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about an object. level: error or warning. field: its path, "" = the object as such."""

    level: str
    object: str
    field: str
    message: str


def fields_of(name: str, document: Json) -> Iterator[Finding]:
    """Yield what of an object's fields its kind does not have, or has in another type; of pods and templates too."""
    version, kind = str(document.get("apiVersion", "")), document["kind"]
    schema = _schemas().get((version, kind))
    if schema is not None:
        level = "error" if version.startswith(f"{_OWN}/") else "warning"
        for path, known in unknown(schema, document):
            what = "is no field of it" if level == "error" else "is not read by Muster"
            hint = near(path.rpartition(".")[2], known) if level == "error" else ""
            yield Finding(level, name, path, what + hint)
        if isinstance(document.get("spec"), dict):
            checked = copy.deepcopy({key: value for key, value in document.items() if key != "status"})
            for cause in validate(schema, checked):
                yield Finding("error", name, cause.field, cause.message)
        return
    template = document.get("spec", {}).get("template") if isinstance(document.get("spec"), dict) else None
    pod, path = (document, "") if kind == "Pod" else (template, "spec.template.")
    if isinstance(pod, dict):
        for field, text in of_pod_fields(pod):
            yield Finding("error", name, f"{path}{field}", text)


def of_pod_fields(pod: Json) -> Iterator[tuple[str, str]]:
    """Yield the fields that pods do not have, with the words for it."""
    for field in drop_unknown(copy.deepcopy(pod)):
        yield field, "is no field of a pod"


def unknown(schema: Json, value: Any, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield paths that a schema does not name, with the names that it has there; also where it lets them pass."""
    properties = schema.get("properties") or {}
    if isinstance(value, dict):
        extra = schema.get("additionalProperties")
        for name, inner in value.items():
            where = f"{path}.{name}" if path else str(name)
            if not path and name in ("apiVersion", "kind", "metadata", "status"):
                continue
            if name in properties:
                yield from unknown(properties[name], inner, where)
            elif isinstance(extra, dict):
                yield from unknown(extra, inner, where)
            elif properties and extra is not True:
                yield where, sorted(properties)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for number, inner in enumerate(value):
            yield from unknown(schema["items"], inner, f"{path}[{number}]")


@lru_cache(maxsize=1)
def _schemas() -> dict[tuple[str, str], Json]:
    """Return the schemas by apiVersion and kind; none outside a clone."""
    try:
        folder = shipped("config/crd")
    except NotShipped:
        return {}
    found: dict[tuple[str, str], Json] = {}
    for file in sorted(folder.rglob("*.yaml")):
        spec = yaml.safe_load(file.read_text())["spec"]
        for version in spec["versions"]:
            key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            found[key] = version["schema"]["openAPIV3Schema"]
    return found


def has_schema(document: Json) -> bool:
    """Whether the kind is one whose schema is known."""
    return (str(document.get("apiVersion", "")), document["kind"]) in _schemas()


def of_dialects(body: Json) -> str:
    """Return what is wrong with the version of a kind that some dialect reads, "" where none does."""
    group, _, version = str(body.get("apiVersion", "")).partition("/")
    named = [one for dialect in DIALECTS for one in dialect.resources if one.kind == body["kind"]]
    versions = [version for one in named if one.group == group for version in one.versions]
    if versions and version not in versions:
        return f"{group} has no version {version}{near(version, versions)}"
    if named and not versions:
        return f"{body['kind']} of {group or version} is not read{near(group, {one.group for one in named})}"
    return ""


def of_references(name: str, pods: Mapping[str, Json]) -> Iterator[Finding]:
    """Yield pods that name groups of several APIs: only one of them counts. pods: by the path of their template."""
    for path, pod in pods.items():
        meta = pod.get("metadata") if isinstance(pod.get("metadata"), dict) else {}
        named = [
            (key, marks[key])
            for place, key in _REFERENCES
            if isinstance(marks := (meta or {}).get(place), dict) and marks.get(key) and key not in _ALIASES
        ]
        native = pod.get("spec", {}).get("schedulingGroup") if isinstance(pod.get("spec"), dict) else None
        if isinstance(native, dict) and native.get("podGroupName"):
            own = 1 if named and named[0][0].startswith(_OWN) else 0
            named.insert(own, ("spec.schedulingGroup", native["podGroupName"]))
        if len({key for key, _ in named}) > 1:
            others = ", ".join(f"{key}={value}" for key, value in named[1:])
            text = f"names groups of several APIs; {named[0][0]}={named[0][1]} counts, not {others}"
            yield Finding("warning", name, f"{path}.metadata".lstrip("."), text)
