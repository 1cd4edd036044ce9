"""Guard the writes of `foreachBatch`: newest token only, each batch once."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all do
from pyspark.sql import types as T  # noqa: N812

from rink.arguments import check_count
from rink.callables import check_plain
from rink.errors import ConfigError, StateError, UsageError
from rink.guards import Batch, Fence, Guard
from rink.spark.compat import repartition_by_id
from rink.spark.jobs.tags import context_of
from rink.spark.options import Options, StreamPlace
from rink.spark.redis_connection import connection
from rink.spark.sink.publishing import raise_fence
from rink.spark.sink.staging import rolled_back

Each = Callable[[Any, Iterator[Any]], Any]
ForeachBatch = Callable[[DataFrame, int, "FencedBatch"], Any]
_WHERE = ("app", "appName", "stream", "redis", "redisTimeout")
"""The options of the sink that locate a stream, and limit how long a call to Redis is repeated."""
_CUT = "__rink_part"
_begun: dict[str, tuple[str, int, set[str]]] = {}
"""For each query id: the run, the batch, and the names of the outputs that the batch has begun."""


def fence(role: Any) -> dict[str, str]:
    """Return the options that bind a source or a sink to a grant.

    Use `.options(**fence(role))` in `readStream` and in `writeStream` of `format("rink")`.
    """
    return {"name": role.name, "fencingToken": str(role.token)}


class FencedStream:
    """Raise the fence of a stream before a query writes to it.

    Args:
        options: the options of the sink that locate the stream: app, or appName and redis; stream;
            redisTimeout. The sink's name is the name of the role.

    Raises:
        ConfigError: an option is wrong, is missing, or does not locate the stream.
    """

    def __init__(self, **options: str) -> None:
        known = {name.lower() for name in _WHERE}
        if others := [name for name in options if name.lower() not in known]:
            raise ConfigError(
                f"FencedStream takes options that say where the stream is ({', '.join(_WHERE)}), "
                f"not {', '.join(others)}: leave them out. Name and token come from the role whose "
                "fence is raised, and all other options belong to the query"
            )
        self._place = StreamPlace.of(Options(options, of_sink=True))

    def raise_fence(self, fence: Fence) -> None:
        """Refuse all lower tokens of this name in the sink from now on.

        Raises:
            StaleToken: the sink has seen a greater token.
        """
        raise_fence(self._place, connection(self._place), fence.name, fence.token)

    def __repr__(self) -> str:
        return f"<FencedStream: {self._place}>"


def fenced(
    foreach_batch: ForeachBatch, guard: Guard, role: Any, *, parts: int = 8
) -> Callable[[DataFrame, int], None]:
    """Wrap a function for `foreachBatch`, and raise the guard's fence now.

        def write(df, batch_id, out):
            out.write(totals_of(df), by="carrier", each=upsert)

        def upsert(step, rows):              # on executors, once for each part
            for row in rows:
                step.hset("carrier:" + row["carrier"], mapping=row)

        query = stream.writeStream.foreachBatch(fenced(write, guard, role))
        query.option("checkpointLocation", ...).start()

    Args:
        foreach_batch: called with the DataFrame, the batch's id, and a `FencedBatch`. Only writes
            through the `FencedBatch` are fenced.
        guard: a guard of `rink.guards`.
        role: the grant: a `Role`, a job's grant, or any object with `name` and `token`.
        parts: the number of parts of each batch. Keep it the same for one checkpoint.

    Raises:
        StaleToken: the guard has seen a greater token.
        ConfigError: the function cannot be called with these arguments.
    """
    try:
        inspect.signature(foreach_batch).bind(None, 0, None)
    except TypeError as error:
        raise ConfigError(
            f"{foreach_batch!r} cannot be called with (df, batch_id, out). A guard cannot refuse "
            f"what the function writes by itself: write through the third argument: {error}"
        ) from error
    check_plain("foreachBatch", foreach_batch, "df", "batch_id", "out")
    check_count("parts", parts)
    its_fence = Fence.of(role)
    guard.raise_fence(its_fence)

    def run(df: DataFrame, batch_id: int) -> None:
        out = FencedBatch(guard, its_fence, *_batch_of(df, batch_id), parts)
        foreach_batch(df, batch_id, out)
        out.end()

    return run


@attrs.define(eq=False, slots=False)
class FencedBatch:
    """Write one batch of one query through a guard.

    Attributes:
        fence: the fence under which the batch is written.
        query: the id of the query, new with each checkpoint.
        number: Spark's batch id.
        parts: the number of parts of the batch.
    """

    _guard: Guard
    fence: Fence
    query: str
    number: int
    _begun: set[str]  # the outputs of this batch, through any guard
    parts: int
    _torn: set[str] = attrs.field(factory=set, init=False)

    def write(
        self,
        df: DataFrame,
        each: Each,
        *,
        by: str | Sequence[str],
        name: str = "",
        arrow: bool = False,
    ) -> None:
        """Cut a DataFrame by key, and write each part in one step with its mark.

        Args:
            df: the rows to write.
            each: called on executors with the guard's step and the rows of one part. It is not
                called for a part that was written before.
            by: the columns of the key. Rows of one key are in one part, also in a replay. Rows come
                in the order of their keys. Rows of one key come in no fixed order.
            name: the name of this output. Name the outputs if a batch has several, even through
                different guards. The output's marks are kept under its name.
            arrow: pass pyarrow.RecordBatches instead of rows as dicts.

        Raises:
            ConfigError: the function cannot be called with these arguments.
            UsageError: this batch already has an output of this name.
            StaleToken: the guard has seen a greater token. If an executor found it, Spark raises a
                PythonException.
            StateError: a later batch of this query was written, so its checkpoint was rolled back.
                If an executor found it, Spark raises a PythonException.
        """
        self._torn.add(name)
        if name in self._begun:
            raise UsageError(
                f"output {name!r} of batch {self.number} was written already, here or by another "
                "fenced function: give each output of a batch its own name "
                "(write(..., name=...)). Otherwise the second output would count as written"
            )
        check_plain("each", each, "step", "rows")
        keys = [by] if isinstance(by, str) else list(by)
        cut = _cut(df, self.parts, keys)
        self._begun.add(name)
        query = f"{self.query}/{name}" if name else self.query
        batch = Batch(query, self.number, self.parts)
        self._guard.begin(self.fence, batch)
        write = _Part(self._guard, self.fence, batch, each, arrow)
        rows = cut.mapInArrow(write, "part int, result binary").collect()
        # `_Part` pickled these on the executors.
        results = {row.part: pickle.loads(bytes(row.result)) for row in rows}  # noqa: S301
        for number in set(range(self.parts)) - results.keys():
            # Spark runs no task for a part that it knows to be empty.
            results[number] = write.part(number, iter(()))
        self._guard.finish(self.fence, batch, [results[number] for number in sorted(results)])
        self._torn.remove(name)

    def end(self) -> None:
        """Check that the batch is whole, before Spark records it as done.

        Raises:
            UsageError: a `write` failed, and the function caught its exception.
            StaleToken: the guard has seen a greater token.
        """
        if self._torn:
            raise UsageError(
                f"output {min(self._torn)!r} of batch {self.number} was not written: do not catch "
                "what `write` raises. Otherwise Spark treats the batch as done, and its rows are "
                "lost"
            )
        self._guard.raise_fence(self.fence)


@attrs.frozen
class _Part:
    """Write one part on an executor."""

    _guard: Guard
    _fence: Fence
    _batch: Batch
    _each: Each
    _arrow: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        mine = (_without_cut(batch, number, self._guard) for batch in batches)
        rows = mine if self._arrow else (row for batch in mine for row in batch.to_pylist())
        result = pickle.dumps(self.part(number, rows))
        yield pa.RecordBatch.from_pydict(
            {"part": pa.array([number], pa.int32()), "result": pa.array([result], pa.binary())}
        )

    def part(self, number: int, rows: Iterator[Any]) -> Any:
        """Write one part, and return its result for the guard's `finish`."""
        part = self._guard.part(self._fence, self._batch, number)
        with part as step:
            if step is not None:
                self._each(step, rows)
        if part.written is not None and part.written > self._batch.number:
            place, batch = f"{self._guard!r}, part {number}", self._batch
            raise rolled_back(place, batch.query, batch.number, part.written, repr(self._guard))
        return part.result


