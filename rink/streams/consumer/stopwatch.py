"""Measure how long in-flight events take, for `timeout=`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Stopwatch:
    """Measure the time since events were yielded to a processor.

    It runs from the delivery of events until the processor asks for the next ones. It stops during
    commits.

    Args:
        seconds: the limit for each event; None for no limit.

    Attributes:
        has_expired: the stopwatch has cancelled the processor's call, and the call gets no more
            events.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.has_expired = False
        self._until: float | None = None
        self._now = asyncio.get_running_loop().time

    def start(self, count: int) -> None:
        """Start to measure `count` events; this may be called in a thread."""
        if self.seconds is not None:
            self._until = self._now() + self.seconds * count

    def stop(self) -> None:
        """Stop, since no event is in flight or the processor waits for Redis."""
        self._until = None

    async def watch(self, expire: Callable[[], bool]) -> None:
        """Call `expire` when the in-flight events have taken too long.

        `expire` returns True to be called again a moment later.
        """
        if self.seconds is None:
            return
        while True:
            # An event that is yielded during this pause has at least as much time as the pause.
            until = self._until
            left = self.seconds if until is None else min(until - self._now(), self.seconds)
            await asyncio.sleep(max(left, 0.001))
            if until is not None and until == self._until and self._now() >= until:
                if expire():
                    self._until = self._now() + _CANCEL_INTERVAL_S
                else:
                    self._until = None


_CANCEL_INTERVAL_S = 1.0
"""The interval between cancellations of a call that does not end."""
