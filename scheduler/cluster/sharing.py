"""Values that many pods and nodes have in common, kept once in memory: label sets and images.

Invariant: only which object stands for a value changes, never the value.
"""

from __future__ import annotations

from sys import intern

from scheduler.model.nodes import Node
from scheduler.model.pods import Pod
from scheduler.model.selecting import Labels

_SPARE = 1000


class Sharing:
    """See the module."""

    def __init__(self) -> None:
        self._labels: dict[Labels, Labels] = {}
        self._image_sets: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._images: dict[tuple[str, int], tuple[str, int]] = {}

    def pod(self, pod: Pod, pods: int) -> None:
        """Let a pod share its labels and images; `pods`: how many there are."""
        if pod.images:
            if len(self._image_sets) > pods + _SPARE:
                self._image_sets.clear()
            object.__setattr__(pod, "images", self._image_sets.setdefault(pod.images, pod.images))
        if not pod.labels:
            return
        known = self._labels.get(pod.labels)
        if known is None:
            known = tuple((intern(key), intern(value)) for key, value in pod.labels)
            if len(self._labels) > pods + _SPARE:
                self._labels.clear()
            self._labels[known] = known
        object.__setattr__(pod, "labels", known)

    def node(self, node: Node, nodes: int) -> None:
        """Let a node share its images with the others; `nodes`: how many there are."""
        if not node.images:
            return
        if len(self._images) > 100 * (nodes + _SPARE):
            self._images.clear()
        object.__setattr__(node, "images", tuple(self._images.setdefault(image, image) for image in node.images))
