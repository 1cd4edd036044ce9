"""Test a part of a fenced batch on an executor, without Spark."""

from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from rink.errors import ConfigError, StateError, UsageError
from rink.guards import Batch, Fence, ParquetGuard
from rink.spark.batches import _CUT, FencedBatch, _collations, _Part, _without_cut, fenced

FENCE = Fence("sums", 1)
ROWS = pa.schema([("amount", pa.int64())])


@pytest.fixture
def guard(tmp_path):
    with ParquetGuard(tmp_path) as guard:
        yield guard


def write(guard, number, amount):
    batch = Batch("q", number, 2)
    guard.begin(FENCE, batch)
    part = _Part(guard, FENCE, batch, lambda step, rows: step.write_rows(rows, ROWS), False)
    guard.finish(FENCE, batch, [part.part(0, iter([{"amount": amount}])), part.part(1, iter(()))])


def amounts(guard):
    return Counter(guard.read()["amount"].to_pylist())


def test_newest_batch_may_come_again_and_changes_nothing(guard):
    for number, amount in ((0, 10), (1, 11), (1, 12)):
        write(guard, number, amount)
    assert amounts(guard) == {10: 1, 11: 1}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_batch_behind_later_ones_is_refused_since_it_may_have_other_rows(guard, number):
    for done in (0, 1, 2, 3):
        write(guard, done, done)
    said = (
        rf"ParquetGuard.*, part 0: batch {number} of query q arrived after batch 3 "
        r".* rolled back .* new checkpoint"
    )
    with pytest.raises(StateError, match=said):
        write(guard, number, 10 + number)
    write(guard, 4, 4)
    assert amounts(guard) == dict.fromkeys(range(5), 1)


def test_rows_of_another_part_are_refused_and_others_lose_the_extra_column(guard):
    rows = pa.RecordBatch.from_pydict({"amount": [1, 2], _CUT: pa.array([3, 3], pa.int32())})
    assert _without_cut(rows, 3, guard).to_pylist() == [{"amount": 1}, {"amount": 2}]
    for wrong in ([3, 4], [4, 3], [4, 4]):
        rows = pa.RecordBatch.from_pydict({"amount": [1, 2], _CUT: pa.array(wrong, pa.int32())})
        with pytest.raises(StateError, match="rows of other parts as part 3"):
            _without_cut(rows, 3, guard)
    assert _without_cut(rows.slice(0, 0), 3, guard).num_rows == 0


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (T.StringType(), set()),
        (T.LongType(), set()),
        (T.StringType("UTF8_LCASE"), {"UTF8_LCASE"}),
        (T.ArrayType(T.StringType("UNICODE_CI")), {"UNICODE_CI"}),
        (T.MapType(T.StringType("UTF8_LCASE"), T.StringType("UNICODE")), {"UTF8_LCASE", "UNICODE"}),
        (T.StructType().add("a", T.StructType().add("b", T.StringType("UNICODE"))), {"UNICODE"}),
    ],
)
def test_collations_are_found_wherever_they_are_in_a_key(kind, found):
    assert _collations(T.StructType().add("key", kind)) == found


async def write_nothing(*_): ...


def test_fenced_async_function_raises(guard):
    """Nothing would be written, and the batch would count as done."""
    with pytest.raises(ConfigError, match=r"foreachBatch 'write_nothing' is async.*plain function"):
        fenced(write_nothing, guard, FENCE)


def test_fenced_batch_async_each_raises_and_batch_is_not_done(guard):
    batch = FencedBatch(guard, FENCE, "q", 0, set(), 2)
    with pytest.raises(ConfigError, match=r"each 'write_nothing' is async.*plain function"):
        batch.write(None, write_nothing, by="amount")
    with pytest.raises(UsageError, match="was not written"):
        batch.end()
