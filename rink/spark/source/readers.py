"""Read a stream for Spark: once, or as a streaming query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rink.errors import ConfigError, StateError
from rink.redis.reply_text import text
from rink.spark import schema as schemas
from rink.spark.compat import SupportsTriggerAvailableNow, check_read_limit
from rink.spark.options import Options, StreamPlace
from rink.spark.redis_connection import RedisConnection, connection
from rink.spark.rows import Rows
from rink.spark.source.group import EventsGone, Group, tell_gone
from rink.spark.source.offsets import ANSWER_BYTES, Offsets, as_json, of_json, share_out
from rink.spark.source.reading import Range, pages
from rink.streams.store import entry_ids
from rink.streams.store.entry_ids import order

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit


class _Reading:
    """Implement the common part of both readers."""

    def __init__(self, options: Options, wanted: StructType) -> None:
        self._place = StreamPlace.of(options)
        self._known = schemas.columns_of(
            self._place.record_class(), metadata=options.flag("metadata", True)
        )
        self._columns = schemas.wanted_of(wanted, self._known, str(self._place))
        self._strict = options.flag("failOnDataLoss", True)

    @property
    def _redis(self) -> RedisConnection:
        return connection(self._place)

    @cached_property
    def _count(self) -> int:  # it never changes
        return self._redis.partition_count(self._place)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one partition, on an executor."""
        wanted, place = getattr(partition, "value", None), self._place
        if not isinstance(wanted, Range):
            return  # if there are no partitions, Spark makes an empty one
        schemas.check_case(self._columns, self._known, str(place))
        record = place.record_class()
        codec = place.codec() if record is not None else None
        rows = Rows(self._columns, wanted.number, record, codec, wanted.group, str(place))
        for page in pages(self._redis, wanted):
            yield rows.batch(page)

    def _edges(self, edge: str | dict[int, str]) -> dict[int, str]:
        """Return an edge for each partition, or raise ConfigError."""
        if isinstance(edge, str):
            return dict.fromkeys(range(self._count), edge)
        if edge.keys() != set(range(self._count)):
            raise ConfigError(
                f"{self._place} has the partitions 0 to {self._count - 1}, but offsets were given "
                f"for {sorted(edge)}: give one for each partition"
            )
        return edge

    def _stream(self, number: int) -> str:
        return self._place.names.partition(number).stream

    def _placed(self, begin: dict[int, str], to: dict[int, str]) -> dict[int, Any]:
        """Return the reply of the script `source/place` for each partition.

        Both edges of a partition are read at the same moment.
        """
        steps = {n: (self._keys(n), {"start": at, "end_at": to[n]}) for n, at in begin.items()}
        return self._redis.run_for("source/place", steps)

    def _keys(self, number: int) -> tuple[str]:
        return (self._place.names.partition(number).stream,)

    def _parts(
        self, start: Offsets, end: Offsets, removed: dict[int, int], group: str
    ) -> list[InputPartition]:
        """Return a range for each partition that has events."""
        ranges = [
            Range(self._place, number, at, end[number], removed.get(number, 0), group, self._strict)
            for number, at in start.items()
            if order(at) < order(end[number])
        ]
        return list(map(InputPartition, ranges))


