"""Give the command its environment, and the file with the role's end.

The file is one line, `token written_ms until_ms` in milliseconds of CLOCK_BOOTTIME. The role is
held if `written_ms <= now < until_ms`. The file lies on a tmpfs only: on a disk it would outlive a
reboot, after which this clock begins at 0 again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rink.run.guard import now_ms

log = logging.getLogger("rink.run")

SECRETS = re.compile(r"RINK_ETCD(_.*)?|RINK_.*(PASSWORD|TOKEN_FILE|SECRET).*")
"""Variables that lead to etcd, or to a password: the command has no use for them."""

MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems that a reboot empties."""

MOUNTS = Path("/proc/self/mountinfo")


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what only `rink run` needs."""
    return {name: value for name, value in environment.items() if not SECRETS.fullmatch(name)}


def environment_of(
    environment: Mapping[str, str], *, group: str, role: str, rank: int, token: int, file: str
) -> dict[str, str]:
    """Return the command's environment, without RINK_FILE if there is none."""
    made = without_secrets(environment)
    made.pop("RINK_FILE", None)
    made.update(RINK_GROUP=group, RINK_ROLE=role, RINK_RANK=str(rank), RINK_TOKEN=str(token))
    if file:
        made["RINK_FILE"] = file
    return made


def folders(environment: Mapping[str, str]) -> list[Path]:
    """Return where the file may lie, best first."""
    own = environment.get("XDG_RUNTIME_DIR")
    return [*([Path(own)] if own else []), Path("/dev/shm")]  # noqa: S108 - a folder is made in it


def is_in_memory(folder: Path, mounts: str) -> bool:
    """Return whether a folder lies on a tmpfs.

    Args:
        folder: an absolute path without links.
        mounts: the text of `/proc/self/mountinfo`.
    """
    kinds: dict[Path, str] = {}
    for line in mounts.splitlines():
        mount, _, device = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount.split(" ")[4])
        kinds[Path(point)] = device.split(" ")[0]  # a later mount hides an earlier one
    return next((kinds[one] in MEMORY for one in (folder, *folder.parents) if one in kinds), False)


class RoleFile:
    """Write the file of RINK_FILE, in a folder of its own.

    `path` is empty if there is no tmpfs.
    """

    def __init__(self, candidates: Sequence[Path]) -> None:
        self._folder: Path | None = None
        self.path = ""
        for folder in candidates:
            with contextlib.suppress(OSError):
                real = folder.resolve(strict=True)
                if is_in_memory(real, MOUNTS.read_text()):
                    made = tempfile.mkdtemp(prefix=f"rink-run-{os.getpid()}-", dir=real)
                    self._folder = Path(made)
                    self._folder.chmod(0o755)
                    self.path = f"{made}/role"
                    return

    def write(self, token: int, until: int) -> None:
        """Say that the role is held until a time.

        If it cannot be written, its readers see the role end at the earlier end: that is safe.
        """
        if self._folder is not None:
            new = self._folder / "role.new"
            try:
                new.write_text(f"{token} {now_ms()} {until}\n", encoding="ascii")
                new.chmod(0o644)
                new.rename(self.path)
            except OSError as error:
                log.error("%s cannot be written: %s", self.path, error.strerror)

    def clear(self) -> None:
        """Say that the role is not held."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                Path(self.path).unlink()

    def remove(self) -> None:
        """Remove the folder too."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
