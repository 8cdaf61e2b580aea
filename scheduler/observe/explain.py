"""Verdicts become text here and nowhere else.

Decided here: the words. The same verdict feeds the pod's condition, the event, the group's condition and `muster why`,
so all of them tell the same. Must not know the cluster: everything that is said is a fact of the verdict. Invariant: a
sentence begins with its code (a stable prefix), and says nothing for which the verdict has no fact. It is one module
although it is long, so that all words for a fact are found in one place.

Facts, by name; all are optional and a clause without its fact is left out. "amount" is an integer in the units of the
model, shown with the resource that the fact `resource` names:

    resource   str     name of the scarce resource          needed     amount  what the waiting minimum asks for
    free       amount  free where the group may run         short      amount  needed - free
    members    int     members that ask for `needed`        minimum    int     members that must start together
    existing   int     members that exist                   gated      int     of these, with scheduling gates
    placeable  int     members that would fit now           nodes      int     nodes on which `free` was counted
    largest    amount  most that one node has               capacity   amount  what all eligible nodes have together,
                                                                               or those of the domain
    each       amount  what one member asks for             holders    ((who, amount), ...), the largest first
    queue      str     queue of the group
    used       amount  used by the queue                    limit      amount  the queue's limit
    deserved   amount  the queue's share                    state      str     state of the queue (Hold, Drain, ...)
    field      str     field that is wrong                  message    str     what is wrong, or the cause
    role       str     role whose minimum is meant          domain     str     best domain, or the node of a failure
    level      str     topology level (rack, block, ...)    group      str     name of a group (missing, or ahead)
    victims    int     pods that must go first              problems   int     how many fields are wrong
    parent     str     queue above that is missing          closed     str     queue above that is closed
    kind       str     kind of the object looked for        failed     int     members that ended in failure
    runs       bool    it runs, though its queue takes no part
    kept       ((queue, amount), ...) of what is free, for queues that do not use what they are guaranteed
    subgroup   str     path of the sub-group that is meant subgroups  int     sub-groups that can be complete
    rooms      ((domain, members that fit there), ...), the roomiest first
    domains    int     domains looked at                   unlabelled int     nodes with room that are in no domain
    joined     bool    the domain is that of members that run

`who` of a holder reads inside a sentence: "3 pods of default/gpu-hog". The facts used by each code stand beside its
sentence below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from scheduler.model.barrier import Barrier
from scheduler.model.decisions import Place, SetStatus, Victim
from scheduler.model.quantity import MAX_AMOUNT, MAX_SHOWN, format_amount
from scheduler.model.verdict import CAPACITY_CODES, Code, Verdict

UNSCHEDULABLE = "Unschedulable"
NOTE_LIMIT = 1024
"""Bytes of an event's note that the API server accepts."""

_HOLDERS_SHOWN = 3


def condition_reason(verdict: Verdict) -> str:
    """Return the reason of PodScheduled=False: Unschedulable where a new node would help, else the code itself."""
    return UNSCHEDULABLE if verdict.code in CAPACITY_CODES else verdict.code.value


def pod_message(verdict: Verdict) -> str:
    """Return what a waiting member's condition says: for capacity the upstream node part, then the gang's sentence."""
    if verdict.code in CAPACITY_CODES:
        return f"{node_part(verdict)} {sentence(verdict)}"
    return sentence(verdict)


def sentence(verdict: Verdict) -> str:
    """Return the code and one sentence with numbers, without a full stop: "Resources: needs 4 example.com/gpu ..."."""
    prefix, words = _PREFIX.get(verdict.code, verdict.code.value), _WORDS[verdict.code]
    return f"{prefix}: {words(verdict)}"


def status_text(status: SetStatus) -> str:
    """Return what the condition of a group says: the sentence, and its place in the queue with who is ahead of it."""
    if status.verdict is None:
        return ""
    place = status.place
    if place is None:
        return sentence(status.verdict)
    where = f"position {place.position}" if place.exact else f"among the first {place.position}"
    more = f" and {place.more} more" if place.more else ""
    behind = f", behind {', '.join(place.ahead)}{more}" if place.ahead else ""
    return f"{sentence(status.verdict)}; {where} in queue {place.queue}{behind}"


