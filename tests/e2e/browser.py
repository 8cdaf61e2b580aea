"""The Chromium that tests of the page drive: where it is, and how it is installed where nobody has to be asked.

    python -m tests.e2e.browser        # installs Debian's package, as root; else says what to do

Decided here: any Chromium or Chrome on the PATH will do (or the one that MUSTER_CHROMIUM names). Nothing is downloaded
but packages of the distribution.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
HOW = (
    "no Chromium is installed, so the page is not tested in a browser: install it (Debian, Ubuntu: "
    "`sudo apt-get install chromium`; Fedora: `sudo dnf install chromium`; macOS: Chrome on the PATH), "
    "or name one in MUSTER_CHROMIUM"
)


def find() -> str | None:
    """Return the path of a browser, or None."""
    named = os.environ.get("MUSTER_CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)


def main() -> int:
    """Install one where there is none and that can be done without asking; 1 where it was tried in vain."""
    if find() is not None:
        return 0
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(HOW, file=sys.stderr)
        return 0
    print("installing chromium (for tests of the page) ...")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"]):
        done = subprocess.run(["apt-get", "-qq", *words], env=quiet, capture_output=True, text=True)
        if done.returncode:
            print(f"apt-get {words[0]} failed:\n{done.stdout}{done.stderr}{HOW}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
