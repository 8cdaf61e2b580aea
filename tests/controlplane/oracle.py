"""kube-scheduler's own filter plugins as a program that answers questions: its build, and a process that is asked.

Decided here: where the executable of oracle/main.go is kept and how one process is asked many questions without either
side waiting for the other. It must not know what is asked. Invariant: a path in the cache is either absent or a
complete executable of exactly these sources and that Kubernetes release.

Run `python -m tests.controlplane.oracle` to fill the cache before the tests do.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.controlplane import build

Question = dict[str, Any]
Answer = dict[str, Any]

_SOURCE = Path(__file__).with_name("oracle") / "main.go"


def cache_path() -> Path:
    """Where the executable of exactly this source belongs."""
    base = os.environ.get("MUSTER_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    digest = hashlib.sha256(_SOURCE.read_bytes() + Path(build.__file__).read_bytes()).hexdigest()[:12]
    return Path(base) / "muster" / f"oracle-{build.K8S_VERSION}-{digest}" / "oracle"


def ensure_binary() -> Path:
    """The executable; compiled when the cache does not have it (seconds after the control plane was built here)."""
    binary = cache_path()
    if binary.exists():
        return binary
    folder = binary.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    with build._locked(folder.with_name(folder.name + ".lock")):
        if not binary.exists():
            _build(binary)
    return binary


def _build(binary: Path) -> None:
    go = build.find_go()
    build.say(f"building the filter plugins of Kubernetes {build.K8S_VERSION} with {go}, once: 5 minutes at the most")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".building-", dir=binary.parent.parent) as text:
        source, finished = Path(text) / "source", Path(text) / "finished"
        source.mkdir()
        finished.mkdir()
        shutil.copy(_SOURCE, source / "main.go")
        build._write_module(go, source)
        build._go(
            go, source, "compiling", "build", "-v", "-trimpath", "-ldflags=-s -w", "-o", str(finished / "oracle"), "."
        )
        shutil.rmtree(binary.parent, ignore_errors=True)
        finished.rename(binary.parent)
    build.say(f"built {binary} in {time.monotonic() - started:.0f} s")


class Oracle:
    """A running oracle. Use as a context manager; it is asked by one thread at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(ensure_binary())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "GOMAXPROCS": "2"}
        )

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(10)

    def ask(self, question: Question) -> Answer:
        """Return the answer to one question. Raises RuntimeError when the oracle cannot answer."""
        return next(self.ask_all([question]))

    def ask_all(self, questions: Iterable[Question]) -> Iterator[Answer]:
        """Yield the answers in order while later questions are on their way; all of them must be taken."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        asked = list(questions)

        def feed() -> None:
            with contextlib.suppress(BrokenPipeError):  # whoever reads the answers sees that the oracle has ended
                for question in asked:
                    stdin.write(json.dumps(question).encode() + b"\n")
                stdin.flush()

        feeder = threading.Thread(target=feed, daemon=True)
        feeder.start()
        for question in asked:
            line = stdout.readline()
            if not line:
                raise RuntimeError(f"the oracle ended with status {self._process.wait(10)}")
            answer: Answer = json.loads(line)
            if "error" in answer:
                raise RuntimeError(f"the oracle cannot answer: {answer['error']}\n{json.dumps(question)}")
            yield answer
        feeder.join()


if __name__ == "__main__":
    try:
        print(ensure_binary())
    except build.BuildError as error:
        sys.exit(f"error: {error}")
