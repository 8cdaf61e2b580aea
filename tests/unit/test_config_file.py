"""A configuration file that is written anew, swapped as a mounted ConfigMap is, or gone for a while."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.app import load_configuration
from scheduler.cli.main import app
from scheduler.config import ConfigError
from scheduler.config_file import ConfigFile


def swap(folder: Path, number: int, text: str) -> None:
    """What the kubelet does: a new folder, a link to it beside, renamed over `..data`."""
    data = folder / f"..2026_{number}"
    data.mkdir()
    (data / "config.yaml").write_text(text)
    (folder / "..data_tmp").symlink_to(data.name)
    os.replace(folder / "..data_tmp", folder / "..data")


def test_a_mounted_config_map_is_followed_when_its_folder_is_swapped(tmp_path: Path) -> None:
    swap(tmp_path, 1, "a: 1")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    file = ConfigFile(tmp_path / "config.yaml")
    assert file.changed() is None
    swap(tmp_path, 2, "a: 2")
    assert file.changed() == b"a: 2"
    assert file.changed() is None
    swap(tmp_path, 3, "a: 2")
    assert file.changed() is None, "other file, same words"


@pytest.mark.parametrize("text", ["", "---\n", "# nothing\n", "{}", "kind: ConfigMap\ndata: {config.yaml: ''}\n"])
def test_an_empty_file_is_not_all_defaults(text: str) -> None:
    with pytest.raises(ConfigError, match="it is empty; it must say at least apiVersion"):
        load_configuration(None, content=text.encode())


def test_what_cannot_be_read_names_its_file_once(tmp_path: Path) -> None:
    for name, text in (("none", None), ("empty", ""), ("list", "[]"), ("broken", "a: [")):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        said = CliRunner().invoke(app, ["config", "check", str(path)])
        assert said.exit_code
        assert said.output.count(str(path)) == 1, said.output


def test_a_file_that_was_gone_counts_as_changed(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1")
    file = ConfigFile(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        file.changed()
    assert file.changed() is None, "told once"
    path.write_text("a: 1")
    assert file.changed() == b"a: 1"
