"""Whether a configuration file says something else than when it was last looked at.

Decided here: what counts as a change: the content, not the file, so that a mounted ConfigMap (whose files are links
into a folder that is swapped as a whole) and an editor that writes a new file are followed alike. A file that could
not be read counts as changed once it can be.
"""

from __future__ import annotations

from pathlib import Path


class ConfigFile:
    """A file as it was last seen; its first look is that of the constructor. Raises `OSError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: bytes | None = path.read_bytes()

    def changed(self) -> bytes | None:
        """Return the content where it is another than at the last look, else None.

        Raises `OSError` at the first look at which it cannot be read; as long as that lasts there is no change.
        """
        try:
            content = self.path.read_bytes()
        except OSError:
            if self._seen is None:
                return None
            self._seen = None
            raise
        if content == self._seen:
            return None
        self._seen = content
        return content
