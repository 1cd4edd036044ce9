"""What comes one by one after a crash is what the dead owner was given, and not all that it had read."""

import asyncio

import pytest
from streams_support import stepping

from rink.streams import App, Record
from rink.streams.metrics import Metrics
from rink.streams.owner import Owner

WINDOW = 8


class Numbered(Record):
    n: int


def owner_of(steps, token, taken):
    app = App("shop")
    orders = app.stream("orders", record=Numbered, partition_by="n")

    @app.processor(orders, window=WINDOW, commit="manual")
    async def bill(events): ...

    return Owner(
        app.processors["bill"], steps.store, steps.place, token, taken,
        is_held=lambda: True, one_marked=asyncio.Lock(), metrics=Metrics("shop"),
        wants_more=lambda owner: None,
    )  # fmt: skip


@pytest.mark.parametrize("batches", [0, 1, 5])
def test_an_owner_that_died_with_much_read_leaves_little_to_be_careful_with(batches, rink_redis):
    stepping(_dies_after(batches))(rink_redis)


def _dies_after(batches):
    async def run(steps, server):
        added = await steps.add(500)
        owner = owner_of(steps, 5, await steps.take(5, first=WINDOW))
        async with steps.store.reader() as client:
            behind = {steps.place.names.stream: added[WINDOW - 1]}
            [(_, rest)] = await steps.store.read(client, behind, count=500, block_ms=1)
        owner.feed(rest)
        for _ in range(batches):
            assert len(await owner.next(4, 0)) == 4
            await owner.commit(())
        await owner.next(4, 0)  # and here it dies
        careful = (await steps.take(6)).careful
        begun = batches * 4 + 4
        assert begun <= added.index(careful) + 1 <= begun + 2 * WINDOW

    return run
