"""Write the ends of roles for shells: a small file for each held role.

A file begins with the line `token written_ms until_ms`, with times of CLOCK_BOOTTIME. The role is
held while `written_ms <= now < until_ms`. In a file from before a reboot, `written_ms <= now` is
false. A reader needs no lock: a file is written under another name, and then renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from rink.errors import ConfigError
from rink.mount_table import MEMORY, file_system_of
from rink.plural import plural
from rink.sidecar.clock import now_ms

FOLDER = "held"
MAX_FILE_NAME = 200
REPORT_INTERVAL_MS = 60_000
"""Time between two log lines about files that cannot be written or removed."""

log = logging.getLogger("rink.sidecar")


def file_name(role: str) -> str:
    """Return the name of a role's file.

    Characters other than `A-Za-z0-9_-` are percent-encoded, so no name leads out of the folder. A
    long name is replaced by its hash, and the file has the role's name in a second line.
    """
    encoded = re.sub(
        rb"[^A-Za-z0-9_-]", lambda match: b"%%%02X" % match[0][0], role.encode()
    ).decode()
    if len(encoded) <= MAX_FILE_NAME:
        return encoded
    return f"sha256.{hashlib.sha256(role.encode()).hexdigest()}"


def is_valid(line: str, now: int) -> bool:
    """Return whether the role of a file is held now, by its first line."""
    fields = line.split()
    if len(fields) != 3 or not all(field.isdigit() for field in fields):
        return False
    return int(fields[1]) <= now < int(fields[2])


class Files:
    """Write the files of roles into the sidecar's own folder.

    Raises:
        ConfigError: the folder is not in memory, belongs to another sidecar, or cannot be used.
    """

    def __init__(self, folder: Path, clock: Callable[[], int] = now_ms) -> None:
        self._clock = clock
        self._place = folder
        self._count = 0
        self._reported_ms, self._unreported = -REPORT_INTERVAL_MS, 0
        kind = _file_system(folder)
        if kind not in MEMORY:
            raise ConfigError(
                f"--files {folder}: this is on {kind or 'an unknown file system'}, but files of "
                "ends must not survive a reboot: use a tmpfs, such as an emptyDir with medium: "
                "Memory"
            )
        self._folder = self._open(folder)
        try:
            for name in self._names():
                self._unlink(name)
        except OSError as error:
            self.close()
            raise ConfigError(
                f"--files {folder}: cannot remove {FOLDER}/{error.filename}: {error.strerror}"
            ) from error

    def _open(self, folder: Path) -> int:
        """Open and lock the sidecar's own folder, without following a link."""
        try:
            with contextlib.suppress(FileExistsError):
                (folder / FOLDER).mkdir(0o755)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(folder / FOLDER, flags)
        except OSError as error:
            raise ConfigError(f"--files {folder}: {FOLDER}: {error.strerror}") from error
        status = os.fstat(fd)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
            os.close(fd)
            raise ConfigError(
                f"--files {folder}: {FOLDER} must belong to this user, and nobody else may write it"
            )
        try:  # the kernel drops the lock when this process ends
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            why = "another sidecar writes its files there: give each sidecar a folder of its own"
            why = why if isinstance(error, BlockingIOError) else f"{FOLDER}: {error.strerror}"
            raise ConfigError(f"--files {folder}: {why}") from error
        os.fchmod(fd, 0o755)
        return fd

    def close(self) -> None:
        """Unlock the folder for another sidecar."""
        os.close(self._folder)

    def write(self, role: str, token: int, until_ms: int) -> None:
        """Write the end of a role."""
        self._count += 1
        name, temporary = file_name(role), f".{os.getpid()}.{self._count}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(temporary, flags, 0o644, dir_fd=self._folder)
            os.fchmod(fd, 0o644)  # despite the umask, since other users read it
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(f"{token} {self._clock()} {until_ms}\n")
                if name.startswith("sha256."):
                    file.write(f"{role}\n")
            os.rename(temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError as error:
            # Readers see the earlier end in the old file, which is safe.
            self._report(f"cannot write {name} in", error)
            self._remove(temporary)

    def _report(self, what: str, error: OSError) -> None:
        """Log the failure of a write or removal, at most once a minute."""
        if self._clock() < self._reported_ms + REPORT_INTERVAL_MS:
            self._unreported += 1
            return
        count, more = self._unreported, ""
        if count:
            more = f"; {count:,} more {plural(count, 'failure')} before"
        log.error("%s %s: %s%s", what, self._place, error.strerror, more)
        self._reported_ms, self._unreported = self._clock(), 0

    def remove(self, role: str) -> None:
        """Remove a role's file."""
        self._remove(file_name(role))

    def clear(self) -> None:
        """Remove every file."""
        for name in self._names():
            self._remove(name)

    def _names(self) -> list[str]:
        with os.scandir(self._folder) as entries:
            return [entry.name for entry in entries]

    def _remove(self, name: str) -> None:
        """Remove a file, or log why not: a program may have made a folder."""
        try:
            self._unlink(name)
        except OSError as error:
            self._report(f"cannot remove {name} from", error)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)


def _file_system(folder: Path) -> str:
    try:
        return file_system_of(folder.resolve(strict=True))
    except OSError as error:
        raise ConfigError(f"--files {folder}: {error.strerror}") from error
