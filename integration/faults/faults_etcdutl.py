"""Restore an etcd from a snapshot with a raised revision.

The command is `etcdutl snapshot restore --bump-revision`. The etcdutl 3.5.1 of the wheel has no
such flag. The folder `etcdutl` pins a newer one, and Go builds it. A server 3.5.1 serves what it
restores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import attrs
import pytest

from rink.testing.etcd_server.start import find_etcd
from rink.testing.process.ports import PORTS_FILE

ROOT = Path(__file__).parents[2]
MODULE = Path(__file__).with_name("etcdutl")
PACKAGE = "go.etcd.io/etcd/etcdutl/v3"
BUILD_TIMEOUT_S = 900.0
"""A first build downloads 50 modules and takes 90 s on two quiet cores; later ones take 1 s."""

RESTORE_TIMEOUT_S = 60.0


@attrs.frozen
class Etcdutl:
    """Save and restore snapshots of one local etcd.

    Attributes:
        program: an etcdutl of version 3.6 or later.
        etcdctl: the etcdctl beside the server.
    """

    program: Path
    etcdctl: Path

    @classmethod
    def built(cls) -> Etcdutl:
        """Build the program, or skip the test without Go.

        Go does nothing if it has built the program before.
        """
        go, etcd, program = shutil.which("go"), find_etcd(), ROOT / "build" / "etcdutl"
        if go is None:
            pytest.skip("needs Go 1.24 on the PATH: it builds the etcdutl that can bump a revision")
        etcdctl = etcd and etcd.with_name("etcdctl")
        if etcdctl is None or not etcdctl.exists():
            pytest.skip("needs an etcdctl in the folder of the etcd that the tests start")
        command = [go, "build", "-o", str(program), PACKAGE]
        _run(command, BUILD_TIMEOUT_S, cwd=MODULE, GOWORK="off")
        return cls(program, etcdctl)

    def save(self, endpoint: str, snapshot: Path) -> None:
        """Save a snapshot of a running etcd."""
        command = [str(self.etcdctl), f"--endpoints={endpoint}", "snapshot", "save", str(snapshot)]
        _run(command, RESTORE_TIMEOUT_S, ETCDCTL_API="3")

    def restore(self, snapshot: Path, folder: Path, bump: int) -> None:
        """Restore the only node of a folder of `local_etcd`.

        Its revision is raised by `bump`.
        """
        (ports,) = json.loads((folder / PORTS_FILE).read_text())
        peer = f"http://127.0.0.1:{ports['peer']}"
        command = [str(self.program), "snapshot", "restore", str(snapshot)]
        command += [f"--data-dir={folder / 'n0' / 'data'}", "--name=n0"]
        command += [f"--initial-cluster=n0={peer}", f"--initial-advertise-peer-urls={peer}"]
        command += [f"--bump-revision={bump}", "--mark-compacted"]
        _run(command, RESTORE_TIMEOUT_S)


def _run(command: list[str], timeout: float, cwd: Path = ROOT, **env: str) -> None:
    ran = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert not ran.returncode, f"`{' '.join(command)}` failed: {ran.stderr[-1000:]}"
