"""Test what operators do, on a real Redis and without workers.

The tests cover refusals, kept data, and data of other apps.
"""

import asyncio
import functools
import itertools
import json
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from redis.asyncio import RedisCluster
from streams_support import Steps
from workers_support import until_true

from rink.errors import ConfigError, EtcdUnavailable, StateError
from rink.streams import App, PartitionFull, Record, RedisError, Worker, admin
from rink.streams.errors import OffsetMoved
from rink.testing import redis_cluster
from rink.testing.memory.cluster import MemoryCluster


class Order(Record):
    order_id: int


class Desk(Steps):
    """Hold an app of two processors, and steps on partition 1 of `bill`."""

    def __init__(self, redis, **stream):
        given = {"partition_by": "order_id", "partition_count": 4} | stream
        self.app = App("shop", redis=redis)
        self.orders = self.app.stream("orders", record=Order, **given)
        for name in ("bill", "ship"):
            self.app.processor(self.orders, name=name, initial_delay=0.1)(_process)
        self.ship = self.app.processors["ship"].place(1)

    async def __aenter__(self):
        self.store = (await self.app.connections.open()).store
        self.redis = self.store.redis
        self.place = self.app.processors["bill"].place(1)
        return self

    async def __aexit__(self, *_):
        await self.app.close()

    async def bury(self, *places):
        """Make the next event of each place a dead letter.

        Return the letter's id.
        """
        ids = []
        for place in places or (self.place,):
            fields = {
                "d": b'{"order_id":7}',
                "id": "5-0",
                "error": "E: x",
                "trace": "",
                "attempts": 3,
            }
            letter = await self.redis.xadd(place.names.dead(place.processor), fields, id="9-0")
            ids.append(letter.decode())
        return ids[0]

    async def quarantine(self, reason, place=None):
        place = place or self.place
        await self.store.register(place)
        await self.take(5, place)
        await self.store.quarantine(place, 5, "0", reason)

    async def dead(self):
        return (await admin.dead_letters(self.app)).letters


async def _process(events):
    pass


def at_desk(**stream):
    """Give an async test a `Desk`."""

    def decorate(test):
        @functools.wraps(test)
        def run(rink_redis):
            async def body():
                async with Desk(rink_redis.url, **stream) as desk:
                    await test(desk)

            asyncio.run(body())

        del run.__wrapped__  # pytest would ask for the arguments of that one
        return run

    return decorate


# ── places and their names ───────────────────────────────────────────────────────────────────────


@at_desk()
async def test_all_that_the_app_declares_is_looked_at_though_redis_is_empty(desk):
    found = await admin.lag(desk.app)
    assert [(one.processor, one.partition) for one in found] == [
        (name, number) for name in ("bill", "ship") for number in range(4)
    ]
    assert {(one.offset, one.lag, one.holds_back) for one in found} == {("", 0, False)}
    assert await desk.redis.keys() == []


@at_desk()
async def test_what_cannot_be_meant_is_refused(desk):
    for chosen, said in [
        ({"processor": "bil"}, r"declares no processor 'bil', .*\['bill', 'ship'\]"),
        ({"stream": "order"}, r"no stream 'order'; it has \['orders'\]"),
        ({"partition": 4}, "no partition 4: they are 0 to 3"),
    ]:
        for ask in (admin.lag, admin.dead_letters, admin.unquarantine, admin.requeue):
            with pytest.raises(ConfigError, match=said):
                await ask(desk.app, **chosen)


@at_desk()
async def test_a_processor_that_only_redis_knows_is_meant_too(desk):
    await desk.add(3)
    await desk.redis.hset(desk.place.names.offsets, mapping={"format": 1, "old": "0-0"})
    (old,) = await admin.lag(desk.app, processor="old")
    assert (old.declared, old.lag, old.partition) == (False, 3, 1)
    (moved,) = await admin.reset(desk.app, "old", "latest")
    assert moved.after == (await desk.ids())[-1]


