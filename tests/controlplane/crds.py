"""Installs custom resource definitions from files and waits until the API server serves them.

Knows the API only. Invariant: when apply_crds() returns, every definition in the folder is Established and a list of
each of its served versions succeeds. Established alone is not enough: for a moment afterwards the server answers 404
(discovery lags) or 429 (the storage is being made). The list must be a whole one: a list with a limit is answered from
etcd, while the watch cache, which answers the others, may be filling still.
"""

from __future__ import annotations

import time
from pathlib import Path

import yaml

from tests.controlplane.rest import ApiError, Json, Rest

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def read_crds(folder: Path) -> list[Json]:
    """Every definition below the folder, in the order of its files; a file with anything else is an error."""
    found: list[Json] = []
    for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
        for document in yaml.safe_load_all(path.read_text()):
            if document is None:
                continue
            if not isinstance(document, dict) or document.get("kind") != "CustomResourceDefinition":
                raise ValueError(f"{path}: expected CustomResourceDefinition objects only")
            found.append(document)
    return found


def apply_crds(rest: Rest, folder: Path, timeout: float = 90.0) -> list[str]:
    """Server-side apply of every definition below the folder; returns their names."""
    definitions = read_crds(folder)
    for definition in definitions:
        path = f"{_CRDS}/{definition['metadata']['name']}"
        rest.patch(path, definition, kind="apply", fieldManager="tests", force="true")
    deadline = time.monotonic() + timeout
    for definition in definitions:
        wait_served(rest, definition, deadline)
    return [definition["metadata"]["name"] for definition in definitions]


def wait_served(rest: Rest, definition: Json, deadline: float) -> None:
    """Wait until all its versions can be listed, at most until a time of `time.monotonic()`.

    Also of a definition that has been there for long: after a change, by whomever, the server makes its storage anew at
    the next request, and answers that one with 429.
    """
    name = definition["metadata"]["name"]
    spec = definition["spec"]
    conditions: list[Json] = []
    while time.monotonic() < deadline:
        conditions = rest.get(f"{_CRDS}/{name}").get("status", {}).get("conditions") or []
        refused = [each for each in conditions if each["type"] == "NamesAccepted" and each["status"] == "False"]
        if refused:
            raise ValueError(f"{name}: {refused[0]['reason']}: {refused[0]['message']}")
        if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            served = [version["name"] for version in spec["versions"] if version["served"]]
            if all(_listable(rest, spec["group"], version, spec["names"]["plural"]) for version in served):
                return
        time.sleep(0.05)
    raise TimeoutError(f"{name} is not served in time: {conditions}")


def _listable(rest: Rest, group: str, version: str, plural: str) -> bool:
    try:
        rest.get(f"/apis/{group}/{version}/{plural}")
    except ApiError as error:
        if error.status in (404, 429, 503):
            return False
        raise
    return True
