"""Count the roles of each member, and the roles that would move.

The data is read once. Python workers count their roles by (owner before, owner after) and return
only these counts. Spark adds them up, and this module computes the plan from that small table. So
memory is bounded by the number of such pairs, and the cost is linear in the number of roles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pyarrow as pa

from rink.core.values import Version
from rink.spark.roles import version_ranks
from rink.spark.roles.assign import role_column
from rink.spark.roles.rank_arrays import counted, nulls
from rink.spark.roles.version_ranks import Ranked, RoleMap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Pairs = Mapping[tuple[str | None, str | None], int]
"""The number of roles for each pair of owners, before and after; None if no member is ranked."""


@attrs.frozen
class Load:
    """Describe the load of one member: the number of its roles.

    `share` is its share of all roles, and `ratio` its number of roles divided by an even split.
    """

    member: str
    rank: int
    roles: int
    share: float
    ratio: float


@attrs.frozen
class Flow:
    """Count the roles that move from one member to another; None: no member."""

    source: str | None
    target: str | None
    roles: int


@attrs.frozen
class Plan:
    """Describe the moves of all roles when members leave and join.

    Attributes:
        before: the version before.
        after: the version after.
        roles: the number of rows with a role.
        unnamed: the number of rows with a null role, which no rank owns.
        moved: the number of roles that have another owner afterwards.
        flows: the moves between members, the largest first.
        balance_before: the load of each member before.
        balance_after: the load of each member after.
    """

    before: Ranked
    after: Version
    roles: int
    unnamed: int
    moved: int
    flows: tuple[Flow, ...]
    balance_before: tuple[Load, ...]
    balance_after: tuple[Load, ...]

    @property
    def share_moved(self) -> float:
        """Return the share of roles that move, 0 to 1; 0 without roles."""
        return self.moved / self.roles if self.roles else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values, always with all keys."""
        return {
            "roles": self.roles,
            "unnamed": self.unnamed,
            "moved": self.moved,
            "share_moved": self.share_moved,
            "scheme": self.after.scheme,
            "because": list(self.after.because),
            "ranks_before": list(self.before.ranks),
            "ranks_after": list(self.after.ranks),
            "flows": [{"from": f.source, "to": f.target, "roles": f.roles} for f in self.flows],
            "balance_before": [attrs.asdict(load) for load in self.balance_before],
            "balance_after": [attrs.asdict(load) for load in self.balance_after],
        }


def balance(df: DataFrame, role: str, version: Ranked) -> tuple[Load, ...]:
    """Count the roles of each member, in one Spark job.

    Args:
        df: a DataFrame that is not streaming. Each row counts, so make roles distinct first if
            needed.
        role: the column of roles, a string.
        version: the version, with the member of each rank.

    Returns:
        A Load for each ranked member, by rank.

    Raises:
        ConfigError: there is no such column, or it is not a string.
        UnknownScheme: there is no such scheme in this process.
    """
    by = RoleMap.of(version)
    pairs, _ = _count(df, role, by, by)
    return _loads(by, Counter({owner: n for (owner, _), n in pairs.items()}))


def plan(
    df: DataFrame,
    role: str,
    version: Ranked,
    leave: Iterable[str] = (),
    join: Iterable[str] = (),
    *,
    waiting: Iterable[str] = (),
) -> Plan:
    """Count the roles that would move when members leave and join.

    One Spark job reads the data once. See `balance` for `df` and `role`, and see `after`, which
    computes the next version, for all other arguments.

    Raises:
        ConfigError: see `balance` and `after`.
        UnknownScheme: there is no such scheme in this process.
    """
    then = version_ranks.after(version, leave, join, waiting)
    pairs, unnamed = _count(df, role, RoleMap.of(version), RoleMap.of(then))
    return summed(version, then, pairs, unnamed)


def summed(before: Ranked, after: Version, pairs: Pairs, unnamed: int = 0) -> Plan:
    """Return the plan for the numbers of roles by owners before and after."""
    had, gets = Counter[str | None](), Counter[str | None]()
    flows = []
    for (source, target), roles in pairs.items():
        had[source] += roles
        gets[target] += roles
        if source != target:
            flows.append(Flow(source, target, roles))
    flows.sort(key=lambda flow: (-flow.roles, flow.source or "", flow.target or ""))
    return Plan(
        before=before,
        after=after,
        roles=sum(pairs.values()),
        unnamed=unnamed,
        moved=sum(flow.roles for flow in flows),
        flows=tuple(flows),
        balance_before=_loads(RoleMap.of(before), had),
        balance_after=_loads(RoleMap.of(after), gets),
    )


def _loads(by: RoleMap, roles: Counter[str | None]) -> tuple[Load, ...]:
    total = sum(roles.values())
    return tuple(
        Load(
            member=name,
            rank=rank,
            roles=roles[name],
            share=roles[name] / total if total else 0.0,
            ratio=roles[name] * by.size / total if total else 0.0,
        )
        for rank, name in enumerate(by.ranks)
    )


def _count(df: DataFrame, role: str, before: RoleMap, after: RoleMap) -> tuple[Pairs, int]:
    """Return the counts by owners before and after, and that of null roles."""
    from pyspark.sql import functions as f

    names = role_column(df, role).alias("role")
    counts = df.select(names).mapInArrow(tally(before, after), "before int, after int, roles long")
    summed = counts.groupBy("before", "after").agg(f.sum("roles").alias("roles")).collect()
    pairs: dict[tuple[str | None, str | None], int] = {}
    unnamed = 0
    for row in summed:
        if row["before"] is None:
            unnamed = row["roles"]
        else:
            pairs[_name(before, row["before"]), _name(after, row["after"])] = row["roles"]
    return pairs, unnamed


def _name(by: RoleMap, owner: int) -> str | None:
    return by.ranks[owner] if owner >= 0 else None


def tally(
    before: RoleMap, after: RoleMap
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function from batches of names to one batch of counts.

    The batch has the columns before, after and roles. Owners are ranks; -1 is no owner. For null
    roles, both are null.
    """

    def counts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        totals = Counter[int]()
        unnamed = 0
        width = after.size + 1
        for batch in batches:
            names = batch.column(0)
            first, second = before.both_owners(after, names)
            codes = (first.astype(np.int64) + 1) * width + (second + 1)
            without = nulls(names)
            if without is not None:
                unnamed += int(without.sum())
                codes = codes[~without]
            totals.update(dict(counted(codes, (before.size + 1) * width)))
        rows: list[tuple[int | None, int | None, int]]
        rows = [(code // width - 1, code % width - 1, roles) for code, roles in totals.items()]
        rows += [(None, None, unnamed)] if unnamed else []
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        kinds = (pa.int32(), pa.int32(), pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, ["before", "after", "roles"])

    return counts
