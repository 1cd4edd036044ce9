"""Run asyncio in virtual time."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from datetime import datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple

from rink.testing.virtual_clock import EPOCH, ExecutorJob, LoopCalls, VirtualClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Selector(selectors.DefaultSelector):
    """Select with waits that move the virtual clock.

    Invariant: a call from another thread is queued in the loop before it is put into the mailbox,
    and the mailbox is read at the end of each wait. So no such call waits for time to pass.
    """

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock
        self.calls = LoopCalls(clock)

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        self.calls.wait(timeout)
        return super().select(0)

    def close(self) -> None:
        self.calls.close()
        super().close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Run an asyncio event loop in the time of a virtual clock.

    Time stands still while a task can run, or a thread of the loop's executor works. Otherwise it
    jumps to the next moment at which the loop or a thread of the library wants to wake. A thread
    whose future was cancelled no longer counts. The loop does not wait for sockets and signals: it
    checks them between its timers.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual = _Selector(clock)
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._virtual.clock.now()

    def wall_now(self) -> datetime:
        """Return the virtual date and time in UTC."""
        return EPOCH + timedelta(seconds=self.time())

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Queue a call from any thread, and end the current wait."""
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._virtual.calls.put()
        return handle

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function in a thread, while time stands still."""
        calls, clock, job = self._virtual.calls, self._virtual.clock, ExecutorJob()

        def run() -> T:
            job.thread = threading.get_ident()
            return func(*args)

        def end(_: object = None) -> None:
            with clock.changed:
                clock.jobs.discard(job)
            calls.note_job(-1)

        calls.note_job(1)
        try:
            if executor is None or isinstance(executor, ThreadPoolExecutor):
                with clock.changed:
                    clock.jobs.add(job)
                future = super().run_in_executor(executor, run)
            else:
                future = super().run_in_executor(executor, func, *args)
        except BaseException:
            end()
            raise
        future.add_done_callback(end)
        return future

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        """Join the executor's threads, while time stands still."""
        self._virtual.calls.note_job(1)
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self._virtual.calls.note_job(-1)
