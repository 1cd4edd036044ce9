"""Call the hooks of a worker and of a partition, in order."""

import asyncio
import contextlib
import contextvars
import logging
import threading

import pytest

from rink.errors import ConfigError, UsageError
from rink.streams import App, Record
from rink.streams.consumer.user_thread import run_in_thread
from rink.streams.hooks import around_worker
from rink.testing.streams import _StoreOf, process


class Order(Record):
    number: int
    customer: str = "a"


def orders(*numbers):
    return [Order(number=number) for number in numbers]


@pytest.fixture
def app():
    made = App("shop")
    made.stream("orders", record=Order, partition_by="customer", partition_count=4)
    return made


async def live(starts, stops, stop=None, body=None):
    """Run a worker's life between its hooks."""
    async with around_worker(starts, stops, stop or asyncio.Event()) as begins:
        if body is not None:
            body()
        return begins


def noting(called, name, error=None):
    """Return an async hook that is noted, and may raise."""

    async def hook():
        called.append(name)
        if error is not None:
            raise error

    hook.__qualname__ = name
    return hook


# ── a worker ─────────────────────────────────────────────────────────────────────────────────────


def test_worker_hooks_are_called_in_order_and_back(app):
    called = []
    for name in "ab":
        app.on_worker_start(noting(called, f"start {name}"))
        app.on_worker_stop(noting(called, f"stop {name}"))
    asyncio.run(live(app.worker_starts, app.worker_stops, body=lambda: called.append("work")))
    assert called == ["start a", "start b", "work", "stop b", "stop a"]


def test_worker_does_not_begin_where_a_start_hook_fails():
    called = []
    starts = [noting(called, "a", ValueError("no pool")), noting(called, "b")]
    with pytest.raises(ValueError, match="no pool") as caught:
        asyncio.run(live(starts, [noting(called, "stop")]))
    assert called == ["a"]
    assert caught.value.__notes__ == ["raised by the hook 'a': the worker does not start"]


def test_worker_that_fails_is_followed_by_its_stop_hooks(caplog):
    called = []

    def work():
        raise ValueError("work")

    stops = [noting(called, "a"), noting(called, "b", OSError("pool"))]
    with caplog.at_level(logging.ERROR), pytest.raises(ValueError, match="work"):
        asyncio.run(live([], stops, body=work))
    assert called == ["b", "a"]
    assert "hook 'b' failed at the end of the worker" in caplog.text


def test_stop_hook_that_fails_is_the_workers_error():
    called = []
    stops = [noting(called, "a"), noting(called, "b", OSError("pool"))]
    with pytest.raises(OSError, match="pool"):
        asyncio.run(live([], stops))
    assert called == ["b", "a"]


def test_worker_that_is_told_to_stop_while_it_starts_does_not_begin():
    called = []

    async def main():
        stop = asyncio.Event()

        async def slow():
            called.append("slow")
            stop.set()
            await asyncio.Event().wait()

        return await live([slow, noting(called, "b")], [noting(called, "stop")], stop)

    assert asyncio.run(main()) is False
    assert called == ["slow"]


def test_start_hook_that_is_cancelled_by_nobody_of_ours_is_an_error():
    async def cancelled():
        raise asyncio.CancelledError

    with pytest.raises(TimeoutError, match="was cancelled, and not by Rink"):
        asyncio.run(live([cancelled], []))


def test_stop_hook_that_is_cancelled_by_nobody_of_ours_keeps_no_other():
    called = []
    stops = [noting(called, "a"), noting(called, "b", asyncio.CancelledError())]
    with pytest.raises(TimeoutError, match="hook 'b' was cancelled, and not by Rink"):
        asyncio.run(live([], stops))
    assert called == ["b", "a"]


def test_plain_worker_hook_runs_in_a_thread():
    found = []
    asyncio.run(live([lambda: found.append(threading.current_thread().name)], []))
    assert found == ["rink-hook"]


@pytest.mark.parametrize("hook", [None, 3, lambda events: None])
def test_worker_hook_that_cannot_be_called_is_refused(app, hook):
    with pytest.raises(ConfigError, match="on_worker_start"):
        app.on_worker_start(hook)
    with pytest.raises(ConfigError, match="on_worker_stop"):
        app.on_worker_stop(hook)