@at_desk()
async def test_whoever_holds_trimming_back_is_the_one_with_the_lowest_offset(desk):
    ids = await desk.add(3)
    for place in (desk.place, desk.ship):
        await desk.store.register(place)
    await desk.take(5)
    await desk.commit(5, "0-0", ids[1])
    found = {one.processor: one for one in await admin.lag(desk.app, partition=1)}
    assert (found["bill"].lag, found["bill"].holds_back) == (1, False)
    assert (found["ship"].lag, found["ship"].holds_back) == (3, True)
    assert (found["bill"].owned, found["ship"].owned) == (True, False)
    await admin.reset(desk.app, "ship", ids[1])
    assert [one.holds_back for one in await admin.lag(desk.app, partition=1)] == [True, True]
    for name in ("bill", "ship"):
        await admin.reset(desk.app, name, "latest")
    assert not any(one.holds_back for one in await admin.lag(desk.app))
    assert found["ship"].oldest < found["bill"].oldest or ids[0][:13] == ids[2][:13]


@at_desk()
async def test_lag_of_a_processor_that_never_started_counts_its_events(desk):
    """A processor that never started lags by the events it will process."""
    await desk.add(3)
    (found,) = await admin.lag(desk.app, processor="bill", partition=1)
    assert (found.offset, found.lag, found.holds_back) == ("", 3, False)
    assert found.oldest

    @desk.app.processor(desk.app.streams["orders"], start="latest")
    async def audit(events): ...

    (found,) = await admin.lag(desk.app, processor="audit", partition=1)
    assert (found.offset, found.lag, found.oldest) == ("", 0, "")


@at_desk()
async def test_what_is_shown_of_a_partition_was_so_at_one_moment(desk):
    ids = await desk.add(300)
    await desk.store.register(desk.place)
    await desk.take(5)

    async def commit_each():
        for expected, new in itertools.pairwise(["0-0", *ids]):
            await desk.commit(5, expected, new)

    working, seen = asyncio.create_task(commit_each()), []
    while not working.done():
        (one,) = await admin.lag(desk.app, processor="bill", partition=1)
        seen.append((one.lag, one.offset))
        assert (one.lag, one.offset) == (300 - one.processed, ["0-0", *ids][one.processed])
    await working
    assert len(set(seen)) > 10


@at_desk()
async def test_something_else_under_a_key_is_an_error_of_ours(desk):
    await desk.redis.set(desk.place.names.offsets, "x")
    with pytest.raises(StateError, match="something else lies under this key"):
        await admin.lag(desk.app)


@at_desk()
async def test_broken_partition_fails_only_commands_that_need_its_stream(desk):
    """A broken partition fails only the commands that need its stream."""
    broken = desk.orders.names.partition(2).stream
    await desk.redis.set(broken, "x")
    await desk.quarantine("event 5-0 of 'orders/1', processor 'bill': E: x (3 times)")
    assert [one.partition for one in await admin.unquarantine(desk.app)] == [1]
    with pytest.raises(StateError, match=rf"one of the keys .*'{re.escape(broken)}'"):
        await admin.lag(desk.app)


@at_desk()
async def test_what_only_reads_goes_on_where_nothing_may_be_written(desk):
    await desk.store.register(desk.place)
    await desk.redis.config_set("min-replicas-to-write", "1")
    try:
        assert len(await admin.lag(desk.app, processor="bill")) == 4
        with pytest.raises(RedisError, match="Not enough good replicas"):
            await desk.take(5)
    finally:
        await desk.redis.config_set("min-replicas-to-write", "0")


@at_desk()
async def test_owners_before_any_worker_was_there(desk):
    with MemoryCluster() as etcd:
        desk.app.etcd = etcd.client
        found = await admin.owners(desk.app, processor="bill")
    assert [(one.group, one.version, one.workers) for one in found] == [("shop/bill", 0, ())]
    first = found[0].partitions[0]
    assert (first.owner, first.standby, first.token, first.is_open) == (None, None, 0, False)


@at_desk()
async def test_owners_without_an_etcd_fail_at_once(desk):
    """Port 1 has no server."""
    desk.app.etcd, desk.app.session = "http://127.0.0.1:1", {"timeout": 60.0}
    async with asyncio.timeout(30.0):
        with pytest.raises(EtcdUnavailable, match="no etcd listens at"):
            await admin.owners(desk.app, processor="bill")


