"""Read the mounts of this process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems in memory, which a reboot empties."""

MOUNTS = Path("/proc/self/mountinfo")


class Mount(NamedTuple):
    """Hold one mount, without attrs, which `rink held` has no time to import.

    Attributes:
        root: the mounted folder of the file system.
        point: the mount point.
        kind: the type of the file system.
    """

    root: Path
    point: Path
    kind: str


def mounts() -> list[Mount]:
    """Return all mounts, in the order in which they were made."""
    entries = []
    for line in MOUNTS.read_text(encoding="utf-8").splitlines():
        mount, _, device = line.partition(" - ")
        root, point = (Path(_plain(field)) for field in mount.split(" ")[3:5])
        entries.append(Mount(root, point, device.split(" ")[0]))
    return entries


def file_system_of(folder: Path) -> str:
    """Return the type of the file system of an absolute path without links.

    It is "" if it is unknown.
    """
    kinds = {mount.point: mount.kind for mount in mounts()}  # a later mount hides an earlier one
    return next((kinds[path] for path in (folder, *folder.parents) if path in kinds), "")


def is_in_memory(folder: Path) -> bool:
    """Return whether a reboot empties the file system of an absolute path."""
    return file_system_of(folder) in MEMORY


def _plain(field: str) -> str:
    return re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), field)
