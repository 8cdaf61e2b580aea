"""Showing something again and again until Ctrl-C: in place on a terminal, one below the other elsewhere.

Decided here: form and pace only. What fails once while it is shown is told and tried again; a first look that fails
ends the command, because then it is the command that is wrong.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime

from scheduler.cli.output import OK


def again(look: Callable[[], int], interval: float, rounds: int | None = None) -> int:
    """Call `look`, which prints and returns an exit code, each `interval` seconds; exit code of the first failure.

    rounds: end after so many looks; None: go on until interrupted, which is no error.
    """
    done = 0
    try:
        while True:
            if sys.stdout.isatty():
                print("\033[H\033[2J", end="")
            print(f"-- {datetime.now().astimezone():%H:%M:%S}, each {interval:g} s", flush=True)
            code = look()
            sys.stdout.flush()
            done += 1
            if code != OK and done == 1:
                return code
            if done == rounds:
                return code
            time.sleep(interval)
    except KeyboardInterrupt:
        return OK
