"""Hold what an app has open: connections, and a loop for plain scripts."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from rink.errors import UsageError
from rink.streams.producer.appender import Appender
from rink.streams.store.store import Store
from rink.streams.stream import Stream

T = TypeVar("T")


class Opened:
    """Holds an open store, and a lane for each partition on it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lanes: dict[tuple[str, int], Appender] = {}

    async def close(self) -> None:
        """End what is being sent, and the connections."""
        for lane in list(self._lanes.values()):
            await lane.close()
        await self.store.close()

    def lane(self, stream: Stream[Any], number: int) -> Appender:
        """Return what appends to a partition."""
        key = (stream.name, number)
        if key not in self._lanes:
            self._lanes[key] = Appender(
                self.store,
                stream.names.partition(number),
                stream.bounds,
                stream.name,
                number,
            )
        return self._lanes[key]


class LoopThread:
    """Runs an event loop in a daemon thread, for plain scripts."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="rink-streams", daemon=True
        )
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and wait for its end.

        Raises a UsageError if this is the loop's own thread.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise UsageError(
                "a blocking call on the app's own event loop would wait for itself: await send() or send_many() there"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C, say: it is not to go on
            future.cancel()
            raise