def test_plain_hook_that_returns_what_nobody_runs_is_an_error():
    async def open_pool(): ...

    def decorated():
        return open_pool()

    @contextlib.asynccontextmanager
    async def pool():
        yield

    @contextlib.contextmanager
    def file():
        yield

    for hook in (decorated, pool, file):
        with pytest.raises(UsageError, match="one for the start and one for the end"):
            asyncio.run(live([hook], []))


# ── a partition ──────────────────────────────────────────────────────────────────────────────────


def test_partition_hooks_are_called_around_all_events(app):
    called = []

    @app.processor(
        app.streams["orders"],
        on_partition_start=lambda owned: called.append(("start", owned.partition, owned.token)),
        on_partition_stop=lambda owned: called.append(("stop", owned.partition, owned.processor)),
    )
    async def bill(events):
        async for order in events.records():
            called.append(order.number)

    process(app, "bill", orders(1, 2))
    number = app.streams["orders"].partition_of(Order(number=1))
    assert called == [("start", number, 1), 1, 2, ("stop", number, "bill")]


@pytest.mark.parametrize("in_thread", [False, True])
def test_start_hook_that_fails_is_called_again_and_no_event_is_blamed(app, in_thread, caplog):
    called = []

    def start(owned):
        called.append("start")
        if len(called) < 4:
            raise ConnectionError("no ledger")

    async def start_on_loop(owned):
        start(owned)

    @app.processor(
        app.streams["orders"],
        max_attempts=1,
        on_partition_start=start if in_thread else start_on_loop,
        on_partition_stop=lambda owned: called.append("stop"),
    )
    async def bill(events):
        async for order in events.records():
            called.append(order.number)

    with caplog.at_level(logging.WARNING):
        outcome = process(app, "bill", orders(1, 2))
    assert called == [*["start"] * 4, 1, 2, "stop"]
    assert outcome.dead == []
    assert caplog.text.count("no event is processed before it succeeds") == 1
    assert caplog.text.count("Traceback") == 1


def test_partition_hooks_are_called_once_however_often_the_processor_fails(app):
    called = []

    @app.processor(
        app.streams["orders"],
        on_partition_start=lambda owned: called.append("start"),
        on_partition_stop=lambda owned: called.append("stop"),
    )
    async def bill(events):
        async for _ in events:
            called.append("try")
            raise ValueError("no")

    outcome = process(app, "bill", orders(1))
    assert len(outcome.dead) == 1
    assert (called[0], called[-1], called.count("start"), called.count("stop")) == (
        "start", "stop", 1, 1,
    )  # fmt: skip


def test_stop_hook_is_called_after_the_last_commit(app, monkeypatch):
    called, returned = [], asyncio.Event()

    async def commit(self, place, step, really=_StoreOf.commit):
        await returned.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        called.append("commit")
        await really(self, place, step)

    async def stop(owned):
        called.append("stop")

    @app.processor(app.streams["orders"], on_partition_stop=stop)
    async def bill(events):
        async for _ in events:
            pass
        returned.set()

    monkeypatch.setattr(_StoreOf, "commit", commit)
    process(app, "bill", orders(1, 2))
    assert called[-2:] == ["commit", "stop"]


def test_stop_hook_is_called_where_the_partition_is_quarantined(app):
    called = []

    @app.processor(
        app.streams["orders"],
        max_attempts=1,
        on_error="quarantine",
        on_partition_stop=lambda owned: called.append("stop"),
    )
    async def bill(events):
        async for _ in events:
            raise ValueError("no")

    assert process(app, "bill", orders(1)).quarantined
    assert called == ["stop"]


def test_stop_hook_is_not_called_where_the_start_has_not_succeeded(app):
    called = []

    def start(owned):
        raise ValueError("no")

    @app.processor(
        app.streams["orders"],
        on_partition_start=start,
        on_partition_stop=lambda owned: called.append("stop"),
    )
    async def bill(events):
        async for _ in events:
            called.append("event")

    with pytest.raises(TimeoutError):
        process(app, "bill", orders(1), seconds=0.3)
    assert called == []


