"""Run one processor in one worker: its group, partitions and reader."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from rink import aio
from rink._cancel import ENDS_PROCESS, end
from rink.errors import ClosedError
from rink.plural import plural
from rink.streams.consumer.error_log import ErrorLog
from rink.streams.consumer.grant_run import ProcessorContext
from rink.streams.consumer.membership import Orders, join, leave
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.partition import PartitionGrant
from rink.streams.consumer.poison import PoisonSuspects
from rink.streams.consumer.reader import Reader, make_reader
from rink.streams.processor import Processor
from rink.streams.store.byte_limits import SharedMemory
from rink.streams.store.store import Store

log = logging.getLogger("rink.streams")

LEAVE_TIMEOUT_S = 10.0
"""Timeout for a group version without this worker, and again for etcd to end its lease."""

_END_TIMEOUT_S = 2.0
"""Timeout for the partitions to end after the group was left, if a thread does not return."""


class Executor:
    """Run one processor over the partitions that its group gives this worker.

    Args:
        name: the worker's name, which is its member name in each group.
        suspects: the turns of suspects, shared by all executors of the worker.
        held: the memory that all executors share.
        halt: called with the reason when the policy ends the worker.
        handover_wait: seconds that leaving waits for a successor.

    Attributes:
        is_joined: the executor has joined its group.
    """

    def __init__(
        self,
        processor: Processor[Any],
        store: Store,
        session: aio.Session,
        *,
        name: str,
        metrics: WorkerMetrics,
        suspects: PoisonSuspects,
        held: SharedMemory,
        halt: Callable[[str], None],
        handover_wait: float = 0.0,
    ) -> None:
        self.rink = aio.Rink(
            session,
            processor.group,
            name=name,
            scheme=processor.scheme,
            rebalance_delay=processor.rebalance_delay,
            initial_delay=processor.initial_delay,
            leave_delay=processor.leave_delay,
            grace=processor.grace,
            leave_timeout=LEAVE_TIMEOUT_S,
            handover_wait=handover_wait,
        )
        self.is_joined = False
        self._processor = processor
        self._context = ProcessorContext(
            processor=processor,
            store=store,
            reader=make_reader(store, processor.prefetch, held),
            metrics=metrics,
            suspects=suspects,
            error_log=ErrorLog(processor.name),
            halt=halt,
            given_up=asyncio.Event(),
        )

    @property
    def reader(self) -> Reader:
        """Return the reader of the partitions that are owned now."""
        return self._context.reader

    async def run(self, orders: Orders) -> None:
        """Join the group, process, and leave the group when ordered."""
        if not await join(self.rink, orders):
            return
        self.is_joined = True
        numbers = range(self._processor.stream.partition_count)
        holds = [asyncio.create_task(self._hold(number, orders)) for number in numbers]
        reading = asyncio.create_task(self._context.reader.run())
        stopped = asyncio.create_task(orders.leave.wait())
        async with contextlib.AsyncExitStack() as leaving:
            # The callback that is pushed last runs first. So the partitions end before the reader
            # that they use. Each callback runs, even after an error in another callback.
            leaving.callback(self._context.error_log.close)
            leaving.push_async_callback(self._context.reader.close)
            leaving.push_async_callback(end, [reading, stopped])
            leaving.push_async_callback(self._end, holds)
            # Threads are given up only after the group is left.
            leaving.callback(self._context.given_up.set)
            leaving.push_async_callback(leave, self.rink, orders)
            for working in (reading, *holds):
                working.add_done_callback(partial(_hurry_after_failure, orders))
            try:
                await self._until_over(stopped, [reading, *holds])
            except BaseException:  # also a cancellation after a failure of another part
                orders.hurry()
                raise
        if not reading.cancelled() and (error := reading.exception()) is not None:
            raise error  # the reader failed while the worker waited for a successor

    async def _until_over(
        self, stopped: asyncio.Task[Any], working: list[asyncio.Task[None]]
    ) -> None:
        """Wait until the worker must leave, or raise a task's error."""
        done, _ = await asyncio.wait([stopped, *working], return_when=asyncio.FIRST_COMPLETED)
        for ended in done - {stopped}:
            # Rink has not cancelled it, and a task group would ignore a cancelled task.
            if ended.cancelled():
                raise RuntimeError(f"a task of {self._processor.name!r} was cancelled")
            ended.result()

    async def _end(self, holds: list[asyncio.Task[None]]) -> None:
        done, late = await asyncio.wait(holds, timeout=_END_TIMEOUT_S)
        for hold in late:
            hold.cancel()
        if late:
            log.error(
                "%d %s of processor %r did not end in time: a thread still runs",
                len(late),
                plural(len(late), "partition"),
                self._processor.name,
            )
            await asyncio.wait(late, timeout=_END_TIMEOUT_S)
        for hold in done:
            # Skip an exit, which asyncio has raised already, and a cancellation from outside.
            if not hold.cancelled() and not isinstance(hold.exception(), ENDS_PROCESS):
                hold.result()

    async def _hold(self, number: int, orders: Orders) -> None:
        """Own a partition whenever its role is held, until the group is left."""
        place = self._processor.place(number)
        with contextlib.suppress(ClosedError):
            while not orders.now.is_set():
                role = await self.rink.await_role(place.role)
                try:
                    await PartitionGrant(self._context, place, role).run()
                finally:
                    role.release()


def _hurry_after_failure(orders: Orders, ended: asyncio.Task[None]) -> None:
    """Wait for no successor after a failure, since nothing is processed."""
    if not ended.cancelled() and ended.exception() is not None:
        orders.hurry()
