"""Drain: what runs in a queue that is being drained is evicted; whoever set its state wants it empty.

Decided here: all of it goes, whole, also what is not preemptible, but for pods that plugins protect from everybody; a
queue is drained when it, or one above it, says so. What a disruption budget does not allow yet is tried again by the
binder. Nothing is placed for it, and it needs no action to be configured.
"""

from __future__ import annotations

from scheduler.framework.protocols import Only
from scheduler.framework.residents import Running, victim_of
from scheduler.framework.session import Session
from scheduler.model.decisions import Drain, Victim
from scheduler.model.groups import GroupState, PodGroup
from scheduler.model.pods import held_together

STATE = "Drain"


def run(session: Session) -> None:
    """Evict what runs in queues that are being drained."""
    if all(queue.state != STATE for queue in session.snapshot.queues.values()):
        return
    tree = session.book.tree
    for name in session.cache.residents.queues():
        if any(tree.state.get(one) == STATE for one in tree.lineage(name)):
            victims = tuple(
                victim for running in session.cache.residents.of_queue(name) for victim in _leave(session, running)
            )
            if victims:
                session.drain(Drain(queue=name, victims=victims))


def _leave(session: Session, running: Running) -> tuple[Victim, ...]:
    """Let the group go, as far as plugins let anybody evict it."""
    pods = running.pods
    if session.hooks.has("may_evict"):
        nobody = GroupState(PodGroup(key="", uid="", dialect="", namespace="", name=""), priority=2**31)
        opinion = session.hooks.may_evict(nobody, pods)
        pods = tuple(pod for pod in pods if not isinstance(opinion, Only) or pod.uid in opinion.uids)
    row = session.book.tree.index.get(running.queue)
    if row is not None:
        session.book.leave(row, session.book.vector(held_together(pods, session.snapshot.shapes)))
    session.outlook.add(pods)
    session.evicted.update((pod.uid, pod) for pod in pods)
    return tuple(victim_of(running, pod, "drain") for pod in pods)
