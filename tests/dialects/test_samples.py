"""The sample queues are read without a problem, and their trees say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scheduler.dialects.registry import BY_NAME
from scheduler.model.queues import Queue
from tests.dialects.golden import dialect_of, encode

SAMPLES = Path(__file__).parents[2] / "config" / "samples"


def queues(name: str) -> dict[str, Queue]:
    found = {}
    for number, obj in enumerate(yaml.safe_load_all((SAMPLES / name).read_text())):
        obj["metadata"]["uid"] = str(number)
        queue = BY_NAME[dialect_of(obj["apiVersion"]) or ""].decode_queue(encode(obj), obj["apiVersion"])
        found[queue.name] = queue
    return found


@pytest.mark.parametrize("name", ["muster-queues.yaml", "volcano-queues.yaml"])
def test_the_samples_are_two_teams_with_half_of_the_gpus_each(name: str) -> None:
    found = queues(name)
    assert {one: queue.deserved for one, queue in found.items()} == {
        "research": (("example.com/gpu", 4),),
        "inference": (("example.com/gpu", 4),),
        "default": (("example.com/gpu", 0),),
    }
    assert [queue.problems for queue in found.values()] == [(), (), ()]
    assert found["inference"].guarantee == (("example.com/gpu", 1),)
    assert {found[one].limit for one in ("research", "inference")} == {(("example.com/gpu", 8),)}


def test_the_tree_of_kai_says_the_same_of_its_own_gpus() -> None:
    found = queues("kai-queues.yaml")
    assert {one: dict(queue.deserved)["nvidia.com/gpu"] for one, queue in found.items()} == {
        "research": 4, "inference": 4, "default": 0,
    }  # fmt: skip
    assert {dict(found[one].limit)["nvidia.com/gpu"] for one in ("research", "inference")} == {8}
    assert found["inference"].priority > found["research"].priority
    assert [queue.problems for queue in found.values()] == [(), (), ()]
