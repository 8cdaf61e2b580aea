"""The story of three teams on eight GPUs: they lend, take back, keep to their limits, and move together for each other.

Decided here: what is promised, as in `story`: every act does something through the API and expects something of the
pods, and one expectation that is not met ends it. Must not know who schedules, nor how the control plane was started.
"""

from __future__ import annotations

import asyncio

from scheduler.cli.stage import Actor, Obj, Stage
from scheduler.cli.story import GPU, AddNodes, require_together

NODES = 4
API = "scheduling.muster.sh/v1alpha1"
SHARES = {"research": 4, "inference": 3, "students": 1}
"""GPUs that each team deserves."""
STUDENTS_LIMIT = 2
STAYS = 1.5
"""Seconds for which a refusal is watched."""


async def tell(stage: Stage, _: AddNodes) -> None:
    """Play all acts. Raises `StoryBroken`. The story begins with four worker nodes of two GPUs each."""
    await stage.count_nodes()
    total = sum(stage.nodes.values())
    stage.require("the nodes have 8 GPUs", total == sum(SHARES.values()), f"they have {total}")
    shares = ", ".join(f"{team} {gpus}" for team, gpus in SHARES.items())
    stage.screen.say(f"three queues that share the 8 GPUs: {shares}; students never more than {STUDENTS_LIMIT}")
    await stage.apply([queue(team) for team in SHARES])
    sweep, serve = gang("sweep", "research", pods=8, minimum=2), gang("serve", "inference", pods=3)
    thesis, extra = gang("thesis", "students", pods=1), gang("extra", "students", pods=2)
    await lending(stage, sweep)
    await taking_back(stage, serve, thesis)
    await limits(stage, extra)
    await given_again(stage, serve)
    await _clear(stage, sweep + thesis + extra)
    await moving_together(stage)


def queue(team: str) -> Obj:
    """Return the queue of a team."""
    share: Obj = {"deserved": str(SHARES[team])}
    if team == "students":
        share["limit"] = str(STUDENTS_LIMIT)
    spec: Obj = {"resources": {GPU: share}}
    return {"apiVersion": API, "kind": "Queue", "metadata": {"name": team}, "spec": spec}


def gang(name: str, team: str, *, pods: int, minimum: int | None = None, gpus: int = 1) -> list[Obj]:
    """Return a PodGroup in a team's queue, and the Job that makes its pods."""
    return [
        {
            "apiVersion": API,
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minMember": minimum or pods, "queue": team},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "backoffLimit": 100,
                "template": {
                    "metadata": {"labels": {"scheduling.muster.sh/pod-group": name}},
                    "spec": {
                        "schedulerName": "muster",
                        "restartPolicy": "Never",
                        "terminationGracePeriodSeconds": 1,
                        "containers": [
                            {"name": "worker", "image": "busybox:1.37", "resources": {"limits": {GPU: str(gpus)}}}
                        ],
                    },
                },
            },
        },
    ]


async def lending(stage: Stage, sweep: list[Obj]) -> None:
    """Act 1: what nobody else wants is lent."""
    stage.screen.act("Act 1: research borrows what is idle")
    stage.screen.say("research submits a sweep of 8 pods that is content with 2 (minMember 2)")
    await stage.apply(sweep)
    await stage.until("all 8 pods of sweep run", lambda: stage.running("sweep") == 8)
    stage.met("sweep runs on all 8 GPUs: research deserves 4 and borrows 4")
    await stage.rest()


async def taking_back(stage: Stage, serve: list[Obj], thesis: list[Obj]) -> None:
    """Act 2: who is owed takes back, in exact numbers, and from the surplus."""
    stage.screen.act("Act 2: inference and students take back what they deserve")
    stage.screen.say("inference submits a gang of 3")
    async with stage.never("sweep keeps the 4 GPUs that research deserves", lambda: len(_holding(stage, "sweep")) < 4):
        await stage.apply(serve)
        await stage.until("all 3 pods of serve run", lambda: stage.running("serve") == 3)
        require_together(stage, stage.gang("serve"))
        await stage.until("sweep goes on with 5 pods", lambda: stage.running("sweep") == 5)
        stage.met("exactly 3 pods of sweep's surplus were evicted; it goes on with 5")
        stage.screen.say("students submit a job of 1")
        await stage.apply(thesis)
        await stage.until("thesis runs", lambda: stage.running("thesis") == 1)
        await stage.until("sweep goes on with 4 pods", lambda: stage.running("sweep") == 4)
        await stage.until(
            "those that its Job made again say why they wait",
            lambda: len(_waiting(stage, "sweep")) == 4 and all(one.reason for one in _waiting(stage, "sweep")),
        )
        stage.met("everybody has what they deserve: research 4, inference 3, students 1")
        await stage.rest()


