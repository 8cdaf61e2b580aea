"""The seed story in three acts, told to any API server with GPUs, and what must come true in each.

Decided here: what is promised. Every act does something through the API and expects something of the pods; an
expectation that is not met raises `StoryBroken`. Must not know who schedules, nor how the control plane was started.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Awaitable, Callable, Sequence

from scheduler.cli.shipped import shipped
from scheduler.cli.stage import Actor, Obj, Stage
from scheduler.playground.kubelet import RUN_SECONDS
from scheduler.playground.run import load_manifests

GPU = "example.com/gpu"
GANG, HOG = "train", "gpu-hog"
TOGETHER = 1.0
"""Seconds within which the members of a gang start."""
STAYS = 1.5
"""Seconds for which a verdict is watched."""
RUNS = 3.0
"""Seconds for which each gang of the third act runs."""
AddNodes = Callable[[int], Awaitable[None]]


async def tell(stage: Stage, add_nodes: AddNodes) -> None:
    """Play all acts. Raises `StoryBroken`.

    add_nodes: adds that many worker nodes with two GPUs each; the story begins with two of them.
    """
    hog, manifest = load_manifests([shipped("config/samples/gpu-hog.yaml")]), volcano_manifest()
    await stage.count_nodes()
    await a_gang_waits_whole(stage, hog, manifest)
    await the_same_job_without_its_group(stage, hog, without_group(manifest))
    await add_nodes(2)
    await stage.count_nodes()
    await two_teams(stage)


def volcano_manifest() -> list[Obj]:
    """Return the sample that was written for Volcano, as it is on disk."""
    return load_manifests([shipped("config/samples/volcano-gang.yaml")])


def without_group(manifest: list[Obj]) -> list[Obj]:
    """Return a manifest without its PodGroup and without the annotation that names it."""
    rest = copy.deepcopy([one for one in manifest if one["kind"] != "PodGroup"])
    for one in rest:
        one["spec"]["template"].pop("metadata", None)
    return rest


async def a_gang_waits_whole(stage: Stage, hog: list[Obj], manifest: list[Obj]) -> None:
    """Act 1: three of four GPUs are held; the gang waits whole, and starts whole when they are freed."""
    stage.screen.act("Act 1: a gang starts whole or not at all")
    await _hold_three(stage, hog)
    stage.screen.say(
        "apply config/samples/volcano-gang.yaml, unchanged: a Volcano PodGroup (minMember 4) and a Job of 4 pods, "
        "1 GPU each"
    )
    async with stage.never(f"no pod of {GANG} is bound while {HOG} holds 3 GPUs", lambda: stage.bound(GANG) > 0):
        await stage.apply(manifest)
        await stage.until(
            f"all 4 pods of {GANG} say that the gang is 3 GPUs short",  # the first may say before that others miss
            lambda: len(stage.gang(GANG)) == 4 and all("3 short" in one.reason for one in stage.gang(GANG)),
        )
        await asyncio.sleep(STAYS)
        stage.met(f"{GANG} is Pending as a whole: 0 of 4 bound, although one GPU is free")
    reason = stage.gang(GANG)[0].reason
    stage.screen.quote(reason)
    stage.require(f"the reason says that {HOG} holds them", bool(re.search(rf"held by 3 pods of \S*{HOG}", reason)))
    stage.met("the reason says how many GPUs are short (3) and who holds them")
    await stage.rest()
    stage.screen.say(f"delete {HOG}")
    await stage.delete(hog)
    await stage.until(f"all 4 pods of {GANG} run", lambda: stage.running(GANG) == 4)
    require_together(stage, stage.gang(GANG))
    group = next(one for one in manifest if one["kind"] == "PodGroup")
    await _until_phase(stage, group, "Running")
    stage.met("the Volcano PodGroup says Running")
    await stage.rest()
    await _clear(stage, manifest)


async def the_same_job_without_its_group(stage: Stage, hog: list[Obj], job: list[Obj]) -> None:
    """Act 2: without its PodGroup the same Job takes what it gets."""
    stage.screen.act("Act 2: the same Job without its PodGroup")
    await _hold_three(stage, hog)
    stage.screen.say("apply the same Job, without its PodGroup and without the annotation that names it")
    async with stage.never(f"at most 1 pod of {GANG} is bound", lambda: stage.bound(GANG) > 1):
        await stage.apply(job)
        await stage.until(
            f"1 pod of {GANG} runs and 3 say why they wait",
            lambda: stage.running(GANG) == 1 and sum(bool(one.reason) for one in _waiting(stage, GANG)) == 3,
        )
        await asyncio.sleep(STAYS)
    started = next(one for one in stage.gang(GANG) if one.node)
    stage.met(f"{started.name} started alone on {started.node} and holds its GPU for nothing: 1 of 4 bound, 3 wait")
    stage.screen.quote(_waiting(stage, GANG)[0].reason)
    await stage.rest()
    await _clear(stage, hog + job)


async def two_teams(stage: Stage) -> None:
    """Act 3: two gangs that do not fit together, submitted pod by pod in turn, run one after the other."""
    sizes = {"team-a": 6, "team-b": 4}
    stage.screen.act("Act 3: two teams, 6 + 4 GPUs wanted, 8 there")
    total = sum(stage.nodes.values())
    stage.require("the nodes have 8 GPUs", total == 8, f"they have {total}")
    groups, pods = team_objects(sizes)
    stage.screen.say("team-a submits a gang of 6 (Volcano PodGroup), team-b one of 4 (Muster PodGroup), pods in turn")
    await stage.apply(groups)
    await stage.apply(pods)
    await stage.until("one of the two gangs runs whole", lambda: any(_whole(stage, name, sizes) for name in sizes))
    first = next(name for name in sizes if _whole(stage, name, sizes))
    second = next(name for name in sizes if name != first)
    async with stage.never(
        f"no pod of {second} is bound while {first} runs whole",
        lambda: _whole(stage, first, sizes) and stage.bound(second) > 0,
    ):
        await stage.until(
            f"all {sizes[second]} pods of {second} say why they wait",
            lambda: len(_waiting(stage, second)) == sizes[second] and all(one.reason for one in stage.gang(second)),
        )
        stage.met(f"{first} runs whole ({sizes[first]} GPUs), {second} waits whole: 0 of {sizes[second]} bound")
        require_together(stage, stage.gang(first))
        stage.screen.quote(stage.gang(second)[0].reason)
        stage.screen.say(f"{first} ends by itself after {RUNS:g} s")
        await stage.until(
            f"{first} ends", lambda: all(one.phase == "Succeeded" for one in stage.gang(first)), RUNS + 15
        )
    await stage.until(f"{second} runs whole", lambda: _whole(stage, second, sizes))
    require_together(stage, stage.gang(second))
    stage.met(f"no deadlock: {second} started whole when {first} ended")
    await stage.until(f"{second} ends", lambda: all(one.phase == "Succeeded" for one in stage.gang(second)), RUNS + 15)
    stage.met("both gangs are done")
    await _clear(stage, groups + pods)


def require_together(stage: Stage, members: Sequence[Actor]) -> None:
    """Check that members were bound, and ran, within a second of each other; tell the measured times."""
    bound = [one.bound_at for one in members if one.bound_at is not None]
    running = [one.running_at for one in members if one.running_at is not None]
    stamps = [one.started for one in members if one.started is not None]
    stage.require("every member was seen to start", len(bound) == len(running) == len(stamps) == len(members))
    binding, starting, stamped = (max(times) - min(times) for times in (bound, running, stamps))
    stage.require(
        f"the members start within {TOGETHER:g} s of each other",
        max(binding, starting, stamped) <= TOGETHER,
        f"bound within {binding:.3f} s, running within {starting:.3f} s, startTime within {stamped:g} s",
    )
    stage.met(
        f"all {len(members)} started together: bound within {binding * 1000:.0f} ms, "
        f"running within {starting * 1000:.0f} ms"
    )


def team_objects(sizes: dict[str, int]) -> tuple[list[Obj], list[Obj]]:
    """Return namespaces and PodGroups of the teams, and their pods, one of each team in turn."""
    apis = {"team-a": "scheduling.volcano.sh/v1beta1", "team-b": "scheduling.muster.sh/v1alpha1"}
    groups: list[Obj] = []
    for team, size in sizes.items():
        groups.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
        groups.append(
            {
                "apiVersion": apis[team],
                "kind": "PodGroup",
                "metadata": {"name": team, "namespace": team},
                "spec": {"minMember": size},
            }
        )
    turns = range(max(sizes.values()))
    return groups, [_pod(team, turn) for turn in turns for team, size in sizes.items() if turn < size]


def _pod(team: str, number: int) -> Obj:
    metadata: Obj = {"name": f"{team}-{number}", "namespace": team, "annotations": {RUN_SECONDS: f"{RUNS:g}"}}
    if team == "team-a":
        metadata["annotations"]["scheduling.k8s.io/group-name"] = team
    else:
        metadata["labels"] = {"scheduling.muster.sh/pod-group": team}
    spec: Obj = {
        "schedulerName": "volcano" if team == "team-a" else "muster",
        "restartPolicy": "Never",
        "containers": [{"name": "worker", "image": "busybox:1.37", "resources": {"limits": {GPU: "1"}}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def _hold_three(stage: Stage, hog: list[Obj]) -> None:
    stage.screen.say(f"{HOG}: three pods that hold 3 of the 4 GPUs")
    await stage.apply(hog)
    await stage.until(f"3 pods of {HOG} run", lambda: stage.running(HOG) == 3)


async def _until_phase(stage: Stage, group: Obj, phase: str) -> None:
    """Groups are not watched by the stage; this one is read until it says what it must."""
    for _ in range(50):
        said = (await stage.read(group)).get("status", {}).get("phase", "")
        if said == phase:
            return
        await asyncio.sleep(0.1)
    stage.require(f"the PodGroup says {phase}", False, f"it says {said!r}")


async def _clear(stage: Stage, documents: list[Obj]) -> None:
    await stage.delete(documents)
    await stage.until("all pods are gone", lambda: not stage.actors)


def _waiting(stage: Stage, name: str) -> list[Actor]:
    return [one for one in stage.gang(name) if not one.node]


def _whole(stage: Stage, name: str, sizes: dict[str, int]) -> bool:
    return stage.running(name) == sizes[name]
