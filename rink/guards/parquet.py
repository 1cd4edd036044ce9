"""Guard a directory of Parquet files.

Each part writes an unpublished file, and one manifest publishes a whole batch:

    {directory}/data/{query}/{batch}-{part}-{uuid}.parquet     written by parts, published or not
    {directory}/manifests/00000000000000000017.json            the published state, in its order

So readers see a whole batch or nothing of it. They use `files()` or `read()`. The fence is checked
when the manifest is made. So a stale part leaves only an orphan file, which does no harm.
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
from rink.guards.parquet_log import Fold, Log, explain_file_errors
from rink.guards.parquet_step import ParquetStep, PartFile, folder_of, unpacked
from rink.guards.processes import PerProcess
from rink.guards.values import Batch, Fence

__all__ = ["ParquetGuard", "ParquetStep", "PartFile", "Vacuumed"]


@attrs.frozen
class Vacuumed:
    """Hold the numbers of removed unpublished files and old manifests."""

    files: int
    manifests: int


class ParquetGuard(Guard):
    """Guard a directory on a POSIX file system that all processes share.

    The step of a part is a `ParquetStep`. All files have one schema. `finish` publishes a batch,
    and needs the `result` of each part.

    Args:
        directory: an existing directory. Give each output its own, and put nothing else into it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        if not isinstance(directory, str | os.PathLike):
            raise ConfigError(f"directory must be a path, not {directory!r}")
        if not os.fspath(directory):
            raise ConfigError("directory is empty: give a path")
        if re.match(r"[a-zA-Z][\w+.-]*://", os.fspath(directory)):
            raise ConfigError(
                f"{directory} is a URL: ParquetGuard needs a local directory with hard links"
            )
        # The path is absolute, since other processes write parts in another current directory.
        self._directory = Path(os.fspath(directory)).absolute()
        self._own: PerProcess[Log] = PerProcess()
        self._own.ends_with(self)

    def raise_fence(self, fence: Fence) -> None:  # noqa: D102 - see Guard
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
        """Publish all files of a batch, or none.

        The results may come in any order.

        Raises:
            StaleToken: the guard has seen a greater token; nothing is published.
            StateError: a file is missing, or the batch was not begun.
            ConfigError: a part has no result or two results, or the schemas differ.
        """
        check_told(fence, batch)
        tried = False

        def make(fold: Fold) -> dict[str, Any] | None:
            nonlocal tried
            newest = newest_of(batch.query, fold)
            is_published = newest is not None and newest >= batch.number
            if is_published and tried:  # this call has published it, even if the fence rose since
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
            listed = [{"path": file.path, "rows": file.rows, "bytes": file.bytes} for file in files]
            grant = {"name": fence.name, "token": fence.token, "query": batch.query}
            counts = {"number": batch.number, "parts": batch.parts}
            return {"batch": {**grant, **counts, "files": listed, "schema": schema}}

        self._log().publish(make)

    def files(self) -> list[str]:
        """Return the absolute paths of all published files, in batch order."""
        log = self._log()
        with log.folded() as fold:
            return [str(self._directory / path) for path in log.files(fold)]

    def read(self) -> pa.Table:
        """Return all published rows as one table, which may be empty."""
        log = self._log()
        with log.folded() as fold:
            paths, schema = log.files(fold), fold.schema
        if not schema:
            return pa.table({})
        tables = []
        with explain_file_errors(self._directory):
            for path in paths:
                try:
                    with pq.ParquetFile(self._directory / path) as file:
                        tables.append(file.read().replace_schema_metadata(None))
                except (pa.ArrowException, FileNotFoundError) as error:
                    raise StateError(
                        f"{self._directory / path} is published but cannot be read: {error}. "
                        "Restore it from a backup",
                        key=path,
                    ) from error
        return pa.concat_tables([unpacked(schema).empty_table(), *tables])

    @property
    def schema(self) -> pa.Schema | None:
        """Return the schema of all published rows; None before the first rows."""
        with self._log().folded() as fold:
            return unpacked(fold.schema) if fold.schema else None

    def vacuum(self, older_than_s: float) -> Vacuumed:
        """Remove old unpublished files, and old manifests.

        Manifests from the newest fold on stay, and so do those that end a volume.

        Args:
            older_than_s: the minimum age of removed files, in seconds. It must be longer than any
                batch takes, for example a day. A batch that takes longer may lose a file, and
                `finish` then refuses the whole batch.
        """
        horizon = time.time() - check_seconds("older_than_s", older_than_s)
        doomed: set[str] = set()

        def make(fold: Fold) -> dict[str, Any] | None:
            doomed.clear()
            doomed.update(self._orphans(fold, horizon))
            return None if doomed == fold.condemned else {"condemned": sorted(doomed)}

        self._log().publish(make)
        with explain_file_errors(self._directory):
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
        for file in files:
            path = self._directory / file.path
            is_there = path.is_file() and path.stat().st_size == file.bytes
            if file.path in fold.condemned or not is_there:
                raise StateError(
                    f"{path} is not there as part {file.part} wrote it. Write the batch anew, and "
                    "call vacuum with a greater older_than_s",
                    key=file.path,
                )

    def _orphans(self, fold: Fold, horizon: float) -> set[str]:
        """Return old unpublished files, and condemned files that are still there.

        A condemned file stays condemned, since another process may be removing it.
        """
        published, orphans = set(self._log().files(fold)), set()
        for path in (self._directory / "data").glob("*/*.parquet"):
            name = path.relative_to(self._directory).as_posix()
            if name in published:
                continue
            try:
                if name in fold.condemned or path.stat().st_mtime < horizon:
                    orphans.add(name)
            except FileNotFoundError:  # its part failed just now
                continue
        return orphans


