"""Test where reading begins and ends, on a real Redis and without Spark.

Trimmed events are noticed, and pages are bounded.
"""

import contextlib
import json
import logging

import pytest
from spark_support import COUNT, Shop, edges

from rink.errors import ConfigError, StateError
from rink.spark.datasource import RinkDataSource
from rink.spark.source.reading import FIRST_PAGE, Range, pages


@pytest.fixture
def shop(rink_redis):
    with contextlib.closing(Shop(rink_redis.url)) as made:
        yield made


def options(shop, **given):
    where = {"appName": "shop", "stream": "orders", "redis": shop.url, "record": "raw"}
    return {name: str(value) for name, value in {**where, **given}.items()}


def batch(shop, **given):
    """Return a batch reader that has planned nothing yet."""
    source = RinkDataSource(options(shop, **given))
    return source.reader(source.schema())


def query(shop, **given):
    source = RinkDataSource(options(shop, group="q", **given))
    return source.streamReader(source.schema())


def rows(reader, parts=None):
    """Return the ids of all entries that a reader yields."""
    every = reader.partitions() if parts is None else parts
    return [row["_id"] for part in every for page in reader.read(part) for row in page.to_pylist()]


def add_at(shop, *ids, number=0):
    for at in ids:
        shop.redis.xadd(shop.key(number), {"d": at}, id=at)


def each(at):
    """Return ids as options name them, one for each partition."""
    return json.dumps({number: at if number == 0 else "0-0" for number in range(COUNT)})


# ── a batch, and what is trimmed under it ────────────────────────────────────────────────────────


def test_trim_between_plan_and_first_page_is_an_error(shop):
    shop.add(count=4)
    reader = batch(shop)
    parts = reader.partitions()
    shop.trim(to=2)
    with pytest.raises(
        StateError, match=r"partition 0 .* after 0-0 are gone before they were read"
    ):
        rows(reader, parts)


def test_it_is_a_warning_where_the_query_says_so(shop, caplog):
    ids = shop.add(count=4)
    reader = batch(shop, failOnDataLoss="false")
    parts = reader.partitions()
    shop.trim(to=2)
    with caplog.at_level(logging.WARNING):
        assert rows(reader, parts) == ids[2:]
    assert "after 0-0 are gone" in caplog.text


def test_partition_of_which_nothing_is_left_is_an_error_or_a_warning(shop, caplog):
    shop.add(count=4)
    strict, loose = batch(shop), batch(shop, failOnDataLoss="false")
    plans = strict.partitions(), loose.partitions()
    shop.redis.delete(shop.key())
    with pytest.raises(StateError, match="are gone"):
        rows(strict, plans[0])
    with caplog.at_level(logging.WARNING):
        assert rows(loose, plans[1]) == []
    assert "are gone" in caplog.text


def test_what_was_trimmed_before_a_batch_is_planned_is_no_loss_to_it(shop):
    ids = shop.add(count=4)
    shop.trim(to=2)
    assert rows(batch(shop)) == ids[2:]


def test_both_edges_of_a_batch_are_of_one_moment(shop):
    """If the end were placed later, trimming between would empty the range."""
    shop.add(count=4)
    reader = batch(shop)
    plain = shop.connection.client.execute_command
    steps = []
    reader._redis.client.execute_command = lambda *command, **more: (
        steps.append(command[0]) or plain(*command, **more)
    )
    try:
        assert len(reader.partitions()) == 1
    finally:
        del reader._redis.client.execute_command
    assert steps in (["HMGET", "EVALSHA"], ["HMGET"])


# ── ids that were trimmed ────────────────────────────────────────────────────────────────────────


def test_batch_behind_an_id_that_was_trimmed_is_an_error_or_a_warning(shop, caplog):
    ids = shop.add(count=6)
    shop.trim(to=2)
    with pytest.raises(StateError, match=rf"partition 0 .* after {ids[1]} are gone"):
        batch(shop, startingOffsets=each(ids[1])).partitions()
    with caplog.at_level(logging.WARNING):
        assert rows(batch(shop, startingOffsets=each(ids[1]), failOnDataLoss="false")) == ids[4:]
    assert f"after {ids[1]} are gone" in caplog.text


def test_so_is_a_query_and_no_partition_of_it_is_registered(shop, caplog):
    ids = shop.add(count=6, number=COUNT - 1)
    shop.trim(number=COUNT - 1, to=2)
    first = edges("0-0") | {COUNT - 1: ids[1]}
    with pytest.raises(StateError, match=rf"partition {COUNT - 1} .* after {ids[1]} are gone"):
        shop.group().begin(first)
    assert [shop.offset(number=number) for number in range(COUNT)] == [None] * COUNT
    with caplog.at_level(logging.WARNING):
        loose = shop.group(strict=False)
        assert loose.begin(first) == edges("0-0")
    assert caplog.text.count(f"after {ids[1]} are gone") == 1
    loose.follow(edges("0-0"))


