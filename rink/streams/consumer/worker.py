"""Run an app's processors and tasks in a worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from rink import aio
from rink._cancel import end
from rink.arguments import check_seconds
from rink.errors import ConfigError
from rink.redis.error_map import first_error
from rink.settings import default_name
from rink.streams.app import App
from rink.streams.consumer.app_tasks import run_tasks
from rink.streams.consumer.eviction_check import Evictions
from rink.streams.consumer.executor import LEAVE_TIMEOUT_S, Executor
from rink.streams.consumer.membership import Orders, join, leave
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.monitor import monitor_partitions
from rink.streams.consumer.poison import PoisonSuspects
from rink.streams.errors import WorkerHalted
from rink.streams.hooks import around_worker
from rink.streams.store.byte_limits import SharedMemory
from rink.streams.store.keys import OF_SPARK
from rink.streams.store.store import Store
from rink.streams.stream import Stream, partition_bounds, settle

log = logging.getLogger("rink.streams")


def check_processors(app: App, names: Iterable[str]) -> None:
    """Raise a ConfigError for the first name that is no processor of the app."""
    for name in sorted(set(names) - set(app.processors)):
        raise ConfigError(
            f"app {app.name!r} has no processor {name!r}; it has {sorted(app.processors)}"
        )


class Worker:
    """Run an app's processors until it is stopped.

    Args:
        app: the app.
        processors: the names of processors; None for all processors of the app.
        name: the worker's name in all its groups; None for host name, process id and four hex
            digits.
        handover_wait: seconds that leaving waits for a successor; the worker processes meanwhile.

    Raises:
        ConfigError: the app has no processor of such a name, or neither processors nor tasks, or a
            setting cannot be used.
    """

    def __init__(
        self,
        app: App,
        processors: Sequence[str] | None = None,
        *,
        name: str | None = None,
        handover_wait: float = 0.0,
    ) -> None:
        check_processors(app, processors or ())
        chosen = app.processors if processors is None else processors
        if not chosen and not app.tasks:
            raise ConfigError(f"app {app.name!r} has neither processors nor tasks to run")
        self.app = app
        self.name = name or default_name()
        self.handover_wait = check_seconds("handover_wait", handover_wait)
        self.metrics = WorkerMetrics(app.name)
        self.executors: dict[str, Executor] = {}
        self._processors = [app.processors[name] for name in dict.fromkeys(chosen)]
        self._orders = Orders()
        self._halted = ""
        self._session: aio.Session | None = None
        self._has_joined_for_tasks = False

    @property
    def leaves_within_s(self) -> float:
        """Return the sum of all waits of a leave, in seconds.

        Tasks of the app are not counted. A worker always waits for the end of a task in a thread.
        """
        graces = [processor.grace for processor in self._processors]
        return self.handover_wait + 2 * LEAVE_TIMEOUT_S + max(graces, default=0.0)

    @property
    def is_ready(self) -> bool:
        """Return whether the worker has joined its groups with a live session.

        This is safe from any thread. A ready worker may have no partition.
        """
        session, executors = self._session, list(self.executors.values())
        return (
            session is not None
            and session.is_live
            and len(executors) == len(self._processors)
            and all(executor.is_joined for executor in executors)
            and (self._has_joined_for_tasks or not self.app.tasks)
        )

    def stop(self, *, now: bool = False) -> None:
        """Make the worker leave its groups; call this on its event loop.

        Args:
            now: do not wait for a successor; if the worker is leaving already, end that wait.
        """
        if now:
            self._orders.hurry()
        else:
            self._orders.leave.set()

    async def run(self) -> None:
        """Process until `stop`.

        Raises:
            WorkerHalted: a processor's policy ended this worker.
            RedisUnavailable, RedisAuth, RedisOutOfMemory, StateError: Redis cannot be used.
            EtcdError: etcd cannot be used.
        """
        try:
            await self._serve()
        except BaseExceptionGroup as group:
            raise first_error(group) from group
        if self._halted:
            raise WorkerHalted(self._halted)

    async def _serve(self) -> None:
        store = (await self.app.connections.open()).store
        for stream in list(self.app.streams.values()):  # also streams that only get outputs
            await settle(stream, store)
        await self._register(store)
        app = self.app
        async with around_worker(app.worker_starts, app.worker_stops, self._orders.leave) as begins:
            if begins:
                etcd = app.etcd() if callable(app.etcd) else app.etcd
                async with aio.Session(etcd, ttl=app.ttl, **app.session) as session:
                    await self._run(store, session)

    async def _run(self, store: Store, session: aio.Session) -> None:
        self._session = session
        suspects, held = PoisonSuspects(), SharedMemory(self.app.limits.in_flight)
        for processor in self._processors:
            self.executors[processor.name] = Executor(
                processor, store, session, name=self.name, metrics=self.metrics,
                suspects=suspects, held=held, halt=self._halt, handover_wait=self.handover_wait,
            )  # fmt: skip
        readers = [executor.reader for executor in self.executors.values()]
        monitoring = asyncio.create_task(
            monitor_partitions(store, readers, self.metrics, Evictions(store))
        )
        try:
            async with asyncio.TaskGroup() as group:
                for executor in self.executors.values():
                    group.create_task(executor.run(self._orders))
                if self.app.tasks:
                    group.create_task(self._run_tasks(session))
        finally:
            await end([monitoring])

    async def _run_tasks(self, session: aio.Session) -> None:
        rink = aio.Rink(
            session, self.app.name, name=self.name, rebalance_delay=10.0,
            leave_timeout=LEAVE_TIMEOUT_S, handover_wait=self.handover_wait,
        )  # fmt: skip
        if not await join(rink, self._orders):
            return
        self._has_joined_for_tasks = True
        running = asyncio.create_task(run_tasks(list(self.app.tasks.values()), rink))
        stopped = asyncio.create_task(self._orders.leave.wait())
        try:
            await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            # The leader's tasks run until a successor has the role.
            await leave(rink, self._orders)
        finally:
            try:
                await end([running, stopped], again_s=1.0)
            finally:  # `end` raises if this task is cancelled
                await rink.leave(now=True)

    async def _register(self, store: Store) -> None:
        """Register all processors of the app before any of them begins.

        Then trimming waits for all of them.
        """
        await self._retain(store)
        async with asyncio.TaskGroup() as group:
            for processor in self.app.processors.values():
                for number in range(processor.stream.partition_count):
                    group.create_task(store.register(processor.place(number)))
        for stream in list(self.app.streams.values()):
            if not stream.is_trimmed:
                continue
            known = await store.registered(stream.names.partition(0))
            mine = self.app._processor_names(stream)  # noqa: SLF001 - a part of the same package
            others = sorted(name for name in known.keys() - mine if not name.startswith(OF_SPARK))
            if others:
                log.warning(
                    "stream %r: trimming waits for processors that this program does not have: %s; "
                    "if one was retired, `rink streams forget-group` drops its offsets",
                    stream.name, ", ".join(others),
                )  # fmt: skip

    async def _retain(self, store: Store) -> None:
        """Set the retention of every stream as this program declares it."""
        for stream in self.app.streams.values():
            await self._warn_of_difference(store, stream)
        async with asyncio.TaskGroup() as group:
            for stream in self.app.streams.values():
                if stream.retention is not None:
                    for number in range(stream.partition_count):
                        names = stream.names.partition(number)
                        group.create_task(store.retain(names, partition_bounds(stream)))

    async def _warn_of_difference(self, store: Store, stream: Stream[Any]) -> None:
        """Warn if another program has set another retention."""
        known, declared = await store.retention(stream.names.partition(0)), stream.retention
        if not known or known == declared:
            return
        if declared is None:
            log.warning(
                "stream %r keeps events for %s, as another program set it. This program declares "
                "no retention: declare the same keep and keep_bytes here, or keep=0 to end the "
                "retention",
                stream.name, known,
            )  # fmt: skip
        else:
            log.warning(
                "stream %r now keeps events for %s, as this program declares. Another program had "
                "set %s: declare the same keep and keep_bytes in all programs",
                stream.name, declared, known,
            )  # fmt: skip

    def _halt(self, reason: str) -> None:
        self._halted = reason
        self._orders.hurry()
