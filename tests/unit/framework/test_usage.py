"""Usage over time: decay, restart, inheritance, and what it does to shares."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.config import PluginConfig
from scheduler.framework.queue_tree import build
from scheduler.framework.usage import FairShare, Usage
from scheduler.model.queues import Queue
from scheduler.model.resources import Amounts
from tests.unit.framework.world import GPU, World, shape, with_plugins

HOUR = 3600.0


def account(queues: dict[str, Queue], held: dict[str, int], fair: FairShare, *times: float) -> Usage:
    """An account over these times; from each on, `held` GPUs are held by the queues."""
    usage, tree = Usage(), build(queues)
    table = np.array([[held.get(name, 0)] for name in tree.names], dtype=np.int64)
    for now in times:
        usage.advance(tree, queues, (GPU,), table, fair, now)
    return usage


def test_usage_grows_to_the_capacity_of_a_half_life_and_halves_in_one() -> None:
    queues = {"q": Queue("q", uid="u")}
    usage = account(queues, {"q": 10}, FairShare(half_life=HOUR), 0.0, HOUR)
    full = 10 * HOUR / np.log(2)
    ((name, value),), at = usage.of("q")
    assert (name, at) == (GPU, HOUR) and value == pytest.approx(full / 2, abs=2)
    tree = build(queues)
    usage.advance(tree, queues, (GPU,), np.zeros((len(tree.names), 1), dtype=np.int64), FairShare(HOUR), 2 * HOUR)
    usage.advance(tree, queues, (GPU,), np.zeros((len(tree.names), 1), dtype=np.int64), FairShare(HOUR), 3 * HOUR)
    ((_, later),), _ = usage.of("q")
    assert later == pytest.approx((full / 2 / 2 + full / 2) / 2, abs=2)


def test_many_short_steps_are_one_long_one() -> None:
    queues = {"q": Queue("q")}
    short = account(queues, {"q": 3}, FairShare(half_life=100.0), *np.linspace(0.0, 500.0, 77))
    long = account(queues, {"q": 3}, FairShare(half_life=100.0), 0.0, 500.0)
    assert short.of("q")[0][0][1] == pytest.approx(long.of("q")[0][0][1], abs=2)


def test_a_restart_goes_on_from_what_the_status_says() -> None:
    said: Amounts = ((GPU, 8000),)
    queues = {"q": Queue("q", decayed=said, decayed_at=100.0)}
    usage = account(queues, {}, FairShare(half_life=50.0), 150.0)
    assert usage.of("q") == (((GPU, 4000),), 150.0)


def test_a_half_life_counts_for_all_below_and_nobody_else() -> None:
    queues = {"team": Queue("team", half_life=10.0), "a": Queue("a", parent="team"), "b": Queue("b")}
    usage = account(queues, {"a": 1, "b": 1}, FairShare(), 0.0, 1000.0)
    assert usage.of("a")[1] == 1000.0
    assert usage.of("b") == ((), 0.0)


def test_without_a_half_life_no_account_is_kept() -> None:
    usage = account({"q": Queue("q")}, {"q": 1}, FairShare(), 0.0, 10.0)
    assert not usage and usage.history(np.array([4]), FairShare()) is None


def test_who_used_much_yields_to_who_did_not() -> None:
    plugin = PluginConfig("queues", arguments={"fairShare.halfLifeHours": 1})
    w = World(with_plugins(["priority", "gang", plugin, "predicates"]))
    w.node("n", gpu=4).queue("much").queue("little")
    for number in range(4):
        w.running(f"old{number}", "n", shape(gpu=1), queue="much")
    w.session()
    w.session(later=4 * HOUR)
    for number in range(4):
        w.drop_pod(f"old{number}")
    for queue in ("much", "little"):
        for number in range(4):
            w.gang(f"{queue}{number}", 1, queue=queue, of=shape(gpu=1))
    w.session()
    first = sorted(place.name for place in w.places)
    assert sum(name.startswith("little") for name in first) >= 3, first
