"""Take one partition under its role, and handle the end of each run."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import attrs

from rink import aio
from rink.errors import RinkError, StaleToken, StateError
from rink.event_loops import loop_time
from rink.redis.error_map import timed_out
from rink.redis.errors import RedisError, RedisUnavailable
from rink.redis.retry import RetryPauses
from rink.report_interval import REPORT_INTERVAL_S
from rink.streams.consumer.grant_run import GrantRun, ProcessorContext, end_in_order
from rink.streams.consumer.owner import GrantOwner
from rink.streams.errors import OffsetMoved, RedisRolledBack
from rink.streams.failure_policy import Quarantined, letter_of_crash
from rink.streams.store import entry_ids
from rink.streams.store.values import PartitionPlace, Taken

log = logging.getLogger("rink.streams")

_RETAKE_INTERVAL_S = 1.0
"""The time that a partition waits for its next take if it cannot be processed."""


@attrs.define(eq=False)
class PartitionGrant:
    """Handle one grant of one partition's role."""

    _context: ProcessorContext
    _place: PartitionPlace
    _role: aio.Role
    # The time since which this grant waits for its first take; None after that take.
    _waits_since: float | None = attrs.field(init=False, factory=loop_time)
    _quarantined: str = attrs.field(init=False, default="")
    # A take was sent, so the partition may be open in Redis.
    _is_open: bool = attrs.field(init=False, default=False)

    async def run(self) -> None:
        """Own the partition until the role is lost."""
        lost = asyncio.create_task(self._role.lost.wait())
        try:
            while not lost.done() and self._role.is_held:
                await self._once(lost)
        finally:
            lost.cancel()
            if self._is_open:  # the grant has ended, but no event has crashed this process
                await end_in_order(self._context.store, self._place, self._role.token)

    async def _once(self, lost: asyncio.Task[bool]) -> None:
        """Take the partition, and own it until the grant ends."""
        # Invariants:
        # 1. `_is_open` is True from before the first take is sent (`_take`) until Redis has the
        #    clean shutdown, or until the processor has ended the process. So `run` marks a clean
        #    shutdown, except that `sys.exit()` in a processor counts as a crash of its event. A
        #    quarantine closes the partition in Redis, and a second close changes nothing.
        # 2. Every error except a cancellation ends in a wait or in a new take. It never ends in a
        #    second owner with this token, since the run has ended all its tasks before.
        # 3. The order of the handlers matters. OffsetMoved, RedisRolledBack and StaleToken must be
        #    caught before their base classes. OffsetMoved needs no wait, since the next take gets
        #    the new offset. After StaleToken, only the loss of the role may follow.
        place, metrics = self._place, self._context.metrics
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
                if self._context.processor.policy.gives_up(ends):
                    owner.dead_lettering.give_up(event_id, letter_of_crash(ends + 1))
            metrics.owned(place, True)
            if self._waits_since is not None:
                metrics.handed_over(place, loop_time() - self._waits_since)
                self._waits_since = None
            run = GrantRun(self._context, owner, place, self._role.token)
            try:
                await run.run(lost)
            finally:
                self._is_open = not (run.is_closed or run.has_exited)
        except OffsetMoved as error:
            log.warning("%s", error)
        except (Quarantined, RedisRolledBack) as error:
            may_continue = self._context.processor.on_data_loss == "continue"
            if may_continue and isinstance(error, RedisRolledBack):
                await self._continue(error, lost)
            else:
                await self._quarantine(error, lost)
        except StaleToken as error:
            await self._wait_for_successor(error, lost)
        except (RedisError, StateError) as error:
            log.error("%s is not processed: %s", place.role, error)
            await _until(lost, _RETAKE_INTERVAL_S)
        except Exception as error:  # a bug stops this partition, but not the worker
            then = "the partition is not processed, and is taken again soon"
            self._context.error_log.log(error, place.role, then=then, level=logging.ERROR)
            await _until(lost, _RETAKE_INTERVAL_S)
        finally:
            metrics.owned(place, False)

    async def _wait_for_successor(self, error: StaleToken, lost: asyncio.Task[bool]) -> None:
        """Wait for the loss of the role, since Redis knows a later owner."""
        log.warning("%s", error)
        await _until(lost, _RETAKE_INTERVAL_S)
        if self._role.is_held:
            log.error(
                "holding %s, but Redis has seen a token above %d; if etcd was restored from a "
                "backup, raise token_base", self._place.role, self._role.token,
            )  # fmt: skip
            await _until(lost, REPORT_INTERVAL_S)

    def _owner(self, taken: Taken) -> GrantOwner[Any]:
        context = self._context
        return GrantOwner(
            context.processor,
            context.store,
            self._place,
            self._role.token,
            taken,
            is_held=lambda: self._role.is_held,
            suspects=context.suspects,
            metrics=context.metrics,
            error_log=context.error_log,
            wants_more=context.reader.wake,
            may_hold=lambda: context.reader.share,
        )

    async def _take(self, lost: asyncio.Task[bool]) -> Taken | None:
        """Take the partition, unless the role is lost before Redis is available.

        After a timeout, the next answer may have half as many bytes of events.
        """
        # A loss does not cancel the present take. If the take came after the close of this owner
        # in Redis, it would open the owner again.
        context, processor = self._context, self._context.processor
        pauses, part = RetryPauses(self._place.role), 1
        while not lost.done():
            try:
                # The events of a take may be yielded at once, so a crash would repeat them.
                first = min(processor.max_uncommitted, processor.prefetch // 4)
                self._is_open = True
                max_bytes = context.reader.first_bytes // part
                return await context.store.take(
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
        store, place, reason = self._context.store, self._place, str(error)
        if isinstance(error, RedisRolledBack):
            reason += "; `rink streams unquarantine` accepts the present data"
        pauses = RetryPauses(place.role)
        # Repeat until the loss. Without the quarantine, another worker may accept the data.
        while not lost.done():
            try:
                epoch = (await store.position(place)).epoch
                await store.quarantine(place, self._role.token, epoch, reason)
                self._note_quarantined(reason)
                if isinstance(error, Quarantined) and error.halts:
                    self._context.halt(reason)
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
        """Accept the data of Redis, as `rink streams unquarantine` does."""
        place, pauses = self._place, RetryPauses(self._place.role)
        while not lost.done():
            try:
                offset = await self._context.store.accept(place, self._role.token)
            except RedisError as unavailable:
                await _until(lost, pauses.after(unavailable))
            except RinkError:  # an error of the present data, which the next take raises
                break
            else:
                known = error.known
                repeats = bool(known) and entry_ids.order(offset) < entry_ids.order(known)
                log.error(
                    "%s of processor %r continues after %s, since on_data_loss='continue'. "
                    "Events that Redis has lost are not processed; %s: %s",
                    place.role, self._context.processor.name, offset,
                    f"the remaining events from there to {known} are processed again" if repeats
                    else "no event is processed again",
                    error,
                )  # fmt: skip
                break
        await _until(lost, _RETAKE_INTERVAL_S)

    def _note_quarantined(self, reason: str) -> None:
        if reason != self._quarantined:
            self._quarantined = reason
            log.error(
                "partition %s of processor %r is not processed until `rink streams "
                "unquarantine`: %s", self._place.role, self._context.processor.name, reason,
            )  # fmt: skip


async def _until(lost: asyncio.Task[bool], seconds: float) -> None:
    await asyncio.wait([lost], timeout=seconds)
