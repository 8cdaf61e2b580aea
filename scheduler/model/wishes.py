"""In which domains a group, a part of it or a pod wants to run, as its author wrote it. Values only.

Levels are level names of a topology or node label keys; which domains they mean is decided by `framework`.
"""

from __future__ import annotations

from dataclasses import dataclass

NARROWEST = "*"
"""As a preferred level: the narrowest that can hold it, whichever that is."""


@dataclass(frozen=True, slots=True)
class TopologyWish:
    """Domains in which a group or a part of it wants to run. Levels are level names or node label keys; "" = no wish.

    `name` is that of a topology ("" = whichever knows the levels). `field` is the path of what is required in the
    object that its author wrote, `sizes_field` that of the segments' sizes ("" = beside it).
    at_most: (level, most domains). segments: (size, level), widest first: members in fixed numbers, each of these in
    one domain. apart: (level, most members in one domain; of a group of sub-groups: most sub-groups). exclusive: level
    of which the domains are shared with no other group that is exclusive there. balanced: level over whose domains the
    members are shared evenly ("" = domains are filled one after the other); packed: the level named with that, which
    only has to exist.
    """

    name: str = ""
    required: str = ""
    preferred: str = ""
    field: str = "spec.topology.required"
    at_most: tuple[tuple[str, int], ...] = ()
    segments: tuple[tuple[int, str], ...] = ()
    apart: tuple[tuple[str, int], ...] = ()
    exclusive: str = ""
    sizes_field: str = ""
    balanced: str = ""
    packed: str = ""

    @property
    def binds(self) -> bool:
        """Whether anything of it must hold."""
        return bool(self.required or self.at_most or self.segments or self.apart or self.exclusive)


@dataclass(frozen=True, slots=True)
class PodWish:
    """The wish that a pod carries, for itself and all members of its group with the same `podset`."""

    wish: TopologyWish
    podset: str = ""
