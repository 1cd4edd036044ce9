"""Run the tasks of an app: at the start, or on a schedule.

They run in every worker, or only on the leader.
"""

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

from rink._cancel import apart, is_ending, outlast, running_task
from rink.arguments import check_seconds
from rink.backoff import Backoff
from rink.callables import check_function, is_async
from rink.errors import ClosedError, ConfigError
from rink.event_loops import wall_now

T = TypeVar("T")
log = logging.getLogger("rink.streams")

_A_MINUTE = timedelta(minutes=1)
_ANY_DATE = datetime(2000, 1, 1, tzinfo=UTC)
_CLOCK_INTERVAL_S = 10.0
"""The interval at which a task on a cron date reads the clock, which may be set."""
_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 60.0
"""Bounds of the pauses before a task at the start is tried again."""

LEADER = "leader"
"""The role of the app's group under which tasks with `on_leader` run."""


@attrs.frozen
class Task:
    """Hold a task that `App.task` declared."""

    name: str
    function: Callable[..., Any]
    every: float | None
    cron: str | None
    at_start: bool
    on_leader: bool

    @classmethod
    def of(
        cls,
        name: str,
        function: Callable[..., Any],
        every: float | timedelta | None,
        cron: str | None,
        at_start: bool,
        on_leader: bool,
    ) -> Task:
        """Check a declaration, and return its task.

        Raises:
            ConfigError: the declaration cannot be used.
        """
        if (every is not None) + (cron is not None) + bool(at_start) != 1:
            raise ConfigError(
                f"task {name!r}: give one of every=seconds, cron='0 4 * * *' and at_start=True"
            )
        check_function("task", function)
        if isinstance(every, timedelta):
            every = every.total_seconds()
        if every is not None and check_seconds("every", every) <= 0:
            raise ConfigError(f"task {name!r}: every={every} must be more than 0 seconds")
        if cron is not None:
            try:
                CronSim(cron, _ANY_DATE)
            except CronSimError as error:
                raise ConfigError(f"task {name!r}: cron={cron!r}: {error}") from error
        return cls(name, function, every, cron, bool(at_start), on_leader)

    async def run(self) -> None:
        """Run the task whenever it is due, until cancelled.

        Runs never overlap, and an error ends only its own run.
        """
        if self.at_start:
            await self._run_at_start()
        wait = self._each_period() if self.cron is None else self._each_date(self.cron)
        async for _ in wait:
            await self._run_once("when it is due")

    async def _run_at_start(self) -> None:
        """Run the task until it succeeds; then wait, to keep the leader's role."""
        pauses = Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S)
        while not await self._run_once("soon"):  # noqa: ASYNC110 - each turn runs the task
            await asyncio.sleep(pauses.next())
        await asyncio.Event().wait()

    async def _run_once(self, again: str) -> bool:
        """Run the task; return whether it succeeded."""
        this, succeeds = running_task(), True
        try:
            await apart(self._call)
        except (Exception, asyncio.CancelledError):
            if is_ending(this):
                raise
            log.exception("task %r failed; it runs again %s", self.name, again)
            succeeds = False
        if is_ending(this):  # the run has replaced the cancellation by an error
            raise asyncio.CancelledError
        return succeeds

    async def _call(self) -> None:
        if is_async(self.function):
            await self.function()
            return
        result = await _outlast_thread(asyncio.to_thread(self.function), self.name)
        if inspect.isawaitable(result):  # a plain decorator wraps an async function
            await result

    async def _each_period(self) -> AsyncIterator[None]:
        """Yield each time that the task is due by its period.

        A run that takes longer than a period delays the next run.
        """
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
        """Yield each time that the task is due by the wall clock.

        The clock is read at intervals, since it may be set.
        """
        due = wall_now()
        while True:
            now = wall_now()
            # If the clock was set back by less than a minute, the same minute comes twice, and its
            # run must not be repeated. If it was set back further, the dates start again.
            due = next(CronSim(cron, due if now < due < now + _A_MINUTE else now))
            # Poll, since no event is set when somebody sets the wall clock.
            while (left := (due - wall_now()).total_seconds()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(min(left, _CLOCK_INTERVAL_S))
            yield


async def _outlast_thread(work: Coroutine[Any, Any, T], name: str) -> T:
    # This wait keeps the leader's role until the thread has returned.
    running = asyncio.create_task(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not running.done():
            log.warning("task %r is cancelled: waiting for its thread to end", name)
        await outlast([running])
        raise


async def run_tasks(tasks: list[Task], rink: Any) -> None:
    """Run all tasks until cancelled; `rink` has joined the app's group.

    The leader's tasks end when the group is left.
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
