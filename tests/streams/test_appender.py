"""Send to one partition while Redis has trouble.

Redis answers late, or not at all, or the partition is full.
"""

import asyncio

import pytest
from jumping import jumping, pass_time

from rink import ClosedError
from rink.streams import PartitionFull, RecordError, RedisUnavailable
from rink.streams.producer.appender import Appender
from rink.streams.store.byte_limits import ByteLimits
from rink.streams.store.keys import Names
from rink.streams.store.values import PartitionBounds

NAMES = Names.of("shop", "orders").partition(0)


class Partition:
    """A partition like that of `append.lua`, with errors on the way to it.

    Attributes:
        lose: how many of the next answers are lost, after the step was carried out.
        away: how many calls do not reach the partition.
        room: how many records fit.
    """

    def __init__(self, room=10_000):
        self.records, self.calls, self.last = [], [], None
        self.lose = self.away = 0
        self.room = room
        self.refusal = None
        self.server = "redis"
        self.limits, self.answer_timeout_s = ByteLimits(), 5.0
        self.slow = 0.001

    async def append(self, names, bounds, records, number, wants_ids):
        await pass_time(self.slow)
        if self.refusal:
            raise self.refusal
        if self.away:
            self.away -= 1
            raise RedisUnavailable("away")
        self.calls.append((number, len(records)))
        if self.last is None or number > self.last[0]:
            count = min(len(records), max(self.room - len(self.records), 0))
            ids = [f"{len(self.records) + at}-0" for at in range(1, count + 1)]
            self.records += records[:count]
            self.last = number, (count, ids if wants_ids else ids[-1:])
        assert number == self.last[0], "it came too late"
        if self.lose:
            self.lose -= 1
            raise RedisUnavailable("no answer")
        return self.last[1]


def appender_of(partition):
    return Appender(partition, NAMES, PartitionBounds(partition.room), "orders", 0)


def many(count, first=0):
    return [f"{first + n}".encode() for n in range(count)]


@jumping
async def test_each_single_send_gets_its_own_id():
    partition = Partition()
    appender = appender_of(partition)
    ids = await asyncio.gather(*(appender.send([b"%d" % n], 1, wants_ids=True) for n in range(5)))
    assert ids == [[f"{n}-0"] for n in range(1, 6)]
    assert partition.records == many(5)


