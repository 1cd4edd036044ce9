"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


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