@at_desk()
async def test_a_worker_that_is_gone_owns_nothing(desk):
    with MemoryCluster() as etcd:
        desk.app.etcd = etcd.client
        worker = Worker(desk.app, ["bill"], name="w1")
        task = asyncio.create_task(worker.run())
        await until_true(lambda: are_open(desk))
        assert {one.owner for one in await partitions_of(desk)} == {"w1"}
        worker.stop()
        await task
        assert {(one.owner, one.standby, one.is_open) for one in await partitions_of(desk)} == {
            (None, None, False)
        }


async def partitions_of(desk):
    (found,) = await admin.owners(desk.app, processor="bill")
    return found.partitions


async def are_open(desk):
    return all(one.is_open for one in await partitions_of(desk))


# ── dead letters ─────────────────────────────────────────────────────────────────────────────────


@at_desk()
async def test_letters_of_one_id_in_two_places_must_be_told_apart(desk):
    await desk.store.register(desk.place)
    letter = await desk.bury(desk.place, desk.ship)
    for ask in (admin.dead_letter, admin.requeue):
        with pytest.raises(StateError, match=r"several .*orders/1 of bill, orders/1 of ship"):
            await ask(desk.app, letter)
    assert (await admin.dead_letter(desk.app, letter, processor="ship")).processor == "ship"
    (again,) = await admin.requeue(desk.app, letter, processor="bill")
    assert (again.processor, again.partition) == ("bill", 1)
    assert [one.processor for one in await desk.dead()] == ["ship"]


@at_desk()
async def test_what_is_no_id_of_a_letter(desk):
    with pytest.raises(StateError, match="'x' is no id of a dead letter"):
        await admin.dead_letter(desk.app, "x")
    with pytest.raises(StateError, match="there is no dead letter 1-0"):
        await admin.dead_letter(desk.app, "1-0")


@at_desk(partition_size=2)
async def test_requeue_into_a_full_partition_changes_nothing(desk):
    await desk.store.register(desk.place)
    letter = await desk.bury()
    limited = desk.place.names
    await desk.redis.xadd(limited.stream, {"d": b"{}"})
    await desk.redis.xadd(limited.stream, {"d": b"{}"})
    with pytest.raises(
        PartitionFull, match=r"'orders/1' holds 2 events .* 0 letters were requeued"
    ):
        await admin.requeue(desk.app, letter)
    assert [one.id for one in await desk.dead()] == [letter]


@at_desk()
async def test_letters_of_a_forgotten_processor_stay_and_cannot_be_requeued(desk):
    await desk.redis.hset(desk.place.names.offsets, mapping={"format": 1, "old": "0-0"})
    await desk.redis.xadd(desk.place.names.dead("old"), {"d": b"\xff", "error": "E"})
    (gone,) = await admin.forget_group(desk.app, "old")
    assert gone.letters == 1
    (letter,) = (await admin.dead_letters(desk.app, processor="old")).letters
    assert (letter.record, letter.event, letter.sent, letter.attempts) == (r"\xff", "", "", 0)
    with pytest.raises(StateError, match="'old' is not registered in 'orders/1'"):
        await admin.requeue(desk.app, processor="old")


@at_desk()
async def test_many_letters_are_requeued_in_their_order(desk):
    await desk.store.register(desk.place)
    for number in range(250):
        record = json.dumps({"order_id": number}).encode()
        await desk.redis.xadd(desk.place.names.dead("bill"), {"d": record, "id": "5-0"})
    assert (await admin.dead_letters(desk.app, last=7)).total == 250
    assert len(await admin.requeue(desk.app)) == 250
    entries = await desk.redis.xrange(desk.place.names.stream)
    assert [json.loads(fields[b"d"])["order_id"] for _, fields in entries] == list(range(250))
    assert {fields[b"only"] for _, fields in entries} == {b"bill"}


@at_desk()
async def test_dead_letters_are_discarded_one_or_all_of_what_is_chosen(desk):
    letters = [await desk.redis.xadd(desk.place.names.dead("bill"), {"d": b"{}"}) for _ in range(3)]
    await desk.bury(desk.ship)
    (one,) = await admin.discard(desk.app, letters[1].decode())
    assert (one.processor, one.partition, one.letters) == ("bill", 1, 1)
    with pytest.raises(StateError, match=f"no dead letter {letters[1].decode()}"):
        await admin.discard(desk.app, letters[1].decode())
    (rest,) = await admin.discard(desk.app, processor="bill")
    assert (rest.partition, rest.letters) == (1, 2)
    assert await admin.discard(desk.app, processor="bill") == ()
    assert [one.processor for one in await desk.dead()] == ["ship"]