class _ParquetPart(Part[ParquetStep]):
    def __init__(self, guard: ParquetGuard, fence: Fence, batch: Batch, number: int) -> None:
        super().__init__(fence, batch, number)
        self._guard = guard

    def _open(self) -> ParquetStep | None:
        guard = self._guard
        with explain_file_errors(guard._directory):  # noqa: SLF001 - of this module
            guard._log().make_folders()  # noqa: SLF001
        with guard._log().folded() as fold:  # noqa: SLF001
            self._refuse(fold)
            self.written = newest_of(self.batch.query, fold)
            if self._is_written():
                return None
            directory = guard._directory  # noqa: SLF001
            return ParquetStep(directory, self.batch, self.number, fold.schema)

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
        # Another machine's view of the directory may be older than the manifest that `begin` made.
        # So a token above all seen ones is accepted here. `finish` checks again.
        self._guard._refuse_stale(self.fence, fold)  # noqa: SLF001
        self._guard._refuse_other_cut(self.batch, fold)  # noqa: SLF001


def newest_of(query: str, fold: Fold) -> int | None:
    """Return the number of the newest published batch of a query, or None."""
    _, newest = fold.queries.get(query, (0, None))
    return newest


def _checked(batch: Batch, results: Sequence[Any]) -> list[PartFile]:
    """Return the files to publish, in the order of the parts."""
    by_part: dict[int, PartFile] = {}
    for result in results:
        if not isinstance(result, PartFile):
            raise ConfigError(f"finish takes the `result` of each part, not {result!r}")
        if result.part in by_part:
            raise ConfigError(f"part {result.part} of batch {batch.number} is given twice")
        prefix = f"{folder_of(batch)}/{batch.number}-{result.part}-"
        if result.path and not result.path.startswith(prefix):
            raise ConfigError(
                f"{result.path} does not belong to part {result.part} of batch {batch.number} of "
                f"{batch.query!r}"
            )
        by_part[result.part] = result
    missing = set(range(batch.parts)) ^ set(by_part)
    if missing:
        raise ConfigError(
            f"batch {batch.number} has parts 0 to {batch.parts - 1}, each with one result: check "
            f"{sorted(missing)[:10]}"
        )
    return [by_part[part] for part in sorted(by_part) if by_part[part].path]


def _one_schema(files: Sequence[PartFile], published: str) -> str:
    for file in files:
        published = published or file.schema
        if not unpacked(file.schema).equals(unpacked(published)):
            raise ConfigError(
                f"the schema of {file.path} differs from that of the other files: nothing is "
                "published"
            )
    return published
