"""Read the mounts that this process sees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems that a reboot empties."""

MOUNTS = Path("/proc/self/mountinfo")


class Mount(NamedTuple):
    """Hold one mount. `rink held` has no time to import attrs.

    Attributes:
        root: the folder of the file system that is mounted.
        point: where it is mounted.
        kind: the type of the file system.
    """

    root: Path
    point: Path
    kind: str


def mounts() -> list[Mount]:
    """Return all mounts, in the order in which they were made."""
    made = []
    for line in MOUNTS.read_text(encoding="utf-8").splitlines():
        mount, _, device = line.partition(" - ")
        root, point = (Path(_plain(field)) for field in mount.split(" ")[3:5])
        made.append(Mount(root, point, device.split(" ")[0]))
    return made


def file_system_of(folder: Path) -> str:
    """Return the type of the file system that a folder lies on, or "" if it is not known.

    Args:
        folder: an absolute path without links.
    """
    kinds = {one.point: one.kind for one in mounts()}  # a later mount hides an earlier one
    return next((kinds[one] for one in (folder, *folder.parents) if one in kinds), "")


def is_in_memory(folder: Path) -> bool:
    """Return whether a folder lies on a file system that a reboot empties.

    Args:
        folder: an absolute path without links.
    """
    return file_system_of(folder) in MEMORY


def _plain(field: str) -> str:
    return re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), field)
