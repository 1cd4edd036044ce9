"""Cancel tasks reliably, and wait for their end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any

ENDS_PROCESS = (SystemExit, KeyboardInterrupt)
"""Exceptions that end a process; asyncio lets them out of the event loop."""


def is_ending(task: asyncio.Task[Any]) -> bool:
    """Return whether a task was cancelled from outside, and so must end.

    Such a task may run user code only through `apart`.
    """
    return task.cancelling() > 0


async def apart(code: Callable[[], Awaitable[None]]) -> None:
    """Run user code in a task of its own.

    Before Python 3.13, a failed TaskGroup may leave its request to cancel in its task. The caller
    must not mistake that request for one by Rink.
    """
    exits: list[BaseException] = []

    async def run() -> None:
        try:
            await code()
        except ENDS_PROCESS as error:
            # If it were raised here, it would leave the event loop before the caller knows of it.
            exits.append(error)

    try:
        await asyncio.create_task(run())
    finally:
        if exits:  # also if this is cancelled in the same turn of the loop
            raise exits[0]


def running_task() -> asyncio.Task[Any]:
    """Return the running task."""
    task = asyncio.current_task()
    assert task is not None, "called in a task"
    return task


async def outlast(futures: Collection[asyncio.Future[Any]]) -> None:
    """Wait until one of the futures is done, even if this is cancelled."""
    while not any(future.done() for future in futures):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def end(tasks: Iterable[asyncio.Task[Any]], *, again_s: float = 0.05) -> None:
    """Cancel tasks and wait for their end, and ignore their errors.

    This cancels them repeatedly, since a call to Redis that has just been sent may lose a
    cancellation. If this is cancelled itself, it still waits for all tasks, because nobody else
    would cancel them again. Then it raises CancelledError.

    Args:
        tasks: the tasks; some may have ended already.
        again_s: seconds between two cancellations; enough for user code to clean up.
    """
    to_end = set(tasks)
    cancelled: asyncio.CancelledError | None = None
    while left := {task for task in to_end if not task.done()}:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=again_s)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in to_end:
        if not task.cancelled():
            task.exception()  # marks it as retrieved
    if cancelled is not None:
        raise cancelled


async def run_unless(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Run a coroutine to its end, unless the event is set before.

    Returns:
        True if the coroutine came to its end, False if it was cancelled.
    """
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end([working, stopped])
    if working.cancelled():
        return False
    working.result()
    return True
