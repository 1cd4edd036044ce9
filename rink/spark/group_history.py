"""Show a group's past as DataFrames.

The versions come from etcd. The events come from the lines of `rink watch --json`. etcd stores
only the times that members write into versions. To measure durations, record the group's events
on any machine: `rink watch orders --json >> orders.jsonl`.
"""

from __future__ import annotations

from typing import Any

import attrs
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from rink.core.keys import Keys, check_name
from rink.inspect.read_group import read_group, unknown_group
from rink.inspect.version_diff import VersionStep, steps
from rink.plural import plural
from rink.session import BaseSession

_MOVE = "struct<what:string,before:string,after:string>"
_VERSIONS = (
    "number long, proclaimed timestamp, by string, because array<string>, ranks array<string>, "
    "scheme string, pins map<string,string>, token_base long, size_before int, size_after int, "
    f"ranks_moved int, moves array<{_MOVE}>, problem string"
)
_EVENTS = (
    "event string, at timestamp, revision long, version long, settled boolean, text string, "
    "member string, phase string, roles array<string>, because array<string>, ttl double"
)


@attrs.frozen
class Episode:
    """Describe a time from the first change until the group was settled.

    During it, some role may have had no holder: for at most `seconds` after etcd knew of the
    change, and for at most `unseen_s` before that.

    Attributes:
        began: the time of the first change, as text in the session's time zone.
        seconds: seconds until the group was settled; None if it is not settled yet.
        unseen_s: the longest ttl of the members that were killed or cut off, since etcd notices
            that only when a lease ends. 0 without such members, or if the file lacks the ttl.
        causes: the reasons why versions were proclaimed, and the members that were gone.
    """

    began: str
    seconds: float | None
    unseen_s: float
    causes: tuple[str, ...]


@attrs.frozen
class NotedReport:
    """Summarize a group's past.

    Attributes:
        versions: the number of known versions.
        moves: (cause, versions, ranks) for each kind of cause. `ranks` counts the ranks that moved,
            were added or were removed.
        longest: the longest episodes, longest first; empty without events.
        unsettled_s: the sum of all episodes, in seconds, without `unseen_s`.
        longest_drain: (member, seconds, roles) of the longest drain; None if there was none.
    """

    versions: int
    moves: tuple[tuple[str, int, int], ...]
    longest: tuple[Episode, ...]
    unsettled_s: float
    longest_drain: tuple[str, float, int] | None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return attrs.asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.versions} {plural(self.versions, 'version')}"]
        lines += [
            f"{cause}: {ranks} {plural(ranks, 'rank')} moved in {n} {plural(n, 'version')}"
            for cause, n, ranks in self.moves
        ]
        lines += [f"not settled for {self.unsettled_s:.3f} s in all"] if self.longest else []
        for episode in self.longest:
            took = "not settled yet" if episode.seconds is None else f"{episode.seconds:.3f} s"
            unseen = f", and up to {episode.unseen_s:g} s before" if episode.unseen_s else ""
            lines.append(f"{episode.began}  {took}{unseen}  {'; '.join(episode.causes)}")
        if self.longest_drain is not None:
            member, seconds, roles = self.longest_drain
            lines.append(
                f"longest drain: {member}, {roles} {plural(roles, 'role')}, {seconds:.3f} s"
            )
        return "\n".join(lines)


