"""Lists, selectors, paging and watches."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.contract.conftest import Server
from tests.controlplane.rest import Json

NODELESS = "spec.nodeName="


def _names(server: Server, **query: Any) -> list[str]:
    return [one["metadata"]["name"] for one in server.rest.list(server.path("pods"), **query)]


def _five(server: Server) -> None:
    for index in range(5):
        server.pod(f"p{index}", labels={"i": str(index), "even": str(index % 2 == 0).lower()})


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("i=1", ["p1"]),
        ("i==1", ["p1"]),
        ("i!=1", ["p0", "p2", "p3", "p4"]),
        ("i in (1,2)", ["p1", "p2"]),
        ("i notin (1,2),even=true", ["p0", "p4"]),
        ("even", ["p0", "p1", "p2", "p3", "p4"]),
        ("!even", []),
        ("i>2", ["p3", "p4"]),
        ("missing notin (x)", ["p0", "p1", "p2", "p3", "p4"]),
    ],
)
def test_label_selectors_choose(server: Server, selector: str, names: list[str]) -> None:
    _five(server)
    assert _names(server, labelSelector=selector) == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=p1", ["p1"]),
        ("metadata.name!=p1", ["p0", "p2"]),
        (NODELESS, ["p1", "p2"]),
        ("spec.nodeName!=", ["p0"]),
        ("spec.nodeName=ghost", ["p0"]),
        ("status.phase=Pending,metadata.name=p2", ["p2"]),
        ("spec.schedulerName=none", ["p0", "p1", "p2"]),
    ],
)
def test_field_selectors_choose(server: Server, selector: str, names: list[str]) -> None:
    for index in range(3):
        server.pod(f"p{index}")
    server.bind("p0", "ghost")
    assert _names(server, fieldSelector=selector) == names


@pytest.mark.parametrize(
    "query",
    [
        {"labelSelector": "-bad=1"},
        {"labelSelector": "a b"},
        {"labelSelector": "i in 1"},
        {"labelSelector": "i=1,"},
        {"fieldSelector": "spec.color=red"},
        {"fieldSelector": "bad"},
        {"limit": "x"},
        {"resourceVersion": "abc"},
        {"continue": "garbage"},
    ],
)
def test_a_malformed_list_option_is_a_bad_request(server: Server, query: dict[str, str]) -> None:
    assert server.refused("get", server.path("pods"), **query).status == 400


def test_the_pages_of_one_list_show_one_state(server: Server) -> None:
    _five(server)
    first = server.rest.get(server.path("pods"), limit=2)
    assert [one["metadata"]["name"] for one in first["items"]] == ["p0", "p1"]
    assert first["metadata"]["remainingItemCount"] == 3
    server.pod("p25")
    server.rest.delete(server.path("pods", "p3"))
    second = server.rest.get(server.path("pods"), limit=2, **{"continue": first["metadata"]["continue"]})
    assert [one["metadata"]["name"] for one in second["items"]] == ["p2", "p3"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    third = server.rest.get(server.path("pods"), limit=2, **{"continue": second["metadata"]["continue"]})
    assert [one["metadata"]["name"] for one in third["items"]] == ["p4"]
    assert not third["metadata"].get("continue")


def test_an_exact_version_shows_the_past(server: Server) -> None:
    server.pod("old")
    version = server.rest.get(server.path("pods"))["metadata"]["resourceVersion"]
    server.pod("new")
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    assert _names(server, **exact) == ["old"]
    newest = _version(server)  # what is not older than `version` may still lack the second pod
    assert _names(server, resourceVersion=newest, resourceVersionMatch="NotOlderThan") == ["new", "old"]


def _version(server: Server) -> str:
    return str(server.rest.get(server.path("pods"))["metadata"]["resourceVersion"])


def _watch(server: Server, count: int, **query: Any) -> list[Json]:
    """Return the first `count` events."""
    events: list[Json] = []
    for event in server.rest.watch(server.path("pods"), timeout=60, **query):
        events.append(event)
        if len(events) == count:
            break
    return events


def _shape(events: list[Json]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


def test_a_watch_resumes_after_a_version_and_misses_nothing(server: Server) -> None:
    server.pod("before")
    version = _version(server)
    server.pod("p")
    server.rest.patch(server.path("pods", "p"), {"metadata": {"labels": {"a": "b"}}})
    server.bind("p", "ghost")
    server.rest.delete(server.path("pods", "p"), grace=0)
    events = _watch(server, 5, resourceVersion=version)
    assert _shape(events) == [
        ("ADDED", "p"),
        ("MODIFIED", "p"),
        ("MODIFIED", "p"),
        ("MODIFIED", "p"),
        ("DELETED", "p"),
    ]
    assert events[3]["object"]["metadata"]["deletionGracePeriodSeconds"] == 0
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)
    assert versions[0] > int(version)


def test_an_object_that_leaves_the_selection_is_deleted_for_the_watcher(server: Server) -> None:
    server.pod("p0", labels={"team": "a"})
    server.pod("p1", labels={"team": "b"})
    version = _version(server)
    server.rest.patch(server.path("pods", "p0"), {"metadata": {"labels": {"team": "b"}}})
    server.rest.patch(server.path("pods", "p1"), {"metadata": {"labels": {"team": "a"}}})
    left, came = _watch(server, 2, resourceVersion=version, labelSelector="team=a")
    assert (left["type"], left["object"]["metadata"]["labels"]) == ("DELETED", {"team": "a"})
    assert int(left["object"]["metadata"]["resourceVersion"]) > int(version)
    assert (came["type"], came["object"]["metadata"]["name"]) == ("ADDED", "p1")


def test_a_pod_that_gets_a_node_leaves_a_watch_of_nodeless_pods(server: Server) -> None:
    server.pod("p")
    version = _version(server)
    server.bind("p", "ghost")
    (event,) = _watch(server, 1, resourceVersion=version, fieldSelector=NODELESS)
    assert event["type"] == "DELETED"
    assert "nodeName" not in event["object"]["spec"]


def test_a_write_that_changes_nothing_is_no_event(server: Server) -> None:
    server.pod("p", labels={"a": "b"})
    version = _version(server)
    unchanged = server.rest.patch(server.path("pods", "p"), {"metadata": {"labels": {"a": "b"}}})
    server.pod("q")
    assert _shape(_watch(server, 1, resourceVersion=version)) == [("ADDED", "q")]
    assert int(unchanged["metadata"]["resourceVersion"]) <= int(version)


def test_a_watch_without_a_version_starts_with_what_is_there(server: Server) -> None:
    server.pod("a")
    server.pod("b")
    assert sorted(_shape(_watch(server, 2))) == [("ADDED", "a"), ("ADDED", "b")]


def test_streamed_lists_end_with_a_bookmark(server: Server) -> None:
    server.pod("a")
    server.pod("b")
    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    events = _watch(server, 3, **query)
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
    last = events[2]["object"]
    assert last["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(last["metadata"]["resourceVersion"]) >= int(events[1]["object"]["metadata"]["resourceVersion"])
    assert last["kind"] == "Pod"


def test_streamed_lists_need_their_match_option(server: Server) -> None:
    with pytest.raises(Exception, match="sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"):
        _watch(server, 1, sendInitialEvents="true", allowWatchBookmarks="true")


def test_a_watch_ends_when_its_time_is_over(server: Server) -> None:
    server.pod("a")
    events = list(
        server.rest.watch(server.path("pods"), timeout=60, timeoutSeconds=1, resourceVersion=_version(server))
    )
    assert [event for event in events if event["type"] != "BOOKMARK"] == []


def test_a_live_watch_sees_changes_as_they_happen(server: Server) -> None:
    server.pod("p")
    found: list[Json] = []
    version = _version(server)
    thread = threading.Thread(target=lambda: found.extend(_watch(server, 1, resourceVersion=version)))
    thread.start()
    server.bind("p", "ghost")
    thread.join(60)
    assert found[0]["object"]["spec"]["nodeName"] == "ghost"


def test_events_are_one_storage_with_two_faces(server: Server) -> None:
    about = {"kind": "Pod", "namespace": server.namespace, "name": "p", "apiVersion": "v1"}
    body = {
        "metadata": {"name": "e1"},
        "regarding": about,
        "reason": "Waiting",
        "note": "no room",
        "type": "Warning",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "muster",
        "reportingInstance": "muster-0",
        "action": "Scheduling",
    }
    server.rest.create(server.path("events", api="/apis/events.k8s.io/v1"), body)
    core = server.rest.get(server.path("events", "e1"))
    assert (core["message"], core["involvedObject"]["name"], core["reportingComponent"]) == ("no room", "p", "muster")
    old = {"metadata": {"name": "e2"}, "involvedObject": about, "reason": "Bound", "message": "yes", "type": "Normal"}
    server.rest.create(server.path("events"), old)
    modern = server.rest.get(server.path("events", "e2", api="/apis/events.k8s.io/v1"))
    assert (modern["note"], modern["regarding"]["name"]) == ("yes", "p")
    chosen = server.rest.list(server.path("events"), fieldSelector="involvedObject.name=p,reason=Waiting")
    assert [one["metadata"]["name"] for one in chosen] == ["e1"]


def test_lists_as_tables_and_as_metadata(server: Server) -> None:
    server.pod("p")
    import http.client
    import json
    import ssl

    def fetch(accept: str) -> Json:
        host = server.rest.server.split("//")[1]
        if server.kind == "real":
            context = ssl._create_unverified_context()
            connection: Any = http.client.HTTPSConnection(host, context=context)
        else:
            connection = http.client.HTTPConnection(host)
        headers = {"Accept": accept, "Authorization": f"Bearer {server.rest.token}"}
        connection.request("GET", server.path("pods"), headers=headers)
        body: Json = json.loads(connection.getresponse().read())
        connection.close()
        return body

    table = fetch("application/json;as=Table;v=v1;g=meta.k8s.io")
    assert table["kind"] == "Table"
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns[:4] == ["Name", "Ready", "Status", "Restarts"]
    assert table["rows"][0]["cells"][:3] == ["p", "0/1", "Pending"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    partial = fetch("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
    assert partial["kind"] == "PartialObjectMetadataList"
    assert partial["items"][0]["metadata"]["name"] == "p"
    assert "spec" not in partial["items"][0]
