"""Pages of docs/reference that are made from the code: metrics.md and api.md.

    python -m tests.deploy.reference      # writes them again

Decides how they look. What they say is said where it holds: in observe/metrics.py and in config/crd.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import Gauge
from prometheus_client.metrics import MetricWrapperBase

from scheduler.observe.metrics import PREFIX, Metrics

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"
KINDS = ("podgroups", "queues", "topologies", "bindrequests")
_TELLS = {"PodGroup": "podgroup.md", "Queue": "queues.md", "Topology": "topology.md"}
_STANDARD = {"apiVersion", "kind", "metadata"}


def metrics() -> str:
    """Return the page of figures."""
    lines = [
        "# Metrics",
        "",
        "Made from the code by `python -m tests.deploy.reference`. What `/metrics` serves; how to read it:",
        "[Watch Muster](../how-to/watch-muster.md). No label holds the name of a pod, a node or a group. A plugin may",
        "count under names of its own.",
        "",
        "| Name | Type | Labels | Meaning |",
        "|---|---|---|---|",
    ]
    for name, kind, labels, text in sorted(_figures()):
        lines.append(f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |")
    return "\n".join([*lines, ""])


def _figures() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    registry = Metrics().registry
    for collector in set(registry._names_to_collectors.values()):
        if isinstance(collector, MetricWrapperBase):
            end = "" if isinstance(collector, Gauge) or collector._type == "histogram" else "_total"
            yield f"{collector._name}{end}", collector._type, tuple(collector._labelnames), collector._documentation
            continue
        for family in collector.collect():
            if family.name.startswith(PREFIX):
                end = "_total" if family.type == "counter" else ""
                yield (
                    f"{family.name}{end}",
                    family.type,
                    tuple(getattr(family, "_labelnames", ())),
                    family.documentation,
                )


def api() -> str:
    """Return the page of fields."""
    lines = [
        "# Fields of Muster's kinds",
        "",
        "Made from `config/crd` by `python -m tests.deploy.reference`; `kubectl explain KIND --recursive` tells them",
        "from a cluster. All kinds are `scheduling.muster.sh/v1alpha1`.",
    ]
    for name in KINDS:
        [crd] = yaml.safe_load_all((ROOT / "config" / "crd" / f"{name}.yaml").read_text())
        kind, schema = crd["spec"]["names"]["kind"], crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        more = f" What the fields do: [{_TELLS[kind]}]({_TELLS[kind]})." if kind in _TELLS else ""
        lines += ["", f"## {kind}", "", schema["description"] + more, "", "| Field | Type | Default | Meaning |"]
        lines.append("|---|---|---|---|")
        for path, field in fields(schema):
            default = f"`{field['default']}`".lower() if "default" in field and field["default"] != {} else ""
            told = field.get("description", "") + "".join(
                f" Rule: {rule['message']}." for rule in field.get("x-kubernetes-validations", [])
            )
            lines.append(f"| `{path}` | {_type(field)} | {default} | {told.strip()} |")
    return "\n".join([*lines, ""])


def fields(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield every field below a schema, as path and schema."""
    for name, field in schema.get("properties", {}).items():
        if not path and name in _STANDARD:
            continue
        inside = f"{path}.{name}" if path else name
        yield inside, field
        yield from fields(field, inside)
        if isinstance(field.get("items"), dict):
            yield from fields(field["items"], f"{inside}[]")
        if isinstance(field.get("additionalProperties"), dict):
            yield from fields(field["additionalProperties"], f"{inside}.NAME")


def _type(field: Json) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in field:
        return ", ".join(f"`{one}`" for one in field["enum"] if one != "")
    kind = str(field.get("type", "object"))
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"map of {_type(field['additionalProperties'])}"
    if kind == "string" and field.get("format") == "date-time":
        return "time"
    low, high = field.get("minimum"), field.get("maximum")
    return f"{kind}, from {low}" if low is not None and high is None else kind


MADE = {"metrics.md": metrics, "api.md": api}

if __name__ == "__main__":
    for page, make in MADE.items():
        (PAGES / page).write_text(make())
        print(PAGES / page)
