"""Measure how long in-flight events take, for `timeout=`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Stopwatch:
    """Measures the time since events were given to a processor.

    It runs from when events are given until the next are asked for, and stops during commits.

    Args:
        seconds: the limit for each event; None for no limit.

    Attributes:
        has_expired: a call of the processor was cancelled; it gets no more events.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.has_expired = False
        self._until: float | None = None
        self._now = asyncio.get_running_loop().time

    def start(self, count: int) -> None:
        """Begin to measure so many events; it may be called in a thread."""
        if self.seconds is not None:
            self._until = self._now() + self.seconds * count

    def stop(self) -> None:
        """Stop: no event is in flight, or the processor waits for Redis."""
        self._until = None

    async def watch(self, expire: Callable[[], bool]) -> None:
        """Call a function when the in-flight events have taken too long.

        Args:
            expire: returns whether to call it again a moment later.
        """
        if self.seconds is None:
            return
        while True:
            # An event that is given meanwhile has as long as this pause, so it is not seen too late.
            until = self._until
            left = self.seconds if until is None else min(until - self._now(), self.seconds)
            await asyncio.sleep(max(left, 0.001))
            if until is not None and until == self._until and self._now() >= until:
                if expire():
                    self._until = self._now() + _AGAIN_S
                else:
                    self._until = None


_AGAIN_S = 1.0
"""Until a call that went on all the same is cancelled again."""
