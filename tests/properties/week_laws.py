"""What must hold after every session, written from the rules and from plain objects: nothing is asked of the product.

`judge` looks at the decisions of a session one after another, over a running account of what is there, what is about to
go and what has been placed. Entitlements come from the reference of `test_quota`. Where a rule is exact only under
conditions (a tree without faults, nothing oversubscribed), the law is checked only under them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, product
from math import prod

from scheduler.model.affinity import LabelSelector
from scheduler.model.decisions import Place, Victim
from scheduler.model.groups import PodGroup
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.queues import WEIGHT_UNIT, Queue
from scheduler.model.quota import UNSET
from scheduler.model.selecting import selects
from scheduler.model.snapshot import Snapshot
from tests.properties.test_quota import Case, Line, Reference

OVERDUE = 60.0
MOST_SETS = 3000
"""So many sets of victims are tried at most."""
SEARCHED: Counter[str] = Counter()
"""How often what was compared by trying everything; for the curious."""


class Amounts(Counter[str]):
    """Amounts by resource that add up, also below zero."""

    def __init__(self, values: Iterable[tuple[str, int]] | Mapping[str, int] = ()) -> None:
        super().__init__(dict(values))

    def plus(self, other: Mapping[str, int], sign: int = 1) -> Amounts:
        found = Amounts(self)
        for name, value in other.items():
            found[name] += sign * value
        return found


@dataclass(frozen=True)
class Open:
    """A placement that is decided and not bound yet."""

    place: Place
    since: float


@dataclass(frozen=True)
class Gang:
    """A group that runs, as who looks for victims sees it. fixed: members that cannot go."""

    key: str
    queue: str
    priority: int
    pods: tuple[Pod, ...]
    fixed: tuple[Pod, ...]
    minimum: int
    roles: tuple[tuple[str, int], ...]
    protected: bool
    young: bool
    created: float

    def survives(self, gone: frozenset[str]) -> bool:
        left = [pod for pod in self.pods if pod.uid not in gone]
        if len(left) + len(self.fixed) < self.minimum:
            return False
        return all(sum(pod.role == role for pod in left) >= least for role, least in self.roles)

    def options(self) -> Iterator[tuple[Pod, ...]]:
        """Yield each part of it that may go."""
        may_go = [pod for pod in self.pods if pod.preemptible is not False]
        for part in chain.from_iterable(combinations(may_go, size) for size in range(len(may_go) + 1)):
            gone = frozenset(pod.uid for pod in part)
            whole = len(part) == len(self.pods) and not self.fixed
            if not part or self.survives(gone) or (whole and not self.young):
                yield part


@dataclass
class Cluster:
    """Everything as it is when a session decides. budgets: selector and how many more pods may be evicted."""

    now: float
    nodes: dict[str, Node]
    pods: dict[str, Pod]
    groups: dict[str, PodGroup]
    queues: dict[str, Queue]
    shapes: Mapping[str, Shape]
    open: tuple[Open, ...]
    ran: frozenset[str]
    budgets: dict[str, tuple[LabelSelector, int]]
    evicted: set[str] = field(default_factory=set)
    """Pods that this session has decided to evict."""
    grew: set[str] = field(default_factory=set)
    """Groups of which this session has placed something."""
    kept: bool = False
    """Whether room is kept for somebody by what nobody but the session knows."""

    before: frozenset[str] = frozenset()
    """Pods that were placed and not bound when the session began."""

    # -- pods -----------------------------------------------------------------------------------------------------

    def held(self, pod: Pod) -> Amounts:
        return Amounts(self.shapes[pod.shape].requests)

    def there(self, node: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.node == node and not pod.finished]

    @property
    def assumed(self) -> dict[str, str]:
        """Pods that are placed and not bound, with their nodes."""
        return {
            one.uid: one.node
            for open_ in self.open
            for one in open_.place.assignments
            if (pod := self.pods.get(one.uid)) is not None and not pod.node and not pod.finished
        }

    @property
    def leaving(self) -> set[str]:
        """Pods that are about to be evicted."""
        return {victim.uid for open_ in self.open for victim in open_.place.victims}

    def goes(self, pod: Pod) -> bool:
        """Whether the pod is about to be gone and believed to go."""
        if pod.deleting:
            return not pod.ends or pod.ends + OVERDUE > self.now
        return pod.uid in self.leaving

    def key_of(self, pod: Pod) -> str:
        return pod.group or f"pod/{pod.namespace}/{pod.uid}"

    def queue_of(self, pod: Pod) -> str:
        group = self.groups.get(pod.group)
        text = group.queue if group is not None else ""
        if not text and pod.group:
            text = next((one.queue for one in self.pods.values() if one.group == pod.group and one.queue), "")
        return text or pod.queue or "default"

    def members(self, key: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.ours and self.key_of(pod) == key]

    def priority(self, key: str) -> int:
        alive = [pod.priority for pod in self.members(key) if not pod.deleting and not pod.finished]
        return max(alive, default=0)

    def preemptible(self, key: str) -> bool:
        group = self.groups.get(key)
        if group is not None and group.preemptible is not None:
            return group.preemptible
        members = [pod for pod in self.members(key) if not pod.finished and not pod.deleting]
        return not members or any(pod.preemptible is not False for pod in members)

    def gang(self, key: str, *, against_others: bool) -> Gang:
        members, assumed = self.members(key), self.assumed
        group = self.groups.get(key)
        bound = [pod for pod in members if pod.node and not pod.finished and not pod.deleting]
        ended = [pod for pod in members if pod.phase == "Succeeded"]
        fixed = [pod for pod in members if pod.uid in assumed and not pod.deleting]
        running = tuple(pod for pod in bound if pod.uid not in self.leaving and pod.uid not in self.evicted)
        queue = self.queue_of(members[0])
        time = group.min_runtime if group is not None and group.min_runtime is not None else None
        if time is None:
            time = self.min_runtime(queue, against_others=against_others)
        since = min((pod.since for pod in bound if pod.since), default=0.0)
        roles = (
            ()
            if group is None
            else tuple(
                (role.name, max(0, role.count - sum(pod.role == role.name for pod in (*ended, *fixed))))
                for role in group.roles
            )
        )
        return Gang(
            key=key, queue=queue, priority=self.priority(key), pods=running, fixed=tuple(fixed),
            minimum=1 if group is None else max(1, group.min_member - len(ended)), roles=roles,
            protected=not self.preemptible(key), young=bool(since) and since + time > self.now,
            created=members[0].created if group is None else group.created,
        )  # fmt: skip

    def min_runtime(self, queue: str, *, against_others: bool) -> float:
        for name in self.lineage(queue):
            known = self.queues.get(name)
            if known is None:
                continue
            if against_others and known.reclaim_min_runtime is not None:
                return known.reclaim_min_runtime
            if known.min_runtime is not None:
                return known.min_runtime
        return 0.0

    # -- queues ---------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        return self.queues.get(name) or Queue(name, weight=0 if name in self.lost else WEIGHT_UNIT)

    def lineage(self, name: str) -> tuple[str, ...]:
        """The queue and those above it, without the root; it ends early where the tree is broken: below a queue that
        does not exist, also where something still runs in that."""
        found: list[str] = [name] if name in self.lost else []
        while name != "root" and name not in found and (name in self.queues or name == "default"):
            found.append(name)
            name = self.queue(name).parent or "root"
        return tuple(found)

    @cached_property
    def lost(self) -> tuple[str, ...]:
        """Names of queues that do not exist, in which something runs: what it holds is owed to nobody there."""
        return tuple(
            sorted(
                name
                for pod in self.pods.values()
                if pod.ours and not pod.finished and (pod.node or pod.uid in self.assumed)
                if (name := self.queue_of(pod)) not in self.queues and name not in ("default", "root")
            )
        )

    @cached_property
    def children(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in sorted({*self.queues, *self.lost, "default"} - {"root"}):
            found.setdefault(self.queue(name).parent or "root", []).append(name)
        return found

    @cached_property
    def whole(self) -> bool:
        """Whether no queue of the tree has a fault."""
        for name, queue in self.queues.items():
            line = self.lineage(name)
            if (
                not line
                or (self.queue(line[-1]).parent or "root") != "root"
                or (queue.parent == "default" and "default" not in self.queues)
            ):
                return False
            fields = {"guarantee": dict(queue.guarantee), "deserved": dict(queue.deserved), "limit": dict(queue.limit)}
            for low, high in (("guarantee", "deserved"), ("guarantee", "limit"), ("deserved", "limit")):
                if any(value > fields[high].get(resource, 2**62) for resource, value in fields[low].items()):
                    return False
            for resource in self.resources:
                below = self._guaranteed(name, resource)
                if any(below > values.get(resource, 2**62) for values in fields.values()):
                    return False
        return True

    def _guaranteed(self, name: str, resource: str) -> int:
        found = 0
        for child in self.children.get(name, ()):
            mine = dict(self.queue(child).guarantee).get(resource)
            found += self._guaranteed(child, resource) if mine is None else mine
        return found

    @cached_property
    def resources(self) -> tuple[str, ...]:
        named = {
            name
            for queue in self.queues.values()
            for part in (queue.guarantee, queue.deserved, queue.limit)
            for name, _ in part
        }
        return tuple(sorted({name for node in self.nodes.values() for name, _ in node.allocatable} | named))

    @cached_property
    def rows(self) -> tuple[str, ...]:
        """The queues top down, the root first."""
        found = ["root"]
        for name in found:
            found.extend(self.children.get(name, ()))
        return tuple(found)

    def below(self, name: str) -> Iterator[str]:
        """Every queue below one."""
        for child in self.children.get(name, ()):
            yield child
            yield from self.below(child)

    def counts(self, name: str, resource: str) -> bool:
        """Whether a resource counts for being over or within what a queue is owed."""

        def says(one: str, *, anything: bool = False) -> bool:
            queue = self.queue(one)
            return any((anything and part) or resource in dict(part) for part in (queue.guarantee, queue.deserved))

        if resource in dict(self.queue(name).limit):
            return True
        line = (*self.lineage(name), "root")
        if not any(says(one, anything=True) for one in (*line, *self.below(name))):
            return True  # nobody gives it anything: it divides by weight
        for one in line:
            beside = self.children.get(self.queue(one).parent or "root", ()) if one != "root" else ("root",)
            if any(says(other) for other in beside):
                return True
        beside = self.children.get(self.queue(name).parent or "root", ())
        return any(says(under) for other in beside for under in (other, *self.below(other)))

    def demand(self) -> dict[str, Amounts]:
        """What is held and asked for in each queue itself."""
        found: dict[str, Amounts] = {}
        for pod in self.pods.values():
            if pod.ours and not pod.finished and (pod.node or (not pod.deleting and not pod.gated)):
                queue = self.queue_of(pod)
                holds = bool(pod.node) or pod.uid in self.assumed
                if queue not in self.rows:
                    queue = "root"
                if not holds and (queue == "root" or queue in self.lost or self.children.get(queue)):
                    continue  # nothing can start there
                if not holds and not self.may_start(pod, queue):
                    continue
                found[queue] = found.get(queue, Amounts()).plus(self.held(pod))
        return found

    def may_start(self, pod: Pod, queue: str) -> bool:
        """Whether the group of a waiting pod runs, or has the members that it needs in a queue that is open."""
        there = [one for one in self.members(self.key_of(pod)) if not one.deleting and one.phase != "Failed"]
        placed = [one for one in there if one.node or one.finished or one.uid in self.assumed]
        group = self.groups.get(pod.group)
        if group is not None and placed and group.uid in self.ran:
            return True
        if any(self.queue(one).state != "Open" for one in self.lineage(queue)):
            return False
        if not placed and self._never_fits([one for one in there if not one.gated], group):
            return False
        able = [one for one in there if one in placed or not one.gated]
        if group is None:
            return True
        roles = (sum(one.role == role.name for one in able) >= role.count for role in group.roles)
        return len(able) >= group.min_member and all(roles)

    def _never_fits(self, waiting: Sequence[Pod], group: PodGroup | None) -> bool:
        """Whether the nodes, or those of the best rack where one is required, hold too few of them when empty."""
        least = 1 if group is None else max(group.min_member, sum(role.count for role in group.roles))
        label = group.topology.required if group is not None and group.topology is not None else ""
        most: dict[str, int] = {}
        for shape, count in Counter(pod.shape for pod in waiting).items():
            need = self.held(next(pod for pod in waiting if pod.shape == shape))
            held: dict[str, int] = {}
            for node in self.nodes.values():
                rack = dict(node.labels).get(label) if label else ""
                if rack is not None:
                    there = dict(node.allocatable)
                    each = min((there.get(name, 0) // value for name, value in need.items() if value), default=count)
                    held[rack] = held.get(rack, 0) + max(0, min(each, node.slots))
            for rack, number in held.items():
                most[rack] = most.get(rack, 0) + min(number, count)
        return bool(self.nodes) and max(most.values(), default=0) < least

    def capacity(self, resource: str) -> int:
        found = 0
        for node in self.nodes.values():
            there = dict(node.allocatable).get(resource, 0)
            if node.unschedulable:
                used = sum(self.held(pod)[resource] for pod in self.there(node.name))
                used += sum(self.held(self.pods[uid])[resource] for uid, at in self.assumed.items() if at == node.name)
                there = min(there, used)
            found += there
        foreign = sum(
            self.held(pod)[resource] for pod in self.pods.values() if not pod.ours and pod.node and not pod.finished
        )
        return max(0, found - foreign)

    @cached_property
    def entitled(self) -> dict[str, Amounts]:
        """What each queue is entitled to when the session begins."""
        demand, found = self.demand(), {name: Amounts() for name in self.rows}
        row = {name: number for number, name in enumerate(self.rows)}
        for resource in self.resources:
            lines = []
            for name in self.rows:
                queue = self.queue(name)
                parent = -1 if name == "root" else row[queue.parent or "root"]
                fields = [dict(part).get(resource, UNSET) for part in (queue.guarantee, queue.deserved, queue.limit)]
                lines.append(
                    Line(parent, name, *fields, queue.weight, queue.priority, demand.get(name, Amounts())[resource])
                )
            for name, value in zip(
                self.rows, Reference(Case(tuple(lines), self.capacity(resource))).entitled, strict=True
            ):
                found[name][resource] = value
        return found

    def deserved(self, name: str, resource: str) -> int:
        """What a queue deserves: what it says, else what those below it do."""
        said = dict(self.queue(name).deserved).get(resource)
        if said is None:
            return min(2**62, sum(self.deserved(child, resource) for child in self.children.get(name, ())))
        return said if said >= 0 else 2**62

    def guaranteed(self, name: str, resource: str) -> int:
        """What a queue is guaranteed: what it says, else what those below it are."""
        said = dict(self.queue(name).guarantee).get(resource)
        return self._guaranteed(name, resource) if said is None else said

    def idle(self, name: str, resource: str) -> int:
        """What is kept for a queue and those below it, because they are guaranteed it and do not use it."""
        used, limit = self.uses(name)[resource], dict(self.queue(name).limit).get(resource, -1)
        below = self.idle_below(name, resource)
        kept = max(self.guaranteed(name, resource) - used, below)
        return kept if limit < 0 else min(kept, max(limit - used, 0))

    def idle_below(self, name: str, resource: str) -> int:
        """The same of the queues below a queue alone."""
        return sum(self.idle(child, resource) for child in self.children.get(name, ()))

    @cached_property
    def guarantees_hold(self) -> bool:
        """Whether nobody is guaranteed anything, or all of it is there and nothing is about to go."""
        if not any(queue.guarantee for queue in self.queues.values()):
            return True
        going = any(self.goes(pod) for pod in self.pods.values() if pod.node and not pod.finished)
        return not going and all(self._guaranteed("root", one) <= self.capacity(one) for one in self.resources)

    def keeps(self, name: str, resource: str, rule: str) -> int:
        """What a queue may hold without giving back, by what it is entitled to or by what it deserves."""
        entitled = self.entitled[name][resource]
        return entitled if rule == "entitled" else min(entitled, self.deserved(name, resource))

    @cached_property
    def exact(self) -> bool:
        """Whether what a queue is owed is what it is entitled to: no more is deserved than there is."""
        demand = self.demand()

        def wanted(name: str, resource: str) -> int:
            return demand.get(name, Amounts())[resource] + sum(
                wanted(one, resource) for one in self.children.get(name, ())
            )

        return self.whole and all(
            self.deserved(name, resource) <= self.entitled[name][resource]
            or self.entitled[name][resource] >= wanted(name, resource)
            for name in self.rows
            for resource in self.resources
        )

    def staying(self, name: str) -> Amounts:
        """What a queue with those below it holds, without what is about to go."""
        return self.uses(name, going=False)

    def uses(self, name: str, *, going: bool = True) -> Amounts:
        found = Amounts()
        assumed = self.assumed
        for pod in self.pods.values():
            if not pod.ours or pod.finished or not (pod.node or pod.uid in assumed):
                continue
            if not going and (pod.uid in self.evicted or self.goes(pod)):
                continue
            if name == "root" or name in self.lineage(self.queue_of(pod)):
                found = found.plus(self.held(pod))
        return found


# -- the judge ---------------------------------------------------------------------------------------------------------


def judge(cluster: Cluster, places: Sequence[Place], snapshot: Snapshot) -> None:
    """Raise AssertionError for the first law that a session's decisions break."""
    _sums(cluster, snapshot)
    cluster.before = frozenset(cluster.assumed)
    seen: set[str] = set()
    for place in places:
        for one in place.assignments:
            assert one.uid not in seen, f"{one.pod} is placed twice"
            seen.add(one.uid)
            pod = cluster.pods.get(one.uid)
            assert pod is not None and pod.ours and pod.waiting and not pod.gated, f"{one.pod} does not wait"
            assert pod.uid not in cluster.assumed, f"{one.pod} is placed already"
            node = cluster.nodes.get(one.node)
            assert node is not None and not node.unschedulable, f"{one.pod} is placed on {one.node}"
        _open_queue(cluster, place)
        _keeps_its_members(cluster, place)
        _minimum(cluster, place)
        _limits(cluster, place)
        _firm(cluster, place)
        _evictions(cluster, place)
        if place.victims:
            _rights(cluster, place)
            _cheapest(cluster, place)
        cluster.open = (*cluster.open, Open(place, cluster.now))
        cluster.grew.add(place.group)
        cluster.kept = cluster.kept or any(victim.move_to for victim in place.victims)
        _fits(cluster, place)
        cluster.evicted |= {victim.uid for victim in place.victims}


