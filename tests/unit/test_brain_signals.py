"""The deciding process and signals that reach the whole group of processes."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

from scheduler.app import start_brain
from scheduler.config import SchedulerConfiguration


def _ignores(pid: int, number: signal.Signals) -> bool:
    [mask] = re.findall(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_it_outlives_a_signal_to_the_group_and_ends_with_its_line() -> None:
    brain = start_brain(SchedulerConfiguration())
    try:
        deadline = time.monotonic() + 60
        while not _ignores(brain.process.pid, signal.SIGINT):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        brain.process.send_signal(signal.SIGINT)
        brain.process.send_signal(signal.SIGTERM)
        brain.line.close()
        assert brain.process.wait(30) == 0
    finally:
        brain.process.kill()
        brain.process.wait()
