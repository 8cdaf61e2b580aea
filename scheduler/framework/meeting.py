"""Where the volume of a claim that members share can be reached from, before there is one.

Decided here: the domains of which one must hold all members that share a claim, and whether that is certain. A volume
that is made for a node can be used where the node's labels for the topology keys of the driver are the same: certain
for a volume that is written from one place, likely for one that many may use, because drivers of file shares tell
their zone and serve others. Of a provisioner that is no CSI driver on any node nothing is known: what is written from
one place is likely on the node. Of volumes that exist already, those that the same nodes reach are one domain.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.shelves import Mask, Shelf
from scheduler.model.snapshot import NodeTable
from scheduler.model.volumes import MOVED, Claim, Storage

Ids = NDArray[np.int32]

_FOR_MANY = frozenset(("ReadWriteMany", "ReadOnlyMany"))


def made(claim: Claim, storage: Storage, table: NodeTable) -> tuple[Ids | None, bool]:
    """Return the domains that a volume made for a claim covers (None: all nodes are one), and whether it is certain."""
    known = storage.classes[claim.storage_class]
    many = not _FOR_MANY.isdisjoint(claim.modes)
    driver = MOVED.get(known.provisioner, known.provisioner)
    keys_of = {node: drivers.topology_of(driver) for node, drivers in storage.node_drivers.items()}
    if not any(keys is not None for keys in keys_of.values()):
        if not many:
            return np.arange(len(table.names), dtype=np.int32), False
        keys = tuple(sorted({need.key for term in known.topologies for need in term.expressions}))
        keys_of = dict.fromkeys(table.names, keys)
    if not any(keys_of.values()):
        return None, True
    return _numbered(_place(name, keys_of.get(name), table) for name in table.names), not many


def _place(name: str, keys: tuple[str, ...] | None, table: NodeTable) -> Hashable:
    """The values of a node for the keys; a node without one of them, or without the driver, is a domain of its own."""
    labels = dict(table.nodes[name].labels)
    if not keys or any(key not in labels for key in keys):
        return name
    return tuple((key, labels[key]) for key in keys)


def _numbered(places: Iterable[Hashable]) -> Ids:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(place, len(numbers)) for place in places], dtype=np.int32)


def there(shelf: Shelf, volumes: Mask, size: int) -> Ids | None:
    """Return the domains of volumes that exist: rows that the same ones reach, -1 where none does.

    None when the sets of rows that they reach overlap.
    """
    rows, cells = shelf.reaching(volumes)
    if len(np.unique(rows)) < len(rows):
        return None
    ids = np.full(size, -1, dtype=np.int32)
    ids[rows] = np.unique(cells, return_inverse=True)[1]
    return ids