def _cut(df: DataFrame, parts: int, keys: Sequence[str]) -> DataFrame:
    """Return the rows in parts, each key in one part, sorted by key.

    A key with a collation is refused. Spark hashes texts differently that the collation considers
    equal, and in a replay, another of these texts may represent them.
    """
    if collated := sorted(_collations(df.select(*keys).schema)):
        raise ConfigError(
            f"by={list(keys)!r}: rows are cut by their bytes, and a key here has the collation "
            f"{collated[0]}. This collation treats texts with different bytes as equal, so a "
            "replay could write their rows again, or not at all. Group by a column of "
            "collate(..., 'UTF8_BINARY') and give that column; add lower(...) if case must not "
            "matter"
        )
    # A replay must cut a batch as before and give each part the same rows in the same order, since
    # a guard continues a failed part. `df.repartition(parts, *keys)` does not guarantee that. If
    # the rows are already partitioned by these keys, Spark leaves the repartition out, and the
    # number of partitions may depend on the number of cores. Spark's hash and a sort depend only on
    # the rows.
    part = F.pmod(F.hash(*keys), F.lit(parts))
    return repartition_by_id(df.withColumn(_CUT, part), parts, _CUT).sortWithinPartitions(*keys)


def _collations(kind: T.DataType) -> set[str]:
    """Return the collations in a type, except UTF8_BINARY (of bytes)."""
    match kind:
        case T.StringType():
            return {kind.collation} - {"UTF8_BINARY"}
        case T.StructType():
            return set().union(*(_collations(field.dataType) for field in kind.fields))
        case T.ArrayType():
            return _collations(kind.elementType)
        case T.MapType():
            return _collations(kind.keyType) | _collations(kind.valueType)
    return set()


def _without_cut(rows: Any, number: int, guard: Guard) -> Any:
    """Return a RecordBatch without the column of part numbers."""
    import pyarrow.compute as pc

    if pc.any(pc.not_equal(rows.column(_CUT), number)).as_py():
        raise StateError(
            f"{guard!r}: Spark brings rows of other parts as part {number}, so a replay could "
            "write them again, or not at all. Nothing of this part was written. This release of "
            "Spark cuts batches in a way that Rink does not know: use one that Rink supports",
            key=repr(guard),
        )
    return rows.drop_columns([_CUT])


def _batch_of(df: DataFrame, number: int) -> tuple[str, int, set[str]]:
    """Return a batch's query and number, and the names of its outputs so far."""
    context = context_of(df.sparkSession)
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    if not query:
        raise UsageError(
            "a fenced function must be called by foreachBatch in a streaming query on classic "
            "Spark (on Connect, foreachBatch runs in another process, which holds no role)"
        )
    # The group of a query's Spark jobs is its run. A replay comes in the next run.
    run = context.getLocalProperty("spark.jobGroup.id")
    if _begun.get(query, ())[:2] != (run, number):
        _begun[query] = run, number, set()
    return query, number, _begun[query][2]
