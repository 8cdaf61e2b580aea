"""What the io process does not import: start-up is on the way to the first bind."""

from __future__ import annotations

import subprocess
import sys


def test_the_io_process_imports_nothing_that_decides_and_no_web_framework() -> None:
    heavy = ["numpy", "ortools", "networkx", "aiohttp", "kubernetes", "scheduler.framework", "scheduler.actions"]
    code = (
        "import sys, scheduler.io_process; from scheduler.app import load_configuration; load_configuration(None); "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