@attrs.frozen
class GroupHistory:
    """Hold a group's past.

    Attributes:
        versions: one row for each version that etcd keeps: number, proclaimed, by, because, ranks,
            scheme, pins, token_base, size_before, size_after, ranks_moved, moves (of ranks and of
            pins), problem. The columns of changes are NULL if etcd does not keep the previous
            version.
        events: one row for each line of `rink watch --json`; empty without files.
    """

    versions: DataFrame
    events: DataFrame

    def moves_by_cause(self) -> DataFrame:
        """Return the number of ranks that moved, by kind of cause.

        Kinds are joined, replaced, left, and so on. The columns are cause, versions and ranks. An
        added or removed rank counts as well, since its roles have moved. A version with several
        causes counts for each kind.
        """
        kinds = F.array_distinct(F.transform("because", lambda cause: F.split(cause, " ")[0]))
        moves = self.versions.where(F.col("moves").isNotNull())
        moves = moves.select(F.explode(kinds).alias("cause"), "ranks_moved")
        return (
            moves.groupBy("cause")
            .agg(F.count("*").alias("versions"), F.sum("ranks_moved").alias("ranks"))
            .orderBy(F.desc("ranks"), "cause")
        )

    def episodes(self) -> DataFrame:
        """Return the times from a first change until the group was settled.

        The columns are began, ended, seconds, unseen_s and causes; see `Episode`.
        """
        in_order = Window.orderBy("revision", "line")
        before = in_order.rowsBetween(Window.unboundedPreceding, -1)
        is_settled = F.col("event") == "settled"
        number = F.coalesce(F.sum(is_settled.cast("int")).over(before), F.lit(0))
        lost = (F.col("event") == "gone") & ~F.col("phase").isin("offering", "leaving")
        changes = (F.col("event") == "version") | lost
        why = F.when(F.col("event") == "version", F.col("because")).otherwise(F.array("text"))
        return (
            self._in_lines()
            .withColumn("number", number)
            .groupBy("number")
            .agg(
                F.min(F.when(changes, F.col("at"))).alias("began"),
                F.max(F.when(is_settled, F.col("at"))).alias("ended"),
                F.coalesce(F.max(F.when(lost, F.col("ttl"))), F.lit(0.0)).alias("unseen_s"),
                F.flatten(F.collect_list(F.when(changes, why))).alias("causes"),
            )
            .where(F.col("began").isNotNull())
            .select("began", "ended", _seconds("began", "ended"), "unseen_s", "causes")
            .orderBy("began")
        )

    def drains(self) -> DataFrame:
        """Return the drains: how long members took to release lost roles.

        The columns are member, began, ended, seconds and roles.
        """
        of_member = Window.partitionBy("member").orderBy("revision", "line")
        events = self._in_lines().where(F.col("event").isin("draining", "drained", "gone"))
        return (
            events.withColumn("ended", F.lead("at").over(of_member))
            .where(F.col("event") == "draining")
            .select(
                "member", F.col("at").alias("began"), "ended", _seconds("at", "ended"),
                F.size("roles").alias("roles"),
            )
            .orderBy(F.desc("seconds"))
        )  # fmt: skip

    def report(self, most: int = 10) -> NotedReport:
        """Return a summary with the `most` longest episodes."""
        moves = [(row.cause, row.versions, row.ranks) for row in self.moves_by_cause().collect()]
        episodes = self.episodes().cache()
        try:
            longest = episodes.orderBy(F.desc_nulls_first("seconds")).limit(most).collect()
            total = episodes.agg(F.sum("seconds")).collect()[0][0]
        finally:
            episodes.unpersist()
        drain = self.drains().where(F.col("seconds").isNotNull()).first()
        return NotedReport(
            versions=self.versions.count(),
            moves=tuple(moves),
            longest=tuple(
                Episode(str(row.began), row.seconds, row.unseen_s, tuple(row.causes))
                for row in longest
            ),
            unsettled_s=float(total or 0.0),
            longest_drain=(drain.member, drain.seconds, drain.roles) if drain else None,
        )

    def _in_lines(self) -> DataFrame:
        # Several lines can have one revision. In the file, a cause stands before its effect.
        return self.events.withColumn("line", F.monotonically_increasing_id())


def history(
    spark: SparkSession, session: BaseSession, group: str, *, events: str | list[str] | None = None
) -> GroupHistory:
    """Return a group's past.

    Args:
        spark: Spark's session.
        session: Rink's session. It joins no group.
        group: the group's name.
        events: the paths of files that `rink watch GROUP --json` wrote, as Spark takes paths.

    Raises:
        StateError: there is no such group.
        EtcdError: etcd could not be read.
    """
    keys = Keys.of(session.prefix, check_name("group", group))
    view = read_group(session.etcd, keys)
    if not (view.versions or view.members):
        raise unknown_group(group, keys)
    rows = [_row(step) for step in steps(view)]
    noted = (
        spark.read.schema(_EVENTS).json(events) if events else spark.createDataFrame([], _EVENTS)
    )
    columns = _VERSIONS.replace("proclaimed timestamp", "proclaimed string")
    texts = spark.createDataFrame(rows, columns)
    versions = texts.withColumn("proclaimed", F.to_timestamp("proclaimed"))
    return GroupHistory(versions=versions, events=noted)


def _row(step: VersionStep) -> tuple[Any, ...]:
    version, changed = step.entry.version, step.changed
    if version is None:
        return (step.entry.number, *[None] * 11, step.entry.problem)
    moves = changed and [(str(move.what), move.before, move.after) for move in changed.moves]
    return (
        step.entry.number, version.proclaimed, version.by, list(version.because),
        list(version.ranks), version.scheme,
        dict(version.pins), version.token_base,
        changed and changed.size_before, changed and changed.size_after,
        changed and len(changed.ranks), moves,
        step.entry.problem,
    )  # fmt: skip


def _seconds(began: str, ended: str) -> Column:
    return ((F.unix_micros(ended) - F.unix_micros(began)) / F.lit(1e6)).alias("seconds")
