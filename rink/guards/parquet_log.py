"""The log of a ParquetGuard: numbered manifests, each made at most once, folded to what holds now.

Rules:
- Manifest n is made with `link()`, which refuses an existing name, by who has folded all before it.
  So whatever it was checked against held at that very moment: manifests are the order of all
  things.
- Each 50th holds the fold too, and who reads begins with the newest such. So older ones may be
  removed. A process that slept meanwhile may then make one of the removed names again: nobody reads
  it. Hence who publishes looks again afterwards whether the fold has it, and otherwise begins anew.
- Each 1,000th ends a volume, and stays. A fold names the files of its own volume only, so that it
  does not grow with all that was ever published; those of earlier volumes are in the folds that end
  them.
- All manifests bear the mark of the first. So a process that outlives a directory which was removed
  and made anew, or replaced by another, takes nothing of the one for the other.
- Files are removed only after a manifest has condemned them, and nobody publishes a condemned file.

Deliberately absent: locks, and clocks but for the age of what is removed.
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

EVERY = 50
"""Each so manieth manifest holds the fold."""

VOLUME = 20 * EVERY
"""Each so manieth manifest ends a volume."""

FORMAT = 2
TRIES = 1_000
_NAME = re.compile(r"(\d{20})\.json")
_REPAIR = (
    "A guard's folder holds nothing else: move it away if it is not the guard's; if it is "
    "damaged, restore this file from a backup, or begin with a new directory and a new checkpoint"
)


@attrs.define
class Fold:
    """What all manifests up to a number come to.

    Attributes:
        number: of the last one; 0 before the first.
        log: the mark that all of them bear; "" before the first.
        fences: the greatest token by name.
        queries: how many parts, and the last batch, by query.
        files: what its volume has published, in order, as paths in the directory.
        schema: of all of them, base64; "" before the first.
        condemned: files that are to be removed, or are removed already.
    """

    number: int = 0
    log: str = ""
    fences: dict[str, int] = attrs.Factory(dict)
    queries: dict[str, tuple[int, int]] = attrs.Factory(dict)
    files: list[str] = attrs.Factory(list)
    schema: str = ""
    condemned: set[str] = attrs.Factory(set)

    def apply(self, entry: dict[str, Any]) -> None:
        """Take the next manifest into account."""
        if self.number % VOLUME == 0:
            self.files = []
        self.number, self.log = entry["number"], entry["log"]
        if fence := entry.get("fence"):
            self.fences[fence["name"]] = int(fence["token"])
        if batch := entry.get("batch"):
            self.queries[batch["query"]] = (int(batch["parts"]), int(batch["number"]))
            self.files += [one["path"] for one in batch["files"]]
            self.schema = self.schema or batch["schema"]
        if "condemned" in entry:
            self.condemned = set(entry["condemned"])

    @property
    def volumes(self) -> range:
        """The numbers of the manifests that end the volumes before its own."""
        return range(VOLUME, self.number, VOLUME)

    def as_json(self) -> dict[str, Any]:
        """Return it for a manifest."""
        return attrs.asdict(self) | {"condemned": sorted(self.condemned)}

    @classmethod
    def of_json(cls, said: dict[str, Any]) -> Fold:
        """Return what a manifest says."""
        queries = {
            query: (int(parts), int(batch)) for query, (parts, batch) in said["queries"].items()
        }
        fences = {name: int(token) for name, token in said["fences"].items()}
        return cls(
            **said | {"queries": queries, "fences": fences, "condemned": set(said["condemned"])}
        )

    def copy(self) -> Fold:
        """Return one of its own."""
        return Fold.of_json(self.as_json())


class Log:
    """The manifests of a directory, for one process; safe for threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._folder = directory / "manifests"
        self._fold = Fold()
        self._volumes: dict[int, list[str]] = {}  # of those that were asked for
        self._lock = threading.RLock()

    def make_folders(self) -> None:
        """Make what lies in the directory; the directory itself must be there, or a typing error
        would make one.
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
        """Give what holds now; it may be looked at inside only."""
        with self._lock, told(self._directory):
            yield self._refreshed()

    def files(self, fold: Fold) -> list[str]:
        """Return all that is published, in order, as paths in the directory."""
        with self._lock, told(self._directory):
            for number in fold.volumes:
                if number not in self._volumes:
                    self._volumes[number] = self._volume(number)
            earlier = [path for number in fold.volumes for path in self._volumes[number]]
            return earlier + fold.files

    def publish(self, make: Callable[[Fold], dict[str, Any] | None]) -> None:
        """Add a manifest.

        Args:
            make: says what to add, checked against the fold; None where the fold has it, which ends
                this. It is asked until then, so it may raise what it finds.
        """
        with self._lock, told(self._directory):
            self.make_folders()
            for _ in range(TRIES):
                fold = self._refreshed()
                entry = make(fold)
                if entry is None:
                    return
                self._link(fold, entry)
        raise GuardError(
            f"{self._folder}: others published {TRIES} times while this tried to",
            place=str(self._folder),
            again=True,
        )

    def remove_before(self, horizon: float) -> int:
        """Remove manifests before the newest fold that end no volume, and what was left of some,
        older than a moment; how many.
        """
        removed = 0
        with self._lock, told(self._directory):
            newest = _newest_fold(self._numbers())
            for number in self._numbers():
                if number >= newest or number % VOLUME == 0:
                    continue
                with contextlib.suppress(FileNotFoundError):  # another one does the same
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
            # Where it was removed meanwhile, this number is too old to be read.
            with contextlib.suppress(FileNotFoundError):
                self._refuse_other_log(self._read(fold.number))
        told_of = {"rink": "guard", "format": FORMAT, "log": fold.log or uuid.uuid4().hex}
        entry = {**told_of, "number": number, **entry}
        if number % EVERY == 0:
            after = fold.copy()
            after.apply(entry)
            entry["fold"] = after.as_json()
        aside = self._folder / f".{uuid.uuid4().hex}.tmp"
        try:
            with aside.open("xb") as file:
                file.write(json.dumps(entry).encode())
                file.flush()
                os.fsync(file.fileno())
            # Who was first has it: the fold will say what it was. Not there: `remove_before` took
            # it for one left behind.
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(aside, self._path(number))
            sync(self._folder)
        finally:
            aside.unlink(missing_ok=True)

    def _refreshed(self) -> Fold:
        for _ in range(TRIES):
            try:
                self._catch_up()
                return self._fold
            except (FileNotFoundError, NotADirectoryError):
                if not self._folder.is_dir():
                    if not self._directory.is_dir():
                        self.make_folders()  # says so
                    return self._fold
        raise GuardError(
            f"{self._folder}: manifests vanish while they are read", place=str(self._folder)
        )

    def _catch_up(self) -> None:
        numbers = self._numbers()
        last, known = numbers[-1] if numbers else 0, self._fold.number
        if last < known and not self._path(known).exists():
            # A copy of the directory put back, or another machine's older view of it.
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
        # A listing may be older than the files are, where it comes over a network.
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
            raise self._broken(number, f"its fold is of {fold.number}")
        return fold

    def _volume(self, number: int) -> list[str]:
        try:
            return self._read_fold(number).files
        except FileNotFoundError:
            raise self._broken(number, "it is not there, and later ones are") from None

    def _apply(self, number: int, listed: int) -> None:
        """Take the next one into account; a listing has this one or a later one. It may lack some
        that are there.
        """
        try:
            entry = self._read(number)
        except FileNotFoundError:
            numbers = self._numbers()
            if number in numbers or listed not in numbers or _newest_fold(numbers) > number:
                raise  # somebody removes what is old: look again
            raise self._broken(number, "it is not there, and later ones are") from None
        self._refuse_other_log(entry)
        try:
            self._fold.apply(entry)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._fold = Fold()
            raise self._broken(number, f"it cannot be read ({error!r})") from error

    def _refuse_other_log(self, entry: dict[str, Any]) -> None:
        if self._fold.log not in {"", entry.get("log")}:
            raise StateError(
                f"{self._directory} is not the directory that it was when this guard saw it last: "
                "it was removed and made anew, or another lies in its place. Make a new guard "
                "(with a new checkpoint), or put the old directory back",
                key=str(self._directory),
            )

    def _read(self, number: int) -> dict[str, Any]:
        try:
            entry = json.loads(self._path(number).read_bytes())
        except ValueError as error:
            raise self._broken(number, f"it is no JSON ({error})") from error
        if (
            not isinstance(entry, dict)
            or entry.get("rink") != "guard"
            or entry.get("number") != number
        ):
            raise self._broken(number, "it was not written by a guard under this name")
        if entry.get("format") != FORMAT:
            raise self._broken(
                number, f"it has format {entry.get('format')!r}, and this release reads {FORMAT}"
            )
        if not isinstance(entry.get("log"), str):
            raise self._broken(number, "it does not say of which log it is")
        return entry

    def _numbers(self) -> list[int]:
        found = []
        for name in os.listdir(self._folder):  # noqa: PTH208 - names only
            if match := _NAME.fullmatch(name):
                found.append(int(match[1]))
            elif not name.startswith("."):
                path = self._folder / name
                raise StateError(f"{path} is no manifest of a guard. {_REPAIR}", key=str(path))
        return sorted(found)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:020d}.json"

    def _broken(self, number: int, why: str) -> StateError:
        path = self._path(number)
        return StateError(f"the manifest {path} is damaged: {why}. {_REPAIR}", key=str(path))


@contextlib.contextmanager
def told(place: Path) -> Iterator[None]:
    """Raise what the file system says inside as an error of ours."""
    try:
        yield
    except OSError as error:
        if isinstance(error, RinkError):
            raise
        where = (
            f"{place}: {error.filename}" if error.filename not in {None, str(place)} else str(place)
        )
        raise GuardError(
            f"{where}: {error.strerror or error}: a guard's directory must be writable for all "
            "who write, and on a file system with hard links",
            place=str(place),
        ) from error


def sync(folder: Path) -> None:
    """Make the names in a folder survive a crash of the machine."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _newest_fold(numbers: list[int]) -> int:
    return max((number for number in numbers if number % EVERY == 0), default=0)
