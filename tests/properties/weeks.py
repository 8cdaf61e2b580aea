"""A small cluster that lives: real store and sessions, and models of what surrounds them, driven by the tests.

The binder model writes a request for each session, evicts victims one by one as their budgets allow, binds when all of
them are gone, and can fail; the kubelet model ends pods that are being deleted, later; controllers make pods again
under a new uid. Everything is kept as plain objects too, so that what a session decided can be judged without asking
the product (`week_laws`), and so that another store can be told the same from the start (a restart).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from scheduler.actions.run import Sessions
from scheduler.cluster import feed
from scheduler.cluster.store import Store
from scheduler.config import SchedulerConfiguration
from scheduler.model.affinity import LabelSelector
from scheduler.model.bindrequest import BindFailure, BindRequest, GangOutcome
from scheduler.model.budgets import DisruptionBudget
from scheduler.model.decisions import Assignment, Place, SetStatus
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.queues import Queue
from scheduler.model.selecting import selects
from scheduler.model.verdict import Code
from tests.properties.week_laws import Amounts, Cluster, Open, judge
from tests.unit.framework.world import World, with_plugins

CONFIG = with_plugins(["priority", "gang", "conformance"], ["queues", "predicates", "nodeorder", "binpack", "topology"])
PATIENCE = 6
"""Steps of the binder after which a request gives up on victims that do not go."""
GRACE = 30


@dataclass
class Request:
    """A BindRequest as the binder model sees it."""

    name: str
    session: str
    gangs: tuple[Place, ...]
    created: float
    written: bool = False
    outcomes: dict[int, GangOutcome] = field(default_factory=dict)
    steps: int = 0

    @property
    def done(self) -> bool:
        return len(self.outcomes) == len(self.gangs)

    def value(self) -> BindRequest:
        return BindRequest(
            name=self.name, uid=f"uid-{self.name}", session=self.session, epoch=1, deadline=self.created + 420.0,
            gangs=self.gangs, phase="Bound" if self.done else "AwaitingVictims",
            outcomes=tuple(self.outcomes[index] for index in sorted(self.outcomes)), created=self.created,
        )  # fmt: skip


class Week(World):
    """See the module."""

    def __init__(self, config: SchedulerConfiguration = CONFIG, shuffle: int | None = None) -> None:
        super().__init__(config, shuffle=shuffle, check=True)
        self.shapes: dict[str, Shape] = {}
        self.machines: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {}
        self.budgets: dict[str, tuple[LabelSelector, int]] = {}
        self.requests: dict[str, Request] = {}
        self.disturbed: dict[str, float] = {}
        self.alone: dict[str, None] = {}
        """Controllers that make their pods again."""
        self.ran: set[str] = set()
        self.evicted = 0
        self._made = 0
        self._written = 0
        self._told_budgets: dict[str, DisruptionBudget] = {}
        self.log: list[str] = []

    # -- objects ------------------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        self.machines[node.name] = node
        self.disturbed[node.name] = self.now
        self._queue.append(feed.NodeSet(node))

    def node(self, name: str, **fields: object) -> Week:
        super().node(name, **fields)  # type: ignore[arg-type]
        event = self._queue[-1]
        assert isinstance(event, feed.NodeSet)
        self.machines[name] = event.node
        self.disturbed[name] = self.now
        return self

    def drop_node(self, name: str) -> None:
        del self.machines[name]
        self._queue.append(feed.NodeGone(name))

    def set_queue(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        self._queue.append(feed.QueueSet(queue))

    def drop_queue(self, name: str) -> None:
        queue = self.queues.pop(name)
        self._queue.append(feed.QueueGone(name, queue.dialect))

    def pod(self, name: str, of: Shape | None = None, **fields: object) -> Pod:
        assert of is not None
        self.shapes[of.key] = of
        return super().pod(name, of, **fields)  # type: ignore[arg-type]

    def drop_group(self, key: str) -> None:
        group = self.groups.pop(key)
        self.ran.discard(group.uid)
        self._queue.append(feed.GroupGone(key))

    def remove(self, pod: Pod) -> None:
        """The object is gone; its controller makes another one."""
        self.drop_pod(pod.name)
        if pod.owner_uid in self.alone and pod.owner_uid and (not pod.group or pod.group in self.groups):
            self._made += 1
            stem = pod.name.partition("+")[0]
            fresh = replace(
                pod, uid=f"uid-{stem}+{self._made}", name=f"{stem}+{self._made}", node="", phase="Pending", since=0.0,
                deleting=False, started=False, ends=0.0, created=self.now,
            )  # fmt: skip
            self.set_pod(fresh)

    def delete(self, pod: Pod) -> None:
        """Somebody deletes the pod: it ends at once where it never ran, else later."""
        if not pod.node or pod.finished:
            self.remove(pod)
        elif not pod.deleting:
            self.set_pod(replace(pod, deleting=True, ends=self.now + GRACE))

    def budget_of(self, name: str) -> int:
        """How many more pods of a budget may be evicted now."""
        selector, least = self.budgets[name]
        healthy = [
            pod
            for pod in self.pods.values()
            if pod.node and not pod.deleting and not pod.finished and selects(selector, dict(pod.labels))
        ]
        return max(0, len(healthy) - least)

    def _tell_budgets(self) -> None:
        for name, (selector, _) in self.budgets.items():
            told = DisruptionBudget("ns", name, f"uid-{name}", selector, allowed=self.budget_of(name))
            if self._told_budgets.get(name) != told:
                self._told_budgets[name] = told
                self._queue.append(feed.BudgetSet(told))

    # -- the binder and the kubelets ----------------------------------------------------------------------------------

    def open(self) -> Iterator[Open]:
        """Yield the placements that are decided and not ended."""
        for request in self.requests.values():
            for index, gang in enumerate(request.gangs):
                if index not in request.outcomes:
                    yield Open(gang, request.created)

    def handed_over(self) -> None:
        """The newest requests are written."""
        for request in self.requests.values():
            if not request.written:
                request.written = True
                self._queue.append(feed.RequestSet(request.value()))

    def handover_fails(self) -> bool:
        """What was decided last cannot be written."""
        lost = [request for request in self.requests.values() if not request.written]
        for request in lost:
            groups = tuple(sorted({gang.group for gang in request.gangs}))
            self._queue.append(feed.HandoverFailed(request.session, groups, "Timeout"))
            del self.requests[request.name]
        return bool(lost)

    def bind(self, only: int | None = None) -> None:
        """Let the binder go on with each request, or with one of them."""
        for number, request in enumerate(tuple(self.requests.values())):
            if request.written and not request.done and (only is None or number == only % len(self.requests)):
                before = dict(request.outcomes)
                for index, gang in enumerate(request.gangs):
                    if index not in request.outcomes:
                        outcome = self._bind(request, index, gang)
                        if outcome is not None:
                            request.outcomes[index] = outcome
                request.steps += 1
                if request.outcomes != before:
                    self._queue.append(feed.RequestSet(request.value()))

    def fail(self, number: int, cause: str) -> bool:
        """A gang of a request is given up before anything of it was bound."""
        gangs = [
            (request, index)
            for request in self.requests.values()
            if request.written
            for index in range(len(request.gangs))
            if index not in request.outcomes
        ]
        if not gangs:
            return False
        request, index = gangs[number % len(gangs)]
        first = request.gangs[index].assignments[0]
        request.outcomes[index] = self._outcome(index, [first], cause)
        self._queue.append(feed.RequestSet(request.value()))
        return True

    def _outcome(self, index: int, lost: Sequence[Assignment], cause: str, *, bound: int = 0) -> GangOutcome:
        """What is told of a gang: each member that is not listed as lost is bound, where any is."""
        failures = tuple(BindFailure(one.uid, one.pod, one.node, cause) for one in lost)
        return GangOutcome(index, "Bound" if bound else "Failed", bound, failures)

    def _bind(self, request: Request, index: int, gang: Place) -> GangOutcome | None:
        alive = [one for one in gang.assignments if (pod := self.pods.get(one.uid)) is not None and pod.waiting]
        gone = [one for one in gang.assignments if one not in alive]
        if len(alive) < max(1, gang.minimum):
            return self._outcome(index, gone, "PodGone")
        there = [pod for one in gang.victims if (pod := self.pods.get(one.uid)) is not None and not pod.finished]
        for pod in there:
            covers = [name for name, (selector, _) in self.budgets.items() if selects(selector, dict(pod.labels))]
            if not pod.deleting and all(self.budget_of(name) > 0 for name in covers):
                self.set_pod(replace(pod, deleting=True, ends=self.now + GRACE))
        if there:
            if request.steps < PATIENCE:
                return None
            return self._outcome(index, alive, "VictimsRemain")
        lost = [one for one in alive if one.node not in self.machines]
        able = [one for one in alive if one not in lost]
        if len(able) >= max(1, gang.minimum):
            for one in able:
                self._start(one, request)
            return self._outcome(index, lost, "NodeGone", bound=len(able))
        return self._outcome(index, lost, "NodeGone")

    def _start(self, one: Assignment, request: Request) -> None:
        """The kubelet takes the pod: there is room, or the node is not what it was when that was decided."""
        pod, node = self.pods[one.uid], self.machines[one.node]
        held = Amounts()
        others = [pod for pod in self.pods.values() if pod.node == one.node and not pod.finished]
        for other in others:
            held += Amounts(self.shapes[other.shape].requests)
        held += Amounts(self.shapes[pod.shape].requests)
        if self.disturbed[one.node] < request.created:
            over = {
                name
                for name, value in self.shapes[pod.shape].requests
                if value and held[name] > dict(node.allocatable).get(name, 0)
            }
            assert not over, f"{one.pod} is bound to {one.node}, which has no room for it: {sorted(over)}"
        self.set_pod(replace(pod, node=one.node, phase="Running", started=True, since=self.now))

    def end(self, number: int | None = None) -> None:
        """Kubelets end pods that are being deleted: all, or one. What is on nodes that are gone is removed too."""
        going = [pod for pod in self.pods.values() if pod.deleting or (pod.node and pod.node not in self.machines)]
        if number is not None and going:
            going = [going[number % len(going)]]
        for pod in going:
            self.remove(pod)

    def forget_requests(self) -> None:
        """Requests that ended are removed."""
        for request in [one for one in self.requests.values() if one.done]:
            del self.requests[request.name]
            self._queue.append(feed.RequestGone(request.name))

    # -- sessions -----------------------------------------------------------------------------------------------------

    def cluster(self) -> Cluster:
        """Return what there is, as the laws see it."""
        return Cluster(
            now=self.now, nodes=dict(self.machines), pods=dict(self.pods), groups=dict(self.groups),
            queues=dict(self.queues), shapes=self.shapes, open=tuple(self.open()), ran=frozenset(self.ran),
            budgets={name: (selector, self.budget_of(name)) for name, (selector, _) in self.budgets.items()},
        )  # fmt: skip

    def decide(self, later: float = 1.0) -> list[Place]:
        """One session, judged; what it decided is on its way to the binder."""
        self._note_runs()
        self._tell_budgets()
        self.session(later=later)
        places = self.places
        assert self.result is not None and self.snapshot is not None
        session = self.result.decisions.session
        failures = [name for name in self.result.counters if "failures" in name or "violations" in name]
        assert not failures, failures
        cluster = self.cluster()
        waits = (verdict.code is Code.WAITING_FOR_VICTIMS for verdict in self.result.verdicts.values())
        cluster.kept = bool(self.snapshot.holds) or any(waits)
        judge(cluster, places, self.snapshot)
        for place in places:
            self.store.assume(place, session)
            self.evicted += sum(not self.pods[one.uid].deleting for one in place.victims)
        if places:
            self._written += 1
            name = f"r-{self._written:04}"
            self.requests[name] = Request(name, session, tuple(places), self.now)
        for item in self.result.decisions.items:
            if isinstance(item, SetStatus) and item.group in self.groups:
                group = self.groups[item.group]
                ran = group.was_running or item.phase == "Running"
                self.set_group(replace(group, phase=item.phase, counts=item.counts, was_running=ran))
        return places

    def _note_runs(self) -> None:
        """Which groups have reached their minimum, by the store's rule."""
        for key, group in self.groups.items():
            members = [pod for pod in self.pods.values() if pod.group == key]
            settled = [
                pod
                for pod in members
                if pod.phase == "Succeeded" or (pod.node and not pod.deleting and not pod.finished)
            ]
            whole = len(settled) >= group.min_member and all(
                sum(pod.role == role.name for pod in settled) >= role.count for role in group.roles
            )
            if settled and (whole or group.was_running):
                self.ran.add(group.uid)
            elif not settled:
                self.ran.discard(group.uid)

    def told_anew(self, shuffle: int | None) -> World:
        """Return another scheduler that has just read all objects; what was decided and not written is lost there."""
        other = World(self.config, registry=self.registry, shuffle=shuffle, check=True)
        other.now = self.now
        self.tell(other)
        return other

    def tell(self, other: World) -> None:
        """Tell all objects."""
        events: list[feed.Event] = [feed.ShapeSet(shape) for shape in self.shapes.values()]
        events += [feed.NodeSet(node) for node in self.machines.values()]
        events += [feed.QueueSet(queue) for queue in self.queues.values()]
        events += [feed.GroupSet(group) for group in self.groups.values()]
        events += [feed.PodSet(pod) for pod in self.pods.values()]
        events += [feed.BudgetSet(told) for told in self._told_budgets.values()]
        events += [feed.RequestSet(request.value()) for request in self.requests.values() if request.written]
        other._queue.extend(events)
        other.flush()
        other.store.apply([feed.Synced(), feed.Leading(1)], other.now)

    def restart(self, one: int, other: int) -> None:
        """The scheduler starts anew; two that read the objects in different orders decide the same."""
        self.flush()
        self._tell_budgets()
        self._queue.clear()
        lost = [request.name for request in self.requests.values() if not request.written]
        for name in lost:
            del self.requests[name]
        first, second = self.told_anew(one), self.told_anew(other)
        mine, theirs = first.session(later=1.0).decisions, second.session(later=1.0).decisions
        assert mine.items == theirs.items, "the order of events decides"
        self.store, self.sessions = Store(), Sessions(self.config, self.registry, check=True)
        self.tell(self)

    # -- until nothing happens ----------------------------------------------------------------------------------------

    def carry_all_out(self) -> None:
        """Whatever was decided is done, as far as it can be."""
        self.handed_over()
        for _ in range(PATIENCE + 2):
            if all(request.done for request in self.requests.values()):
                break
            self.bind()
            self.end()
        self.end()

    def settle(self, most: int = 30) -> None:
        """With no more input it comes to rest: five sessions in a row decide nothing."""
        self.carry_all_out()
        quiet = 0
        for _ in range(most):
            quiet = 0 if self.decide(later=13.0) else quiet + 1
            if quiet > 5:
                return
            self.carry_all_out()
        raise AssertionError("it does not come to rest")
