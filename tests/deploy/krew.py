"""The archive that krew downloads, and the manifest that names its checksum.

    python -m tests.deploy.krew [ARCHIVE]     # writes deploy/krew/muster.yaml again, and the archive where one is named

Decided here: what is in the archive (the launcher and the licence) and that it is the same, byte for byte, wherever it
is made, so that the checksum can stand in the tree.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import tarfile
from pathlib import Path

import yaml

from scheduler import __version__

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy" / "krew" / "muster.yaml"
LAUNCHER = ROOT / "deploy" / "krew" / "kubectl-muster"
RELEASES = "https://github.com/muster-scheduler/muster/releases/download"
HEAD = """\
# krew's manifest of `kubectl muster`; made by `python -m tests.deploy.krew`. Whoever publishes a release puts the
# archive there. Until then: kubectl krew install --manifest=deploy/krew/muster.yaml --archive=ARCHIVE
"""


def archive() -> bytes:
    """Return the archive: always the same bytes for the same files."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as made:
        for path, mode in ((LAUNCHER, 0o755), (ROOT / "LICENSE", 0o644)):
            entry = tarfile.TarInfo(path.name)
            entry.size, entry.mode = path.stat().st_size, mode
            made.addfile(entry, io.BytesIO(path.read_bytes()))
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=0, mtime=0) as file:  # not compressed: zlibs differ
        file.write(plain.getvalue())
    return packed.getvalue()


def manifest() -> str:
    """Return what deploy/krew/muster.yaml must hold."""
    platform = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["darwin", "linux"]}]},
        "uri": f"{RELEASES}/v{__version__}/kubectl-muster.tar.gz",
        "sha256": hashlib.sha256(archive()).hexdigest(),
        "bin": "kubectl-muster",
    }
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "muster"},
        "spec": {
            "version": f"v{__version__}",
            "homepage": RELEASES.partition("/releases")[0],
            "shortDescription": "See why gangs wait, and how queues share a cluster",
            "description": "Looks at a cluster through the eyes of the Muster gang scheduler: who waits, in which "
            "order and why, how queues share what there is, what is free in which rack, and whether a job would start "
            "now. Most commands only read, and work without the scheduler.",
            "caveats": "Needs Python 3.11: the command muster, or uv or pipx, which fetch it on first use.",
            "platforms": [platform],
        },
    }
    return HEAD + yaml.safe_dump(document, sort_keys=False, width=120)


if __name__ == "__main__":
    MANIFEST.write_text(manifest())
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_bytes(archive())
