"""`assign` and `moves`: the ranks and owners of a DataFrame's roles, as columns.

Ranks are computed in Python workers, an Arrow batch at a time (`arrow_udf`); members follow from
them by an expression of Spark's own, in the JVM. What can be wrong is found before a job runs.
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
"""What the columns of `moves` end in."""


def assign(
    df: DataFrame,
    role: str,
    by: int | Ranked,
    *,
    scheme: str = "jump",
    rank: str = "rank",
    member: str = "member",
) -> DataFrame:
    """Add each role's rank and, where a version is given, its owner.

    Args:
        df: Any DataFrame, a streaming one too.
        role: Its column of roles, a string; a null role has no rank and no member.
        by: A number of ranks, or a version.
        scheme: The scheme's name for a number of ranks; a version has its own.
        rank: The new int column: the rank that the scheme gives, as `rink.rank_of` does. Pins
            do not change it.
        member: The new string column, only for a version: the role's owner, which is whom it is
            pinned to, if that member is ranked, else the member of the rank.

    Returns:
        The DataFrame with one or two columns more; nothing has run yet.

    Raises:
        ConfigError: There is no such column, it is no string, a new column is there already, or
            what is given by `by` cannot be used.
        UnknownScheme: There is no such scheme in this process.
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
    """Find the roles that another member owns in another version; each role is hashed once.

    Args:
        df: As for `assign`.
        role: As for `assign`.
        before: A version, or a number of ranks.
        after: The same kind: of two numbers, a role moves where its rank is another.
        scheme: As for `assign`.
        rank: The new columns are `rank_before` and `rank_after`, or so; see `assign`.
        member: The new columns `member_before` and `member_after`, only for versions.

    Returns:
        The rows of roles that move, with two or four columns more; nothing has run yet.

    Raises:
        ConfigError: As for `assign`; or a version and a number are compared.
        UnknownScheme: There is no such scheme in this process.
    """
    if isinstance(before, int) is not isinstance(after, int):
        raise ConfigError("a version and a number of ranks cannot be compared: give two of a kind")
    maps = (RoleMap.of(before, scheme), RoleMap.of(after, scheme))
    heads = (rank,) if isinstance(before, int) else (rank, member)
    added = [head + end for head in heads for end in (BEFORE, AFTER)]
    names = role_column(df, role, added)
    both = _free(df, "ranks")
    ranks = _function(_pair(*maps), "struct<before:int,after:int>", names, once=True)
    df = df.withColumn(both, ranks)
    found: dict[str, Column] = {
        rank + BEFORE: _col(both)["before"],
        rank + AFTER: _col(both)["after"],
    }
    if not isinstance(before, int):
        found[member + BEFORE] = _member(maps[0], names, _col(both)["before"])
        found[member + AFTER] = _member(maps[1], names, _col(both)["after"])
    df = df.withColumns(found).drop(both)
    is_same = _col(added[-2]).eqNullSafe(_col(added[-1]))
    return df.where(~is_same)


def role_column(df: DataFrame, role: str, added: Any = ()) -> Column:
    """The column of roles, checked, to be compared byte by byte whatever its collation.

    Raises:
        ConfigError: There is none, or more than one, it is no string, or one to be added is there.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    exact = str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")) == "true"
    fold: Callable[[str], str] = str if exact else str.lower
    fields = df.schema.fields
    found = [field for field in fields if fold(field.name) == fold(role)]
    if len(found) != 1:
        some = ", ".join(field.name for field in fields)
        many = "more than one column" if found else "no column"
        raise ConfigError(f"there is {many} {role!r}; there are: {some or 'none at all'}")
    kind: DataType = found[0].dataType
    if not isinstance(kind, StringType):
        raise ConfigError(
            f"column {role!r} holds {kind.simpleString()}, and roles are strings: cast it first"
        )
    taken = {fold(field.name) for field in fields}
    for name in added:
        if fold(name) in taken:
            raise ConfigError(f"there is a column {name!r} already: name the new one otherwise")
        taken.add(fold(name))
    column = _col(found[0].name)
    return column if kind == StringType() else f.collate(column, "UTF8_BINARY")


def _col(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.col("`" + name.replace("`", "``") + "`")


def _free(df: DataFrame, name: str) -> str:
    """A name that no column has."""
    taken = {column.lower() for column in df.columns}
    while name in taken:
        name += "_"
    return name


def _member(by: RoleMap, names: Column, rank: Column) -> Column:
    """The owner as an expression: an element of a literal, or of the pins' map.

    A pinned role is looked for in a hash set first, as Spark walks through a map from its
    beginning.
    """
    from pyspark.sql import functions as f

    nobody = f.lit(None).cast("string")
    owner = f.get(f.lit(list(by.ranks)), rank) if by.ranks else nobody
    if not by.pins:
        return owner
    pinned = f.create_map(
        *[f.lit(one) for role, at in by.pins.items() for one in (role, by.ranks[at])]
    )
    return f.when(names.isin(list(by.pins)), pinned[names]).otherwise(owner)


def _pair(before: RoleMap, after: RoleMap) -> Callable[[Any], Any]:
    """From names to a struct of two ranks."""

    def ranks(names: Any) -> Any:
        return pa.StructArray.from_arrays(before.both_ranks(after, names), ["before", "after"])

    return ranks


def _function(
    compute: Callable[[Any], Any], returns: str, names: Column, *, once: bool = False
) -> Column:
    """What Python computes, as an Arrow array, from an Arrow array of names.

    They travel as bytes: Spark copies each string once more on its way, a tenth of all time. With
    `once`, it is computed once for each row: a filter on it would else be pushed below it, and
    every role hashed twice.
    """
    from rink.spark.compat import arrow_function

    function = arrow_function(lambda data: compute(text(data)), returns)
    if once:
        function = function.asNondeterministic()
    return function(names.cast("binary"))  # type: ignore[no-any-return]