def test_what_was_registered_is_not_judged_again(shop):
    """Begin after a start that died: the query begins at the same place.

    `follow` finds what is gone.
    """
    ids = shop.add(count=4)
    group = shop.group()
    assert group.begin(edges("0-0") | {0: "1-0"})[0] == "0-0"  # before all that there ever was
    shop.trim(to=2)
    assert group.begin(edges("0-0") | {0: "1-0"})[0] == "0-0"
    with pytest.raises(StateError, match="after 0-0 are gone"):
        group.follow(edges("0-0"))
    assert shop.ids() == ids[2:]


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ("2-0", "gone"),  # it was there
        ("2-5", "gone"),  # it never was, and 3-0 lay after it
        ("0-0", "gone"),  # all that there ever was is asked for
        ("4-9", "gone"),  # only 4-0 was trimmed; Redis does not know that it was the last
        ("5-0", ""),  # the first one left
        ("5-7", ""),
        ("6-0", ""),  # the last one
        ("9-0", ""),  # nothing ever lay after it
    ],
)
def test_behind_which_ids_something_may_be_gone(shop, at, told):
    add_at(shop, "1-0", "2-0", "3-0", "4-0", "5-0", "6-0")
    shop.trim(to=2)
    if told:
        with pytest.raises(StateError, match=f"after {at} are gone"):
            batch(shop, startingOffsets=each(at)).partitions()
        return
    left = [one for one in ("5-0", "6-0") if one > at]
    assert rows(batch(shop, startingOffsets=each(at))) == left


def test_id_before_all_there_ever_was_is_no_loss(shop):
    add_at(shop, "5-0", "6-0")
    assert rows(batch(shop, startingOffsets=each("1-0"))) == ["5-0", "6-0"]
    assert rows(batch(shop, startingOffsets=each("0-0"))) == ["5-0", "6-0"]


def test_nothing_is_gone_after_the_last_entry_of_an_emptied_partition(shop):
    add_at(shop, "5-0", "6-0")
    shop.trim(to=0)
    assert rows(batch(shop, startingOffsets=each("6-0"))) == []
    with pytest.raises(StateError, match="after 5-0 are gone"):
        batch(shop, startingOffsets=each("5-0")).partitions()


def test_id_is_the_same_however_it_is_written(shop):
    add_at(shop, "5-0", "16-0")
    shop.trim(to=1)
    with pytest.raises(StateError, match="after 9-0 are gone"):
        batch(shop, startingOffsets=each("00009-00")).partitions()
    assert rows(batch(shop, startingOffsets=each("0000000016-0"))) == []


def test_partitions_may_begin_at_earliest_and_at_latest(shop):
    ids = shop.add(count=4)
    other = shop.add(count=2, number=1)
    shop.trim(to=2)
    given = json.dumps({"0": "earliest", "1": "latest", "2": "0-0"})
    assert rows(batch(shop, startingOffsets=given)) == ids[2:]
    assert query(shop, startingOffsets=given).initialOffset() == {
        "0": "0-0",
        "1": other[1],
        "2": "0-0",
    }


# ── times ────────────────────────────────────────────────────────────────────────────────────────


def test_time_takes_of_what_is_there(shop):
    add_at(shop, "1000-0", "2000-0", "3000-0", "4000-0")
    assert rows(batch(shop, startingTimestamp=3000)) == ["3000-0", "4000-0"]
    assert rows(batch(shop, endingTimestamp=3000)) == ["1000-0", "2000-0"]
    assert rows(batch(shop, startingTimestamp=2000, endingTimestamp=3000)) == ["2000-0"]


def test_window_that_was_trimmed_fails_instead_of_counting_the_rest(shop, caplog):
    """A count of the window would be 2, since only 2 of 2,000 events are left."""
    add_at(shop, *[f"{1_000_000 + n}-0" for n in range(2000)])
    shop.trim(to=2)
    window = {"startingTimestamp": 1_000_000, "endingTimestamp": 1_002_000}
    with pytest.raises(StateError) as told:
        rows(batch(shop, **window))
    assert "partition 0 of stream 'orders' of app 'shop' from 1000000-0" in str(told.value)
    assert "1998 events were removed, and the first one left is 1001998-0" in str(told.value)
    assert 'failOnDataLoss", "false"' in str(told.value)
    assert told.value.key == shop.key()
    with pytest.raises(StateError, match="1998 events were removed"):
        query(shop, startingTimestamp=1_000_000).initialOffset()
    assert shop.offset() is None
    with caplog.at_level(logging.WARNING):
        assert rows(batch(shop, **window, failOnDataLoss="false")) == ["1001998-0", "1001999-0"]
    assert "1998 events were removed" in caplog.text
    assert rows(batch(shop)) == ["1001998-0", "1001999-0"]  # earliest is what is there


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (1, "gone"),
        (5000, "gone"),  # an event of that time, before the one that is left, may have been removed
        (5001, ""),
        (6000, ""),
        (6001, ""),  # nothing has such a time
    ],
)
def test_time_before_the_first_event_left_may_have_lost_some(shop, at, told):
    add_at(shop, "1000-0", "2000-0", "5000-0", "6000-0")
    shop.trim(to=2)
    if told:
        with pytest.raises(StateError, match=r"from .* on are gone"):
            batch(shop, startingTimestamp=at).partitions()
    else:
        assert rows(batch(shop, startingTimestamp=at)) == [
            one for one in ("5000-0", "6000-0") if int(one.partition("-")[0]) >= at
        ]