def _sums(cluster: Cluster, snapshot: Snapshot) -> None:
    """The store's sums are those of its pods."""
    assumed = cluster.assumed
    queues: dict[str, Amounts] = {}
    for pod in cluster.pods.values():
        if pod.ours and not pod.finished and (pod.node or pod.uid in assumed):
            queues[cluster.queue_of(pod)] = queues.get(cluster.queue_of(pod), Amounts()).plus(cluster.held(pod))
    told = {name: {k: v for k, v in amounts if v} for name, amounts in snapshot.queue_usage.items()}
    assert {name: part for name, part in told.items() if part} == {
        name: part for name, values in queues.items() if (part := {k: v for k, v in values.items() if v})
    }, "the store's sums of queues are wrong"
    for column, name in enumerate(snapshot.table.names):
        used = Amounts()
        for pod in cluster.there(name):
            used = used.plus(cluster.held(pod))
        for uid, at in assumed.items():
            used = used.plus(cluster.held(cluster.pods[uid])) if at == name else used
        for number, resource in enumerate(snapshot.table.resources):
            assert int(snapshot.table.used[number, column]) == used[resource], f"what {name} holds is wrong"


def _asked(cluster: Cluster, place: Place) -> Amounts:
    found = Amounts()
    for one in place.assignments:
        found = found.plus(cluster.held(cluster.pods[one.uid]))
    return found


