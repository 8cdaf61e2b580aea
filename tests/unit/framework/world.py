"""A small cluster to tell stories with: nodes, pods and gangs go into the real store, sessions run on its snapshots.

`World.session()` runs one session; `World.carry_out()` does what the decisions say, as binder and writer would.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

from plugins import built_in
from scheduler.actions.run import SessionResult, Sessions
from scheduler.cluster import feed
from scheduler.cluster.store import Store
from scheduler.config import PluginConfig, SchedulerConfiguration
from scheduler.framework.registry import Registry
from scheduler.model.decisions import Drain, Explain, Place, SetStatus
from scheduler.model.groups import PodGroup, RoleMinimum
from scheduler.model.nodes import HOSTNAME, Node, Taint
from scheduler.model.pods import Pod, Shape
from scheduler.model.queues import Queue
from scheduler.model.resources import amounts
from scheduler.model.snapshot import Snapshot
from scheduler.model.topology import HyperNode, HyperNodeMember, Level, Topology
from scheduler.model.verdict import Verdict
from scheduler.model.wishes import TopologyWish

GPU = "example.com/gpu"
GI = 2**30
NAMES = {"gpu": GPU, "cpu": "cpu", "memory": "memory"}


def need(**values: int) -> Mapping[str, int]:
    """cpu in cores, memory in GiB, gpu in pieces."""
    return {
        NAMES[name]: value * 1000 if name == "cpu" else value * GI if name == "memory" else value
        for name, value in values.items()
    }


def shape(*, gpu: int = 0, cpu: int = 0, memory: int = 0, **fields: object) -> Shape:
    requests = amounts(need(gpu=gpu, cpu=cpu, memory=memory))
    made = Shape(key="", requests=requests, **fields)  # type: ignore[arg-type]
    return replace(made, key=repr(made))


def with_plugins(*tiers: Iterable[str | PluginConfig], **fields: object) -> SchedulerConfiguration:
    made = tuple(tuple(PluginConfig(one) if isinstance(one, str) else one for one in tier) for tier in tiers)
    return SchedulerConfiguration(tiers=made, **fields)  # type: ignore[arg-type]


class World:
    """See the module. `shuffle`: the seed of the order in which events arrive."""

    def __init__(
        self,
        config: SchedulerConfiguration | None = None,
        *,
        registry: Registry | None = None,
        shuffle: int | None = None,
        check: bool = False,
    ) -> None:
        self.config = config or SchedulerConfiguration()
        self.registry = registry or built_in()
        self.store = Store()
        self.sessions = Sessions(self.config, self.registry, check=check)
        self.now = 1000.0
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, PodGroup] = {}
        self.result: SessionResult | None = None
        self.snapshot: Snapshot | None = None
        self._number = 0
        self._queue: list[feed.Event] = []
        self._random = random.Random(shuffle) if shuffle is not None else None

    # -- what there is ----------------------------------------------------------------------------------------------

    def node(
        self,
        name: str,
        *,
        gpu: int = 0,
        cpu: int = 64,
        memory: int = 256,
        slots: int = 110,
        labels: Mapping[str, str] | None = None,
        taints: tuple[Taint, ...] = (),
        **fields: object,
    ) -> World:
        marks = tuple(sorted({HOSTNAME: name, **(labels or {})}.items()))
        allocatable = amounts(need(gpu=gpu, cpu=cpu, memory=memory))
        self._queue.append(
            feed.NodeSet(Node(name, f"uid-{name}", allocatable, slots, marks, taints, **fields))  # type: ignore[arg-type]
        )
        return self

    def nodes(self, count: int, **fields: object) -> World:
        for number in range(count):
            self.node(f"n{number:03}", **fields)  # type: ignore[arg-type]
        return self

    def queue(self, name: str, **fields: object) -> World:
        self._queue.append(feed.QueueSet(Queue(name, **fields)))  # type: ignore[arg-type]
        return self

    def topology(self, name: str, *levels: tuple[str, str], dialect: str = "muster", **fields: object) -> World:
        """levels: (name, label), widest first."""
        made = tuple(Level(level, label) for level, label in levels)
        values: dict[str, object] = {"levels": made, **fields}
        self._queue.append(
            feed.TopologySet(Topology(name, f"uid-{dialect}-{name}", dialect, **values))  # type: ignore[arg-type]
        )
        return self

    def hypernode(self, name: str, tier: int, *members: str | HyperNodeMember, **fields: object) -> World:
        """members: names of nodes, or anything else as it is."""
        made = tuple(
            HyperNodeMember("Node", exact=one, field=f"spec.members[{i}]")
            if isinstance(one, str)
            else replace(one, field=f"spec.members[{i}]")
            for i, one in enumerate(members)
        )
        self._queue.append(
            feed.HyperNodeSet(HyperNode(name, f"uid-hn-{name}", "volcano", tier, members=made, **fields))  # type: ignore[arg-type]
        )
        return self

    def drop_hypernode(self, name: str) -> None:
        self._queue.append(feed.HyperNodeGone(name, "volcano"))

    def drop_node(self, name: str) -> None:
        self._queue.append(feed.NodeGone(name))

    def priority(self, name: str, value: int) -> World:
        self._queue.append(feed.PriorityClassSet(name, value))
        return self

    def pod(self, name: str, of: Shape | None = None, *, namespace: str = "ns", **fields: object) -> Pod:
        of = of if of is not None else shape(gpu=1)
        self._queue.append(feed.ShapeSet(of))
        values: dict[str, object] = {"ours": True, "created": self.now, **fields}
        made = Pod(uid=f"uid-{name}", namespace=namespace, name=name, shape=of.key, **values)  # type: ignore[arg-type]
        return self.set_pod(made)

    def set_pod(self, pod: Pod) -> Pod:
        self.pods[pod.uid] = pod
        self._queue.append(feed.PodSet(pod))
        return pod

    def drop_pod(self, name: str) -> None:
        del self.pods[f"uid-{name}"]
        self._queue.append(feed.PodGone(f"uid-{name}"))

    def running(self, name: str, node: str, of: Shape | None = None, **fields: object) -> Pod:
        return self.pod(name, of, node=node, phase="Running", started=True, **fields)  # type: ignore[arg-type]

    def group(
        self, name: str, minimum: int, *, dialect: str = "muster", namespace: str = "ns", **fields: object
    ) -> PodGroup:
        values: dict[str, object] = {"created": self.now, "uid": f"uid-group-{name}", **fields}
        roles = values.pop("roles", {})
        made = PodGroup(
            key=f"{dialect}/{namespace}/{name}",
            dialect=dialect,
            namespace=namespace,
            name=name,
            min_member=minimum,
            api_version="x/v1",
            roles=tuple(RoleMinimum(role, count) for role, count in sorted(dict(roles).items())),  # type: ignore[call-overload]
            **values,  # type: ignore[arg-type]
        )
        return self.set_group(made)

    def set_group(self, group: PodGroup) -> PodGroup:
        self.groups[group.key] = group
        self._queue.append(feed.GroupSet(group))
        return group

    def drop_group(self, key: str) -> None:
        del self.groups[key]
        self._queue.append(feed.GroupGone(key))

    def gang(
        self,
        name: str,
        minimum: int,
        *,
        count: int | None = None,
        of: Shape | None = None,
        topology: str = "",
        pod: Mapping[str, object] | None = None,
        **fields: object,
    ) -> PodGroup:
        wish = TopologyWish(required=topology) if topology else None
        group = self.group(name, minimum, topology=wish, **fields)  # type: ignore[arg-type]
        for number in range(minimum if count is None else count):
            self.member(group, number, of, **(pod or {}))
        return group

    def member(self, group: PodGroup, number: int, of: Shape | None = None, **fields: object) -> Pod:
        values: dict[str, object] = {"group": group.key, "index": number, "namespace": group.namespace, **fields}
        return self.pod(f"{group.name}-{number}", of, **values)  # type: ignore[arg-type]

    # -- what happens -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Deliver what has queued up; shuffled, but shapes before the pods that refer to them."""
        events = self._queue
        self._queue = []
        if self._random is not None:
            self._random.shuffle(events)
        events.sort(key=lambda event: not isinstance(event, feed.ShapeSet))
        self.store.apply(events, self.now)

    def take(self) -> Snapshot:
        self.flush()
        self.snapshot = self.store.snapshot(self.now, owners=self.sessions.counts_owners)
        return self.snapshot

    def session(self, *, later: float = 0.0) -> SessionResult:
        self.now += later
        self._number += 1
        self.result = self.sessions.run(self.take(), f"s-{self._number:06}")
        return self.result

    def carry_out(self) -> None:
        """Bind what was placed (the pods run at once) and write the statuses that were decided."""
        assert self.result is not None
        for item in self.result.decisions.items:
            match item:
                case Place():
                    self.store.assume(item, self.result.decisions.session)
                    for victim in item.victims:
                        if victim.uid in self.pods:
                            self.drop_pod(victim.pod)
                    for one in item.assignments:
                        bound = {"node": one.node, "phase": "Running", "started": True, "since": self.now}
                        self.set_pod(replace(self.pods[one.uid], **bound))  # type: ignore[arg-type]
                case Drain(victims=victims):
                    for victim in victims:
                        self.drop_pod(victim.pod)
        self.write()

    def write(self) -> None:
        """Write the statuses that were decided, and nothing else."""
        for item in self.statuses().values():
            self.set_group(replace(self.groups[item.group], phase=item.phase, counts=item.counts))

    # -- what came out ----------------------------------------------------------------------------------------------

    @property
    def places(self) -> list[Place]:
        assert self.result is not None
        return [item for item in self.result.decisions.items if isinstance(item, Place)]

    @property
    def victims(self) -> list[str]:
        """Names of the pods that this session evicts, sorted."""
        assert self.result is not None
        items = self.result.decisions.items
        return sorted(victim.pod for item in items if isinstance(item, (Place, Drain)) for victim in item.victims)

    @property
    def placed(self) -> dict[str, str]:
        """Pod name -> node, of this session."""
        return {one.pod: one.node for place in self.places for one in place.assignments}

    def placed_of(self, name: str) -> list[str]:
        return sorted(one.pod for place in self.places if place.name == name for one in place.assignments)

    def statuses(self) -> dict[str, SetStatus]:
        assert self.result is not None
        return {item.group: item for item in self.result.decisions.items if isinstance(item, SetStatus)}

    def status(self, name: str) -> SetStatus | None:
        return next((item for key, item in self.statuses().items() if key.endswith(f"/{name}")), None)

    def verdict(self, name: str) -> Verdict | None:
        """What the group's (or the single pod's) members were told in this session."""
        assert self.result is not None
        ends = (f"/{name}", f"/uid-{name}")
        for item in self.result.decisions.items:
            if isinstance(item, Explain) and item.group.endswith(ends):
                return item.verdict
        return None
