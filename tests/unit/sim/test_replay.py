"""A session on disk is the session: what other pods, ports and storage decided is decided again."""

from __future__ import annotations

import msgspec

from scheduler.app import make_sessions
from scheduler.model.affinity import HostPort
from scheduler.sim import replay
from tests.unit.actions.test_making_room import Story
from tests.unit.framework.world import GPU, World, shape
from tests.unit.plugins.test_neighbours import away, evenly, labelled, near, world
from tests.unit.plugins.test_volumes import Storeroom, at


def _again(w: World) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """What was decided, and what the saved session decides."""
    result = w.session()
    assert w.snapshot is not None
    saved = replay.load(replay.dump(result.decisions.session, w.config, w.snapshot, result.decisions))
    outcome = make_sessions(saved.config).run(saved.snapshot, saved.session)
    return saved.decisions, msgspec.json.decode(msgspec.json.encode(replay.plain(outcome.decisions)))


def test_pods_that_are_there_count_in_a_replay_too() -> None:
    w = world()
    port = shape(cpu=1, host_ports=(HostPort(80),))
    w.running("web", "n3", near("db"), labels=labelled("web"))
    w.running("hermit", "n1", away("web"), labels=labelled("hermit"))
    w.running("taken", "n4", port)
    w.pod("follower", near("web"))
    w.pod("web-2", away("none"), labels=labelled("web"))
    w.gang("even", 2, of=evenly("web"), pod={"labels": labelled("web")})
    for number in range(4):
        w.pod(f"port-{number}", port)
    decided, again = _again(w)
    assert w.placed["follower"] == "n3"
    ports = [w.placed.get(f"port-{number}", "") for number in range(4)]
    assert sorted(ports) == ["", "n1", "n2", "n3"]
    assert again == decided


def test_storage_counts_in_a_replay_too() -> None:
    w = Storeroom()
    for number in range(3):
        w.claim(f"d{number}")
        w.volume(f"v{number}", terms=at(f"n{number}"))
    w.gang_with("g", {number: (f"d{number}",) for number in range(3)})
    w.claim("late")
    w.with_claims("waits", "late")
    decided, again = _again(w)
    assert sorted(w.placed.values()) == ["n0", "n1", "n2"]
    assert again == decided


def test_queues_and_who_runs_in_them_count_in_a_replay_too() -> None:
    w = Story(check=True)
    w.node("n", gpu=4)
    w.queue("research", deserved=((GPU, 2),)).queue("inference", deserved=((GPU, 2),))
    w.runs("train", ["n"] * 3, minimum=1, queue="research")
    w.running("alone", "n", shape(gpu=1), queue="research", priority=50, since=10.0)
    w.asks("serve", 2, queue="inference")
    decided, again = _again(w)
    assert len(w.victims) == 2
    assert again == decided
