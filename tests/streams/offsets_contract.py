"""Test how operators move offsets, unquarantine, and forget groups."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from admin_support import at_desk, process

from rink.errors import ConfigError, StateError
from rink.streams import RedisError, Worker, admin
from rink.streams.errors import OffsetMoved


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
        (f"event {ids[1]} of 'orders/1', processor 'bill': E", f"the next event is {ids[0]}"),
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
    assert note == "changed: bill orders/0, bill orders/2"
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
async def test_reset_by_time_goes_on_with_what_was_sent_from_then_on(desk):
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
async def test_reset_beyond_the_end_moves_nothing(desk):
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
async def test_group_of_a_spark_query_is_moved_by_its_checkpoint_alone(desk):
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


def test_worker_logs_groups_that_only_redis_knows_except_spark_queries(servers, caplog):
    """A worker logs groups that only Redis knows, except Spark's queries."""

    @at_desk()
    async def run(desk):
        for name in ("old", "spark/totals"):
            await desk.redis.hset(
                desk.orders.names.partition(0).offsets, mapping={"format": 1, name: "0-0"}
            )
        await Worker(desk.app)._register(desk.store)

    run(servers)
    (told,) = [one for one in caplog.messages if "trimming waits" in one]
    assert told == (
        "stream 'orders': trimming waits for processors that this program does not have: old; "
        "if one was retired, `rink streams forget-group` drops its offsets"
    )


@at_desk()
async def test_processor_of_the_app_may_be_named_like_one(desk):
    desk.app.processor(desk.orders, name="spark/mine")(process)
    assert await admin.reset(desk.app, "spark/mine", "latest") == ()


@at_desk()
async def test_id_is_written_in_the_one_way_that_scripts_can_compare(desk):
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
async def test_reset_where_nobody_ever_started_moves_nothing(desk):
    assert await admin.reset(desk.app, "bill", "latest") == ()


@at_desk()
async def test_who_is_at_work_anywhere_is_not_forgotten_anywhere_but_by_force(desk):
    for number in (0, 1):
        await desk.store.register(desk.app.processors["bill"].place(number))
    await desk.take(5)
    with pytest.raises(
        StateError, match=r"'bill' is at work in orders/1, or quarantined there, .*Stop"
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
async def test_first_error_ends_a_look_at_many_partitions(desk):
    await desk.store.close()

    async def fail(*_):
        raise RedisError("once")

    desk.store.registered = fail
    with pytest.raises(RedisError, match="once"):
        await admin.lag(desk.app)