# ── offsets ──────────────────────────────────────────────────────────────────────────────────────


@at_desk()
async def test_skip_takes_the_event_that_the_partition_was_quarantined_for(desk):
    ids = await desk.add(2)
    await desk.quarantine(f"event {ids[0]} of 'orders/1', processor 'bill': E: x (3 times)")
    (moved,) = await admin.unquarantine(desk.app, skip=True)
    assert (moved.skipped, moved.offset) == (ids[0], ids[0])
    position = await desk.position()
    assert (position.offset, position.quarantined, position.dead) == (ids[0], "", 1)
    (letter,) = await desk.dead()
    assert (letter.event, json.loads(letter.record)) == (ids[0], {"n": 0})
    with pytest.raises(OffsetMoved):  # by an owner that has not heard of it
        await desk.store.mark(desk.place, 5, "0", ids[0])
    assert (await desk.take(6)).offset == ids[0]


@at_desk()
async def test_skip_passes_over_what_is_for_others(desk):
    await desk.redis.xadd(desk.place.names.stream, {"d": b"{}", "only": "ship"})
    (mine,) = await desk.add()
    await desk.quarantine(f"event {mine} of 'orders/1', processor 'bill': E: x (3 times)")
    (moved,) = await admin.unquarantine(desk.app, skip=True)
    assert moved.skipped == mine


@at_desk()
async def test_skip_is_refused_where_it_would_hit_another_event(desk):
    ids = await desk.add(2)
    for reason, said in [
        (f"event {ids[1]} of 'orders/1', processor 'bill': E", f"the next one is {ids[0]}"),
        (
            "partition 'orders/1' of processor 'bill' was rolled back",
            "was not quarantined for an event",
        ),
    ]:
        await desk.quarantine(reason)
        with pytest.raises(StateError, match=said):
            await admin.unquarantine(desk.app, skip=True)
        assert (await desk.position()).quarantined == reason
        assert await desk.dead() == ()
        await admin.unquarantine(desk.app)
        await desk.redis.delete(desk.place.at, desk.place.names.offsets)


@at_desk()
async def test_one_partition_that_stays_quarantined_keeps_no_other_from_it(desk):
    for number in (0, 2):
        place = desk.app.processors["bill"].place(number)
        (entry_id,) = await desk.add(place=place)
        await desk.quarantine(f"event {entry_id} of {place.role!r}, processor 'bill': E: x", place)
    await desk.quarantine("partition 'orders/1' of processor 'bill' was rolled back")
    with pytest.raises(StateError, match="was not quarantined for an event") as caught:
        await admin.unquarantine(desk.app, skip=True)
    (note,) = caught.value.__notes__
    assert note == "it was done in bill orders/0, bill orders/2"
    quarantined = {one.partition for one in await admin.lag(desk.app) if one.quarantined}
    assert quarantined == {1}


@at_desk()
async def test_unquarantine_of_a_rolled_back_partition_takes_what_is_there(desk):
    ids = await desk.add(2)
    await desk.quarantine("partition 'orders/1' of processor 'bill' was rolled back")
    await desk.redis.hset(
        desk.place.names.offsets, mapping={"format": 1, "bill": "99999999999999-0"}
    )
    (moved,) = await admin.unquarantine(desk.app, processor="bill", partition=1)
    assert moved.offset == ids[-1]
    assert (await desk.take(6)).offset == ids[-1]


@at_desk()
async def test_a_reset_by_time_goes_on_with_what_was_sent_from_then_on(desk):
    await desk.store.register(desk.place)
    for ms in (1000, 2000, 3000):
        await desk.redis.xadd(desk.place.names.stream, {"d": b"{}"}, id=f"{ms}-0")
    for to, first in [
        ("2000", [2000, 3000]),
        ("2001", [3000]),
        ("9999", []),
        ("1", [1000, 2000, 3000]),
    ]:
        await admin.reset(desk.app, "bill", to)
        taken = await desk.take(5, first=10)
        assert [int(entry_id.split(b"-")[0]) for entry_id, _ in taken.first] == first


