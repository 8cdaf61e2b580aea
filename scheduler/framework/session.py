"""One session: a frozen snapshot, the amounts as decided so far, the plugins, and what comes out.

A session lives for one cycle. Actions drive it: they read the snapshot through it, change amounts only through
statements, and leave decisions and verdicts. Nothing here talks to the API server or makes text. A failure while one
group is looked at is confined to that group (`guard`).

Invariants: decisions name only pods of the snapshot, each at most once; the ledger holds exactly what the committed
statements charged; what comes out depends on the snapshot, the configuration and the seed, not on the cache.

Over 500 lines, because it is one state with two faces: what plugins may ask of it, and what actions change in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from scheduler.framework import bookkeeping
from scheduler.framework.cache import Outcome, SessionCache, Settled, Told
from scheduler.framework.fits import Fit
from scheduler.framework.growth import AGAIN_AFTER, Surroundings, same
from scheduler.framework.holds import Holds
from scheduler.framework.hooks import HookRaised
from scheduler.framework.ledger import Ledger
from scheduler.framework.neighbours import Neighbours
from scheduler.framework.nominations import Lift, Nominations
from scheduler.framework.outlook import Outlook, going
from scheduler.framework.relations import NO_RELATIONS, Members, Relations
from scheduler.framework.residents import is_preemptible
from scheduler.framework.statement import Statement
from scheduler.framework.topology_tree import Domains, LevelFault
from scheduler.model.decisions import Decision, Decisions, Drain, Place
from scheduler.model.groups import GroupState
from scheduler.model.nodes import HOSTNAME
from scheduler.model.pods import Pod, Shape, held_by, holder_of
from scheduler.model.queues import Queue, leaf_of
from scheduler.model.resources import Amounts
from scheduler.model.snapshot import NodeTable, Snapshot
from scheduler.model.verdict import Code, Verdict, verdict

log = structlog.get_logger("muster.session")
_HOLDERS = 3
THOROUGH = 24
"""Reasons in one session for which further searches are made; the others say what is known without them."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one placement search; only the deterministic time (solver seconds) decides."""

    max_deterministic_time: float = 1.0
    wall_limit: float = 2.0
    workers: int = 1


@dataclass(slots=True)
class Contest:
    """Of those that have no place: by row of their queue the highest priority; and rows of those that are owed one."""

    priorities: dict[int, int] = field(default_factory=dict)
    owed: dict[int, None] = field(default_factory=dict)