class BatchReader(_Reading, DataSourceReader):
    """Read the current events between two edges."""

    def __init__(self, options: Options, wanted: StructType) -> None:
        super().__init__(options, wanted)
        self._from = options.edge("startingOffsets", "startingTimestamp", "earliest")
        self._to = options.edge("endingOffsets", "endingTimestamp", "latest")
        begins, ends = options.text("startingTimestamp"), options.text("endingTimestamp")
        if begins and ends and _id_of(self._from) > _id_of(self._to):
            raise ConfigError(
                f"the window ends before it begins: startingTimestamp is {begins!r}, and "
                f"endingTimestamp is {ends!r}"
            )

    def partitions(self) -> Sequence[InputPartition]:
        """Return a range for each partition."""
        begin, to = self._edges(self._from), self._edges(self._to)
        start, end, removed = {}, {}, {}
        for number, (_, first, last, count, gone) in self._placed(begin, to).items():
            if gone:
                events_gone = EventsGone.of(gone)
                tell_gone(self._place, number, begin[number], events_gone, strict=self._strict)
            start[number], end[number] = text(first), text(last)
            removed[number] = int(count)
        return self._parts(start, end, removed, "")


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Read a stream as a query, batch by batch.

    The reader lives in a process of the driver until the query ends. Executors get copies for
    `read`.
    """

    def __init__(self, options: Options, wanted: StructType) -> None:
        super().__init__(options, wanted)
        self._from = options.edge("startingOffsets", "startingTimestamp", "earliest")
        for name in ("endingOffsets", "endingTimestamp"):
            if options.text(name):
                raise ConfigError(
                    f"the option {name} is for a batch: leave it out, since a streaming query has "
                    "no end"
                )
        self._most = options.count("maxOffsetsPerTrigger")
        check_read_limit(self._most)
        self._name = options.text("group") or options.text("name") or options.needed("group")
        self._token = options.token()
        self._group: Group | None = None
        self._target: Offsets | None = None
        self._named: Offsets | None = None  # Spark's position, as far as Spark has named it

    def __getstate__(self) -> dict[str, Any]:
        # The group stays on the driver, and connections cannot be copied.
        return {**self.__dict__, "_group": None}

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Register a query without a checkpoint, and return where it begins."""
        self._named = self._its_group().begin(self._edges(self._from))
        return as_json(self._named)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the maximum number of events in a batch."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        return ReadMaxRows(self._most) if self._most else ReadAllAvailable()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, str] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, str]:
        """Return the end of the next batch.

        Spark calls this only if the events before `start` are in its commit log.
        """
        group = self._its_group()
        with group.withdrawn_on_error():
            end = self._end_of_batch(start, limit)
        group.has_begun()
        return as_json(end)

    def _end_of_batch(self, start: dict[str, str] | None, limit: ReadLimit | None) -> Offsets:
        begin = self._offsets(start) if start else self._untold_start()
        if begin is None:
            return self._last()
        last = self._its_group().follow(begin)
        target = {n: min(at, (self._target or last)[n], key=order) for n, at in last.items()}
        target = {n: max(at, begin[n], key=order) for n, at in target.items()}
        most = getattr(limit, "max_rows", None)
        if most is None:
            return target
        return share_out(begin, target, most, partial(self._bound, target))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the last entries now; this run reads up to them."""
        self._target = self._last()

    def reportLatestOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the last entries, for the query's progress."""
        return as_json(self._last())

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return a range for each partition that has events."""
        begin, to = self._offsets(start), self._offsets(end)
        self._named = to
        if begin == to:
            # This is an empty batch. A restarted query of Spark before 4.2 plans it at the end of
            # its offset log. The batch that ended there may be replayed, so advance nothing.
            return []
        group = self._its_group()
        if not group.has_entered:  # a replay after a restart, without a call of latestOffset
            group.follow(begin)
        if behind := [n for n in begin if order(begin[n]) > order(to[n])]:
            raise StateError(
                f"the checkpoint's batch of {self._place} ends before it begins, in partition "
                f"{behind[0]}: it begins at {begin[behind[0]]}, and ends at {to[behind[0]]}. Use "
                "the newest checkpoint, or a new one with another group"
            )
        first = [n for n, at in begin.items() if at == entry_ids.NONE and to[n] != at]
        return self._parts(begin, to, group.removed(first), group.name)

    def commit(self, end: dict[str, str]) -> None:
        """Commit the events up to `end`, so that they may be trimmed."""
        self._its_group().advance(self._offsets(end))

    def stop(self) -> None:
        """Do nothing: keep the group, so that trimming waits for the next run."""

    def _untold_start(self) -> Offsets | None:
        """Return the start of the next batch, for Spark before 4.2.

        Later releases pass it to `latestOffset`. When Spark plans a new batch, its commit log has
        the offset of the last call of `initialOffset` or `partitions`, because it first replays an
        uncommitted batch. Only a restart with `triggerAvailableNowWrapper.enabled` plans a batch
        before any such call, and so before a replay. Then this method returns None, and nothing may
        be advanced.
        """
        group = self._its_group()
        if self._named is None and not group.is_registered(range(self._count)):
            self._named = group.begin(self._edges(self._from))  # as initialOffset will do
        return self._named

    def _its_group(self) -> Group:
        if self._group is None:
            self._group = Group(
                self._place, self._redis, self._name, self._token, strict=self._strict
            )
        return self._group

    def _offsets(self, document: dict[str, str]) -> Offsets:
        return of_json(document, self._count, str(self._place))

    def _last(self) -> Offsets:
        answers = self._placed(self._edges("earliest"), self._edges("latest"))
        return {number: text(answer[2]) for number, answer in answers.items()}

    def _bound(
        self, last: Offsets, cursors: Mapping[int, tuple[str, int]]
    ) -> dict[int, tuple[int, str]]:
        limits = {"max_bytes": ANSWER_BYTES}
        steps = {
            n: (self._keys(n), {"after": at, "end_at": last[n], "max_count": count, **limits})
            for n, (at, count) in cursors.items()
        }
        answers = self._redis.run_for("source/bound", steps)
        return {n: (int(count), text(at)) for n, (count, at) in answers.items()}


def _id_of(edge: str | dict[int, str]) -> tuple[int, int]:
    """Return the sort key of an edge that comes from a time."""
    return order(str(edge).lstrip("("))