@at_desk()
async def test_reset_takes_times_as_iso_8601_in_utc_or_a_zone(desk):
    await desk.store.register(desk.place)
    noon = datetime(2026, 11, 27, 12, tzinfo=UTC)
    sent = [round(noon.timestamp() * 1000) + ms for ms in (-1, 0, 1500, 3_600_000)]
    for ms in sent:
        await desk.redis.xadd(desk.place.names.stream, {"d": b"{}"}, id=f"{ms}-0")
    for to, first in [
        ("2026-11-27T12:00", 1),
        ("2026-11-27 12:00:00", 1),
        ("2026-11-27T12:00:00Z", 1),
        ("2026-11-27T13:00+01:00", 1),
        ("2026-11-27T12:00:00.001", 2),
        ("2026-11-27T12:00:01.5", 2),
        ("2026-11-27", 0),
        ("2026-11-28", 4),
        (noon, 1),
        (noon.replace(tzinfo=None), 1),
        (noon.astimezone(timezone(timedelta(hours=-5))), 1),
    ]:
        await admin.reset(desk.app, "bill", to)
        taken = await desk.take(5, first=10)
        assert [int(entry_id.split(b"-")[0]) for entry_id, _ in taken.first] == sent[first:], to


@at_desk()
async def test_reset_refuses_digits_that_may_be_a_date_or_seconds(desk):
    await desk.store.register(desk.place)
    await desk.add()
    for to in ("20261127", "1764201600"):
        with pytest.raises(ConfigError, match="write a date as 2026-11-27"):
            await admin.reset(desk.app, "bill", to)
    assert (await desk.position()).offset == "0-0"


@at_desk()
async def test_a_reset_beyond_the_end_moves_nothing(desk):
    await desk.store.register(desk.place)
    await desk.add()
    naive = datetime(1960, 1, 1)  # noqa: DTZ001
    no_times = ("1969-12-31T23:59:59", "2026-13-01", "2026-11-27T25:00", naive)
    ends = ("99999999999999-0", f"1-{2**64}", f"{2**64}-1", "x", "0", "-1", "1-", "")
    for to in (*ends, *no_times):
        with pytest.raises((StateError, ConfigError)):
            await admin.reset(desk.app, "bill", to)
    assert (await desk.position()).offset == "0-0"


@at_desk()
async def test_the_group_of_a_spark_query_is_moved_by_its_checkpoint_alone(desk):
    await desk.add()
    offsets = desk.place.names.offsets
    await desk.redis.hset(offsets, mapping={"format": 1, "spark/totals": "0-0"})
    why = "spark/totals.* checkpoint.*forget-group.*startingOffsets"
    with pytest.raises(ConfigError, match=why):
        await admin.reset(desk.app, "spark/totals", "latest")
    for skip in (False, True):
        with pytest.raises(ConfigError, match=why):
            await admin.unquarantine(desk.app, processor="spark/totals", skip=skip)
    assert await desk.redis.hget(offsets, "spark/totals") == b"0-0"
    assert await admin.unquarantine(desk.app) == ()  # of all: none of them is ever quarantined
    assert len(await admin.forget_group(desk.app, "spark/totals")) == 1


def test_worker_logs_groups_that_only_redis_knows_except_spark_queries(rink_redis, caplog):
    """A worker logs groups that only Redis knows, except Spark's queries."""

    @at_desk()
    async def run(desk):
        for name in ("old", "spark/totals"):
            await desk.redis.hset(
                desk.orders.names.partition(0).offsets, mapping={"format": 1, name: "0-0"}
            )
        await Worker(desk.app)._register(desk.store)

    run(rink_redis)
    (told,) = [one for one in caplog.messages if "trimming waits" in one]
    assert told == (
        "stream 'orders': trimming waits for processors that this program does not have: old; "
        "if one was retired, `rink streams forget-group` drops its offsets"
    )


@at_desk()
async def test_a_processor_of_the_app_may_be_named_like_one(desk):
    desk.app.processor(desk.orders, name="spark/mine")(_process)
    assert await admin.reset(desk.app, "spark/mine", "latest") == ()


