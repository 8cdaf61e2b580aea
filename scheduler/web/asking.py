"""Answers what the page asks about the last session; runs in the session process, between sessions.

Decided here: which questions there are (`VIEWS`), what each may be filtered by, and how much one answer may hold, so
that an answer costs about the same however large the cluster is. Nothing is made unless it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from scheduler.framework.floorplan import barred, look, main_resource
from scheduler.framework.session import Session
from scheduler.model.quantity import format_amount
from scheduler.model.queues import UNLIMITED
from scheduler.web import answers
from scheduler.web.about import About, Arguments, Refused, chosen, start, totals
from scheduler.web.answers import GANGS, Answer, Nothing
from scheduler.web.asking_gang import gang
from scheduler.web.asking_nodes import node, nodes

FIRST = 12
"""Groups on the pages that are about something else."""
QUEUES, QUEUES_FIRST = 250, 40
"""Queues that the overview shows, and the page of a queue below it. Where there are more than a few, the overview shows
those of the first level unless it is asked for `queues=all`."""
STATES = ("waiting", "running", "ended", "all")
_encode = msgspec.msgpack.Encoder(enc_hook=lambda value: value.item()).encode


class Desk:
    """See the module. actions: those that are configured."""

    def __init__(self) -> None:
        self._about: About | None = None

    def answer(self, session: Session, actions: Sequence[str], view: str, arguments: Arguments) -> bytes:
        """Return the answer, encoded. Raises KeyError for a view that there is not."""
        if self._about is None or not self._about.is_about(session):
            self._about = About(session, tuple(actions))
        try:
            return _encode(VIEWS[view](self._about, arguments))
        except Refused as refused:
            return _encode(Nothing(**self._about.head, message=str(refused)))


# -- the questions ----------------------------------------------------------------------------------------------------


def _overview(about: About, arguments: Arguments) -> Answer:
    session = about.session
    every = totals(session)
    known = [one.resource for one in every]
    resource = chosen(arguments, "resource", known, known[0] if known else "cpu")
    waiting = about.in_state("waiting")
    tree = about.standings
    if len(tree) > QUEUES_FIRST and arguments.get("queues") != "all":
        tree = tuple(one for one in tree if one.depth <= 1)
    return answers.Overview(
        **about.head,
        resource=resource,
        totals=every,
        nodes=len(session.table.names),
        barred=int(barred(session).sum()),
        phases=tuple(sorted(Counter(map(about.word, session.snapshot.groups.values())).items())),
        queues=about.queue_rows(tree[:QUEUES], resource),
        many=len(about.standings),
        waiting=tuple(about.row(state) for state in waiting[:FIRST]),
        pending=len(waiting),
    )


def _gangs(about: About, arguments: Arguments) -> Answer:
    session = about.session
    state = chosen(arguments, "state", STATES, "waiting")
    queue, namespace, text = (arguments.get(name, "") for name in ("queue", "namespace", "q"))
    below = _below(about, queue) if queue else frozenset()
    found = [
        one
        for one in about.in_state(state)
        if (not queue or session.queue_of(one) in below)
        and (not namespace or one.group.namespace == namespace)
        and text in f"{one.group.namespace}/{one.group.name}"
    ]
    first = start(arguments, GANGS, len(found))
    return answers.GangList(
        **about.head,
        rows=tuple(about.row(one) for one in found[first : first + GANGS]),
        many=len(found),
        first=first,
        queues=tuple(one.name for one in about.standings[:QUEUES]),
        namespaces=tuple(sorted({one.group.namespace for one in session.snapshot.groups.values()})[:QUEUES]),
    )


def _below(about: About, name: str) -> frozenset[str]:
    """Return the names of a queue and of all below it."""
    found = about.standings
    first = next((number for number, one in enumerate(found) if one.name == name), None)
    if first is None:
        return frozenset({name})
    last = first + 1
    while last < len(found) and found[last].depth > found[first].depth:
        last += 1
    return frozenset(one.name for one in found[first:last])


def _queue(about: About, arguments: Arguments) -> Answer:
    name = arguments.get("name", "")
    standing = next((one for one in about.standings if one.name == name), None)
    if standing is None:
        return Nothing(**about.head, message=f"there is no queue {name}")
    session, below = about.session, _below(about, name)
    children = [one for one in about.standings if one.parent == name][:QUEUES]
    waiting, running = (
        [one for one in about.in_state(state) if session.queue_of(one) in below] for state in ("waiting", "running")
    )
    return answers.QueuePage(
        **about.head,
        row=about.queue_rows([standing], None)[0],
        resource=main_resource(session),
        path=about.line_of(name)[:0:-1],
        settings=_settings(session, name),
        children=about.queue_rows(children, main_resource(session)),
        waiting=tuple(about.row(one) for one in waiting[:FIRST]),
        pending=len(waiting),
        running=tuple(about.row(one) for one in running[:FIRST]),
        runs=len(running),
    )


def _settings(session: Session, name: str) -> tuple[tuple[str, str], ...]:
    """Return what the queue's object says about order and eviction, in the words of its API."""
    queue = session.queue(name)
    written = [
        (field, ", ".join(_amount(key, value) for key, value in amounts))
        for field, amounts in (("guarantee", queue.guarantee), ("deserved", queue.deserved), ("limit", queue.limit))
    ]
    said = [
        ("dialect", queue.dialect),
        *((field, text or "not set") for field, text in written),
        ("order", queue.order),
        ("preempts inside the queue", queue.within_queue),
        ("reclaims from others", queue.reclaim),
        ("gives back", "yes" if queue.reclaimable else "no (reclaimable: false)"),
    ]
    if queue.min_runtime is not None:
        said.append(("minRuntime", f"{queue.min_runtime:g} s"))
    return tuple(said)


def _amount(resource: str, value: int) -> str:
    return f"{'unlimited' if value == UNLIMITED else format_amount(resource, value)} {resource}"


def _wiring(about: About, arguments: Arguments) -> Answer:
    session = about.session
    names = tuple(sorted(session.topology.trees))
    resources = tuple(one.resource for one in totals(session))
    name = chosen(arguments, "topology", names, names[0] if names else "")
    resource = chosen(arguments, "resource", resources, resources[0] if resources else "")
    picture = look(session, name, resource) if name and resource else None
    return answers.Wiring(**about.head, topologies=names, resources=resources, picture=picture)


VIEWS: Mapping[str, Callable[[About, Arguments], Answer]] = {
    "overview": _overview,
    "gangs": _gangs,
    "gang": gang,
    "queue": _queue,
    "nodes": nodes,
    "node": node,
    "topology": _wiring,
}
