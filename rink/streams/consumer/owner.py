"""Yield and commit the events of one grant of a partition.

`GrantOwner` knows nothing of roles: `grant_run.py` runs it, and stops it when the role is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from rink.errors import UsageError
from rink.plural import plural
from rink.streams.consumer.buffer import Buffer, StreamEntry
from rink.streams.consumer.committer import Committer
from rink.streams.consumer.dead_lettering import DeadLettering
from rink.streams.consumer.error_log import ErrorLog
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.poison import PoisonSuspects
from rink.streams.consumer.stopwatch import Stopwatch
from rink.streams.errors import EventTimeout, TooManyUncommitted
from rink.streams.failure_policy import Undecodable
from rink.streams.processor import Processor
from rink.streams.store.store import Store
from rink.streams.store.values import OwnerMemory, PartitionPlace, RawEntry, Taken
from rink.streams.stream import Stream

R = TypeVar("R")
log = logging.getLogger("rink.streams")

SUSPECT_DELAY_S = 0.5
"""The time that a suspect waits for other partitions; three times as long if it was marked."""

_MAX_EVENTS_PER_TURN = 64
"""The most events that are yielded before other tasks of the event loop run."""


class GrantOwner(Generic[R]):
    """Own one partition under one token.

    Args:
        is_held: returns whether the role is held at this moment.
        suspects: decides which partition of the worker may process a suspect now.
        wants_more: called when there may be room for more events.
        may_hold: returns how many bytes of events the owner may hold before it stops reading.

    Attributes:
        left_out: bytes of the first event that the take had no room for; 0 for none.
        changed: set by new events, a commit, a pause or the end, for a waiting call.
        has_idled: the processor has waited for events in its present call.
        looks_ahead: the owner reads behind an event that does not decode, even if memory is full.
        ended_early: the processor got the end of its events before the partition's end. So an event
            that came alone is judged by itself.
    """

    def __init__(
        self,
        processor: Processor[R],
        store: Store,
        place: PartitionPlace,
        token: int,
        taken: Taken,
        *,
        is_held: Callable[[], bool],
        suspects: PoisonSuspects,
        metrics: WorkerMetrics,
        error_log: ErrorLog,
        wants_more: Callable[[GrantOwner[Any]], None],
        may_hold: Callable[[], int],
    ) -> None:
        self.processor = processor
        self.place = place
        self.token = token
        self.buffer = Buffer(
            processor.name, taken.offset, prefetch=processor.prefetch,
            max_uncommitted=processor.max_uncommitted, careful=taken.careful,
        )  # fmt: skip
        self.changed = asyncio.Event()
        self.ended_early = self.looks_ahead = self.is_idle = self.has_idled = False
        self.stopwatch = Stopwatch(processor.policy.timeout)
        self.dead_lettering = DeadLettering(processor, place, self.buffer)
        self._error_log = error_log
        self._metrics = metrics
        self._is_paused = False
        self._resumed_at = -math.inf
        self._now = asyncio.get_running_loop().time
        self._epoch = taken.epoch
        self._is_held = is_held
        self._suspects = suspects
        self._has_marked = False
        self._suspect_ids = frozenset(taken.ends)
        self._begun_us = taken.begun_us if taken.careful else None
        self._has_delayed = False
        self._wants_more = wants_more
        self._may_hold = may_hold
        self._yielded_in_turn = 0
        self._is_waited_for = False  # a call of `next` is running
        self.left_out = taken.left_out
        self.feed(taken.first)
        self.commits = Committer(
            processor, store, place, token, taken.epoch, self.buffer, metrics, self._settled
        )
        self.pause(taken.is_paused)

    @property
    def is_lost(self) -> bool:
        """Return whether this worker has lost the partition."""
        return self.buffer.stopped or not self._is_held()

    @property
    def is_full(self) -> bool:
        """Return whether no more events can come before a commit."""
        buffer = self.buffer
        return not buffer.ready and not buffer.has_finished and buffer.size >= self._may_hold()

    def note_share(self) -> None:
        """Note that this partition's share of the memory has shrunk."""
        if self.is_full:
            self.changed.set()

    @property
    def known(self) -> OwnerMemory:
        """Return the state that Redis must still have after a reconnect."""
        return OwnerMemory(self._epoch, self.buffer.offset, self.buffer.read_to)

    def feed(self, entries: Sequence[RawEntry]) -> None:
        """Add the entries of a read to the buffer."""
        if entries:
            self.buffer.feed(entries)
            self.changed.set()

    def _settled(self) -> None:
        self._error_log.note_finished(self.place.role, self.buffer.count_finished)
        self.changed.set()
        self._wants_more(self)

    def pause(self, is_paused: bool) -> None:
        """Stop or resume yielding events, while commits continue."""
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            self._resumed_at = self._now()
            change = "is paused" if is_paused else "is resumed"
            log.info("%s of processor %r %s", self.place.role, self.processor.name, change)
            self._metrics.paused(self.place, is_paused)
            self.changed.set()

    @property
    def active_since(self) -> float:
        """Return the end of the last pause, or the present time in a pause."""
        return self._now() if self._is_paused else self._resumed_at

    def expect_turn(self) -> None:
        """Reserve a turn among the partitions with suspects, until `stop`."""
        if self._begun_us is not None:
            self._suspects.expect(self, is_suspect=bool(self._suspect_ids), begun_us=self._begun_us)

    def stop(self) -> None:
        """Yield no more events, and give up the turn among suspects."""
        self.buffer.stop()
        self.changed.set()
        self._suspects.forget(self)

    async def next(self, count: int, within: float) -> list[tuple[StreamEntry, R]]:
        """Mark the in-flight events as done, and yield more; [] at the end."""
        if self._is_waited_for:
            raise UsageError(
                f"processor {self.processor.name!r} iterates over the events of "
                f"{self.place.role!r} in two tasks at once, so Rink cannot know which events are "
                "finished. Iterate in one task, and hand the events out from it"
            )
        self._is_waited_for = True
        try:
            return await self._next(count, within)
        finally:
            self._is_waited_for = False

    async def _next(self, count: int, within: float) -> list[tuple[StreamEntry, R]]:
        self.stopwatch.stop()
        self.raise_timeout()
        if self.processor.commits_by_hand:
            # The outcome of an event that came alone must be known before any other event comes.
            if self.buffer.has_one_alone:
                self.ended_early = True
                return []
        else:
            self.finish()
        await self.settle_mark()
        while True:
            entries: list[StreamEntry] = []
            try:
                await self._gather(entries, count, within)
                events = self.dead_lettering.decode(entries)
            except Undecodable as error:
                self._take_back(entries)
                await self._await_verdict(error)
                continue
            except BaseException:  # also a cancellation: the entries have not reached the processor
                self._take_back(entries)
                raise
            self.buffer.held_back = 0
            self._wants_more(self)
            if events:
                self.stopwatch.start(len(events))
            return events

    def next_now(self) -> tuple[StreamEntry, R] | None:
        """Yield one event like `next(1, 0)`; None if that may have to wait."""
        # This is the fast way of nearly all events. It skips some steps of `next`, so it returns
        # None if such a step would have an effect: a timeout to raise, a pause, a mark to settle, a
        # turn for other tasks, a second task in `next`, manual commits, middleware, or a loss.
        # `give_plain` leaves events that are special, or above the ceiling, to `next`.
        if self.stopwatch.has_expired or self._is_paused:
            return None
        must_wait = (
            self._has_marked or self._yielded_in_turn >= _MAX_EVENTS_PER_TURN or self._is_waited_for
        )
        if self.processor.commits_by_hand or self.processor.middleware or must_wait or self.is_lost:
            return None
        self.finish()
        entry = self.buffer.give_plain(self.commits.ceiling)
        if entry is None:
            return None
        try:
            record = self.processor.stream.decode(entry)
        except Exception:  # `next` decodes it again, and handles the error
            self.buffer.take_back(entry)
            return None
        self._yielded_in_turn += 1
        self.stopwatch.start(1)
        return entry, record

    def _take_back(self, entries: list[StreamEntry]) -> None:
        if entries:
            self.buffer.held_back = 0
            self.buffer.take_back(entries[0])
            entries.clear()

    def finish(self, count: int | None = None) -> None:
        """Mark the in-flight events as done: all, or the first `count`."""
        self.buffer.finish(count)
        self.commits.note_finished()

    async def _gather(self, entries: list[StreamEntry], count: int, within: float) -> None:
        """Wait for entries to add, unless the partition ends or must commit."""
        # Invariants:
        # 1. The gathered entries are yielded in the buffer, and `held_back` counts them. So a
        #    commit from another task cannot mark them as done before they reach the processor.
        # 2. No entry reaches the processor before `_admit` has raised the ceiling in Redis, and
        #    `_admit` is the last step of the loop. So after a crash the ceiling covers every event
        #    that may have been begun.
        # 3. A pause or a loss takes all gathered entries back. The loss is checked once more at
        #    the end, since the partition may be lost during `_admit`.
        # 4. No other task runs between a check of the loop and `changed.clear()` in
        #    `_wait_for_change`, as neither awaits. So no change is missed.
        # A batch ends early if it can get nothing more: at an event that comes alone, at the
        # deadline, or if memory is full. Without any entry, a processor with manual commits must
        # not wait for events that come only after its commit.
        deadline: float | None = None
        while not self.is_lost:
            if self._is_paused:
                self._take_back(entries)
                deadline = None
            elif not entries or self.buffer.may_yield >= 1:
                entries += self._give(count, len(entries))
                self.buffer.held_back = len(entries)
            is_over = deadline is not None and self._is_over(deadline)
            is_enough = len(entries) >= count or self.buffer.has_one_alone or within <= 0
            if entries and (is_enough or is_over or self.is_full):
                await self._admit(entries)
                break
            if entries and deadline is None:
                deadline = self._now() + within
            if not entries and self.processor.commits_by_hand and self._must_commit():
                break
            await self._wait_for_change(deadline)
        if self.is_lost:
            self.stop()
            self._take_back(entries)

    def _must_commit(self) -> bool:
        """Return whether memory is full of events that the processor must commit."""
        if self.buffer.is_held_up:
            raise TooManyUncommitted(
                f"processor {self.processor.name!r} has "
                f"max_uncommitted={self.processor.max_uncommitted} events of {self.place.role!r} "
                "without a commit: commit, or give it a larger max_uncommitted"
            )
        is_over = self.is_full and self.buffer.has_yielded
        self.ended_early = self.ended_early or is_over
        return is_over

    def _is_over(self, deadline: float) -> bool:
        return self._now() >= deadline

    def _give(self, count: int, have: int) -> list[StreamEntry]:
        # A new batch waits for earlier commits if they leave it less room than it could fill.
        wanted = min(count, self.buffer.ready)
        if have == 0 and self.buffer.has_finished and self.buffer.may_yield < wanted:
            return []
        entries = self.buffer.give(count - have)
        self.commits.note_finished()
        return entries

    async def _wait_for_change(self, deadline: float | None) -> None:
        self._wants_more(self)
        self.changed.clear()
        left = None if deadline is None else max(deadline - self._now(), 0)
        self.is_idle = deadline is None
        self.has_idled = self.has_idled or self.is_idle
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.changed.wait()
        finally:
            self.is_idle = False

    async def _admit(self, entries: list[StreamEntry]) -> None:
        """Raise the ceiling in Redis and mark suspects, before delivery."""
        self._yielded_in_turn += len(entries)
        if self._yielded_in_turn >= _MAX_EVENTS_PER_TURN:
            self._yielded_in_turn = 0
            await asyncio.sleep(0)
        await self.commits.cover(entries[-1])
        if self.buffer.must_mark(entries[0]):
            # Other partitions get a moment before a suspect is processed.
            is_suspect = entries[0].id in self._suspect_ids
            if is_suspect or not self._has_delayed:
                self._has_delayed = True
                await self.rest(SUSPECT_DELAY_S * (3 if is_suspect else 1))
            self._has_marked = self._has_marked or await self._suspects.begin(self)
            if self._has_marked:
                await self.commits.mark(entries[0].id)

    async def rest(self, seconds: float) -> None:
        """Wait for some seconds, or until the partition is lost."""
        end = self._now() + seconds
        while not self.is_lost and self._now() < end:
            await self._wait_for_change(end)

    async def settle_mark(self) -> None:
        """Commit a marked event before another one is marked."""
        if self._has_marked:
            await self.commits.flush()
            self.release_mark()

    async def take_mark_back(self) -> None:
        """Remove the mark of an event, which a later crash must not blame."""
        if self._has_marked:
            await self.commits.mark("")
            self.release_mark()

    def release_mark(self) -> None:
        """End this partition's turn with a marked event."""
        if self._has_marked:
            self._has_marked = False
            self._suspects.end()

    async def _await_verdict(self, error: Undecodable) -> None:
        """Give up an event that does not decode, or wait for later events."""
        until = self.dead_lettering.judge_undecodable(error, self._now())
        if until is None:
            self.commits.note_finished()
            return
        retry_for = self.processor.policy.retry_for
        then = f"the partition waits until a later event decodes, for at most {retry_for:g} s"
        self._error_log.log(error.error, self.place.role, error.entry.id, then)
        await self.take_mark_back()
        self.looks_ahead = True
        try:
            await self._wait_for_change(until)
        finally:
            self.looks_ahead = False

    def raise_timeout(self) -> None:
        """Raise EventTimeout even if the processor has caught the cancellation."""
        if self.stopwatch.has_expired:
            raise self.timed_out()

    def timed_out(self) -> EventTimeout:
        """Return the error of a processor that took too long."""
        count = max(len(self.buffer.in_hand), 1)
        events = f"{count} {plural(count, 'event')}"
        return EventTimeout(
            f"processor {self.processor.name!r} took longer for {events} of {self.place.role!r} "
            f"than its timeout={self.stopwatch.seconds:g} s for each, and was cancelled"
        )

    async def commit(
        self, outputs: Iterable[tuple[Stream[Any], Any]], count: int | None = None
    ) -> None:
        """Commit the in-flight events, or the first `count`, with outputs."""
        self.stopwatch.stop()  # Redis may be unavailable for long: no event is to blame
        try:
            await self.commits.commit(outputs, count)
        finally:
            if left := len(self.buffer.in_hand):
                self.stopwatch.start(left)
