"""`muster demo`: a story on an embedded control plane, with the scheduler as a process of its own.

Decided here: what is started for the story, how it ends, and the exit code: 0 the story held, 1 it did not, 2 it could
not be played here, 130 it was interrupted. Invariant: whatever happens, nothing that was started is left running.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from scheduler.cli import queue_story, rack_story, story
from scheduler.cli.output import FAILED, OK, USAGE, complain
from scheduler.cli.screen import LiveScreen, PlainScreen, open_screen
from scheduler.cli.shipped import NotShipped, shipped
from scheduler.cli.stage import Stage, StoryBroken
from scheduler.observe import logs
from scheduler.playground.kubelet import NodeSpec
from scheduler.playground.run import Playground

INTERRUPTED = 130
_LINGER = 2.0
"""Seconds to read a reason on a terminal."""
_LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class Told:
    """A story, and on how many worker nodes of two GPUs each it begins."""

    tell: Callable[[Stage, story.AddNodes], Awaitable[None]]
    nodes: int


STORIES = {
    "gang": Told(story.tell, 2),
    "queues": Told(queue_story.tell, queue_story.NODES),
    "racks": Told(rack_story.tell, rack_story.NODES),
}


def play(name: str = "gang") -> int:
    """Play one of `STORIES` on stdout; exit code."""
    import uvloop

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="muster-demo-") as scratch:
        log = Path(scratch) / "scheduler.log"
        try:
            with (Path(scratch) / "playground.log").open("w") as file, open_screen(sys.stdout) as screen:
                logs.configure("json", file=file)  # what the fakes log must not disturb the table
                count = uvloop.run(_play(STORIES[name], Path(scratch), log, screen))
        except NotShipped as error:
            complain(str(error))
            return USAGE
        except StoryBroken as error:
            complain(f"the story did not hold: {error}")
            _show_log(log)
            return FAILED
        except (KeyboardInterrupt, asyncio.CancelledError):
            complain("interrupted")
            return INTERRUPTED
    print(f"\nThe story held: {count} expectations, {time.monotonic() - started:.1f} s.")
    return OK


async def _play(told: Told, directory: Path, log: Path, screen: LiveScreen | PlainScreen) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    screen.say(f"an API server in memory, {told.nodes} worker nodes with 2 GPUs each, and Muster")
    playground = Playground(nodes=worker_nodes(1, told.nodes), crds=[shipped("config/crd")])
    async with playground:
        kubeconfig = playground.server.write_kubeconfig(directory / "kubeconfig")
        async with running_scheduler(kubeconfig, log):
            return await tell_story(playground, screen, told)


async def tell_story(
    playground: Playground, screen: LiveScreen | PlainScreen, told: Told = STORIES["gang"], *, within: float = 20.0
) -> int:
    """Tell a story to a playground with the worker nodes that it begins with; return how many expectations it met.

    Raises `StoryBroken`: also where no scheduler runs, after `within` seconds of nothing.
    """
    linger = _LINGER if isinstance(screen, LiveScreen) else 0.0

    async def add_nodes(count: int) -> None:
        assert playground.kubelet is not None
        for spec in worker_nodes(len(stage.nodes) + 1, count):
            await playground.kubelet.add_node(spec)
        screen.say(f"{count} more worker nodes join")

    async with Stage(playground.url, screen, resource=story.GPU, within=within, linger=linger) as stage:
        await told.tell(stage, add_nodes)
        return stage.expectations


def worker_nodes(first: int, count: int) -> list[NodeSpec]:
    """Return worker nodes with two GPUs each, two in every rack."""
    allocatable = {"cpu": "16", "memory": "64Gi", "pods": "110", story.GPU: "2"}
    return [
        NodeSpec(f"worker-{number}", dict(allocatable), labels={rack_story.RACK: rack_story.rack_of(number)})
        for number in range(first, first + count)
    ]


@asynccontextmanager
async def running_scheduler(kubeconfig: Path, log: Path) -> AsyncIterator[None]:
    """Run `muster run` in a process group of its own, so that Ctrl-C reaches it through us, in order."""
    command = [sys.executable, "-m", "scheduler", "run", "--single-process", "--no-leader-elect"]
    command += ["--kubeconfig", str(kubeconfig), "--health-address", "127.0.0.1:0"]
    command += ["--scheduler-name", "volcano", "--scheduler-name", "muster"]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=file, stderr=file, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
    story_task = asyncio.current_task()
    assert story_task is not None
    watch = asyncio.create_task(process.wait())
    watch.add_done_callback(lambda done: None if done.cancelled() else story_task.cancel())
    try:
        yield
    except asyncio.CancelledError:
        if process.returncode is not None:
            raise StoryBroken(f"the scheduler ended with exit status {process.returncode}") from None
        raise
    finally:
        watch.cancel()
        await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(10):
            await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _show_log(log: Path) -> None:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    if lines:
        sys.stderr.write("\n".join(["the scheduler's last words:", *lines[-_LOG_LINES:], ""]))
