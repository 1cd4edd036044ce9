"""Whose turn it is to have an event processed that may be what ended a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

_LOOKS_EVERY_S = 0.1
"""So often whoever waits for its turn looks whether its partition is still here."""

_LETS_OTHERS_BEGIN_S = 5.0
"""So long a partition waits for others while none of them begins: their processors may be at something else."""


class Taker(Protocol):
    """Who waits for a turn."""

    @property
    def is_lost(self) -> bool:
        """It needs none any more."""


class Marks:
    """The turns of one worker's partitions whose owner before ended without a word.

    One marked event is processed at a time, so that a death is counted for that one and no other. At first they
    go in the order in which Redis had heard of them: a process that an event ends says nothing after it, so the
    culprit's is most likely the last, and the next death catches nobody who still waits.
    """

    def __init__(self) -> None:
        self._marked = asyncio.Lock()
        self._expected: dict[Taker, tuple[bool, int]] = {}
        self._changed = asyncio.Event()

    def expect(self, who: Taker, *, is_suspect: bool, told: int) -> None:
        """It will ask for its first turn.

        Args:
            who: asks.
            is_suspect: an event of it was marked when a process ended; it goes after those of whom none was.
            told: when the owner before told Redis of it last, in microseconds by that owner's clock.
        """
        self._expected[who] = (is_suspect, told)

    def forget(self, who: Taker) -> None:
        """It has had its first turn, or needs none."""
        if self._expected.pop(who, None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()

    async def begin(self, who: Taker) -> bool:
        """Wait for a turn; False where the partition is lost meanwhile. `end` ends it."""
        now = asyncio.get_running_loop().time
        until = now() + _LETS_OTHERS_BEGIN_S
        while not who.is_lost:
            if self._has_others_before(who) and now() < until:
                if await _briefly(self._changed.wait()) or self._marked.locked():
                    until = now() + _LETS_OTHERS_BEGIN_S
            elif await _briefly(self._marked.acquire()):
                self.forget(who)
                if not who.is_lost:
                    return True
                self.end()
        return False

    def end(self) -> None:
        """The marked event is being processed no more."""
        self._marked.release()

    def _has_others_before(self, who: Taker) -> bool:
        mine = self._expected.get(who)
        return mine is not None and any(other < mine for other in self._expected.values())


async def _briefly(waiting: Awaitable[object]) -> bool:
    """Wait for a moment; whether it came about."""
    try:
        async with asyncio.timeout(_LOOKS_EVERY_S):
            await waiting
    except TimeoutError:
        return False
    return True