def _placed(cluster: Cluster, key: str) -> list[Pod]:
    assumed = cluster.assumed
    return [
        pod
        for pod in cluster.members(key)
        if pod.phase == "Succeeded" or (not pod.deleting and not pod.finished and (pod.node or pod.uid in assumed))
    ]


def _runs(cluster: Cluster, key: str) -> bool:
    """Whether the group once reached its minimum and something of it is there."""
    group = cluster.groups.get(key)
    return group is not None and group.uid in cluster.ran and bool(_placed(cluster, key))


def _open_queue(cluster: Cluster, place: Place) -> None:
    if _runs(cluster, place.group):
        return
    name = cluster.queue_of(cluster.pods[place.assignments[0].uid])
    line = cluster.lineage(name)
    assert line and line[0] not in cluster.lost and (cluster.queue(line[-1]).parent or "root") == "root", (
        f"{name} is no queue"
    )
    assert not cluster.children.get(name), f"{name} is no leaf"
    assert all(cluster.queue(one).state == "Open" for one in line), f"{name} is not open"


def _keeps_its_members(cluster: Cluster, place: Place) -> None:
    """Nobody of the group is about to go for others: what the group needs is not known before that is seen."""
    own = {victim.uid for victim in place.victims} - cluster.evicted
    for pod in cluster.members(place.group):
        going = pod.node and not pod.finished and not pod.deleting and pod.uid in cluster.leaving | cluster.evicted
        assert not going or pod.uid in own, f"{place.name} is placed while {pod.name} of it is about to go"