def test_stop_hook_that_fails_changes_nothing(app, caplog):
    def stop(owned):
        raise ValueError("ledger")

    @app.processor(app.streams["orders"], on_partition_stop=stop)
    async def bill(events):
        async for _ in events:
            pass

    with caplog.at_level(logging.ERROR):
        assert len(process(app, "bill", orders(1, 2)).processed) == 2
    assert "failed at the end of orders/" in caplog.text
    assert "ValueError: ledger" in caplog.text


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), BaseExceptionGroup("two", [GeneratorExit()])]
)
def test_partition_hooks_may_raise_what_is_no_exception(app, error, caplog):
    """Treat a BaseException of a hook like any other error."""
    called = []

    async def start(owned):
        called.append("start")
        if len(called) == 1:
            raise error

    async def stop(owned):
        called.append("stop")
        raise error

    @app.processor(app.streams["orders"], on_partition_start=start, on_partition_stop=stop)
    async def bill(events):
        async for order in events.records():
            called.append(order.number)

    with caplog.at_level(logging.ERROR):
        outcome = process(app, "bill", orders(1))
    assert called == ["start", "start", 1, "stop"]
    assert len(outcome.processed) == 1
    assert "failed at the end of orders/" in caplog.text


def test_stop_hook_that_does_not_return_is_cancelled_within_grace(app, caplog):
    ended = []

    async def stop(owned):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(owned.partition)

    @app.processor(app.streams["orders"], on_partition_stop=stop, grace=0.2)
    async def bill(events):
        async for _ in events:
            pass

    with caplog.at_level(logging.ERROR):
        process(app, "bill", orders(1, 2), seconds=20)
    assert len(ended) == 1
    assert "did not return in time, and was cancelled at the end of orders/" in caplog.text


def test_stop_hook_in_a_thread_that_is_late_is_told(app, caplog):
    go, loops = threading.Event(), []

    async def start(owned):
        loops.append(asyncio.get_running_loop())

    def stop(owned):
        # The loop ends the 0.1 s of `grace` first: they have begun before this is called.
        loops[0].call_soon_threadsafe(loops[0].call_later, 0.4, go.set)
        assert go.wait(20)

    @app.processor(
        app.streams["orders"], on_partition_start=start, on_partition_stop=stop, grace=0.1
    )
    async def bill(events):
        async for _ in events:
            pass

    with caplog.at_level(logging.ERROR):
        process(app, "bill", orders(1), seconds=20)
    assert "did not return in time" in caplog.text


@pytest.mark.parametrize("hook", [3, lambda: None, lambda owned, more: None])
@pytest.mark.parametrize("kind", ["on_partition_start", "on_partition_stop"])
def test_partition_hook_that_cannot_be_called_is_refused(app, kind, hook):
    async def bill(events): ...

    with pytest.raises(ConfigError, match=kind):
        app.processor(app.streams["orders"], **{kind: hook})(bill)


# ── threads ──────────────────────────────────────────────────────────────────────────────────────

NAME = contextvars.ContextVar("NAME", default="nobody")


def test_function_in_a_thread_has_the_context_and_returns_its_answer():
    async def main():
        NAME.set("ann")
        return await run_in_thread(NAME.get, asyncio.Event())

    assert asyncio.run(main()) == "ann"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no"), ValueError),
        (SystemExit(3), RuntimeError),
        (StopIteration(), RuntimeError),
        (KeyboardInterrupt(), RuntimeError),
    ],
)
def test_error_in_a_thread_is_raised_in_the_loop(error, told):
    def fail():
        raise error

    with pytest.raises(told):
        asyncio.run(run_in_thread(fail, asyncio.Event()))


def test_thread_that_returns_after_a_cancellation_gives_its_answer():
    begun, go = threading.Event(), threading.Event()

    def slow():
        begun.set()
        go.wait(10)
        return "late"

    async def main():
        running = asyncio.create_task(run_in_thread(slow, asyncio.Event()))
        await asyncio.to_thread(begun.wait, 10)
        running.cancel()
        await asyncio.wait([asyncio.create_task(asyncio.to_thread(lambda: None))])
        go.set()
        return await running

    assert asyncio.run(main()) == "late"


def test_thread_is_waited_for_until_it_is_given_up():
    begun, go = threading.Event(), threading.Event()

    def slow():
        begun.set()
        go.wait(10)

    async def main(given_up):
        running = asyncio.create_task(run_in_thread(slow, given_up))
        await asyncio.to_thread(begun.wait, 10)
        for _ in range(3):
            running.cancel()
            await asyncio.wait([asyncio.create_task(asyncio.to_thread(lambda: None))])
            assert not running.done()
        given_up.set()
        await asyncio.wait([running])
        assert running.cancelled()

    asyncio.run(main(asyncio.Event()))
    go.set()