@at_desk()
async def test_an_id_is_written_in_the_one_way_that_scripts_can_compare(desk):
    await desk.store.register(desk.place)
    ids = await desk.add(2)
    (moved,) = await admin.reset(desk.app, "bill", f"0{ids[0].replace('-', '-00')}")
    assert (moved.after, (await desk.position()).offset) == (ids[0], ids[0])


@at_desk()
async def test_quarantined_or_just_reset_processor_is_forgotten_only_by_force(
    desk,
):
    ids = await desk.add(2)
    await desk.store.register(desk.place)
    await desk.take(5)
    await admin.reset(desk.app, "bill", ids[0])
    with pytest.raises(StateError, match=r"'bill' is at work in orders/1"):
        await admin.forget_group(desk.app, "bill")
    await desk.take(5)
    await desk.store.quarantine(desk.place, 5, "1", "for a test")
    with pytest.raises(StateError, match=r"'bill' is at work in orders/1, or quarantined there"):
        await admin.forget_group(desk.app, "bill")
    (gone,) = await admin.forget_group(desk.app, "bill", force=True)
    assert gone.partition == 1


@at_desk()
async def test_a_reset_where_nobody_ever_started_moves_nothing(desk):
    assert await admin.reset(desk.app, "bill", "latest") == ()


@at_desk()
async def test_who_is_at_work_anywhere_is_not_forgotten_anywhere_but_by_force(desk):
    for number in (0, 1):
        await desk.store.register(desk.app.processors["bill"].place(number))
    await desk.take(5)
    with pytest.raises(
        StateError, match=r"'bill' is at work in orders/1, or quarantined there .*: stop"
    ):
        await admin.forget_group(desk.app, "bill")
    assert len([one for one in await admin.lag(desk.app, processor="bill") if one.offset]) == 2
    gone = await admin.forget_group(desk.app, "bill", force=True)
    assert [(one.partition, one.declared) for one in gone] == [(0, True), (1, True)]
    assert not [one for one in await admin.lag(desk.app, processor="bill") if one.offset]


@at_desk()
async def test_what_was_kept_for_a_forgotten_processor_alone_is_trimmed(desk):
    ids = await desk.add(5)
    for place in (desk.place, desk.ship):
        await desk.store.register(place)
    await desk.take(5)
    await desk.commit(5, "0-0", ids[3])
    (gone,) = await admin.forget_group(desk.app, "ship")
    assert (gone.waited, gone.trimmed) == (5, 3)
    assert (
        await desk.ids() == ids[3:]
    )  # the one at the offset stays: it shows that nothing is missing


@at_desk()
async def test_the_first_error_ends_a_look_at_many_partitions(desk):
    await desk.store.close()

    async def fail(*_):
        raise RedisError("once")

    desk.store.registered = fail
    with pytest.raises(RedisError, match="once"):
        await admin.lag(desk.app)


def test_on_a_cluster_each_partition_is_where_its_slot_is():
    async def body(cluster):
        def connect():
            return RedisCluster(host=cluster.nodes[0].host, port=cluster.nodes[0].port)

        async with Desk(connect, partition_count=8) as desk:
            await desk.orders.send_many(Order(order_id=n) for n in range(80))
            for name in ("bill", "ship"):
                for number in range(8):
                    await desk.store.register(desk.app.processors[name].place(number))
            found = await admin.lag(desk.app)
            assert sum(one.lag for one in found) == 160
            letter = await desk.bury()
            (again,) = await admin.requeue(desk.app, letter)
            assert again.partition == 1
            moved = await admin.reset(desk.app, "bill", "latest")
            assert len(moved) == 8
            ids = await desk.ids()
            await desk.quarantine(f"event {ids[0]} of 'orders/1', processor 'ship': E", desk.ship)
            (moved,) = await admin.unquarantine(desk.app, skip=True)
            assert moved.skipped == ids[0]
            gone = await admin.forget_group(desk.app, "ship", force=True)
            assert sum(one.waited for one in gone) == 80  # the requeued one lies in its way, too
            assert {one.processor for one in await admin.lag(desk.app) if one.offset} == {"bill"}

    with redis_cluster(3) as cluster:
        asyncio.run(body(cluster))
