"""Write a stream for Spark: once, or batch by batch."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rink.errors import ConfigError, RinkError, StateError
from rink.spark.compat import DataSourceStreamArrowWriter
from rink.spark.options import Options, StreamPlace
from rink.spark.redis_connection import clear_after, connection
from rink.spark.sink.publishing import Manifest, Sink, SinkBatch
from rink.spark.sink.records import check_columns, maker
from rink.spark.sink.staging import Staging

_QUERY_ID = "sql.streaming.queryId"
ONCE = "once"
"""The query id of a write by a batch job."""


@attrs.frozen
class Staged(WriterCommitMessage):
    """Report the staged records of one task, counted for each partition.

    The query's id is "" for a batch job.
    """

    query: str
    attempt: str
    counts: dict[int, int]


class _Writing:
    """Implement the common part of both writers."""

    _once = False

    def __init__(self, options: Options, columns: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError(
                "a stream can only be appended to: use mode('append'), or outputMode('append')"
            )
        self._place = StreamPlace.of(options)
        check_columns(self._place, columns)
        self._columns = columns
        self._token = options.token()
        self._bounds = options.bounds(self._place.declared())
        self._patience = options.seconds("fullTimeout", 10.0)
        self._ttl = options.seconds("stagingTtl", 86_400.0)
        self._count = connection(self._place).partition_count(self._place)
        place = self._place
        if place.declared() is None and connection(place).hasher(place):
            raise ConfigError(
                f"{place} has its own hasher (key {place.names.about!r}), which appName does not "
                "name: give the option app=MODULE:ATTR, whose stream has it"
            )

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of one task, on an executor."""
        make = maker(self._place, self._count, self._columns)
        staging = Staging(self._place, connection(self._place), self._ttl)
        try:
            for batch in iterator:
                staging.add(make(row) for row in batch.to_pylist(maps_as_pydicts="strict"))
            staging.end()
        except Exception as error:
            clear_after(error, staging.drop)
            raise
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context else None
        return Staged(query or "", staging.attempt, dict(staging.counts))

    def _commit(self, sink: Sink, batch: SinkBatch, manifest: Manifest) -> None:
        connection(self._place).settle_count(self._place)
        sink.commit(batch, manifest)

    def _sink(self, name: str, *, resumes: bool = True) -> Sink:
        return Sink(
            self._place,
            connection(self._place),
            name,
            self._token,
            self._bounds,
            patience=self._patience,
            once=self._once,
            resumes=resumes,
        )


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Write each batch of a query once."""

    def __init__(self, options: Options, columns: StructType, *, overwrite: bool) -> None:
        super().__init__(options, columns, overwrite=overwrite)
        if options.text("writeId"):
            raise ConfigError(
                "the option writeId is for a batch job: leave it out, since a query's batches "
                "have ids"
            )
        self._name = options.needed("name")
        self._sink(self._name).raise_fence()

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish a whole batch once."""
        staged = [message for message in messages if isinstance(message, Staged)]
        if staged:
            query, manifest = staged[0].query, _manifest(staged)
            sink = self._sink(self._name)
            if not query:  # all such queries would count as one
                sink.drop(manifest)
                raise StateError(
                    f"sink {self._name!r} of {self._place}: Spark gave its tasks no query id (the "
                    f"local property {_QUERY_ID}), so this query's batches cannot be "
                    "distinguished from another's. Nothing was written: use a release of Spark "
                    "that Rink supports",
                )
            self._commit(sink, SinkBatch(query, batchId), manifest)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Remove staged records if the batch was not committed."""
        _drop(self._sink, self._name, messages)


class BatchWriter(_Writing, DataSourceArrowWriter):
    """Write a DataFrame, with a writeId only once even if the job runs again."""

    _once = True

    def __init__(self, options: Options, columns: StructType, *, overwrite: bool) -> None:
        super().__init__(options, columns, overwrite=overwrite)
        self._id = options.text("writeId")
        if self._token and not self._id:
            raise ConfigError("fencingToken needs the option writeId, too: the fence belongs to it")
        if self._id:
            self._sink(self._id).raise_fence()

    def commit(self, messages: list[Any]) -> None:
        """Publish the whole DataFrame once."""
        manifest = _manifest(messages)
        if self._id:
            self._commit(self._sink(self._id), SinkBatch(ONCE, 0), manifest)
            return
        sink = self._sink(f"{ONCE}-{secrets.token_hex(8)}", resumes=False)
        numbers = {number for counts in manifest.values() for number in counts}

        def clear() -> None:
            sink.drop(manifest)
            sink.forget(numbers)

        try:
            self._commit(sink, SinkBatch(ONCE, 0), manifest)
        except RinkError as error:
            clear_after(error, clear)
            raise
        sink.forget(numbers)  # this name is never used again

    def abort(self, messages: list[Any]) -> None:
        """Remove staged records if the write was not committed."""
        _drop(self._sink, self._id, messages)


def _manifest(messages: list[Any]) -> Manifest:
    return {m.attempt: m.counts for m in messages if isinstance(m, Staged) and m.counts}


def _drop(sink: Any, name: str, messages: list[Any]) -> None:
    """Remove staged records, unless `commit` may have decided on them.

    Spark also aborts a batch after a failed `commit`. That batch may be decided, so leave its lists
    to their expiry. If a task has failed, its message is missing, and `commit` was never called.
    """
    if all(isinstance(message, Staged) for message in messages):
        return
    if manifest := _manifest(messages):
        sink(name or ONCE).drop(manifest)
