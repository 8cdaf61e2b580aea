"""The real Prometheus: PROMETHEUS and PROMTOOL when set, else those on PATH, else Debian's package in the user's cache.

    python -m tests.deploy.prometheus build      # fills the cache

Decides where the programs come from. The package is downloaded and unpacked, not installed, so nobody needs to be root.
Invariant: a folder in the cache is either absent or complete.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.controlplane.build import BuildError, cache_path, say

_HELP = "Set PROMETHEUS and PROMTOOL to the programs of a Prometheus 2.40 or newer, or put them on PATH."


def ensure(name: str) -> str:
    """Return `prometheus` or `promtool`, fetched if need be. Raises `BuildError`."""
    given = os.environ.get(name.upper()) or shutil.which(name)
    if given:
        return given
    folder = cache_path().parent.parent / "prometheus-debian"
    program = folder / "usr" / "bin" / name
    if not program.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _fetch(folder)
    return str(program)


def _fetch(folder: Path) -> None:
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise BuildError(f"no prometheus here, and no {tool} to fetch Debian's. {_HELP}")
    say("fetching Debian's prometheus, once: 20 MB")
    with tempfile.TemporaryDirectory(prefix=".prometheus-", dir=folder.parent) as text:
        scratch = Path(text)
        download = ["apt-get", "download", "prometheus"]
        got = subprocess.run(download, cwd=scratch, capture_output=True, text=True)
        if got.returncode:  # the lists may be old or missing; only root can fetch them
            subprocess.run(["apt-get", "update"], capture_output=True)
            got = subprocess.run(download, cwd=scratch, capture_output=True, text=True)
        if got.returncode:
            raise BuildError(f"`{' '.join(download)}` failed:\n{got.stderr[-2000:]}\n{_HELP}")
        unpacked = scratch / "unpacked"
        [package] = scratch.glob("*.deb")
        subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=True)
        if not folder.exists():  # somebody else may have been faster
            unpacked.rename(folder)


if __name__ == "__main__":
    try:
        if sys.argv[1:] != ["build"]:
            sys.exit(__doc__)
        print(ensure("prometheus"))
    except BuildError as error:
        sys.exit(f"error: {error}")
