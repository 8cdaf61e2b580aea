"""Prefer nodes that have a pod's images already: the larger the image, and the more nodes have it, the more it counts.

As kube-scheduler's ImageLocality. Pods of one shape with other images are told apart only where a node has one of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.framework.relations import NO_RELATIONS, Members, Relations, Scored
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape

_MB = 1024 * 1024
_LEAST = 23 * _MB
_MOST = 1000 * _MB
"""Bytes from which an image counts at all, and for each container from which more does not count more."""


class ImageLocality:
    """See the module."""

    name = "imagelocality"

    def __init__(self, arguments: Arguments) -> None:
        self._nodes: dict[str, Node] = {}
        self._where: dict[str, dict[str, int]] = {}

    def on_session(self, view: View) -> None:
        """Take over what changed on the nodes."""
        nodes = view.snapshot.table.nodes
        for name in [name for name in self._nodes if name not in nodes]:
            self._take(self._nodes.pop(name))
        for name, node in nodes.items():
            before = self._nodes.get(name)
            if before is node:
                continue
            if before is None or before.images != node.images:
                if before is not None:
                    self._take(before)
                for image, size in node.images:
                    self._where.setdefault(image, {})[name] = size
            self._nodes[name] = node

    def _take(self, node: Node) -> None:
        for image, _ in node.images:
            on = self._where.get(image, {})
            on.pop(node.name, None)
            if not on:
                self._where.pop(image, None)

    def sorts(self, pod: Pod, shape: Shape, view: View) -> Hashable:
        """Tell pods apart by their images, where any node has one of them."""
        return pod.images if any(image in self._where for image in pod.images) else None

    def relates(self, members: tuple[Members, ...], view: View, *, empty: bool) -> Relations:
        """Score the nodes for each kind of which some node has an image."""
        if empty or not self._where:
            return NO_RELATIONS
        scores = []
        row: Mapping[str, int] | None = None
        for kind, one in enumerate(members):
            images = one.pods[0].images
            if any(image in self._where for image in images):
                row = row or {name: number for number, name in enumerate(view.snapshot.table.names)}
                scores.append(Scored(kind, self._scores(images, row)))
        return Relations(scores=tuple(scores)) if scores else NO_RELATIONS

    def _scores(self, images: tuple[str, ...], row: Mapping[str, int]) -> NDArray[np.int64]:
        total = np.zeros(len(row), dtype=np.float64)
        for image in images:
            on = self._where.get(image, {})
            share = len(on) / len(row)
            for name, size in on.items():
                total[row[name]] += size * share
        most = _MOST * len(images)
        scores: NDArray[np.int64] = ((np.clip(total, _LEAST, most) - _LEAST) * 100 / (most - _LEAST)).astype(np.int64)
        return scores
