"""Test what operators see, and what they do with dead letters.

The tests cover refusals, kept data, and data of other apps.
"""

import asyncio
import itertools
import json
import re

import pytest
from admin_support import at_desk
from workers_support import until_true

from rink.errors import ConfigError, StateError
from rink.streams import PartitionFull, Worker, admin

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
async def test_processor_that_only_redis_knows_is_meant_too(desk):
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
    ids = await desk.add(100)
    await desk.store.register(desk.place)
    await desk.take(5)

    async def commit_each():
        for expected, new in itertools.pairwise(["0-0", *ids]):
            await desk.commit(5, expected, new)

    working, seen = asyncio.create_task(commit_each()), []
    while not working.done():
        (one,) = await admin.lag(desk.app, processor="bill", partition=1)
        seen.append((one.lag, one.offset))
        assert (one.lag, one.offset) == (100 - one.processed, ["0-0", *ids][one.processed])
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
async def test_owners_before_any_worker_was_there(desk):
    found = await admin.owners(desk.app, processor="bill")
    assert [(one.group, one.version, one.workers) for one in found] == [("shop/bill", 0, ())]
    first = found[0].partitions[0]
    assert (first.owner, first.standby, first.token, first.is_open) == (None, None, 0, False)


@at_desk()
async def test_worker_that_is_gone_owns_nothing(desk):
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
    letter = await desk.add_dead_letter(desk.place, desk.ship)
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
    letter = await desk.add_dead_letter()
    limited = desk.place.names
    await desk.redis.xadd(limited.stream, {"d": b"{}"})
    await desk.redis.xadd(limited.stream, {"d": b"{}"})
    with pytest.raises(
        PartitionFull, match=r"'orders/1' holds 2 events .* letters requeued before: 0"
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
    await desk.add_dead_letter(desk.ship)
    (one,) = await admin.discard(desk.app, letters[1].decode())
    assert (one.processor, one.partition, one.letters) == ("bill", 1, 1)
    with pytest.raises(StateError, match=f"no dead letter {letters[1].decode()}"):
        await admin.discard(desk.app, letters[1].decode())
    (rest,) = await admin.discard(desk.app, processor="bill")
    assert (rest.partition, rest.letters) == (1, 2)
    assert await admin.discard(desk.app, processor="bill") == ()
    assert [one.processor for one in await desk.dead()] == ["ship"]
