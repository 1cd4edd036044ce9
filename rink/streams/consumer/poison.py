"""Run suspects one at a time, so that a crash names its event.

A suspect is an event that may have crashed the previous owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

_CHECK_INTERVAL_S = 0.1
"""The interval at which a waiting partition checks whether it is lost."""

_BEGIN_TIMEOUT_S = 5.0
"""The time that a partition waits for other partitions while none of them begins.

Their processors may be busy with other events.
"""


class Taker(Protocol):
    """Represent a partition that waits for a turn, unless it is lost."""

    @property
    def is_lost(self) -> bool:
        """Return whether the partition is lost."""


class PoisonSuspects:
    """Give turns to the partitions of a worker whose previous owner crashed.

    One marked event is processed at a time, so that a crash counts only against that event. The
    first turns are in the order of the previous owners' last writes to Redis. A process writes
    nothing after its crash, so the partition of the poison event most likely comes last. Then the
    next crash holds up no partition that still waits.
    """

    def __init__(self) -> None:
        self._marked = asyncio.Lock()
        self._expected: dict[Taker, tuple[bool, int]] = {}
        self._changed = asyncio.Event()

    def expect(self, taker: Taker, *, is_suspect: bool, begun_us: int) -> None:
        """Note that a partition will wait for its first turn.

        If one of its events was marked at a crash (`is_suspect`), it goes after partitions without
        such an event. Its previous owner last wrote to Redis at `begun_us`, in microseconds by that
        owner's clock.
        """
        self._expected[taker] = (is_suspect, begun_us)

    def forget(self, taker: Taker) -> None:
        """Note that a partition has had its first turn, or needs none."""
        if self._expected.pop(taker, None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()

    async def begin(self, taker: Taker) -> bool:
        """Wait for a turn, which `end` ends; return False on a loss."""
        now = asyncio.get_running_loop().time
        until = now() + _BEGIN_TIMEOUT_S
        while not taker.is_lost:
            if self._has_others_before(taker) and now() < until:
                if await _briefly(self._changed.wait()) or self._marked.locked():
                    until = now() + _BEGIN_TIMEOUT_S
            elif await _briefly(self._marked.acquire()):
                self.forget(taker)
                if not taker.is_lost:
                    return True
                self.end()
        return False

    def end(self) -> None:
        """End the turn, since the marked event is no longer processed."""
        self._marked.release()

    def _has_others_before(self, taker: Taker) -> bool:
        mine = self._expected.get(taker)
        return mine is not None and any(other < mine for other in self._expected.values())


async def _briefly(waiting: Awaitable[object]) -> bool:
    """Wait for `_CHECK_INTERVAL_S`; return False after that timeout."""
    try:
        async with asyncio.timeout(_CHECK_INTERVAL_S):
            await waiting
    except TimeoutError:
        return False
    return True
