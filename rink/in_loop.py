"""From the engine's threads into the event loop of the asyncio face."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_loop(callback: Callable[..., object]) -> Callable[..., None]:
    """Have something called in the running loop, from any thread; nothing once that is closed."""
    loop = asyncio.get_running_loop()

    def call(*args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody is waiting
            loop.call_soon_threadsafe(callback, *args)

    return call


def many_in_loop(callback: Callable[[T], object]) -> Callable[[T], None]:
    """As `in_loop`, for what may come by the thousand: one wake of the loop carries all there is."""
    waiting: collections.deque[T] = collections.deque()
    is_woken = False

    def carry() -> None:
        nonlocal is_woken
        is_woken = False  # before it looks: what comes from now on wakes the loop again
        while waiting:
            callback(waiting.popleft())

    wake = in_loop(carry)

    def call(item: T) -> None:
        nonlocal is_woken
        waiting.append(item)
        if not is_woken:
            is_woken = True
            wake()

    return call
