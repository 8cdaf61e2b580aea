"""Runs the commands of a page as its reader would, and looks for what the page shows.

Decided here: what of a page is run. A fenced block marked `sh` is; a fence without a mark right behind it is what the
command prints. A block whose command goes on (`muster playground`, `muster run`) runs in a terminal of its own. The
others share one shell's variables and stop at the first error. A line that is shown matches a printed line when its
words occur there in order, `...` standing for anything. A block is run again until its lines are there, for as long as
the cluster may take: readers look twice too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane import build

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
"""Seconds that a page's cluster may take to come to what is shown."""
_FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_GOES_ON = re.compile(r"^\.venv/bin/muster (playground|run)\b")


@dataclass(frozen=True, slots=True)
class Block:
    """Commands, and what they print ("" = the page does not show it)."""

    line: int
    commands: str
    shown: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether the command runs until it is stopped."""
        return bool(_GOES_ON.match(self.commands))


def blocks(text: str) -> list[Block]:
    """Return what of a page is run, in order."""
    found: list[Block] = []
    end = 0
    for fence in _FENCE.finditer(text):
        indent, mark, body = fence.groups()
        body = "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
        if mark == "sh":
            found.append(Block(text.count("\n", 0, fence.start()) + 1, body))
        elif mark == "" and found and not text[end : fence.start()].strip():
            found[-1] = Block(found[-1].line, found[-1].commands, body)
        end = fence.end()
    return found


def missing(shown: str, printed: str) -> list[str]:
    """Return the lines that are shown and were not printed."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    patterns = [
        (line, re.compile(".*".join(re.escape(part.strip()) for part in re.split(r"\.\.\.", " ".join(line.split())))))
        for line in shown.splitlines()
        if line.strip()
    ]
    return [line for line, pattern in patterns if not any(pattern.search(printed) for printed in lines)]


class Reader:
    """Somebody in a clone, with kubectl and what `make setup` made. Use as a context manager."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        """kubeconfig: of the reader's own cluster, if they have one."""
        self.folder = folder
        for name in ("config", "deploy", "docs"):
            (folder / name).symlink_to(ROOT / name)
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        self._program(programs / "muster", f'exec {sys.executable} -m scheduler "$@"')
        self._program(programs / "kubectl", f'exec {" ".join(build.program("kubectl"))} "$@"')
        self._program(programs / "make", '[ "$*" = setup ]')
        self._variables = folder / ".variables"
        self._open: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
            "PATH": f"{programs}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "COLUMNS": "400",
            **({} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}),
        }

    @staticmethod
    def _program(file: Path, text: str) -> None:
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def read(self, page: str, begin: str = "", end: str = "") -> int:
        """Run a page, named from the top of the tree, or what is between two of its lines; return how many blocks were
        run. Raises AssertionError."""
        text = (ROOT / page).read_text()
        first = text.index(begin)
        found = blocks(text[first : text.index(end, first) if end else len(text)])
        for block in found:
            where = f"{page}:{block.line}"
            if block.goes_on:
                self._start(block, where)
            else:
                self._run(block, where)
        return len(found)

    def _start(self, block: Block, where: str) -> None:
        log = self.folder / f"terminal-{len(self._open)}.log"
        port = " --health-address 127.0.0.1:0" if block.commands.split()[1] == "run" else ""
        command = ["bash", "-c", f"exec {block.commands.strip()}{port}"]
        self._open.append(
            subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=log.open("wb"), stderr=subprocess.STDOUT
            )
        )
        ready = re.compile(r"KUBECONFIG=|all resources are listed")
        deadline = time.monotonic() + PATIENCE
        while not ready.search(log.read_text()):
            ended = self._open[-1].poll() is not None
            assert not ended and time.monotonic() < deadline, f"{where} does not start:\n{log.read_text()}"
            time.sleep(0.05)

    def _run(self, block: Block, where: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            known = f"[ ! -e {self._variables} ] || . {self._variables}\n"
            script = f"set -e -o pipefail\n{known}{block.commands}\nexport -p > {self._variables}\n"
            done = subprocess.run(
                ["bash", "-c", script], cwd=self.folder, env=self._environment, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=120,
            )  # fmt: skip
            lost = missing(block.shown, done.stdout)
            if done.returncode == 0 and not lost:
                return
            if not block.shown or time.monotonic() > deadline:
                told = "\n".join([f"{where}: status {done.returncode}; not printed:", *lost, done.stdout, done.stderr])
                raise AssertionError(told)
            time.sleep(0.2)

    def close(self) -> None:
        """Press Ctrl-C in every terminal."""
        for process in reversed(self._open):
            process.terminate()
            process.wait(30)


@contextmanager
def reader(folder: Path, kubeconfig: Path | None = None) -> Iterator[Reader]:
    """Return somebody who reads, and end what they started."""
    made = Reader(folder, kubeconfig)
    try:
        yield made
    finally:
        made.close()
