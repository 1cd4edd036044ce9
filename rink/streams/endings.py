"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable
from typing import Any


def is_ending(task: asyncio.Task[Any]) -> bool:
    """Whether a task is cancelled from outside, and is to end, whatever became of that within it.

    Of a task that awaits a user's code in another one: until Python 3.13, a TaskGroup that has failed may
    leave its own request to cancel behind in the task that it ran in.
    """
    return task.cancelling() > 0


def running_task() -> asyncio.Task[Any]:
    """The task that this is called in."""
    task = asyncio.current_task()
    assert task is not None, "called in a task"
    return task


async def outlast(futures: Collection[asyncio.Future[Any]]) -> None:
    """Wait until one of these is done, however often this is cancelled meanwhile."""
    while not any(one.done() for one in futures):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


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
