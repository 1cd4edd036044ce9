"""Work on one partition while its role is held, and drain it at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from rink._cancel import ENDS_PROCESS, apart, end, is_ending, running_task
from rink.errors import RinkError, StaleToken
from rink.event_loops import loop_time
from rink.redis.errors import RedisUnavailable
from rink.streams.consumer.delivery import Delivery
from rink.streams.consumer.error_log import ErrorLog
from rink.streams.consumer.failure_handler import FailureHandler, NoProgress, to_handle
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.owner import GrantOwner
from rink.streams.consumer.poison import PoisonSuspects
from rink.streams.consumer.reader import Reader
from rink.streams.consumer.thread_bridge import call_in_thread
from rink.streams.errors import OffsetMoved, RedisRolledBack
from rink.streams.failure_policy import Quarantined
from rink.streams.hooks import OwnedPartition, PartitionHooks
from rink.streams.processor import Processor
from rink.streams.processor_events import Events
from rink.streams.store.store import Store
from rink.streams.store.values import PartitionPlace

log = logging.getLogger("rink.streams")

_DRAIN_PART = 0.75
"""The part of `grace` in which a processor must return; the rest is for the last commit."""

_CLOSE_TIMEOUT_S = 1.0
"""The timeout for marking a clean shutdown in Redis."""


@attrs.frozen(kw_only=True)
class ProcessorContext:
    """Hold the parts that all partitions of a processor in one worker share.

    Attributes:
        suspects: decides which partition may process a suspect now.
        halt: a function that ends the worker, and takes the reason.
        given_up: set when the worker no longer waits for threads.
    """

    processor: Processor[Any]
    store: Store
    reader: Reader
    metrics: WorkerMetrics
    suspects: PoisonSuspects
    error_log: ErrorLog
    halt: Callable[[str], None]
    given_up: asyncio.Event


class GrantRun:
    """Run an owner from its take to the drain.

    Attributes:
        is_closed: the clean shutdown of this owner is marked in Redis.
        has_exited: the processor called sys.exit(), or raised KeyboardInterrupt.
    """

    def __init__(
        self, context: ProcessorContext, owner: GrantOwner[Any], place: PartitionPlace, token: int
    ) -> None:
        self._context = context
        self._owner = owner
        self._place = place
        self._token = token
        self.is_closed = self.has_exited = False
        processor = context.processor
        owned = OwnedPartition(
            processor=processor.name, stream=place.stream, partition=place.number, token=token
        )
        self._hooks = PartitionHooks(
            processor.on_partition_start, processor.on_partition_stop, owned, place.role,
            context.given_up, context.error_log,
        )  # fmt: skip
        self._ends_at: float | None = None  # the latest time of the role's release

    async def run(self, lost: asyncio.Task[bool]) -> None:
        """Work until the role is lost, or raise the error that ends it."""
        # The order at the end:
        # 1. `owner.stop` comes first, in every case. From then on no event is yielded.
        # 2. An error of the commits or of the reader is raised before a drain. It means that Redis
        #    refuses this owner, or has other data than the owner knows. A drain would only process
        #    events that cannot be committed.
        # 3. The error of the processor's task is raised after the drain, which commits the events
        #    that were done before. It is raised even if the loss is known, since the error may be
        #    known earlier than the loss that it explains.
        # 4. The cleanup ends the processor before the committer, since the processor may wait for a
        #    commit. The hooks stop last, when no event is in flight any more. Each step of the
        #    cleanup is in a `finally`, since `end` raises if this task is cancelled meanwhile. So
        #    no task of this run outlives it, and only one owner per token works.
        owner, reader = self._owner, self._context.reader
        broken = reader.add(owner)
        commits = asyncio.create_task(owner.commits.keep())
        work = asyncio.create_task(self._work())
        ends: set[asyncio.Future[Any]] = {lost, commits, work, broken}
        try:
            owner.expect_turn()
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            owner.stop()
            for ended in (commits, broken):
                if ended in done:
                    ended.result()
            await self._drain(work, commits)
            if work in done:
                work.result()
        finally:
            owner.stop()
            reader.remove(owner)
            try:
                await end([work], again_s=1.0)
            finally:
                try:
                    await end([commits])
                finally:
                    owner.release_mark()
                    self._context.error_log.note_end(self._place.role)
                    await self._hooks.stop(self._seconds_left())

    def _seconds_left(self) -> float:
        """Return the seconds left of `grace`; all if the role was not lost."""
        if self._ends_at is None:
            return self._context.processor.grace
        return self._ends_at - loop_time()

    async def _drain(self, work: asyncio.Task[None], commits: asyncio.Task[None]) -> None:
        """Mark a clean shutdown, let the processor finish, and commit."""
        owner, grace = self._owner, self._context.processor.grace
        self._ends_at = loop_time() + grace
        # The mark comes first, since a planned stop must never count as a crash.
        closing = asyncio.create_task(end_in_order(self._context.store, self._place, self._token))
        await asyncio.wait([work], timeout=grace * _DRAIN_PART)
        if not work.done():
            log.warning(
                "processor %r has not returned from %s within %.1f s of its loss, and is "
                "cancelled", self._context.processor.name, self._place.role, grace * _DRAIN_PART,
            )  # fmt: skip
            await end([work], again_s=1.0)
        owner.commits.close()
        try:
            await _ended(commits, within=max(self._seconds_left(), 0.05))
        except (TimeoutError, RinkError) as error:
            log.warning(
                "the last commit of %s by processor %r did not succeed, so events may come "
                "again: %s", self._place.role, self._context.processor.name, error,
            )  # fmt: skip
        self.is_closed = await closing

    async def _work(self) -> None:
        """Call the processor again after each error, until the owner stops."""
        owner, this, metrics = self._owner, running_task(), self._context.metrics
        pauses = self._context.processor.policy.pauses()
        while not owner.buffer.stopped and not await self._hooks.start():
            self._context.metrics.retried(self._place)
            await owner.rest(pauses.next())
        pauses.reset()
        handler = FailureHandler(self._context.processor, owner, self._context.error_log, metrics)
        while not owner.buffer.stopped:
            finished = owner.buffer.count_finished
            try:
                await apart(partial(self._call, this))
            except (OffsetMoved, StaleToken, RedisRolledBack, Quarantined):
                raise
            except Exception as error:
                has_come_further = owner.buffer.count_finished > finished
                if handler.handle(error, has_come_further=has_come_further) or has_come_further:
                    pauses.reset()
                await owner.take_mark_back()
                await owner.rest(pauses.next())
                metrics.retried(self._place)
            else:
                handler.note_success()
            if not owner.buffer.stopped:
                # A processor that returns at once must not keep other tasks from running.
                await asyncio.sleep(0)

    async def _call(self, work: asyncio.Task[None]) -> None:
        """Call the processor once, until the task `work` is cancelled."""
        processor, owner = self._context.processor, self._owner
        owner.ended_early = owner.has_idled = owner.stopwatch.has_expired = False
        watching = asyncio.create_task(owner.stopwatch.watch(partial(self._expire, running_task())))
        before = owner.buffer.count_finished
        delivery: Delivery[Any] = Delivery(owner)
        finished: int | None = None
        try:
            if processor.is_async:
                await processor.function(Events(delivery))
                # Not for a thread: even if it returns late, its events are done.
                _raise_if_ending(work)
            else:
                given_up = self._context.given_up
                finished = await call_in_thread(processor.function, delivery, given_up)
            delivery.raise_failure()
            owner.dead_lettering.raise_verdict()
            owner.raise_timeout()
        except BaseException as error:
            owner.stopwatch.stop()  # the stopwatch must not cancel the end of middleware
            if isinstance(error, ENDS_PROCESS):
                self._note_exit(error)
            await delivery.end(error)
            to_raise = to_handle(error, owner, work)
            if to_raise is error:
                raise
            raise to_raise from error
        finally:
            owner.stopwatch.stop()
            watching.cancel()
        await delivery.end(None)
        if not processor.commits_by_hand:
            owner.finish(finished)
        if not owner.buffer.stopped:
            self._returned(has_come_further=owner.buffer.count_finished > before)
        await owner.settle_mark()

    def _expire(self, call: asyncio.Task[Any]) -> bool:
        """End a call whose events take longer than `timeout`.

        Returns:
            False if the call runs in a thread, and cannot be ended.
        """
        processor, owner = self._context.processor, self._owner
        if not owner.stopwatch.has_expired:
            self._context.metrics.timed_out(self._place)
        if processor.is_async:
            owner.stopwatch.has_expired = True
            call.cancel()
            return True
        log.warning(
            "processor %r takes longer for an event of %s than its timeout=%g s, and goes on: "
            "a thread cannot be cancelled",
            processor.name, self._place.role, owner.stopwatch.seconds,
        )  # fmt: skip
        return False

    def _note_exit(self, error: BaseException) -> None:
        """Note that a processor ends this process: a crash of its events."""
        self.has_exited = True
        log.error(
            "processor %r raised %r in %s: this process ends, and that counts as a crash during "
            "its current events", self._context.processor.name, error, self._place.role,
        )  # fmt: skip

    def _returned(self, *, has_come_further: bool) -> None:
        """Put back the in-flight events of a processor that has returned."""
        owner, processor = self._owner, self._context.processor
        is_open, was_alone = owner.buffer.has_yielded, owner.ended_early
        is_full, size = owner.is_full, owner.buffer.size
        owner.buffer.put_back()
        if has_come_further:
            return
        if is_open and was_alone:
            # This processor commits several events at once, so it cannot get them one by one.
            owner.buffer.end_alone()
        how = "without a commit of its events" if is_open else "before it got an event"
        if is_open and is_full:
            how += (
                f" (its events take {size} bytes, all that it may hold in memory: see "
                "max_in_flight_bytes)"
            )
        raise NoProgress(
            f"processor {processor.name!r} returned {how}: it should iterate over its events until "
            "they end, and then commit the rest"
        )


def _raise_if_ending(work: asyncio.Task[None]) -> None:
    """Raise CancelledError if the task `work` must end.

    Then the events are not done, even though the processor has returned.
    """
    if is_ending(work):
        raise asyncio.CancelledError


async def end_in_order(store: Store, place: PartitionPlace, token: int) -> bool:
    """Mark a clean shutdown of an owner in Redis (best effort, 1 s).

    Returns:
        True if Redis has the mark.
    """
    with contextlib.suppress(TimeoutError, RinkError):
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            while True:
                try:
                    await store.close_place(place, token)
                    return True
                except RedisUnavailable:
                    await asyncio.sleep(0.05)
    return False


async def _ended(task: asyncio.Task[None], *, within: float) -> None:
    """Wait for a task, and raise its error."""
    await asyncio.wait([task], timeout=within)
    if not task.done():
        raise TimeoutError("no answer in time")
    task.result()
