"""Who stands above a pod: the chain of controllers, climbed to the topmost owner of a known kind.

Decided here: which kinds between a pod and such an owner are climbed (Jobs, StatefulSets, and pods, which own pods with
Spark and LeaderWorkerSet), and that what is not watched is read once, metadata only, and kept. A chain never changes
for a uid. Must not know: what is done about the owner. Invariant: an answer "nobody" is given only when the chain ends,
leaves the kinds that are climbed, or an object in it is gone or may not be read; the last two are told once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

import msgspec
import structlog

from scheduler.cluster.client import ApiError, RequestFailed, path_of
from scheduler.cluster.wire import METADATA_WATCH
from scheduler.dialects.meta import Undecodable
from scheduler.dialects.owners import OwnerKind, decode_above
from scheduler.model.owners import Owner, Reference

log = structlog.get_logger(__name__)

BETWEEN: Mapping[tuple[str, str], str] = MappingProxyType(
    {("batch", "Job"): "jobs", ("apps", "StatefulSet"): "statefulsets", ("", "Pod"): "pods"}
)
"""Kinds that are climbed on the way, with their plural."""
_KEPT = 20_000
_READS, _AT_ONCE = 64, 8
"""Objects that are read before others have their turn, and those that are read at once."""


class Following(StrEnum):
    """How a kind of owners is read."""

    PENDING = "pending"
    FOLLOWED = "followed"
    ABSENT = "absent"
    REFUSED = "refused"


class Client(Protocol):
    """The API server."""

    async def request(self, method: str, path: str, *, accept: str | None = None) -> bytes:
        """Send one request. Raises `RequestFailed`."""


class Kin:
    """See the module. `owners` and `jobs` are filled by whoever watches them."""

    def __init__(self, client: Client, kinds: Iterable[OwnerKind], following: Callable[[OwnerKind], Following]) -> None:
        self.owners: dict[str, Owner] = {}
        self.jobs: dict[str, Reference | None] = {}
        self.unclear: dict[str, str] = {}
        """Of what could not be climbed, by kind: why."""
        self._client = client
        self._kinds = {(kind.group, kind.kind): kind for kind in kinds}
        self._following = following
        self._read: dict[str, Reference | None] = {}

    def starts(self, api: str, kind: str, uid: str) -> bool:
        """Whether anybody of interest can be above a pod with this controller. The usual Job has nobody above it."""
        key = (api.rpartition("/")[0], kind)
        if key in self._kinds:
            return True
        return key in BETWEEN and not (kind == "Job" and uid in self.jobs and self.jobs[uid] is None)

    def climb(self, reference: Reference) -> tuple[Owner | None, Reference | None]:
        """Return the topmost known owner, and the one that must be seen or read before that can be told.

        Owners that are not followed are nobody; why is noted once.
        """
        found: Owner | None = None
        here: Reference | None = reference
        seen: set[str] = set()
        while here is not None and here.uid not in seen:
            seen.add(here.uid)
            kind = self._kinds.get((here.group, here.kind))
            if kind is not None:
                state = self._following(kind)
                if state in (Following.ABSENT, Following.REFUSED):
                    self._note(kind.title, f"{kind.title} cannot be read ({state}); their pods stand alone")
                    return found, None
                if state is Following.FOLLOWED:
                    self.unclear.pop(kind.title, None)
                if here.uid in self._read:
                    return found, None  # given up
                owner = self.owners.get(here.uid)
                if owner is None:
                    return found, here
                found, here = owner, owner.above
            elif (here.group, here.kind) not in BETWEEN:
                return found, None
            elif here.uid in self.jobs:
                here = self.jobs[here.uid]
            elif here.uid in self._read:
                here = self._read[here.uid]
            else:
                return found, here
        return found, None

    def chain(self, reference: Reference) -> tuple[list[str], Reference | None]:
        """Return the uids above a pod with this controller, the lowest first, and what must be read to go on."""
        uids, here = list[str](), reference
        while here.uid not in uids:
            uids.append(here.uid)
            if (here.group, here.kind) not in BETWEEN:
                break
            known = self.jobs if here.uid in self.jobs else self._read
            if here.uid not in known:
                return uids, here
            up = known[here.uid]
            if up is None:
                break
            here = up
        return uids, None

    def watched(self, reference: Reference) -> bool:
        """Whether a reference is to an owner that a watch will show, not to one that is read."""
        return (reference.group, reference.kind) in self._kinds

    def follows(self, reference: Reference) -> bool:
        """Whether an owner would have been shown by now if it were there."""
        kind = self._kinds.get((reference.group, reference.kind))
        return kind is not None and self._following(kind) is Following.FOLLOWED

    def give_up(self, reference: Reference) -> None:
        """Nobody shall wait for this owner any longer: it is named by pods and is not there."""
        log.warning("an owner is not there; its pods stand alone", kind=reference.kind, name=reference.name)
        self._keep(reference.uid, None)

    def saw(self, owner: Owner) -> None:
        """An owner of a known kind appeared or changed."""
        self._read.pop(owner.uid, None)
        self.owners[owner.uid] = owner

    async def look_up(
        self, asked: Sequence[tuple[str, Reference]], wanted: Container[str], found: Callable[[str], None]
    ) -> bool:
        """Read objects on the way (namespace, reference), several at once, `_READS` at most, as long as the server
        answers; call `found` with the uid of each that is known then. wanted: the uids that are still asked for.

        Return whether more are left that could be read at once.
        """
        for start in range(0, min(len(asked), _READS), _AT_ONCE):
            some = [one for one in asked[start : start + _AT_ONCE] if one[1].uid in wanted]
            known = await asyncio.gather(*(self.read(namespace, reference) for namespace, reference in some))
            for (_, reference), told in zip(some, known, strict=True):
                if told:
                    found(reference.uid)
            if not all(known):
                return False
        return len(asked) > _READS

    async def read(self, namespace: str, reference: Reference) -> bool:
        """Read the metadata of one object on the way; False: it must be tried again."""
        plural = BETWEEN[(reference.group, reference.kind)]
        version = reference.api.rpartition("/")[2]
        path = path_of(reference.group, version, plural, namespace, reference.name)
        try:
            raw = await self._client.request("GET", path, accept=METADATA_WATCH)
            uid, above = decode_above(raw, reference.kind)
        except ApiError as error:
            if error.status == 403:
                self._note(plural, f"{plural} may not be read, so that nobody is looked for above them: {error}")
            elif error.status != 404:
                return False
            self._keep(reference.uid, None)
        except RequestFailed:
            return False
        except (Undecodable, msgspec.DecodeError) as error:
            self._note(plural, str(error))
            self._keep(reference.uid, None)
        else:
            self.unclear.pop(plural, None)
            self._keep(reference.uid, above if uid == reference.uid else None)
        return True

    def _keep(self, uid: str, above: Reference | None) -> None:
        if len(self._read) >= _KEPT:
            self._read.clear()
        self._read[uid] = above

    def _note(self, what: str, text: str) -> None:
        if what not in self.unclear:
            log.warning("owners of pods cannot be told", problem=text)
        self.unclear[what] = text
