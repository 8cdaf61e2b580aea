"""Showing something again and again until Ctrl-C: in place on a terminal, one below the other elsewhere.

Decided here: form and pace only. A look reads the cluster anew, so where it takes long, as in a large one, there are
fewer looks than were asked for: whoever watches must not keep the API server busy. What fails once while it is shown is
told and tried again; a first look that fails ends the command, because then it is the command that is wrong.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime

from scheduler.cli.output import OK

_REST = 4
"""Between two looks passes at least so many times what the last one took."""


def again(
    look: Callable[[], int],
    interval: float,
    rounds: int | None = None,
    *,
    timer: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Call `look`, which prints and returns an exit code, each `interval` seconds; exit code of the first failure.

    rounds: end after so many looks; None: go on until interrupted, which is no error.
    """
    done, pause = 0, interval
    try:
        while True:
            if sys.stdout.isatty():
                print("\033[H\033[2J", end="")
            print(f"-- {datetime.now().astimezone():%H:%M:%S}, each {pause:.3g} s", flush=True)
            began = timer()
            code = look()
            pause = max(interval, _REST * (timer() - began))
            sys.stdout.flush()
            done += 1
            if code != OK and done == 1:
                return code
            if done == rounds:
                return code
            sleep(pause)
    except KeyboardInterrupt:
        return OK
