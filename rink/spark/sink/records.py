"""Rows of a DataFrame to records, and to the partitions that these go to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

import attrs
import cattrs
from pyspark.sql import types as T  # noqa: N812 - as everybody writes it

from rink.errors import ConfigError
from rink.spark import schema as schemas
from rink.spark.options import Place
from rink.streams.errors import RecordError
from rink.streams.stream import Stream, partition_of

Made = tuple[int, bytes]
"""The partition, and the bytes of a record."""


def check_columns(place: Place, given: T.StructType) -> None:
    """See that a DataFrame has what the stream's records need, and nothing else.

    Raises:
        ConfigError: it has not; the message names the columns.
    """
    record, declared = place.record_class(), place.declared()
    if record is None:
        _check_raw(place, given)
        return
    if declared is None or record is not declared.record:
        raise ConfigError(
            f"to write records to {place}, give the option app: it knows their key. With appName, or with a record class "
            "of another kind, bytes can be written: columns `key` and `value`, without the option record"
        )
    fields, wanted = attrs.fields_dict(record), schemas.struct_of(record)
    known = {field.name: field for field in wanted.fields}
    needed = {name for name, field in fields.items() if field.default is attrs.NOTHING}
    wrong = [
        f"{field.name} {field.dataType.simpleString()}"
        for field in given.fields
        if field.name not in known
        or not schemas.fits(field.dataType, known[field.name].dataType, widens=True)
    ]
    missing = sorted(needed - set(given.names))
    if wrong or missing:
        raise ConfigError(
            f"the DataFrame does not match {record.__name__}, the record class of {place}: "
            + "; ".join(
                [f"{one} is no column of it" for one in wrong]
                + [f"{name} is missing" for name in missing]
            )
            + ". Its columns are "
            + ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in wanted.fields)
        )


def maker(place: Place, count: int) -> Callable[[Mapping[str, Any]], Made]:
    """Return what makes a record of a row.

    Args:
        place: the stream, whose columns have been checked.
        count: how many partitions it has.

    Raises:
        RecordError: (what is returned) a row does not match.
    """
    record, declared = place.record_class(), place.declared()
    if record is None or declared is None:
        return lambda row: _raw(row, count)
    build = _builder(record)
    return lambda row: _record(declared, build, row)


def _record(stream: Stream[Any], build: Callable[[Mapping[str, Any]], Any], row: Mapping[str, Any]) -> Made:  # fmt: skip
    try:
        made = build(row)
    except Exception as error:
        raise RecordError(
            f"{dict(row)!r} does not match {stream.record.__name__}: {error}"
        ) from error
    return stream.partition_of(made), stream.codec.encode(made)


def _raw(row: Mapping[str, Any], count: int) -> Made:
    key, value = row["key"], row["value"]
    if key is None or key == "" or value is None:
        raise RecordError(f"{dict(row)!r} has no key, or no value")
    return partition_of(key, count), value if isinstance(value, bytes) else value.encode()


def _builder(record: type[Any]) -> Callable[[Mapping[str, Any]], Any]:
    if all(schemas.is_plain(record, field.name) for field in attrs.fields(record)):
        return lambda row: record(**row)
    converter = cattrs.Converter()
    for kind in (
        datetime,
        date,
        bytes,
        int,
        float,
        str,
        bool,
    ):  # Arrow made them, the codec checks them
        converter.register_structure_hook(kind, lambda value, _: value)
    return lambda row: converter.structure(row, record)


def _check_raw(place: Place, given: T.StructType) -> None:
    kinds = {field.name: type(field.dataType) for field in given.fields}
    is_right = kinds.keys() == {"key", "value"} and kinds["key"] is T.StringType
    if not is_right or kinds["value"] not in (T.BinaryType, T.StringType):
        raise ConfigError(
            f"to write bytes to {place}, a DataFrame has the columns `key` string and `value` binary or string, and "
            f"not {given.simpleString()}; for records, give the option app"
        )
