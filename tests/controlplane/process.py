"""Child processes that cannot outlive the tests, whatever happens to the tests.

Decides how a program is started, watched and ended. It knows nothing about Kubernetes.
Invariant: a child dies when stop() is called, when the interpreter exits, and (the kernel sees to it) when the
interpreter is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

# The kernel's "signal me when my parent dies" (PR_SET_PDEATHSIG, 1) survives exec, so a small Python asks for it and
# then becomes the program. Asking between fork and exec would run Python code in a fork of a threaded process.
# The parent may have died before the request took effect; the second look closes that gap.
_BECOME = """
import ctypes, os, sys
if sys.platform == "linux":
    if ctypes.CDLL(None, use_errno=True).prctl(1, 9) != 0:
        sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the process that asked for this one is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""

_alive: set[Process] = set()
_requests: queue.SimpleQueue[tuple[Future[subprocess.Popen[bytes]], dict[str, object]]] = queue.SimpleQueue()
_spawner_lock = threading.Lock()
_spawner: threading.Thread | None = None


def _spawn_for_others() -> None:
    while True:
        future, arguments = _requests.get()
        try:
            future.set_result(subprocess.Popen(**arguments))  # type: ignore[call-overload]
        except OSError as error:
            future.set_exception(error)


def _spawn(**arguments: object) -> subprocess.Popen[bytes]:
    """Start a child from a thread that lives as long as the interpreter.

    For the kernel the parent is the thread that forked: a child started from a pool's thread would be killed as soon
    as that thread ends.
    """
    global _spawner
    with _spawner_lock:
        if _spawner is None or not _spawner.is_alive():
            _spawner = threading.Thread(target=_spawn_for_others, name="spawner", daemon=True)
            _spawner.start()
    future: Future[subprocess.Popen[bytes]] = Future()
    _requests.put((future, arguments))
    return future.result()


class Process:
    """One running program with its log file; restart() runs the same command line again."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None):
        self.name = name
        self.log = log
        self._command = list(command)
        self._environment = {**os.environ, **(environment or {})}
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            if self._child is not None and self._child.poll() is None:
                raise RuntimeError(f"{self.name} is running already (pid {self._child.pid})")
            with self.log.open("ab") as log:
                self._child = _spawn(
                    args=[sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *self._command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    cwd=self.log.parent,
                    start_new_session=True,
                )
            _alive.add(self)

    @property
    def pid(self) -> int:
        if self._child is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._child.pid

    def exit_status(self) -> int | None:
        """None while the program runs; negative: the signal that ended it."""
        return None if self._child is None else self._child.poll()

    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signal the whole process group; a program that has ended already is an error of the caller."""
        if not self.running():
            raise RuntimeError(f"{self.name} is not running (status {self.exit_status()})\n{self.tail()}")
        os.killpg(self.pid, number)

    def pause(self) -> None:
        """Stop it where it is, and wait until each of its threads stands still: on a busy machine some go on."""
        self.send(signal.SIGSTOP)
        deadline = time.monotonic() + 10.0
        while not all(state == "T" for state in self._states()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not stand still: {self._states()}")
            time.sleep(0.005)

    def _states(self) -> list[str]:
        """Return the state of each thread, as the kernel calls it."""
        found = []
        for file in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
                found.append(file.read_text().rpartition(")")[2].split()[0])
        return found

    def stop(self, graceful_seconds: float = 0.0) -> None:
        """End the program and its process group and wait until they are gone; without patience, at once."""
        with self._lock:
            if self._child is None:
                return
            if self._child.poll() is None and graceful_seconds > 0:
                self._child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):  # it had its chance; the kill below is for certain
                    self._child.wait(graceful_seconds)
            if self._child.poll() is None:
                os.killpg(self._child.pid, signal.SIGKILL)  # not yet waited for: the group cannot be somebody else's
                self._child.wait()
            _alive.discard(self)

    def tail(self, lines: int = 30) -> str:
        """The last lines of the log, for error messages."""
        if not self.log.exists():
            return f"({self.name} wrote no log)"
        last = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([f"--- last lines of {self.log} ---", *last])


@atexit.register
def stop_all() -> None:
    """End whatever is still running."""
    for process in sorted(_alive, key=lambda each: each.name):
        process.stop()
