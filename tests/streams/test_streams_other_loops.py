"""Use streams on event loops other than asyncio's, and on none."""

import pytest
import trio
from first_send_support import Leg, Store, app_on

from rink.errors import UsageError
from rink.streams import Worker, admin

TRIO = "rink.streams needs asyncio, but trio runs here"


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def app(store):
    return app_on(store)[0]


@pytest.fixture
def legs(app):
    return app.streams["legs"]


def by_hand(coroutine):
    """Run a coroutine up to its first wait, with no event loop."""
    try:
        coroutine.send(None)
    finally:
        coroutine.close()


def uses(app, legs):
    """Return a call of each kind that connects to Redis, or closes it."""

    @app.processor(legs)
    async def walk(events): ...

    return [
        app.connections.open,
        app.close,
        app.__aenter__,
        lambda: legs.send(Leg()),
        lambda: legs.send_many([Leg()]),
        lambda: anext(legs.read(0)),
        Worker(app).run,
        lambda: admin.lag(app),
    ]


def test_streams_under_trio_are_refused_before_redis_is_reached(app, legs, store):
    async def main():
        for use in uses(app, legs):
            with pytest.raises(UsageError, match=TRIO) as caught:
                await use()
            assert "use Stream.send_blocking()" in str(caught.value)

    trio.run(main)
    assert store.opened == app.connections.times_closed == 0


def test_streams_without_any_loop_are_refused_in_words(app, legs, store):
    words = "rink.streams needs asyncio, and no event loop of asyncio runs here"
    for use in uses(app, legs):
        with pytest.raises(UsageError, match=words):
            by_hand(use().__await__())
    assert store.opened == app.connections.times_closed == 0


def test_blocking_send_in_a_thread_of_trio_sends(legs):
    assert trio.run(trio.to_thread.run_sync, legs.send_blocking, Leg()) == "1-0"


def test_blocking_send_under_trio_itself_sends(legs):
    async def main():
        return legs.send_blocking(Leg())

    assert trio.run(main) == "1-0"
