"""Run one partition's role: take, work, drain and release."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from rink import aio
from rink._cancel import ENDS_PROCESS, apart, end, is_ending, running_task
from rink.errors import RinkError, StaleToken, StateError
from rink.event_loops import loop_time
from rink.redis.error_map import timed_out
from rink.redis.errors import RedisError, RedisUnavailable
from rink.redis.retry import RetryPauses
from rink.report_interval import REPORT_INTERVAL_S
from rink.streams.consumer.delivery import Delivery
from rink.streams.consumer.error_log import Complaints
from rink.streams.consumer.failure_handler import Judge, NoProgress, to_judge
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.owner import GrantOwner
from rink.streams.consumer.poison import PoisonSuspects
from rink.streams.consumer.reader import Reader
from rink.streams.consumer.thread_bridge import call_in_thread
from rink.streams.errors import OffsetMoved, RedisRolledBack
from rink.streams.failure_policy import Quarantined, letter_of_crash
from rink.streams.hooks import PartitionHooks
from rink.streams.processor import Processor
from rink.streams.processor_events import Events
from rink.streams.store import entry_ids
from rink.streams.store.store import Store
from rink.streams.store.values import PartitionPlace, Taken

log = logging.getLogger("rink.streams")

_DRAIN_PART = 0.75
"""The part of `grace` in which a processor must return; the rest is for the last commit."""

_RETAKE_INTERVAL_S = 1.0
"""How long a partition that cannot be processed waits before the next take."""

_CLOSE_TIMEOUT_S = 1.0
"""How long a clean shutdown is tried to be marked in Redis."""


@attrs.frozen(kw_only=True)
class Scene:
    """The parts that all partitions of a processor in one worker share.

    Attributes:
        processor: processes the events.
        store: reads and writes Redis.
        reader: reads for all partitions.
        metrics: shows the partitions' state.
        suspects: decides which partition may process a suspect now.
        complaints: logs errors.
        halt: ends the worker, for a reason.
        given_up: set when the worker no longer waits for threads.
    """

    processor: Processor[Any]
    store: Store
    reader: Reader
    metrics: WorkerMetrics
    suspects: PoisonSuspects
    complaints: Complaints
    halt: Callable[[str], None]
    given_up: asyncio.Event


class PartitionGrant:
    """One grant of one partition's role."""

    def __init__(self, scene: Scene, place: PartitionPlace, role: aio.Role) -> None:
        self._scene = scene
        self._place = place
        self._role = role
        self._waits_since: float | None = loop_time()  # None after the first take
        self._quarantined = ""
        self._is_open = False  # a take was sent, so the partition may be open in Redis

    async def run(self) -> None:
        """Own the partition until the role is lost."""
        lost = asyncio.create_task(self._role.lost.wait())
        try:
            while not lost.done() and self._role.is_held:
                await self._once(lost)
        finally:
            lost.cancel()
            if self._is_open:  # whatever ended this grant, no event has crashed this process
                await end_in_order(self._scene.store, self._place, self._role.token)

    async def _once(self, lost: asyncio.Task[bool]) -> None:
        """Take the partition, and own it until the tenure ends."""
        # Invariants:
        # 1. `_is_open` is True from before the first take is sent (`_take`) until Redis has the
        #    clean shutdown, or until the processor has ended the process. So `run` marks a clean
        #    shutdown in every case but one: `sys.exit()` in a processor counts as a crash of its
        #    event. A quarantine closes the partition in Redis, and a second close changes nothing.
        # 2. Every error but a cancellation ends in a wait or in a new take, and never in a second
        #    owner with this token: the tenure has ended all its tasks before the error comes here.
        # 3. The order of the handlers matters. OffsetMoved, RedisRolledBack and StaleToken must be
        #    caught before their base classes. OffsetMoved needs no wait: the next take gets the
        #    new offset. After StaleToken, only the loss of the role may follow.
        place, metrics = self._place, self._scene.metrics
        try:
            taken = await self._take(lost)
            if taken is None:
                return
            if taken.quarantined:
                self._note_quarantined(taken.quarantined)
                await _until(lost, _RETAKE_INTERVAL_S)
                return
            self._quarantined = ""
            owner = self._owner(taken)
            for event_id, ends in taken.ends.items():
                if self._scene.processor.policy.condemns(ends):
                    owner.giving_up.bury(event_id, letter_of_crash(ends + 1))
            metrics.owned(place, True)
            if self._waits_since is not None:
                metrics.handed_over(place, loop_time() - self._waits_since)
                self._waits_since = None
            tenure = GrantTenure(self._scene, owner, place, self._role.token)
            try:
                await tenure.last(lost)
            finally:
                self._is_open = not (tenure.is_closed or tenure.has_exited)
        except OffsetMoved as error:
            log.warning("%s", error)
        except (Quarantined, RedisRolledBack) as error:
            await self._stop(error, lost)
        except StaleToken as error:
            await self._wait_for_successor(error, lost)
        except (RedisError, StateError) as error:
            log.error("%s is not processed: %s", place.role, error)
            await _until(lost, _RETAKE_INTERVAL_S)
        except Exception as error:  # a bug stops this partition, but not the worker
            then = "the partition is not processed, and is taken again soon"
            self._scene.complaints.tell(error, place.role, then=then, level=logging.ERROR)
            await _until(lost, _RETAKE_INTERVAL_S)
        finally:
            metrics.owned(place, False)

    async def _wait_for_successor(self, error: StaleToken, lost: asyncio.Task[bool]) -> None:
        """Wait for the loss of the role: Redis knows a later owner."""
        log.warning("%s", error)
        await _until(lost, _RETAKE_INTERVAL_S)
        if self._role.is_held:
            log.error(
                "holding %s, but Redis has seen a token above %d; if etcd was restored from a "
                "backup, raise token_base", self._place.role, self._role.token,
            )  # fmt: skip
            await _until(lost, REPORT_INTERVAL_S)

    async def _stop(self, error: Quarantined | RedisRolledBack, lost: asyncio.Task[bool]) -> None:
        """Quarantine the partition, or continue after a data loss if allowed."""
        may_continue = self._scene.processor.on_data_loss == "continue"
        if may_continue and isinstance(error, RedisRolledBack):
            await self._continue(error, lost)
        else:
            await self._quarantine(error, lost)

    def _owner(self, taken: Taken) -> GrantOwner[Any]:
        scene = self._scene
        return GrantOwner(
            scene.processor,
            scene.store,
            self._place,
            self._role.token,
            taken,
            is_held=lambda: self._role.is_held,
            suspects=scene.suspects,
            metrics=scene.metrics,
            complaints=scene.complaints,
            wants_more=scene.reader.wake,
            may_hold=lambda: scene.reader.share,
        )

    async def _take(self, lost: asyncio.Task[bool]) -> Taken | None:
        """Take the partition, however long Redis is unavailable.

        After a timeout, the next answer may have half as many bytes of events.

        Returns:
            None if the role was lost meanwhile.
        """
        # A take under way is not cancelled at a loss: in Redis it must not come after the close of
        # this owner, which it would open again.
        scene, processor = self._scene, self._scene.processor
        pauses, part = RetryPauses(self._place.role), 1
        while not lost.done():
            try:
                # The events of a take may be yielded at once, so a crash would repeat them.
                first = min(processor.max_uncommitted, processor.prefetch // 4)
                self._is_open = True
                max_bytes = scene.reader.first_bytes // part
                return await scene.store.take(
                    self._place, self._role.token, first, max_bytes=max_bytes
                )
            except (StaleToken, StateError):
                raise
            except RedisError as error:
                if isinstance(error, RedisUnavailable) and timed_out(error):
                    part *= 2
                await _until(lost, pauses.after(error))
        return None

    async def _quarantine(
        self, error: Quarantined | RedisRolledBack, lost: asyncio.Task[bool]
    ) -> None:
        store, place, reason = self._scene.store, self._place, str(error)
        if isinstance(error, RedisRolledBack):
            reason += "; `rink streams unquarantine` accepts the present data"
        pauses = RetryPauses(place.role)
        # Repeat until the loss: without the quarantine, another worker may accept the data.
        while not lost.done():
            try:
                epoch = (await store.position(place)).epoch
                await store.quarantine(place, self._role.token, epoch, reason)
                self._note_quarantined(reason)
                if isinstance(error, Quarantined) and error.halts:
                    self._scene.halt(reason)
                break
            except RedisError as unavailable:
                await _until(lost, pauses.after(unavailable))
            except RinkError:
                # The partition has a later owner, was moved, or cannot be read. The next take
                # raises that.
                break
        else:
            log.warning(
                "%s was lost before it was quarantined, so its next owner continues: %s",
                place.role, reason,
            )  # fmt: skip
        await _until(lost, _RETAKE_INTERVAL_S)

    async def _continue(self, error: RedisRolledBack, lost: asyncio.Task[bool]) -> None:
        """Accept the data of Redis, and log the loss.

        `rink streams unquarantine` does the same.
        """
        place, pauses = self._place, RetryPauses(self._place.role)
        while not lost.done():
            try:
                offset = await self._scene.store.accept(place, self._role.token)
            except RedisError as unavailable:
                await _until(lost, pauses.after(unavailable))
            except RinkError:  # an error of the present data, which the next take raises
                break
            else:
                known = error.known
                repeats = bool(known) and entry_ids.order(offset) < entry_ids.order(known)
                log.error(
                    "%s of processor %r goes on behind %s, since on_data_loss='continue': %s. "
                    "Events that Redis has lost are not processed: %s",
                    place.role, self._scene.processor.name, offset,
                    f"events that it still has from there to {known} come again" if repeats
                    else "no event comes again",
                    error,
                )  # fmt: skip
                break
        await _until(lost, _RETAKE_INTERVAL_S)

    def _note_quarantined(self, reason: str) -> None:
        if reason != self._quarantined:
            self._quarantined = reason
            log.error(
                "partition %s of processor %r is not processed until `rink streams "
                "unquarantine`: %s", self._place.role, self._scene.processor.name, reason,
            )  # fmt: skip


class GrantTenure:
    """The time in which an owner works: from its take to the drain.

    Attributes:
        is_closed: Redis has the clean shutdown of this owner.
        has_exited: the processor called sys.exit(), or raised KeyboardInterrupt.
    """

    def __init__(
        self, scene: Scene, owner: GrantOwner[Any], place: PartitionPlace, token: int
    ) -> None:
        self._scene = scene
        self._owner = owner
        self._place = place
        self._token = token
        self.is_closed = self.has_exited = False
        self._hooks = PartitionHooks(
            scene.processor.on_partition_start,
            scene.processor.on_partition_stop,
            place,
            token,
            scene.given_up,
            scene.complaints,
        )
        self._ends_at: float | None = None  # the latest time of the role's release

    async def last(self, lost: asyncio.Task[bool]) -> None:
        """Work until the role is lost, or raise the error that ends it."""
        # The order at the end:
        # 1. `owner.stop` comes first, in every case. From then on no event is yielded.
        # 2. An error of the commits or of the reader is raised before a drain. It means that Redis
        #    refuses this owner, or has other data than the owner knows, so a drain would only
        #    process events that cannot be committed.
        # 3. The error of the processor's task is raised after the drain, which commits the events
        #    that finished before. It is raised even if the loss is known, since the error may be
        #    known earlier than the loss that it explains.
        # 4. The cleanup ends the processor before the committer: the processor may wait for a
        #    commit. The hooks stop last, when no event is in flight any more. Each step of the
        #    cleanup is in a `finally`, since `end` raises if this task is cancelled meanwhile. So
        #    no task of this tenure outlives it, and only one owner per token works.
        owner, reader = self._owner, self._scene.reader
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
                    self._scene.complaints.note_end(self._place.role)
                    await self._hooks.stop(self._seconds_left())

    def _seconds_left(self) -> float:
        """Return the rest of `grace`, or all of it if the role was not lost."""
        if self._ends_at is None:
            return self._scene.processor.grace
        return self._ends_at - loop_time()

    async def _drain(self, work: asyncio.Task[None], commits: asyncio.Task[None]) -> None:
        """Mark a clean shutdown, let the processor finish, and commit."""
        owner, grace = self._owner, self._scene.processor.grace
        self._ends_at = loop_time() + grace
        # The mark comes first: a planned stop must never count as a crash.
        closing = asyncio.create_task(end_in_order(self._scene.store, self._place, self._token))
        await asyncio.wait([work], timeout=grace * _DRAIN_PART)
        if not work.done():
            log.warning(
                "processor %r has not returned from %s within %.1f s of its loss, and is "
                "cancelled", self._scene.processor.name, self._place.role, grace * _DRAIN_PART,
            )  # fmt: skip
            await end([work], again_s=1.0)
        owner.commits.close()
        try:
            await _ended(commits, within=max(self._seconds_left(), 0.05))
        except (TimeoutError, RinkError) as error:
            log.warning(
                "the last commit of %s by processor %r did not succeed, so events may come "
                "again: %s", self._place.role, self._scene.processor.name, error,
            )  # fmt: skip
        self.is_closed = await closing

    async def _work(self) -> None:
        """Call the processor again after each error, until the owner stops."""
        owner, this, metrics = self._owner, running_task(), self._scene.metrics
        pauses = self._scene.processor.policy.pauses()
        while not owner.buffer.stopped and not await self._hooks.start():
            self._scene.metrics.retried(self._place)
            await owner.rest(pauses.next())
        pauses.reset()
        judge = Judge(self._scene.processor, owner, self._scene.complaints, metrics)
        while not owner.buffer.stopped:
            finished = owner.buffer.count_finished
            try:
                await apart(partial(self._call, this))
            except (OffsetMoved, StaleToken, RedisRolledBack, Quarantined):
                raise
            except Exception as error:
                has_come_further = owner.buffer.count_finished > finished
                if judge.judge(error, has_come_further=has_come_further) or has_come_further:
                    pauses.reset()
                await owner.take_mark_back()
                await owner.rest(pauses.next())
                metrics.retried(self._place)
            else:
                judge.note_success()
            if not owner.buffer.stopped:
                # A processor that returns at once must not keep other tasks from running.
                await asyncio.sleep(0)

    async def _call(self, work: asyncio.Task[None]) -> None:
        """Call the processor once, at most until the task `work` is cancelled."""
        processor, owner = self._scene.processor, self._owner
        owner.ended_early = owner.has_idled = owner.stopwatch.has_expired = False
        watching = asyncio.create_task(owner.stopwatch.watch(partial(self._expire, running_task())))
        before = owner.buffer.count_finished
        delivery: Delivery[Any] = Delivery(owner)
        finished: int | None = None
        try:
            if processor.is_async:
                await processor.function(Events(delivery))
                # Not after a thread: a thread that returned, even late, has finished its events.
                _raise_if_ending(work)
            else:
                finished = await call_in_thread(processor.function, delivery, self._scene.given_up)
            delivery.raise_failure()
            owner.giving_up.raise_verdict()
            owner.raise_timeout()
        except BaseException as error:
            owner.stopwatch.stop()  # the stopwatch must not cancel the end of middleware
            if isinstance(error, ENDS_PROCESS):
                self._note_exit(error)
            await delivery.end(error)
            judged = to_judge(error, owner, work)
            if judged is error:
                raise
            raise judged from error
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
            False if it cannot be ended, since it runs in a thread.
        """
        processor, owner = self._scene.processor, self._owner
        if not owner.stopwatch.has_expired:
            self._scene.metrics.timed_out(self._place)
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
        """Note that a processor ends this process, as a crash of its event."""
        self.has_exited = True
        log.error(
            "processor %r raised %r in %s: this process ends, and that counts as a crash during "
            "its current events", self._scene.processor.name, error, self._place.role,
        )  # fmt: skip

    def _returned(self, *, has_come_further: bool) -> None:
        """Put back the unfinished events of a processor that has returned."""
        owner, processor = self._owner, self._scene.processor
        is_open, was_alone = owner.buffer.has_yielded, owner.ended_early
        is_full, size = owner.is_full, owner.buffer.size
        owner.buffer.put_back()
        if has_come_further:
            return
        if is_open and was_alone:
            # It commits several events at once, so it cannot get them one by one.
            owner.buffer.end_alone()
        how = "without a commit of its events" if is_open else "and was not given an event"
        if is_open and is_full:
            how += f" ({size} bytes, all that it may hold here: max_in_flight_bytes of the app)"
        raise NoProgress(
            f"processor {processor.name!r} returned {how}: it should iterate over its events until "
            "they end, and then commit the rest"
        )


def _raise_if_ending(work: asyncio.Task[None]) -> None:
    """Raise CancelledError if the task `work` is to end.

    Then the events count as unfinished, even though the processor has returned.
    """
    if is_ending(work):
        raise asyncio.CancelledError


async def end_in_order(store: Store, place: PartitionPlace, token: int) -> bool:
    """Mark a clean shutdown of an owner in Redis (best effort, 1 s).

    Returns:
        Whether Redis has the mark.
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


async def _until(lost: asyncio.Task[bool], seconds: float) -> None:
    await asyncio.wait([lost], timeout=seconds)
