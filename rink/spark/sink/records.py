"""Turn rows of a DataFrame into records, and choose their partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import cattrs
from pyspark.sql import types as T  # noqa: N812 - as everybody writes it

from rink.errors import ConfigError
from rink.spark import schema as schemas
from rink.spark.options import StreamPlace
from rink.streams.errors import RecordError
from rink.streams.records.fields import fields_of
from rink.streams.stream import Stream, partition_of

Made = tuple[int, bytes]
"""The partition and the bytes of a record."""

_RAW = T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])


def check_columns(place: StreamPlace, schema: T.StructType) -> None:
    """Raise ConfigError unless a DataFrame has the columns of the records."""
    record, declared = place.record_class(), place.declared()
    if record is None:
        _check_raw(place, schema)
        return
    if declared is None or record is not declared.record:
        raise ConfigError(
            f"to write records to {place}, give the option app, which knows their key. With "
            "appName, or with another record class, only bytes can be written: columns `key` and "
            "`value`, without the option record"
        )
    wanted = schemas.struct_of(record)
    own = schemas.own_names(schema, wanted)
    known = {field.name: field for field in wanted.fields}
    needed = {field.name for field in fields_of(record) if field.is_required}
    problems = [
        f"{field.name} {field.dataType.simpleString()} is no column of it"
        for field, its in zip(schema.fields, own.fields, strict=True)
        if its.name not in known
        or not schemas.fits(its.dataType, known[its.name].dataType, widens=True)
    ]
    problems += [f"{name} is missing" for name in sorted(needed - set(own.names))]
    if problems:
        columns = ", ".join(f"{col.name} {col.dataType.simpleString()}" for col in wanted.fields)
        raise ConfigError(
            f"the DataFrame does not match {record.__name__}, the record class of {place}: "
            f"{'; '.join(problems)}. Its columns are {columns}"
        )


def maker(
    place: StreamPlace, count: int, schema: T.StructType
) -> Callable[[Mapping[str, Any]], Made]:
    """Return a function that turns a row into a record for a partition.

    The function raises RecordError if a row does not match. `count` is the number of partitions.
    """
    record, declared = place.record_class(), place.declared()
    known = _RAW if record is None or declared is None else schemas.struct_of(record)
    schemas.check_case(schema, known, str(place))
    own = _renaming(schema, schemas.own_names(schema, known))
    if record is None or declared is None:
        partition = declared.partition_of_key if declared else partial(partition_of, count=count)
        return lambda row: _raw(own(row), partition)
    build = _builder(record)
    return lambda row: _record(declared, build, own(row))


def _renaming(kind: T.DataType, own: T.DataType) -> Callable[[Any], Any]:
    """Return a function that renames nested fields to the record's names."""
    if kind == own:
        return lambda value: value
    if isinstance(kind, T.ArrayType) and isinstance(own, T.ArrayType):
        inner = _renaming(kind.elementType, own.elementType)
        return lambda value: value if value is None else [inner(item) for item in value]
    if isinstance(kind, T.MapType) and isinstance(own, T.MapType):
        inner = _renaming(kind.valueType, own.valueType)
        return lambda value: value if value is None else {k: inner(v) for k, v in value.items()}
    assert isinstance(kind, T.StructType)
    assert isinstance(own, T.StructType)
    fields = [
        (field.name, its.name, _renaming(field.dataType, its.dataType))
        for field, its in zip(kind.fields, own.fields, strict=True)
    ]
    return lambda value: (
        value if value is None else {to: change(value[name]) for name, to, change in fields}
    )


def _record(
    stream: Stream[Any], build: Callable[[Mapping[str, Any]], Any], row: Mapping[str, Any]
) -> Made:
    try:
        record = build(row)
    except Exception as error:
        reasons = cattrs.transform_error(error) if isinstance(error, ExceptionGroup) else [error]
        raise RecordError(
            f"{dict(row)!r} does not match {stream.record.__name__}: {'; '.join(map(str, reasons))}"
        ) from error
    return stream.partition_of(record), stream.encode(record)


def _raw(row: Mapping[str, Any], partition: Callable[[str], int]) -> Made:
    key, value = row["key"], row["value"]
    if key is None or key == "" or value is None:
        raise RecordError(f"{dict(row)!r} has no key, or no value: give both columns a value")
    return partition(key), value if isinstance(value, bytes) else value.encode()


_AS_IT_IS = (datetime, date, timedelta, bytes, int, float, str, bool)


def _builder(record: type[Any]) -> Callable[[Mapping[str, Any]], Any]:
    if all(schemas.is_plain(field.hint) for field in fields_of(record)):
        return lambda row: record(**row)
    converter = cattrs.Converter()
    # Arrow made these values, and the codec checks them. Compare the exact type, since an enum of
    # texts or numbers is a subclass of one of these.
    converter.register_structure_hook_func(lambda kind: kind in _AS_IT_IS, lambda value, _: value)
    converter.register_structure_hook(Decimal, lambda value, _: Decimal(value))  # or an int
    # A DataFrame holds these types as text.
    converter.register_structure_hook(UUID, lambda value, _: UUID(value))
    converter.register_structure_hook(time, lambda value, _: time.fromisoformat(value))
    return lambda row: converter.structure(row, record)


def _check_raw(place: StreamPlace, schema: T.StructType) -> None:
    kinds = {field.name: type(field.dataType) for field in schemas.own_names(schema, _RAW).fields}
    is_right = kinds.keys() == {"key", "value"} and kinds["key"] is T.StringType
    if not is_right or kinds["value"] not in (T.BinaryType, T.StringType):
        raise ConfigError(
            f"to write bytes to {place}, a DataFrame must have the columns `key` string and "
            f"`value` binary or string, not {schema.simpleString()}. To write records, give the "
            "option app"
        )