async def limits(stage: Stage, extra: list[Obj]) -> None:
    """Act 3: a limit holds, nobody is evicted for what would exceed it, and the reason says so in numbers."""
    stage.screen.act("Act 3: a limit is a limit")
    stage.screen.say(f"students submit a gang of 2 more; that would make 3 of at most {STUDENTS_LIMIT}")
    held = {one.uid for name in ("sweep", "serve", "thesis") for one in _holding(stage, name)}

    def disturbed() -> bool:
        return stage.bound("extra") > 0 or not held <= {one.uid for one in stage.actors.values() if not one.ending}

    async with stage.never("nobody is evicted or bound for extra", disturbed):
        await stage.apply(extra)
        await stage.until(
            "both pods of extra say why they wait",
            lambda: sum(bool(one.reason) for one in _waiting(stage, "extra")) == 2,
        )
        await asyncio.sleep(STAYS)
    reason = _waiting(stage, "extra")[0].reason
    stage.screen.quote(reason)
    wanted = (f"WaitingForQuota: needs 2 {GPU}", "queue students", f"limit {STUDENTS_LIMIT}")
    stage.require("the reason names queue and limit", all(words in reason for words in wanted), reason)
    stage.met("the gang waits whole, with its queue and the limit in the reason; nobody was disturbed")
    await stage.rest()


async def given_again(stage: Stage, serve: list[Obj]) -> None:
    """Act 4: what is idle again is lent again."""
    stage.screen.act("Act 4: what is idle again is lent again")
    stage.screen.say("inference is done: delete serve")
    await stage.delete(serve)
    await stage.until("sweep grows to 7 pods", lambda: stage.running("sweep") == 7)
    stage.met("sweep grew to 7 pods on its own; students' limit still holds")
    await stage.rest()


async def moving_together(stage: Stage) -> None:
    """Act 5: free GPUs in pieces are made into a whole by moving one pod, and nobody loses anything."""
    stage.screen.act("Act 5: one pod moves, so that a big one fits")
    names = [f"small-{number}" for number in range(8)]
    jobs = {name: gang(name, "research", pods=1) for name in names}
    stage.screen.say("eight jobs of one GPU each; then one on every node ends")
    await stage.apply([one for job in jobs.values() for one in job])
    await stage.until("all 8 run", lambda: sum(stage.running(name) for name in names) == 8)
    by_node = {stage.gang(name)[0].node: name for name in names}
    ended = sorted(by_node.values())
    await stage.delete([one for name in ended for one in jobs[name]])
    kept = [name for name in names if name not in ended]
    await stage.until("one is left on every node", lambda: len(stage.actors) == NODES)
    before = {name: stage.gang(name)[0] for name in kept}
    stage.screen.say("inference asks for one pod with 2 GPUs: 4 are free, one on each node")
    pair = gang("pair", "inference", pods=1, gpus=2)
    await stage.apply(pair)
    await stage.until("pair runs", lambda: stage.running("pair") == 1)
    await stage.until("all the small ones run", lambda: sum(stage.running(name) for name in kept) == len(kept))
    moved = [name for name in kept if before[name].uid not in {one.uid for one in stage.gang(name)}]
    stage.require("exactly one pod was moved", len(moved) == 1, f"moved: {', '.join(moved) or 'none'}")
    now = stage.gang(moved[0])[-1]
    stage.require("it runs on another node", now.node != before[moved[0]].node, f"it runs on {now.node}")
    stage.met(f"{moved[0]} moved from {before[moved[0]].node} to {now.node}; pair has both GPUs of a node")
    await _clear(stage, pair + [one for name in kept for one in jobs[name]])


def _holding(stage: Stage, name: str) -> list[Actor]:
    return [one for one in stage.gang(name) if one.active and not one.ending]


def _waiting(stage: Stage, name: str) -> list[Actor]:
    return [one for one in stage.gang(name) if not one.node]


async def _clear(stage: Stage, documents: list[Obj]) -> None:
    await stage.delete(documents)
    await stage.until("all pods are gone", lambda: not stage.actors)
