"""That the benchmarks run: a small round of every case that needs no API server; how fast they are is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CASES = ("engine", "topology", "session", "quota", "victims", "queues", "moves", "page", "parity-session")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_small_round_of_every_case_has_a_figure(tmp_path: Path) -> None:
    only = [word for name in CASES for word in ("--only", name)]
    command = [sys.executable, "-m", "tests.perf.bench", "--quick", "--json", str(tmp_path / "rows.json"), *only]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert "failed" not in done.stdout, done.stderr[-4000:]
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert {row["command"] for row in rows} == {f"bench --only {name} --quick" for name in CASES}
    assert all(row["figure"] for row in rows)
