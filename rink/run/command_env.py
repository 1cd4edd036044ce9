"""Make the command's environment, and the file with the end of the role.

The file is one line, `token written_ms until_ms` in milliseconds of CLOCK_BOOTTIME. The role is
held if `written_ms <= now < until_ms`. The file lies only on a tmpfs. On a disk it would survive a
reboot, and after a reboot this clock begins at 0 again.
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

from rink import aio
from rink.mount_table import is_in_memory
from rink.run import command_guard

log = logging.getLogger("rink.run")

SECRETS = re.compile(r"RINK_ETCD(_.*)?|RINK_.*(PASSWORD|TOKEN_FILE|SECRET).*")
"""Variables with access to etcd or a password, which the command must not get."""


def environment_of(
    environment: Mapping[str, str], group: str, role: aio.Role, file: str
) -> dict[str, str]:
    """Return the command's environment, without RINK_FILE if there is none."""
    result = {name: value for name, value in environment.items() if not SECRETS.fullmatch(name)}
    result.pop("RINK_FILE", None)
    result.update(RINK_GROUP=group, RINK_ROLE=role.name)
    result.update(RINK_RANK=str(role.rank), RINK_TOKEN=str(role.token))
    if file:
        result["RINK_FILE"] = file
    return result


def folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders in which the file may lie, best first."""
    own = environment.get("XDG_RUNTIME_DIR")
    return [*([Path(own)] if own else []), Path("/dev/shm")]  # noqa: S108 - a new folder


class RoleFile:
    """Write the file of RINK_FILE, in its own folder.

    The folder exists only while a command runs. So a `rink run` that is killed while it waits
    leaves no folder behind. While a command runs, the guard removes the folder, too.

    Attributes:
        path: the path of the file, or "" if no command runs or there is no tmpfs.
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
        """Return whether there is a writable tmpfs."""
        return self._place is not None

    def write(self, token: int, until: int) -> None:
        """Write the time until which the role is held.

        If the write fails, readers see the role end at the earlier time, which is safe.
        """
        if self._place is None:
            return
        try:
            if not self.path:
                folder = tempfile.mkdtemp(prefix=f"rink-run-{os.getpid()}-", dir=self._place)
                Path(folder).chmod(0o755)
                self.path = f"{folder}/role"
            new_file = Path(self.path).with_name(command_guard.NEW_FILE)
            new_file.write_text(f"{token} {command_guard.now_ms()} {until}\n", encoding="ascii")
            new_file.chmod(0o644)
            new_file.rename(self.path)
        except FileNotFoundError:
            pass  # the command has ended, and the guard has removed the folder
        except OSError as error:
            path = self.path or self._place
            log.error(
                "cannot write %s, so RINK_FILE shows an earlier end: %s", path, error.strerror
            )

    def clear(self) -> None:
        """Remove the file and its folder, since the role is not held."""
        if self.path:
            shutil.rmtree(Path(self.path).parent, ignore_errors=True)
            self.path = ""
