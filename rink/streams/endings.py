"""Ending: of tasks for certain, and of owners so that Redis knows it was in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from rink.errors import RinkError
from rink.streams.errors import RedisUnavailable
from rink.streams.store import Store
from rink.streams.values import Place

_TELLS_WITHIN_S = 1.0


async def end(tasks: Iterable[asyncio.Task[Any]], *, again_s: float = 0.05) -> None:
    """Cancel tasks and wait for their end; how they ended is somebody else's matter.

    Again and again: what they wait for may take a cancellation for an error of its own, as a read from
    Redis does that ends in the same moment.

    Args:
        tasks: any; those that have ended already cost nothing.
        again_s: seconds until they are cancelled again; for a user's code enough to put things in order.
    """
    ended = set(tasks)
    left = {task for task in ended if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=again_s)
    for task in ended:
        if not task.cancelled():
            task.exception()


async def end_in_order(store: Store, place: Place, token: int) -> bool:
    """Tell that an owner ends, and not by an event; asked for a second, then left. Whether Redis was told."""
    with contextlib.suppress(TimeoutError, RinkError):
        async with asyncio.timeout(_TELLS_WITHIN_S):
            while True:
                try:
                    await store.close_place(place, token)
                    return True
                except RedisUnavailable:
                    await asyncio.sleep(0.05)
    return False
