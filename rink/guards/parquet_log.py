"""Keep the log of a ParquetGuard: numbered manifests, folded to a state.

Invariants:
- Manifest n is made with `link()`, which refuses an existing name, by a process that has folded all
  manifests before it. So its checks still held at that moment, and all changes have one order.
- Every 50th manifest also holds the fold, and readers begin with the newest fold. So older
  manifests may be removed. A process that slept meanwhile may then make a removed name again, and
  no reader sees it. So a writer looks for its entry in the fold afterwards, and may try again.
- Every 1,000th manifest ends a volume, and is never removed. A fold names only the files of its own
  volume, so it does not grow forever. The last fold of each volume names the files of that volume.
- All manifests have the id of the first manifest. So if a directory was removed and made anew, or
  replaced by another, a process never mixes the two.
- Files are removed only after a manifest has condemned them, and condemned files are not published.

Deliberately absent: lock files, and clocks except for the age of removed files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from rink.errors import RinkError, StateError
from rink.guards.errors import GuardError

FOLD_INTERVAL = 50
"""A manifest holds the fold if its number is a multiple of this."""

VOLUME = 20 * FOLD_INTERVAL
"""A manifest ends a volume if its number is a multiple of this."""

FORMAT = 2
MAX_TRIES = 1_000
_NAME = re.compile(r"(\d{20})\.json")
_REPAIR = (
    "A guard's folder holds nothing else. Move the file away if it is not the guard's. If it is "
    "damaged, restore it from a backup, or begin with a new directory and a new checkpoint"
)


@attrs.define
class Fold:
    """Hold the state after all manifests up to a number.

    Attributes:
        number: the number of the last manifest; 0 before the first.
        log: the id that all manifests have; "" before the first.
        fences: the greatest token of each name.
        queries: the number of parts and the number of the last batch of each query.
        files: the published files of the last volume, in order, as paths in the directory.
        schema: the schema of all files, base64; "" before the first.
        condemned: files that are being removed, or were removed.
    """

    number: int = 0
    log: str = ""
    fences: dict[str, int] = attrs.Factory(dict)
    queries: dict[str, tuple[int, int]] = attrs.Factory(dict)
    files: list[str] = attrs.Factory(list)
    schema: str = ""
    condemned: set[str] = attrs.Factory(set)

    def apply(self, entry: dict[str, Any]) -> None:
        """Apply the next manifest."""
        if self.number % VOLUME == 0:
            self.files = []
        self.number, self.log = entry["number"], entry["log"]
        if fence := entry.get("fence"):
            self.fences[fence["name"]] = int(fence["token"])
        if batch := entry.get("batch"):
            self.queries[batch["query"]] = (int(batch["parts"]), int(batch["number"]))
            self.files += [file["path"] for file in batch["files"]]
            self.schema = self.schema or batch["schema"]
        if "condemned" in entry:
            self.condemned = set(entry["condemned"])

    @property
    def volumes(self) -> range:
        """Return the numbers of the manifests that ended earlier volumes."""
        return range(VOLUME, self.number, VOLUME)

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON for a manifest."""
        return attrs.asdict(self) | {"condemned": sorted(self.condemned)}

    @classmethod
    def of_json(cls, stored: dict[str, Any]) -> Fold:
        """Return the state in a manifest."""
        queries = {
            query: (int(parts), int(batch)) for query, (parts, batch) in stored["queries"].items()
        }
        fences = {name: int(token) for name, token in stored["fences"].items()}
        condemned = set(stored["condemned"])
        return cls(**stored | {"queries": queries, "fences": fences, "condemned": condemned})


