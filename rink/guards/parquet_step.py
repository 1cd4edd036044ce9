"""Stream the rows of a ParquetGuard's part into one new file.

No reader sees the file before the batch is published.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from rink.core.keys import encode_name
from rink.errors import ConfigError, UsageError
from rink.guards.parquet_log import explain_file_errors, sync
from rink.guards.values import Batch

MAX_CHUNK_ROWS = 10_000


@attrs.frozen
class PartFile:
    """Describe the file of one part; this is the part's `result` for `finish`.

    Attributes:
        part: the part's number.
        path: the file, in the guard's directory; "" if the part wrote no rows.
        rows: the number of rows in the file.
        bytes: the size of the file.
        schema: the file's Arrow schema, in base64.
    """

    part: int
    path: str = ""
    rows: int = 0
    bytes: int = 0
    schema: str = ""


class ParquetStep:
    """Write the rows of one part to its own file; without rows, make none."""

    def __init__(self, directory: Path, batch: Batch, part: int, schema: str) -> None:
        self._directory, self._part = directory, part
        self._folder = directory / folder_of(batch)
        self._name = f"{batch.number}-{part}-{uuid.uuid4().hex}.parquet"
        self._published = unpacked(schema) if schema else None
        self._file: BinaryIO | None = None
        self._writer: Any = None
        self._schema: Any = None
        self._is_open = True
        self.rows = 0

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append a table or a record batch of pyarrow.

        Raises:
            ConfigError: the schema differs from the schema of this part's earlier rows or of the
                published rows.
        """
        if not isinstance(rows, pa.Table | pa.RecordBatch):
            raise ConfigError(
                f"write takes a pyarrow Table or RecordBatch, not {type(rows).__name__}"
            )
        with explain_file_errors(self._directory):
            self._ready(rows.schema)
            if isinstance(rows, pa.Table):
                self._writer.write_table(rows)
            else:
                self._writer.write_batch(rows)
        self.rows += rows.num_rows

    def write_rows(self, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> None:
        """Append rows from dicts. Missing columns become null.

        Raises:
            ConfigError: a row has a column that is not in the schema, or a value that does not fit.
        """
        names = set(schema.names)
        coming = iter(rows)
        while some := list(itertools.islice(coming, MAX_CHUNK_ROWS)):
            for row in some:
                if not names.issuperset(row):
                    raise ConfigError(
                        f"a row has the columns {sorted(set(row) - names)}, which are not in the "
                        "schema"
                    )
            try:
                chunk = pa.RecordBatch.from_pylist(some, schema=schema)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise ConfigError(f"rows do not fit the schema: {error}") from error
            self.write(chunk)

    def close(self) -> PartFile:
        """Complete the file, sync it to disk, and describe it."""
        self._is_open = False
        if self._file is None:
            return PartFile(self._part)
        with explain_file_errors(self._directory):
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
            self._file.close()
            sync(self._folder)
        path = (self._folder / self._name).relative_to(self._directory).as_posix()
        return PartFile(self._part, path, self.rows, size, packed(self._schema))

    def drop(self) -> None:
        """Remove the file. If that fails, `vacuum` finds the orphan later."""
        self._is_open = False
        if self._file is None:
            return
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._file.close()
            (self._folder / self._name).unlink(missing_ok=True)

    def _ready(self, schema: pa.Schema) -> None:
        if not self._is_open:
            raise UsageError("this part is over: a step takes rows only inside its `with`")
        known = (self._schema, "this part"), (self._published, "the published files")
        for other, whose in known:
            if other is not None and not schema.equals(other):
                raise ConfigError(
                    f"the schema of these rows is not that of {whose}: {_plain(schema)} instead "
                    f"of {_plain(other)}. Cast them, or write to another directory"
                )
        if self._file is not None:
            return
        if not self._folder.is_dir():
            self._folder.mkdir(exist_ok=True)
            sync(self._folder.parent)
        self._file = (self._folder / self._name).open("xb")
        self._schema = schema
        self._writer = pq.ParquetWriter(self._file, schema)


def folder_of(batch: Batch) -> str:
    """Return the folder of a query's files in the directory."""
    return f"data/{encode_name(batch.query)}"


def packed(schema: pa.Schema) -> str:
    """Return a schema as text, with only names and types."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def unpacked(schema: str) -> pa.Schema:
    """Return the schema from the text that `packed` returned."""
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(schema)))


def _plain(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
