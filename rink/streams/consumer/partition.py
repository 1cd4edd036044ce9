"""One role of a processor: a grant, the owner's work, the loss, the drain, and letting go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from rink import aio
from rink._cancel import ENDS_PROCESS, apart, end, is_ending, running_task
from rink.errors import RinkError, StaleToken, StateError
from rink.redis.error_map import timed_out
from rink.redis.errors import RedisError, RedisUnavailable
from rink.redis.retry import RetryPauses
from rink.report_interval import REPORT_INTERVAL_S
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

_DRAINS_WITHIN = 0.75
"""The part of `grace` that a processor has to return in; the rest is for the last commit."""

_QUARANTINE_LOOK_S = 1.0
_TELLS_WITHIN_S = 1.0


@attrs.frozen(kw_only=True)
class Scene:
    """What all partitions of a processor in one worker share."""

    processor: Processor[Any]
    store: Store
    reader: Reader
    metrics: WorkerMetrics
    marks: PoisonSuspects
    complaints: Complaints
    halt: Callable[[str], None]
    given_up: asyncio.Event


class PartitionGrant:
    """One grant of one partition's role."""

    def __init__(self, scene: Scene, place: PartitionPlace, role: aio.Role) -> None:
        self._scene = scene
        self._place = place
        self._role = role
        self._waits_since: float | None = time.perf_counter()  # until it was taken first
        self._quarantined = ""
        self._is_open = False  # or may be, in Redis: a take was sent

    async def run(self) -> None:
        """Own the partition until the role is lost."""
        lost = asyncio.create_task(self._role.lost.wait())
        try:
            while not lost.done() and self._role.is_held:
                await self._once(lost)
        finally:
            lost.cancel()
            if self._is_open:  # however it ended: no event has killed this process
                await end_in_order(self._scene.store, self._place, self._role.token)

    async def _once(self, lost: asyncio.Task[bool]) -> None:
        """Take the partition, and own it until something ends that."""
        place, metrics = self._place, self._scene.metrics
        try:
            taken = await self._take(lost)
            if taken is None:
                return
            if taken.quarantined:
                self._note_quarantined(taken.quarantined)
                await _until(lost, _QUARANTINE_LOOK_S)
                return
            self._quarantined = ""
            owner = self._owner(taken)
            for event_id, ends in taken.ends.items():
                if self._scene.processor.policy.condemns(ends):
                    owner.giving_up.bury(event_id, letter_of_crash(ends + 1))
            metrics.owned(place, True)
            if self._waits_since is not None:
                metrics.handed_over(place, time.perf_counter() - self._waits_since)
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
            await _until(lost, _QUARANTINE_LOOK_S)
        except Exception as error:  # an unforeseen error costs this partition, and not the worker
            then = "the partition is not processed, and is taken again soon"
            self._scene.complaints.tell(error, place.role, then=then, level=logging.ERROR)
            await _until(lost, _QUARANTINE_LOOK_S)
        finally:
            metrics.owned(place, False)

    async def _wait_for_successor(self, error: StaleToken, lost: asyncio.Task[bool]) -> None:
        """Wait for the loss of the role: Redis knows a later owner."""
        log.warning("%s", error)
        await _until(lost, _QUARANTINE_LOOK_S)
        if self._role.is_held:
            log.error(
                "holding %s, but Redis has seen a token above %d; if etcd was restored from a "
                "backup, raise token_base", self._place.role, self._role.token,
            )  # fmt: skip
            await _until(lost, REPORT_INTERVAL_S)

    async def _stop(self, error: Quarantined | RedisRolledBack, lost: asyncio.Task[bool]) -> None:
        """Quarantine the partition, unless it is to go on in spite of lost data."""
        may_go_on = self._scene.processor.on_data_loss == "continue"
        if may_go_on and isinstance(error, RedisRolledBack):
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
            marks=scene.marks,
            metrics=scene.metrics,
            complaints=scene.complaints,
            wants_more=scene.reader.wake,
            may_hold=lambda: scene.reader.share,
        )

    async def _take(self, lost: asyncio.Task[bool]) -> Taken | None:
        """Take the partition, however long Redis is away; None where the role is lost meanwhile.

        A take that was asked for is waited for: it must not come after this owner's close. After a timeout it brings
        half as many bytes of events.
        """
        scene, processor = self._scene, self._scene.processor
        patience, part = RetryPauses(self._place.role), 1
        while not lost.done():
            try:
                # The events of a take may be yielded at once, so a crash would repeat them.
                first = min(processor.max_uncommitted, processor.prefetch // 4)
                self._is_open = True
                most = scene.reader.first_bytes // part
                return await scene.store.take(self._place, self._role.token, first, max_bytes=most)
            except (StaleToken, StateError):
                raise
            except RedisError as error:
                if isinstance(error, RedisUnavailable) and timed_out(error):
                    part *= 2
                await _until(lost, patience.after(error))
        return None

    async def _quarantine(
        self, error: Quarantined | RedisRolledBack, lost: asyncio.Task[bool]
    ) -> None:
        store, place, reason = self._scene.store, self._place, str(error)
        if isinstance(error, RedisRolledBack):
            reason += "; `rink streams unquarantine` takes what is there"
        patience = RetryPauses(place.role)
        while not lost.done():  # it must be quarantined before another worker accepts the data
            try:
                epoch = (await store.position(place)).epoch
                await store.quarantine(place, self._role.token, epoch, reason)
                self._note_quarantined(reason)
                if isinstance(error, Quarantined) and error.halts:
                    self._scene.halt(reason)
                break
            except RedisError as away:
                await _until(lost, patience.after(away))
            except (
                RinkError
            ):  # the partition is another's, or was moved, or cannot be read: the next take says so
                break
        else:
            log.warning(
                "%s was lost before it was quarantined, so it goes on: %s", place.role, reason
            )
        await _until(lost, _QUARANTINE_LOOK_S)

    async def _continue(self, error: RedisRolledBack, lost: asyncio.Task[bool]) -> None:
        """Accept the data of Redis, and log what that costs.

        `rink streams unquarantine` does the same.
        """
        place, patience = self._place, RetryPauses(self._place.role)
        while not lost.done():
            try:
                offset = await self._scene.store.accept(place, self._role.token)
            except RedisError as away:
                await _until(lost, patience.after(away))
            except RinkError:  # of what lies there now; the next take says so
                break
            else:
                again = bool(error.known) and entry_ids.order(offset) < entry_ids.order(error.known)
                log.error(
                    "%s of processor %r goes on behind %s, since on_data_loss='continue': %s. Events that Redis "
                    "has lost are not processed: %s", place.role, self._scene.processor.name, offset,
                    f"what it still has from there to {error.known} comes again" if again
                    else "no event comes again",
                    error,
                )  # fmt: skip
                break
        await _until(lost, _QUARANTINE_LOOK_S)

    def _note_quarantined(self, reason: str) -> None:
        if reason != self._quarantined:
            self._quarantined = reason
            log.error(
                "partition %s of processor %r is not processed until `rink streams "
                "unquarantine`: %s", self._place.role, self._scene.processor.name, reason,
            )  # fmt: skip


class GrantTenure:
    """The time in which an owner works: its reader, its commits, its processor, and the drain.

    Attributes:
        is_closed: Redis knows that this owner ended in order.
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
            scene.processor, place, token, scene.given_up, scene.complaints
        )
        self._ends_at: float | None = None  # when the role is released at the latest

    async def last(self, lost: asyncio.Task[bool]) -> None:
        """Work until the role is lost, or raise what ends it before."""
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
            if work in done:  # what it found may be known here before the loss is
                work.result()
        finally:
            owner.stop()
            reader.remove(owner)
            try:
                await end([work], again_s=1.0)
            finally:  # `end` raises if this was cancelled, and the rest must end all the same
                try:
                    await end([commits])
                finally:
                    owner.release_mark()
                    self._scene.complaints.note_end(self._place.role)
                    await self._hooks.stop(self._seconds_left())

    def _seconds_left(self) -> float:
        """Return what is left of `grace`; all of it where the role was not lost."""
        if self._ends_at is None:
            return self._scene.processor.grace
        return self._ends_at - time.monotonic()

    async def _drain(self, work: asyncio.Task[None], commits: asyncio.Task[None]) -> None:
        """Mark a clean end, let the processor finish, and commit."""
        owner, grace = self._owner, self._scene.processor.grace
        self._ends_at = time.monotonic() + grace
        # This comes first: a planned stop must never count as a crash.
        closing = asyncio.create_task(end_in_order(self._scene.store, self._place, self._token))
        await asyncio.wait([work], timeout=grace * _DRAINS_WITHIN)
        if not work.done():
            log.warning(
                "processor %r has not returned from %s within %.1f s of its loss, and is "
                "cancelled", self._scene.processor.name, self._place.role, grace * _DRAINS_WITHIN,
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
        """Call the processor, again after each error, until nothing more is given to it."""
        owner, this, metrics = self._owner, running_task(), self._scene.metrics
        pauses = self._scene.processor.policy.pauses()
        while not owner.inbox.stopped and not await self._hooks.start():
            self._scene.metrics.retried(self._place)
            await owner.rest(pauses.next())
        pauses.reset()
        judge = Judge(self._scene.processor, owner, self._scene.complaints, metrics)
        while not owner.inbox.stopped:
            finished = owner.inbox.count_finished
            try:
                await apart(partial(self._call, this))
            except (OffsetMoved, StaleToken, RedisRolledBack, Quarantined):
                raise
            except Exception as error:
                has_come_further = owner.inbox.count_finished > finished
                if judge.judge(error, has_come_further=has_come_further) or has_come_further:
                    pauses.reset()
                await owner.take_mark_back()
                await owner.rest(pauses.next())
                metrics.retried(self._place)
            else:
                judge.note_success()
            if not owner.inbox.stopped:
                await asyncio.sleep(0)  # one that returns at once leaves the others their turn

    async def _call(self, work: asyncio.Task[None]) -> None:
        """Call the processor once; if the task `work` is cancelled, the call ends."""
        processor, owner = self._scene.processor, self._owner
        owner.ended_early = owner.has_idled = owner.stopwatch.has_expired = False
        watching = asyncio.create_task(owner.stopwatch.watch(partial(self._expire, running_task())))
        before = owner.inbox.count_finished
        events: Events[Any] = Events(owner)
        finished: int | None = None
        try:
            if processor.is_async:
                await processor.function(events)
                # Not after a thread: a thread that returned, even late, has finished its events.
                _raise_if_ending(work)
            else:
                finished = await call_in_thread(processor.function, events, self._scene.given_up)
            events.raise_failure()
            owner.giving_up.raise_verdict()
            owner.raise_timeout()
        except BaseException as error:
            owner.stopwatch.stop()  # or what middleware does at its end would be cancelled
            if isinstance(error, ENDS_PROCESS):
                self._note_exit(error)
            await events.end(error)
            told = to_judge(error, owner, work)
            if told is error:
                raise
            raise told from error
        finally:
            owner.stopwatch.stop()
            watching.cancel()
        await events.end(None)
        if not processor.commits_by_hand:
            owner.finish(finished)
        if not owner.inbox.stopped:
            self._returned(has_come_further=owner.inbox.count_finished > before)
        await owner.settle_mark()

    def _expire(self, call: asyncio.Task[Any]) -> bool:
        """End a call whose events take longer than `timeout`, if it can be ended."""
        processor, owner = self._scene.processor, self._owner
        if not owner.stopwatch.has_expired:
            self._scene.metrics.timed_out(self._place)
        if processor.is_async:
            owner.stopwatch.has_expired = True
            call.cancel()
            return True
        log.warning(
            "processor %r takes longer for an event of %s than its timeout=%g s, and goes on: a thread "
            "cannot be cancelled", processor.name, self._place.role, owner.stopwatch.seconds,
        )  # fmt: skip
        return False

    def _note_exit(self, error: BaseException) -> None:
        """Note that a processor ends this process: a crash of its event."""
        self.has_exited = True
        log.error(
            "processor %r raised %r in %s: this process ends, and that counts as a crash during its "
            "current events", self._scene.processor.name, error, self._place.role,
        )  # fmt: skip

    def _returned(self, *, has_come_further: bool) -> None:
        """Put back the unfinished events of a processor that has returned."""
        owner, processor = self._owner, self._scene.processor
        is_open, was_alone = owner.inbox.has_yielded, owner.ended_early
        is_full, size = owner.is_full, owner.inbox.size
        owner.inbox.put_back()
        if has_come_further:
            return
        if is_open and was_alone:
            # It commits several at once, so it cannot be given them one by one.
            owner.inbox.end_alone()
        what = "without a commit of what it was given" if is_open else "and was not given an event"
        if is_open and is_full:
            what += f" ({size} bytes, all that it may hold here: max_in_flight_bytes of the app)"
        raise NoProgress(
            f"processor {processor.name!r} returned {what}: it should iterate over its events until "
            "they end, and commit what is left after that"
        )


def _raise_if_ending(work: asyncio.Task[None]) -> None:
    """Raise CancelledError if the task `work` is to end.

    Its processor has returned all the same, so what it was given counts as unfinished.
    """
    if is_ending(work):
        raise asyncio.CancelledError


async def end_in_order(store: Store, place: PartitionPlace, token: int) -> bool:
    """Mark a clean end of the owner in Redis.

    It is tried for a second, then left. Return whether Redis was told.
    """
    with contextlib.suppress(TimeoutError, RinkError):
        async with asyncio.timeout(_TELLS_WITHIN_S):
            while True:
                try:
                    await store.close_place(place, token)
                    return True
                except RedisUnavailable:
                    await asyncio.sleep(0.05)
    return False


async def _ended(task: asyncio.Task[None], *, within: float) -> None:
    """Wait for a task, and raise what it ended with."""
    await asyncio.wait([task], timeout=within)
    if not task.done():
        raise TimeoutError("no answer in time")
    task.result()


async def _until(lost: asyncio.Task[bool], seconds: float) -> None:
    await asyncio.wait([lost], timeout=seconds)
