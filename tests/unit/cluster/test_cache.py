"""The cache: which events, in which order, in which batches, and what replay gives."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from scheduler.cluster import feed
from scheduler.cluster.cache import Cache, Namespace, PriorityClass
from scheduler.cluster.store import Store
from scheduler.dialects.core import decode_pod
from scheduler.model.groups import PodGroup
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.queues import Queue

SHAPE = Shape(key="s1", requests=(("cpu", 1000),))


def pod(uid: str, rv: str = "1", **more: Any) -> Pod:
    return Pod(**{"uid": uid, "namespace": "ns", "name": f"p-{uid}", "shape": "s1", "resource_version": rv} | more)


def listening() -> tuple[Cache, list[list[feed.Event]]]:
    cache, batches = Cache(), []
    cache.subscribe(batches.append, replay=False)
    return cache, batches


async def test_the_events_of_one_turn_of_the_loop_come_in_one_batch() -> None:
    cache, batches = listening()
    cache.nodes.put(Node(name="n1", uid="1"))
    cache.nodes.put(Node(name="n2", uid="2"))
    assert batches == []
    await asyncio.sleep(0)
    assert batches == [[feed.NodeSet(Node(name="n1", uid="1")), feed.NodeSet(Node(name="n2", uid="2"))]]


async def test_a_shape_is_sent_once_before_the_first_pod_that_uses_it() -> None:
    cache, batches = listening()
    for uid in "ab":
        cache.pods.put((pod(uid), SHAPE))
    cache.flush()
    assert batches == [[feed.ShapeSet(SHAPE), feed.PodSet(pod("a")), feed.PodSet(pod("b"))]]


async def test_a_shape_that_nobody_used_any_more_is_sent_again() -> None:
    cache, batches = listening()
    cache.pods.put((pod("a"), SHAPE))
    cache.pods.drop("a")
    assert cache.shape("s1") is None
    cache.pods.put((pod("b"), SHAPE))
    cache.flush()
    assert [type(event).__name__ for event in batches[0]] == ["ShapeSet", "PodSet", "PodGone", "ShapeSet", "PodSet"]


async def test_a_pod_that_changes_its_shape_gets_the_new_one_first() -> None:
    other = Shape(key="s2")
    cache, batches = listening()
    cache.pods.put((pod("a"), SHAPE))
    cache.pods.put((pod("a", "2", shape="s2"), other))
    cache.flush()
    assert batches[0][2:] == [feed.ShapeSet(other), feed.PodSet(pod("a", "2", shape="s2"))]
    assert (cache.shape("s1"), cache.shape("s2")) == (None, other)


async def test_a_new_resource_version_alone_is_kept_but_is_no_event() -> None:
    cache, batches = listening()
    cache.pods.put((pod("a"), SHAPE))
    cache.nodes.put(Node(name="n", uid="1", resource_version="1"))
    cache.flush()
    batches.clear()
    cache.pods.put((pod("a", "2"), SHAPE))
    cache.nodes.put(Node(name="n", uid="1", resource_version="2"))
    cache.flush()
    assert batches == []
    found, node = cache.pod("a"), cache.node("n")
    assert found is not None
    assert node is not None
    assert (found.resource_version, node.resource_version) == ("2", "2")
    cache.pods.put((pod("a", "3", phase="Running"), SHAPE))
    cache.flush()
    assert batches == [[feed.PodSet(pod("a", "3", phase="Running"))]]


async def test_a_group_made_again_under_its_name_ends_before_the_new_one_begins() -> None:
    def group(uid: str) -> PodGroup:
        return PodGroup(key="muster/ns/g", uid=uid, dialect="muster", namespace="ns", name="g")

    cache, batches = listening()
    cache.groups.put(group("1"))
    cache.groups.put(group("2"))
    cache.groups.drop("1")  # the late deletion of the first takes nothing away
    cache.flush()
    assert batches == [[feed.GroupSet(group("1")), feed.GroupGone("muster/ns/g"), feed.GroupSet(group("2"))]]
    assert cache.group("muster/ns/g") == group("2")


async def test_dropping_what_is_not_there_is_no_event() -> None:
    cache, batches = listening()
    cache.pods.drop("a")
    cache.nodes.drop("a")
    cache.flush()
    assert batches == []


async def test_who_names_no_queue_is_charged_to_that_of_the_namespace() -> None:
    cache, _ = listening()
    assert cache.queue_of(None, [pod("a")]) == "default"
    cache.namespaces.put(Namespace("ns", "1", "research/nlp"))
    assert cache.queue_of(None, [pod("a")]) == "nlp"


async def test_queues_of_one_name_in_two_dialects_are_two() -> None:
    cache, batches = listening()
    cache.queues.put(Queue(name="q", uid="1", dialect="volcano"))
    cache.queues.put(Queue(name="q", uid="2", dialect="kai"))
    cache.queues.drop("1")
    cache.flush()
    assert batches[0][-1] == feed.QueueGone("q", "volcano")
    assert cache.queue("kai", "q") == Queue(name="q", uid="2", dialect="kai")


async def test_a_new_subscriber_gets_the_present_first_and_then_each_change_once() -> None:
    cache = Cache()
    early: list[list[feed.Event]] = []
    cache.subscribe(early.append)
    cache.pods.put((pod("a"), SHAPE))
    cache.pods.put((pod("b"), SHAPE))
    cache.pods.drop("b")
    late: list[list[feed.Event]] = []
    stop = cache.subscribe(late.append)
    assert late == [[feed.ShapeSet(SHAPE), feed.PodSet(pod("a"))]]
    cache.pods.drop("a")
    await asyncio.sleep(0)
    assert late[1:] == [[feed.PodGone("a")]]
    stop()
    cache.pods.put((pod("c"), SHAPE))
    await asyncio.sleep(0)
    assert len(late) == 2
    assert early[-1][-1] == feed.PodSet(pod("c"))


async def test_synced_is_said_once_and_replayed_last() -> None:
    cache, batches = listening()
    cache.set_dialect("volcano", active=True)
    cache.set_dialect("volcano", active=True)
    cache.mark_synced()
    cache.mark_synced()
    cache.flush()
    assert batches == [[feed.DialectSet("volcano", True), feed.Synced()]]
    cache.priority_classes.put(PriorityClass("high", "1", 1000, default=True))
    assert cache.replay() == [
        feed.DialectSet("volcano", True),
        feed.PriorityClassSet("high", 1000, True),
        feed.Synced(),
    ]


async def test_a_subscriber_that_fails_is_not_passed_over() -> None:
    cache = Cache()

    def broken(_: list[feed.Event]) -> None:
        raise KeyError("mine")

    cache.subscribe(broken, replay=False)
    cache.mark_synced()
    with pytest.raises(KeyError):
        cache.flush()
    assert cache.failed.is_set()
    assert isinstance(cache.failure, KeyError)


@pytest.mark.parametrize("seed", range(5))
async def test_replay_gives_the_same_picture_as_having_listened(seed: int) -> None:
    rng = random.Random(seed)
    cache = Cache()
    store, late = Store(), Store()
    cache.subscribe(lambda batch: store.apply(batch, 0.0))
    shapes = {key: Shape(key=key, requests=(("cpu", 100 * n + 100),)) for n, key in enumerate("xyz")}
    for _ in range(300):
        uid, name = str(rng.randrange(20)), f"n{rng.randrange(4)}"
        match rng.randrange(6):
            case 0:
                cache.nodes.put(Node(name=name, uid=name + str(rng.randrange(2)), allocatable=(("cpu", 9000),)))
            case 1:
                cache.nodes.drop(name + "0")
            case 2:
                cache.pods.drop(uid)
            case _:
                key = rng.choice("xyz")
                made = pod(uid, shape=key, ours=True, node=rng.choice(["", name]))
                cache.pods.put((made, shapes[key]))
    cache.mark_synced()
    cache.flush()
    cache.subscribe(lambda batch: late.apply(batch, 0.0))
    one, two = store.snapshot(1.0), late.snapshot(1.0)
    assert one.table.names == two.table.names
    assert one.table.used.tolist() == two.table.used.tolist()
    assert one.groups == two.groups
    assert one.usage == two.usage


def _raw_pod(number: int) -> bytes:
    job = number // 100
    return json.dumps(
        {
            "metadata": {
                "name": f"job-{job}-{number}",
                "namespace": f"team-{job % 20}",
                "uid": f"00000000-0000-0000-0000-{number:012d}",
                "resourceVersion": str(1_000_000 + number),
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"scheduling.muster.sh/pod-group": f"job-{job}"},
                "ownerReferences": [{"kind": "Job", "name": f"job-{job}", "uid": f"owner-{job}", "controller": True}],
            },
            "spec": {
                "schedulerName": "muster",
                "nodeName": f"node-{number % 5000}",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}],
            },
            "status": {"phase": "Running"},
        }
    ).encode()


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


async def test_a_pod_costs_less_than_sixteen_hundred_bytes() -> None:
    cache = Cache()
    names = frozenset({"muster"})
    cache.pods.put(decode_pod(_raw_pod(0), names))
    gc.collect()
    before = _resident()
    for number in range(1, 10_001):
        cache.pods.put(decode_pod(_raw_pod(number), names))
    gc.collect()
    assert (_resident() - before) / 10_000 < 1600
    first, second = cache.pod(_uid(1)), cache.pod(_uid(2))
    assert first is not None
    assert second is not None
    assert first.group is second.group
    assert first == replace(first)


def _uid(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012d}"
