"""Send first records while Redis is unavailable, silent or late."""

import asyncio
import contextlib

import pytest
from first_send_support import Leg, Store, app_on
from jumping import jumping

from rink import ClosedError
from rink.errors import ConfigError
from rink.streams import RedisUnavailable


@jumping
async def test_it_is_sent_when_redis_is_there(caplog):
    app, legs = app_on(Store(away=5))
    assert await legs.send(Leg()) == "1-0"
    assert await legs.send_many([Leg(), Leg()]) == 2
    assert len([one for one in caplog.messages if "a send to stream 'legs' waits" in one]) == 1
    await app.close()


@jumping
async def test_nothing_is_sent_where_redis_stays_away_for_so_long():
    app, legs = app_on(Store(away=10_000))
    for ask in (legs.send(Leg(), timeout=7), legs.send_many([Leg()], timeout=7)):
        began = asyncio.get_running_loop().time()
        told = "^away: nothing was sent to stream 'legs' in 7 s$"
        with pytest.raises(RedisUnavailable, match=told) as caught:
            await ask
        assert caught.value.server == "here"
        assert asyncio.get_running_loop().time() - began == pytest.approx(7, abs=0.1)
    assert await legs.send_many([]) == 0  # needs no Redis
    await app.close()


@jumping
async def test_redis_that_is_silent_is_waited_for_as_long_as_it_says():
    app, legs = app_on(Store(silent=True))
    with pytest.raises(RedisUnavailable, match="Redis at here did not answer: nothing was sent"):
        await legs.send(Leg(), timeout=0.5)
    await app.close()


@pytest.mark.parametrize("settings", [{"away": 10_000}, {"silent": True}])
@jumping
async def test_app_that_is_closed_meanwhile_stays_closed(settings):
    store = Store(**settings)
    app, legs = app_on(store)
    sending = asyncio.create_task(legs.send(Leg(), timeout=3600))
    await asyncio.wait([sending], timeout=10)
    await app.close()
    with pytest.raises(ClosedError, match="closed"):
        await sending
    assert app.connections.already_open() is None
    assert store.closed == store.opened
    store.away, store.silent = 0, False
    assert await legs.send(Leg()) == "1-0"  # the stream can be used again
    await app.close()


@jumping
async def test_who_sends_after_a_task_group_has_failed_is_told_of_the_close_too():
    """Send after a failed task group.

    Before Python 3.13, the group may leave its own request to cancel in the task.
    """
    app, legs = app_on(Store(silent=True))

    async def refuse():
        raise ValueError("no")

    async def send():
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as shares:
                shares.create_task(refuse())
        await legs.send(Leg(), timeout=3600)

    sending = asyncio.create_task(send())
    await asyncio.wait([sending], timeout=10)
    await app.close()
    with pytest.raises(ClosedError, match="closed"):
        await sending


@jumping
async def test_what_makes_the_client_may_run_out_of_time_itself():
    app, legs = app_on(Store(error=TimeoutError("vault did not answer")))
    with pytest.raises(TimeoutError, match="vault did not answer"):
        await legs.send(Leg(), timeout=2)
    await app.close()


@pytest.mark.parametrize("timeout", [None, "1", float("inf"), -1])
def test_timeout_that_is_none_is_refused(timeout):
    _, legs = app_on(Store())
    with pytest.raises(ConfigError, match="timeout"):
        asyncio.run(legs.send(Leg(), timeout=timeout))
    with pytest.raises(ConfigError, match="timeout"):
        asyncio.run(legs.send_many([], timeout=timeout))