def _minimum(cluster: Cluster, place: Place) -> None:
    group = cluster.groups.get(place.group)
    assert place.assignments, "a decision that places nobody"
    if group is None:
        assert place.group.startswith("pod/") and len(place.assignments) == 1
        return
    before = _placed(cluster, place.group)
    if _runs(cluster, place.group):
        return
    after = [*before, *(cluster.pods[one.uid] for one in place.assignments)]
    assert len(after) >= group.min_member, f"{place.group} starts with {len(after)} of {group.min_member}"
    for role in group.roles:
        assert sum(pod.role == role.name for pod in after) >= role.count, f"{place.group} lacks its {role.name}"
    if not before:
        assert place.minimum == len(place.assignments), f"{place.group} could start with fewer than it needs"
    if group.topology is not None and group.topology.required:
        nodes = {*(one.node for one in place.assignments), *(pod.node for pod in before if pod.node)}
        label = group.topology.required
        racks = {dict(cluster.nodes[node].labels).get(label) for node in nodes if node in cluster.nodes}
        assert before or len(racks) == 1, f"{place.group} is in more than one {label}"


def _limits(cluster: Cluster, place: Place) -> None:
    """No queue is over its limit by what is placed, when what the placement itself awaits is gone."""
    asked = _asked(cluster, place)
    victims = {victim.uid for victim in place.victims}
    line = cluster.lineage(cluster.queue_of(cluster.pods[place.assignments[0].uid]))
    if not cluster.whole and _runs(cluster, place.group):
        line = line[:1]  # a queue that takes no part stands below the root, with its own limit
    for name in line:
        uses = cluster.uses(name)
        for uid in victims:
            pod = cluster.pods[uid]
            if pod.ours and name in cluster.lineage(cluster.queue_of(pod)):
                uses = uses.plus(cluster.held(pod), -1)
        for resource, limit in cluster.queue(name).limit:
            over = asked[resource] and limit >= 0 and uses[resource] + asked[resource] > limit
            assert not over, f"{place.name} takes {name} over its limit of {resource}"