class Session:
    """See the module. Implements `protocols.View`."""

    def __init__(
        self,
        snapshot: Snapshot,
        cache: SessionCache,
        *,
        session_id: str,
        seed: int = 0,
        budget: Budget | None = None,
    ) -> None:
        self.budget = budget or Budget()
        self.snapshot, self.cache, self.hooks = snapshot, cache, cache.hooks
        self.session_id, self.seed = session_id, seed
        self.table: NodeTable = snapshot.table
        self.now = snapshot.now
        cache.fits.refresh(snapshot.table, snapshot.shapes)
        self.ledger = Ledger(snapshot.table)
        self._rows: dict[str, int] | None = None
        self.nominations, self.holds = Nominations(snapshot), Holds(snapshot)
        self.holds.take(self.ledger.adjust)
        self.ledger.base = self.began = cache.token(self.ledger.free, self.ledger.open_slots)
        self.outlook = Outlook(snapshot, self.ledger, self.row)
        self.serial = cache.next_serial()
        self._topology = cache.domains.of(snapshot)
        self.space, self.world = cache.space(snapshot), cache.world(snapshot)
        cache.growth.begin(snapshot, self.space, self.ledger.free, self.ledger.open_slots)
        self.changed, self.gone = cache.changes(snapshot)
        self.waiting: dict[str, GroupState] = self._waiting()
        """Groups that may need something, sorted by key: with waiting members, or with an object and no members yet."""
        size, nominated = len(snapshot.table.names), self.nominations.pods
        self.neighbours = Neighbours(snapshot.presence, size, cache.matches, snapshot.shapes, nominated)
        self._thorough = THOROUGH
        self._surroundings = Surroundings(snapshot, self.neighbours)
        self.placed: dict[str, str] = {}
        self.places: list[Place] = []
        self.drains: list[Drain] = []
        self.placed_of: dict[str, list[Place]] = {}
        self.said: list[Decision] = []
        self._told: dict[str, Told] = {}
        self._settled: dict[str, Settled] = {}
        self._delayed = {key: when for key, when in cache.delayed.items() if when > snapshot.now}
        self.verdicts: dict[str, Verdict] = {}
        self.admitted: dict[str, None] = {}
        self.counters: dict[str, float] = {}
        self.wake_at: float | None = None
        self._refused = self._refusals()
        self._related: dict[Hashable, Relations | Verdict] = {}
        self._queue_keys: dict[str, tuple[Any, ...]] = {}
        self._head_keys: dict[tuple[str, str], tuple[Any, ...]] = {}
        self._keyed = (0, 0, 0)
        self._plain: dict[str, Queue] = {}
        self.firm: NDArray[np.int64] | None = None
        """What queues hold in groups that are not preemptible, once somebody asked; rows as in the book."""
        self.wants: dict[str, Any] = {}
        """What actions leave for later ones: groups that have no place, by key (`scheduler.actions.wants.Want`)."""
        self.contest = Contest()
        self.deferred: dict[str, GroupState] = {}
        """Groups that wait until it is settled whether room is made for others."""
        self.recalled: dict[str, GroupState] = {}
        self.outdated: dict[str, GroupState] = {}
        """Groups whose earlier verdict still holds, and of these the ones whose numbers are old."""
        self.evicted: dict[str, Pod] = {}
        """Pods that this session decided to evict, by uid."""
        self.scratch: dict[str, Any] = {}
        """What actions keep for each other as long as the session lasts."""
        self.later_actions: tuple[str, ...] = ()
        self.changes_at = float("inf")
        """When who may be evicted changes by itself."""
        self.work_left = 0
        """Running pods that searches for room may still look at."""
        cache.residents.refresh(snapshot)
        self.book = bookkeeping.open_book(self)
        self.began_with = self.book.staying.copy()
        """What queues held when the session began, rows as in the book."""
        for raised in self.hooks.on_session(self):
            self._count_fault(raised, "")

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def free(self) -> NDArray[np.int64]:
        """What is free now, resources by nodes, read only."""
        return self.ledger.free

    @property
    def open_slots(self) -> NDArray[np.int64]:
        """Open pod slots now, read only."""
        return self.ledger.open_slots

    def request(self, shape: Shape) -> NDArray[np.int64]:
        """What one pod of the shape asks for, in the order of the table's resources."""
        return self.cache.request(shape, self.table.resources)

    def missing_resources(self, shape: Shape) -> tuple[str, ...]:
        """Resources that the shape asks for and no node has."""
        return self.cache.missing_resources(shape, self.table.resources)

    def fit(self, shape: Shape) -> Fit:
        """The shape against all nodes by static predicates. Raises `HookRaised`."""
        return self.cache.fits.fit(shape)

    def plain_key(self, shape: Shape) -> str:
        """Equal for shapes that differ only in what they say about other pods."""
        return self.cache.fits.plain_key(shape)

    def row(self, node: str) -> int | None:
        """Return the row of a node, or None."""
        if self._rows is None:
            self._rows = {name: number for number, name in enumerate(self.table.names)}
        return self._rows.get(node)

    def domains(self, level: str) -> tuple[NDArray[np.int32], tuple[str, ...]]:
        """Return for each node the number of its domain (-1: it has none), and the domains' names.

        level: a level key of `topology`, or the key of a node label.
        """
        tree_level = self.topology.level(level)
        if tree_level is not None:
            return tree_level.ids, tree_level.names
        key = ("domains", self.space, level)
        known: tuple[NDArray[np.int32], tuple[str, ...]] | None = self.cache.memo.get(key)
        if known is None:
            table = self.table
            if level == HOSTNAME:
                known = self._hostnames()
            else:
                values = [node_class.label(level) for node_class in table.classes]
                of_class, names = _numbered(values)
                known = (of_class[table.class_of] if values else np.zeros(0, dtype=np.int32)), names
            self.cache.memo.put(key, known)
        return known

    @property
    def topology(self) -> Domains:
        """The levels that topology objects name, and how a level is asked for."""
        return self._topology

    def resolve(self, topology: str, level: str) -> str | LevelFault:
        """Return the level key (or node label key) that a wish means. topology: "" = whichever knows the level."""
        return self._topology.resolve(topology, level)

    def level_name(self, level: str) -> str:
        """Return what people call a level."""
        found = self.topology.level(level)
        return found.name if found is not None else level

    def _hostnames(self) -> tuple[NDArray[np.int32], tuple[str, ...]]:
        nodes = self.table.nodes
        values = [dict(nodes[name].labels).get(HOSTNAME) for name in self.table.names]
        if None not in values and len(set(values)) == len(values):
            return np.arange(len(values), dtype=np.int32), tuple(value or "" for value in values)
        return _numbered(values)

    @property
    def hostnames_are_nodes(self) -> bool:
        """Whether every node has a hostname label of its own, so that its domain's number is its row."""
        ids, names = self.domains(HOSTNAME)
        return len(names) == len(ids)

    def queue_of(self, state: GroupState) -> str:
        """Name of the leaf queue that the group waits in."""
        return leaf_of(state.queue)

    def queue_row(self, state: GroupState) -> int | None:
        """Row of the group's queue in the book; None where there is no such queue and nothing runs in it."""
        return self.book.tree.index.get(self.queue_of(state))

    def served_row(self, state: GroupState) -> int | None:
        """Row of the group's queue in the book; None where that takes no part, so that nobody goes for the group."""
        name = self.queue_of(state)
        return self.book.tree.index[name] if name in self.book.tree else None

    def queue(self, name: str) -> Queue:
        """The queue object of a name; one without settings where there is none."""
        found = self.snapshot.queues.get(name) or self._plain.get(name)
        if found is None:
            found = self._plain[name] = Queue(name=name)
        return found

    def least_of(self, state: GroupState) -> Amounts:
        """What the group asks for at its next turn: its minimum, or one member where that is met."""
        return bookkeeping.least_of(self, state)

    def is_preemptible(self, state: GroupState) -> bool:
        """Whether the group may be a victim by what it and its members say."""
        return is_preemptible(state)

    def beyond_deserved(self, state: GroupState, wanted: NDArray[np.int64]) -> tuple[int, int, int] | None:
        """Where a group that is not preemptible would hold more than is deserved, with so much more."""
        return bookkeeping.beyond_deserved(self, state, wanted)

    @cached_property
    def shares_matter(self) -> bool:
        """Whether so much is waited for, of what is free, that it matters in which parts queues are served."""
        book = self.book
        root = book.tree.structure.root
        return bool((2 * book.waiting > book.ground.total - book.used[root]).any())

    def queue_key(self, name: str, head: GroupState) -> tuple[Any, ...]:
        """The queue's key as of now, if `head` is served; the same until something is decided. Raises `HookRaised` the
        first time; later the last good key is kept."""
        decided = len(self.places), len(self.evicted), len(self.drains)
        if decided != self._keyed or self.hooks.volatile:
            self._keyed = decided
            self._head_keys.clear()
        key = self._head_keys.get((name, head.key))
        try:
            if key is None:
                key = self._head_keys[name, head.key] = self.hooks.order_queues(self.queue(name), head, self)
            self._queue_keys[name] = key
        except HookRaised as raised:
            if name not in self._queue_keys:
                raise
            self._count_fault(raised, "")
        return self._queue_keys[name]

    @property
    def has_refusals(self) -> bool:
        """Whether any pod or shape is kept away from some node for a while."""
        return bool(self._refused)

    def refused_rows(self, pod: Pod) -> tuple[int, ...]:
        """Rows that this pod is kept away from for a while, after the binder or a kubelet refused it there."""
        if not self._refused:
            return ()
        return tuple(sorted({*self._refused.get(pod.uid, ()), *self._refused.get("shape " + pod.shape, ())}))

    def remaining(self, state: GroupState) -> tuple[Pod, ...]:
        """Waiting members that this session has not placed."""
        if state.key not in self.placed_of:
            return state.waiting
        return tuple(pod for pod in state.waiting if pod.uid not in self.placed)

    def waiting_uids(self, state: GroupState) -> frozenset[str]:
        """The uids of the group's waiting members in the snapshot."""
        return frozenset(pod.uid for pod in state.waiting)

    def placed_now(self, state: GroupState) -> int:
        """How many members this session has placed."""
        places = self.placed_of.get(state.key)
        return sum(len(place.assignments) for place in places) if places else 0

    @property
    def tenancy(self) -> tuple[int, ...]:
        """Equal as long as the same holders hold the same amounts (the ledger's token does not say who holds them)."""
        return (self.world, self.serial, len(self.places)) if self.places else (self.world,)

    def holders(self, resource: str) -> tuple[tuple[str, int], ...]:
        """Who holds most of a resource and stays: up to three ("3 pods of NAME", amount), largest first."""
        leaving = {pod.uid: pod for pod, _ in going(self.snapshot)} | self.evicted
        key = ("holders", self.tenancy, resource, frozenset(leaving))
        known: tuple[tuple[str, int], ...] | None = self.cache.memo.get(key)
        if known is None:
            sums: dict[str, tuple[int, int]] = {}
            for label, (pods, held) in self.snapshot.usage.items():
                for name, value in held:
                    if name == resource and value > 0:
                        sums[label] = (pods, value)
            for pod in leaving.values():
                value = dict(held_by(pod, self.snapshot.shapes)).get(resource, 0)
                if value and (label := holder_of(pod)) in sums:
                    sums[label] = (sums[label][0] - 1, sums[label][1] - value)
            for place in self.places:
                label, pods, value = self._held_by(place, resource)
                before = sums.get(label, (0, 0))
                if value:
                    sums[label] = (before[0] + pods, before[1] + value)
            top = sorted((-value, label, pods) for label, (pods, value) in sums.items() if value > 0)[:_HOLDERS]
            known = tuple((f"{pods} {'pod' if pods == 1 else 'pods'} of {label}", -value) for value, label, pods in top)
            self.cache.memo.put(key, known)
        return known

    def _held_by(self, place: Place, resource: str) -> tuple[str, int, int]:
        """What this session's placement adds to the usage, under the name by which people know the holder."""
        state = self.snapshot.groups[place.group]
        waiting = {pod.uid: pod for pod in state.waiting}
        members = [waiting[one.uid] for one in place.assignments]
        value = sum(dict(self.snapshot.shapes[pod.shape].requests).get(resource, 0) for pod in members)
        name = state.group.name if state.group.has_object else members[0].owner_name or members[0].name
        return f"{state.group.namespace}/{name}", len(members), value

    def _waiting(self) -> dict[str, GroupState]:
        waiting = self.cache.waiting
        if not self.changed and not self.gone:
            return waiting
        keys = {key: None for key in waiting if key in self.snapshot.groups}
        for state in self.changed:
            if state.waiting or (state.group.has_object and not state.placed):
                keys[state.key] = None
            else:
                keys.pop(state.key, None)
        return {key: self.snapshot.groups[key] for key in sorted(keys)}

    def _refusals(self) -> dict[str, tuple[int, ...]]:
        if not self.snapshot.no_goods:
            return {}
        index = {name: number for number, name in enumerate(self.table.names)}
        rows: dict[str, list[int]] = {}
        for bad in self.snapshot.no_goods:
            if bad.until > self.now and bad.node in index:
                rows.setdefault(bad.uid or "shape " + bad.shape, []).append(index[bad.node])
                self.wake_no_later_than(bad.until)
        return {key: tuple(sorted(set(numbers))) for key, numbers in rows.items()}

    def relations(
        self, members: tuple[Members, ...], signature: Hashable, *, empty: bool = False
    ) -> Relations | Verdict:
        """What plugins say about these members as things are; members with equal signatures get the same answer."""
        if not self.hooks.has("relates"):
            return NO_RELATIONS
        key = (signature, empty, self.neighbours.left_out)
        known = self._related.get(key)
        if known is None:
            known = self._related[key] = self.hooks.relates(members, self, empty=empty)
        return known

    def moved(self) -> None:
        """Forget what plugins said about members, because a placement was made or undone."""
        self._related.clear()

    # -- deciding -------------------------------------------------------------------------------------------------

    def statement(self) -> Statement:
        """Begin a statement."""
        return Statement(self)

    def decide(self, places: Sequence[Place]) -> None:
        """Take over the placements of a committed statement; only `Statement.commit` calls this."""
        queues: dict[str, int] = {}
        for place in places:
            self.places.append(place)
            self.placed_of.setdefault(place.group, []).append(place)
            self.count("pods_placed", float(len(place.assignments)))
            queue = self.queue_of(self.snapshot.groups[place.group])
            queues[queue] = queues.get(queue, 0) + 1
        for queue, number in queues.items():
            self.count("groups_placed", float(number), queue=queue)

    def drain(self, decision: Drain) -> None:
        """Take over that a queue's pods go, for nobody."""
        self.drains.append(decision)
        self.count("pods_evicted_total", float(len(decision.victims)), action="drain")

    def reject(self, state: GroupState, why: Verdict) -> None:
        """Leave a verdict on a group that has to wait."""
        self.verdicts[state.key] = why

    def remember(self, state: GroupState, why: Verdict, answer: object = None) -> None:
        """Keep the verdict for later sessions in which nothing that it depends on has changed."""
        before = self.cache.outcomes.get(state.key)
        again = before is not None and answer is not None and before.answer is answer
        self.cache.outcomes[state.key] = Outcome(
            state,
            self.ledger.base,
            self.world,
            why,
            answer,
            growth=self.cache.growth.count,
            surroundings=() if answer is None else self._surroundings.of(state),
            searched=before.searched if before is not None and again else self.now,
            said=self.now,
        )

    def recall(self, state: GroupState) -> Verdict | None:
        """Return the verdict that this group would get again, or None when that is not known."""
        known = self.cache.outcomes.get(state.key)
        if known is None or known.state is not state or known.token != self.ledger.base or known.world != self.world:
            return None
        return known.verdict

    def recall_unfit(self, state: GroupState) -> Outcome | None:
        """Return what is known about a group that did not fit, when nothing has happened since that can help it."""
        known = self.cache.outcomes.get(state.key)
        if known is None or known.state is not state or not known.surroundings or self.hooks.volatile:
            return None
        if known.growth != self.cache.growth.count or not same(known.surroundings, self._surroundings.of(state)):
            return None
        due = known.searched + AGAIN_AFTER
        if self.now >= due:
            return None
        self.wake_no_later_than(due)
        return known

    def recall_entry(self, state: GroupState) -> bool | None:
        """Return whether the group was let in when nothing differed from now, or None when that is not known."""
        known = self.cache.entries.get(state.key)
        if known is None or known[0] is not state or known[1:3] != (self.ledger.base, self.world):
            return None
        return known[3]

    def remember_entry(self, state: GroupState, *, admitted: bool) -> None:
        """Keep whether the group was let in."""
        self.cache.entries[state.key] = (state, self.ledger.base, self.world, admitted)

    def is_settled(self, state: GroupState) -> bool:
        """Whether all that could be said about the group now has been said, and not too long ago."""
        known = self.cache.settled.get(state.key)
        return (
            known is not None
            and known.state is state
            and known.until > self.now
            and known.admitted == (state.key in self.admitted)
            and known.verdict == self.verdicts.get(state.key)
        )

    def settle(self, state: GroupState, until: float) -> None:
        """Remember, once the session has ended well, that nothing is left to say about the group as it is now."""
        self._settled[state.key] = Settled(state, self.verdicts.get(state.key), state.key in self.admitted, until)

    def may_be_thorough(self) -> bool:
        """Whether there is time for searches that only make a reason better; the first so many times yes."""
        self._thorough -= 1
        return self._thorough >= 0

    def say(self, decision: Decision) -> None:
        """Add a status or an explanation to the output."""
        self.said.append(decision)

    def told(self, state: GroupState) -> Told:
        """What has been said about this group; nothing yet when another object had its key."""
        known = self._told.get(state.key) or self.cache.told.get(state.key)
        return known if known is not None and known.uid == state.group.uid else Told(uid=state.group.uid)

    def note(self, state: GroupState, told: Told) -> None:
        """Remember what has been said, once the session has ended well."""
        self._told[state.key] = told

    def delay(self, state: GroupState, due: float) -> None:
        """Look at what the group's object should say again at that time, whatever happens until then."""
        self._delayed[state.key] = due
        self.wake_no_later_than(due)

    def undelay(self, state: GroupState) -> None:
        """Forget that; what changes of the group is looked at anyway."""
        self._delayed.pop(state.key, None)

    def wake_no_later_than(self, when: float) -> None:
        """Ask for a session at that time even if nothing happens."""
        self.wake_at = when if self.wake_at is None else min(self.wake_at, when)

    def look_again_at(self, when: float) -> None:
        """Note that who may be evicted changes at that time by itself."""
        self.changes_at = min(self.changes_at, when)

    def count(self, name: str, value: float = 1.0, **labels: str) -> None:
        """Add to a counter for the metrics; the key is name{label="value",...} with labels in order of name."""
        if labels:
            inside = ",".join(f'{label}="{text}"' for label, text in sorted(labels.items()))
            name = f"{name}{{{inside}}}"
        self.counters[name] = self.counters.get(name, 0.0) + value

    def decisions(self) -> Decisions:
        """Return the whole output, placements first."""
        return Decisions(self.session_id, self.snapshot.generation, (*self.places, *self.drains, *self.said))

    def standing(self, priority: int) -> AbstractContextManager[None]:
        """Look at the cluster as it is for a group of this priority: without what pods nominated below it hold."""
        return self._lifted(self.nominations.below(priority)) if self.nominations.pods else nullcontext()

    def _own(self, states: Sequence[GroupState]) -> AbstractContextManager[None]:
        """As `standing` for the least priority of these groups, with the room that is kept for them."""
        if not states or not (self.nominations.pods or self.snapshot.holds):
            return nullcontext()
        return self._lifted(self.holds.lift(states, self.nominations.below(min(one.priority for one in states))))

    @contextmanager
    def _lifted(self, lift: Lift | None) -> Iterator[None]:
        with self.ledger.lifted(lift), self.neighbours.without(() if lift is None else lift.pods):
            yield

    def overcommitted(self) -> tuple[str, ...]:
        """Names of nodes that hold more than they have, whoever put it there.

        Pods that are only nominated do not hold anything, nor do those that are about to go, for others to come.
        """
        with self._lifted(self.nominations.all()), self.outlook.ahead():
            over = (self.ledger.free < 0).any(axis=0) | (self.ledger.open_slots < 0)
        return tuple(self.table.names[int(row)] for row in np.flatnonzero(over))

    # -- failures -------------------------------------------------------------------------------------------------

    @contextmanager
    def guard(self, *states: GroupState) -> Iterator[None]:
        """Look at these groups: on what is there for their priority (the least of them).

        A failure is confined to them: they wait as Misconfigured; it is logged and counted, the rest goes on.
        """
        try:
            with self._own(states):
                yield
        except HookRaised as raised:
            self._count_fault(raised, states[0].key if states else "")
            for state in states:
                self.reject(
                    state,
                    verdict(
                        Code.MISCONFIGURED,
                        field=f"plugin {raised.plugin}",
                        message=f"raised in {raised.hook}: {raised.error!r}",
                    ),
                )
        except Exception as error:  # the fence: whatever is wrong with one group, the others are served
            self.count("group_failures")
            log.exception("group_failed", session=self.session_id, group=states[0].key if states else "")
            for state in states:
                self.reject(
                    state, verdict(Code.MISCONFIGURED, field="scheduler", message=f"failed on this group: {error!r}")
                )

    def _count_fault(self, raised: HookRaised, group: str) -> None:
        first = not any(name.startswith("plugin_failures") for name in self.counters)
        self.count("plugin_failures", plugin=raised.plugin, hook=raised.hook)
        if first:
            log.error(
                "plugin_failed", session=self.session_id, plugin=raised.plugin, hook=raised.hook, group=group,
                error=repr(raised.error), exc_info=raised.error,
            )  # fmt: skip

    def close(self) -> Decisions:
        """End the session: let the cache take over what was seen, and return the output."""
        self.cache.settled.update(self._settled)
        self.outlook.give_back()
        self.cache.growth.end(self.snapshot, self.space, self.ledger.free, self.ledger.open_slots)
        self.cache.finish(self.changed, self.gone, self.waiting, self._told, self._delayed, self.ledger)
        return self.decisions()


def _numbered(values: Sequence[str | None]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Number the values in their order; None is -1."""
    names = tuple(sorted({value for value in values if value is not None}))
    number = {name: position for position, name in enumerate(names)}
    return np.array([-1 if value is None else number[value] for value in values], dtype=np.int32), names
