"""A guard of a directory of Parquet files: parts write files aside, one manifest publishes a whole
batch.

    {directory}/data/{query}/{batch}-{part}-{uuid}.parquet     what parts wrote, published or not
    {directory}/manifests/00000000000000000017.json            what holds, in its order

So a batch is there as a whole or not at all, and who reads the directory through `files()` or
`read()` sees nothing else. The fence is looked at when the manifest is made: a file of a stale part
is an orphan, and harms nobody.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from rink.arguments import check_seconds
from rink.errors import ConfigError, StateError
from rink.guards.guard import Guard, Part, check_told, cut_otherwise, not_begun
from rink.guards.parquet_log import Fold, Log, told
from rink.guards.parquet_step import ParquetStep, PartFile, folder_of, unpacked
from rink.guards.processes import PerProcess
from rink.guards.values import Batch, Fence

__all__ = ["ParquetGuard", "ParquetStep", "PartFile", "Vacuumed"]


@attrs.frozen
class Vacuumed:
    """What `vacuum` has removed.

    Attributes:
        files: of parts that were never published.
        manifests: that later ones repeat.
    """

    files: int
    manifests: int


class ParquetGuard(Guard):
    """Guards a directory, on a file system of POSIX that all processes share. The step of a part is
    a `ParquetStep`.

    All files have one schema. A batch is published by `finish`, which needs the `result` of each
    part.

    Args:
        directory: must be there. Give each output its own, and put nothing else into it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        if not os.fspath(_path(directory)):
            raise ConfigError("directory is empty: give a path")
        if re.match(r"[a-zA-Z][\w+.-]*://", os.fspath(directory)):
            raise ConfigError(
                f"{directory} is a URL: ParquetGuard needs a directory with hard links"
            )
        # Absolute: where parts are written, another directory is the current one.
        self._directory = Path(os.fspath(directory)).absolute()
        self._own: PerProcess[Log] = PerProcess()
        self._own.ends_with(self)

    def raise_fence(self, fence: Fence) -> None:  # noqa: D102 - as of Guard
        check_told(fence)

        def make(fold: Fold) -> dict[str, Any] | None:
            self._refuse_stale(fence, fold)
            if fold.fences.get(fence.name) == fence.token:
                return None
            return {"fence": {"name": fence.name, "token": fence.token}}

        self._log().publish(make)

    def begin(self, fence: Fence, batch: Batch) -> None:  # noqa: D102
        check_told(fence, batch)
        with self._log().folded() as fold:
            self._refuse_stale(fence, fold)
            self._refuse_other_cut(batch, fold)
        self.raise_fence(fence)

    def part(self, fence: Fence, batch: Batch, number: int) -> Part[ParquetStep]:  # noqa: D102
        return _ParquetPart(self, fence, batch, number)

    def finish(self, fence: Fence, batch: Batch, results: Sequence[Any]) -> None:
        """Publish a batch: all its files, or none.

        Args:
            fence: under which it was begun.
            batch: which one.
            results: the `result` of each part, in any order.

        Raises:
            StaleToken: a greater token has been seen; nothing is published.
            StateError: a file is not there, or the batch was not begun.
            ConfigError: a part has no result, or two; or their schemas differ.
        """
        check_told(fence, batch)
        tried = False

        def make(fold: Fold) -> dict[str, Any] | None:
            nonlocal tried
            newest = newest_of(batch.query, fold)
            is_published = newest is not None and newest >= batch.number
            if is_published and tried:  # whoever has raised the fence since
                return None
            tried = True
            self._refuse_stale(fence, fold)
            if fold.fences.get(fence.name) != fence.token:
                raise not_begun(fence, fold.fences.get(fence.name), str(self._directory))
            self._refuse_other_cut(batch, fold)
            if is_published:
                return None
            files = _checked(batch, results)
            schema = _one_schema(files, fold.schema)
            self._look_at(files, fold)
            listed = [{"path": one.path, "rows": one.rows, "bytes": one.bytes} for one in files]
            told_of = {"name": fence.name, "token": fence.token, "query": batch.query}
            counts = {"number": batch.number, "parts": batch.parts}
            return {"batch": {**told_of, **counts, "files": listed, "schema": schema}}

        self._log().publish(make)

    def files(self) -> list[str]:
        """Return the absolute paths of all published files, in the order of their batches."""
        log = self._log()
        with log.folded() as fold:
            return [str(self._directory / path) for path in log.files(fold)]

    def read(self) -> pa.Table:
        """Return all that is published as one table; without rows and columns where nothing was."""
        log = self._log()
        with log.folded() as fold:
            paths, schema = log.files(fold), fold.schema
        if not schema:
            return pa.table({})
        tables = []
        with told(self._directory):
            for path in paths:
                try:
                    with pq.ParquetFile(self._directory / path) as file:
                        tables.append(file.read().replace_schema_metadata(None))
                except (pa.ArrowException, FileNotFoundError) as error:
                    raise StateError(
                        f"{self._directory / path} is published and cannot be read: {error}. "
                        "Restore it from a backup",
                        key=path,
                    ) from error
        return pa.concat_tables([unpacked(schema).empty_table(), *tables])

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of all that is published; None before the first rows."""
        with self._log().folded() as fold:
            return unpacked(fold.schema) if fold.schema else None

    def vacuum(self, older_than_s: float) -> Vacuumed:
        """Remove files that no batch has published, and manifests that later ones repeat.

        Args:
            older_than_s: only what is older. A batch that takes longer than that may lose a file
                while it is under way, and is then refused as a whole: make it longer than any
                batch, a day for instance.
        """
        horizon = time.time() - check_seconds("older_than_s", older_than_s)
        doomed: set[str] = set()

        def make(fold: Fold) -> dict[str, Any] | None:
            doomed.clear()
            doomed.update(self._orphans(fold, horizon))
            return None if doomed == fold.condemned else {"condemned": sorted(doomed)}

        self._log().publish(make)
        with told(self._directory):
            for path in doomed:
                (self._directory / path).unlink(missing_ok=True)
        return Vacuumed(len(doomed), self._log().remove_before(horizon))

    def close(self) -> None:  # noqa: D102
        self._own.take()

    def __repr__(self) -> str:
        return f"<ParquetGuard {str(self._directory)!r}>"

    def _log(self) -> Log:
        return self._own.get(lambda: Log(self._directory))

    def _refuse_stale(self, fence: Fence, fold: Fold) -> None:
        seen = fold.fences.get(fence.name, 0)
        if seen > fence.token:
            raise fence.stale(seen, str(self._directory))

    def _refuse_other_cut(self, batch: Batch, fold: Fold) -> None:
        parts, _ = fold.queries.get(batch.query, (batch.parts, 0))
        if parts != batch.parts:
            raise cut_otherwise(batch, parts, str(self._directory))

    def _look_at(self, files: Sequence[PartFile], fold: Fold) -> None:
        for one in files:
            path = self._directory / one.path
            if (
                one.path not in fold.condemned
                and path.is_file()
                and path.stat().st_size == one.bytes
            ):
                continue
            raise StateError(
                f"{path} is not there as part {one.part} wrote it; vacuum takes what is older "
                "than it is told. Write the batch anew",
                key=one.path,
            )

    def _orphans(self, fold: Fold, horizon: float) -> set[str]:
        """Unpublished files that are old; and what was condemned before and is still there:
        somebody may be removing it.
        """
        published, found = set(self._log().files(fold)), set()
        for path in (self._directory / "data").glob("*/*.parquet"):
            name = path.relative_to(self._directory).as_posix()
            if name in published:
                continue
            try:
                if name in fold.condemned or path.stat().st_mtime < horizon:
                    found.add(name)
            except FileNotFoundError:  # its part failed just now
                continue
        return found


class _ParquetPart(Part[ParquetStep]):
    def __init__(self, guard: ParquetGuard, fence: Fence, batch: Batch, number: int) -> None:
        super().__init__(fence, batch, number)
        self._guard = guard

    def _open(self) -> ParquetStep | None:
        guard = self._guard
        with told(guard._directory):  # noqa: SLF001 - of this module
            guard._log().make_folders()  # noqa: SLF001
        with guard._log().folded() as fold:  # noqa: SLF001
            self._refuse(fold)
            self.written = newest_of(self.batch.query, fold)
            if self._is_written():
                return None
            return ParquetStep(guard._directory, self.batch, self.number, fold.schema)  # noqa: SLF001

    def _commit(self, step: ParquetStep) -> PartFile:
        try:
            written = step.close()
            with self._guard._log().folded() as fold:  # noqa: SLF001
                self._refuse(fold)
        except BaseException:
            step.drop()
            raise
        return written

    def _abandon(self, step: ParquetStep, error: BaseException) -> None:  # noqa: ARG002
        step.drop()

    def _refuse(self, fold: Fold) -> None:
        # A greater token than was seen is let through: another machine's view of the directory may
        # be older than the manifest that `begin` made. `finish` asks again.
        self._guard._refuse_stale(self.fence, fold)  # noqa: SLF001
        self._guard._refuse_other_cut(self.batch, fold)  # noqa: SLF001


def _path(directory: Any) -> str | os.PathLike[str]:
    if isinstance(directory, str | os.PathLike):
        return directory
    raise ConfigError(f"directory must be a path, not {directory!r}")


def newest_of(query: str, fold: Fold) -> int | None:
    """The newest batch of a query that is published; None where none is."""
    _, newest = fold.queries.get(query, (0, None))
    return newest


def _checked(batch: Batch, results: Sequence[Any]) -> list[PartFile]:
    """Return what is to be published, in the order of the parts."""
    by_part: dict[int, PartFile] = {}
    for one in results:
        if not isinstance(one, PartFile):
            raise ConfigError(f"finish takes the `result` of each part, not {one!r}")
        if one.part in by_part:
            raise ConfigError(f"part {one.part} of batch {batch.number} is given twice")
        if one.path and not one.path.startswith(f"{folder_of(batch)}/{batch.number}-{one.part}-"):
            raise ConfigError(
                f"{one.path} is not of part {one.part} of batch {batch.number} of {batch.query!r}"
            )
        by_part[one.part] = one
    missing = set(range(batch.parts)) ^ set(by_part)
    if missing:
        raise ConfigError(
            f"batch {batch.number} has parts 0 to {batch.parts - 1}, each with one result: see "
            f"{sorted(missing)[:10]}"
        )
    return [by_part[part] for part in sorted(by_part) if by_part[part].path]


def _one_schema(files: Sequence[PartFile], published: str) -> str:
    for one in files:
        published = published or one.schema
        if not unpacked(one.schema).equals(unpacked(published)):
            raise ConfigError(
                f"the schema of {one.path} is not that of the rest: nothing is published"
            )
    return published