def _firm(cluster: Cluster, place: Place) -> None:
    """A group that cannot be preempted stays within what its queue and those above it deserve."""
    if cluster.preemptible(place.group) or not cluster.whole:
        return
    asked = _asked(cluster, place)
    assumed = cluster.assumed
    for name in cluster.lineage(cluster.queue_of(cluster.pods[place.assignments[0].uid])):
        firm = Amounts()
        for pod in cluster.pods.values():
            alive = pod.ours and not pod.finished and not pod.deleting and (pod.node or pod.uid in assumed)
            if (
                alive
                and name in cluster.lineage(cluster.queue_of(pod))
                and not cluster.preemptible(cluster.key_of(pod))
            ):
                firm = firm.plus(cluster.held(pod))
        for resource, value in cluster.queue(name).deserved:
            over = asked[resource] and value >= 0 and firm[resource] + asked[resource] > value
            assert not over, f"{place.name} cannot be preempted and takes {name} over what it deserves"


def _fits(cluster: Cluster, place: Place) -> None:
    """Whichever others are bound before: when its own victims are gone there is room for it, on each node."""
    for node in sorted({one.node for one in place.assignments}):
        mine = Amounts()
        for one in place.assignments:
            mine = mine.plus(cluster.held(cluster.pods[one.uid])) if one.node == node else mine
        held = Amounts()
        for pod in cluster.there(node):
            held = held.plus(cluster.held(pod))
        other = [one for one in cluster.open if one.place is not place and _touches(one.place, node)][:8]
        for some in chain.from_iterable(combinations(other, size) for size in range(len(other) + 1)):
            bound = [one.place for one in some] + [place]
            load, count = held, len(cluster.there(node))
            for uid in {victim.uid for one in bound for victim in one.victims}:
                pod = cluster.pods.get(uid)
                if pod is not None and pod.node == node and not pod.finished:
                    load, count = load.plus(cluster.held(pod), -1), count - 1
            for uid in {a.uid for one in bound for a in one.assignments if a.node == node}:
                pod = cluster.pods.get(uid)
                if pod is not None and not pod.node and not pod.finished:
                    load, count = load.plus(cluster.held(pod)), count + 1
            for resource, value in mine.items():
                over = value and load[resource] > dict(cluster.nodes[node].allocatable).get(resource, 0)
                assert not over, f"{place.name} may be bound to {node} while there is not enough {resource}"
            assert count <= cluster.nodes[node].slots, f"{place.name} may be bound to {node} without a slot"


def _touches(place: Place, node: str) -> bool:
    return any(one.node == node for one in place.assignments) or any(one.node == node for one in place.victims)


# -- who goes ----------------------------------------------------------------------------------------------------------


def _sent(cluster: Cluster, place: Place) -> list[Victim]:
    """Those that are evicted for this placement, not only awaited."""
    found = []
    for victim in place.victims:
        pod = cluster.pods.get(victim.uid)
        assert pod is not None and pod.node and not pod.finished, f"{victim.pod} does not run"
        assert pod.node == victim.node
        if not pod.deleting and pod.uid not in cluster.leaving and pod.uid not in cluster.evicted:
            found.append(victim)
    return found


def _evictions(cluster: Cluster, place: Place) -> None:
    """Whole gangs or surplus of those that may go at all, and of budgets no more than they allow."""
    sent = _sent(cluster, place)
    assert len({victim.uid for victim in sent}) == len(sent)
    gone: dict[str, set[str]] = {}
    for victim in sent:
        pod = cluster.pods[victim.uid]
        assert pod.ours, f"{victim.pod} is another scheduler's"
        assert pod.preemptible is not False, f"{victim.pod} may not be evicted"
        gone.setdefault(cluster.key_of(pod), set()).add(pod.uid)
    own = cluster.queue_of(cluster.pods[place.assignments[0].uid]) if place.assignments else ""
    for key, uids in sorted(gone.items()):
        assert key != place.group, f"{key} evicts its own"
        against = own != cluster.queue_of(cluster.pods[next(iter(uids))]) or sent[0].why == "consolidate"
        gang = cluster.gang(key, against_others=against)
        assert not gang.protected, f"{key} may not be evicted"
        if not gang.survives(frozenset(uids)):
            assert uids == {pod.uid for pod in gang.pods} and not gang.fixed, f"{key} is left below its minimum"
            assert not gang.young, f"{key} has not run for its time"
    for name, (selector, allowed) in cluster.budgets.items():
        covered = {pod.uid for pod in cluster.pods.values() if selects(selector, dict(pod.labels))}
        before = {uid for uid in cluster.leaving if uid in covered and not cluster.pods[uid].deleting}
        new = {victim.uid for victim in sent} & covered
        assert not new or len(before) + len(new) <= allowed, f"budget {name} allows {allowed}"
    for victim in sent:
        if victim.move_to:
            assert cluster.pods[victim.uid].owner_uid, f"{victim.pod} is moved and nobody makes it again"