def test_time_before_all_events_is_no_loss_while_none_was_removed(shop):
    add_at(shop, "1000-0", "2000-0")
    assert rows(batch(shop, startingTimestamp=1)) == ["1000-0", "2000-0"]
    assert rows(batch(shop, startingTimestamp=5000)) == []


def test_window_of_which_an_event_was_deleted_fails(shop):
    """Redis keeps the greatest id that XDEL removed, here one of the window."""
    add_at(shop, "1000-0", "2000-0", "3000-0", "4000-0")
    shop.redis.xdel(shop.key(), "3000-0")
    for window in (
        {"startingTimestamp": 1500},
        {"startingTimestamp": 3000},
        {"startingOffsets": each("1000-0")},
        {"startingTimestamp": 2000, "endingTimestamp": 3001},
    ):
        with pytest.raises(StateError, match="XDEL has removed 3000-0"):
            batch(shop, **window).partitions()
    for window, left in (
        ({"startingTimestamp": 2000, "endingTimestamp": 3000}, ["2000-0"]),
        ({"startingTimestamp": 3001}, ["4000-0"]),
        ({"startingOffsets": each("3000-0")}, ["4000-0"]),
        ({"startingOffsets": each("1000-0"), "endingOffsets": each("2000-0")}, ["2000-0"]),
        ({}, ["1000-0", "2000-0", "4000-0"]),
    ):
        assert rows(batch(shop, **window)) == left


def test_window_that_ends_before_it_begins_is_refused(shop):
    add_at(shop, "1000-0", "2000-0")
    with pytest.raises(
        ConfigError, match="startingTimestamp is '2000', and endingTimestamp is '1000'"
    ):
        batch(shop, startingTimestamp=2000, endingTimestamp=1000)
    assert rows(batch(shop, startingTimestamp=2000, endingTimestamp=2000)) == []


def test_time_0_is_before_all(shop):
    add_at(shop, "1000-0", "2000-0")
    assert rows(batch(shop, startingTimestamp=0)) == ["1000-0", "2000-0"]
    assert rows(batch(shop, endingTimestamp=0)) == []
    assert query(shop, startingTimestamp=0).initialOffset()["0"] == "0-0"


def test_batch_ends_with_the_ids_it_is_told(shop):
    add_at(shop, "1000-0", "2000-0", "3000-0")
    assert rows(batch(shop, endingOffsets=each("2500-0"))) == ["1000-0", "2000-0"]
    with pytest.raises(ConfigError, match="endingOffsets is latest or JSON"):
        batch(shop, endingOffsets="earliest")


# ── how much one answer has ──────────────────────────────────────────────────────────────────────


def add_large(shop, *sizes):
    with shop.redis.pipeline(transaction=False) as pipeline:
        for size in sizes:
            pipeline.xadd(shop.key(), {"d": b"x" * size})
        return [at.decode() for at in pipeline.execute()]


def counts(shop, ids):
    wanted = Range(shop.place, 0, "0-0", ids[-1], 0, "spark/q", strict=True)
    found = [[at.decode() for at, _ in page] for page in pages(shop.connection, wanted)]
    assert [at for page in found for at in page] == ids
    return [len(page) for page in found]


def test_page_has_fewer_events_where_they_are_large(shop):
    first, *others = counts(shop, add_large(shop, *[999_000] * 130))
    assert first == FIRST_PAGE
    assert others == [8] * (30 // 8) + [30 % 8]


def test_page_has_many_events_where_they_are_small(shop):
    assert counts(shop, add_large(shop, *[90] * 3000)) == [FIRST_PAGE, 2900]


def test_page_has_an_event_however_large_it_is(shop):
    first = [900_000] * FIRST_PAGE
    assert counts(shop, add_large(shop, *first, *[20_000_000] * 8)) == [FIRST_PAGE, 8]
    last = add_large(shop, *[20_000_000] * 2)
    wanted = Range(shop.place, 0, last[0], last[1], 0, "spark/q", strict=True)
    assert [len(page) for page in pages(shop.connection, wanted)] == [1]


def test_batch_is_planned_without_redis_having_all_of_it_in_memory(shop):
    ids = add_large(shop, *[1_000_000] * 250)
    one = shop.connection.run(
        "source/bound", (shop.key(),),
        after="0-0", end_at=ids[-1], max_count=10_000, max_bytes=8_000_000,
    )  # fmt: skip
    assert one == [100, ids[99].encode()]
    reader = query(shop, maxOffsetsPerTrigger=220)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end["0"] == ids[219]


# ── what is available now ────────────────────────────────────────────────────────────────────────


def test_what_is_available_now_is_settled_once_for_all_batches_of_a_run(shop):
    reader = query(shop)
    start = reader.initialOffset()
    ids = shop.add(count=3)
    reader.prepareForTriggerAvailableNow()
    shop.add(count=2)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end["0"] == ids[-1]
    shop.add(count=2)
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    assert reader.reportLatestOffset()["0"] == shop.ids()[-1]
