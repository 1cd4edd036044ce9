"""One grant of one partition, from take to close: what its events are given from and committed by.

`GrantOwner` is the `Source` that a processor's `Events` stand on. It knows nothing of roles: who runs it
(`partition.py`) says when it is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from rink.errors import UsageError
from rink.redis.retry import repeat_until_answered
from rink.streams.consumer.buffer import Buffer, Entry
from rink.streams.consumer.committer import Committer
from rink.streams.consumer.dead_lettering import GivingUp
from rink.streams.consumer.error_log import Complaints
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.poison import PoisonSuspects
from rink.streams.consumer.stopwatch import Stopwatch
from rink.streams.errors import EventTimeout, TooManyUncommitted
from rink.streams.event import Middleware
from rink.streams.failure_policy import Undecodable
from rink.streams.processor import Processor
from rink.streams.store.store import Store
from rink.streams.store.values import OwnerMemory, PartitionPlace, RawEntry, Taken
from rink.streams.stream import Stream

R = TypeVar("R")
log = logging.getLogger("rink.streams")

LETS_OTHERS_GO_S = 0.5
"""How long a suspect waits, so that other partitions are taken and go on.

An event that was marked at a crash waits three times as long.
"""

_REST_AFTER = 64
"""So many events are given without a pause for the rest of the event loop."""


class GrantOwner(Generic[R]):
    """A partition that this worker owns under one token.

    Args:
        processor: whose.
        store: where.
        place: which partition.
        token: of the grant.
        taken: what the take answered.
        is_held: whether the role is held at this moment.
        marks: of the worker: which partition may process a suspect now.
        wants_more: called when there may be room for more.
        may_hold: how many bytes of events it may hold now, before more is read.

    Attributes:
        inbox: the events in memory.
        left_out: bytes of the event behind those that came with the take, if there was no room for it; otherwise 0.
        commits: has Redis know what is finished.
        changed: set when there is something new in the inbox, room among the uncommitted, or its end.
        is_idle: the processor waits for events; `has_idled`: it did so in the call under way.
        looks_ahead: it waits for events behind one that does not decode, however full its memory is.
        ended_early: it was told that there are no more, so that what came alone is judged by itself.
        stopwatch: measures how long the processor takes for its in-flight events.
        giving_up: gives up events that fail.
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
        marks: PoisonSuspects,
        metrics: WorkerMetrics,
        complaints: Complaints,
        wants_more: Callable[[GrantOwner[Any]], None],
        may_hold: Callable[[], int],
    ) -> None:
        self.processor = processor
        self.place = place
        self._token = token
        self.inbox = Buffer(
            processor.name,
            taken.offset,
            prefetch=processor.prefetch,
            max_uncommitted=processor.max_uncommitted,
            careful=taken.careful,
        )
        self.changed = asyncio.Event()
        self.ended_early = self.looks_ahead = False
        self.is_idle = self.has_idled = False
        self.stopwatch = Stopwatch(processor.policy.timeout)
        self.giving_up = GivingUp(processor, place, self.inbox)
        self._complaints = complaints
        self._metrics = metrics
        self._is_paused = False
        self._resumed_at = -math.inf
        self._now = asyncio.get_running_loop().time
        self._store = store
        self._epoch = taken.epoch
        self._is_held = is_held
        self._marks = marks
        self._has_marked = False
        self._suspects = frozenset(taken.ends)
        self._told = taken.told if taken.careful else None
        self._has_let_others_go = False
        self._wants_more = wants_more
        self._may_hold = may_hold
        self._given = 0
        self._is_asked = False  # somebody waits in `next`
        self.left_out = taken.left_out
        self.feed(taken.first)
        self.commits = Committer(
            processor, store, place, token, taken.epoch, self.inbox, metrics, self._settled
        )
        self.pause(taken.is_paused)

    @property
    def partition(self) -> int:
        """Which partition."""
        return self.place.number

    @property
    def token(self) -> int:
        """The fencing token of the grant."""
        return self._token

    @property
    def max_uncommitted(self) -> int:
        """Return how many events may be given and not committed."""
        return self.processor.max_uncommitted

    @property
    def commits_by_hand(self) -> bool:
        """Only `commit` finishes events."""
        return self.processor.commits_by_hand

    @property
    def middleware(self) -> tuple[Middleware[Any], ...]:
        """Return the middleware that goes around each batch."""
        return self.processor.middleware

    @property
    def is_lost(self) -> bool:
        """The partition is not ours any more."""
        return self.inbox.stopped or not self._is_held()

    @property
    def is_full(self) -> bool:
        """Return whether the processor has all in hand that fits into memory: more comes only when it commits."""
        inbox = self.inbox
        return not inbox.ready and not inbox.has_finished and inbox.size >= self._may_hold()

    def note_share(self) -> None:
        """Note that its share of the memory has shrunk."""
        if self.is_full:
            self.changed.set()

    @property
    def known(self) -> OwnerMemory:
        """Return what Redis must still know after a reconnect."""
        return OwnerMemory(self._epoch, self.inbox.offset, self.inbox.read_to)

    def feed(self, entries: Sequence[RawEntry]) -> None:
        """Take in what was read."""
        if entries:
            self.inbox.feed(entries)
            self.changed.set()

    def _settled(self) -> None:
        self._complaints.note_finished(self.place.role, self.inbox.count_finished)
        self.changed.set()
        self._wants_more(self)

    def pause(self, is_paused: bool) -> None:
        """Give no events for now, or give them again; commits go on."""
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            self._resumed_at = self._now()
            what = "is paused" if is_paused else "is resumed"
            log.info("%s of processor %r %s", self.place.role, self.processor.name, what)
            self._metrics.paused(self.place, is_paused)
            self.changed.set()

    @property
    def active_since(self) -> float:
        """Return the end of its last pause; the present time while it is paused."""
        return self._now() if self._is_paused else self._resumed_at

    def expect_turn(self) -> None:
        """Take a place among those who are careful, until `stop`."""
        if self._told is not None:
            self._marks.expect(self, is_suspect=bool(self._suspects), told=self._told)

    def stop(self) -> None:
        """Give nothing more."""
        self.inbox.stop()
        self.changed.set()
        self._marks.forget(self)

    # ── giving ───────────────────────────────────────────────────────────────────────────────

    async def next(self, count: int, within: float) -> list[tuple[Entry, R]]:
        """What was given before has been processed; give up to `count` more, [] where there are none."""
        if self._is_asked:
            raise UsageError(
                f"processor {self.processor.name!r} iterates over the events of {self.place.role!r} in two "
                "tasks at once, so nobody knows which events are finished; iterate in one, and share there"
            )
        self._is_asked = True
        try:
            return await self._next(count, within)
        finally:
            self._is_asked = False

    async def _next(self, count: int, within: float) -> list[tuple[Entry, R]]:
        self.stopwatch.stop()
        self.raise_timeout()
        if self.commits_by_hand:
            if self.inbox.has_one_alone:  # its outcome must be known before anything else comes
                self.ended_early = True
                return []
        else:
            self.finish()
        await self.settle_mark()
        while True:
            entries: list[Entry] = []
            try:
                await self._gather(entries, count, within)
                given = self.giving_up.decode(entries)
            except Undecodable as error:
                self._take_back(entries)
                await self._await_verdict(error)
                continue
            except BaseException:  # cancelled, too: the processor has not been given them
                self._take_back(entries)
                raise
            self.inbox.held_back = 0
            self._wants_more(self)
            if given:
                self.stopwatch.start(len(given))
            return given

    def begin_event(self) -> None:
        """Measure one of the events that were given together, from now on.

        It may be called in a thread.
        """
        self.stopwatch.start(1)

    def next_now(self) -> tuple[Entry, R] | None:
        """As `next(1, 0)` where nothing need be waited for; None where something may have to be."""
        if self.stopwatch.has_expired or self._is_paused:
            return None
        has_more_to_do = self._has_marked or self._given >= _REST_AFTER or self._is_asked
        if self.commits_by_hand or self.middleware or has_more_to_do or self.is_lost:
            return None
        self.finish()
        entry = self.inbox.give_plain(self.commits.ceiling)
        if entry is None:
            return None
        try:
            record = self.processor.stream.decode(entry)
        except Exception:  # who is asked next tells of it
            self.inbox.take_back(entry)
            return None
        self._given += 1
        self.stopwatch.start(1)
        return entry, record

    def _take_back(self, entries: list[Entry]) -> None:
        """What was gathered and reaches nobody comes again, to this owner or the next."""
        if entries:
            self.inbox.held_back = 0
            self.inbox.take_back(entries[0])
            entries.clear()

    def hand_back(self) -> None:
        """Give back the unfinished events, to come again."""
        self.inbox.put_back()

    def finish(self, count: int | None = None) -> None:
        """Mark the given events as processed: all, or the first `count`."""
        self.inbox.finish(count)
        self.commits.note_finished()

    async def _gather(self, entries: list[Entry], count: int, within: float) -> None:
        """Wait for up to `count` entries; none at the end."""
        deadline: float | None = None
        while not self.is_lost:
            if self._is_paused:
                self._take_back(entries)
                deadline = None
            elif not entries or self.inbox.may_yield >= 1:
                entries += self._give(count, len(entries))
                self.inbox.held_back = len(entries)
            is_over = deadline is not None and self._is_over(deadline)
            is_enough = len(entries) >= count or self.inbox.has_one_alone or within <= 0
            if entries and (is_enough or is_over or self.is_full):
                await self._admit(entries)
                break
            if entries and deadline is None:
                deadline = self._now() + within
            if not entries and self.commits_by_hand and self._must_commit():
                break
            await self._wait_for_change(deadline)
        if self.is_lost:
            self.stop()
            self._take_back(entries)

    def _must_commit(self) -> bool:
        """Return whether its events end here for now, so that it commits what it has: memory is full of it.

        Raises:
            TooManyUncommitted: it has been given as many as it may.
        """
        if self.inbox.is_held_up:
            raise TooManyUncommitted(
                f"processor {self.processor.name!r} has max_uncommitted={self.max_uncommitted} events of "
                f"{self.place.role!r} without a commit: commit, or give it a larger max_uncommitted"
            )
        is_over = self.is_full and self.inbox.has_yielded
        self.ended_early = self.ended_early or is_over
        return is_over

    def _is_over(self, deadline: float) -> bool:
        """Return whether a batch that is not full waits no longer."""
        return self._now() >= deadline

    def _give(self, count: int, have: int) -> list[Entry]:
        # A batch waits for the commits before it rather than be cut to the room that is left.
        wanted = min(count, self.inbox.ready)
        if have == 0 and self.inbox.has_finished and self.inbox.may_yield < wanted:
            return []
        given = self.inbox.give(count - have)
        self.commits.note_finished()
        return given

    async def _wait_for_change(self, deadline: float | None) -> None:
        """Wait until something has changed, or the deadline comes."""
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

    async def _admit(self, entries: list[Entry]) -> None:
        """Raise the in-flight limit in Redis and mark suspects.

        This comes before delivery.
        """
        self._given += len(entries)
        if self._given >= _REST_AFTER:
            self._given = 0
            await asyncio.sleep(0)
        await self.commits.cover(entries[-1])
        if self.inbox.must_mark(entries[0]):
            await self._let_others_go(entries[0])
            self._has_marked = self._has_marked or await self._marks.begin(self)
            if self._has_marked:
                await self._mark(entries[0].id)

    async def _mark(self, entry_id: str) -> None:
        place, token, epoch = self.place, self._token, self._epoch
        await repeat_until_answered(
            place.role, lambda: self._store.mark(place, token, epoch, entry_id)
        )

    async def _let_others_go(self, entry: Entry) -> None:
        """Give the other partitions a moment before a suspect is processed."""
        is_suspect = entry.id in self._suspects
        if is_suspect or not self._has_let_others_go:
            self._has_let_others_go = True
            await self.rest(LETS_OTHERS_GO_S * (3 if is_suspect else 1))

    async def rest(self, seconds: float) -> None:
        """Wait, unless the end comes first."""
        end = self._now() + seconds
        while not self.is_lost and self._now() < end:
            await self._wait_for_change(end)

    async def settle_mark(self) -> None:
        """Commit a marked event before another one is marked."""
        if self._has_marked:
            await self.commits.flush()
            self.release_mark()

    async def take_mark_back(self) -> None:
        """Remove the mark of an event: a crash from here on is not its own."""
        if self._has_marked:
            await self._mark("")
            self.release_mark()

    def release_mark(self) -> None:
        """End this partition's turn with a marked event."""
        if self._has_marked:
            self._has_marked = False
            self._marks.end()

    async def _await_verdict(self, error: Undecodable) -> None:
        """Give up an event that does not decode, or wait for those behind it."""
        until = self.giving_up.judge_undecodable(error, self._now())
        if until is None:
            self.commits.note_finished()
            return
        retry_for = self.processor.policy.retry_for
        then = f"it waits until an event behind it decodes, for at most {retry_for:g} s"
        self._complaints.tell(error.error, self.place.role, error.entry.id, then)
        await self.take_mark_back()
        self.looks_ahead = True
        try:
            await self._wait_for_change(until)
        finally:
            self.looks_ahead = False

    def raise_timeout(self) -> None:
        """Raise EventTimeout if it cancelled the processor, which may catch it."""
        if self.stopwatch.has_expired:
            raise self.timed_out()

    def timed_out(self) -> EventTimeout:
        """Return the error of a processor that took too long."""
        count = max(len(self.inbox.in_hand), 1)
        events = f"{count} event" + "s" * (count != 1)
        return EventTimeout(
            f"processor {self.processor.name!r} took longer for {events} of {self.place.role!r} than its "
            f"timeout={self.stopwatch.seconds:g} s for each, and was cancelled"
        )

    async def commit(
        self, outputs: Iterable[tuple[Stream[Any], Any]], count: int | None = None
    ) -> None:
        """Commit all that was given, or its first `count`; outputs with it."""
        self.stopwatch.stop()  # Redis may be away for long, and no event is to blame for it
        try:
            await self.commits.commit(outputs, count)
        finally:
            if left := len(self.inbox.in_hand):
                self.stopwatch.start(left)
