"""Calls from the engine's threads into the event loop of asyncio, and waits of that loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from rink.engine.signals import Signal
from rink.loops import asyncio_loop


def in_loop(callback: Callable[..., object]) -> Callable[..., None]:
    """Wrap `callback` for calls from any thread while this loop is open.

    Raises:
        UsageError: no loop of asyncio runs here.
    """
    loop = asyncio_loop()

    def call(*args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody is waiting
            loop.call_soon_threadsafe(callback, *args)

    return call


def soon_in_loop(callback: Callable[[], object]) -> Callable[[], None]:
    """Return a function like `in_loop`'s, for thousands of calls.

    One call by the loop answers all calls so far.
    """
    is_woken = False

    def carry() -> None:
        nonlocal is_woken
        is_woken = False  # first: what is asked for from now on wakes the loop again
        callback()

    wake = in_loop(carry)

    def call() -> None:
        nonlocal is_woken
        if not is_woken:
            is_woken = True
            wake()

    return call


async def wait_in_loop(signal: Signal, timeout: float | None = None) -> bool:
    """Wait for a signal without blocking the loop; whether it has happened."""
    if signal.is_set():
        return True
    happened = asyncio.Event()
    wake = in_loop(happened.set)
    signal.then(wake)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await happened.wait()
        return signal.is_set()
    finally:
        signal.forget(wake)
