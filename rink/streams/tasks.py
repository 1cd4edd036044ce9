"""Timers of an app: functions that run now and then, everywhere or on the leader alone."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
from cronsim import CronSim, CronSimError

from rink.errors import ClosedError, ConfigError
from rink.settings import check_seconds

log = logging.getLogger("rink.streams")

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
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if self.every is None:
                await asyncio.sleep(self._until_next())
            else:
                await asyncio.sleep(due - loop.time())
                due = max(due + self.every, loop.time())  # a run that took longer delays the next
            try:
                if inspect.iscoroutinefunction(self.function):
                    await self.function()
                else:
                    await asyncio.to_thread(self.function)
            except Exception:
                log.exception(
                    "rink.streams: task %r failed; it runs again when it is due", self.name
                )

    def _until_next(self) -> float:
        assert self.cron is not None
        now = datetime.now(UTC)
        return max((next(CronSim(self.cron, now)) - now).total_seconds(), 0.0)


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
