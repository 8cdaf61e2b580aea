"""The story of two racks: a gang gets one rack or nothing, its ranks lie side by side, and a rack is freed by a move.

Decided here: what is promised, as in `story`: every act does something through the API and expects something of the
pods, and one expectation that is not met ends it. Must not know who schedules, nor how the control plane was started.
"""

from __future__ import annotations

import asyncio
import copy

from scheduler.cli.stage import Actor, Obj, Stage
from scheduler.cli.story import GPU, AddNodes, require_together

NODES = 4
API = "scheduling.muster.sh/v1alpha1"
RACK = "example.com/rack"
PER_RACK = 2
"""Nodes of a rack, of two GPUs each."""
STAYS = 1.5
"""Seconds for which a refusal is watched."""


def rack_of(number: int) -> str:
    """Return the rack of the worker node with this number, from 1."""
    return f"rack-{(number - 1) // PER_RACK + 1}"


async def tell(stage: Stage, _: AddNodes) -> None:
    """Play all acts. Raises `StoryBroken`. The story begins with four worker nodes of two GPUs, two in each rack."""
    await stage.count_nodes()
    stage.require("there are 4 nodes", len(stage.nodes) == NODES, f"there are {len(stage.nodes)}")
    stage.screen.say(f"a Topology with one level, rack, read from the label {RACK}: two racks of 4 GPUs each")
    topology = {"apiVersion": API, "kind": "Topology", "metadata": {"name": "fabric"}}
    await stage.apply([topology | {"spec": {"levels": [{"name": "rack", "label": RACK}]}}])
    train = gang("train", 4, topology={"required": "rack"})
    await one_rack_or_nothing(stage, train)
    await side_by_side(stage, train)
    await two_parts(stage)
    await a_rack_is_freed(stage)


def gang(name: str, pods: int, **spec: object) -> list[Obj]:
    """Return a PodGroup of all pods of a Job, and the Job; its pods have indices and want one GPU each."""
    group = {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": name, "namespace": "default"}}
    return [group | {"spec": {"minMember": pods, **spec}}, job(name, pods, {"scheduling.muster.sh/pod-group": name})]


def job(name: str, pods: int, labels: dict[str, str], **pod: object) -> Obj:
    """Return a Job with indices."""
    container = {"name": "worker", "image": "busybox:1.37", "resources": {"limits": {GPU: "1"}}}
    spec = {"schedulerName": "muster", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": labels}, "spec": {**spec, "containers": [container], **pod}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "completionMode": "Indexed",
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 100,
            "template": template,
        },
    }


def probe(node: str) -> Obj:
    """Return a pod of nobody that wants one GPU of a node."""
    made = copy.deepcopy(job("probe", 1, {}, nodeSelector={"kubernetes.io/hostname": node})["spec"]["template"])
    meta = {"name": f"probe-{node}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": made["spec"]}


async def one_rack_or_nothing(stage: Stage, train: list[Obj]) -> None:
    """Act 1: six GPUs are free and the gang wants four, but no rack has them."""
    stage.screen.act("Act 1: one rack or nothing")
    stage.screen.say("one GPU of each rack is held by a pod of its own; a gang of 4 asks for one rack")
    probes = [probe("worker-1"), probe("worker-3")]
    await stage.apply(probes)
    await stage.until("both probes run", lambda: _running(stage, "probe") == 2)
    async with stage.never("no pod of train is bound", lambda: stage.bound("train") > 0):
        await stage.apply(train)
        await stage.until("all 4 pods of train say why they wait", lambda: _all_wait(stage, "train", 4))
        await asyncio.sleep(STAYS)
    reason = stage.gang("train")[0].reason
    stage.screen.quote(reason)
    stage.require("the reason counts racks", all(word in reason for word in ("rack", "1 short")), reason)
    stage.met("train waits whole, although 6 GPUs are free: the best rack is 1 short")
    await stage.rest()
    stage.screen.say("the probe in the first rack ends")
    await stage.delete([probes[0]])
    await stage.until("all 4 pods of train run", lambda: stage.running("train") == 4)
    require_together(stage, stage.gang("train"))
    stage.require("they are in one rack", _racks(stage.gang("train")) == {"rack-1"})
    stage.met("all 4 run in rack-1")
    await stage.rest()
    await stage.delete([probes[1]])
    await stage.until("the probes are gone", lambda: _running(stage, "probe") == 0)


