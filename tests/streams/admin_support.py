"""Share an app of two processors, as operators see it."""

import functools

from steps_support import Steps

from rink.streams import Record, admin


class Order(Record):
    order_id: int


class Desk(Steps):
    """Hold an app of two processors, and steps on partition 1 of `bill`."""

    def __init__(self, app, **stream):
        given = {"partition_by": "order_id", "partition_count": 4} | stream
        self.app = app
        self.orders = self.app.stream("orders", record=Order, **given)
        for name in ("bill", "ship"):
            self.app.processor(self.orders, name=name, initial_delay=0.1)(process)
        self.ship = self.app.processors["ship"].place(1)

    async def __aenter__(self):
        self.store = (await self.app.connections.open()).store
        self.redis = self.store.redis
        self.place = self.app.processors["bill"].place(1)
        return self

    async def __aexit__(self, *_):
        await self.app.close()

    async def add_dead_letter(self, *places):
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


async def process(events):
    pass


def at_desk(**stream):
    """Give an async test a `Desk`."""

    def decorate(test):
        @functools.wraps(test)
        def run(servers):
            async def body():
                async with Desk(servers.app("shop"), **stream) as desk:
                    await test(desk)

            servers.run(body())

        del run.__wrapped__  # pytest would ask for the arguments of that one
        return run

    return decorate
