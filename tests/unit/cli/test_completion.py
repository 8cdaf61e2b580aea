"""Completion in real shells: what is offered behind a word that was begun. Cases of a shell that is not here are left
out with its name; bash is everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.playground.server import ThreadedServer
from tests.controlplane import build
from tests.unit.cli.cluster import filled

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with filled() as running:
        assert isinstance(running, ThreadedServer)
        yield running.write_kubeconfig(tmp_path_factory.mktemp("cli") / "kubeconfig")


@pytest.fixture(scope="module")
def environment(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `muster` and what kubectl looks for are found."""
    folder = tmp_path_factory.mktemp("bin")
    patient = "from scheduler.cli import completion; completion._PATIENCE = 50.0; "  # the machine may be busy
    begin = f"{patient}from scheduler.__main__ import main; main()"
    complete = f"{patient}completion.kubectl()"
    for name, code in (("muster", begin), ("kubectl-muster", begin), ("kubectl_complete-muster", complete)):
        file = folder / name
        file.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
        file.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig), "HOME": str(folder)}


def _said(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _bash(environment: dict[str, str], *words: str) -> set[str]:
    script = f"""
    source <(muster completion bash)
    COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
    _muster_completion muster
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return set(_said(environment, "bash", "-c", script).split())


def test_bash_completes_commands_options_and_choices(environment: dict[str, str]) -> None:
    assert _bash(environment, "muster", "su") == {"suspend"}
    assert _bash(environment, "muster", "config", "") >= {"check", "show", "diff"}
    assert _bash(environment, "muster", "queue", "--wat") == {"--watch"}
    assert _bash(environment, "muster", "get", "q") == {"queues"}


def test_bash_completes_names_of_the_cluster(environment: dict[str, str]) -> None:
    assert _bash(environment, "muster", "prio", "-n", "ml", "s") == {"serve", "sweep"}
    assert _bash(environment, "muster", "queue", "re") == {"research"}
    assert _bash(environment, "muster", "suspend", "queue/in") == {"queue/inference"}


@pytest.mark.slow
def test_a_cluster_that_cannot_be_asked_has_no_names_and_nothing_is_said(environment: dict[str, str]) -> None:
    nowhere = environment | {"KUBECONFIG": "/nonexistent"}
    assert _bash(nowhere, "muster", "queue", "re") == set()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_commands(environment: dict[str, str]) -> None:
    script = """
    autoload -Uz compinit; compinit -u
    source <(muster completion zsh)
    _arguments() { print -rl -- "$@" }
    words=(muster su); CURRENT=2
    functions[_describe]='print -rl -- "${(@P)2}" "${(@P)3}"'
    _muster_completion
    """
    assert "suspend" in _said(environment, "zsh", "-fc", script)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands(environment: dict[str, str]) -> None:
    script = "muster completion fish | source; complete --do-complete 'muster su'"
    assert _said(environment, "fish", "--no-config", "-c", script).split("\t")[0].strip() == "suspend"


def test_kubectl_completes_behind_its_plugin(environment: dict[str, str]) -> None:
    assert _said(environment, "kubectl_complete-muster", "su").splitlines() == ["suspend", ":4"]
    assert _said(environment, "kubectl_complete-muster", "queue", "re").splitlines() == ["research", ":4"]


@pytest.mark.real
@pytest.mark.slow
def test_kubectl_runs_the_plugin_and_completes_behind_it(environment: dict[str, str]) -> None:
    kubectl = [str(word) for word in build.program("kubectl")]
    assert _said(environment, *kubectl, "muster", "queue", "research", "-o", "name").split()[0] == "ml/next"
    assert _said(environment, *kubectl, "__complete", "muster", "su").splitlines()[0] == "suspend"
