"""`muster demo` as a user starts it: the story holds, in time, and nothing is left; without a scheduler it does not."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scheduler.cli.demo import STORIES, tell_story, worker_nodes
from scheduler.cli.screen import PlainScreen
from scheduler.cli.stage import StoryBroken
from scheduler.playground.run import Playground

pytestmark = pytest.mark.alone

CRDS = Path(__file__).parents[2] / "config" / "crd"
MARK = "MUSTER_TEST_DEMO"


class Demo:
    """The command, with a mark in its environment by which its children are known."""

    def __init__(self, scratch: Path, *words: str) -> None:
        self.scratch = scratch
        self.mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scheduler", "demo", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, MARK: self.mark, "TMPDIR": str(scratch)},
        )  # fmt: skip

    def processes(self) -> list[psutil.Process]:
        """Return what lives of it, itself included."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def scheduler(self) -> psutil.Process:
        """Wait for its scheduler process and return it."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for process in self.processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process.pid != self.process.pid and "run" in process.cmdline():
                        return process
            time.sleep(0.05)
        raise AssertionError("the demo started no scheduler")

    def finish(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err


@pytest.fixture
def demo(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Demo]:
    made = Demo(tmp_path, *getattr(request, "param", ()))
    yield made
    for process in made.processes():
        process.kill()
    made.process.communicate()


FACTS = {
    "gang": (
        "train is Pending as a whole: 0 of 4 bound",
        "needs 4 example.com/gpu for 4 members, 1 free on 2 nodes, 3 short",
        "held by 3 pods of default/gpu-hog (3 example.com/gpu)",
        "all 4 started together: bound within ",
        "holds its GPU for nothing: 1 of 4 bound, 3 wait",
        "no deadlock: ",
        "The story held: 10 expectations",
    ),
    "queues": (
        "sweep runs on all 8 GPUs: research deserves 4 and borrows 4",
        "exactly 3 pods of sweep's surplus were evicted; it goes on with 5",
        "everybody has what they deserve: research 4, inference 3, students 1",
        "WaitingForQuota: needs 2 example.com/gpu; queue students",
        "sweep grew to 7 pods on its own",
        "pair has both GPUs of a node",
        "The story held: 7 expectations",
    ),
    "racks": (
        "needs 4 example.com/gpu for 4 members in one rack; best rack",
        "train waits whole, although 6 GPUs are free: the best rack is 1 short",
        "ranks 0 and 1 are on worker-1, ranks 2 and 3 on worker-2",
        "rank 0 is back on worker-1",
        "they started together",
        "train has rack-",
        "The story held: 8 expectations",
    ),
}


@pytest.mark.parametrize(
    ("demo", "story"), [(("--story", story), story) for story in FACTS], indirect=["demo"], ids=list(FACTS)
)
def test_the_story_holds_in_under_a_minute_and_leaves_nothing(demo: Demo, story: str) -> None:
    started = time.monotonic()
    code, out, err = demo.finish()
    assert code == 0, out + err
    assert time.monotonic() - started < 60
    assert err == ""
    for fact in FACTS[story]:
        assert fact in out
    assert demo.processes() == []
    assert list(demo.scratch.iterdir()) == []


def test_ctrl_c_ends_everything(demo: Demo) -> None:
    scheduler = demo.scheduler()
    demo.process.send_signal(signal.SIGINT)
    code, _, err = demo.finish()
    assert code == 130
    assert err == "error: interrupted\n"
    assert not scheduler.is_running()
    assert demo.processes() == []
    assert list(demo.scratch.iterdir()) == []


def test_a_scheduler_that_dies_breaks_the_story(demo: Demo) -> None:
    demo.scheduler().kill()
    code, out, err = demo.finish()
    assert code == 1
    assert "the story did not hold: the scheduler ended with exit status -9" in err
    assert "The story held" not in out
    assert demo.processes() == []


async def test_without_a_scheduler_the_story_does_not_hold() -> None:
    shown = io.StringIO()
    async with Playground(nodes=worker_nodes(1, 2), crds=[CRDS]) as playground:
        with pytest.raises(StoryBroken, match=r"3 pods of gpu-hog run; seen: gpu-hog-\S+ Pending"):
            await tell_story(playground, PlainScreen(shown), within=5.0)
    assert "ok:" not in shown.getvalue()


@pytest.mark.parametrize(
    ("story", "first"),
    [
        ("queues", r"all 8 pods of sweep run; seen: sweep-\S+ Pending"),
        ("racks", r"both probes run; seen: probe-\S+ Pending"),
    ],
)
async def test_without_a_scheduler_no_other_story_holds_either(story: str, first: str) -> None:
    shown = io.StringIO()
    async with Playground(nodes=worker_nodes(1, 4), crds=[CRDS]) as playground:
        with pytest.raises(StoryBroken, match=first):
            await tell_story(playground, PlainScreen(shown), STORIES[story], within=5.0)
    assert "ok:" not in shown.getvalue()
