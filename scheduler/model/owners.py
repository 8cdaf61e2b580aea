"""What stands above pods: references to controllers, and owners whose pods start together. Values only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduler.model.pods import Pod, Problem


@dataclass(frozen=True, slots=True)
class Reference:
    """A controller as an object names it. `api` is its apiVersion."""

    api: str
    kind: str
    name: str
    uid: str

    @property
    def group(self) -> str:
        """Its API group; "" is the core group."""
        return self.api.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Owner:
    """An object whose pods form a gang that no object states.

    minimum: how many of its pods start together; below 2 there is no gang. shard: a label; with one, the pods of each
    of its values are a gang of their own, of `minimum` pods. above: its own controller. problems: why no minimum can be
    told; its pods then wait.
    """

    reference: Reference
    namespace: str
    minimum: int = 0
    shard: str = ""
    above: Reference | None = None
    deleting: bool = False
    problems: tuple[Problem, ...] = ()
    resource_version: str = ""

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.reference.uid

    @property
    def title(self) -> str:
        """How people are told of it."""
        return f"{self.reference.kind} {self.namespace}/{self.reference.name}"


def without_object(pod: Pod, owner: Owner) -> Pod:
    """Return a pod as a member of the gang of its owner where no object states that gang."""
    if owner.problems:
        return replace(pod, problems=(*pod.problems, *owner.problems))
    if owner.minimum < 2:
        return pod
    uid = f"{owner.uid}.{dict(pod.labels).get(owner.shard, '')}" if owner.shard else owner.uid
    kind, name = owner.reference.kind, owner.reference.name
    return replace(pod, owner_kind=kind, owner_name=name, owner_uid=uid, min_member=owner.minimum)
