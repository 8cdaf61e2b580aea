"""The verbs: create, get, list, update, patch and the pod sub-resources, each one synchronous and atomic.

Decided here: the order of checks in a write and which version of an object a write is compared with. It must not know
HTTP: it takes and returns objects, and raises `ApiError`. Invariant: a call either commits one event and returns the
stored object, or raises and changes nothing. Deletion is in deletion.py, patches in patching.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler.playground import admission, crds, events, metadata, nodes, strategies
from scheduler.playground.errors import (
    MODIFIED,
    ApiError,
    Cause,
    Obj,
    Undecodable,
    already_exists,
    bad_request,
    conflict,
    field_invalid,
    field_required,
    field_unsupported,
    invalid,
    not_found,
    stale_uid,
)
from scheduler.playground.kinds import Registry, Resource, builtin_resources
from scheduler.playground.podfields import drop_unknown
from scheduler.playground.podupdate import bind
from scheduler.playground.storage import Collection, Store, Stored, encode

CRD_STORAGE = "customresourcedefinitions.apiextensions.k8s.io"


@dataclass(slots=True)
class WriteOptions:
    """What a client asks of one write."""

    dry_run: bool = False
    field_manager: str = ""
    """Who writes: as given, or from the User-Agent."""
    given_manager: str = ""
    field_validation: str = "Warn"
    force: bool = False
    managed: bool = False
    """The object carries its new managedFields already (server-side apply)."""
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ApiOptions:
    """What the embedded server serves and how."""

    native_groups: bool = True
    history: int = 20_000
    node_lifecycle: bool = True
    """Keep the taints that follow from a node's conditions and cordon, as a node controller does."""


Track = Callable[[Resource, str, Obj, Obj, str, str], None]
"""(resource, version, old, new, manager, sub-resource): keeps managedFields of writes that are not applies."""


def _untracked(resource: Resource, version: str, old: Obj, new: Obj, manager: str, subresource: str) -> None:
    """Keep managedFields as they are."""
    if "managedFields" in old["metadata"]:
        new["metadata"]["managedFields"] = old["metadata"]["managedFields"]


