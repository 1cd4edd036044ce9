"""Timers of an app: functions that run now and then, everywhere or on the leader alone."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import attrs
from cronsim import CronSim, CronSimError

from rink.errors import ClosedError, ConfigError
from rink.functions import check_function, is_async
from rink.settings import check_seconds
from rink.streams.endings import apart, is_ending, outlast, running_task

T = TypeVar("T")
log = logging.getLogger("rink.streams")

_A_MINUTE = timedelta(minutes=1)
_LOOKS_EVERY_S = 10.0

LEADER = "leader"
"""The role of the app's group under which tasks with `on_leader` run."""


@attrs.frozen
class Task:
    """What `App.task` declared."""

    name: str
    function: Callable[..., Any]
    every: float | None
    cron: str | None
    on_leader: bool

    @classmethod
    def of(
        cls,
        name: str,
        function: Callable[..., Any],
        every: float | timedelta | None,
        cron: str | None,
        on_leader: bool,
    ) -> Task:
        """Check what was declared; raises a ConfigError."""
        if (every is None) == (cron is None):
            raise ConfigError(f"task {name!r}: give either every=seconds or cron='0 4 * * *'")
        check_function("task", function)
        if isinstance(every, timedelta):
            every = every.total_seconds()
        if every is not None and check_seconds("every", every) <= 0:
            raise ConfigError(f"task {name!r}: every={every} must be more than 0 seconds")
        if cron is not None:
            try:
                CronSim(cron, datetime.now(UTC))
            except CronSimError as error:
                raise ConfigError(f"task {name!r}: cron={cron!r}: {error}") from error
        return cls(name, function, every, cron, on_leader)

    async def run(self) -> None:
        """Run it whenever it is time, until cancelled; one run at a time, and an error ends none but its own."""
        this = running_task()
        wait = self._each_period() if self.cron is None else self._each_date(self.cron)
        async for _ in wait:
            try:
                await apart(self._call)
            except (Exception, asyncio.CancelledError):
                if is_ending(this):
                    raise
                log.exception("task %r failed; it runs again when it is due", self.name)
            if is_ending(this):  # the run took the cancellation for an error of its own
                raise asyncio.CancelledError

    async def _call(self) -> None:
        if is_async(self.function):
            await self.function()
            return
        found = await _to_its_end(asyncio.to_thread(self.function), self.name)
        if inspect.isawaitable(found):  # an async function behind a decorator that is none
            await found

    async def _each_period(self) -> AsyncIterator[None]:
        """Tell of each time that it is due; a run that takes longer delays the next one."""
        assert self.every is not None
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await asyncio.sleep(due - loop.time())
            due += self.every
            if due <= loop.time():
                due = loop.time() + self.every
            yield

    async def _each_date(self, cron: str) -> AsyncIterator[None]:
        """As `_each_period`, by the clock on the wall, which is looked at again and again: it may be set."""
        due = _now()
        while True:
            now = _now()
            # Set back a little, it comes to the same minute twice; set back far, that is another day.
            due = next(CronSim(cron, due if now < due < now + _A_MINUTE else now))
            while (left := (due - _now()).total_seconds()) > 0:  # noqa: ASYNC110 - nobody tells of a clock
                await asyncio.sleep(min(left, _LOOKS_EVERY_S))
            yield


async def _to_its_end(work: Coroutine[Any, Any, T], name: str) -> T:
    """Wait for what runs in a thread, also where this is cancelled: the role is kept until it has returned."""
    running = asyncio.create_task(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not running.done():
            log.warning("task %r is cancelled: waiting for its thread to end", name)
        await outlast([running])
        raise


def _now() -> datetime:
    return datetime.now(UTC)


async def run_tasks(tasks: list[Task], rink: Any) -> None:
    """Run all tasks until cancelled; those of the leader until the group is left.

    Args:
        tasks: of the app.
        rink: the app's group, joined.
    """
    led = [task for task in tasks if task.on_leader]
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            if not task.on_leader:
                group.create_task(task.run())
        with contextlib.suppress(ClosedError):
            while led:
                async with rink.await_role(LEADER), asyncio.TaskGroup() as leading:
                    for task in led:
                        leading.create_task(task.run())
