"""Add the ranks and owners of a DataFrame's roles as columns.

Python workers compute the ranks, one Arrow batch at a time (`arrow_udf`). A Spark expression in the
JVM computes the members from the ranks. Wrong arguments are found before a job runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rink.errors import ConfigError
from rink.spark.roles.rank_arrays import text
from rink.spark.roles.version_ranks import Ranked, RoleMap

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

BEFORE, AFTER = "_before", "_after"
"""The suffixes of the columns that `moves` adds."""


def assign(
    df: DataFrame,
    role: str,
    by: int | Ranked,
    *,
    scheme: str = "jump",
    rank: str = "rank",
    member: str = "member",
) -> DataFrame:
    """Add each role's rank and, for a version, its owner.

    Args:
        df: any DataFrame, also a streaming one.
        role: the column of roles, a string. A null role has no rank and no member.
        by: a number of ranks, or a version.
        scheme: the scheme's name for a number of ranks. A version has its own scheme.
        rank: the new int column, for the scheme's rank of the role, as `rink.rank_of` returns it.
            Pins do not change it.
        member: the new string column, only for a version, for the role's owner. The owner is the
            member to which the role is pinned, if that member is ranked, else the rank's member.

    Returns:
        The DataFrame with one or two more columns. No job has run yet.

    Raises:
        ConfigError: there is no such column, it is not a string, a new column exists already, or
            `by` is not valid.
        UnknownScheme: there is no such scheme in this process.
    """
    wanted = RoleMap.of(by, scheme)
    added = (rank,) if isinstance(by, int) else (rank, member)
    names = role_column(df, role, added)
    df = df.withColumn(rank, _function(wanted.ranks_of, "int", names))
    return df if isinstance(by, int) else df.withColumn(member, _member(wanted, names, _col(rank)))


def moves(
    df: DataFrame,
    role: str,
    before: int | Ranked,
    after: int | Ranked,
    *,
    scheme: str = "jump",
    rank: str = "rank",
    member: str = "member",
) -> DataFrame:
    """Return the roles whose owners differ between two versions.

    `before` and `after` are two versions, or two numbers of ranks. Between numbers, a role moves if
    its rank differs. `rank` and `member` are prefixes of new columns, such as `rank_before` and
    `rank_after`. All other arguments are those of `assign`. Each role is hashed once.

    Returns:
        The rows of roles that move, with two or four more columns. No job has run yet.

    Raises:
        ConfigError: see `assign`. Or `before` is a version and `after` a number, or vice versa.
        UnknownScheme: there is no such scheme in this process.
    """
    if isinstance(before, int) is not isinstance(after, int):
        raise ConfigError(
            "a version and a number of ranks cannot be compared: give two versions or two numbers"
        )
    old, new = RoleMap.of(before, scheme), RoleMap.of(after, scheme)
    heads = (rank,) if isinstance(before, int) else (rank, member)
    added = [head + end for head in heads for end in (BEFORE, AFTER)]
    names = role_column(df, role, added)
    both = _free(df, "ranks")

    def ranks(names: Any) -> Any:
        return pa.StructArray.from_arrays(old.both_ranks(new, names), ["before", "after"])

    df = df.withColumn(both, _function(ranks, "struct<before:int,after:int>", names, once=True))
    was, will_be = _col(both)["before"], _col(both)["after"]
    columns = {rank + BEFORE: was, rank + AFTER: will_be}
    if not isinstance(before, int):
        columns[member + BEFORE] = _member(old, names, was)
        columns[member + AFTER] = _member(new, names, will_be)
    df = df.withColumns(columns).drop(both)
    is_same = _col(added[-2]).eqNullSafe(_col(added[-1]))
    return df.where(~is_same)


def role_column(df: DataFrame, role: str, added: Any = ()) -> Column:
    """Check the column of roles, and return it with byte-by-byte comparison.

    Raises:
        ConfigError: there is no such column or more than one, it is not a string, or a column to
            add exists already.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    exact = str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")) == "true"
    fold: Callable[[str], str] = str if exact else str.lower
    fields = df.schema.fields
    matches = [field for field in fields if fold(field.name) == fold(role)]
    if len(matches) != 1:
        some = ", ".join(field.name for field in fields)
        many = "more than one column" if matches else "no column"
        raise ConfigError(f"there is {many} {role!r}; there are: {some or 'none at all'}")
    kind: DataType = matches[0].dataType
    if not isinstance(kind, StringType):
        raise ConfigError(
            f"column {role!r} holds {kind.simpleString()}, but roles are strings: cast it first"
        )
    taken = {fold(field.name) for field in fields}
    for name in added:
        if fold(name) in taken:
            raise ConfigError(
                f"there is a column {name!r} already: choose another name for the new"
            )
        taken.add(fold(name))
    column = _col(matches[0].name)
    return column if kind == StringType() else f.collate(column, "UTF8_BINARY")


def _col(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.col("`" + name.replace("`", "``") + "`")


def _free(df: DataFrame, name: str) -> str:
    """Return a name that no column has."""
    taken = {column.lower() for column in df.columns}
    while name in taken:
        name += "_"
    return name


def _member(by: RoleMap, names: Column, rank: Column) -> Column:
    """Return a column of owners, by literals of the ranks and of the pins.

    A hash set (`isin`) finds the pinned roles first, because Spark searches a map linearly.
    """
    from pyspark.sql import functions as f

    nobody = f.lit(None).cast("string")
    owner = f.get(f.lit(list(by.ranks)), rank) if by.ranks else nobody
    if not by.pins:
        return owner
    pinned = f.create_map(
        *[f.lit(value) for role, at in by.pins.items() for value in (role, by.ranks[at])]
    )
    return f.when(names.isin(list(by.pins)), pinned[names]).otherwise(owner)


def _function(
    compute: Callable[[Any], Any], returns: str, names: Column, *, once: bool = False
) -> Column:
    """Return a column that Python computes from an Arrow array of names.

    Names are sent as bytes, since Spark copies strings once more, which takes a tenth of the time.
    With `once`, each row is computed once. Otherwise Spark would push a filter on the column below
    the computation, and hash every role twice.
    """
    from rink.spark.compat import arrow_function

    function = arrow_function(lambda data: compute(text(data)), returns)
    if once:
        function = function.asNondeterministic()
    return function(names.cast("binary"))  # type: ignore[no-any-return]
