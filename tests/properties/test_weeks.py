"""Random weeks of a small cluster: whatever comes, and in whatever order, the laws hold and it comes to rest.

Gangs arrive, finish, fail and are deleted; nodes come, go, are cordoned and shrink; queues are made, edited and
deleted; victims take their time; requests fail; pods are bound by others; the scheduler starts anew in the middle. What
holds after every session is in `week_laws`, who lives around the sessions in `weeks`.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.queues import Queue
from scheduler.model.resources import amounts
from tests.properties.week_laws import starving
from tests.properties.weeks import Week
from tests.unit.framework.world import need, shape

NAMES = tuple(f"q{number}" for number in range(8))
PRIORITIES = (10, 50, 100)
few = st.integers(0, 3)
pick = st.integers(0, 999)


@st.composite
def fields(draw):
    """What a queue says; now and then it contradicts itself."""

    def table(most):
        named = draw(st.sampled_from(("none", "gpu", "gpu", "both")))
        values = {} if named == "none" else {"gpu": draw(st.integers(0, most))}
        if named == "both":
            values["cpu"] = draw(st.integers(0, most))
        return amounts(need(**values))

    return {
        "guarantee": table(1) if draw(st.integers(0, 4)) == 0 else (),
        "deserved": table(4) if draw(st.booleans()) else (),
        "limit": table(6) if draw(st.integers(0, 2)) == 0 else (),
        "weight": draw(st.sampled_from((1000, 1000, 1000, 2000, 0))),
        "priority": draw(st.sampled_from((0, 0, 0, 1))),
        "reclaimable": draw(st.integers(0, 9)) > 0,
        "min_runtime": draw(st.sampled_from((None, None, None, 0.0, 20.0, 1e6))),
        "within_queue": draw(st.sampled_from(("LowerPriority",) * 5 + ("Never",))),
        "reclaim": draw(st.sampled_from(("Any",) * 5 + ("Never", "LowerPriority"))),
    }


GANG = st.fixed_dictionaries(
    {
        "minimum": st.sampled_from((1, 1, 2, 2, 3)),
        "surplus": st.sampled_from((0, 0, 0, 1, 3)),
        "gpu": st.sampled_from((1, 1, 1, 2, 0)),
        "cpu": st.sampled_from((0, 0, 1, 2)),
        "queue": pick,
        "priority": st.sampled_from(PRIORITIES),
        "preemptible": st.sampled_from((None,) * 7 + (False,)),
        "runtime": st.sampled_from((None, None, None, None, 0.0, 30.0)),
        "owned": st.sampled_from(("each", "one", "")),
        "rack": st.integers(0, 5),
        "role": st.sampled_from(("", "", "ps")),
        "late": st.integers(0, 9),
        "at": pick,
    }
)
POD = st.fixed_dictionaries(
    {
        "gpu": st.integers(0, 3),
        "cpu": st.integers(0, 2),
        "queue": pick,
        "priority": st.sampled_from(PRIORITIES),
        "preempts": st.sampled_from((True, True, True, True, False)),
        "preemptible": st.sampled_from((None,) * 5 + (False,)),
        "owned": st.booleans(),
        "at": pick,
    }
)


class Weeks(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.week = Week()
        self.number = 0

    def fresh(self) -> int:
        self.number += 1
        return self.number

    def some(self, things, at):
        things = sorted(things)
        return things[at % len(things)] if things else None

    def pods(self, take):
        return [uid for uid, pod in self.week.pods.items() if take(pod)]

    # -- the cluster ------------------------------------------------------------------------------------------------

    @initialize(
        sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        tight=st.booleans(),
        queues=st.lists(st.tuples(pick, fields()), max_size=5),
        gangs=st.lists(GANG, min_size=2, max_size=5),
    )
    def begin(self, sizes, tight, queues, gangs):
        """A cluster that is in use."""
        for size in sizes:
            self.week.node(f"n{self.fresh()}", gpu=size, cpu=size + 1 if tight else 64, labels={"rack": "ab"[size % 2]})
        for parent, said in queues:
            self.queue_comes(at=0, parent=parent, said=said)
        for gang in gangs:
            self.gang_comes(**gang)
        self.day(1.0)
        self.day(1.0)

    @precondition(lambda self: len(self.week.machines) < 6)
    @rule(gpu=st.integers(0, 4), cpu=st.integers(1, 6), slots=st.sampled_from((110, 110, 2)))
    def node_comes(self, gpu, cpu, slots):
        self.week.node(f"n{self.fresh()}", gpu=gpu, cpu=cpu, slots=slots, labels={"rack": "ab"[gpu % 2]})

    @precondition(lambda self: len(self.week.machines) > 1)
    @rule(at=pick)
    def node_goes(self, at):
        self.week.drop_node(self.some(self.week.machines, at))

    @rule(at=pick)
    def node_is_cordoned_or_not(self, at):
        node = self.week.machines[self.some(self.week.machines, at)]
        self.week.set_node(replace(node, unschedulable=not node.unschedulable))

    @rule(at=pick, gpu=st.integers(0, 2))
    def node_shrinks(self, at, gpu):
        node = self.week.machines[self.some(self.week.machines, at)]
        left = dict(node.allocatable)
        left.update({name: min(left.get(name, 0), value) for name, value in need(gpu=gpu).items()})
        self.week.set_node(replace(node, allocatable=amounts(left)))

    # -- queues -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.week.queues) < len(NAMES))
    @rule(at=pick, parent=pick, said=fields())
    def queue_comes(self, at, parent, said):
        free = [name for name in NAMES if name not in self.week.queues]
        above = ["", "", *(name for name in self.week.queues if len(self.week.cluster().lineage(name)) < 3)]
        name = self.some(free, at)
        above = [one for one in above if one != name]
        self.week.set_queue(Queue(name, parent=self.some(above, parent) or "", created=self.week.now, **said))

    @precondition(lambda self: self.week.queues)
    @rule(at=pick, said=fields())
    def queue_is_edited(self, at, said):
        queue = self.week.queues[self.some(self.week.queues, at)]
        self.week.set_queue(replace(queue, **said))

    @precondition(lambda self: self.week.queues)
    @rule(at=pick, parent=pick)
    def queue_moves(self, at, parent):
        name = self.some(self.week.queues, at)
        above = ["", *(one for one in self.week.queues if name not in self.week.cluster().lineage(one))]
        self.week.set_queue(replace(self.week.queues[name], parent=self.some(above, parent)))

    @precondition(lambda self: self.week.queues)
    @rule(at=pick, state=st.sampled_from(("Open", "Open", "Hold")))
    def queue_opens_or_closes(self, at, state):
        queue = self.week.queues[self.some(self.week.queues, at)]
        self.week.set_queue(replace(queue, state=state))

    @precondition(lambda self: self.week.queues)
    @rule(at=pick)
    def queue_goes(self, at):
        self.week.drop_queue(self.some(self.week.queues, at))

    @rule(least=st.integers(0, 2), app=st.sampled_from("ab"))
    def budget_comes(self, least, app):
        self.week.budgets[f"pdb-{app}"] = (LabelSelector((Requirement("app", "In", (app,)),)), least)

    # -- gangs ------------------------------------------------------------------------------------------------------

    def labels(self, at):
        return {"labels": (("app", "ab"[at % 2]),)} if at % 3 == 0 else {}

    @rule(gang=GANG)
    def another_gang_comes(self, gang):
        if len(self.week.groups) < 12:
            self.gang_comes(**gang)

    def gang_comes(
        self, minimum, surplus, gpu, cpu, queue, priority, preemptible, runtime, owned, rack, role, late, at
    ):
        week, name = self.week, f"g{self.fresh()}"
        group = week.gang(
            name, minimum, count=0, queue=self.some(("", *week.queues), queue), preemptible=preemptible,
            min_runtime=runtime, topology="rack" if rack == 0 else "", roles={role: 1} if role else {},
        )  # fmt: skip
        for number in range(minimum + surplus - (late == 0)):
            owner = {"each": f"o-{name}-{number}", "one": f"o-{name}", "": ""}[owned]
            if owner:
                week.alone[owner] = None
            week.member(
                group, number, shape(gpu=gpu, cpu=cpu), priority=priority, role=role if number == 0 else "",
                owner_uid=owner, owner_name=owner, owner_kind="Job" if owner else "", **self.labels(at),
            )  # fmt: skip

    @rule(pod=POD)
    def another_pod_comes(self, pod):
        if sum(not one.group for one in self.week.pods.values()) < 8:
            self.pod_comes(**pod)

    def pod_comes(self, gpu, cpu, queue, priority, preempts, preemptible, owned, at):
        name = f"s{self.fresh()}"
        owner = f"o-{name}" if owned else ""
        if owner:
            self.week.alone[owner] = None
        self.week.pod(
            name, shape(gpu=gpu, cpu=cpu), queue=self.some(("", *self.week.queues), queue), priority=priority,
            preempts=preempts, preemptible=preemptible, owner_uid=owner, owner_name=owner,
            owner_kind="ReplicaSet" if owner else "", **self.labels(at),
        )  # fmt: skip

    @precondition(lambda self: self.week.groups)
    @rule(at=pick, count=st.integers(1, 2))
    def gang_grows(self, at, count):
        group = self.week.groups[self.some(self.week.groups, at)]
        alike = [pod for pod in self.week.pods.values() if pod.group == group.key]
        if alike and len(alike) < 6:
            for _ in range(count):
                first = min(alike, key=lambda pod: pod.name)
                owner = first.owner_uid and f"o-x{self.fresh()}"
                self.week.member(
                    group, self.fresh(), self.week.shapes[first.shape], priority=first.priority, labels=first.labels,
                    owner_uid=owner, owner_name=owner, owner_kind=first.owner_kind,
                )  # fmt: skip

    @rule(at=pick, phase=st.sampled_from(("Succeeded", "Failed")))
    def pod_ends(self, at, phase):
        uid = self.some(self.pods(lambda pod: pod.node and not pod.finished), at)
        if uid:
            pod = self.week.pods[uid]
            self.week.set_pod(replace(pod, phase=phase))
            if phase == "Failed":
                self.week.remove(self.week.pods[uid])

    @rule(at=pick)
    def pod_is_deleted(self, at):
        uid = self.some(self.pods(lambda pod: True), at)
        if uid:
            self.week.delete(self.week.pods[uid])

    @precondition(lambda self: self.week.groups)
    @rule(at=pick)
    def gang_finishes(self, at):
        key = self.some(self.week.groups, at)
        for pod in [pod for pod in self.week.pods.values() if pod.group == key and pod.node and not pod.finished]:
            self.week.set_pod(replace(pod, phase="Succeeded"))

    @precondition(lambda self: self.week.groups)
    @rule(at=pick, also=st.booleans())
    def gang_is_deleted(self, at, also):
        key = self.some(self.week.groups, at)
        self.week.drop_group(key)
        for pod in [pod for pod in self.week.pods.values() if pod.group == key]:
            if also or not pod.node:
                self.week.delete(pod)

    @rule(at=pick, node=pick)
    def another_binds(self, at, node):
        uid = self.some(self.pods(lambda pod: pod.ours and pod.waiting), at)
        if uid:
            name = self.some(self.week.machines, node)
            self.week.disturbed[name] = self.week.now
            pod = replace(self.week.pods[uid], node=name, phase="Running", started=True, since=self.week.now)
            self.week.set_pod(pod)

    @rule(node=pick, gpu=st.integers(0, 2), cpu=st.integers(0, 1))
    def a_stranger_runs(self, node, gpu, cpu):
        name = self.some(self.week.machines, node)
        self.week.disturbed[name] = self.week.now
        self.week.running(f"x{self.fresh()}", name, shape(gpu=gpu, cpu=cpu), ours=False, scheduler_name="other")

    # -- time -------------------------------------------------------------------------------------------------------

    @rule(later=st.sampled_from((1.0, 1.0, 5.0, 40.0)))
    def session(self, later):
        self.week.decide(later)

    @rule(later=st.sampled_from((1.0, 1.0, 20.0)))
    def day(self, later):
        """What usually happens: decided, written, carried out."""
        self.week.decide(later)
        self.week.handed_over()
        self.week.bind()
        self.week.end()
        self.week.bind()

    @rule()
    def written(self):
        self.week.handed_over()

    @rule()
    def not_written(self):
        self.week.handover_fails()

    @rule(only=st.none() | pick)
    def binder(self, only):
        self.week.bind(only)

    @rule(only=st.none() | pick)
    def kubelet(self, only):
        self.week.end(only)

    @rule(at=pick, cause=st.sampled_from(("Timeout", "NodeGone", "Forbidden", "VictimsRemain")))
    def request_fails(self, at, cause):
        self.week.fail(at, cause)

    @rule()
    def requests_are_forgotten(self):
        self.week.forget_requests()

    @rule(one=pick, other=pick)
    def restart(self, one, other):
        self.week.restart(one, other)

    @rule()
    def rest(self):
        """No more input: it comes to rest, and nobody is left waiting who could be served."""
        self.week.settle()
        self.week.decide(later=70.0)
        snapshot = self.week.snapshot
        if not self.week.places and not snapshot.no_goods and not snapshot.holds:
            held = frozenset(key for key, state in snapshot.groups.items() if state.held or state.missing_object)
            starving(self.week.cluster(), held)


def test_what_goes_below_a_limit_makes_room_in_it() -> None:
    """Found by `test_many_random_weeks`: the law looked at the limits above both queues as if nobody went."""
    week = Week()
    week.node("n", gpu=1)
    week.set_queue(Queue("team", limit=amounts(need(gpu=1))))
    week.set_queue(Queue("owed", parent="team", deserved=amounts(need(gpu=1))))
    week.set_queue(Queue("borrows", parent="team"))
    week.member(week.gang("runs", 1, count=0, queue="borrows"), 0, shape(gpu=1))
    week.settle()
    assert week.pods["uid-runs-0"].node
    week.member(week.gang("asks", 1, count=0, queue="owed"), 0, shape(gpu=1))
    week.settle()
    assert {pod.name: pod.node for pod in week.pods.values()} == {"asks-0": "n"}


def test_who_was_to_grow_onto_a_node_that_went_is_told_as_lost() -> None:
    """Found by `test_many_random_weeks`: the binder model told members that it could not bind as bound."""
    week = Week()
    week.node("n", gpu=1).node("m", gpu=1)
    group = week.gang("runs", 1, count=0)
    week.member(group, 0, shape(gpu=1))
    week.settle()
    week.member(group, 1, shape(gpu=1))
    (place,) = week.decide()
    week.drop_node(place.assignments[0].node)
    week.settle()
    assert not week.pods["uid-runs-1"].node


def test_a_group_that_could_never_start_is_no_reason_to_owe_its_queue_anything() -> None:
    """Found by `test_many_random_weeks`: the law counted what it asks for, the scheduler rightly did not."""
    week = Week()
    week.node("n", gpu=1)
    for name in ("two", "three"):
        week.set_queue(Queue(name, deserved=amounts(need(gpu=1))))
    never = week.gang("never", 2, count=0, queue="two")
    for number in range(2):
        week.member(never, number, shape(gpu=1))
    week.member(week.gang("runs", 1, count=0, queue="three"), 0, shape(gpu=1))
    week.settle()
    week.set_queue(Queue("three"))
    week.member(week.gang("waits", 1, count=0), 0, shape(gpu=1))
    week.settle()
    assert {pod.name for pod in week.pods.values() if pod.node} == {"waits-0"}


def play(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Weeks,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_random_weeks() -> None:
    play(int(os.environ.get("MUSTER_WEEKS", "60")), 30)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_random_weeks() -> None:
    play(int(os.environ.get("MUSTER_WEEKS", "3000")), 50)