class Api:
    """The API server without HTTP."""

    def __init__(self, options: ApiOptions | None = None) -> None:
        self.options = options or ApiOptions()
        self.store = Store(self.options.history)
        self.registry = Registry(builtin_resources(self.options.native_groups))
        self.after_delete: list[Callable[[Resource, Stored], None]] = []
        self.track: Track = _untracked
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            namespaces = self.resource("", "namespaces")
            self.create(namespaces, "v1", "", {"metadata": {"name": name}}, WriteOptions())

    # ---- look-up ----

    def resource(self, group: str, plural: str) -> Resource:
        """Return a resource that must exist."""
        found = self.registry.find(group, plural)
        if found is None:
            raise not_found(group, plural, "")
        return found

    def collection(self, resource: Resource) -> Collection:
        """Return where the objects of a resource are kept."""
        return self.store.collection(resource.storage)

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        """Return an object or 404."""
        stored = self.collection(resource).get(namespace, name)
        if stored is None:
            raise not_found(resource.group, resource.plural, name)
        return stored

    # ---- views: the same object through another version ----

    def view(self, resource: Resource, version: str, obj: Obj) -> Obj:
        """Return a stored object as a version shows it (shares structure with the stored one)."""
        if resource.group == "events.k8s.io":
            return events.to_events_v1(obj)
        wanted = resource.api_version(version)
        return obj if obj["apiVersion"] == wanted else {**obj, "apiVersion": wanted}

    def raw(self, resource: Resource, version: str, stored: Stored) -> bytes:
        """Return a stored object's JSON as a version shows it."""
        if stored.obj["apiVersion"] == resource.api_version(version) and resource.group != "events.k8s.io":
            return stored.raw
        return encode(self.view(resource, version, stored.obj))

    def unview(self, resource: Resource, version: str, obj: Obj) -> Obj:
        """Return an object of a request as it is stored."""
        if resource.group == "events.k8s.io":
            return events.from_events_v1(obj)
        obj["apiVersion"] = resource.api_version(resource.versions[0])
        return obj

    # ---- create ----

    def check_identity(self, resource: Resource, version: str, namespace: str, obj: Any, name: str = "") -> Obj:
        """Check that a body is an object of this resource, in this namespace, with this name."""
        if not isinstance(obj, dict):
            raise bad_request("the body must be a JSON object")
        wanted = resource.api_version(version)
        kind, api_version = obj.setdefault("kind", resource.kind), obj.setdefault("apiVersion", wanted)
        if kind != resource.kind or api_version != wanted:
            if kind == resource.kind:
                text = f"the API version in the data ({api_version}) does not match the expected API version ({wanted})"
                raise bad_request(text)
            raise bad_request(
                f'{kind} in version "{api_version}" cannot be handled as a {resource.kind}: unknown conversion'
            )
        found = metadata.meta(obj)
        if resource.namespaced:
            given = found.setdefault("namespace", namespace)
            if given == "":
                found["namespace"] = namespace
            elif given != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        else:
            found.pop("namespace", None)
        if name:
            if found.get("name", name) != name:
                text = f"the name of the object ({found['name']}) does not match the name on the URL ({name})"
                raise bad_request(text)
            found["name"] = name
        return obj

    def create(self, resource: Resource, version: str, namespace: str, obj: Any, options: WriteOptions) -> Stored:
        """Create an object; takes ownership of `obj`."""
        obj = self.check_identity(resource, version, namespace, obj)
        found = obj["metadata"]
        if found.get("resourceVersion"):
            raise ApiError(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            )
        if not options.managed:
            found.pop("managedFields", None)
        metadata.begin(obj)
        if resource.namespaced:
            admission.check_namespace(self.store, resource, namespace, found.get("name") or "")
        obj = self.unview(resource, version, obj)
        if resource.group == "events.k8s.io":
            obj["modern"] = True
        causes = metadata.validate_metadata(resource, obj)
        if causes:
            raise invalid(resource.group, resource.kind, found.get("name") or "", causes)
        collection, key = self.collection(resource), (namespace, found["name"])
        causes = self._prepare_create(resource, version, obj, options)
        if causes:
            raise invalid(resource.group, resource.kind, found["name"], causes)
        present = collection.items.get(key)
        if present is not None:
            leaving = bool(present.obj["metadata"].get("deletionTimestamp"))
            raise already_exists(resource.group, resource.plural, found["name"], leaving)
        if resource.generation:
            found["generation"] = 1
        if options.dry_run:
            return Stored(key, obj, 0)
        stored = self.store.create(collection, key, obj)
        if resource.storage == CRD_STORAGE:
            stored = self._establish(stored)
        return stored

    def _prepare_create(self, resource: Resource, version: str, obj: Obj, options: WriteOptions) -> list[Cause]:
        if resource.crd is not None:
            if resource.has_status:
                obj.pop("status", None)
            options.warnings += [
                f'unknown field "{path}"' for path in crds.complete(resource, version, obj, options.field_validation)
            ]
            return crds.validate(resource, version, obj)
        if resource.storage == CRD_STORAGE:
            obj.pop("status", None)
            crds.default_crd(obj)
            return crds.validate_crd(obj)
        if resource.has_status and resource.status_reset:
            obj.pop("status", None)
        _known_fields(resource, obj, options)
        causes = strategies.prepare_create(self.store, resource.storage, obj)
        if self.options.node_lifecycle and resource.storage == "nodes":
            nodes.keep_taints(obj)
        return causes

    # ---- update ----

    def update(
        self,
        resource: Resource,
        version: str,
        namespace: str,
        name: str,
        obj: Any,
        options: WriteOptions,
        subresource: str = "",
        *,
        patched: bool = False,
    ) -> Stored:
        """Replace an object (or one sub-resource of it); takes ownership of `obj`."""
        obj = self.check_identity(resource, version, namespace, obj, name)
        prev = self.get(resource, namespace, name)
        obj = self.unview(resource, version, obj)
        found = obj["metadata"]
        self._check_version(resource, prev, found, patched)
        metadata.carry_over(prev.obj, obj)
        found["uid"] = prev.uid
        causes = metadata.validate_metadata(resource, obj) + metadata.validate_update(prev.obj, obj)
        causes += self._prepare_update(resource, version, prev, obj, options, subresource)
        if causes:
            raise invalid(resource.group, resource.kind, name, causes)
        self._bump_generation(resource, prev.obj, obj, subresource)
        if not options.managed:
            self.track(resource, resource.versions[0], prev.obj, obj, options.field_manager, subresource)
        if options.dry_run:
            found["resourceVersion"] = str(prev.rv)
            return Stored(prev.key, obj, prev.rv)
        return self.commit(resource, prev, obj)

    def _check_version(self, resource: Resource, prev: Stored, found: Obj, patched: bool) -> None:
        uid = found.get("uid")
        if uid and uid != prev.uid and patched:
            cause = field_invalid("metadata.uid", uid, "field is immutable")
            raise invalid(resource.group, resource.kind, prev.key[1], [cause])
        if uid and uid != prev.uid:
            raise stale_uid(resource.group, resource.plural, prev.key, uid, prev.uid)
        given = found.get("resourceVersion")
        if given:
            if given != str(prev.rv):
                raise conflict(resource.group, resource.plural, prev.key[1], MODIFIED)
        elif not patched and (resource.crd is not None or resource.storage in strategies.REQUIRE_VERSION):
            cause = field_invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(resource.group, resource.plural, prev.key[1], [cause])

    def _prepare_update(
        self, resource: Resource, version: str, prev: Stored, obj: Obj, options: WriteOptions, subresource: str
    ) -> list[Cause]:
        status = subresource == "status"
        if resource.crd is not None:
            if status:
                kept = obj.get("status")
                managed = obj["metadata"].get("managedFields")
                fresh = prev.copy()
                if managed is not None:
                    fresh["metadata"]["managedFields"] = managed
                obj.clear()
                obj.update(fresh)
                if kept is None:
                    obj.pop("status", None)
                else:
                    obj["status"] = kept
            elif resource.has_status:
                _keep_status(prev.obj, obj)
            options.warnings += [
                f'unknown field "{path}"' for path in crds.complete(resource, version, obj, options.field_validation)
            ]
            return crds.validate(resource, version, obj)
        if resource.storage == CRD_STORAGE:
            if status:
                obj["spec"] = prev.obj["spec"]
            else:
                _keep_status(prev.obj, obj)
            crds.default_crd(obj)
            return crds.validate_crd(obj)
        if resource.has_status and not status:
            _keep_status(prev.obj, obj)
        _known_fields(resource, obj, options)
        causes = strategies.prepare_update(self.store, resource.storage, prev.obj, obj, status)
        if self.options.node_lifecycle and resource.storage == "nodes":
            nodes.keep_taints(obj)
        return causes

    def _bump_generation(self, resource: Resource, old: Obj, new: Obj, subresource: str) -> None:
        if not resource.generation or subresource == "status" or resource.storage in strategies.FIXED_GENERATION:
            return
        if strategies.spec_of(old) != strategies.spec_of(new):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def commit(self, resource: Resource, prev: Stored, obj: Obj) -> Stored:
        """Store a changed object; one that only waited for its finalizers goes away."""
        collection, found = self.collection(resource), obj["metadata"]
        gone = (
            found.get("deletionTimestamp")
            and not found.get("finalizers")
            and not found.get("deletionGracePeriodSeconds")
        )
        if gone and not (resource.storage == "namespaces" and obj.get("spec", {}).get("finalizers")):
            return self.remove(resource, prev, obj)
        stored = self.store.update(collection, prev, obj)
        if resource.storage == CRD_STORAGE and stored is not prev and stored.obj["spec"] != prev.obj["spec"]:
            stored = self._establish(stored)
        return stored

    def remove(self, resource: Resource, prev: Stored, last: Obj | None = None) -> Stored:
        """Take an object out of storage and tell whoever cleans up after it."""
        stored = self.store.delete(self.collection(resource), prev, last)
        for hook in tuple(self.after_delete):
            hook(resource, stored)
        return stored

    # ---- custom resource definitions ----

    def _establish(self, stored: Stored) -> Stored:
        built = crds.build_resource(stored.obj)
        present = self.registry.find(built.group, built.plural)
        if present is not None:
            self.registry.remove(present)
        self.registry.add(built)
        obj = stored.copy()
        obj["status"] = crds.established_status(obj)
        return self.store.update(self.store.collection(CRD_STORAGE), stored, obj)

    # ---- sub-resources of pods ----

    def bind_pod(self, namespace: str, name: str, body: Any, options: WriteOptions) -> None:
        """Bind a pod to a node."""
        if not isinstance(body, dict):
            raise bad_request("the body must be a Binding")
        found = metadata.meta(body)
        if found.get("name") != name:
            raise bad_request("name in URL does not match name in Binding object")
        if found.get("namespace") and found["namespace"] != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        pods = self.resource("", "pods")
        target = body.get("target") or {}
        causes: list[Cause] = []
        if target.get("kind") not in (None, "", "Node"):
            causes.append(field_unsupported("target.kind", target["kind"], ["Node", "<empty>"]))
        if not target.get("name"):
            causes.append(field_required("target.name"))
        if causes:
            texts = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
            raise ApiError(500, "", f"[{texts}]" if len(causes) > 1 else texts)
        prev = self.get(pods, namespace, name)
        node = self.store.collection("nodes").get("", target["name"])
        obj = bind(prev.copy(), body, node.obj if node else None)
        if not options.dry_run:
            self.track(pods, "v1", prev.obj, obj, options.field_manager, "binding")
            self.store.update(self.collection(pods), prev, obj)

    def scale_of(self, resource: Resource, version: str, stored: Stored) -> Obj:
        """Return the autoscaling/v1 Scale of an object."""
        if resource.crd is not None:
            paths = resource.crd.scale.get(version) or {}
            replicas = _at(stored.obj, paths.get("specReplicasPath", "")) or 0
            present = _at(stored.obj, paths.get("statusReplicasPath", "")) or 0
            selector = _at(stored.obj, paths.get("labelSelectorPath", "")) or ""
        else:
            replicas = stored.obj["spec"].get("replicas", 1)
            present = (stored.obj.get("status") or {}).get("replicas", 0)
            labels = (stored.obj["spec"].get("selector") or {}).get("matchLabels") or {}
            selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        found = stored.obj["metadata"]
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        status: Obj = {"replicas": present}
        if selector:
            status["selector"] = selector
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {name: found[name] for name in kept if name in found},
            "spec": {"replicas": replicas} if replicas else {},
            "status": status,
        }

    def set_scale(
        self, resource: Resource, version: str, namespace: str, name: str, body: Obj, options: WriteOptions
    ) -> Stored:
        """Change the replicas of an object through its Scale."""
        prev = self.get(resource, namespace, name)
        given = (body.get("metadata") or {}).get("resourceVersion")
        if given and given != str(prev.rv):
            raise conflict(resource.group, resource.plural, name, MODIFIED)
        replicas = (body.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            cause = field_invalid("spec.replicas", replicas, "must be greater than or equal to 0")
            raise invalid("autoscaling", "Scale", name, [cause])
        obj = self.view(resource, version, prev.copy())
        path = "spec.replicas"
        if resource.crd is not None:
            path = (resource.crd.scale.get(version) or {}).get("specReplicasPath", "").lstrip(".")
        target = obj
        parts = path.split(".")
        for part in parts[:-1]:
            target = target.setdefault(part, {})
        target[parts[-1]] = replicas
        return self.update(resource, version, namespace, name, obj, options, patched=True)


def _known_fields(resource: Resource, obj: Obj, options: WriteOptions) -> None:
    """Drop a pod's unknown fields; 400 for them when the client wants to be told."""
    if resource.storage != "pods":
        return
    texts = [f'unknown field "{path}"' for path in drop_unknown(obj)]
    if texts and options.field_validation == "Strict":
        raise Undecodable('Pod in version "v1" cannot be handled as a Pod: strict decoding error: ' + ", ".join(texts))
    options.warnings += texts


def _keep_status(old: Obj, new: Obj) -> None:
    if "status" in old:
        new["status"] = old["status"]
    else:
        new.pop("status", None)


def _at(obj: Obj, path: str) -> Any:
    value: Any = obj
    for part in path.lstrip(".").split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value
