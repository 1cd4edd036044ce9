"""Keep the options of `CREATE TABLE … USING rink` in its schema.

Spark keeps a table's options, but does not pass them to a Python data source when the table is
read. It passes the schema that the source made. So the schema of a table carries the options, as
metadata of a column.

This does not work for writes: in INSERT INTO b SELECT * FROM a, Spark passes the columns of a. So a
write without its own options is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import redis
from pyspark.sql.types import StructField, StructType

from rink.errors import ConfigError
from rink.redis.error_map import reading
from rink.spark.options import OF_SOURCE, check_names

_NOTE = "rink"
_AS_WRITTEN = "option."
"""The prefix of keys from OPTIONS (…). Table properties and Spark's own keys do not have it."""

_PLACE = ({"app", "appname"}, {"stream", "path"})
_INSTEAD = (
    *_PLACE, {"group", "name"},
    {"startingoffsets", "startingtimestamp"}, {"endingoffsets", "endingtimestamp"},
)  # fmt: skip
"""Sets of options that exclude each other."""


def created_with(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of CREATE TABLE, or None if Spark creates no table.

    Raises:
        ConfigError: a source has no such option, or an option holds a password.
    """
    table = {str(name).lower(): str(value) for name, value in options.items()}
    written = {n[len(_AS_WRITTEN) :]: at for n, at in table.items() if n.startswith(_AS_WRITTEN)}
    if not {"provider", "owner"} <= table.keys():
        return None
    check_names(written, "a table", OF_SOURCE)
    _refuse_password(written.get("redis", ""))
    return written | ({"path": table["location"]} if "location" in table else {})


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema with the options, which the catalog then keeps."""
    first, *others = schema.fields
    noted = {**(first.metadata or {}), _NOTE: dict(options)}
    return StructType([StructField(first.name, first.dataType, first.nullable, noted), *others])


def options_of_read(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read, merged over the options of its table.

    Raises:
        ConfigError: there are no options, since the table was created with a list of columns.
    """
    own = {str(name).lower(): str(value) for name, value in options.items()}
    if all(not own.keys().isdisjoint(names) for names in _PLACE):
        return own  # the read names its stream, so any note is of another read
    result: dict[str, str] = next(
        (dict(field.metadata[_NOTE]) for field in schema if _NOTE in (field.metadata or {})), {}
    )
    for names in _INSTEAD:
        if not own.keys().isdisjoint(names):
            result = {name: value for name, value in result.items() if name not in names}
    result.update(own)
    if not result:
        raise ConfigError(_NO_OPTIONS)
    return result


def options_of_write(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return a write's own options, or raise ConfigError if there are none."""
    if not options:
        raise ConfigError(_NO_OPTIONS_TO_WRITE)
    return options


_NO_OPTIONS = (
    'Spark gave format("rink") no options. It gets those of a table only if it made the columns '
    "itself: create the table without a list of columns, CREATE TABLE orders USING rink OPTIONS "
    "(app 'shop:app', stream 'orders')"
)

_NO_OPTIONS_TO_WRITE = (
    'Spark gave format("rink") no options, and the columns of rows do not name their table. '
    'Nothing was written. Write with df.write.format("rink").options(app="shop:app", '
    'stream="orders").mode("append").save(), or with '
    "INSERT INTO orders WITH (app = 'shop:app', stream = 'orders') …"
)


def _refuse_password(url: str) -> None:
    if "://" not in url:
        return
    with reading("the option redis", url):
        parts = redis.connection.parse_url(url)  # type: ignore[no-untyped-call]
    if any("password" in name.lower() and value for name, value in parts.items()):
        raise ConfigError(
            "the option redis has a password. Anybody could read it in the catalog, and in files "
            "with the table's columns. Name a function that makes the client, redis "
            "'MODULE:FUNCTION', or leave the option to the app"
        )
