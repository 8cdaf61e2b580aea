"""Files of manifests: what is read as an object, and that whatever else they hold is told with the file's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.cli.documents import documents_of
from scheduler.cli.main import app
from scheduler.cli.workloads import Unusable


def read(tmp_path: Path, content: bytes) -> list[dict[str, object]]:
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    return list(documents_of([file]))


def test_lists_and_several_documents_are_read_one_by_one(tmp_path: Path):
    lists = b"{kind: List, items: [{kind: B}, {kind: List}]}\n---\n---\n{kind: QueueList, items: [{kind: Q}]}"
    text = b"{kind: A}\n---\n" + lists
    assert [one["kind"] for one in read(tmp_path, text)] == ["A", "B", "Q"]


def test_a_kind_may_end_in_list_without_being_one(tmp_path: Path):
    assert read(tmp_path, b"{kind: AllowList, spec: {}}") == [{"kind": "AllowList", "spec": {}}]


def test_a_date_is_text_as_it_is_for_kubectl(tmp_path: Path):
    text = b"{kind: A, metadata: {annotations: {built: 2024-01-31, at: 2001-99-99, when: 2024-01-31T10:00:00Z}}}"
    assert read(tmp_path, text)[0]["metadata"] == {
        "annotations": {"built": "2024-01-31", "at": "2001-99-99", "when": "2024-01-31T10:00:00Z"}
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"kind: \xff\xfe", "not YAML: 'utf-8' codec can't decode"),
        (b"kind: [", "not YAML: while parsing"),
        (b"{kind: A, spec: !!timestamp 2001-99-99}", "not YAML: month must be in 1..12"),
        (b"{kind: A, spec: !!set {x}}", "A cannot be written as JSON: Object of type set"),
        (b"{kind: A, spec: &a {b: *a}}", "A cannot be written as JSON: Circular"),
        (b"{kind: A, spec: .inf}", "A cannot be written as JSON: Out of range"),
        (b"[" * 5000, "not YAML: maximum recursion depth"),
        (b"{kind: 3}", "a document is not an object with a kind, it has kind"),
        (b"{kind: A}\n---\n[]", "document 2: a document is not an object with a kind, it is a list"),
        (b"{kind: List, items: [{kind: A}, 7]}", "items[1]: a document is not an object with a kind, it is 7"),
    ],
)
def test_what_is_no_object_is_told_with_the_name_of_the_file(tmp_path: Path, content: bytes, said: str):
    with pytest.raises(Unusable, match=r"a\.yaml: ") as raised:
        read(tmp_path, content)
    assert said in str(raised.value)


@pytest.mark.parametrize("words", [("lint", "-f"), ("convert",), ("simulate", "-f")])
def test_no_command_falls_over_a_file_that_is_no_text(tmp_path: Path, words: tuple[str, ...]):
    file = tmp_path / "a.yaml"
    file.write_bytes(b"kind: \xff\xfe")
    result = CliRunner().invoke(app, [*words, str(file)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "a.yaml: not YAML" in result.stderr
