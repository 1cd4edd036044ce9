"""Test steps on a partition on a real Redis, beyond the contract, too."""

import asyncio
import functools

import pytest
from redis.asyncio import Redis
from steps_contract import *  # noqa: F403
from streams_support import output, place_of, stepping
from workers_support import until_true

from rink.redis.retry import repeat_until_answered
from rink.streams import (
    RedisOutOfMemory,
    RedisRolledBack,
    RedisUnavailable,
)
from rink.streams.store.store import Store
from rink.streams.store.values import OwnerMemory


@stepping
async def test_owner_that_comes_back_finds_out_that_redis_knows_less(steps, server):
    [one, two] = await steps.add(2)
    await steps.take(5)
    await steps.commit(5, "0-0", one)
    copy = server.save_copy()
    await steps.commit(5, one, two)
    known = OwnerMemory("0", two, two)
    assert (await steps.take(5, known=known)).offset == two
    server.restore_copy(copy)
    with pytest.raises(RedisRolledBack):
        await repeat_until_answered("the test", lambda: steps.take(5, known=known))
    with pytest.raises(RedisRolledBack):
        await steps.commit(5, two, two)


@stepping
async def test_owner_that_comes_back_finds_out_that_what_it_has_read_is_gone(steps, server):
    await steps.add(1)
    await steps.take(5)
    copy = server.save_copy()
    [two] = await steps.add(1)
    server.restore_copy(copy)
    await repeat_until_answered("the test", lambda: steps.store.trim(steps.place.names))
    await steps.add(1)
    with pytest.raises(RedisRolledBack):
        await steps.take(5, known=OwnerMemory("0", "0-0", two))


@stepping
async def test_out_of_memory_commits_go_on_and_what_grows_is_refused(steps, server):
    place, ids = steps.place, await steps.add(3)
    server.call("CONFIG", "SET", "maxmemory", "1")
    try:
        await steps.take(5)
        await steps.store.mark(place, 5, "0", ids[0])
        await steps.commit(5, "0-0", ids[0])
        letter = output(place.names.dead("bill"))
        await steps.commit(5, ids[0], ids[1], dead=1, letters=(letter,))
        with pytest.raises(RedisOutOfMemory):
            await steps.commit(5, ids[1], ids[2], outputs=(output(),))
        with pytest.raises(RedisOutOfMemory):
            await steps.store.append(place.names, place.bounds, [b"{}"], 2, False)
        assert await steps.store.trim(place.names) == 1
        await steps.store.close_place(place, 5)
    finally:
        server.call("CONFIG", "SET", "maxmemory", "0")


@stepping
async def test_step_that_was_given_up_opens_no_connection_after_the_close(steps, server):
    """A step that was given up opens no connection after the close.

    The request of a cancelled caller goes on by itself, and may be about to connect.
    """

    async def is_gone(name):
        return name not in [one["name"] for one in await steps.redis.client_list()]

    for turns in range(10):
        name = f"given-up-{turns}"
        store = Store(Redis.from_url(server.url, client_name=name))
        step = asyncio.create_task(store.trim(steps.place.names))
        for _ in range(turns):
            await asyncio.sleep(0)
        step.cancel()
        await asyncio.wait([step])
        await store.close()
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left)
        await until_true(functools.partial(is_gone, name), what=f"{name} gone")


@stepping
async def test_step_that_is_under_way_at_the_close_is_told_so(steps, server):
    store = Store(Redis.from_url(server.url))
    await store.open()
    server.freeze()
    try:
        asked = [asyncio.create_task(store.trim(place_of(number=n).names)) for n in range(2)]
        await asyncio.sleep(0.1)
        asked.append(asyncio.create_task(store.trim(place_of(number=2).names)))
        await asyncio.sleep(0)
        await store.close()
    finally:
        server.thaw()
    answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 60)
    assert [type(one) for one in answers] == [RedisUnavailable] * 3
    assert "the client was closed" in str(answers[0])


@stepping
async def test_step_that_is_asked_for_just_before_the_close_is_told_so(steps, server):
    store = Store(Redis.from_url(server.url))
    asked = asyncio.create_task(store.trim(steps.place.names))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(RedisUnavailable, match="the client was closed"):
        await asyncio.wait_for(asked, 60)
