"""The tutorials, done as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, missing, reader

PAGES = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "tutorial").glob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_comes_true(page: str, tmp_path: Path):
    with reader(tmp_path) as somebody:
        assert somebody.read(page) > 4


def test_what_is_run_and_what_is_shown():
    run = "a\n\n```sh\nx\n```\n\n```\n1 ... 2\n```\n\n```yaml\nno: 1\n```\n"
    text = run + "\n   ```sh\n   y\n   ```\n\nwords\n\n```\nz\n```\n"
    assert [(block.line, block.commands, block.shown) for block in blocks(text)] == [
        (3, "x\n", "1 ... 2\n"), (15, "y\n", ""),
    ]  # fmt: skip
    assert missing("1 ... 2\n3\n", "0   1  and 2 more\n4\n") == ["3"]