def _rights(cluster: Cluster, place: Place) -> None:
    sent = _sent(cluster, place)
    if not sent:
        return
    if sent[0].why == "consolidate":
        assert all(victim.move_to and victim.why == "consolidate" for victim in sent)
        return
    asked = _asked(cluster, place)
    first = cluster.pods[place.assignments[0].uid]
    mine = cluster.queue_of(first)
    priority = cluster.priority(place.group)
    assert all(pod.preempts for pod in cluster.members(place.group) if pod.waiting), f"{place.name} never preempts"
    parts: dict[str, list[Pod]] = {}
    for victim in sent:
        pod = cluster.pods[victim.uid]
        parts.setdefault(cluster.key_of(pod), []).append(pod)
    below: dict[str, list[list[Pod]]] = {}
    reached: set[str] = set()
    for key, pods in parts.items():
        queue = cluster.queue_of(pods[0])
        if queue == mine:
            assert cluster.priority(key) < priority, f"{place.name} evicts {key}, which matters as much"
            assert cluster.queue(mine).within_queue != "Never"
            continue
        assert cluster.queue(mine).reclaim != "Never"
        assert cluster.queue(mine).reclaim != "LowerPriority" or cluster.priority(key) < priority
        gang = cluster.gang(key, against_others=True)
        chunks = [[pod] for pod in pods] if gang.survives(frozenset(pod.uid for pod in pods)) else [pods]
        own, theirs = cluster.lineage(mine), cluster.lineage(queue)
        for name in theirs:
            if name in own:
                break
            assert cluster.queue(name).reclaimable, f"nothing may be taken of {name}"
            below.setdefault(name, []).extend(chunks)
        reached.update(own[: own.index(common)] if (common := _common(own, theirs)) != "root" else own)
    if not below or not cluster.whole:
        return
    last = ""
    for rule in ("entitled", "deserved"):
        last = _reclaims_by(cluster, rule, reached, below, asked, [pod for part in parts.values() for pod in part])
        if not last:
            break
    assert not last, f"{place.name}: {last}"
    for name, chunks in below.items():
        _guarantee(cluster, name, chunks)


def _common(own: tuple[str, ...], theirs: tuple[str, ...]) -> str:
    return next((name for name in theirs if name in own), "root")


def _reclaims_by(
    cluster: Cluster,
    rule: str,
    reached: set[str],
    below: Mapping[str, list[list[Pod]]],
    asked: Amounts,
    gone: list[Pod],
) -> str:
    """Return what is wrong when queues keep what they are entitled to (or what they deserve), "" when nothing is."""
    for name in sorted(reached):
        for resource, value in asked.items():
            if value and cluster.counts(name, resource):
                most = max(cluster.keeps(name, resource, rule), cluster.deserved(name, resource))
                if cluster.staying(name)[resource] - _inside(cluster, name, gone)[resource] + value > most:
                    return f"{name} would hold more {resource} than it may take back"
    for name, chunks in below.items():
        if not _while_over(cluster, name, chunks, asked, rule):
            return f"{name} gives what it may keep"
    return ""


def _inside(cluster: Cluster, name: str, gone: Iterable[Pod]) -> Amounts:
    """What goes of a queue and those below it."""
    freed = Amounts()
    for pod in gone:
        inside = name == "root" or name in cluster.lineage(cluster.queue_of(pod))
        freed = freed.plus(cluster.held(pod)) if inside else freed
    return freed


def _while_over(cluster: Cluster, name: str, chunks: list[list[Pod]], asked: Amounts, rule: str) -> bool:
    """Whether chunks go of a queue only while it is over what it may keep in something that is asked for."""
    for resource, value in asked.items():
        if not value or not cluster.counts(name, resource):
            continue
        over = cluster.staying(name)[resource] + cluster.idle_below(name, resource)
        over -= cluster.keeps(name, resource, rule)
        sizes = [sum(cluster.held(pod)[resource] for pod in chunk) for chunk in chunks]
        if over > 0 and sum(sizes) - max(sizes) < over:
            return True
    return False


def _guarantee(cluster: Cluster, name: str, chunks: list[list[Pod]]) -> None:
    for resource, value in cluster.queue(name).guarantee:
        before = cluster.staying(name)[resource]
        taken = sum(cluster.held(pod)[resource] for chunk in chunks for pod in chunk)
        kept = min(max(0, value - cluster.idle_below(name, resource)), cluster.entitled[name][resource], before)
        assert before - taken >= kept, f"{name} is left with less {resource} than it is guaranteed"


# -- by trying everything ----------------------------------------------------------------------------------------------

Cost = tuple[int, int, int, int]


