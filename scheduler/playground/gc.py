"""What follows from a deletion: dependents of owners, contents of namespaces, instances of CRDs.

Decided here: who else goes when an object goes, as the garbage collector and the namespace controller decide it on a
real cluster; here they live inside the server. Invariant: work is queued by events and done in `run`, never inside the
write that caused it, so a write stays atomic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from scheduler.playground.api import CRD_STORAGE, Api
from scheduler.playground.deletion import CRD_CLEANUP, FOREGROUND, ORPHAN, DeleteOptions, delete
from scheduler.playground.errors import ApiError, Obj
from scheduler.playground.kinds import Resource
from scheduler.playground.storage import Collection, Event, Key, Stored

Ref: TypeAlias = tuple[str, Key]
_BATCH = 200


class Collector:
    """Garbage collector, namespace controller and CRD finalizer of one server."""

    def __init__(self, api: Api, schedule: Callable[[Callable[[], None]], None]) -> None:
        self.api = api
        self.schedule = schedule
        self.dependents: dict[str, dict[Ref, None]] = {}
        self.alive: dict[str, Ref] = {}
        self.queue: deque[tuple[str, str]] = deque()
        self.scheduled = False
        self._known: tuple[int, dict[str, Resource]] = (-1, {})
        for collection, stored in api.store.all_objects():
            self.alive[stored.uid] = (collection.name, stored.key)
        api.store.hooks.append(self.observe)

    def resource(self, storage: str) -> Resource | None:
        """Return the resource whose objects a collection holds."""
        if self._known[0] != self.api.registry.generation:
            found = {one.storage: one for _, _, one in self.api.registry.rows() if not one.ephemeral}
            self._known = (self.api.registry.generation, found)
        return self._known[1].get(storage)

    # ---- events in ----

    def observe(self, collection: Collection, event: Event) -> None:
        """Note what an event asks for."""
        stored = event.stored
        found = stored.obj["metadata"]
        reference: Ref = (collection.name, stored.key)
        owners = found.get("ownerReferences")
        before = event.prev.obj["metadata"].get("ownerReferences") if event.prev is not None else None
        if event.type == "DELETED":
            self.alive.pop(found["uid"], None)
            for owner in before or ():
                self._forget(owner["uid"], reference)
            if found["uid"] in self.dependents:
                self._enqueue("owner-gone", found["uid"])
            if "namespace" in found:
                namespace = self.api.store.collection("namespaces").get("", found["namespace"])
                if namespace is not None and namespace.obj["metadata"].get("deletionTimestamp"):
                    self._enqueue("namespace", found["namespace"])
            return
        if event.type == "ADDED":
            self.alive[found["uid"]] = reference
        if owners != before:
            for owner in before or ():
                self._forget(owner["uid"], reference)
            for owner in owners or ():
                self.dependents.setdefault(owner["uid"], {})[reference] = None
                if owner["uid"] not in self.alive:
                    self._enqueue("owner-gone", owner["uid"])
        if found.get("deletionTimestamp"):
            self._deleting(collection.name, stored)

    def _deleting(self, storage: str, stored: Stored) -> None:
        found = stored.obj["metadata"]
        finalizers = found.get("finalizers") or ()
        if FOREGROUND in finalizers:
            self._enqueue("foreground", found["uid"])
        if ORPHAN in finalizers:
            self._enqueue("orphan", found["uid"])
        if storage == "namespaces":
            self._enqueue("namespace", found["name"])
        if storage == CRD_STORAGE and CRD_CLEANUP in finalizers:
            self._enqueue("crd", found["name"])

    def _forget(self, uid: str, reference: Ref) -> None:
        rows = self.dependents.get(uid)
        if rows is None:
            return
        rows.pop(reference, None)
        if not rows:
            del self.dependents[uid]
        owner = self.alive.get(uid)
        if owner is not None:
            stored = self.api.store.collection(owner[0]).items.get(owner[1])
            if stored is not None and FOREGROUND in (stored.obj["metadata"].get("finalizers") or ()):
                self._enqueue("foreground", uid)

    def _enqueue(self, kind: str, what: str) -> None:
        if self.queue and self.queue[-1] == (kind, what):
            return
        self.queue.append((kind, what))
        if not self.scheduled:
            self.scheduled = True
            self.schedule(self.run)

    # ---- work out ----

    def run(self) -> None:
        """Do queued work; a long queue is done in slices so that requests are served between."""
        self.scheduled = False
        work: dict[str, Callable[[str], None]] = {
            "owner-gone": self._owner_gone,
            "foreground": self._foreground,
            "orphan": self._orphan,
            "namespace": self._namespace,
            "crd": self._crd,
        }
        for _ in range(_BATCH):
            if not self.queue:
                return
            kind, what = self.queue.popleft()
            work[kind](what)
        if self.queue and not self.scheduled:
            self.scheduled = True
            self.schedule(self.run)

    def _stored(self, reference: Ref) -> tuple[Resource, Stored] | None:
        resource = self.resource(reference[0])
        stored = self.api.store.collection(reference[0]).items.get(reference[1])
        return None if resource is None or stored is None else (resource, stored)

    def _delete(self, resource: Resource, stored: Stored, propagation: str | None = None) -> None:
        if stored.obj["metadata"].get("deletionTimestamp") and propagation is None:
            return
        options = DeleteOptions(uid=stored.uid, propagation=propagation)
        try:
            delete(self.api, resource, stored.key[0], stored.key[1], options)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def _owner_gone(self, uid: str) -> None:
        if uid in self.alive:
            return
        for reference in list(self.dependents.get(uid, ())):
            found = self._stored(reference)
            if found is None:
                continue
            resource, stored = found
            owners = stored.obj["metadata"].get("ownerReferences") or []
            left = [one for one in owners if one["uid"] in self.alive]
            if left:
                obj = stored.copy()
                obj["metadata"]["ownerReferences"] = left
                self.api.commit(resource, stored, obj)
            elif all(self.api.registry.by_kind(one["apiVersion"], one["kind"]) for one in owners):
                self._delete(resource, stored)

    def _finish(self, uid: str, finalizer: str) -> None:
        reference = self.alive.get(uid)
        found = self._stored(reference) if reference else None
        if found is None:
            return
        resource, stored = found
        obj = stored.copy()
        rows = [one for one in obj["metadata"].get("finalizers") or () if one != finalizer]
        if rows:
            obj["metadata"]["finalizers"] = rows
        else:
            obj["metadata"].pop("finalizers", None)
        self.api.commit(resource, stored, obj)

    def _foreground(self, uid: str) -> None:
        blocking = False
        for reference in list(self.dependents.get(uid, ())):
            found = self._stored(reference)
            if found is None:
                continue
            resource, stored = found
            owners = stored.obj["metadata"].get("ownerReferences") or []
            mine = next((one for one in owners if one["uid"] == uid), None)
            if mine is None:
                continue
            if any(one["uid"] != uid and one["uid"] in self.alive for one in owners):
                self._drop_owner(resource, stored, uid)
                continue
            has_own = stored.uid in self.dependents
            self._delete(resource, stored, "Foreground" if has_own else None)
            still = self.api.store.collection(reference[0]).items.get(reference[1])
            blocking = blocking or (still is not None and bool(mine.get("blockOwnerDeletion")))
        if not blocking:
            self._finish(uid, FOREGROUND)

    def _drop_owner(self, resource: Resource, stored: Stored, uid: str) -> None:
        obj = stored.copy()
        rows = [one for one in obj["metadata"].get("ownerReferences") or () if one["uid"] != uid]
        if rows:
            obj["metadata"]["ownerReferences"] = rows
        else:
            obj["metadata"].pop("ownerReferences", None)
        self.api.commit(resource, stored, obj)

    def _orphan(self, uid: str) -> None:
        for reference in list(self.dependents.get(uid, ())):
            found = self._stored(reference)
            if found is not None:
                self._drop_owner(found[0], found[1], uid)
        self._finish(uid, ORPHAN)

    def _namespace(self, name: str) -> None:
        namespaces = self.api.store.collection("namespaces")
        left = 0
        for storage in sorted(self.api.store.collections):
            resource = self.resource(storage)
            if resource is None or not resource.namespaced:
                continue
            for stored in self.api.store.collections[storage].in_namespace(name):
                self._delete(resource, stored)
            left += len(self.api.store.collections[storage].in_namespace(name))
        stored_namespace = namespaces.get("", name)
        if left or stored_namespace is None:
            return
        obj: Obj = stored_namespace.copy()
        obj["spec"]["finalizers"] = []
        resource = self.api.resource("", "namespaces")
        self.api.commit(resource, stored_namespace, obj)

    def _crd(self, name: str) -> None:
        stored = self.api.store.collection(CRD_STORAGE).get("", name)
        if stored is None:
            return
        spec = stored.obj["spec"]
        resource = self.api.registry.find(spec["group"], spec["names"]["plural"])
        if resource is not None:
            collection = self.api.collection(resource)
            for one in list(collection.ordered()):
                self._delete(resource, one)
            if collection.items:
                # Instances with finalizers: come back when one more of them is gone.
                self.schedule_later(name)
                return
            self.api.registry.remove(resource)
            for listener in list(collection.listeners.values()):
                close = getattr(listener, "close", None)
                if close is not None:
                    close()
            self.api.store.drop(resource.storage)
        self._finish(stored.uid, CRD_CLEANUP)

    def schedule_later(self, name: str) -> None:
        """Ask again for a CRD whose instances are still held by finalizers, when any object is next removed."""

        def again(resource: Resource, stored: Stored) -> None:
            self.api.after_delete.remove(again)
            self._enqueue("crd", name)

        self.api.after_delete.append(again)
