"""The loop that every fake controller shares: follow owners and what they own, reconcile owners that changed.

Decided here: when an owner is looked at again (an event of it or of something it owns; after a failure, later). It must
not know kinds. Invariant: one owner is never reconciled twice at the same time.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from scheduler.playground.client import Client, HttpError
from scheduler.playground.errors import Obj
from scheduler.playground.storage import decode, encode

log = structlog.get_logger("muster.playground.controllers")


class Reconciler:
    """Base of the fake controllers. Subclasses write `reconcile`."""

    def __init__(self, client: Client, path: str, owned: dict[str, str], workers: int = 8) -> None:
        """`owned`: kind of the owner in ownerReferences -> list path of what it owns."""
        self.client = client
        self.path = path
        self.kind, self.owned_path = next(iter(owned.items()))
        self.workers = workers
        self.owners: dict[str, Obj] = {}
        self.owned: dict[str, dict[str, Obj]] = {}
        self._synced = {"owners": False, "owned": False}
        self._owner_of: dict[str, str] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._busy: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    async def reconcile(self, owner: Obj, owned: list[Obj]) -> None:
        """Bring one owner closer to its spec; `owned` is sorted by name."""
        raise NotImplementedError

    async def start(self) -> Reconciler:
        """Begin."""
        jobs = [self._follow_owners(), self._follow_owned()] + [self._worker() for _ in range(self.workers)]
        self._tasks = [asyncio.create_task(job) for job in jobs]
        return self

    async def stop(self) -> None:
        """Stop."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self.client.close()

    async def __aenter__(self) -> Reconciler:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @staticmethod
    def copy(obj: Any) -> Any:
        """Return a deep copy of JSON."""
        return decode(encode(obj))

    @staticmethod
    def owner(obj: Obj, api_version: str, kind: str) -> Obj:
        """Return the controlling ownerReference to an object."""
        found = obj["metadata"]
        return {
            "apiVersion": api_version,
            "kind": kind,
            "name": found["name"],
            "uid": found["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def _enqueue(self, uid: str) -> None:
        if uid not in self._waiting:
            self._waiting.add(uid)
            self._queue.put_nowait(uid)

    async def _follow_owners(self) -> None:
        async for kind, data in self.client.follow(self.path):
            if kind == "SYNC":
                self.owners = {one["metadata"]["uid"]: one for one in data}
                self._synced["owners"] = True
                for uid in self.owners:
                    self._enqueue(uid)
            elif kind == "DELETED":
                self.owners.pop(data["metadata"]["uid"], None)
                self.forget(data["metadata"]["uid"])
            else:
                self.owners[data["metadata"]["uid"]] = data
                self._enqueue(data["metadata"]["uid"])

    def forget(self, uid: str) -> None:
        """Hook: an owner is gone."""

    def _controller(self, one: Obj) -> str | None:
        for row in one["metadata"].get("ownerReferences") or ():
            if row.get("controller") and row.get("kind") == self.kind:
                return str(row["uid"])
        return None

    def _put(self, one: Obj) -> None:
        uid, owner = one["metadata"]["uid"], self._controller(one)
        before = self._owner_of.get(uid)
        if before is not None and before != owner:
            self._drop(uid)
        if owner is not None:
            self._owner_of[uid] = owner
            self.owned.setdefault(owner, {})[uid] = one
            self._enqueue(owner)

    def _drop(self, uid: str) -> None:
        owner = self._owner_of.pop(uid, None)
        if owner is not None:
            rows = self.owned.get(owner, {})
            rows.pop(uid, None)
            if not rows:
                self.owned.pop(owner, None)
            self._enqueue(owner)

    async def _follow_owned(self) -> None:
        async for kind, data in self.client.follow(self.owned_path):
            if kind == "SYNC":
                present = {one["metadata"]["uid"] for one in data}
                for uid in [uid for uid in self._owner_of if uid not in present]:
                    self._drop(uid)
                for one in data:
                    self._put(one)
                self._synced["owned"] = True
                for uid in self.owners:
                    self._enqueue(uid)
            elif kind == "DELETED":
                self._drop(data["metadata"]["uid"])
            else:
                self._put(data)

    async def _worker(self) -> None:
        while True:
            uid = await self._queue.get()
            if uid in self._busy:
                await asyncio.sleep(0.005)
                self._queue.put_nowait(uid)
                continue
            self._waiting.discard(uid)
            owner = self.owners.get(uid)
            if owner is None or not all(self._synced.values()):
                continue
            self._busy.add(uid)
            try:
                owned = sorted(self.owned.get(uid, {}).values(), key=lambda one: str(one["metadata"]["name"]))
                await self.reconcile(owner, owned)
            except (HttpError, OSError, TimeoutError) as error:
                stale = isinstance(error, HttpError) and error.status == 409
                if not stale:
                    log.info("reconcile failed, trying again", owner=owner["metadata"]["name"], error=str(error))
                asyncio.get_running_loop().call_later(0.05 if stale else 0.5, self._enqueue, uid)
            finally:
                self._busy.discard(uid)
