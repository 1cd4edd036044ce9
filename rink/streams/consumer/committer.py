"""The commits of one grant: what is finished becomes the offset, in steps that are repeated until answered."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from rink.errors import RinkError, StaleToken, UsageError
from rink.redis.retry import PASSING, repeat_until_answered
from rink.streams.consumer.buffer import Buffer, Entry
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.errors import OffsetMoved, PartitionFull, RedisRolledBack
from rink.streams.processor import Processor
from rink.streams.store import entry_ids
from rink.streams.store.byte_limits import ByteLimits
from rink.streams.store.keys import PartitionNames
from rink.streams.store.store import Store
from rink.streams.store.values import CommitStep, Output, PartitionPlace
from rink.streams.stream import Stream, settle


class Committer:
    """Commits for one owner, one step at a time.

    Args:
        processor: whose.
        store: where.
        place: which partition.
        token: of the grant, and `epoch` of the offset when it was taken.
        inbox: what says what to commit next.
        on_settled: called when something was committed.

    Attributes:
        ceiling: Redis knows that events up to here are being yielded; as `ids.order` has it.
    """

    def __init__(
        self,
        processor: Processor[Any],
        store: Store,
        place: PartitionPlace,
        token: int,
        epoch: str,
        inbox: Buffer,
        metrics: WorkerMetrics,
        on_settled: Callable[[], None],
    ) -> None:
        self.ceiling = entry_ids.order(inbox.read_to)
        self._processor = processor
        self._store = store
        self._place = place
        self._token = token
        self._epoch = epoch
        self._inbox = inbox
        self._metrics = metrics
        self._on_settled = on_settled
        self._finished = asyncio.Event()
        self._committing = asyncio.Lock()
        self._closes = False
        self._step: CommitStep | None = None  # under way: repeated as it is until it is answered
        self._untrimmed = 0

    def note_finished(self) -> None:
        """Schedule a commit of the finished events."""
        if self._inbox.has_finished:
            self._finished.set()

    async def keep(self) -> None:
        """Commit whatever gets finished, until closed; raises what a commit ends with."""
        while True:
            await self._finished.wait()
            self._finished.clear()
            await self.flush()
            if self._closes:
                return

    def close(self) -> None:
        """Nothing more gets finished: `keep` is to commit what is there, and return."""
        self._closes = True
        self._finished.set()

    async def flush(self) -> None:
        """Commit what is finished, and return when that is done."""
        async with self._committing:
            await self._settle_all()

    async def commit(
        self, outputs: Iterable[tuple[Stream[Any], Any]], count: int | None = None
    ) -> None:
        """Commit all that was given, or its first `count`; outputs with it."""
        outputs = list(outputs)
        for stream in {stream for stream, _ in outputs}:  # it may be another app's
            await repeat_until_answered(self._place.role, partial(settle, stream, self._store))
        written = tuple(stream.written(record) for stream, record in outputs)
        _refuse_too_many(self._place, written, self._store.limits)
        async with self._committing:
            await self._settle_all()
            self._inbox.finish(count)
            if self._inbox.passage() is None:
                if written:
                    raise UsageError(
                        f"processor {self._processor.name!r} commits {len(written)} outputs, and was given "
                        f"no event of {self._place.role!r} since the last commit that they could go with"
                    )
                return
            self._step = self._next_step(written)
            try:
                await self._settle()
            except (StaleToken, OffsetMoved, RedisRolledBack):
                raise
            except RinkError:  # the outputs were refused, and will be the next time
                self._step = None
                self._inbox.unfinish()
                raise

    async def cover(self, last: Entry) -> None:
        """Raise the ceiling in Redis, so that a crash has known suspects."""
        if entry_ids.order(last.id) > self.ceiling:
            ceiling = self._inbox.next_ceiling
            place, token, epoch = self._place, self._token, self._epoch
            await repeat_until_answered(
                place.role, lambda: self._store.extend(place, token, epoch, ceiling)
            )
            self.ceiling = entry_ids.order(ceiling)

    async def _settle_all(self) -> None:
        most = self._store.limits.reply
        while self._step is not None or self._inbox.passage(most) is not None:
            self._step = self._step or self._next_step(())
            await self._settle()

    def _next_step(self, outputs: tuple[Output, ...]) -> CommitStep:
        passage = self._inbox.passage()
        assert passage is not None
        letters = tuple(self._letter(entry) for entry in passage.dead)
        ceiling = self._inbox.next_ceiling  # along with a commit it costs nothing; alone, a request
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

    def _letter(self, entry: Entry) -> Output:
        dead = PartitionNames(self._place.names.dead(self._processor.name))
        return Output(dead, None, _letter_fields(entry))

    async def _settle(self) -> None:
        """Have the step under way carried out, however often it must be asked for."""
        step = self._step
        if step is None:
            return
        began = time.perf_counter()
        await repeat_until_answered(
            self._place.role,
            lambda: self._store.commit(self._place, step),
            (*PASSING, PartitionFull),
        )
        self._step = None
        if step.ceiling:
            self.ceiling = max(self.ceiling, entry_ids.order(step.ceiling))
        self._inbox.settled()
        self._metrics.committed(self._place, step, time.perf_counter() - began)
        self._on_settled()
        self._untrimmed += step.processed
        stream = self._processor.stream
        if stream.is_trimmed and self._untrimmed * 20 >= stream.partition_size:
            self._untrimmed = 0
            place = self._place
            await repeat_until_answered(
                place.role, lambda: self._store.trim(place.names, place.bounds)
            )


def _refuse_too_many(
    place: PartitionPlace, outputs: tuple[Output, ...], limits: ByteLimits
) -> None:
    """Refuse outputs that exceed a partition or max_in_flight_bytes."""
    size = sum(output.size for output in outputs)
    if size > limits.in_flight:
        raise UsageError(
            f"a commit of {place.role!r} has {len(outputs)} outputs of {size} bytes, more than "
            f"max_in_flight_bytes={limits.in_flight} of the app, and was not written: commit fewer events at once, "
            "or give the app a larger max_in_flight_bytes"
        )
    counts = Counter(output.target for output in outputs)
    for output in outputs:
        if output.bounds is not None and counts[output.target] > output.bounds.limit:
            raise UsageError(
                f"a commit of {place.role!r} has {counts[output.target]} outputs for "
                f"{output.target.stream!r}, which holds {output.bounds.limit} (partition_size): nothing was "
                "written; commit fewer events at once, or give that stream a larger partition_size"
            )


def _letter_fields(entry: Entry) -> tuple[bytes | str, ...]:
    assert entry.letter is not None
    letter = entry.letter
    return (
        "d", entry.data, "id", entry.id, "error", letter.error, "trace", letter.trace,
        "attempts", str(letter.attempts),
    )  # fmt: skip
