"""The volumes that a pod names, and the step that a placement carries for a claim that is not bound yet.

Decided here: what of spec.volumes can constrain where a pod runs: claims, and disks that are attached without one.
Apart from `model.volumes` because pods and placements refer to these values and know nothing else of volumes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim that a pod names. `ephemeral`: it is made for the pod, which must own it."""

    name: str
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that a pod attaches without a claim. `parts`: monitors, of which one in common makes it the same disk.

    `reads`: the pod only reads it, which several pods of one node may do.
    """

    kind: str
    name: str
    parts: tuple[str, ...] = ()
    reads: bool = False

    def conflicts(self, other: Disk) -> bool:
        """Whether both cannot be on one node."""
        same = self.kind == other.kind and self.name == other.name
        if same and self.parts and other.parts:
            same = not set(self.parts).isdisjoint(other.parts)
        return same and not (self.reads and other.reads)


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """What a pod names that can constrain where it runs.

    `attached`: (driver, handle) of CSI volumes that it names without a claim, as a volume of an in-tree plugin.
    """

    claims: tuple[PodClaim, ...] = ()
    disks: tuple[Disk, ...] = ()
    attached: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class VolumeStep:
    """What must be done before a pod is bound: its claim must be bound to a volume that the node reaches.

    volume "": the claim is told its node and a volume is made for it; otherwise that volume is given to the claim.
    kept: that was so before, by somebody else; it is waited for and not undone. `uid`: the pod, in the same namespace.
    """

    uid: str
    namespace: str
    claim: str
    claim_uid: str
    volume: str = ""
    kept: bool = False
