"""Keep the options of `CREATE TABLE … USING rink` in its schema.

Spark keeps a table's options, but gives a data source in Python none of them when the table is read. It does give it the
schema that the source made. So the schema of a table carries its options, as metadata of a column.
"""

from __future__ import annotations

from collections.abc import Mapping

import redis
from pyspark.sql.types import StructField, StructType

from rink.errors import ConfigError
from rink.spark.options import ALL, check_names, names_of

_NOTE = "rink"
_AS_WRITTEN = "option."
"""The prefix of keys from OPTIONS (…), beside table properties and Spark's own keys."""

_INSTEAD = (
    {"app", "appname"}, {"stream", "path"}, {"group", "name"},
    {"startingoffsets", "startingtimestamp"}, {"endingoffsets", "endingtimestamp"},
)  # fmt: skip
"""Options that exclude each other."""


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
    """Return the options of a table that a source, or a sink, knows."""
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
    'Spark gave format("rink") no options. It gets those of a table only if it made the columns itself: create the table '
    "without a list of columns, CREATE TABLE orders USING rink OPTIONS (app 'shop:app', stream 'orders'). To write, use "
    'df.write.format("rink").options(…).save(), since Spark passes options to some kinds of INSERT only'
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
            "the option redis has a password, which anybody could read in the catalog, and in files with the table's "
            "columns: name a function that makes the client, redis 'MODULE:FUNCTION', or leave the option to the app"
        )
