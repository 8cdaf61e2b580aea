"""What the claims of a pod mean for where it may run: pure answers from the pod and the storage of a snapshot.

Decided here: which claims are bound, delayed or in the way, in kube-scheduler's words; which pods are interchangeable
for placement (`sort_of`); from which rows of the node table a volume can be reached (`Reach`); and which volume serves
which claim (`pair`). Names of claims are not part of a sort unless it matters which claim it is: because several pods
share it, because a volume is reserved for it, or because its volume is attached somewhere already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.model.affinity import LabelSelector
from scheduler.model.pods import Pod, SelectorTerm
from scheduler.model.selecting import selects
from scheduler.model.snapshot import NodeTable
from scheduler.model.volumes import Claim, Storage, Volume, fits_given, term_holds

UNBOUND = "pod has unbound immediate PersistentVolumeClaims"

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Named:
    """A claim that a pod names and that is no obstacle by itself: it is bound, or waits for its first consumer."""

    claim: Claim
    ephemeral: bool

    @property
    def bound(self) -> bool:
        """Whether it has its volume."""
        return self.claim.bound


def claims_of(pod: Pod, storage: Storage) -> tuple[Named, ...] | str:
    """Return the claims of a pod, or why it can run nowhere as things are."""
    if pod.volumes is None:
        return ()
    found: list[Named] = []
    for named in pod.volumes.claims:
        claim = storage.claims.get(f"{pod.namespace}/{named.name}")
        why = _obstacle(pod, named.name, claim, ephemeral=named.ephemeral)
        if why or claim is None:
            return why
        found.append(Named(claim, named.ephemeral))
    if any(not one.bound and not is_delayed(one.claim, storage) for one in found):
        return UNBOUND
    for one in found:
        if one.bound and not one.ephemeral and one.claim.volume not in storage.volumes:
            return f'persistentvolume "{one.claim.volume}" not found'
    return tuple(found)


def _obstacle(pod: Pod, name: str, claim: Claim | None, *, ephemeral: bool) -> str:
    if claim is None:
        if ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return f'persistentvolumeclaim "{name}" not found'
    if claim.lost:
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume}"'
    if claim.deleting:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if ephemeral and claim.owner != pod.uid:
        return f"PVC {claim.key} was not created for pod {pod.namespace}/{pod.name} (pod is not owner)"
    return ""


def is_delayed(claim: Claim, storage: Storage) -> bool:
    """Whether an unbound claim waits until its first pod has a node."""
    known = storage.classes.get(claim.storage_class) if claim.storage_class else None
    return not claim.volume and known is not None and known.delayed


def given_to(claim: Claim, storage: Storage) -> tuple[Volume, ...]:
    """Return the volumes that are reserved for this very claim and can be bound to it, by name."""
    volumes = (storage.volumes[name] for name in storage.given.get(claim.key, ()) if name in storage.volumes)
    return tuple(volume for volume in volumes if volume.given_to(claim) and fits_given(volume, claim))


def wish_of(claim: Claim) -> tuple[Hashable, ...]:
    """What a delayed claim asks of a volume: equal for claims that the same volumes serve."""
    return (claim.storage_class, claim.size, claim.modes, claim.block, claim.attributes, claim.selector)


def sort_of(pod: Pod, storage: Storage, attached: Collection[str]) -> Hashable:
    """Return what sets a pod apart by its volumes; None without any. attached: volumes that are attached to a node."""
    if pod.volumes is None:
        return None
    claims = claims_of(pod, storage)
    if isinstance(claims, str):
        return ("no", claims)
    parts = sorted((_part(one, storage, attached) for one in claims), key=repr)
    return (tuple(parts), pod.volumes.disks, pod.volumes.attached)


def _part(one: Named, storage: Storage, attached: Collection[str]) -> tuple[Hashable, ...]:
    claim = one.claim
    matters = claim.key in storage.shared or is_used(claim, storage, attached)
    if not one.bound:
        matters = matters or bool(storage.given.get(claim.key)) or bool(node_of(claim, storage))
        return ("delayed", *wish_of(claim), claim.key if matters else "")
    volume = storage.volumes.get(claim.volume)
    where: tuple[Hashable, ...] = (None,)
    if volume is not None:
        zones = () if one.ephemeral else volume.zones
        where = (volume.terms, zones, volume.driver, volume.plugin, volume.moved)
    return ("bound", *where, claim.key if matters else "")


def is_used(claim: Claim, storage: Storage, attached: Collection[str]) -> bool:
    """Whether the volume of a claim is on some node already: a pod there uses it, or it is attached."""
    return bool(claim.volume) and (claim.key in storage.users or claim.volume in attached)


def node_of(claim: Claim, storage: Storage) -> str:
    """Return the node for which a claim is being provisioned, by its annotation or by a placement under way, or ""."""
    return claim.selected or storage.chosen.get(claim.uid, "")


# -- nodes -----------------------------------------------------------------------------------------------------------


class Reach:
    """The nodes of a table by their labels; what was asked once is kept as long as the nodes stay the same."""

    def __init__(self) -> None:
        self.generation = 0
        """Counts changes of the nodes."""
        self._names: tuple[str, ...] = ()
        self._nodes: Mapping[str, object] = {}
        self._labels: list[dict[str, str]] = []
        self._rows_by: dict[str, dict[str, Rows]] = {}
        self._sets: dict[Hashable, frozenset[int]] = {}
        self._known: dict[Hashable, Rows] = {}

    def refresh(self, table: NodeTable) -> None:
        """Take over the nodes of a snapshot."""
        if table.names == self._names and table.nodes == self._nodes:
            return
        self.generation += 1
        self._names, self._nodes = table.names, dict(table.nodes)
        self._labels = [dict(table.nodes[name].labels) for name in table.names]
        self._rows_by.clear()
        self._known.clear()
        self._sets.clear()

    def of_terms(self, terms: tuple[SelectorTerm, ...] | None) -> Rows:
        """Return the rows on which one of the terms holds, sorted; None is every row."""
        key = ("terms", terms)
        known = self._known.get(key)
        if known is None:
            if terms is None:
                known = np.arange(len(self._labels), dtype=np.intp)
            else:
                found = {row for term in terms for row in self._of_term(term)}
                known = np.array(sorted(found), dtype=np.intp)
            self._known[key] = known
        return known

    def includes(self, terms: tuple[SelectorTerm, ...] | None, row: int) -> bool:
        """Whether one of the terms holds on a row."""
        rows = self._sets.get(terms)
        if rows is None:
            rows = self._sets[terms] = frozenset(self.of_terms(terms).tolist())
        return row in rows

    def _of_term(self, term: SelectorTerm) -> list[int]:
        if not term.expressions or term.fields:
            return []
        rows: Sequence[int] = range(len(self._labels))
        for need in term.expressions:
            if need.operator == "In":
                by_value = self._by_value(need.key)
                parts = [by_value[value] for value in need.values if value in by_value]
                rows = [int(row) for part in parts for row in part]
                break
        return [row for row in rows if term_holds(term, self._labels[row])]

    def _by_value(self, key: str) -> dict[str, Rows]:
        known = self._rows_by.get(key)
        if known is None:
            found: dict[str, list[int]] = {}
            for row, labels in enumerate(self._labels):
                if key in labels:
                    found.setdefault(labels[key], []).append(row)
            known = self._rows_by[key] = {value: np.array(rows, dtype=np.intp) for value, rows in found.items()}
        return known

    def of_selector(self, selector: LabelSelector | None) -> Rows:
        """Return the rows that a label selector matches; None is no row."""
        key = ("selector", selector)
        known = self._known.get(key)
        if known is None:
            rows = [] if selector is None else [r for r, labels in enumerate(self._labels) if selects(selector, labels)]
            known = self._known[key] = np.array(rows, dtype=np.intp)
        return known

    def mask(self, rows: Rows) -> NDArray[np.bool_]:
        """Return rows as a mask over all nodes."""
        found = np.zeros(len(self._labels), dtype=np.bool_)
        found[rows] = True
        return found

    def where(self, key: Hashable, holds: Callable[[dict[str, str]], bool]) -> Rows:
        """Return the rows whose labels satisfy a function; `key` stands for it."""
        known = self._known.get(("where", key))
        if known is None:
            rows = [row for row, labels in enumerate(self._labels) if holds(labels)]
            known = self._known[("where", key)] = np.array(rows, dtype=np.intp)
        return known


# -- pairs -----------------------------------------------------------------------------------------------------------


def pair(choices: Sequence[Sequence[int]], must: Sequence[bool]) -> list[int] | None:
    """Return for each claim the number of the volume that it gets (-1: none), each volume at most once.

    choices: for each claim the volumes that serve it, the most suitable first; claims that are alike may share a list.
    must: which claims cannot do without; the others get one as long as it takes none from them. None when those that
    must have one cannot all have one.
    """
    order = sorted(range(len(choices)), key=lambda claim: not must[claim])
    holder: dict[int, int] = {}
    found = [-1] * len(choices)
    begins: dict[int, int] = {}
    for claim in order:
        at = begins.get(id(choices[claim]), 0)
        while at < len(choices[claim]) and choices[claim][at] in holder:
            at += 1
        begins[id(choices[claim])] = at
        if at < len(choices[claim]):
            holder[choices[claim][at]] = claim
            found[claim] = choices[claim][at]
        elif not _make_room(claim, choices, holder, found) and must[claim]:
            return None
    return found


def _make_room(claim: int, choices: Sequence[Sequence[int]], holder: dict[int, int], found: list[int]) -> bool:
    """Find a chain of claims that each take the next one's volume and end with a free one; breadth first."""
    came: dict[int, int] = {}
    queue = [claim]
    for taker in queue:
        for volume in choices[taker]:
            if volume in came:
                continue
            came[volume] = taker
            if volume not in holder:
                while True:
                    taker = came[volume]
                    before = found[taker]
                    holder[volume], found[taker] = taker, volume
                    if taker == claim:
                        return True
                    volume = before
            queue.append(holder[volume])
    return False
