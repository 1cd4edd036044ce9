"""Map record classes to columns, and find the types that Arrow can parse."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, get_args, get_origin
from uuid import UUID

from pyspark import TaskContext
from pyspark.sql import types as T  # noqa: N812 - as everybody writes it

from rink.errors import ConfigError
from rink.streams.records.fields import fields_of, is_record_class
from rink.streams.records.type_shapes import stripped

METADATA = (
    T.StructType()
    .add("_partition", T.IntegerType(), nullable=False)
    .add("_id", T.StringType(), nullable=False)
    .add("_timestamp", T.TimestampType(), nullable=False)
)
"""The metadata of an event: its partition, its entry's id, and its time by Redis' clock."""

RAW = T.StructType().add("value", T.BinaryType(), nullable=False)
"""The column if records are not decoded."""

_PLAIN: dict[type, T.DataType] = {
    int: T.LongType(),
    float: T.DoubleType(),
    str: T.StringType(),
    bool: T.BooleanType(),
    bytes: T.BinaryType(),
    datetime: T.TimestampType(),
    date: T.DateType(),
    time: T.StringType(),
    timedelta: T.DayTimeIntervalType(),
    UUID: T.StringType(),
    Decimal: T.DecimalType(38, 18),
}
"""The column type of each field type. Decimals have Spark's type for Decimal. A query may ask for
another precision and scale.
"""

_WIDER: dict[type[T.DataType], tuple[type[T.DataType], ...]] = {
    T.LongType: (T.ByteType, T.ShortType, T.IntegerType),
    T.DoubleType: (T.FloatType, T.ByteType, T.ShortType, T.IntegerType),
    T.DecimalType: (T.ByteType, T.ShortType, T.IntegerType, T.LongType),
}


def columns_of(record: type[Any] | None, *, metadata: bool) -> T.StructType:
    """Return all columns of a stream; without a record class, one byte column.

    Raises:
        ConfigError: a field has no column type, or has the name of a metadata column.
    """
    columns = RAW if record is None else struct_of(record)
    if not metadata:
        return columns
    if both := set(columns.names) & set(METADATA.names):
        raise ConfigError(
            f"a record has fields named {sorted(both)}, as columns of metadata have: read it with "
            '.option("metadata", "false")'
        )
    return T.StructType([*columns.fields, *METADATA.fields])


def wanted_of(wanted: T.StructType, all_of_them: T.StructType, what: str) -> T.StructType:
    """Check the columns that a query asked for with `.schema(...)`.

    Return them unchanged. Spark expects exactly these columns, with the same nullability.

    Raises:
        ConfigError: there is no such column, it has another type, or it may be null although the
            query says NOT NULL.
    """
    own = own_names(wanted, all_of_them)
    known = {field.name: field for field in all_of_them.fields}
    for field, its in zip(wanted.fields, own.fields, strict=True):
        if its.name in known and known[its.name].nullable and not field.nullable:
            raise ConfigError(
                f"column {field.name!r} of {what} may be null: ask for it without NOT NULL"
            )
        if its.name not in known or not fits(its.dataType, known[its.name].dataType):
            has = ", ".join(f"{col.name} {col.dataType.simpleString()}" for col in all_of_them)
            raise ConfigError(
                f"{what} has no column {field.name!r} of type {field.dataType.simpleString()}; it "
                f"has {has}"
            )
    return wanted


def own_names(columns: T.StructType, known: T.StructType) -> T.StructType:
    """Rename columns, nested ones included, to the names in the record.

    Names are compared as in Spark, ignoring case. If a record has several names that differ only by
    case, an exactly equal name is preferred, and no name is used twice.
    """
    free = [field.name for field in known.fields]
    names: dict[str, str] = {}
    for same in (str, str.lower):  # equal names first
        for field in columns.fields:
            near = [name for name in free if same(name) == same(field.name)]
            if field.name not in names and len(near) == 1:
                names[field.name] = near[0]
                free.remove(near[0])
    types = {field.name: field.dataType for field in known.fields}
    fields = []
    for field in columns.fields:
        name = names.get(field.name, field.name)
        kind = _own_type(field.dataType, types[name]) if field.name in names else field.dataType
        fields.append(T.StructField(name, kind, field.nullable))
    return T.StructType(fields)


def check_case(columns: T.StructType, known: T.StructType, what: str) -> None:
    """Refuse names in another case if the task's session distinguishes case.

    Raises:
        ConfigError: a name has another case, and spark.sql.caseSensitive is true.
    """
    own = own_names(columns, known)
    context = TaskContext.get()
    if own == columns or context is None:
        return
    if (context.getLocalProperty("spark.sql.caseSensitive") or "").lower() == "true":
        raise ConfigError(
            f"the columns {columns.simpleString()} have names of {what} in another case, and "
            f"spark.sql.caseSensitive is true: use {own.simpleString()}"
        )


def _own_type(kind: T.DataType, known: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType) and isinstance(known, T.StructType):
        return own_names(kind, known)
    if isinstance(kind, T.ArrayType) and isinstance(known, T.ArrayType):
        return T.ArrayType(_own_type(kind.elementType, known.elementType), kind.containsNull)
    if isinstance(kind, T.MapType) and isinstance(known, T.MapType):
        values = _own_type(kind.valueType, known.valueType)
        return T.MapType(kind.keyType, values, kind.valueContainsNull)
    return kind


def fits(kind: T.DataType, wanted: T.DataType, *, widens: bool = False) -> bool:
    """Return whether type `kind` fits type `wanted`, ignoring nullability.

    A struct may have fewer fields, in any order. A decimal may have any precision and scale, since
    each value is checked. A timestamp without a zone is in UTC. With `widens`, a number's `kind`
    may be narrower.
    """
    # Nested types fit if all their parts fit, so the recursion ends at plain types. Two plain types
    # fit if they are equal, if the pair is listed here, or if `_WIDER` lists the conversion.
    if isinstance(kind, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return fits(kind.elementType, wanted.elementType, widens=widens)
    if isinstance(kind, T.MapType) and isinstance(wanted, T.MapType):
        keys_fit = fits(kind.keyType, wanted.keyType, widens=widens)
        return keys_fit and fits(kind.valueType, wanted.valueType, widens=widens)
    if isinstance(kind, T.StructType) and isinstance(wanted, T.StructType):
        known = {field.name: field.dataType for field in wanted.fields}
        return all(
            field.name in known and fits(field.dataType, known[field.name], widens=widens)
            for field in kind
        )
    if isinstance(wanted, T.DecimalType) and isinstance(kind, T.DecimalType):
        return True
    if isinstance(wanted, T.TimestampType) and isinstance(kind, T.TimestampNTZType):
        return True
    return kind == wanted or (widens and type(kind) in _WIDER.get(type(wanted), ()))


def struct_of(record: type[Any]) -> T.StructType:
    """Return the fields of a record class as columns.

    Raises:
        ConfigError: a field has no column type.
    """
    fields = []
    for field in fields_of(record):
        try:
            kind, is_optional = _type_of(field.hint)
        except TypeError as error:
            raise ConfigError(
                f"field {field.name!r} of {record.__name__} is {error}, which has no column type: "
                'read the stream with .option("record", "raw") and decode the column `value`'
            ) from None
        fields.append(T.StructField(field.name, kind, nullable=is_optional))
    return T.StructType(fields)


def takes_all(record: type[Any]) -> bool:
    """Return whether a record class neither checks nor changes values."""
    own = ("__attrs_pre_init__", "__attrs_post_init__", "__post_init__")
    return not any(hasattr(record, name) for name in own) and not any(
        field.is_checked for field in fields_of(record)
    )


def is_plain(hint: Any) -> bool:
    """Return whether Arrow parses a field of this type as the codec does."""
    inner, _ = _without_none(hint)
    return inner in (int, float, str, bool)


def _type_of(hint: Any) -> tuple[T.DataType, bool]:
    hint, is_optional = _without_none(hint)
    if isinstance(hint, type) and hint in _PLAIN:
        return _PLAIN[hint], is_optional
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _of_values(hint, [member.value for member in hint]), is_optional
    if is_record_class(hint):
        return struct_of(hint), is_optional
    return _compound(hint, get_origin(hint), get_args(hint)), is_optional


def _compound(hint: Any, origin: Any, args: tuple[Any, ...]) -> T.DataType:
    if origin is Literal:
        return _of_values(hint, args)
    if origin is tuple and (args[1:] == (Ellipsis,) or len(set(args)) == 1):
        args = args[:1]
    if isinstance(origin, type) and issubclass(origin, Mapping) and args and args[0] is str:
        kind, is_optional = _type_of(args[1])
        return T.MapType(T.StringType(), kind, valueContainsNull=is_optional)
    is_list = isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset)
    if is_list and len(args) == 1:
        kind, is_optional = _type_of(args[0])
        return T.ArrayType(kind, containsNull=is_optional)
    raise TypeError(repr(hint))


def _of_values(hint: Any, values: Sequence[object]) -> T.DataType:
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and (only := kinds.pop()) in _PLAIN:
        return _PLAIN[only]
    raise TypeError(repr(hint))


def _without_none(hint: Any) -> tuple[Any, bool]:
    hint = stripped(hint)
    if get_origin(hint) in (typing.Union, types.UnionType):
        others = [member for member in get_args(hint) if member is not type(None)]
        if len(others) == 1 and len(get_args(hint)) == 2:
            return stripped(others[0]), True
    return hint, False
