"""Objects as real operators write them become these model values, and are answered with these patches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dialects import golden


@pytest.mark.parametrize("path", golden.inputs(), ids=lambda path: f"{path.parent.name}/{path.name.split('.')[0]}")
def test_an_operators_object_is_read_as_recorded(path: Path) -> None:
    recorded = golden.output_of(path)
    assert recorded.exists(), "run python -m tests.dialects.golden and read what it wrote"
    assert golden.render(path) == recorded.read_text()


def test_every_recorded_output_has_its_input() -> None:
    outputs = {path.name.removesuffix(".output.yaml") for path in golden.TESTDATA.glob("*/*.output.yaml")}
    assert outputs == {path.name.removesuffix(".input.yaml") for path in golden.inputs()}
