"""The last step of a session: what each group's object should say, and why its members wait. Said on change only.

Decided here: the phase of a group, what counts as news, and when small news waits. A new phase, another reason or a new
waiting member is said at once. Other numbers in the same words wait until some seconds have passed since the last time,
and counts wait while members are on their way, so that the start of a gang costs one status write and a busy cluster
does not rewrite a thousand conditions a session. Nothing waits for ever: the session asks to be woken. A gang that has
its nodes and is still not bound after some seconds (volumes, a slow API server, no binder) says that.

What was said is remembered in the cache by content; after a restart everything is said once more, and the writer drops
what the objects already say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum, auto

from scheduler.actions.enqueue import AT_THE_DOOR
from scheduler.actions.standing import Lines
from scheduler.actions.strays import strays
from scheduler.framework.cache import Told
from scheduler.framework.gangs import is_running, membership, needs, required_total, stray
from scheduler.framework.protocols import EvenDomains, Unusable
from scheduler.framework.session import Session
from scheduler.framework.subgroups import is_under
from scheduler.model.bindrequest import awaiting, awaits_binder, names_of
from scheduler.model.decisions import Explain, LayoutFacts, QueuePlace, SetStatus
from scheduler.model.groups import GroupState, said_of_stray
from scheduler.model.verdict import Code, Verdict

COUNTS_AFTER = 1.0
"""Seconds between a group's last status and one in which only counts differ."""
NUMBERS_AFTER = 5.0
"""Seconds between saying a reason and saying the same reason with other numbers."""
BOUND_WITHIN = 20.0
"""Seconds that a gang may be on its way before its object says so; what it said before is no longer true then."""
MOST_DOMAINS = 64
"""Domains of a level that a status names."""
UNLABELLED = "unlabelled"
"""Stands for the nodes that have no domain of a level."""
AGAIN_AFTER = 60.0
"""Seconds after which what was said is said again when the object still does not show it."""


class Way(Enum):
    """How far members are that have their nodes: whose victims have to go, who is bound soon, and who is not."""

    NOT = auto()
    FOLLOWS_VICTIMS = auto()
    IN_TIME = auto()
    LATE = auto()


def run(session: Session) -> None:
    """Add statuses and explanations to the session's output."""
    keys = dict.fromkeys(state.key for state in session.changed)
    keys.update(dict.fromkeys(session.waiting))
    due: dict[str, None] = {}
    before, apart = session.cache.strays, strays(session)
    for key in (*before, *apart):
        if before.get(key) != apart.get(key):
            due[key] = keys[key] = None
    session.cache.strays = apart
    lines = Lines(session)
    for key in lines.with_objects() if lines.due else ():
        told = session.told(session.snapshot.groups[key])
        if told.status and told.status[-1] != lines.place(session.snapshot.groups[key]):
            due[key] = keys[key] = None
    for key, when in session.cache.delayed.items():
        if when <= session.now:
            due[key] = keys[key] = None
        else:
            session.wake_no_later_than(when)
    for key in sorted(keys):
        state = session.snapshot.groups.get(key)
        if state is None:
            continue
        if key not in due and (session.is_settled(state) or _has_nothing_to_say(session, state)):
            continue
        with session.guard(state):
            _say_strays(session, state)
            way = _way(session, state)
            said = _say_status(session, state, way, apart.get(key), lines, again=lines.due or key in due)
            explained = _say_why(session, state, late=way is Way.LATE)
            if said and explained:
                session.settle(state, _look_again_at(session, state))


def _say_strays(session: Session, state: GroupState) -> None:
    """Tell members that name a sub-group which is not there; the others do not wait for them."""
    for pod in state.strays:
        if pod.condition is None or pod.condition.reason != Code.MISCONFIGURED:
            session.say(Explain(group=state.key, verdict=stray(state, pod), pods=(pod.uid,)))


def _has_nothing_to_say(session: Session, state: GroupState) -> bool:
    """A group without an object of which no member waits for a reason, or is on its way."""
    if state.group.has_object or state.key in session.verdicts:
        return False
    return not state.assumed and not session.told(state).overdue_at


def _look_again_at(session: Session, state: GroupState) -> float:
    """When it is due to see whether what was said has reached the objects."""
    told = session.told(state)
    recent = [when for when in (told.status_at, told.explained_at) if when > session.now - AGAIN_AFTER]
    return min(recent, default=session.now) + AGAIN_AFTER


