"""Make a cgroup for the command, if this process may make one.

The kernel kills a cgroup in one step. This reaches two kinds of processes that signals may not
reach: processes of another user, and processes that start new ones faster than `/proc` can be read.
The guard reads `/proc` in any case, so without a cgroup only these two kinds survive.

A cgroup counts as delegated if systemd has marked it (`Delegate=yes`), or if it belongs to this
process's user and this user is not root. Root could also write to other cgroups, where systemd does
not expect it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from rink.mount_table import Mount, mounts

MARKS = ("user.delegate", "trusted.delegate")


def own_path(cgroups: str, mounted: Iterable[Mount]) -> Path | None:
    """Return the folder of this process's cgroup of version 2, or None.

    `cgroups` is the text of `/proc/self/cgroup`.
    """
    own = next((line[3:] for line in cgroups.splitlines() if line.startswith("0::")), None)
    if own is None:
        return None
    for mount in mounted:
        if mount.kind == "cgroup2" and Path(own).is_relative_to(mount.root):
            return mount.point / Path(own).relative_to(mount.root)
    return None


def is_delegated(folder: Path) -> bool:
    """Return whether this process may make cgroups below a cgroup."""
    if not os.access(folder, os.W_OK) or not (folder / "cgroup.kill").exists():
        return False  # the root cgroup has no cgroup.kill, either
    for mark in MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, mark) == b"1":
                return True
    return os.geteuid() not in (0, -1) and folder.stat().st_uid == os.geteuid()


def make(name: str) -> str:
    """Make a cgroup in this process's own, and return its path or ""."""
    with contextlib.suppress(OSError):
        own = own_path(Path("/proc/self/cgroup").read_text(encoding="utf-8"), mounts())
        if own is not None and is_delegated(own):
            folder = own / name
            folder.mkdir()
            return str(folder)
    return ""
