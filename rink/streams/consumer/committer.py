"""Commit the done events of one grant.

Each commit is one step, which is repeated until Redis answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import attrs

from rink.errors import RinkError, StaleToken, UsageError
from rink.event_loops import loop_time
from rink.plural import plural
from rink.redis.retry import PASSING, repeat_until_answered
from rink.streams.consumer.buffer import Buffer, StreamEntry
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.errors import OffsetMoved, PartitionFull, RedisRolledBack
from rink.streams.processor import Processor
from rink.streams.store import entry_ids
from rink.streams.store.byte_limits import ByteLimits
from rink.streams.store.keys import PartitionNames
from rink.streams.store.store import Store
from rink.streams.store.values import CommitStep, Output, PartitionPlace
from rink.streams.stream import Stream, settle


@attrs.define(eq=False)
class Committer:
    """Commit for one owner, one step at a time.

    Attributes:
        ceiling: the last event that may be yielded according to Redis; a key of `entry_ids.order`.
    """

    _processor: Processor[Any]
    _store: Store
    _place: PartitionPlace
    _token: int
    _epoch: str
    _buffer: Buffer
    _metrics: WorkerMetrics
    _on_settled: Callable[[], None]
    ceiling: tuple[int, int] = attrs.field(init=False)
    _finished: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)
    _committing: asyncio.Lock = attrs.field(init=False, factory=asyncio.Lock)
    _closes: bool = attrs.field(init=False, default=False)
    # The present commit. It is repeated unchanged until Redis answers. Redis may have carried it
    # out, so a changed commit would be refused, or pass events twice.
    _step: CommitStep | None = attrs.field(init=False, default=None)
    _untrimmed: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.ceiling = entry_ids.order(self._buffer.read_to)

    def note_finished(self) -> None:
        """Schedule a commit of the done events."""
        if self._buffer.has_finished:
            self._finished.set()

    async def keep(self) -> None:
        """Commit done events until closed; raise the error of a commit."""
        while True:
            await self._finished.wait()
            self._finished.clear()
            await self.flush()
            if self._closes:
                return

    def close(self) -> None:
        """Make `keep` return after a last commit; no event may follow."""
        self._closes = True
        self._finished.set()

    async def flush(self) -> None:
        """Commit all done events, and wait for the answer."""
        async with self._committing:
            await self._settle_all()

    async def commit(
        self, outputs: Iterable[tuple[Stream[Any], Any]], count: int | None = None
    ) -> None:
        """Commit the in-flight events, or the first `count`, with outputs."""
        outputs = list(outputs)
        for stream in {stream for stream, _ in outputs}:  # it may belong to another app
            await repeat_until_answered(self._place.role, partial(settle, stream, self._store))
        written = tuple(stream.written(record) for stream, record in outputs)
        _refuse_too_many(self._place, written, self._store.limits)
        async with self._committing:
            await self._settle_all()
            self._buffer.finish(count)
            if self._buffer.passage() is None:
                if written:
                    raise UsageError(
                        f"processor {self._processor.name!r} commits {len(written)} "
                        f"{plural(len(written), 'output')}, but has no in-flight event of "
                        f"{self._place.role!r}: commit outputs together with events, or use send()"
                    )
                return
            self._step = self._next_step(written)
            try:
                await self._settle()
            except (StaleToken, OffsetMoved, RedisRolledBack):
                raise
            except RinkError:  # the outputs were refused, so a retry would be refused, too
                self._step = None
                self._buffer.unfinish()
                raise

    async def cover(self, last: StreamEntry) -> None:
        """Raise the ceiling in Redis to an entry before it is yielded."""
        if entry_ids.order(last.id) > self.ceiling:
            ceiling = self._buffer.next_ceiling
            extend = partial(self._store.extend, self._place, self._token, self._epoch, ceiling)
            await repeat_until_answered(self._place.role, extend)
            self.ceiling = entry_ids.order(ceiling)

    async def mark(self, entry_id: str) -> None:
        """Mark an event in Redis before it is yielded alone; "" for none."""
        mark = partial(self._store.mark, self._place, self._token, self._epoch, entry_id)
        await repeat_until_answered(self._place.role, mark)

    async def _settle_all(self) -> None:
        max_bytes = self._store.limits.reply
        while self._step is not None or self._buffer.passage(max_bytes) is not None:
            self._step = self._step or self._next_step(())
            await self._settle()

    def _next_step(self, outputs: tuple[Output, ...]) -> CommitStep:
        passage = self._buffer.passage()
        assert passage is not None
        letters = tuple(self._letter(entry) for entry in passage.dead)
        # A new ceiling costs nothing in a commit, but a request by itself.
        ceiling = self._buffer.next_ceiling
        return CommitStep(
            token=self._token,
            epoch=self._epoch,
            expected=passage.expected,
            new=passage.new,
            ceiling=ceiling if entry_ids.order(ceiling) > self.ceiling else "",
            processed=passage.processed,
            dead=len(letters),
            letters=letters,
            outputs=outputs,
        )

    def _letter(self, entry: StreamEntry) -> Output:
        letter = entry.letter
        assert letter is not None
        fields = (
            "d", entry.data, "id", entry.id, "error", letter.error, "trace", letter.trace,
            "attempts", str(letter.attempts),
        )  # fmt: skip
        dead = PartitionNames(self._place.names.dead(self._processor.name))
        return Output(dead, None, fields)

    async def _settle(self) -> None:
        """Repeat the present commit until Redis answers."""
        step = self._step
        if step is None:
            return
        began = loop_time()
        await repeat_until_answered(
            self._place.role,
            lambda: self._store.commit(self._place, step),
            (*PASSING, PartitionFull),
        )
        self._step = None
        if step.ceiling:
            self.ceiling = max(self.ceiling, entry_ids.order(step.ceiling))
        self._buffer.settled()
        self._metrics.committed(self._place, step, loop_time() - began)
        self._on_settled()
        self._untrimmed += step.processed
        stream = self._processor.stream
        if stream.is_trimmed and self._untrimmed * 20 >= stream.partition_size:
            self._untrimmed = 0
            trim = partial(self._store.trim, self._place.names, self._place.bounds)
            await repeat_until_answered(self._place.role, trim)


def _refuse_too_many(
    place: PartitionPlace, outputs: tuple[Output, ...], limits: ByteLimits
) -> None:
    """Refuse outputs that exceed a partition or max_in_flight_bytes."""
    size = sum(output.size for output in outputs)
    if size > limits.in_flight:
        raise UsageError(
            f"a commit of {place.role!r} has {len(outputs)} {plural(len(outputs), 'output')} of "
            f"{size} bytes, more than max_in_flight_bytes={limits.in_flight} of the app, and was "
            "not written: commit fewer events at once, or give the app a larger max_in_flight_bytes"
        )
    counts = Counter(output.target for output in outputs)
    for output in outputs:
        if output.bounds is not None and counts[output.target] > output.bounds.limit:
            raise UsageError(
                f"a commit of {place.role!r} has {counts[output.target]} outputs for "
                f"{output.target.stream!r}, which holds {output.bounds.limit} (partition_size): "
                "nothing was written; commit fewer events at once, or give that stream a larger "
                "partition_size"
            )
