"""What a watch has shown of the pods of a namespace, for questions about the past.

Decided here: when the record may be asked. A watch lags behind a list, and is away for moments when the API server ends
it, so every question first waits until the record knows all that a list knew when the question was asked.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from dataclasses import dataclass

from tests.controlplane.rest import ApiError, Json, Rest, resource_path

CATCH_UP = 60.0
"""Seconds that the watch may lag behind on a busy machine."""


@dataclass(frozen=True)
class _State:
    at: float
    name: str
    uid: str
    node: str
    gone: bool


class Recorder(threading.Thread):
    """Every state in which the pods of a namespace were seen. `rest` should be impatient: an API server may hang."""

    def __init__(self, rest: Rest, namespace: str) -> None:
        super().__init__(name="recorder", daemon=True)
        self._rest, self._path = rest, resource_path("v1", "pods", namespace=namespace)
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._states: list[_State] = []
        self._existing: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._version = ""
        self.start()

    # -- recording ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """List and watch until the end, again and again when the API server goes away."""
        while not self._end.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, ApiError):
                if not self._version:
                    self._list()
                for event in self._rest.watch(self._path, timeout=2, resourceVersion=self._version):
                    self._take(event)
            self._end.wait(0.05)

    def _list(self) -> None:
        found = self._rest.get(self._path)
        for pod in found["items"]:
            self._note(pod, deleted=False)
        uids = {pod["metadata"]["uid"] for pod in found["items"]}
        with self._lock:
            for uid, name in [item for item in self._existing.items() if item[0] not in uids]:
                self._states.append(_State(time.monotonic(), name, uid, "", gone=True))
                del self._existing[uid]
        self._version = found["metadata"]["resourceVersion"]

    def _take(self, event: Json) -> None:
        if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
            self._note(event["object"], deleted=event["type"] == "DELETED")
            self._version = event["object"]["metadata"]["resourceVersion"]
        elif event["type"] == "ERROR":
            self._version = ""

    def _note(self, pod: Json, *, deleted: bool) -> None:
        meta, node = pod["metadata"], pod["spec"].get("nodeName", "")
        uid, gone = meta["uid"], deleted or "deletionTimestamp" in meta
        with self._lock:
            self._states.append(_State(time.monotonic(), meta["name"], uid, node, gone))
            self._versions[uid] = int(meta["resourceVersion"])
            if deleted:
                self._existing.pop(uid, None)
            else:
                self._existing[uid] = meta["name"]

    def stop(self) -> None:
        """Record nothing more."""
        self._end.set()
        self.join(10)

    # -- asking ---------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Wait until everything that a list shows now has been recorded, and the end of everything that it lacks."""
        with self._lock:
            existing = set(self._existing)
        listed = {
            pod["metadata"]["uid"]: int(pod["metadata"]["resourceVersion"]) for pod in self._rest.list(self._path)
        }
        ended = existing - set(listed)
        deadline = time.monotonic() + CATCH_UP
        while True:
            with self._lock:
                late = {uid for uid, version in listed.items() if self._versions.get(uid, 0) < version}
                late |= ended & set(self._existing)
            if not late:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"the recorder lags {CATCH_UP:g} s behind: {late}")
            time.sleep(0.02)

    def _recorded(self) -> list[_State]:
        self.catch_up()
        with self._lock:
            return list(self._states)

    def nodes_of(self) -> dict[str, list[str]]:
        """Return uid -> the nodes on which the pod was seen."""
        found: dict[str, list[str]] = {}
        for state in self._recorded():
            if state.node and state.node not in found.setdefault(state.uid, []):
                found[state.uid].append(state.node)
        return found

    def made(self, prefix: str) -> int:
        """Return how many pods of this name prefix were ever seen, by uid."""
        return len({state.uid for state in self._recorded() if state.name.startswith(prefix)})

    def ever_bound(self, prefix: str) -> int:
        """Return how many pods of this name prefix were seen on a node, by uid."""
        return len({state.uid for state in self._recorded() if state.node and state.name.startswith(prefix)})

    def half(self, prefix: str, minimum: int) -> float:
        """Return the longest time in which some but fewer than `minimum` pods of this prefix were on nodes."""
        on: dict[str, bool] = {}
        longest, since = 0.0, None
        for state in (state for state in self._recorded() if state.name.startswith(prefix)):
            on[state.uid] = bool(state.node) and not state.gone
            if 0 < sum(on.values()) < minimum:
                since = state.at if since is None else since
            elif since is not None:
                longest, since = max(longest, state.at - since), None
        return longest if since is None else max(longest, time.monotonic() - since)