def sets(
    cluster: Cluster, key: str, asked: Amounts, why: str, rule: str = "entitled"
) -> list[tuple[Cost, frozenset[str]]] | None:
    """Return each set of victims that a group may evict (S3, S5, S6), the cheapest first; None: too many."""
    mine = cluster.queue_of(cluster.members(key)[0])
    own = cluster.lineage(mine)
    priority, queue = cluster.priority(key), cluster.queue(mine)
    if any(not pod.preempts for pod in cluster.members(key) if pod.waiting):
        return []
    gangs: list[Gang] = []
    lines: dict[str, tuple[str, ...]] = {}
    for other in sorted({cluster.key_of(pod) for pod in cluster.pods.values() if pod.ours and pod.node}):
        if other == key or not any(
            pod.node and not pod.finished and not pod.deleting for pod in cluster.members(other)
        ):
            continue
        gang = cluster.gang(other, against_others=why == "reclaim")
        if other in cluster.grew:  # what was placed just now does not make up for anybody
            gang = replace(gang, young=True, fixed=tuple(pod for pod in gang.fixed if pod.uid in cluster.before))
        if gang.protected or not gang.pods:
            continue
        if why == "preempt":
            if gang.queue == mine and queue.within_queue != "Never" and gang.priority < priority:
                gangs.append(gang)
        elif _may_reclaim(cluster, gang, own, priority, asked, lines, rule):
            gangs.append(gang)
    options = [list(gang.options()) for gang in gangs]
    if prod(len(one) for one in options) > MOST_SETS:
        return None
    found = []
    for choice in product(*options):
        gone = frozenset(pod.uid for part in choice for pod in part)
        if gone and _allowed(cluster, gangs, choice, asked, why, own, lines, rule):
            found.append((_cost(cluster, gangs, choice), gone))
    return sorted(found, key=lambda one: (one[0], sorted(one[1])))


def _may_reclaim(
    cluster: Cluster,
    gang: Gang,
    own: tuple[str, ...],
    priority: int,
    asked: Amounts,
    lines: dict[str, tuple[str, ...]],
    rule: str,
) -> bool:
    queue = cluster.queue(own[0])
    theirs = cluster.lineage(gang.queue)
    if not theirs or gang.queue == own[0] or queue.reclaim == "Never":
        return False
    if queue.reclaim == "LowerPriority" and gang.priority >= priority:
        return False
    common = next((name for name in theirs if name in own), "root")
    line = theirs[: theirs.index(common)] if common != "root" else theirs
    mine = own[: own.index(common)] if common != "root" else own
    if not line or not mine or not all(cluster.queue(name).reclaimable for name in line):
        return False
    lines[gang.key] = line
    return True


def _allowed(
    cluster: Cluster,
    gangs: Sequence[Gang],
    choice: Sequence[tuple[Pod, ...]],
    asked: Amounts,
    why: str,
    own: tuple[str, ...],
    lines: Mapping[str, tuple[str, ...]],
    rule: str,
) -> bool:
    gone = [pod for part in choice for pod in part]
    for selector, allowed in cluster.budgets.values():
        covered = {pod.uid for pod in cluster.pods.values() if selects(selector, dict(pod.labels))}
        waits = [
            uid for uid in {*cluster.leaving, *cluster.evicted} if uid in covered and not cluster.pods[uid].deleting
        ]
        mine = [pod for pod in gone if pod.uid in covered]
        if mine and len(waits) + len(mine) > allowed:
            return False
    below: dict[str, list[list[Pod]]] = {}
    for gang, part in zip(gangs, choice, strict=True) if why == "reclaim" else ():
        if part:
            lives = gang.survives(frozenset(pod.uid for pod in part))
            if not _holds_what_is_over(cluster, gang, asked, rule):
                return False
            for name in lines[gang.key]:
                below.setdefault(name, []).extend([[pod] for pod in part] if lives else [list(part)])
    for name, chunks in below.items():
        if not _while_over(cluster, name, chunks, asked, rule) or not _keeps_guarantee(cluster, name, chunks):
            return False
    if not _leaves_guarantees(cluster, own, gone, asked):
        return False
    if why == "reclaim" and not all(_stays_within(cluster, name, gone, asked, rule) for name in own):
        return False
    for name in own:
        freed = _inside(cluster, name, gone)
        for resource, limit in cluster.queue(name).limit:
            left = cluster.uses(name)[resource] - freed[resource]  # what goes below a queue lowers what it holds
            if limit >= 0 and asked[resource] and left + asked[resource] > limit:
                return False
    return True


def _keeps_guarantee(cluster: Cluster, name: str, chunks: list[list[Pod]]) -> bool:
    """Whether a queue keeps what it is guaranteed, or all that it has of it."""
    for resource in cluster.resources:
        before = cluster.staying(name)[resource]
        taken = sum(cluster.held(pod)[resource] for chunk in chunks for pod in chunk)
        secured = max(0, cluster.guaranteed(name, resource) - cluster.idle_below(name, resource))
        if taken and before - taken < min(secured, before):
            return False
    return True


def _leaves_guarantees(cluster: Cluster, own: Sequence[str], gone: Sequence[Pod], asked: Amounts) -> bool:
    """Whether what idle queues are guaranteed stays free when these are gone and so much more is held."""
    freed = _inside(cluster, "root", gone)
    for resource, value in asked.items():
        room = cluster.capacity(resource) - cluster.uses("root")[resource] + freed[resource]
        beside = (
            other
            for one in own
            for other in cluster.children.get(cluster.queue(one).parent or "root", ())
            if other != one
        )
        if value and value <= room < value + sum(cluster.idle(other, resource) for other in beside):
            return False
    return True


def _stays_within(cluster: Cluster, name: str, gone: Sequence[Pod], asked: Amounts, rule: str) -> bool:
    """Whether a queue keeps to what it may hold, unless all that goes is its own."""
    if all(name in cluster.lineage(cluster.queue_of(pod)) for pod in gone):
        return True
    freed = _inside(cluster, name, gone)
    return all(
        cluster.staying(name)[resource] - freed[resource] + value <= cluster.keeps(name, resource, rule)
        for resource, value in asked.items()
        if value and cluster.counts(name, resource)
    )


