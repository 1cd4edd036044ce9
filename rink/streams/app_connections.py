"""Hold an app's connections to Redis: one open store per event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from redis.asyncio import Redis

from rink._cancel import end, running_task
from rink.errors import ClosedError, UsageError
from rink.event_loops import asyncio_loop, loop_time
from rink.redis.async_client import Connect
from rink.redis.error_map import reading
from rink.redis.errors import RedisOutOfMemory, RedisUnavailable
from rink.redis.retry import RetryPauses
from rink.streams.producer.appender import Appender
from rink.streams.store.byte_limits import ByteLimits
from rink.streams.store.keys import Names
from rink.streams.store.store import Store
from rink.streams.store.values import PartitionBounds

T = TypeVar("T")


class OpenStore:
    """Hold an open store, and an appender for each partition with sends."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._appenders: dict[tuple[str, int], Appender] = {}

    async def close(self) -> None:
        """End the present sends, and close the connections."""
        for appender in list(self._appenders.values()):
            await appender.close()
        await self.store.close()

    def appender(self, stream: str, number: int, names: Names, bounds: PartitionBounds) -> Appender:
        """Return the appender of a partition."""
        key = (stream, number)
        if key not in self._appenders:
            self._appenders[key] = Appender(
                self.store, names.partition(number), bounds, stream, number
            )
        return self._appenders[key]


class Connections:
    """Open and close one store per event loop.

    redis-py's connections belong to the loop that made them. Loops of several threads may ask at
    once: `_lock` guards `_opening`, `_thread` and `times_closed`.

    Attributes:
        redis: a URL, or a function that makes a client.
        server: the address of Redis, for messages; known after the first `connect`.
        times_closed: how often `close` was called; `reach` compares it.
    """

    def __init__(self, app: str, redis: str | Connect, limits: ByteLimits) -> None:
        self.redis = redis
        self.limits = limits
        self.server = "the app's address"
        self.times_closed = 0
        self._app = app
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[OpenStore]] = {}
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None

    def connect(self) -> Store:
        """Return a store with a client of its own, not opened yet."""
        if callable(self.redis):
            return Store(self.redis(), self.limits)
        with reading("redis", self.redis):
            client = Redis.from_url(self.redis)
        return Store(client, self.limits)

    async def open(self) -> OpenStore:
        """Return the store of the running event loop; the first call opens it.

        Raises:
            ClosedError: `close` was called meanwhile.
        """
        loop, this = _loop(), running_task()
        cancelled_before = this.cancelling()
        with self._lock:
            for closed in [loop for loop in self._opening if loop.is_closed()]:
                del self._opening[closed]
            task = self._opening.get(loop)
            if task is None or (task.done() and not _has_succeeded(task)):
                task = self._opening[loop] = loop.create_task(self._open())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # `close` cancelled it, unless this task was cancelled too. The count of cancellations
            # may be above 0 from before.
            if task.cancelled() and this.cancelling() == cancelled_before:
                raise ClosedError(
                    f"<App {self._app!r}> was closed while it was connecting to Redis"
                ) from None
            raise

    async def reach(
        self, subject: str, settle: Callable[[Store], Awaitable[None]], timeout: float
    ) -> tuple[OpenStore, float]:
        """Open the store and settle a stream; retry while Redis is unavailable.

        Returns:
            The store, and the seconds left of the timeout.
        """
        end, patience = loop_time() + timeout, RetryPauses(f"a send to {subject}")
        nothing = f"nothing was sent to {subject} in {timeout:g} s"
        error: RedisUnavailable | RedisOutOfMemory | None = None
        times = self.times_closed
        try:
            async with asyncio.timeout(timeout) as limit:
                while self.times_closed == times:
                    try:
                        store = await self.open()
                        await settle(store.store)
                        return store, round(end - loop_time(), 2)
                    except (RedisUnavailable, RedisOutOfMemory) as away:
                        await asyncio.sleep(patience.after(away, at_once=error is None))
                        error = away
                raise ClosedError(f"the app was closed before it had connected to Redis: {nothing}")
        except TimeoutError:
            if not limit.expired():  # the user's function that makes a client raised it
                raise
        if error is None:
            answer = f"Redis at {self.server} did not answer"
            raise RedisUnavailable(f"{answer}: {nothing}", server=self.server)
        raise type(error)(f"{error}: {nothing}", server=error.server) from error

    def already_open(self) -> OpenStore | None:
        """Return the store of the running event loop if it is open, or None."""
        task = self._opening.get(_loop())
        return task.result() if task is not None and _has_succeeded(task) else None

    async def _open(self) -> OpenStore:
        store = self.connect()
        self.server = store.server
        try:
            await store.open()
        except BaseException:
            await store.close()
            raise
        return OpenStore(store)

    async def close(self) -> None:
        """Close the store of the running event loop.

        Callers that wait for the store get a ClosedError.
        """
        loop = _loop()  # comes first: after an error here nothing counts as closed
        with self._lock:
            self.times_closed += 1
            task = self._opening.pop(loop, None)
        if task is None:
            return
        await end([task])
        if _has_succeeded(task):
            await task.result().close()

    def run_blocking(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop of a thread, and wait for its end."""
        with self._lock:
            # A forked child does not have the thread of its parent.
            if self._thread is None or self._thread.pid != os.getpid():
                self._thread = _LoopThread()
        return self._thread.run(coroutine)

    @contextlib.contextmanager
    def to_another_redis(self, redis: str | Connect) -> Iterator[None]:
        """Use another Redis until the `with` block ends, for tests.

        Raises:
            UsageError: a store is open; `close` it first.
        """
        if self._opening:
            raise UsageError(f"<App {self._app!r}> has open connections to Redis: close them first")
        before, self.redis = self.redis, redis
        try:
            yield
        finally:
            self.redis = before


class _LoopThread:
    """Run an event loop in a daemon thread, for plain scripts."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="rink-streams", daemon=True
        )
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread, and wait for its end.

        Raises:
            UsageError: the caller is on that thread.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise UsageError(
                "a blocking call on the app's own event loop would wait for itself: await send() "
                "or send_many() there"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:  # such as Ctrl-C, after which the coroutine must not go on
            future.cancel()
            raise


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio_loop("rink.streams", "Stream.send_blocking() and send_many_blocking()")


def _has_succeeded(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
