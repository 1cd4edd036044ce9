"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

ENDS_PROCESS = (SystemExit, KeyboardInterrupt)
"""What user code raises to end its process, and what asyncio lets out of the event loop."""


def is_ending(task: asyncio.Task[Any]) -> bool:
    """Whether a task that runs user code apart is cancelled from outside, and is to end, whatever became of that."""
    return task.cancelling() > 0


async def apart(code: Callable[[], Awaitable[None]]) -> None:
    """Run user code in a task of its own.

    Until Python 3.13, a TaskGroup that has failed may leave its own request to cancel behind in the task that
    it ran in. There, nobody takes it for ours.
    """

    async def run() -> BaseException | None:
        try:
            await code()
        except ENDS_PROCESS as error:
            return error  # raised here, it would leave the event loop before our caller knows of it
        return None

    if error := await asyncio.create_task(run()):
        raise error


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

    Again and again: what they wait for may lose a cancellation, as a call to Redis does that has just been
    sent. Whoever cancels this waits for their end all the same: nobody else would cancel them again.

    Args:
        tasks: any; those that have ended already cost nothing.
        again_s: seconds until they are cancelled again; for a user's code enough to put things in order.
    """
    ended = set(tasks)
    cancelled: asyncio.CancelledError | None = None
    while left := {task for task in ended if not task.done()}:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=again_s)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in ended:
        if not task.cancelled():
            task.exception()
    if cancelled is not None:
        raise cancelled
