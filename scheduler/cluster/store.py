"""The brain's picture of the cluster: applies events, keeps assumptions, gives snapshots.

Decided here: which members a group has, what a node is charged with, and how long a placement is assumed. A pod is
charged to its node from the moment that a session placed it there (or somebody bound it) until it has ended or is gone,
whoever scheduled it; a nominated pod of another scheduler is charged to the node that it waits for (a session leaves it
out for groups of a higher priority). An assumption ends when the watch confirms the bind, or when the request that
carries it fails or disappears. Knows nothing of HTTP.

A little over 500 lines, because every event changes one and the same picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from scheduler.cluster import feed
from scheduler.cluster.accounts import Accounts, Charge, Singles
from scheduler.cluster.departures import Departures
from scheduler.cluster.members import group_key, group_state, queue_of
from scheduler.cluster.node_table import GrowingTable
from scheduler.cluster.refusals import VICTIMS_REMAIN, Refusals
from scheduler.cluster.setbacks import Setbacks
from scheduler.cluster.sharing import Sharing
from scheduler.cluster.storage import StorageBook
from scheduler.cluster.tallies import Tallies
from scheduler.cluster.wiring import Wiring
from scheduler.model.bindrequest import BindRequest, GangOutcome
from scheduler.model.budgets import DisruptionBudget
from scheduler.model.decisions import Place
from scheduler.model.groups import GroupState, PodGroup
from scheduler.model.nodes import HOSTNAME, Node
from scheduler.model.pods import Pod, Shape, holder_of
from scheduler.model.queues import Queue, that_counts
from scheduler.model.rejections import rejected
from scheduler.model.snapshot import Snapshot

SPARE_SHAPES = 1000
"""Shapes without a pod that are kept before they are swept; the io process sends one again when it is used again."""


class Store:
    """See the module; one thread uses it."""

    def __init__(self) -> None:
        self.synced = False
        self.epoch: int | None = None
        self.changed = False
        """Whether something happened since the last snapshot that can change a decision or a status."""
        self._generation = 0
        self._table = GrowingTable()
        self._storage = StorageBook()
        self._nodes: dict[str, Node] = {}
        self._shapes: dict[str, Shape] = {}
        self._swept_at = 0
        self._pods: dict[str, Pod] = {}
        self._key_of: dict[str, str] = {}
        self._members: dict[str, dict[str, None]] = {}
        self._by_owner: dict[str, dict[str, None]] = {}
        self._accounts = Accounts(self._table)
        self._queue_names: dict[str, str] = {}
        self._singles = Singles()
        self._releasing: dict[str, Pod] = {}
        self._departures = Departures()
        self._now = 0.0
        self._groups: dict[str, PodGroup] = {}
        self._states: dict[str, GroupState] = {}
        self._in_order = True
        self._dirty: dict[str, None] = {}
        self._ran: set[str] = set()
        self._queues: dict[str, dict[str, Queue]] = {}
        self._wiring = Wiring()
        self._budgets: dict[str, DisruptionBudget] = {}
        self._priorities: dict[str, int] = {}
        self._namespaces: dict[str, str] = {}
        self._assumed: dict[str, tuple[str, str]] = {}
        self._requests: dict[str, BindRequest] = {}
        self._settled: dict[str, set[int]] = {}
        self._starting: dict[str, dict[str, None]] = {}
        self._refusals = Refusals()
        self._setbacks = Setbacks()
        self._nominated: dict[str, Pod] = {}
        self._foreign: dict[str, dict[str, None]] = {}
        self._named: dict[str, frozenset[str]] = {}
        self._tallies = Tallies(self._placed)
        self._sharing = Sharing()
        self._dialects: dict[str, bool] = {}

    # -- events ---------------------------------------------------------------------------------------------------

    def apply(self, events: Iterable[feed.Event], now: float) -> None:
        """Apply events in order. `now` is in seconds since the epoch and only dates cool-downs."""
        for event in events:
            match event:
                case feed.PodSet(pod=pod):
                    self._set_pod(pod, now)
                case feed.PodGone(uid=uid):
                    self._drop_pod(uid)
                case feed.ShapeSet(shape=shape):
                    self._set_shape(shape)
                case feed.NodeSet(node=node):
                    self._set_node(node)
                case feed.NodeGone(name=name):
                    self._table.remove_node(name)
                    self._nodes.pop(name, None)
                    self.changed = True
                case feed.GroupSet(group=group):
                    self._set_group(group)
                case feed.GroupGone(key=key):
                    self._drop_group(key)
                case feed.RequestSet(request=request):
                    self._set_request(request, now)
                case feed.RequestGone(name=name):
                    self._drop_request(name)
                case feed.HandoverFailed(session=session, groups=groups):
                    self._handover_failed(session, frozenset(groups))
                case feed.Synced():
                    self.synced = self.changed = True
                    self._settled.clear()
                    for request in tuple(self._requests.values()):  # pods may have come after the request
                        self._set_request(request, now)
                case feed.Leading(epoch=epoch):
                    self.epoch = epoch
                    self.changed = True
                case _:
                    self._apply_tenancy(event)

    def _apply_tenancy(self, event: feed.Event) -> None:
        match event:
            case feed.QueueSet(queue=queue):
                by_dialect = self._queues.setdefault(queue.name, {})
                same = by_dialect.get(queue.dialect) == queue
                by_dialect[queue.dialect] = queue
                if same:  # only what is written back differs
                    return
            case feed.QueueGone(name=name, dialect=dialect):
                self._queues.get(name, {}).pop(dialect, None)
                if not self._queues.get(name):
                    self._queues.pop(name, None)
            case feed.PriorityClassSet(name=name, value=value):
                if self._priorities.get(name) == value:
                    return
                self._priorities[name] = value
                self._dirty.update((key, None) for key, group in self._groups.items() if group.priority_class == name)
            case feed.PriorityClassGone(name=name):
                self._priorities.pop(name, None)
            case feed.NamespaceSet(name=name, queue=queue_name, labels=labels):
                self._tallies.set_namespace(name, labels)
                if self._namespaces.get(name, "") == queue_name:
                    self.changed = True
                    return
                self._namespaces[name] = queue_name
                marker = f"/{name}/"
                self._dirty.update((key, None) for key in self._members if marker in key)
            case feed.NamespaceGone(name=name):
                self._namespaces.pop(name, None)
                self._tallies.set_namespace(name, None)
                return
            case feed.DialectSet(name=name, active=active):
                self._dialects[name] = active
            case feed.BudgetSet(budget=budget):
                self._budgets[budget.key] = budget
            case feed.BudgetGone(key=key):
                self._budgets.pop(key, None)
            case _:
                changed = self._wiring.apply(event)
                if not (self._storage.apply(event) if changed is None else changed):
                    return
        self.changed = True

    def _set_shape(self, shape: Shape) -> None:
        self._shapes[shape.key] = shape
        self._tallies.set_shape(shape)
        names = [value for key, value in shape.node_selector if key == HOSTNAME]
        for term in (*(shape.required_terms or ()), *(preferred.term for preferred in shape.preferred_terms)):
            for need in (*term.expressions, *term.fields):
                if need.key in (HOSTNAME, "metadata.name"):
                    names.extend(need.values)
        if names:
            self._named[shape.key] = frozenset(names)

    def _set_node(self, node: Node) -> None:
        self._sharing.node(node, len(self._nodes))
        fresh = node.name not in self._table
        self._nodes[node.name] = node
        self._table.set_node(node)
        if fresh:
            self._accounts.node_came(node.name)
        self.changed = True

    def _set_pod(self, pod: Pod, now: float) -> None:
        old = self._pods.get(pod.uid)
        if old is not None and pod.node == old.node and replace(pod, resource_version=old.resource_version) == old:
            return
        if old is not None and (pod.ours or pod.group != old.group):
            self._drop_foreign(old)
        self._pods[pod.uid] = pod
        self._sharing.pod(pod, len(self._pods))
        if pod.node or pod.finished:
            self._assumed.pop(pod.uid, None)
        if pod.ours:
            self._nominated.pop(pod.uid, None)
            self._join(pod)
        else:
            self._leave(pod.uid)
            self._note_nomination(pod)
            if pod.group and pod.uid not in self._foreign.setdefault(pod.group, {}):
                self._foreign[pod.group][pod.uid] = None
                self._dirty[pod.group] = None
        self._recharge(pod)
        cause = rejected(pod)
        if cause and not (old is not None and rejected(old)):
            self._refusals.reject(pod, cause, now)
        self.changed = True

    def _placed(self) -> Iterator[tuple[Pod, str]]:
        """Every pod that is charged to a node."""
        return ((self._pods[uid], node) for uid, node in self._accounts.placed() if uid in self._pods)

    def _owners(self) -> dict[str, dict[str, int]]:
        """Where the living pods of each controller are that has waiting ones."""
        waiting = {pod.owner_uid for state in self._states.values() for pod in state.waiting if pod.owner_uid}
        found: dict[str, dict[str, int]] = {}
        for owner in sorted(waiting):
            nodes = found[owner] = {}
            for uid in self._by_owner.get(owner, ()):
                if uid in self._accounts and not self._pods[uid].deleting:
                    node = self._accounts[uid].node
                    nodes[node] = nodes.get(node, 0) + 1
        return found

    def _note_nomination(self, pod: Pod) -> None:
        if pod.nominated and pod.waiting:
            self._nominated[pod.uid] = pod
        else:
            self._nominated.pop(pod.uid, None)

    def _join(self, pod: Pod) -> None:
        if pod.owner_uid:
            self._by_owner.setdefault(pod.owner_uid, {})[pod.uid] = None
        key = group_key(pod, self._groups)
        before = self._key_of.get(pod.uid)
        if before is not None and before != key:
            self._leave(pod.uid)
        self._key_of[pod.uid] = key
        self._members.setdefault(key, {})[pod.uid] = None
        self._dirty[key] = None

    def _leave(self, uid: str) -> None:
        key = self._key_of.pop(uid, None)
        if key is None:
            return
        members = self._members.get(key, {})
        members.pop(uid, None)
        if not members:
            self._members.pop(key, None)
        self._dirty[key] = None

    def _drop_pod(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self._assumed.pop(uid, None)
        self._nominated.pop(uid, None)
        self._releasing.pop(uid, None)
        self._departures.gone(uid)
        self._singles.drop(uid)
        self._storage.drop_pod(uid)
        self._tallies.drop_pod(uid)
        self._accounts.set(uid, None)
        self._leave(uid)
        self._drop_foreign(pod)
        owned = self._by_owner.get(pod.owner_uid)
        if owned is not None:
            owned.pop(uid, None)
            if not owned:
                del self._by_owner[pod.owner_uid]
        self.changed = True

    def _drop_foreign(self, pod: Pod) -> None:
        named = self._foreign.get(pod.group)
        if named is None or named.pop(pod.uid, pod) is pod:
            return
        if not named:
            del self._foreign[pod.group]
        self._dirty[pod.group] = None

    def _set_group(self, group: PodGroup) -> None:
        known = self._groups.get(group.key)
        if known is not None and replace(group, resource_version=known.resource_version) == known:
            return
        self._groups[group.key] = group
        self._dirty[group.key] = None
        if group.dialect == "owner":
            self._rejoin(group.uid)
        self.changed = True

    def _drop_group(self, key: str) -> None:
        group = self._groups.pop(key, None)
        if group is None:
            return
        self._ran.discard(group.uid)
        self._dirty[key] = None
        if group.dialect == "owner":
            self._rejoin(group.uid)
        self.changed = True

    def _rejoin(self, owner_uid: str) -> None:
        for uid in tuple(self._by_owner.get(owner_uid, ())):
            self._join(self._pods[uid])
            self._recharge(self._pods[uid])

    # -- charges --------------------------------------------------------------------------------------------------

    def _queue_of(self, key: str, pod: Pod) -> str:
        """Name of the leaf queue that a pod of ours is charged to."""
        known = self._queue_names.get(key)
        if known is None:
            known = self._queue_names[key] = queue_of(self._groups.get(key), (pod,), self._namespaces.get)
        return known

    def _charge_of(self, pod: Pod) -> Charge | None:
        if pod.finished:
            return None
        node = pod.node or self._assumed.get(pod.uid, ("", ""))[0]
        if not node and pod.uid in self._nominated:
            node = pod.nominated
        if not node:
            return None
        shape = self._shapes[pod.shape]
        requests = shape.requests if pod.charge is None else pod.charge
        key = self._key_of.get(pod.uid, "")
        queue = self._queue_of(key, pod) if key else ""
        return Charge(node, requests, shape.unstated, holder_of(pod), queue)

    def _recharge(self, pod: Pod) -> None:
        want = self._charge_of(pod)
        if pod.deleting and want is not None:
            self._releasing[pod.uid] = pod
        else:
            self._releasing.pop(pod.uid, None)
        self._tallies.set_pod(pod, want.node if want is not None else "")
        if pod.volumes is not None:
            self._storage.set_pod(pod, want.node if want is not None else "")
        self._accounts.set(pod.uid, want)

    # -- assumptions ----------------------------------------------------------------------------------------------

    def assume(self, place: Place, session: str) -> None:
        """Take a placement as done until its request says otherwise."""
        if place.minimum > 1:
            self._begin(place.group, session)
        self._storage.take(session, place)
        self._departures.assume(session, place, self._now, self._owned)
        for assignment in place.assignments:
            self._assume(assignment.uid, assignment.node, session)

    def _begin(self, key: str, source: str) -> None:
        """Note that a request (or a session whose request is not seen yet) binds the group's minimum."""
        sources = self._starting.setdefault(key, {})
        if source not in sources:
            sources[source] = None
            self._dirty[key] = None

    def _end(self, key: str, source: str) -> None:
        sources = self._starting.get(key)
        if sources is None or source not in sources:
            return
        del sources[source]
        if not sources:
            del self._starting[key]
        self._dirty[key] = None
        self.changed = True

    def _assume(self, uid: str, node: str, source: str) -> None:
        pod = self._pods.get(uid)
        if pod is None or pod.node or pod.finished:
            return
        self._assumed[uid] = (node, source)
        self._recharge(pod)
        self._dirty[self._key_of.get(uid, "")] = None

    def _release(self, uid: str) -> None:
        if self._assumed.pop(uid, None) is None:
            return
        pod = self._pods.get(uid)
        if pod is not None:
            self._recharge(pod)
            self._dirty[self._key_of.get(uid, "")] = None
        self.changed = True

    def _set_request(self, request: BindRequest, now: float) -> None:
        self._requests[request.name] = request
        settled = self._settled.setdefault(request.name, set())
        before = frozenset(settled)
        failed = {outcome.index: outcome for outcome in request.outcomes if outcome.phase in ("Failed", "Unwound")}
        bound = {outcome.index: outcome for outcome in request.outcomes if outcome.phase == "Bound"}
        for index, gang in enumerate(request.gangs):
            if index in settled:
                continue
            open_ = request.open and index not in failed
            self._departures.see(request, gang, open_=open_)
            if open_:
                if gang.minimum > 1:
                    self._begin(gang.group, request.name)
                self._end(gang.group, request.session)
                self._storage.take(request.name, gang)
                self._storage.release(request.session, _uids(gang))
                for assignment in gang.assignments:
                    if self._assumed.get(assignment.uid, ("", ""))[1] != request.name:
                        self._assume(assignment.uid, assignment.node, request.name)
                continue
            settled.add(index)
            self._settle(request, gang, bound.get(index), now)
        for outcome in request.outcomes:
            if outcome.index in before or outcome.index not in settled:
                continue  # said already, or more is to come
            gang = request.gangs[outcome.index]
            if outcome.phase == "Bound":
                self._setbacks.bound(gang.group)
            elif outcome.index in failed and self._setbacks.take(gang, outcome, now):
                self._dirty[gang.group] = None
                self.changed = True
                continue
            if any(failure.cause == VICTIMS_REMAIN for failure in outcome.failures):
                self._avoid(gang, now)
            for failure in outcome.failures:
                self._refuse(failure.uid, failure.node, failure.cause, now)

    def _settle(self, request: BindRequest, gang: Place, bound: GangOutcome | None, now: float) -> None:
        """End what a gang of a request held; bound: how it ended, if well."""
        self._end(gang.group, request.name)
        self._end(gang.group, request.session)
        for source in (request.name, request.session) if gang.steps else ():
            self.changed = self._storage.release(source, _uids(gang)) or self.changed
        if bound is not None:
            self._departures.went((victim.uid for victim in gang.victims if victim.uid in self._pods), now)
        unseen = _bound_uids(gang, bound)
        for assignment in gang.assignments:
            if assignment.uid in unseen:  # a watch of pods may lag behind that of requests
                self._assume(assignment.uid, assignment.node, request.name)
            else:
                self._release(assignment.uid)

    def _avoid(self, gang: Place, now: float) -> None:
        """Keep a gang from the nodes whose victims did not go in all the time that they had; it may go elsewhere."""
        staying: dict[str, frozenset[str]] = {}
        for victim in gang.victims:
            if (pod := self._pods.get(victim.uid)) and not pod.finished:
                staying[victim.node] = staying.get(victim.node, frozenset()) | {victim.uid}
        uids = [one.uid for one in gang.assignments if one.uid in self._pods and not self._pods[one.uid].node]
        if self._refusals.avoid(uids, staying, now):
            self.changed = True

    def _refuse(self, uid: str, node: str, cause: str, now: float) -> None:
        if uid in self._pods and not self._pods[uid].node and self._refusals.refuse(uid, node, cause, now):
            self.changed = True

    def _drop_request(self, name: str) -> None:
        request = self._requests.pop(name, None)
        self._settled.pop(name, None)
        if request is None:
            return
        self._departures.forget(name, (gang.group for gang in request.gangs))
        for gang in request.gangs:
            self._end(gang.group, name)
            self._storage.release(name, _uids(gang))
            for assignment in gang.assignments:
                if self._assumed.get(assignment.uid, ("", ""))[1] == name:
                    self._release(assignment.uid)

    def _handover_failed(self, session: str, groups: frozenset[str]) -> None:
        lost = [
            uid
            for uid, (_, source) in self._assumed.items()
            if source == session and self._key_of.get(uid, "") in groups
        ]
        for uid in lost:
            self._release(uid)
            self._storage.release(session, (uid,))
        for key in sorted(groups):
            self._end(key, session)
            self._departures.lose(session, key)
        self.changed = True

    # -- snapshots ------------------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """The time at which a cool-down ends and waiting groups should be looked at again, or None."""
        return min((*self._refusals.due(), *self._setbacks.due()), default=None)

    def _refresh(self, key: str) -> None:
        members = [self._pods[uid] for uid in self._members.get(key, ())]
        group = self._groups.get(key)
        self._refresh_queue(key, group, members)
        # A group whose pods are all another scheduler's is that scheduler's: its status is not ours to write.
        theirs = key in self._foreign
        if not members and (group is None or group.dialect == "owner" or theirs):
            before = self._states.pop(key, None)
            if before is not None:  # one that is made of its members has no object with which it would be forgotten
                self._ran.discard(before.group.uid)
            return
        state = group_state(
            key,
            group,
            members,
            assumed=self._assumed,
            priorities=self._priorities,
            namespace_queue=self._namespaces.get,
            ran=self._ran,
            starting=key in self._starting,
            held=self._setbacks.held(key),
            foreign=len(self._foreign.get(key, ())),
            before=self._states.get(key),
        )
        if state is None:
            self._states.pop(key, None)
            for pod in members:
                if pod.node and not pod.finished and not pod.deleting:
                    self._singles.keep(pod, self._queue_names.get(key, ""))
                else:
                    self._singles.drop(pod.uid)
        else:
            for pod in members if self._singles else ():
                self._singles.drop(pod.uid)
            if state.ever_ran:
                self._ran.add(state.group.uid)
            else:
                self._ran.discard(state.group.uid)
            self._in_order = self._in_order and key in self._states
            self._states[key] = state

    def _refresh_queue(self, key: str, group: PodGroup | None, members: list[Pod]) -> None:
        """Charge the members to another queue where the group's queue is another one now."""
        if not members:
            self._queue_names.pop(key, None)
            return
        name = queue_of(group, members, self._namespaces.get)
        if self._queue_names.get(key) != name:
            self._queue_names[key] = name
            for pod in members:
                self._recharge(pod)

    def _sweep_shapes(self) -> None:
        if len(self._shapes) <= self._swept_at + SPARE_SHAPES:
            return
        used = {pod.shape for pod in self._pods.values()}
        self._shapes = {key: shape for key, shape in self._shapes.items() if key in used}
        self._named = {key: names for key, names in self._named.items() if key in used}
        self._tallies.keep_shapes(used)
        self._swept_at = len(self._shapes)

    def _owned(self, owner: str) -> list[Pod]:
        return [self._pods[uid] for uid in self._by_owner.get(owner, ())]

    def _going(self, leaving: frozenset[str]) -> tuple[tuple[Pod, str], ...]:
        """Pods that are being deleted or about to be evicted and still hold their node, with their queue."""
        about = (uid for uid in leaving if uid in self._accounts and uid not in self._assumed)
        found = sorted({*self._releasing, *about})
        return tuple((self._pods[uid], self._accounts[uid].queue) for uid in found)

    def snapshot(self, now: float, *, owners: bool = False) -> Snapshot:
        """Return the cluster as of now and clear `changed`. owners: also where the pods of each controller are."""
        self._now = now
        self._dirty.pop("", None)
        self._dirty.update(dict.fromkeys(self._setbacks.end(now)))
        for key in self._dirty:
            self._refresh(key)
        self._dirty.clear()
        if not self._in_order:  # a dict keeps its order when entries go or change: only new keys need sorting
            self._states, self._in_order = dict(sorted(self._states.items())), True
        self._generation += 1
        self.changed = False
        self._sweep_shapes()
        named = frozenset().union(*self._named.values()) if self._named else frozenset()
        table = self._table.view(named)
        leaving = self._departures.leaving(now)
        topologies, hypernodes = self._wiring.view()
        return Snapshot(
            generation=self._generation,
            now=now,
            table=table,
            shapes=self._shapes,
            groups=dict(self._states),
            queues={name: that_counts(by_dialect) for name, by_dialect in sorted(self._queues.items())},
            usage=dict(self._accounts.usage),
            queue_usage=dict(self._accounts.queues),
            foreign=self._accounts.foreign,
            singles=self._singles.view(),
            leaving=leaving,
            awaited=self._departures.awaited(self._accounts.__contains__),
            releasing=self._going(leaving),
            holds=self._departures.holds(now, self._owned, lambda pod: pod.uid in self._accounts),
            no_goods=self._refusals.live(now, self._pods),
            foreign_nominated=tuple(sorted(self._nominated.values(), key=lambda pod: pod.uid)),
            dialects=tuple(sorted(name for name, active in self._dialects.items() if active)),
            owners=self._owners() if owners else {},
            presence=self._tallies.presence(table.names),
            budgets=dict(sorted(self._budgets.items())),
            storage=self._storage.view(),
            topologies=topologies,
            hypernodes=hypernodes,
        )


def _uids(place: Place) -> tuple[str, ...]:
    return tuple(assignment.uid for assignment in place.assignments) if place.steps else ()


def _bound_uids(gang: Place, outcome: GangOutcome | None) -> frozenset[str]:
    """Return the members of a gang that were bound, as far as its outcome says."""
    if outcome is None or outcome.more_failures:
        return frozenset()
    return frozenset(one.uid for one in gang.assignments) - {failure.uid for failure in outcome.failures}
