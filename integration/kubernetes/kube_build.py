"""Build the control plane of Kubernetes for tests, once for each version.

The source of Kubernetes comes from the Go module proxy. Only `controlplane/` is ours: a small
`main.go` that starts the real kube-apiserver and the real controllers, and two small peers. The
binaries are kept outside the checkout, in `$XDG_CACHE_HOME/etcd-rink` or `~/.cache/etcd-rink`.
Their folder's name has the version of Kubernetes and a digest of our sources. So only a change of
either builds anew.

k8s.io/kubernetes cannot be required as other modules are: its go.mod points at folders of its own
repository for about 30 more modules. They are published with the same version number, so `go_mod`
names them all.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import attrs

KUBERNETES = "1.37.2"
SOURCES = Path(__file__).with_name("controlplane")
STAGING = re.compile(r"^\s*(k8s\.io/[a-z-]+) => \./staging/", re.MULTILINE)
REQUIRED = re.compile(r"^\s*(\S+) (v\S+?)(?: // indirect)?$", re.MULTILINE)
OPTIONS = ("-v", "-trimpath", "-ldflags=-s -w")
TARGETS = (".", "./elector", "./awaiter")
"""The packages of the binaries, in the order of `Built`."""
KEPT_S = 30 * 86400.0
"""A binary that nobody has asked for in this time is removed when another one is built."""
NEEDS_BYTES = 6 << 30
"""Go's caches take about as much for this build."""

Show = Callable[[str], None]


class NoControlPlaneError(RuntimeError):
    """Say in a sentence why there is no control plane, and what helps."""


@attrs.frozen
class Built:
    """Hold the paths of the binaries.

    Attributes:
        controlplane: apiserver and controllers.
        elector: a candidate of client-go's leader election.
        awaiter: what k8s-await-election does.
    """

    controlplane: Path
    elector: Path
    awaiter: Path


def built(version: str = KUBERNETES, show: Show = print) -> Built:
    """Return the binaries of a version of Kubernetes.

    They are built if there are none. Two builds at once do not disturb each other: the second one
    waits for the first one.

    Args:
        version: such as "1.37.2".
        show: called with a line about the progress.

    Raises:
        NoControlPlaneError: they cannot be built here; the message says why.
    """
    folder = cache() / f"kubernetes-{version}-{digest(version)}"
    binaries = Built(folder / "controlplane", folder / "elector", folder / "awaiter")
    if is_complete(binaries):
        os.utime(folder)
        return binaries
    go = go_command()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        lock_file(lock.fileno(), show)
        if not is_complete(binaries):
            with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as place:
                build(go, version, Path(place), binaries, show)
            remove_old(folder)
    return binaries


def remove_old(newest: Path) -> None:
    """Remove binaries that were not asked for in a long time."""
    for folder in newest.parent.glob("kubernetes-*"):
        if folder != newest and time.time() - folder.stat().st_mtime > KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)


def is_complete(binaries: Built) -> bool:
    """Return whether all binaries are there.

    Each one is renamed into place when it is whole.
    """
    return all(path.exists() for path in attrs.astuple(binaries))


def cache() -> Path:
    """Return the folder of what is built, outside of any checkout."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "etcd-rink"


def digest(version: str) -> str:
    """Return a short hash of our sources and of how they are built."""
    hashed = hashlib.sha256(f"{version} {OPTIONS}".encode())
    for path in sorted(SOURCES.rglob("*.go")):
        hashed.update(path.name.encode() + b"\0" + path.read_bytes())
    return hashed.hexdigest()[:12]


def lock_file(descriptor: int, show: Show) -> None:
    """Take the lock of a build. It ends with the process, whatever ends that."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        show("another process builds the control plane: waiting for it")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def go_command() -> str:
    """Return the path of Go.

    Raises:
        NoControlPlaneError: there is none.
    """
    go = shutil.which("go")
    if go is None:
        raise NoControlPlaneError(
            f"building the control plane of Kubernetes {KUBERNETES} needs Go, and there is no `go` "
            "on the PATH: install it from https://go.dev/dl"
        )
    return go