class Log:
    """Read and add the manifests of a directory. Threads may share it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._folder = directory / "manifests"
        self._fold = Fold()
        self._volumes: dict[int, list[str]] = {}  # by number; only volumes that were read
        self._lock = threading.RLock()

    def make_folders(self) -> None:
        """Make the folders inside the directory.

        The directory itself must exist. Otherwise a typing error would create a directory.
        """
        if not self._directory.is_dir():
            raise GuardError(
                f"{self._directory} is not a directory: make it, on a file system that all "
                "processes share",
                place=str(self._directory),
            )
        for name in ("manifests", "data"):
            if not (self._directory / name).is_dir():
                (self._directory / name).mkdir(exist_ok=True)
                sync(self._directory)

    @contextlib.contextmanager
    def folded(self) -> Iterator[Fold]:
        """Yield the current state, which may only be used inside the block."""
        with self._lock, explain_file_errors(self._directory):
            yield self._refreshed()

    def files(self, fold: Fold) -> list[str]:
        """Return all published files, in order, as paths in the directory."""
        with self._lock, explain_file_errors(self._directory):
            for number in fold.volumes:
                if number not in self._volumes:
                    self._volumes[number] = self._volume(number)
            earlier = [path for number in fold.volumes for path in self._volumes[number]]
            return earlier + fold.files

    def publish(self, make: Callable[[Fold], dict[str, Any] | None]) -> None:
        """Add a manifest.

        Args:
            make: checks the state, and returns the entry to add, or None if the state has the entry
                already. It is called again until it returns None. It may raise.
        """
        with self._lock, explain_file_errors(self._directory):
            self.make_folders()
            for _ in range(MAX_TRIES):
                fold = self._refreshed()
                entry = make(fold)
                if entry is None:
                    return
                self._link(fold, entry)
        raise GuardError(
            f"{self._folder}: other processes published {MAX_TRIES} times during this call, so it "
            "gave up: repeat the call",
            place=str(self._folder),
            again=True,
        )

    def remove_before(self, horizon: float) -> int:
        """Remove old manifests before the newest fold, and old temporary files.

        Keep manifests that end a volume. Return the number of removed manifests.
        """
        removed = 0
        with self._lock, explain_file_errors(self._directory):
            newest = _newest_fold(self._numbers())
            for number in self._numbers():
                if number >= newest or number % VOLUME == 0:
                    continue
                with contextlib.suppress(FileNotFoundError):  # another process does the same
                    if self._path(number).stat().st_mtime < horizon:
                        self._path(number).unlink()
                        removed += 1
            for left in self._folder.glob(".*.tmp"):
                with contextlib.suppress(FileNotFoundError):
                    if left.stat().st_mtime < horizon:
                        left.unlink()
        return removed

    def _link(self, fold: Fold, entry: dict[str, Any]) -> None:
        number = fold.number + 1
        if fold.number:
            # If manifest n - 1 was removed meanwhile, number n is too old to be read.
            with contextlib.suppress(FileNotFoundError):
                self._refuse_other_log(self._read(fold.number))
        header = {"rink": "guard", "format": FORMAT, "log": fold.log or uuid.uuid4().hex}
        entry = {**header, "number": number, **entry}
        if number % FOLD_INTERVAL == 0:
            after = Fold.of_json(fold.as_json())
            after.apply(entry)
            entry["fold"] = after.as_json()
        aside = self._folder / f".{uuid.uuid4().hex}.tmp"
        try:
            with aside.open("xb") as file:
                file.write(json.dumps(entry).encode())
                file.flush()
                os.fsync(file.fileno())
            # If the name exists, another process was first, and the fold will show its entry. If
            # the temporary file is missing, `remove_before` took it for an old one.
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(aside, self._path(number))
            sync(self._folder)
        finally:
            aside.unlink(missing_ok=True)

    def _refreshed(self) -> Fold:
        for _ in range(MAX_TRIES):
            try:
                self._catch_up()
                return self._fold
            except (FileNotFoundError, NotADirectoryError):
                if not self._folder.is_dir():
                    if not self._directory.is_dir():
                        self.make_folders()  # raises
                    return self._fold
        raise GuardError(
            f"{self._folder}: manifests vanish while they are read: check what else removes files "
            "there",
            place=str(self._folder),
        )

    def _catch_up(self) -> None:
        numbers = self._numbers()
        last, known = numbers[-1] if numbers else 0, self._fold.number
        if last < known and not self._path(known).exists():
            # A backup of the directory was restored, or this machine has an older view of it.
            raise StateError(
                f"{self._folder} had manifest {known}, and ends with {last or 'none'}: it was "
                f"rolled back. {_REPAIR}",
                key=str(self._folder),
            )
        newest = _newest_fold(numbers)
        if newest > self._fold.number:
            self._fold = self._read_fold(newest)
        for number in numbers:
            while self._fold.number < number:
                self._apply(self._fold.number + 1, number)
        # Over a network, a listing may be older than the files.
        while self._path(self._fold.number + 1).exists():
            self._apply(self._fold.number + 1, self._fold.number + 1)

    def _read_fold(self, number: int) -> Fold:
        entry = self._read(number)
        self._refuse_other_log(entry)
        try:
            fold = Fold.of_json(entry["fold"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._broken(number, f"its fold cannot be read ({error!r})") from error
        if fold.number != number:
            raise self._broken(number, f"its fold is of manifest {fold.number}, not {number}")
        return fold

    def _volume(self, number: int) -> list[str]:
        try:
            return self._read_fold(number).files
        except FileNotFoundError:
            raise self._broken(number, "it is missing, but later manifests exist") from None

    def _apply(self, number: int, listed: int) -> None:
        """Apply the next manifest, `number`.

        `listed` is a listed number, equal or later. A listing may lack existing manifests.
        """
        try:
            entry = self._read(number)
        except FileNotFoundError:
            numbers = self._numbers()
            if number in numbers or listed not in numbers or _newest_fold(numbers) > number:
                raise  # another process removes old manifests: look again
            raise self._broken(number, "it is missing, but later manifests exist") from None
        self._refuse_other_log(entry)
        try:
            self._fold.apply(entry)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._fold = Fold()
            raise self._broken(number, f"it cannot be read ({error!r})") from error

    def _refuse_other_log(self, entry: dict[str, Any]) -> None:
        if self._fold.log not in {"", entry.get("log")}:
            raise StateError(
                f"{self._directory} is not the directory that this guard saw before: it was "
                "removed and made anew, or replaced by another directory. Make a new guard (with a "
                "new checkpoint), or put the old directory back",
                key=str(self._directory),
            )

    def _read(self, number: int) -> dict[str, Any]:
        try:
            entry = json.loads(self._path(number).read_bytes())
        except ValueError as error:
            raise self._broken(number, f"it is not JSON ({error})") from error
        if (
            not isinstance(entry, dict)
            or entry.get("rink") != "guard"
            or entry.get("number") != number
        ):
            raise self._broken(number, "it was not written by a guard under this name")
        if entry.get("format") != FORMAT:
            raise self._broken(
                number, f"it has format {entry.get('format')!r}, but this release reads {FORMAT}"
            )
        if not isinstance(entry.get("log"), str):
            raise self._broken(number, "it does not name its log")
        return entry

    def _numbers(self) -> list[int]:
        numbers = []
        for name in os.listdir(self._folder):  # noqa: PTH208 - names only
            if match := _NAME.fullmatch(name):
                numbers.append(int(match[1]))
            elif not name.startswith("."):
                path = self._folder / name
                raise StateError(f"{path} is not a manifest of a guard. {_REPAIR}", key=str(path))
        return sorted(numbers)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:020d}.json"

    def _broken(self, number: int, why: str) -> StateError:
        path = self._path(number)
        return StateError(f"the manifest {path} is damaged: {why}. {_REPAIR}", key=str(path))


@contextlib.contextmanager
def explain_file_errors(place: Path) -> Iterator[None]:
    """Raise a GuardError for an error of the file system in the block."""
    try:
        yield
    except OSError as error:
        if isinstance(error, RinkError):
            raise
        is_place = error.filename in {None, str(place)}
        where = str(place) if is_place else f"{place}: {error.filename}"
        raise GuardError(
            f"{where}: {error.strerror or error}: all writers must be able to write to a guard's "
            "directory, and its file system must have hard links",
            place=str(place),
        ) from error


def sync(folder: Path) -> None:
    """Sync a folder, so that its file names survive a crash of the machine."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _newest_fold(numbers: list[int]) -> int:
    return max((number for number in numbers if number % FOLD_INTERVAL == 0), default=0)
