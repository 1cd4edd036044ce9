"""Turn the entries of a partition into Arrow batches.

If records hold only numbers, text and bools, Arrow parses their JSON itself.
"""

from __future__ import annotations

import enum
import io
from collections.abc import Sequence
from datetime import time
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyarrow import json as arrow_json
from pyspark.sql.types import StructType

from rink.spark import schema as schemas
from rink.spark.compat import arrow_schema
from rink.spark.source.reading import RangeEntry
from rink.streams.codec import Codec, JsonCodec
from rink.streams.errors import RecordError
from rink.streams.records.fields import field_names, fields_of, is_record_class

_DATA, _ONLY = b"d", b"only"


class Rows:
    """Make Arrow batches of one partition's entries.

    Without a record class, the only column is `value`, in bytes. Events that were requeued for
    another group are skipped. `what` names the stream in messages.
    """

    def __init__(
        self,
        wanted: StructType,
        number: int,
        record: type[Any] | None,
        codec: Codec[Any] | None,
        group: str,
        what: str,
    ) -> None:
        self._asked = arrow_schema(wanted)
        known = schemas.columns_of(record, metadata=False)
        self._metadata = [col for col in schemas.METADATA.fields if col.name not in known.names]
        wanted = schemas.own_names(wanted, StructType([*known.fields, *self._metadata]))
        self._schema = arrow_schema(wanted)
        self._number = number
        self._record = record
        self._codec = codec
        self._group = group.encode()
        self._what = what
        own = [name for name in wanted.names if name in known.names]
        self._own: Any = pa.schema([self._schema.field(name) for name in own])
        self._is_fast = (
            record is not None
            and type(codec) is JsonCodec
            and not codec.hooks
            and schemas.takes_all(record)
            and all(schemas.is_plain(item.hint) for item in fields_of(record) if item.name in own)
        )
        self._defaults = _defaults_of(record, own) if record is not None else {}

    def batch(self, entries: Sequence[RangeEntry]) -> Any:
        """Return a pyarrow.RecordBatch of these entries.

        Raises:
            RecordError: an entry does not match its class; the message names the entry.
        """
        kept, data = self._data(entries)
        columns = self._columns(kept, data)
        for field in self._metadata:
            if field.name in self._schema.names:
                columns[field.name] = self._place_of(kept, field.name)
        arrays = [columns[name] for name in self._schema.names]
        if self._schema != self._asked:  # nested names may differ by case
            arrays = [col.view(field.type) for col, field in zip(arrays, self._asked, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._asked)

    def _place_of(self, kept: list[bytes], name: str) -> Any:
        """Return the values of a metadata column."""
        if name == "_partition":
            return pa.array([self._number] * len(kept), pa.int32())
        if name == "_id":
            return pa.array(kept, pa.binary()).cast(pa.string())
        # Spark counts in microseconds, and ids in milliseconds.
        times = [int(at[: at.index(b"-")]) * 1000 for at in kept]
        return pa.array(times, pa.int64()).cast(self._schema.field(name).type)

    def _data(self, entries: Sequence[RangeEntry]) -> tuple[list[bytes], list[bytes]]:
        """Return the ids and records of the entries for this group."""
        if all(len(fields) == 2 and fields[0] == _DATA for _, fields in entries):  # nearly always
            return [at for at, _ in entries], [fields[1] for _, fields in entries]
        kept, data = [], []
        for at, fields in entries:
            named = dict(zip(fields[::2], fields[1::2], strict=True))
            if named.get(_ONLY, self._group) != self._group:
                continue
            kept.append(at)
            data.append(named.get(_DATA, b""))
        return kept, data

    def _columns(self, kept: list[bytes], data: list[bytes]) -> dict[str, Any]:
        if self._record is None:
            return {name: pa.array(data, pa.binary()) for name in self._own.names}
        if not self._own.names:
            return {}
        if self._is_fast and (columns := self._read_by_arrow(data)) is not None:
            return columns
        return self._read_one_by_one(kept, data)

    def _read_by_arrow(self, data: list[bytes]) -> dict[str, Any] | None:
        """Return the columns, or None if the codec may read other values."""
        if not data:
            return None
        text = b"\n".join(data)
        try:
            table = arrow_json.read_json(
                io.BytesIO(text),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=self._own, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(data):
            return None
        columns = {}
        for name in self._own.names:
            column = table.column(name).combine_chunks()
            if column.null_count and name in self._defaults:
                return None  # missing or null: only the codec knows the difference
            columns[name] = column
        return columns

    def _read_one_by_one(self, kept: list[bytes], data: list[bytes]) -> dict[str, Any]:
        assert self._codec is not None
        columns: dict[str, Any] = {}
        lists: dict[str, list[Any]] = {name: [] for name in self._own.names}
        for at, payload in zip(kept, data, strict=True):
            try:
                record = self._codec.decode(payload)
            except RecordError as error:
                raise RecordError(
                    f"event {at.decode()} of partition {self._number} of {self._what}: {error}. "
                    'Read the stream with .option("record", "raw") to see it'
                ) from None
            for name, values in lists.items():
                values.append(_plain(getattr(record, name)))
        try:
            for name, values in lists.items():
                columns[name] = pa.array(values, self._own.field(name).type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            kind, hint = self._own.field(name).type, ""
            if pa.types.is_decimal(kind):
                hint = '. Ask for another precision and scale: .schema("… decimal(38, 9)")'
            raise RecordError(
                f"partition {self._number} of {self._what}, between {kept[0].decode()} and "
                f"{kept[-1].decode()}: a value of {name!r} does not fit its column of type "
                f"{kind}: {error}{hint}"
            ) from error
        return columns


def _defaults_of(record: type[Any], own: Sequence[str]) -> dict[str, Any]:
    """Return the defaults of fields in which null does not mean None."""
    fields = {field.name: field for field in fields_of(record)}
    optional = {field.name for field in schemas.struct_of(record) if field.nullable}
    return {
        name: fields[name].default
        for name in own
        if name not in optional or fields[name].default is not None
    }


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if is_record_class(type(value)):
        return {name: _plain(getattr(value, name)) for name in field_names(type(value)) or ()}
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, time):
        return value.isoformat()
    if isinstance(value, dict):
        return [(key, _plain(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value