def phase_of(state: GroupState, *, admitted: bool) -> str:
    """Return the group's phase in neutral words."""
    alive = len(state.waiting) + len(state.gated) + len(state.assumed) + len(state.bound) + len(state.terminating)
    if not alive and (state.succeeded or state.failed):
        return "Completed" if not state.failed or len(state.succeeded) >= required_total(state) else "Failed"
    if is_running(state):
        leaving = sum(bool(pod.node) for pod in state.terminating)  # until it is gone a member still counts here
        return "Degraded" if needs(state).total > leaving else "Running"
    if state.placed:
        return "Scheduling"
    return "Inqueue" if admitted or state.group.phase not in (*AT_THE_DOOR, "Completed", "Failed") else "Pending"


def counts_of(state: GroupState) -> tuple[tuple[str, int], ...]:
    """Return the members' counts in the order in which SetStatus lists them."""
    return (
        ("desired", state.group.min_member),
        ("existing", state.existing),
        ("gated", len(state.gated)),
        ("bound", len(state.bound)),
        ("running", sum(pod.phase == "Running" for pod in state.bound)),
        ("succeeded", len(state.succeeded)),
        ("failed", len(state.failed)),
    )


def _shown(state: GroupState, phase: str, counts: Iterable[tuple[str, int]]) -> bool:
    """Whether the object, as last read, says this phase and these counts (as far as its kind has them)."""
    if state.group.phase != phase:
        return False
    read = dict(state.group.counts)
    return all(read.get(name, value) == value for name, value in counts) if read else True


def _says_stray(state: GroupState) -> bool:
    """Whether the object of a running group says that its queue takes no part."""
    return any(said_of_stray(condition) for condition in state.group.conditions)


def _say_status(
    session: Session, state: GroupState, way: Way, apart: Verdict | None, lines: Lines, *, again: bool
) -> bool:
    """Return whether nothing was put off.

    way: how far members are that have their nodes. apart: that its queue takes no part, though it runs. again: whether
    its place is looked at again if that alone may differ.
    """
    group = state.group
    if not group.has_object or not group.uid or group.deleting or state.missing_object:
        return True
    phase = phase_of(state, admitted=state.key in session.admitted)
    if way is Way.IN_TIME and (session.placed_now(state) or phase == "Scheduling"):
        return True  # the next word is Running
    started = phase in ("Running", "Completed", "Degraded")
    why = session.verdicts.get(state.key)
    if way is Way.FOLLOWS_VICTIMS:
        phase = phase if started else "Scheduling"  # as the next session will see it
        why = awaiting(_victims(session, state))
    elif way is Way.LATE and phase == "Scheduling":
        why = awaits_binder(state)
    if phase == "Degraded":
        why = why or membership(state)  # what is missing may be nobody's turn yet, or nobody's at all
    elif started:
        why = apart if phase == "Running" else None
    counts = counts_of(state)
    where = nodes, domains, layout = _where(session, state) if started else (0, (), ())
    read = (group.phase, group.counts, group.conditions)
    told = session.told(state)
    rest = (phase, counts, why, *where)
    place = None
    if why is not None and (started or way is Way.NOT):  # who has its nodes is in no line any more
        place = _last_place(told) if told.status[:-1] == rest and not again else lines.place(state)
    wanted = (*rest, place)
    if not told.status:
        if why is None and _shown(state, phase, counts) and not _says_stray(state):
            session.note(state, replace(told, status=wanted, read=read))
            return True
    elif told.status == wanted:
        overdue = session.now - told.status_at >= AGAIN_AFTER
        if _shown(state, phase, counts) or (told.read == read and not overdue):
            return True
    elif not _is_due(session, state, told, wanted):
        return False
    session.note(state, replace(told, status=wanted, read=read, status_at=session.now))
    session.say(SetStatus(group.key, group.uid, phase, counts, why, nodes, domains, place, layout))
    return True


def _victims(session: Session, state: GroupState) -> tuple[str, ...]:
    """The pods (namespace/name) that go for what the group has been given, now or before, and are not gone."""
    now = (victim for place in session.placed_of.get(state.key, ()) for victim in place.victims)
    return (*session.snapshot.awaited.get(state.key, ()), *names_of(now))


def _way(session: Session, state: GroupState) -> Way:
    """How far members are that have their nodes; looked at again when they will be late, or the victims may be gone."""
    told = session.told(state)
    if not state.assumed and not session.placed_now(state):
        if told.overdue_at:
            session.note(state, replace(told, overdue_at=0.0))
            session.undelay(state)
        return Way.NOT
    follows = bool(_victims(session, state))
    if follows or not told.overdue_at or session.placed_now(state):
        told = replace(told, overdue_at=session.now + BOUND_WITHIN)
        session.note(state, told)
    if session.now >= told.overdue_at:
        return Way.LATE
    session.delay(state, told.overdue_at)
    return Way.FOLLOWS_VICTIMS if follows else Way.IN_TIME


