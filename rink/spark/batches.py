"""A `foreachBatch` whose writes count under the newest token only, and once for each batch."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

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
"""The options of the sink that say where a stream is, and for how long Redis is asked."""
_CUT = "__rink_part"
_begun: dict[str, tuple[str, int, set[str]]] = {}
"""For each query its run, its batch, and the names of the outputs that were begun in it."""


def fence(role: Any) -> dict[str, str]:
    """Return the options by which source and sink know under which grant a query runs.

    `.options(**fence(role))` in `readStream` and in `writeStream` of `format("rink")`.
    """
    return {"name": role.name, "fencingToken": str(role.token)}


class FencedStream:
    """A stream that a query writes with `format("rink")`: its fence can be raised before the query
    begins.

    Args:
        options: those of the sink that say where the stream is: app, or appName and redis; stream;
            redisTimeout.

    Raises:
        ConfigError: they cannot be used, or are about something else: the name of the sink is the
            role's.
    """

    def __init__(self, **options: str) -> None:
        known = {name.lower() for name in _WHERE}
        if others := [name for name in options if name.lower() not in known]:
            raise ConfigError(
                f"FencedStream takes options that say where the stream is ({', '.join(_WHERE)}), "
                f"and not {', '.join(others)}: name and token come from the role whose fence is "
                "raised, all else belongs to the query"
            )
        self._place = StreamPlace.of(Options(options, of_sink=True))

    def raise_fence(self, fence: Fence) -> None:
        """Refuse all lower tokens of the sink of this name from now on; raises a StaleToken."""
        raise_fence(self._place, connection(self._place), fence.name, fence.token)

    def __repr__(self) -> str:
        return f"<FencedStream: {self._place}>"


def fenced(
    foreach_batch: ForeachBatch, guard: Guard, role: Any, *, parts: int = 8
) -> Callable[[DataFrame, int], None]:
    """Wrap what is given to `foreachBatch` with a guard; its fence is raised here and now.

        def write(df, batch_id, out):
            out.write(totals_of(df), by="carrier", each=upsert)

        def upsert(step, rows):              # on executors, once for each part
            for row in rows:
                step.hset("carrier:" + row["carrier"], mapping=row)

        stream.writeStream.foreachBatch(fenced(write, guard, role)).option("checkpointLocation", ...).start()

    Args:
        foreach_batch: called with the DataFrame, the batch's id, and a `FencedBatch` to write
            through. What it writes by other ways is not fenced.
        guard: of `rink.guards`.
        role: the grant (a `Role`, or a job's), anything with `name` and `token`.
        parts: into how many parts each batch is cut; for one checkpoint always the same.

    Raises:
        StaleToken: a later driver has been here.
        ConfigError: the function cannot be called this way.
    """
    try:
        inspect.signature(foreach_batch).bind(None, 0, None)
    except TypeError as error:
        raise ConfigError(
            f"{foreach_batch!r} cannot be called with (df, batch_id, out): what it writes by "
            f"itself no guard can refuse; have it write through the third: {error}"
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


class FencedBatch:
    """One batch of one query, to be written through a guard.

    Attributes:
        fence: under which it is written.
        query: the id of the query, new with each checkpoint.
        number: Spark's batch id.
        parts: into how many it is cut.
    """

    def __init__(
        self,
        guard: Guard,
        fence: Fence,
        query: str,
        number: int,
        begun: set[str],
        parts: int,
    ) -> None:
        self._guard = guard
        self.fence = fence
        self.query = query
        self.number = number
        self.parts = parts
        self._begun = begun  # in this batch, here or through another guard
        self._torn: set[str] = set()

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
            df: what is to be written.
            each: called on executors with the guard's step and the rows of one part; a part that
                was written before is not called for.
            by: the columns of the key: rows of one key are in one part, the same one in a replay,
                and come in order of the key; several of one key in no fixed order.
            name: of this output, where a batch has several, through whichever guards: its marks are
                kept under it.
            arrow: give pyarrow.RecordBatches in place of rows as dicts.

        Raises:
            ConfigError: the function cannot be called this way.
            UsageError: an output of this name was written before, in this batch.
            StaleToken: (as Spark's PythonException where a part was refused) a later driver has
                been here.
            StateError: (so, too) a later batch of this query was written: its checkpoint was rolled
                back.
        """
        self._torn.add(name)
        if name in self._begun:
            raise UsageError(
                f"output {name!r} of batch {self.number} was written already, here or by another "
                "fenced function: give each output of a batch a name (write(..., name=...)), or "
                "this one would count as written"
            )
        check_plain("each", each, "step", "rows")
        keys = [by] if isinstance(by, str) else list(by)
        cut = _cut(df, self.parts, keys)
        self._begun.add(name)
        batch = Batch(
            query=f"{self.query}/{name}" if name else self.query,
            number=self.number,
            parts=self.parts,
        )
        self._guard.begin(self.fence, batch)
        write = _Part(self._guard, self.fence, batch, each, arrow)
        found = cut.mapInArrow(write, "part int, result binary").collect()
        results = {row.part: pickle.loads(bytes(row.result)) for row in found}  # noqa: S301 - our executors' own
        for number in set(range(self.parts)) - results.keys():
            # Spark drops what it knows to be empty, tasks and all.
            results[number] = write.part(number, iter(()))
        self._guard.finish(self.fence, batch, [results[number] for number in sorted(results)])
        self._torn.remove(name)

    def end(self) -> None:
        """See that the batch is whole, before Spark notes it down as done.

        Raises:
            UsageError: a `write` failed, and the function went on as if it had not.
            StaleToken: a later driver has been here.
        """
        if self._torn:
            raise UsageError(
                f"output {min(self._torn)!r} of batch {self.number} was not written: let what "
                "`write` raises pass, or Spark takes the batch for done, and what it holds is "
                "lost"
            )
        self._guard.raise_fence(self.fence)


class _Part:
    """What an executor does with one part; it travels there."""

    def __init__(self, guard: Guard, fence: Fence, batch: Batch, each: Each, arrow: bool) -> None:
        self._guard = guard
        self._fence = fence
        self._batch = batch
        self._each = each
        self._arrow = arrow

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        mine = (_without_cut(one, number, self._guard) for one in batches)
        rows = mine if self._arrow else (row for one in mine for row in one.to_pylist())
        result = pickle.dumps(self.part(number, rows))
        yield pa.RecordBatch.from_pydict(
            {"part": pa.array([number], pa.int32()), "result": pa.array([result], pa.binary())}
        )

    def part(self, number: int, rows: Iterator[Any]) -> Any:
        """Write one part; returns what the guard's `finish` is to be told."""
        part = self._guard.part(self._fence, self._batch, number)
        with part as step:
            if step is not None:
                self._each(step, rows)
        if part.written is not None and part.written > self._batch.number:
            raise rolled_back(
                f"{self._guard!r}, part {number}",
                self._batch.query,
                self._batch.number,
                part.written,
                key=repr(self._guard),
            )
        return part.result


def _cut(df: DataFrame, parts: int, keys: Sequence[str]) -> DataFrame:
    """Return the rows by parts, those of a key always in the same one, and in its order.

    Not by `df.repartition(parts, *keys)`: where the rows lie by these keys already Spark leaves
    that out, and may then make fewer partitions of them, by how many cores it has at the moment; a
    replay would be cut otherwise. Its hash it is. Shuffled rows come in no fixed order, and a guard
    goes on in a part where it failed: a replay is to have the same.

    Raises:
        ConfigError: a key has a collation: Spark's hash tells apart what is one value to it, and
            which of them stands for all of them may be another one in a replay.
    """
    if collated := sorted(_collations(df.select(*keys).schema)):
        raise ConfigError(
            f"by={list(keys)!r}: rows are cut by their bytes, and a key here has the collation "
            f"{collated[0]}, by which texts with other bytes are equal: a replay could write them "
            "again, or not at all. Group by, and give, a column of collate(..., 'UTF8_BINARY'), "
            "lower(...) if need be"
        )
    part = F.pmod(F.hash(*keys), F.lit(parts))
    return repartition_by_id(df.withColumn(_CUT, part), parts, _CUT).sortWithinPartitions(*keys)


def _collations(kind: T.DataType) -> set[str]:
    """Return the collations in a type, but for that by which texts are equal if their bytes are."""
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
    """Return a RecordBatch without the column that says to which part each row belongs."""
    import pyarrow.compute as pc

    if pc.any(pc.not_equal(rows.column(_CUT), number)).as_py():
        raise StateError(
            f"{guard!r}: Spark brings rows of other parts as part {number}: a replay could write "
            "them again, or not at all. Nothing of this part was written: this release of Spark "
            "cuts otherwise than those Rink knows",
            key=repr(guard),
        )
    return rows.drop_columns([_CUT])


def _batch_of(df: DataFrame, number: int) -> tuple[str, int, set[str]]:
    """Return its query and number, and the names of its outputs so far, which all fenced functions
    have in common.
    """
    context = context_of(df.sparkSession)
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    if not query:
        raise UsageError(
            "a fenced function is what foreachBatch calls in a streaming query, on classic Spark "
            "(on Connect its driver is another process, which holds no role)"
        )
    # The group of a query's Spark jobs is its run: a replay comes with the next one.
    run = context.getLocalProperty("spark.jobGroup.id")
    if _begun.get(query, ())[:2] != (run, number):
        _begun[query] = run, number, set()
    return query, number, _begun[query][2]
