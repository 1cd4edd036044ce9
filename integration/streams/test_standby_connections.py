"""Test that a standby opens its connections to Redis in advance."""

import attrs
from workers_support import Shop, until_seen, until_true, with_shop


@with_shop()
async def test_who_stands_by_has_its_connections_to_redis_before_they_are_needed(shop):
    named = f"{shop.servers.url}?client_name=heir"
    heir = Shop(attrs.evolve(shop.servers, url=named))

    async def connections():
        return {one["id"] for one in await shop.redis.client_list() if one["name"] == "heir"}

    for one in (shop, heir):

        @one.app.processor(one.legs, initial_delay=0.1, rebalance_delay=60)
        async def note(events):
            async for leg in events.records():
                shop.seen.append((leg.who, leg.n))

    await shop.send_keys(100)
    async with shop.workers("a") as (_, stop):
        await until_seen(shop, 100)
        async with heir.workers("b"):
            before = await until_true(lambda: three(connections), what="three connections")
            await stop("a")
            await shop.send_keys(100)
            await until_seen(shop, 200)
            assert await connections() == before
    await heir.close()


async def three(connections):
    """Return a worker's three connections, or False if there are others.

    One reads, one runs scripts, and one ends a read.
    """
    found = await connections()
    return len(found) == 3 and found