def node_part(verdict: Verdict) -> str:
    """Return the part in the upstream shape: "0/2 nodes are available: 2 Insufficient example.com/gpu."."""
    if verdict.total == 0:
        return "no nodes available to schedule pods."
    # Upstream orders by the text "<count> <reason>".
    reasons = sorted(f"{count} {reason}" for reason, count in verdict.nodes if count > 0)
    listed = ", ".join(reasons) if reasons else "the minimum does not fit at once"
    return f"0/{verdict.total} nodes are available: {listed}."


def eviction(place: Place, victim: Victim) -> str:
    """Return why a victim goes, and for whom: for the event about it and its condition."""
    who = f"{place.kind or 'group'} {place.namespace}/{place.name}" if place.namespace else f"{place.kind} {place.name}"
    match victim.why:
        case "reclaim":
            return f"Evicted for {who}: its queue takes back what it is entitled to"
        case "consolidate":
            kept = f"; room is kept on node {victim.move_to}" if victim.move_to else ""
            return f"Moved for {who}{kept}"
        case "drain":
            return f"Evicted because queue {place.name} is being drained"
        case _:
            return f"Evicted for {who}, which has a higher priority"


def barrier(found: Barrier) -> str:
    """Return why nobody is evicted in one respect, as a clause: "groups of queue a have no lower priority: ml/x"."""
    pods = Counter(found.who)  # pods of one owner have one name
    named = _listed([f"{name} ({count} pods)" if count > 1 else name for name, count in pods.items()])
    queue = f"queue {found.queue}"
    match found.kind:
        case "off":
            return f"the action {found.action} is not configured"
        case "never":
            return "its pods say that they never preempt (preemptionPolicy: Never)"
        case "delayed":
            return f"nobody goes for it before {_time(found.until)} (preemptionDelay)"
        case "queue_never":
            own = "in it" if found.action == "preempt" else "in other queues"
            return f"{queue} evicts nobody {own} (its preemption settings)"
        case "beyond_owed":
            over = ", ".join(f"{format_amount(name, value)} {name}" for name, value in found.amounts)
            return f"with it {queue} would hold {over} more than it is owed, so it takes nothing back from others"
        case "priority":
            return f"of no lower priority in {queue}: {named}"
        case "within_owed":
            return f"{queue} holds no more than it is owed: {named}"
        case "not_reclaimable":
            return f"{queue} gives nothing back (reclaimable: false): {named}"
        case "not_preemptible":
            return f"not preemptible in {queue}: {named}"
        case "min_runtime":
            return f"protected by minRuntime in {queue}, the first until {_time(found.until)}: {named}"
        case "going":
            return f"goes already in {queue}, for others before it: {named}"
        case "partly_fixed":
            return f"some of its pods cannot go, and the others are its minimum, in {queue}: {named}"
        case "plugin":
            return f"protected by a plugin (may_evict): {named}"
        case "budget":
            return f"disruption budget {named} allows none of its {_plural(found.count, 'pod')} to go"
        case _:
            return f"may go, but no set of them makes room for the whole minimum: {named}"


