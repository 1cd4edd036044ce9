"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

ENDS_PROCESS = (SystemExit, KeyboardInterrupt)
"""The exceptions that end a process: asyncio lets them out of the event loop."""


def is_ending(task: asyncio.Task[Any]) -> bool:
    """Return whether a task is cancelled from outside, and so is to end.

    It must run user code by `apart` only.
    """
    return task.cancelling() > 0


async def apart(code: Callable[[], Awaitable[None]]) -> None:
    """Run user code in a task of its own.

    Before Python 3.13, a failed TaskGroup may leave its request to cancel in its task. The caller
    must not take that for a request of Rink's.
    """
    exits: list[BaseException] = []

    async def run() -> None:
        try:
            await code()
        except ENDS_PROCESS as error:
            # Raised here, it would leave the event loop before our caller knows of it.
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
    """Wait until one of these is done, however often this is cancelled meanwhile."""
    while not any(one.done() for one in futures):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def end(tasks: Iterable[asyncio.Task[Any]], *, again_s: float = 0.05) -> None:
    """Cancel tasks and wait for their end; how they ended is somebody else's matter.

    It cancels them again and again: a call to Redis that has just been sent may lose a cancellation.
    If this is cancelled itself, it still waits for all of them, since nobody else would cancel them
    again. Then it raises CancelledError.

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
