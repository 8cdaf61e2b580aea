"""A small cluster for the commands: two racks, three queues, gangs that run and gangs that wait, no scheduler.

Decided here: what is in it. Conditions are written as a scheduler would, so that what commands tell is the same each
time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from scheduler.cli.main import app
from scheduler.playground.server import PlaygroundServer, ThreadedServer
from tests.controlplane import nodes
from tests.controlplane.crds import apply_crds
from tests.controlplane.rest import Json, Rest

CRDS = Path(__file__).parents[3] / "config" / "crd"
TESTDATA = Path(__file__).with_name("testdata")
GPU = "example.com/gpu"
MUSTER = "/apis/scheduling.muster.sh/v1alpha1"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
_RUNNING = "2020-01-01T00:00:00Z"
_SHORT_OF = (
    "0/4 nodes are available: 4 Insufficient example.com/gpu. Resources: needs 6 example.com/gpu for 6 members, 4 free,"
    " 2 short; held by 5 pods of ml/train; position 1 in queue research"
)


def queue(rest: Rest, name: str, parent: str = "", **gpus: int) -> None:
    """Make a Muster queue; gpus: guarantee, deserved, limit."""
    spec: Json = {"resources": {GPU: {key: str(value) for key, value in gpus.items()}}} if gpus else {}
    spec |= {"parent": parent} if parent else {}
    rest.create(f"{MUSTER}/queues", {"metadata": {"name": name}, "spec": spec})


def pod(
    rest: Rest, name: str, gang: str, *, on: str = "", priority: str = "", says: tuple[str, str] = ("", "")
) -> None:
    """Make a pod of a Muster gang in namespace ml that asks for one GPU; says: reason and message of its condition."""
    spec: Json = {
        "schedulerName": "muster",
        "containers": [{"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}],
    }
    spec |= {"nodeName": on} if on else {}
    spec |= {"priorityClassName": priority} if priority else {}
    labels = {"scheduling.muster.sh/pod-group": gang} if gang else {}
    rest.create("/api/v1/namespaces/ml/pods", {"metadata": {"name": name, "labels": labels}, "spec": spec})
    status: Json = {}
    if on:
        ready = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _RUNNING}
        status = {"phase": "Running", "startTime": _RUNNING, "conditions": [ready]}
    elif says[0]:
        status = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": says[0], "message": says[1]}]}
    if status:
        rest.patch(f"/api/v1/namespaces/ml/pods/{name}/status", {"status": status})


def gang(
    rest: Rest, name: str, in_queue: str, size: int, *, on: tuple[str, ...] = (), says: tuple[str, str] = ("", ""),
    priority: str = "", members: int | None = None, **spec: object,
) -> None:  # fmt: skip
    """Make a Muster gang in namespace ml with its pods, the first of them on these nodes."""
    body = {"metadata": {"name": name}, "spec": {"minMember": size, "queue": in_queue, **spec}}
    rest.create(f"{MUSTER}/namespaces/ml/podgroups", body)
    for number in range(size if members is None else members):
        node = on[number] if number < len(on) else ""
        pod(rest, f"{name}-{number}", name, on=node, priority=priority, says=says)


def fill(rest: Rest) -> None:
    """Make everything that is in the cluster."""
    rest.create("/api/v1/namespaces", {"metadata": {"name": "ml"}})
    for rack, pool, names in (("r1", "spot", ("a1", "a2")), ("r2", "fixed", ("b1", "b2"))):
        for name in names:
            made = nodes.node_object(name, {"cpu": 8, "memory": "16Gi", GPU: 4})
            made["metadata"]["labels"] |= {"example.com/rack": rack, "example.com/pool": pool}
            nodes.register_node(rest, made)
    rest.patch("/api/v1/nodes/b2", {"spec": {"unschedulable": True}})
    levels = [{"name": "rack", "label": "example.com/rack"}, {"name": "host", "label": "kubernetes.io/hostname"}]
    rest.create(f"{MUSTER}/topologies", {"metadata": {"name": "fabric"}, "spec": {"levels": levels}})
    rest.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 100})
    queue(rest, "org")
    queue(rest, "research", "org", deserved=4, limit=8)
    queue(rest, "inference", "org", deserved=4, guarantee=1)
    gang(rest, "train", "research", 5, on=("a1", "a1", "a1", "a2", "a2"))
    gang(rest, "serve", "inference", 2, on=("b1", "b1"))
    gang(rest, "sweep", "research", 6, says=("Unschedulable", _SHORT_OF))
    says = ("WaitingForQuota", "WaitingForQuota: needs 4 example.com/gpu; queue research uses 5 of limit 8")
    gang(rest, "next", "research", 4, priority="high", says=says)
    gang(rest, "more", "inference", 2)
    gang(rest, "held", "research", 2, suspend=True)
    gang(rest, "few", "inference", 4, members=1)
    rest.create(f"{VOLCANO}/queues", {"metadata": {"name": "old"}, "spec": {"weight": 1}})
    body = {"metadata": {"name": "legacy"}, "spec": {"minMember": 1, "queue": "old"}}
    rest.create(f"{VOLCANO}/namespaces/ml/podgroups", body)


@contextmanager
def filled() -> Iterator[ThreadedServer]:
    """Serve the cluster."""
    with ThreadedServer(PlaygroundServer()) as running:
        rest = Rest(running.url, token="")
        apply_crds(rest, CRDS)
        fill(rest)
        yield running


def muster(runner: CliRunner, *words: str, exits: int = 0, input: str | None = None) -> Result:
    """Run a command in this process; it must end with this exit code."""
    result = runner.invoke(app, list(words), input=input)
    assert result.exit_code == exits, (result.output, result.exception)
    return result


def agrees(name: str, text: str, *, ages: bool = True) -> None:
    """Compare an output with what it was (testdata/NAME; `ages` are not compared). GOLDEN=write writes it anew."""
    file = TESTDATA / name
    plain = _without_ages(text) if ages else text
    if os.environ.get("GOLDEN") == "write":
        file.write_text(plain)
    assert plain == file.read_text(), f"{file} says something else; GOLDEN=write writes it anew"


def _without_ages(text: str) -> str:
    text = re.sub(r"(?<= )\d{1,2}s( +|$)", lambda found: "0s".ljust(len(found.group(0))), text, flags=re.MULTILINE)
    text = re.sub(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2020-01-01T00:00:00Z", text)
    return re.sub(r'("age": "|age: )\d+s', r"\g<1>0s", text)