def _time(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def note(text: str, limit: int = NOTE_LIMIT) -> str:
    """Return text cut to `limit` bytes of UTF-8 on a character's edge, with dots where something was cut."""
    raw = text.encode()
    if len(raw) <= limit:
        return text
    return raw[: limit - 3].decode(errors="ignore") + "..."


def _number(verdict: Verdict, name: str) -> int | None:
    value = verdict.fact(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(verdict: Verdict, name: str) -> str:
    value = verdict.fact(name)
    return value if isinstance(value, str) else ""


def _amount(verdict: Verdict, name: str, *, bare: bool = False) -> str:
    """Return "4 example.com/gpu" ("4" when bare), or "" without the fact."""
    value = _number(verdict, name)
    if value is None:
        return ""
    resource = _text(verdict, "resource")
    shown = format_amount(resource, value)
    if value >= MAX_SHOWN:
        shown = f"at least {shown}"
    return shown if bare or not resource else f"{shown} {resource}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _share(count: int, of: int | None, word: str, verb: str, verbs: str, role: str = "") -> str:
    """Return "3 of 4 members exist", "1 of 4 members exists", "0 of 1 member exists", "1 member exists"."""
    one = count == 1 or of == 1
    whole = _plural(count, word) if of is None else f"{count} of {_plural(of, word)}"
    return f"{whole}{role} {verb if one else verbs}"


def _of_role(verdict: Verdict) -> str:
    role, part = _text(verdict, "role"), _text(verdict, "subgroup")
    return f" of sub-group {part}" if part else f" of role {role}" if role else ""


def _join(*clauses: str) -> str:
    return ", ".join(clause for clause in clauses if clause)


def _sections(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _needs(verdict: Verdict) -> str:
    """needed, resource, members, role -> "needs 4 example.com/gpu for 4 members"."""
    needed = _amount(verdict, "needed")
    members = _number(verdict, "members")
    minimum = _number(verdict, "minimum")
    count = members if members is not None else minimum
    if not needed:
        return f"needs room for {_plural(count, 'member')}{_of_role(verdict)}" if count is not None else "needs room"
    return (
        f"needs {needed} for {_plural(count, 'member')}{_of_role(verdict)}" if count is not None else f"needs {needed}"
    )


def _free(verdict: Verdict) -> str:
    """free, nodes (or the verdict's total) -> "1 free on 2 nodes"."""
    free = _amount(verdict, "free", bare=True)
    if not free:
        return ""
    nodes = _number(verdict, "nodes")
    count = nodes if nodes is not None else verdict.total
    return f"{free} free on {_plural(count, 'node')}" if count else f"{free} free"


def _short(verdict: Verdict) -> str:
    """short -> "3 short"; nothing is said when nothing is short."""
    return f"{_amount(verdict, 'short', bare=True)} short" if _number(verdict, "short") else ""


def _held(verdict: Verdict) -> str:
    """holders -> "held by 3 pods of default/gpu-hog (3 example.com/gpu)"."""
    holders = verdict.fact("holders")
    if not isinstance(holders, tuple) or not holders:
        return ""
    resource = _text(verdict, "resource")
    return "held by " + _listed([f"{who} ({_holding(resource, held)} {resource})" for who, held in holders])


def _listed(names: Sequence[str]) -> str:
    """Return the first few: "a, b, c and 2 others"."""
    rest = len(names) - _HOLDERS_SHOWN
    return ", ".join(names[:_HOLDERS_SHOWN]) + (f" and {_plural(rest, 'other')}" if rest > 0 else "")


def _holding(resource: str, held: int) -> str:
    """What is above the largest amount that is kept may be the cut sum of more."""
    return f"{'at least ' if held >= MAX_AMOUNT else ''}{format_amount(resource, held)}"


def _placeable(verdict: Verdict) -> str:
    """placeable, members/minimum -> "3 of 4 members would fit now"."""
    placeable = _number(verdict, "placeable")
    if placeable is None:
        return ""
    members = _number(verdict, "members")
    of = members if members is not None else _number(verdict, "minimum")
    return _share(placeable, of, "member", "would fit now", "would fit now")


def _queue_quota(verdict: Verdict) -> str:
    """queue, used, deserved, limit -> "queue research 40/48 deserved, limit 64"."""
    queue = _text(verdict, "queue")
    if not queue:
        return ""
    used, deserved, limit = (_amount(verdict, name, bare=True) for name in ("used", "deserved", "limit"))
    if used and deserved:
        share = f" {used}/{deserved} deserved"
    elif used:
        share = f" uses {used}"
    else:
        share = f" deserves {deserved}" if deserved else ""
    return _join(f"queue {queue}{share}", f"limit {limit}" if limit else "")


def _resources(verdict: Verdict) -> str:
    """needed, resource, members, role, free, nodes, short, holders, placeable; largest, capacity, each if permanent."""
    if verdict.permanent:
        return _never_fits(verdict)
    need = _join(_needs(verdict), _free(verdict), _short(verdict))
    return _sections(need, _held(verdict), _placeable(verdict))


def _never_fits(verdict: Verdict) -> str:
    """needed, resource, members, role; largest, each, capacity; message."""
    each, largest, capacity = (_amount(verdict, name) for name in ("each", "largest", "capacity"))
    if capacity:
        why = f"all eligible nodes together have {capacity}"
    elif largest:
        why = (
            f"one member needs {each} and the largest node has {largest}" if each else f"the largest node has {largest}"
        )
    else:
        why = _text(verdict, "message")
    never = f"{_needs(verdict)}, never fits" if verdict.fact("needed") is not None else "never fits"
    return f"{never}: {why}" if why else never


def _fragmented(verdict: Verdict) -> str:
    """needed, resource, members, role, free, nodes, largest, placeable, holders."""
    pieces = "in pieces too small" if _number(verdict, "free") is not None else ""
    largest = _amount(verdict, "largest", bare=True)
    need = _join(_needs(verdict), " ".join(part for part in (_free(verdict), pieces) if part))
    biggest = f"at most {largest} on one node" if largest else ""
    return _sections(_join(need, biggest), _held(verdict), _placeable(verdict))


def _topology(verdict: Verdict) -> str:
    """needed, resource, members, role, subgroup, level, domain, free (capacity if permanent), short, rooms, domains,
    joined, unlabelled, message, placeable, queue, used, deserved, limit."""
    level, domain = _text(verdict, "level"), _text(verdict, "domain")
    where = f" in one {level}" if level else ""
    if verdict.permanent:
        never = f"{_needs(verdict)}{where}, never fits: {_text(verdict, 'message')}"
        capacity = _amount(verdict, "capacity", bare=True)
        which = "that of its running members" if verdict.fact("joined") else "the largest"
        largest = f"{which}, {domain}, has {capacity}" if domain and capacity else ""
        return _sections(never, _join(largest, _short(verdict)), _rooms(verdict, " when empty"), _outside(verdict))
    free = _amount(verdict, "free", bare=True)
    which = "that of its running members," if verdict.fact("joined") else f"best {level or 'domain'}"
    best = f"{which} {domain} has {free}" if domain and free else ""
    wrong = _text(verdict, "message")
    rooms = _rooms(verdict) or _placeable(verdict)
    return _sections(
        f"{_needs(verdict)}{where}",
        wrong,
        _join(best, _short(verdict)),
        rooms,
        _outside(verdict),
        _queue_quota(verdict),
    )


def _rooms(verdict: Verdict, when: str = "") -> str:
    """rooms, members, domains -> "3 of 4 members would fit in r3, 2 in r1, no more in 14 others"."""
    rooms = verdict.fact("rooms")
    if not isinstance(rooms, tuple) or not rooms:
        return ""
    (name, most), *others = rooms
    first = f"{_share(most, _number(verdict, 'members'), 'member', 'would fit', 'would fit')} in {name}{when}"
    rest = (_number(verdict, "domains") or 0) - len(rooms)
    more = f"no more in {_plural(rest, 'other')}" if rest > 0 else ""
    return _join(first, *(f"{count} in {domain}" for domain, count in others), more)


def _outside(verdict: Verdict) -> str:
    """unlabelled, level -> "2 nodes with room are in no rack"."""
    count, level = _number(verdict, "unlabelled"), _text(verdict, "level")
    if not count:
        return ""
    return f"{_plural(count, 'node')} with room {'is' if count == 1 else 'are'} in no {level or 'domain'}"


def _not_enough_members(verdict: Verdict) -> str:
    """existing, minimum, gated, failed, foreign, role, subgroup; subgroups; field."""
    parts, field = _number(verdict, "subgroups"), _text(verdict, "field")
    nobody = f"{field} matches no pod" if field else ""
    if parts is not None:
        return _sections(f"{_of_parts(verdict, parts)} can be complete", nobody)
    existing, minimum, gated = (_number(verdict, name) for name in ("existing", "minimum", "gated"))
    if existing is None or minimum is None:
        return f"fewer members{_of_role(verdict)} exist than must start together"
    waiting, failed = f" ({gated} gated)" if gated else "", _number(verdict, "failed")
    there = _share(existing, minimum, "member", "exists", "exist", _of_role(verdict))
    foreign = _number(verdict, "foreign") or 0
    others = f"{_plural(foreign, 'pod')} of another scheduler {'names' if foreign == 1 else 'name'} the group"
    told = _join(there + waiting, f"{failed} failed" if failed else "", others if foreign else "")
    return _sections(told, nobody)


def _of_parts(verdict: Verdict, parts: int) -> str:
    """subgroups, minimum, subgroup -> "1 of 2 sub-groups of shard"."""
    part = _text(verdict, "subgroup")
    return f"{parts} of {_plural(_number(verdict, 'minimum') or 0, 'sub-group')}{f' of {part}' if part else ''}"


def _gated(verdict: Verdict) -> str:
    """gated, members or existing, role, subgroup; subgroups, minimum."""
    parts = _number(verdict, "subgroups")
    if parts is not None:
        return f"{_of_parts(verdict, parts)} can be complete while members have scheduling gates"
    gated, members = _number(verdict, "gated"), _number(verdict, "members")
    of = members if members is not None else _number(verdict, "existing")
    if gated is None:
        return f"members{_of_role(verdict)} have scheduling gates"
    return _share(gated, of, "member", "has scheduling gates", "have scheduling gates", _of_role(verdict))


def _pod_group_not_found(verdict: Verdict) -> str:
    """group, kind, members."""
    group, members, kind = _text(verdict, "group"), _number(verdict, "members"), _text(verdict, "kind") or "PodGroup"
    named = f"{kind} {group} does not exist" if group else f"the {kind} that its members name does not exist"
    waiting = _share(members, None, "member", "waits for it", "wait for it") if members else ""
    return _sections(named, waiting)


def _misconfigured(verdict: Verdict) -> str:
    """field, message, problems, runs."""
    field, message = _text(verdict, "field"), _text(verdict, "message")
    problems = _number(verdict, "problems") or 1
    first = ": ".join(part for part in (field, message) if part) or "an object that the group needs cannot be used"
    others = f" (and {_plural(problems - 1, 'other problem')})" if problems > 1 else ""
    return _sections(first + others, _runs_on(verdict))


def _queue_not_found(verdict: Verdict) -> str:
    """queue, parent, runs."""
    queue, parent = _text(verdict, "queue"), _text(verdict, "parent")
    if parent:
        return _sections(f"queue {queue} is below queue {parent}, which does not exist", _runs_on(verdict))
    back = "it runs on, and any queue that is owed what it holds may take it back" if verdict.fact("runs") else ""
    return _sections(f"queue {queue} does not exist", back)


def _runs_on(verdict: Verdict) -> str:
    """runs."""
    return "it runs on, and nothing new starts there" if verdict.fact("runs") else ""


def _queue_closed(verdict: Verdict) -> str:
    """queue, state, closed."""
    queue, closed, state = (_text(verdict, name) for name in ("queue", "closed", "state"))
    if closed and closed != queue:
        return f"queue {queue} starts nothing new because queue {closed} is closed" + (f" ({state})" if state else "")
    return f"queue {queue} starts nothing new" + (f" (state {state})" if state else "")


def _queue_not_leaf(verdict: Verdict) -> str:
    """queue."""
    return f"queue {_text(verdict, 'queue')} has child queues; only a leaf queue holds groups"


def _quota(verdict: Verdict) -> str:
    """needed, resource, members, field (that asks for it), queue, used, deserved, limit, message; free, kept."""
    field = _text(verdict, "field")
    needs = _needs(verdict) + (f" ({field})" if field else "")
    if verdict.permanent and verdict.code is Code.EXCEEDS_LIMIT:
        return f"{needs}, {_never_allowed(verdict)}"
    return _sections(_join(needs, _free(verdict)), _kept(verdict), _uses(verdict), _text(verdict, "message"))


def _never_allowed(verdict: Verdict) -> str:
    limit = _amount(verdict, "limit", bare=True)
    return f"more than queue {_text(verdict, 'queue')} may ever hold" + (f" (limit {limit})" if limit else "")


def _uses(verdict: Verdict) -> str:
    """queue, used, limit, deserved -> "queue research uses 6 of limit 8 (deserved 4)"."""
    queue = _text(verdict, "queue")
    used, deserved, limit = (_amount(verdict, name, bare=True) for name in ("used", "deserved", "limit"))
    of = " of ".join(part for part in (used, f"limit {limit}" if limit else "") if part)
    inside = f" (deserved {deserved})" if deserved else ""
    return f"queue {queue}{f' uses {of}' if of else ''}{inside}" if queue else ""


def _kept(verdict: Verdict) -> str:
    """kept -> "guaranteed: 2 to queue inference"."""
    kept = verdict.fact("kept")
    if not isinstance(kept, tuple) or not kept:
        return ""
    resource = _text(verdict, "resource")
    return "guaranteed: " + _listed([f"{format_amount(resource, value)} to queue {queue}" for queue, value in kept])


def _priority(verdict: Verdict) -> str:
    """queue, group (the one ahead)."""
    queue, ahead = _text(verdict, "queue"), _text(verdict, "group")
    return "others come first" + (f" in queue {queue}" if queue else "") + (f", behind {ahead}" if ahead else "")


def _victims(verdict: Verdict) -> str:
    """victims, message."""
    victims = _number(verdict, "victims")
    return _sections(
        f"waits for {_plural(victims, 'pod')} to end" if victims else "waits for pods to end", _text(verdict, "message")
    )


def _volumes(verdict: Verdict) -> str:
    """message."""
    return _text(verdict, "message") or "waits for volumes"


def _binder(verdict: Verdict) -> str:
    """members; bound, those that are already."""
    members, bound = _number(verdict, "members") or 0, _number(verdict, "bound")
    many = "has its node and is" if members == 1 else "have their nodes and are"
    done = f"; {_plural(bound, 'member')} bound" if bound else ""
    return f"placed: {_plural(members, 'member')} {many} to be bound (muster get requests){done}"


def _bind_failed(verdict: Verdict) -> str:
    """failed, members; of one of them: pod, domain (the node), cause."""
    failed, members = _number(verdict, "failed") or 1, _number(verdict, "members")
    what = "could not be bound" if members is None else f"{failed} of {_plural(members, 'member')} could not be bound"
    where = _join(_text(verdict, "pod"), f"node {node}" if (node := _text(verdict, "domain")) else "")
    cause = _text(verdict, "cause")
    if cause == "ForeignPod":
        cause += " (the binder does not serve its schedulerName: schedulerNames of its configuration)"
    return _sections(what, ": ".join(part for part in (where, cause) if part))


def _budget(verdict: Verdict) -> str:
    """needed, resource, members, role, free, nodes, placeable."""
    unknown = "no placement was found within the search budget, nor is it proven that none exists"
    return _sections(_join(_needs(verdict), _free(verdict)), unknown, _placeable(verdict))


def _suspended(verdict: Verdict) -> str:
    """message; or field, which says so."""
    message, field = _text(verdict, "message"), _text(verdict, "field")
    return message or "the group is suspended" + (f" by {field}" if field else "")


_PREFIX = {Code.NEVER_FITS: Code.RESOURCES.value}
"""Codes that speak under the name of another: that it never fits is the strongest word about resources."""

_WORDS: dict[Code, Callable[[Verdict], str]] = {
    Code.MISCONFIGURED: _misconfigured,
    Code.BAD_CONSTRAINTS: _misconfigured,
    Code.NEVER_FITS: _never_fits,
    Code.SUSPENDED: _suspended,
    Code.GATED: _gated,
    Code.POD_GROUP_NOT_FOUND: _pod_group_not_found,
    Code.NOT_ENOUGH_MEMBERS: _not_enough_members,
    Code.QUEUE_NOT_FOUND: _queue_not_found,
    Code.QUEUE_CLOSED: _queue_closed,
    Code.QUEUE_NOT_LEAF: _queue_not_leaf,
    Code.WAITING_FOR_QUOTA: _quota,
    Code.EXCEEDS_LIMIT: _quota,
    Code.PRIORITY: _priority,
    Code.WAITING_FOR_VICTIMS: _victims,
    Code.WAITING_FOR_VOLUMES: _volumes,
    Code.WAITING_FOR_BINDER: _binder,
    Code.BIND_FAILED: _bind_failed,
    Code.SEARCH_BUDGET_EXHAUSTED: _budget,
    Code.TOPOLOGY: _topology,
    Code.FRAGMENTED: _fragmented,
    Code.RESOURCES: _resources,
}
