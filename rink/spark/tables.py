"""Keep the options of `CREATE TABLE … USING rink` in its schema.

Spark keeps a table's options, and hands a data source in Python none of them when the table is read. It does hand over
the schema as the source made it. So the schema that is made for a table carries the options, as metadata of a column.
"""

from __future__ import annotations

from collections.abc import Mapping

import redis
from pyspark.sql.types import StructField, StructType

from rink.errors import ConfigError
from rink.spark.options import ALL, check_names, names_of

_NOTE = "rink"
_AS_WRITTEN = "option."
"""Spark's mark of what stands in OPTIONS (…), beside table properties and keys of its own."""

_INSTEAD = (
    {"app", "appname"}, {"stream", "path"}, {"group", "name"},
    {"startingoffsets", "startingtimestamp"}, {"endingoffsets", "endingtimestamp"},
)  # fmt: skip
"""Options of which each stands in place of the others."""


def created_with(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created, else None.

    Raises:
        ConfigError: there is no such option, or one holds a password.
    """
    found = {str(name).lower(): str(value) for name, value in given.items()}
    written = {n[len(_AS_WRITTEN) :]: at for n, at in found.items() if n.startswith(_AS_WRITTEN)}
    if not {"provider", "owner"} <= found.keys():
        return None
    check_names(written, "a table", ALL)
    _refuse_password(written.get("redis", ""))
    return written | ({"path": found["location"]} if "location" in found else {})


def of_role(options: Mapping[str, str], *, of_sink: bool) -> dict[str, str]:
    """Return those options of a table that a source, or a sink, has."""
    known = names_of(of_sink=of_sink) | {"path"}
    return {name: value for name, value in options.items() if name in known}


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema that the catalog is to keep."""
    first, *others = schema.fields
    noted = {**(first.metadata or {}), _NOTE: dict(options)}
    return StructType([StructField(first.name, first.dataType, first.nullable, noted), *others])


def all_options(given: Mapping[str, str], schema: StructType, *, of_sink: bool) -> dict[str, str]:
    """Return the options of a read or a write, over those of its table.

    Raises:
        ConfigError: there are none at all, as with a table that was not created as `tables` needs it.
    """
    own = {str(name).lower(): str(value) for name, value in given.items()}
    kept: dict[str, str] = next(
        (field.metadata[_NOTE] for field in schema if _NOTE in (field.metadata or {})), {}
    )
    found = of_role(kept, of_sink=of_sink)
    for names in _INSTEAD:
        if not own.keys().isdisjoint(names):
            found = {name: value for name, value in found.items() if name not in names}
    found.update(own)
    if not found:
        raise ConfigError(_NO_OPTIONS)
    return found


_NO_OPTIONS = (
    'Spark has handed over no options to format("rink"). Those of a table reach it with the columns that it made itself: '
    "create the table without a list of columns, CREATE TABLE orders USING rink OPTIONS (app 'shop:app', stream 'orders'). "
    'To write, use df.write.format("rink").options(…).save(), since Spark hands them over to some kinds of INSERT only'
)


def _refuse_password(url: str) -> None:
    if "://" not in url:
        return
    try:
        told = redis.connection.parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise ConfigError(f"the option redis cannot be used: {error}") from error
    if told.get("password"):
        raise ConfigError(
            "the option redis has a password, and the options of a table can be read in the catalog and travel with its "
            "columns, into files as well: name a function that makes the client, redis 'MODULE:FUNCTION', or leave it to "
            "the app"
        )
