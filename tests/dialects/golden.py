"""Golden files: objects as operators write them, and what we make of them.

An input holds Kubernetes objects; the output says, object by object, the model value (only what differs from the
defaults) and, for a group, what each step of one life would write to its status. A step's patch is merged into the
object before the next, as the API server would do. `python -m tests.dialects.golden` writes the outputs anew: read the
difference before you commit it.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import yaml

from scheduler.dialects import core
from scheduler.dialects.base import Dialect
from scheduler.dialects.registry import BY_NAME
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup
from scheduler.model.topology import TopologyFacts
from scheduler.model.verdict import Code, verdict

Json = dict[str, Any]
TESTDATA = Path(__file__).parent / "testdata"
NAMES = frozenset({"muster", "volcano", "scheduler-plugins-scheduler"})
_GROUPS = {
    "scheduling.muster.sh": "muster",
    "scheduling.volcano.sh": "volcano",
    "scheduling.x-k8s.io": "coscheduling",
    "scheduling.k8s.io": "native",
    "scheduling.run.ai": "kai",
    "kai.scheduler": "kai",
    "kueue.x-k8s.io": "kueue",
    "topology.volcano.sh": "volcano",
}
_HIDDEN = {
    "PodGroup": ("raw_status", "key", "conditions"),
    "Queue": ("raw_status", "conditions"),
    "Topology": ("raw_status", "conditions"),
    "HyperNode": ("raw_status", "conditions"),
    "Shape": ("key",),
    "Pod": ("shape",),
}
# Groups whose life is written out; all others are only checked to say nothing twice.
_LIVES = frozenset(
    {"kuberay-raycluster", "vcjob-with-roles", "scheduler-plugins-readme", "half-done-before-a-restart", "gang-v1beta1"}
    | {"kuberay-v1alpha2", "initially-scheduled-is-final", "gang", "sub-groups-as-roles"}
)

# What the scheduler says in one life of a group: (phase, counts, reason, text).
LIFE: tuple[tuple[str, dict[str, int], Code | None, str], ...] = (
    ("Pending", {"desired": 4, "existing": 1}, Code.NOT_ENOUGH_MEMBERS, "1 of 4 members exist"),
    ("Inqueue", {"desired": 4, "existing": 4}, Code.RESOURCES, "short of 2 example.com/gpu"),
    ("Running", {"desired": 4, "existing": 4, "bound": 4, "running": 4}, None, ""),
    ("Degraded", {"desired": 4, "existing": 4, "bound": 3, "running": 3}, Code.RESOURCES, "1 member waits"),
    ("Completed", {"desired": 4, "existing": 4, "succeeded": 4}, None, ""),
)


WIRED = (
    TopologyFacts((("block", 2), ("rack", 4)), 0, 8),
    TopologyFacts((("rack", 4),), 3, 7, (("LevelNotFound", "spec.levels[0].label: no node has it"), ("B", "odd"))),
    TopologyFacts((("block", 2), ("rack", 4)), 3, 8),
)


def dialect_of(api_version: str) -> str | None:
    return _GROUPS.get(api_version.partition("/")[0])


def encode(obj: Json) -> bytes:
    return json.dumps(obj).encode()


def read(path: Path) -> list[Json]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def plain(value: object) -> Any:
    """A model value as JSON, without what equals the default."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = {}
        hidden = _HIDDEN.get(type(value).__name__, ())
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if field.name not in hidden and item != field.default:
                shown[field.name] = plain(item)
        return shown
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def steps(obj: Json) -> list[Json]:
    """What one life writes to an object, step by step, and what is then read back."""
    dialect = BY_NAME[dialect_of(obj["apiVersion"]) or ""]
    written = []
    for number, (phase, counts, code, text) in enumerate(LIFE):
        group = dialect.decode_group(encode(obj), obj["apiVersion"])
        status = SetStatus(group.key, group.uid, phase, tuple(counts.items()), verdict(code) if code else None)
        patch = dialect.status_patch(group, status, text, f"2026-11-02T00:00:0{number}Z")
        obj = merged(obj, patch or {})
        after = dialect.decode_group(encode(obj), obj["apiVersion"])
        again = dialect.status_patch(after, status, text, "2026-11-03T00:00:00Z")
        assert again is None, f"{group.key} would say {phase} twice: {again}"
        written.append({"say": phase, "patch": patch, "read": after.phase, "was_running": after.was_running})
    return written


def wiring(obj: Json, dialect: Dialect) -> Json:
    """A topology object, and what is written to it while it is well, while something is wrong, and after that."""
    decode = dialect.decode_hypernode if obj["kind"] == "HyperNode" else dialect.decode_topology
    read = decode(encode(obj), obj["apiVersion"])
    written = []
    for number, facts in enumerate(WIRED):
        patch = dialect.topology_status_patch(
            decode(encode(obj), obj["apiVersion"]), facts, f"2026-11-02T00:00:0{number}Z"
        )
        obj = merged(obj, patch or {})
        again = dialect.topology_status_patch(decode(encode(obj), obj["apiVersion"]), facts, "2026-11-03T00:00:00Z")
        assert again is None, f"{read.name} would say {facts} twice: {again}"
        written.append(patch)
    return {"path": dialect.topology_path(read), "topology": plain(read)} | (
        {"status": written} if any(written) else {}
    )


def decoded(obj: Json, life: bool) -> Any:
    raw, api, kind = encode(obj), obj["apiVersion"], obj["kind"]
    name = dialect_of(api)
    if kind == "PodGroup" and name:
        group: PodGroup = BY_NAME[name].decode_group(raw, api)
        written = steps(obj)
        return {"key": group.key, "group": plain(group)} | ({"status": written} if life else {})
    if kind == "Queue" and name:
        return {"queue": plain(BY_NAME[name].decode_queue(raw, api))}
    if kind in ("Topology", "HyperNode") and name:
        return wiring(obj, BY_NAME[name])
    if kind == "Pod":
        pod, shape = core.decode_pod(raw, NAMES)
        return {"pod": plain(pod), "shape": plain(shape)}
    if kind == "Node":
        return {"node": plain(core.decode_node(raw))}
    if kind == "Job":
        return {"owner": plain(core.decode_owner(raw, kind))}
    if kind == "Namespace":
        return {"namespace": list(core.decode_namespace(raw))}
    if kind == "PriorityClass":
        return {"priorityclass": list(core.decode_priority_class(raw))}
    raise ValueError(f"no golden form of {api} {kind}")


def output_of(path: Path) -> Path:
    return path.with_name(path.name.replace(".input.", ".output."))


def render(path: Path) -> str:
    life = path.name.removesuffix(".input.yaml") in _LIVES
    found = [decoded(obj, life) for obj in read(path)]
    return yaml.safe_dump_all(found, sort_keys=False, width=120, default_flow_style=None, explicit_start=True)


def inputs() -> list[Path]:
    return sorted(TESTDATA.glob("*/*.input.yaml"))


if __name__ == "__main__":
    for each in inputs():
        output_of(each).write_text(render(each))
