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

from rink.mounts import is_in_memory
from rink.run import command_guard

log = logging.getLogger("rink.run")

SECRETS = re.compile(r"RINK_ETCD(_.*)?|RINK_.*(PASSWORD|TOKEN_FILE|SECRET).*")
"""Variables that lead to etcd, or to a password: the command has no use for them."""


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


class RoleFile:
    """Write the file of RINK_FILE, in a folder of its own while a command runs.

    A `rink run` that waits has no folder, so it leaves none behind if it is killed. The guard
    removes the folder, too, so there is none left if `rink run` is killed while a command runs.

    Attributes:
        path: of the file, or "" if no command runs, or there is no tmpfs.
    """

    def __init__(self, candidates: Sequence[Path]) -> None:
        self.path = ""
        self._place: Path | None = None
        for folder in candidates:
            with contextlib.suppress(OSError):
                real = folder.resolve(strict=True)
                if is_in_memory(real) and os.access(real, os.W_OK | os.X_OK):
                    self._place = real
                    return

    @property
    def is_possible(self) -> bool:
        """Return whether there is a tmpfs that may be written."""
        return self._place is not None

    def write(self, token: int, until: int) -> None:
        """Say that the role is held until a time.

        If it cannot be written, its readers see the role end at the earlier end: that is safe.
        """
        if self._place is None:
            return
        try:
            if not self.path:
                folder = tempfile.mkdtemp(prefix=f"rink-run-{os.getpid()}-", dir=self._place)
                Path(folder).chmod(0o755)
                self.path = f"{folder}/role"
            new = Path(self.path).with_name(command_guard.NEW_FILE)
            new.write_text(f"{token} {command_guard.now_ms()} {until}\n", encoding="ascii")
            new.chmod(0o644)
            new.rename(self.path)
        except FileNotFoundError:
            pass  # the guard has removed the folder: the command has ended
        except OSError as error:
            name = self.path or self._place
            log.error("%s cannot be written: %s", name, error.strerror)

    def clear(self) -> None:
        """Say that the role is not held, and remove the folder."""
        if self.path:
            shutil.rmtree(Path(self.path).parent, ignore_errors=True)
            self.path = ""