def build(go: str, version: str, place: Path, binaries: Built, show: Show) -> None:
    """Build the binaries in a temporary folder, and rename them into place."""
    began = time.monotonic()
    show(f"fetching Kubernetes {version} from the Go module proxy")
    module = downloaded(go, version)
    require_go(go, version, module)
    if shutil.disk_usage(place).free < NEEDS_BYTES:
        raise NoControlPlaneError(
            f"building Kubernetes {version} needs 6 GB on the disk of {place}"
        )
    shutil.copytree(SOURCES, place / "source")
    (place / "source" / "go.mod").write_text(go_mod(version, module))
    for path, target in zip(attrs.astuple(binaries), TARGETS, strict=True):
        output = place / f"{path.name}.built"
        compile_one(
            go, place / "source", target, output, show, f"Kubernetes {version}: {path.name}"
        )
        output.rename(path)
    show(f"built Kubernetes {version} in {time.monotonic() - began:.0f} s: {binaries.controlplane}")


def downloaded(go: str, version: str) -> str:
    """Return the go.mod of k8s.io/kubernetes, from the module proxy."""
    done = run(go, "mod", "download", "-json", f"k8s.io/kubernetes@v{version}", cwd=Path("/"))
    if done.returncode:
        said = done.stdout + done.stderr
        raise NoControlPlaneError(f"Go cannot fetch k8s.io/kubernetes v{version}: {said.strip()}")
    return Path(json.loads(done.stdout)["GoMod"]).read_text(encoding="utf-8")


def require_go(go: str, version: str, module: str) -> None:
    """Raise a sentence where Go is older than Kubernetes asks for."""
    needed = re.search(r"^go (\S+)$", module, re.MULTILINE)
    have = run(go, "env", "GOVERSION", cwd=Path("/")).stdout.strip()
    if needed and numbers(have) < numbers(needed[1]):
        raise NoControlPlaneError(
            f"building Kubernetes {version} needs Go {needed[1]} or later, and `{go}` is {have}: "
            "install a newer one from https://go.dev/dl"
        )


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version of Go, such as (1, 26, 8)."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def go_mod(version: str, module: str) -> str:
    """Return our go.mod, which pins what k8s.io/kubernetes requires."""
    staging = sorted(set(STAGING.findall(module)))
    published = f"v0.{version.partition('.')[2]}"
    language = re.search(r"^go .*$", module, re.MULTILINE)
    godebug = re.search(r"^godebug .*$", module, re.MULTILINE)
    blocks = re.findall(r"^require \((.*?)^\)", module, re.MULTILINE | re.DOTALL)
    required = [
        f"require {path} {at}"
        for block in blocks
        for path, at in REQUIRED.findall(block)
        if path not in staging
    ]
    lines = [
        "module rink.test/controlplane",
        language[0] if language else "",
        godebug[0] if godebug else "",
        f"require k8s.io/kubernetes v{version}",
        *(f"require {path} {published}" for path in staging),
        *(f"replace {path} => {path} {published}" for path in staging),
        *required,
    ]
    return "\n".join(lines) + "\n"


def compile_one(go: str, source: Path, target: str, output: Path, show: Show, what: str) -> None:
    """Compile one binary, and show how far it is."""
    total = len(run(go, "list", "-deps", target, cwd=source).stdout.splitlines())
    options = (*OPTIONS, "-o", str(output))
    with subprocess.Popen(
        [*niced(), go, "build", *options, target],
        cwd=source,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        said, ended = [], threading.Event()
        ticking = threading.Thread(target=tick, args=(show, what, said, total, ended))
        ticking.start()
        try:
            assert process.stderr is not None
            said.extend(iter(process.stderr.readline, ""))
            status = process.wait()
        finally:
            process.kill()
            ended.set()
            ticking.join()
    if status:
        raise NoControlPlaneError(f"Go cannot build {what}:\n{''.join(said[-20:])}")


def tick(show: Show, what: str, said: list[str], total: int, ended: threading.Event) -> None:
    """Show every five seconds how many packages have been compiled."""
    began = time.monotonic()
    while not ended.wait(5):
        # Go names a package when it begins to compile it; those in its cache are not named.
        seconds = time.monotonic() - began
        show(f"compiling {what}: {len(said)} of at most {total} packages, {seconds:.0f} s")


def niced() -> tuple[str, ...]:
    """Return what lets others go first."""
    return ("nice",) if shutil.which("nice") else ()


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of Go, and return what it said."""
    return subprocess.run(
        command, cwd=cwd, env=environment(), check=False, capture_output=True, text=True
    )


def environment() -> dict[str, str]:
    """Return the environment of Go.

    Go writes go.sum itself, and downloads no other version of Go.
    """
    mine = {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    return os.environ | mine


if __name__ == "__main__":
    print(built())
