"""Where the files are that come with the source tree: custom resource definitions and sample manifests.

They stand in `config/` beside the package and are not copied into it, so that there is one of each: the commands that
need them (demo, playground) run from a clone. Must not know what the files say.
"""

from __future__ import annotations

from pathlib import Path

import scheduler


class NotShipped(FileNotFoundError):
    """A file of the source tree that is not beside this installation."""


def shipped(name: str) -> Path:
    """Return the path of a file or folder of the source tree. Raises `NotShipped`."""
    path = Path(scheduler.__file__).resolve().parent.parent / name
    if not path.exists():
        raise NotShipped(f"{path} does not exist: run this command from a clone of the repository (make setup)")
    return path
