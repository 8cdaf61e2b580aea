"""docs/parity.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.scenarios.test_scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "parity.md").read_text()


def test_the_scenarios_that_the_page_names_exist() -> None:
    named = set(re.findall(r"\bS[A-Z]{2,}\d*[A-Z]?\b", PAGE))
    assert len(named) > 40
    assert named <= {scenario.id for scenario in SCENARIOS}


def test_the_test_modules_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert named
    assert named <= {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