def _holds_what_is_over(cluster: Cluster, gang: Gang, asked: Amounts, rule: str) -> bool:
    held = Amounts()
    for pod in gang.pods:
        held = held.plus(cluster.held(pod))
    staying = cluster.staying(gang.queue)
    return any(
        value
        and held[name]
        and cluster.counts(gang.queue, name)
        and staying[name] > cluster.keeps(gang.queue, name, rule)
        for name, value in asked.items()
    )


def _cost(cluster: Cluster, gangs: Sequence[Gang], choice: Sequence[tuple[Pod, ...]]) -> Cost:
    parts = [(gang, part) for gang, part in zip(gangs, choice, strict=True) if part]
    broken = sum(not gang.survives(frozenset(pod.uid for pod in part)) for gang, part in parts)
    gone = [pod for _, part in parts for pod in part]
    runtime = sum(max(0, int(cluster.now - pod.since)) if pod.since else 0 for pod in gone)
    return max(gang.priority for gang, _ in parts), broken, len(gone), runtime


def suffices(cluster: Cluster, gone: frozenset[str], pods: Sequence[Pod]) -> bool:
    """Whether these pods fit, with what goes anyway and these gone; all of them are alike."""
    need, fits = cluster.held(pods[0]), 0
    for name, node in cluster.nodes.items():
        if node.unschedulable:
            continue
        free, slots = Amounts(node.allocatable), node.slots
        for pod in cluster.there(name):
            if pod.uid not in gone and pod.uid not in cluster.evicted and not cluster.goes(pod):
                free, slots = free.plus(cluster.held(pod), -1), slots - 1
        for uid, at in cluster.assumed.items():
            if at == name:
                free, slots = free.plus(cluster.held(cluster.pods[uid]), -1), slots - 1
        most = min((free[resource] // value for resource, value in need.items() if value), default=len(pods))
        fits += max(0, min(most, slots))
    return fits >= len(pods)


def _cheapest(cluster: Cluster, place: Place) -> None:
    """Nobody could have been spared: no allowed set of victims costs less."""
    sent = _sent(cluster, place)
    group = cluster.groups.get(place.group)
    pods = [cluster.pods[one.uid] for one in place.assignments]
    waiting = [pod for pod in cluster.members(place.group) if pod.waiting]
    if not sent or sent[0].why not in ("reclaim", "preempt") or cluster.kept:
        return
    if len({(pod.shape, pod.role) for pod in waiting}) > 1 or (group is not None and group.topology is not None):
        return
    if not cluster.guarantees_hold or not cluster.exact:
        return
    gone, told = frozenset(victim.uid for victim in sent), sorted(victim.pod for victim in sent)
    for rule in ("entitled", "deserved") if sent[0].why == "reclaim" else ("entitled",):
        found = sets(cluster, place.group, _asked(cluster, place), sent[0].why, rule)
        if found is None:
            return
        best = next((cost for cost, one in found if suffices(cluster, one, pods)), None)
        if best is not None:
            break
    SEARCHED[sent[0].why] += 1
    chosen = next((cost for cost, one in found if one == gone), None)
    assert chosen is not None, f"{told} may not go for {place.name} by {sent[0].why}"
    # How work that is lost is weighed, the last of the cost, is asked of placement.
    assert best is not None and chosen[:3] == best[:3], f"{told} cost {chosen}, and {best} would do"


def starving(cluster: Cluster, held_back: frozenset[str]) -> None:
    """At rest: whoever waits could not be placed by evicting anybody whom it may evict, and does not fit as it is."""
    if not cluster.exact or not cluster.guarantees_hold or cluster.assumed:
        return
    if any(pod.deleting and pod.node for pod in cluster.pods.values()):
        return
    for key in sorted({cluster.key_of(pod) for pod in cluster.pods.values() if pod.ours and pod.waiting}):
        pods = _complete(cluster, key)
        if not pods or key in held_back:
            continue
        asked = Amounts()
        for pod in pods:
            asked = asked.plus(cluster.held(pod))
        line = cluster.lineage(cluster.queue_of(pods[0]))
        limits = {name: dict(cluster.queue(name).limit) for name in line}
        limited = any(
            asked[resource] and limit >= 0 and cluster.uses(name)[resource] + asked[resource] > limit
            for name in line
            for resource, limit in limits[name].items()
        )
        if not limited and suffices(cluster, frozenset(), pods) and _leaves_guarantees(cluster, line, [], asked):
            raise AssertionError(f"{key} has room and is not placed")
        for why, rule in (("reclaim", "entitled"), ("reclaim", "deserved"), ("preempt", "entitled")):
            found = sets(cluster, key, asked, why, rule)
            SEARCHED[f"starving {why}"] += found is not None and bool(found)
            helps = next((gone for _, gone in found or () if suffices(cluster, gone, pods)), None)
            names = sorted(cluster.pods[uid].name for uid in helps or ())
            assert helps is None, f"{key} starves although {names} may go for it by {why}"


def _complete(cluster: Cluster, key: str) -> list[Pod]:
    """The members that a group needs to start, where it could start now as far as it and its queue are concerned."""
    members = cluster.members(key)
    waiting = [pod for pod in members if pod.waiting and not pod.gated]
    group = cluster.groups.get(key)
    line = cluster.lineage(cluster.queue_of(members[0]))
    usable = (
        line
        and line[0] not in cluster.lost
        and all(cluster.queue(name).state == "Open" for name in line)
        and not cluster.children.get(line[0])
    )
    if not usable or not cluster.preemptible(key) or (not key.startswith("pod/") and group is None):
        return []
    if len({(pod.shape, pod.role) for pod in waiting}) > 1:
        return []
    if group is None:
        return waiting[:1]
    short = group.min_member - len(_placed(cluster, key))
    if _placed(cluster, key) or group.roles or group.topology is not None or short > len(waiting):
        return []
    return waiting[: max(1, short)]
