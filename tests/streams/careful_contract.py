"""Test which events come one by one after a crash.

These are the events that the dead owner had delivered, not all that it had read.
"""

import asyncio

import pytest
from held_role import Held
from steps_support import place_of, stepping
from workers_support import until_true

from rink.streams import App, Record
from rink.streams.consumer.error_log import ErrorLog
from rink.streams.consumer.grant_run import ProcessorContext
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.owner import GrantOwner
from rink.streams.consumer.partition import PartitionGrant
from rink.streams.consumer.poison import PoisonSuspects
from rink.streams.consumer.reader import make_reader
from rink.streams.store import byte_limits

WINDOW = 8


class Numbered(Record):
    n: int


def owner_of(steps, token, taken):
    app = App("shop")
    orders = app.stream("orders", record=Numbered, partition_by="n")

    @app.processor(orders, max_uncommitted=WINDOW, commit="manual")
    async def bill(events): ...

    return GrantOwner(
        app.processors["bill"], steps.store, steps.place, token, taken,
        is_held=lambda: True, suspects=PoisonSuspects(), metrics=WorkerMetrics("shop"),
        error_log=ErrorLog("bill"), wants_more=lambda owner: None, may_hold=lambda: 2**20,
    )  # fmt: skip


@pytest.mark.parametrize("batches", [0, 1, 5])
def test_dead_owner_with_much_read_leaves_few_careful_events(batches, rink_redis):
    """An owner that died with many events read leaves few careful ones."""
    stepping(_dies_after(batches))(rink_redis)


def _dies_after(batches):
    async def run(steps, server):
        added = await steps.add(500)
        owner = owner_of(steps, 5, await steps.take(5, first=WINDOW))
        async with steps.store.reader() as client:
            behind = {steps.place.names.stream: added[WINDOW - 1]}
            [(_, rest)] = await steps.store.read(client, behind, count=500)
        owner.feed(rest)
        for _ in range(batches):
            assert len(await owner.next(4, 0)) == 4
            await owner.commit(())
        await owner.next(4, 0)  # and here it dies
        careful = (await steps.take(6)).careful
        begun = batches * 4 + 4
        assert begun <= added.index(careful) + 1 <= begun + 2 * WINDOW

    return run


@stepping
async def test_redis_knows_of_whom_it_heard_last(steps, server):
    places = [place_of(number=number) for number in range(3)]
    ids = {place: await steps.add(3, place) for place in places}
    one, two, three = places
    for place in places:
        await steps.take(5, place, first=1)
    await steps.store.extend(one, 5, "0", ids[one][1])
    await steps.commit(5, "0-0", ids[two][0], two, ceiling=ids[two][1])
    told = {place: (await steps.take(6, place)).begun_us for place in places}
    assert sorted(places, key=told.get) == [three, one, two]
    await steps.store.mark(three, 6, "0", ids[three][0])
    told = {place: (await steps.take(7, place)).begun_us for place in places}
    assert sorted(places, key=told.get) == [one, two, three]


@stepping
async def test_take_that_is_repeated_tells_the_same(steps, server):
    await steps.add(3)
    await steps.take(5, first=2)
    first, again = await steps.take(6), await steps.take(6)
    assert first.careful
    assert (again.careful, again.begun_us) == (first.careful, first.begun_us)


@stepping
async def test_crashing_event_that_quarantines_its_partition_holds_nobody_up(steps, server):
    [crashing] = await steps.add(1)
    for token in (5, 6):
        await steps.take(token, first=1)
    await steps.store.mark(steps.place, 6, "0", crashing)
    app = App("shop")
    orders = app.stream("orders", record=Numbered, partition_by="n")

    @app.processor(orders, on_error="quarantine", max_crashes=2)
    async def bill(events): ...

    suspects, role = PoisonSuspects(), Held(7)
    role.role = steps.place.role
    context = ProcessorContext(
        processor=app.processors["bill"], store=steps.store,
        reader=make_reader(steps.store, 1, byte_limits.SharedMemory(2**20)),
        metrics=WorkerMetrics("shop"), suspects=suspects, error_log=ErrorLog("bill"),
        halt=lambda reason: None, given_up=asyncio.Event(),
    )  # fmt: skip
    owning = asyncio.create_task(PartitionGrant(context, steps.place, role).run())

    async def is_quarantined():
        return (await steps.position()).quarantined

    await until_true(is_quarantined)
    other = owner_of(steps, 8, await steps.take(8))
    suspects.expect(other, is_suspect=True, begun_us=2**60)
    async with asyncio.timeout(10):
        assert await suspects.begin(other)
    role.lose()
    await owning


@stepping
async def test_events_that_cannot_be_read_are_passed_one_after_the_other(steps, server):
    for _ in range(2):
        await steps.redis.xadd(steps.place.names.stream, {"d": "{"})
    [last] = await steps.add(1)
    await steps.take(5, first=3)
    owner = owner_of(steps, 6, await steps.take(6, first=3))
    async with asyncio.timeout(10):
        [(entry, record)] = await owner.next(4, 0)
    assert (entry.id, record) == (last, Numbered(n=0))
