"""Test records with a field of each kind.

The source and workers read what the sink wrote.
"""

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import attrs
import pytest
from spark_shop import Full, Total

from rink.spark.schema import struct_of
from rink.streams import App

RECORDS = [
    Full(
        name="ann",
        at=datetime(2026, 11, 23, 12, 30, 1, 123456, tzinfo=UTC),
        day=date(1969, 2, 28),
        raw=bytes(range(256)),
        ratio=0.1,
        is_new=True,
        tags=["a", "", "ü\n\"'"],
        parts={"x": -1, "y": 2**53 + 1},
        first=Total(customer="ann", total=2**63 - 1, count=3),
        rest=[Total(customer="b", total=1), Total(customer="c", total=-(2**63))],
        by_name={"d": Total(customer="d", total=0)},
        deep={"e": [1, 2], "f": []},
        key=UUID(int=2**127),
        price=Decimal("12345678901234567890.123456789012345678"),
        opens=time(23, 59, 59, 999999),
        lasts=timedelta(days=-1, microseconds=1),
        note="here",
        last=Total(customer="e", total=5),
    ),
    Full(
        name="bob",
        at=datetime(1969, 1, 1, tzinfo=UTC),
        day=date(9999, 12, 31),
        raw=b"",
        ratio=-5e-324,
        is_new=False,
        tags=[],
        parts={},
        first=Total(customer="", total=0),
        rest=[],
        by_name={},
        deep={},
        key=UUID(int=0),
        price=Decimal("-0.1"),
        opens=time(),
        lasts=timedelta(days=400, hours=5),
    ),
]


def columns_of(one):
    """Return a record as a row: UUIDs and times of day are text there."""
    return attrs.asdict(one) | {"key": str(one.key), "opens": one.opens.isoformat()}


@pytest.fixture
def written(shop, spark):
    """Return the records that the sink has put into the stream."""
    shop.send([], stream="full")
    df = spark.createDataFrame([columns_of(one) for one in RECORDS], struct_of(Full))
    df.write.format("rink").options(**shop.options("full")).mode("append").save()
    return shop


def test_what_the_sink_writes_is_what_the_source_reads(written, spark):
    df = spark.read.format("rink").options(**written.options("full", metadata=False)).load()
    assert df.schema == struct_of(Full)
    found = [row.asDict(recursive=True) for row in df.orderBy("name").collect()]
    for row in found:  # Spark gives times without a zone, and mutable bytes
        row["at"] = row["at"].astimezone(UTC)
        row["raw"] = bytes(row["raw"])
    assert found == [columns_of(one) for one in RECORDS]


def test_what_the_sink_writes_is_what_workers_read(written):
    app = App("shop", redis=written.url)
    stream = app.stream("full", record=Full, partition_by="name", partition_count=2)

    async def read():
        async with app:
            return [event.record for number in range(2) async for event in stream.read(number)]

    found = asyncio.run(read())
    assert sorted(found, key=lambda one: one.name) == RECORDS


def test_what_the_source_reads_can_be_written_as_it_is(written, spark):
    options = written.options("full", metadata=False)
    spark.read.format("rink").options(**options).load().write.format("rink").options(
        **written.options("full")
    ).mode("append").save()
    rows = written.every("full")
    assert len(rows) == 2 * len(RECORDS)
    assert all(rows.count(row) == 2 for row in rows)
