"""Read as PySpark 4.0 and 4.1 do, on a real Redis and without Spark.

The order of the calls is that of PySpark 4.0.5 and 4.1.4. `latestOffset` comes without a start, and
a restart first names the end of its log of offsets, as an empty range, whether that batch was
committed or not.
"""

import contextlib

import pytest
from spark_support import Shop

from rink.errors import ConfigError, StateError
from rink.spark import compat
from rink.spark.datasource import RinkDataSource
from rink.spark.schema import RAW


@pytest.fixture
def shop(rink_redis):
    with contextlib.closing(Shop(rink_redis.url)) as made:
        yield made


class Query:
    """The checkpoint of a query; each `restart` is a new driver process."""

    def __init__(self, shop, **options):
        self.shop = shop
        self.options = {
            "appName": "shop", "stream": "orders", "redis": shop.url, "group": "q",
            "redisTimeout": "1",
            "metadata": "false", **options,
        }  # fmt: skip
        self.offsets, self.committed = [], 0
        self.restart()

    def restart(self, asks_first=False):
        """Restart the query; with `triggerAvailableNowWrapper.enabled` ask first."""
        self.reader = RinkDataSource(self.options).streamReader(RAW)
        if asks_first:
            self.reader.latestOffset()
        if self.offsets:
            assert self.reader.partitions(self.offsets[-1], self.offsets[-1]) == []

    @property
    def start(self):
        return self.offsets[self.committed - 1] if self.committed else self.reader.initialOffset()

    def batch(self, fails=False):
        """Plan and run one batch, or the failed one; return the numbers read."""
        if len(self.offsets) == self.committed:
            end = self.reader.latestOffset()
            if end == self.start:
                return 0
            self.offsets.append(end)
            if self.committed:
                self.reader.commit(self.offsets[-2])
        parts = self.reader.partitions(self.start, self.offsets[-1])
        count = sum(batch.num_rows for part in parts for batch in self.reader.read(part))
        if not fails:
            self.committed += 1
        return count


def test_each_event_is_read_once_and_passed_when_spark_asks_again(shop):
    query = Query(shop)
    ids = shop.add(count=3)
    shop.add(number=1, count=2)
    assert query.batch() == 5
    assert shop.offset() == "0-0"
    assert query.batch() == 0
    assert shop.offset() == ids[-1]
    query.restart()
    more = shop.add(count=2)
    assert query.batch() == 2
    query.restart()
    assert query.batch() == 0
    assert shop.offset() == more[-1]


@pytest.mark.parametrize("asks_first", [False, True])
def test_batch_that_was_not_committed_is_not_passed_by_a_restart(shop, asks_first):
    query = Query(shop)
    first = shop.add(count=3)
    assert query.batch() == 3
    second = shop.add(count=2)
    assert query.batch(fails=True) == 2
    for _ in range(2):
        query.restart(asks_first)
        assert shop.offset() == first[-1]
        assert second == shop.ids()[-2:]  # not trimmed
        assert query.batch(fails=True) == 2
    query.restart(asks_first)
    assert query.batch() == 2
    assert query.batch() == 0
    assert shop.offset() == second[-1]


def test_start_at_latest_has_no_end_before_its_begin(shop):
    shop.add(count=3)
    query = Query(shop, startingOffsets="latest")
    end = query.reader.latestOffset()
    shop.add(count=2)
    assert query.reader.initialOffset() == end
    assert query.batch() == 2


def test_first_start_that_died_begins_at_the_same_place(shop):
    shop.add(count=3)
    Query(shop, startingOffsets="latest").reader.latestOffset()
    shop.add(count=2)
    query = Query(shop, startingOffsets="latest")
    assert query.batch() == 2


def test_new_checkpoint_of_a_group_in_use_is_refused(shop):
    query = Query(shop)
    shop.add(count=3)
    query.batch()
    query.batch()
    other = Query(shop)
    shop.add(count=1)
    with pytest.raises(StateError, match="in use by a query with another checkpoint"):
        other.batch()


def test_events_that_are_gone_are_told_of_before_they_are_passed(shop):
    query = Query(shop)
    shop.add(count=3)
    assert query.batch() == 3
    shop.add(count=3)
    shop.trim(to=1)
    with pytest.raises(StateError, match="are gone before they were read"):
        query.batch()


def test_end_is_never_before_what_spark_has(shop):
    query = Query(shop, failOnDataLoss="false")
    shop.add(count=3)
    assert query.batch() == 3
    shop.redis.delete(shop.key())  # restored from an older state
    assert query.batch() == 0
    query.restart()
    assert query.batch() == 0


def test_max_offsets_per_trigger_is_refused_in_words(shop, monkeypatch):
    Query(shop, maxOffsetsPerTrigger="10")
    monkeypatch.setattr(compat, "HAS_READ_LIMITS", False)
    with pytest.raises(ConfigError, match=r"maxOffsetsPerTrigger needs PySpark 4\.2 or later"):
        Query(shop, maxOffsetsPerTrigger="10")
    Query(shop)