async def side_by_side(stage: Stage, train: list[Obj]) -> None:
    """Act 2: consecutive ranks share nodes, and a lost one comes back to its place."""
    stage.screen.act("Act 2: ranks lie side by side")
    nodes = _nodes_by_rank(stage, "train")
    stage.require("ranks 0 and 1 share a node, 2 and 3 the other", nodes[0] == nodes[1] != nodes[2] == nodes[3])
    stage.met(f"ranks 0 and 1 are on {nodes[0]}, ranks 2 and 3 on {nodes[2]}")
    lost = next(one for one in stage.gang("train") if _rank(one) == 0)
    stage.screen.say(f"the pod of rank 0 is deleted; its Job makes it again, while {lost.node} and rack-2 have room")
    meta = {"name": lost.name, "namespace": "default"}
    await stage.delete([{"apiVersion": "v1", "kind": "Pod", "metadata": meta}])
    await stage.until("rank 0 was made again", lambda: lost.uid not in stage.actors)
    await stage.until("all 4 pods of train run", lambda: stage.running("train") == 4)
    stage.require("rank 0 is where it was", _nodes_by_rank(stage, "train") == nodes, stage.seen())
    stage.met(f"rank 0 is back on {lost.node}")
    await stage.rest()
    await _clear(stage, train)


async def two_parts(stage: Stage) -> None:
    """Act 3: a gang of two parts, each in a rack of its own."""
    stage.screen.act("Act 3: two parts, each in a rack of its own")
    parts = ("prefill", "decode")
    stage.screen.say("serve has the sub-groups prefill and decode, 2 pods each, each in one rack and the two apart")
    inside = [{"name": part, "minMember": 2, "topology": {"required": "rack"}} for part in parts]
    [group, _] = gang("serve", 4, topology={"name": "fabric", "apart": [{"level": "rack"}]}, subGroups=inside)
    label, part_label = "scheduling.muster.sh/pod-group", "scheduling.muster.sh/subgroup"
    jobs = [job(f"serve-{part}", 2, {label: "serve", part_label: part}) for part in parts]
    await stage.apply([group, *jobs])
    await stage.until("all 4 pods of serve run", lambda: stage.running("serve") == 4)
    require_together(stage, stage.gang("serve"))
    found = [_racks([one for one in stage.gang("serve") if part in one.name]) for part in parts]
    stage.require("each part is in one rack", all(len(racks) == 1 for racks in found), stage.seen())
    stage.require("the two are apart", found[0] != found[1], stage.seen())
    stage.met(f"prefill runs in {found[0].pop()}, decode in {found[1].pop()}; they started together")
    await stage.rest()
    await _clear(stage, [group, *jobs])


async def a_rack_is_freed(stage: Stage) -> None:
    """Act 4: one pod moves to the other rack, and the gang has a rack."""
    stage.screen.act("Act 4: a rack is freed by moving one pod")
    stage.screen.say(
        "eight jobs of one GPU each; all end but one in each rack; then the gang of 4 that asks for one rack"
    )
    jobs = {f"small-{number}": job(f"small-{number}", 1, {}) for number in range(8)}
    await stage.apply(list(jobs.values()))
    await stage.until("all 8 run", lambda: all(stage.running(name) == 1 for name in jobs))
    by_rack = {_racks(stage.gang(name)).pop(): name for name in jobs}
    names = sorted(by_rack.values())
    await stage.delete([one for name, one in jobs.items() if name not in names])
    await stage.until("one is left in each rack", lambda: len(stage.actors) == len(names))
    before = {name: stage.gang(name)[0] for name in names}
    train = gang("train", 4, topology={"required": "rack"})
    await stage.apply(train)
    await stage.until("all 4 pods of train run", lambda: stage.running("train") == 4)
    await stage.until("both small jobs run", lambda: all(stage.running(name) == 1 for name in names))
    moved = [name for name in names if stage.gang(name)[-1].uid != before[name].uid]
    stage.require("exactly one was moved", len(moved) == 1, f"moved: {', '.join(moved) or 'none'}")
    stage.require("train has one rack", len(_racks(stage.gang("train"))) == 1, stage.seen())
    stage.met(f"{moved[0]} moved to {stage.gang(moved[0])[-1].node}; train has {_racks(stage.gang('train')).pop()}")
    await _clear(stage, train + [jobs[name] for name in names])


def _racks(actors: list[Actor]) -> set[str]:
    return {rack_of(int(one.node.rpartition("-")[2])) for one in actors if one.node}


def _rank(actor: Actor) -> int:
    """Return the index of a pod of a Job with indices: NAME-INDEX-xxxxx."""
    return int(actor.name.split("-")[-2])


def _nodes_by_rank(stage: Stage, name: str) -> list[str]:
    return [one.node for one in sorted(stage.gang(name), key=_rank)]


def _running(stage: Stage, prefix: str) -> int:
    return sum(one.phase == "Running" for one in stage.actors.values() if one.name.startswith(prefix))


def _all_wait(stage: Stage, name: str, pods: int) -> bool:
    return sum(bool(one.reason) and not one.node for one in stage.gang(name)) == pods


async def _clear(stage: Stage, documents: list[Obj]) -> None:
    await stage.delete(documents)
    await stage.until("all pods are gone", lambda: not stage.actors)
