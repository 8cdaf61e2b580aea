"""Where the programs of the cluster come from, with a pretended go command in place of the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.controlplane import build

FAKE_GO = """#!{python} -IS
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
arguments = sys.argv[1:]
with (here / "calls").open("a") as calls:
    calls.write(" ".join(arguments[:2]) + "\\n")
if arguments[:2] == ["env", "GOVERSION"]:
    print((here / "version").read_text())
elif arguments[:2] == ["mod", "download"]:
    print(json.dumps({{"GoMod": str(here / "upstream.mod")}}))
elif arguments[:2] == ["mod", "edit"]:
    (here / "edits").write_text(" ".join(arguments[2:]))
elif arguments[0] == "build":
    if (here / "broken").exists():
        sys.exit("main.go:1: does not compile")
    output = pathlib.Path(arguments[arguments.index("-o") + 1])
    output.write_text("#!/bin/sh\\n")
    output.chmod(0o755)
"""
UPSTREAM = """module k8s.io/kubernetes

go 1.26.0

require (
\tgithub.com/spf13/cobra v1.10.2
\tk8s.io/api v0.0.0
\tk8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad
\tk8s.io/metrics v0.0.0 // indirect
)
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a pretended go command that is first on PATH; the cache is empty."""
    folder = tmp_path / "go"
    folder.mkdir()
    (folder / "go").write_text(FAKE_GO.format(python=sys.executable))
    (folder / "go").chmod(0o755)
    (folder / "version").write_text("go1.26.8")
    (folder / "upstream.mod").write_text(UPSTREAM)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return folder


def builds(go: Path) -> int:
    return [line.split()[0] for line in (go / "calls").read_text().splitlines()].count("build")


def test_a_build_lands_in_the_cache_and_happens_once(go: Path, tmp_path: Path) -> None:
    first = build.ensure_binary()
    assert first == build.ensure_binary() == build.cache_path()
    assert first.is_relative_to(tmp_path / "cache" / "muster")
    assert os.access(first, os.X_OK)
    assert builds(go) == 1
    assert sorted(each.suffix for each in first.parent.parent.iterdir() if each != first.parent) == [".lock"]


def test_two_builds_at_once_become_one(go: Path) -> None:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(build.ensure_binary())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [build.cache_path()] * 3
    assert builds(go) == 1


def test_only_the_libraries_without_a_version_are_replaced(go: Path) -> None:
    build.ensure_binary()
    release = "v0." + build.K8S_VERSION.removeprefix("1.")
    assert (go / "edits").read_text().split() == [
        f"-require=k8s.io/kubernetes@v{build.K8S_VERSION}",
        f"-replace=k8s.io/api=k8s.io/api@{release}",
        f"-replace=k8s.io/metrics=k8s.io/metrics@{release}",
    ]


def test_a_failed_build_says_why_and_leaves_nothing_in_the_cache(go: Path) -> None:
    (go / "broken").touch()
    with pytest.raises(build.BuildError, match=r"(?s)does not compile.*KUBEBUILDER_ASSETS"):
        build.ensure_binary()
    assert not build.cache_path().parent.exists()
    (go / "broken").unlink()
    assert build.ensure_binary().exists()


def test_an_old_go_is_passed_over_and_a_failed_installation_says_what_to_do(
    go: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (go / "version").write_text("go1.19.2")
    python = tmp_path / "venv" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "pip: no network" >&2; exit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(build.BuildError, match=r"(?s)no network.*Install Go 1\.26"):
        build.ensure_binary()
    assert builds(go) == 0


def test_provided_executables_are_used_and_the_others_are_built(
    go: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (assets / name).write_text("#!/bin/sh\n")
        (assets / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    build.ensure("etcd", "kube-apiserver")
    assert not (go / "calls").exists()
    assert build.program("etcd") == [str(assets / "etcd")]
    assert build.program("hollow-node") == [str(build.cache_path()), "hollow-node"]
    assert builds(go) == 1


def test_a_directory_without_an_api_server_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(build.BuildError, match="has no executable kube-apiserver"):
        build.program("kube-apiserver")


def test_an_unknown_program_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown program 'kube-proxy'"):
        build.program("kube-proxy")


@pytest.mark.real
def test_the_executable_explains_itself(real_control_plane: object) -> None:
    done = subprocess.run([str(build.ensure_binary()), "kube-nothing"], capture_output=True, text=True)
    assert done.returncode == 2
    for name in build.PROGRAMS:
        assert name in done.stderr