def _where(
    session: Session, state: GroupState
) -> tuple[int, tuple[tuple[str, tuple[str, ...]], ...], tuple[LayoutFacts, ...]]:
    """Return on how many nodes the members are, in which domains of the levels that the group asks about, and how many
    are in each where they are to be shared evenly."""
    group = state.group
    if group.topology is None and not any(one.topology for one in group.subgroups):
        return 0, (), ()
    rows = {row for pod in state.bound if (row := session.row(pod.node)) is not None}
    wishes = session.hooks.wishes(state, session) if session.hooks.has("wishes") else ()
    if isinstance(wishes, Verdict) or not rows:
        return len(rows), (), ()
    found: dict[str, tuple[str, ...]] = {}
    for label in dict.fromkeys(wish.label for wish in wishes if not isinstance(wish, Unusable)):
        ids, names = session.domains(label)
        inside = sorted({names[ids[row]] for row in rows if ids[row] >= 0})[:MOST_DOMAINS]
        outside = [UNLABELLED] if any(ids[row] < 0 for row in rows) else []
        found[session.level_name(label)] = (*inside, *outside)
    layout = tuple(_layout(session, state, wish) for wish in wishes if isinstance(wish, EvenDomains))
    return len(rows), tuple(sorted(found.items())), layout


def _layout(session: Session, state: GroupState, wish: EvenDomains) -> LayoutFacts:
    ids, names = session.domains(wish.label)
    rows = (session.row(pod.node) for pod in state.bound if is_under(pod.part, wish.part))
    held = Counter(names[ids[row]] for row in rows if row is not None and ids[row] >= 0)
    return LayoutFacts(session.level_name(wish.label), wish.part, tuple(sorted(held.items()))[:MOST_DOMAINS])


def _last_place(told: Told) -> QueuePlace | None:
    """Where the group stood when that was said."""
    known = told.status[-1]
    return known if isinstance(known, QueuePlace) else None


def _is_due(session: Session, state: GroupState, told: Told, wanted: tuple[object, ...]) -> bool:
    """Whether the difference is worth a write now; otherwise remember when it will be."""
    old_phase, old_counts, old_why, *old_where, _ = told.status
    phase, counts, why, *where, _ = wanted
    if phase != old_phase or _reason(why) != _reason(old_why):
        return True
    in_flight = bool(state.assumed) or any(pod.phase != "Running" for pod in state.bound)
    wait = NUMBERS_AFTER if (counts == old_counts and where == old_where) or in_flight else COUNTS_AFTER
    due = told.status_at + wait
    if session.now >= due:
        return True
    session.delay(state, due)
    return False


def _reason(why: object) -> tuple[object, ...]:
    """What of a verdict is news at once: its code, whether it is for good, and the words that are not numbers."""
    if not isinstance(why, Verdict):
        return ()
    words = tuple((name, value) for name, value in why.facts if isinstance(value, str))
    return (why.code, why.permanent, words)


def _say_why(session: Session, state: GroupState, *, late: bool) -> bool:
    """Return whether nothing was put off. late: members have been on their way for long."""
    why = session.verdicts.get(state.key)
    pods = session.remaining(state)
    if late and not pods:
        why, pods = awaits_binder(state), state.assumed
    told = session.told(state)
    if why is None or not pods:
        if told.verdict is not None:
            session.note(state, replace(told, verdict=None, pods=frozenset()))
        return True
    if told.verdict == why and not _unseen(session, state, told):
        fresh = tuple(pod.uid for pod in pods if pod.uid not in told.pods)
        if fresh:
            session.note(state, replace(told, pods=told.pods.union(fresh)))
            session.say(Explain(group=state.key, verdict=why, pods=fresh))
        return True
    due = told.explained_at + NUMBERS_AFTER
    news = told.verdict is None or _reason(told.verdict) != _reason(why)
    if not news and due > session.now and all(pod.uid in told.pods for pod in pods):
        session.delay(state, due)
        return False
    uids = tuple(pod.uid for pod in pods)
    session.note(state, replace(told, verdict=why, pods=frozenset(uids), explained_at=session.now))
    session.say(Explain(group=state.key, verdict=why, pods=uids))
    return True


def _unseen(session: Session, state: GroupState, told: Told) -> bool:
    """Whether, long after it was said, some member still shows no condition: the write was lost or dropped."""
    if session.now - told.explained_at < AGAIN_AFTER:
        return False
    return any(pod.condition is None and pod.uid in told.pods for pod in state.waiting)