@jumping
async def test_what_is_sent_while_a_call_is_under_way_goes_in_the_next():
    partition = Partition()
    appender = appender_of(partition)
    first = asyncio.create_task(appender.send(many(1), 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.gather(*(appender.send(many(1, n), 1) for n in range(1, 100)))
    await first
    assert partition.records == many(100)
    assert [count for _, count in partition.calls] == [1, 99]


@pytest.mark.parametrize(("lose", "away"), [(1, 0), (3, 0), (0, 3), (2, 2)])
@jumping
async def test_nothing_is_added_twice_or_lost_where_answers_are(lose, away):
    partition = Partition()
    partition.lose, partition.away = lose, away
    appender = appender_of(partition)
    await asyncio.gather(*(appender.send(many(700, 700 * n), 30) for n in range(3)))
    assert partition.records == many(2100)


@jumping
async def test_what_does_not_fit_waits_for_room_and_keeps_its_order():
    partition = Partition(room=10)
    appender = appender_of(partition)
    both = asyncio.gather(appender.send(many(8), 30), appender.send(many(8, 8), 30))
    await pass_time(1)
    assert partition.records == many(10)
    partition.room = 100
    await both
    assert partition.records == many(16)


@jumping
async def test_whoever_has_waited_long_enough_is_told_and_the_next_goes_on():
    partition = Partition(room=10)
    appender = appender_of(partition)
    await appender.send(many(10), 1)
    with pytest.raises(PartitionFull, match=r"full for 2 s: it holds 10 events .* 3 of 3 records"):
        await appender.send(many(3), 2)
    partition.room = 100
    await appender.send(many(1, 10), 1)
    assert partition.records == many(11)


@jumping
async def test_redis_that_is_away_for_too_long_is_named_and_not_the_partition():
    partition = Partition()
    partition.away = 10_000
    appender = appender_of(partition)
    first = asyncio.create_task(appender.send(many(1), 5))
    await pass_time(1)
    with pytest.raises(RedisUnavailable, match=r"away: 2 of 2 records .* were not sent in 2 s"):
        await appender.send(many(2), 2)
    with pytest.raises(
        RedisUnavailable, match=r"away: 1 of 1 records .* may have been sent in 5 s"
    ):
        await first
    partition.away = 0
    await appender.send(many(1), 5)
    assert partition.records == many(1)


@jumping
async def test_refusal_that_will_not_pass_is_raised_at_once_to_all_who_wait():
    partition = Partition()
    partition.refusal = RecordError("no")
    appender = appender_of(partition)
    ended = await asyncio.gather(
        *(appender.send(many(1), 1) for _ in range(3)), return_exceptions=True
    )
    assert [type(one) for one in ended] == [RecordError] * 3
    partition.refusal = None
    await appender.send(many(2), 1)
    assert partition.records == many(2)


@jumping
async def test_send_that_is_cancelled_leaves_the_others_as_they_are():
    partition = Partition()
    appender = appender_of(partition)
    one, two = (asyncio.create_task(appender.send(many(1, n), 1)) for n in (1, 2))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.gather(one, two, return_exceptions=True)
    assert partition.records[-1:] == many(1, 2)
    await appender.send(many(1, 3), 1)
    assert partition.records[-2:] == [*many(1, 2), *many(1, 3)]


@jumping
async def test_slow_redis_is_not_a_full_partition():
    partition = Partition()
    partition.slow = 10
    appender = appender_of(partition)
    first = asyncio.create_task(appender.send(many(1), 2))
    with pytest.raises(RedisUnavailable, match="may have been sent"):
        await first
    first = asyncio.create_task(appender.send(many(1, 1), 30))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(RedisUnavailable, match="were not sent"):
        await appender.send(many(1, 2), 2)
    await first


@pytest.mark.parametrize("is_lucky", [False, True])
@jumping
async def test_call_that_is_under_way_when_the_time_is_over_is_waited_for(is_lucky):
    partition = Partition(room=0)
    waiting = asyncio.create_task(appender_of(partition).send(many(1), 2.5))
    await pass_time(1.9)
    partition.slow = 0.9  # the next call begins within a quarter of a second
    partition.room = int(is_lucky)
    if is_lucky:
        await waiting
    else:
        with pytest.raises(PartitionFull, match="1 of 1 records were not sent"):
            await waiting
    assert len(partition.records) == is_lucky


@jumping
async def test_full_partition_then_silent_redis_raises_unavailable():
    partition = Partition(room=0)
    appender = appender_of(partition)
    waiting = asyncio.create_task(appender.send(many(1), 2.0))
    await pass_time(1.0)
    partition.slow = 3600
    with pytest.raises(RedisUnavailable, match=r"1 of 1 records .* may have been sent"):
        await waiting
    assert asyncio.get_running_loop().time() < 1000 + 2.0 + 1.1


@jumping
async def test_call_is_not_repeated_for_longer_than_redis_keeps_what_it_did():
    partition = Partition()
    partition.lose = 10**9
    began = asyncio.get_running_loop().time()
    with pytest.raises(RedisUnavailable):
        await appender_of(partition).send(many(3), 3600.0)
    assert 300 < asyncio.get_running_loop().time() - began < 320
    assert len(partition.records) == 3


@jumping
async def test_who_waits_when_the_app_is_closed_is_told():
    partition = Partition()
    partition.away = 10**9
    mine = appender_of(partition)
    appender = asyncio.create_task(mine.send(many(3), 3600.0))
    await pass_time(1.0)
    await mine.close()
    with pytest.raises(ClosedError, match="3 records for partition 0 of stream 'orders'"):
        await appender
    calls = partition.away
    await pass_time(10.0)
    assert partition.away == calls


@jumping
async def test_appender_that_never_sent_closes():
    await appender_of(Partition()).close()


MB = 2**20


def sized(*sizes):
    """Return a record of each size, each of its own letter."""
    return [bytes([65 + at % 26]) * size for at, size in enumerate(sizes)]


@jumping
async def test_appender_large_records_go_in_calls_of_about_a_megabyte():
    partition = Partition()
    appender = appender_of(partition)
    small, large = sized(*[MB // 4] * 10), sized(2 * MB, 10, 2 * MB)
    await asyncio.gather(appender.send(small, 30), appender.send(large, 30))
    assert partition.records == small + large
    assert [count for _, count in partition.calls] == [4, 4, 2, 1, 1, 1]


class Slow(Partition):
    """A partition that answers in time only to calls of limited size."""

    def __init__(self, most):
        super().__init__()
        self.most, self.asked = most, []

    async def append(self, names, bounds, records, number, wants_ids):
        size = sum(map(len, records))
        self.asked.append(size)
        if size <= self.most:
            return await super().append(names, bounds, records, number, wants_ids)
        await pass_time(5)
        error = RedisUnavailable("Timeout")
        error.__cause__ = TimeoutError()
        raise error


@jumping
async def test_appender_after_a_timeout_half_as_much_is_sent():
    partition = Slow(MB // 4)
    records = sized(*[MB // 16] * 20)
    ids = await appender_of(partition).send(records, 60, wants_ids=True)
    assert partition.records == records
    assert len(ids) == 20
    assert partition.asked[:3] == [MB, MB // 2, MB // 4]


@jumping
async def test_appender_remembers_between_calls_what_was_too_much():
    partition = Slow(MB // 4)
    appender = appender_of(partition)
    for _ in range(10):
        await appender.send(sized(*[MB // 16] * 16), 60)
    assert sum(size > partition.most for size in partition.asked) <= 8
    partition.most, partition.asked = MB, []
    for _ in range(40):
        await appender.send(sized(*[MB // 16] * 16), 60)
    assert partition.asked[-1] == MB, "it sends whole calls again some time after"


@jumping
async def test_appender_shorter_retry_of_an_applied_call_adds_nothing():
    """Repeat a call that was carried out, and whose answer came too late."""
    partition = Partition()
    records, calls = sized(*[MB // 16] * 20), []

    class Late(Partition):
        async def append(self, names, bounds, records, number, wants_ids):
            answer = await partition.append(names, bounds, records, number, wants_ids)
            calls.append((number, len(records), answer[0]))
            if len(calls) == 1:
                error = RedisUnavailable("Timeout")
                error.__cause__ = TimeoutError()
                raise error
            return answer

    ids = await appender_of(Late()).send(records, 60, wants_ids=True)
    assert partition.records == records
    assert ids == [f"{n}-0" for n in range(1, 21)]
    assert calls == [(1, 16, 16), (1, 8, 16), (2, 4, 4)]


@jumping
async def test_appender_a_record_too_large_for_the_timeout_names_the_setting():
    partition = Slow(MB)
    with pytest.raises(RedisUnavailable, match=r"has 3145728 bytes: .* socket_timeout .*5 s"):
        await appender_of(partition).send(sized(3 * MB), 20)
