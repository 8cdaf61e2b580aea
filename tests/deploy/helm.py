"""The real helm: HELM when that is set, else the one on PATH, else built once from its Go module into the user's cache.

    python -m tests.deploy.helm build      # fills the cache
    python -m tests.deploy.helm render     # writes deploy/kustomize/muster.yaml again

Decides where the program comes from and how it is called. Invariant: a path in the cache is either absent or a complete
executable of exactly this release.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.controlplane.build import K8S_VERSION, BuildError, cache_path, find_go, say

RELEASE = "v3.19.2"
ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "muster"
RENDERED = ROOT / "deploy" / "kustomize" / "muster.yaml"
_HEAD = "# Rendered from deploy/helm/muster by `python -m tests.deploy.helm render`; a test holds the two equal.\n"


def ensure() -> str:
    """Return a helm, built if need be (minutes, with progress on stderr). Raises `BuildError`."""
    given = os.environ.get("HELM") or shutil.which("helm")
    if given:
        return given
    folder = cache_path().parent.parent / f"helm-{RELEASE}"
    program = folder / "helm"
    if not program.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _build(folder)
    return str(program)


def _build(folder: Path) -> None:
    go = find_go()
    say(f"building helm {RELEASE} from its Go module, once: about 4 minutes on 2 idle cores")
    done = threading.Event()
    threading.Thread(target=_tell, args=(done,), daemon=True).start()
    try:
        with tempfile.TemporaryDirectory(prefix=".helm-", dir=folder.parent) as text:
            environment = {**os.environ, "GOBIN": text, "GOWORK": "off", "GOFLAGS": ""}
            command = ["nice", go, "install", "-trimpath", f"helm.sh/helm/v3/cmd/helm@{RELEASE}"]
            built = subprocess.run(command, env=environment, capture_output=True, text=True)
            if built.returncode:
                raise BuildError(f"`{' '.join(command)}` failed:\n{built.stderr[-2000:]}\nOr set HELM to a helm 3.")
            staged = Path(text) / "done"
            staged.mkdir()
            (Path(text) / "helm").rename(staged / "helm")
            if not folder.exists():  # somebody else may have been faster
                staged.rename(folder)
    finally:
        done.set()


def _tell(done: threading.Event) -> None:
    started = time.monotonic()
    while not done.wait(5.0):
        say(f"compiling helm: {time.monotonic() - started:.0f} s")


def run(*arguments: str, kubeconfig: Path | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run helm; its own state goes nowhere. Raises `CalledProcessError` with what it said."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HELM_CACHE_HOME": home, "HELM_CONFIG_HOME": home, "HELM_DATA_HOME": home}
        if kubeconfig is not None:
            environment["KUBECONFIG"] = str(kubeconfig)
        done = subprocess.run([ensure(), *arguments], env=environment, capture_output=True, text=True, timeout=180)
    if check and done.returncode:
        raise AssertionError(f"helm {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def template(*values: str, name: str = "muster", namespace: str = "muster-system") -> str:
    """Return the rendered chart. values: what --set takes."""
    sets = [word for value in values for word in ("--set-json", value)]
    return run("template", name, str(CHART), "--namespace", namespace, "--kube-version", K8S_VERSION, *sets).stdout


def kustomized() -> str:
    """Return what deploy/kustomize/muster.yaml must hold: the chart with its defaults, not marked as helm's."""
    kept = [
        line
        for line in template().splitlines()
        if "managed-by: Helm" not in line and "helm.sh/chart" not in line and not line.startswith("# Source:")
    ]
    return _HEAD + "\n".join(kept) + "\n"


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["build"]:
                print(ensure())
            case ["render"]:
                RENDERED.write_text(kustomized())
                print(RENDERED)
            case _:
                sys.exit(__doc__)
    except BuildError as error:
        sys.exit(f"error: {error}")
