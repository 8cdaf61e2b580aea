"""`kubectl muster` as krew installs it: the manifest is what krew demands, the archive is the one that it names."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

import yaml

from scheduler import __version__
from tests.deploy import krew


def test_the_manifest_is_what_is_made_of_the_tree() -> None:
    assert krew.MANIFEST.read_text() == krew.manifest(), "run `python -m tests.deploy.krew`"


def test_the_manifest_has_what_krew_demands() -> None:
    document = yaml.safe_load(krew.MANIFEST.read_text())
    assert (document["apiVersion"], document["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[a-z0-9-]+", document["metadata"]["name"])
    assert document["metadata"]["name"] == krew.MANIFEST.stem, "krew demands it"
    spec = document["spec"]
    assert set(spec) <= {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert spec["version"] == f"v{__version__}"
    assert 0 < len(spec["shortDescription"]) <= 50
    (platform,) = spec["platforms"]
    assert set(platform) == {"selector", "uri", "sha256", "bin"}
    assert platform["uri"].startswith("https://")
    assert platform["uri"].endswith((".zip", ".tar.gz"))
    assert platform["sha256"] == hashlib.sha256(krew.archive()).hexdigest()


def test_the_launcher_of_the_archive_runs_what_is_installed_or_fetches_this_version(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(krew.archive())) as packed:
        packed.extractall(tmp_path, filter="data")
    launcher = tmp_path / "kubectl-muster"
    assert (tmp_path / "LICENSE").exists()

    def run(*tools: str) -> subprocess.CompletedProcess[str]:
        found = tmp_path / "-".join(("bin", *tools))
        found.mkdir()
        for tool in tools:
            (found / tool).write_text(f'#!/bin/sh\necho {tool} "$@"\n')
            (found / tool).chmod(0o755)
        (found / "sh").symlink_to("/bin/sh")
        return subprocess.run(
            ["/bin/sh", launcher, "why", "train"],
            env={**os.environ, "PATH": str(found)},
            capture_output=True,
            text=True,
        )

    assert run("muster", "uvx").stdout == "muster why train\n"
    assert run("uvx", "pipx").stdout == f"uvx --quiet --from muster-scheduler=={__version__} muster why train\n"
    assert run("pipx").stdout == f"pipx run --quiet --spec muster-scheduler=={__version__} muster why train\n"
    nothing = run()
    assert nothing.returncode == 1
    assert "pip install muster-scheduler" in nothing.stderr
