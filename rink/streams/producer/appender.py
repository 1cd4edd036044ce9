"""Append to one partition, one call at a time.

A sender waits for each call before it makes the next, so a call can be repeated. Records that
arrive meanwhile go into the next call. So many small sends cost a few calls.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

import attrs

from rink._cancel import end
from rink.backoff import Backoff
from rink.errors import ClosedError, RinkError
from rink.event_loops import loop_time
from rink.plural import plural
from rink.redis.error_map import timed_out
from rink.redis.errors import RedisOutOfMemory, RedisUnavailable
from rink.redis.script_pipeline import batch_length
from rink.streams.errors import PartitionFull
from rink.streams.store.keys import PartitionNames
from rink.streams.store.store import Store
from rink.streams.store.values import PartitionBounds

_MAX_RECORDS = 512
"""The most records of one call."""

_GROWTH = 1 / 64
"""After a timeout, each answered call lets the next call grow by this part of the limit."""

_LAST_ANSWER_TIMEOUT_S = 1.0
"""The extra time that a sender waits for the present call if the partition was full before."""

_REPEAT_TIMEOUT_S = 300.0
"""The time for which a call is repeated.

Redis keeps the answer for 600 s, and a later retry might append twice.
"""


def _fitting(records: Sequence[bytes], max_bytes: int) -> int:
    """Return how many of the first records fit into one call."""
    return batch_length(map(len, records), max_bytes, _MAX_RECORDS)


@attrs.define(eq=False)
class _Parcel:
    """Hold the records of one call of `send`."""

    records: Sequence[bytes]
    wants_ids: bool
    sent: asyncio.Future[list[str]]
    done: int = 0
    ids: list[str] = attrs.field(factory=list)

    def fail(self, error: Exception) -> None:
        """Raise an error in `send`, if it still waits."""
        if not self.sent.done():
            self.sent.set_exception(error)


class Appender:
    """Append records to one partition."""

    def __init__(
        self, store: Store, names: PartitionNames, bounds: PartitionBounds, stream: str, number: int
    ) -> None:
        self._store = store
        self._names = names
        self._bounds = bounds
        self._stream = stream
        self._partition = number
        self._subject = f"partition {number} of stream {stream!r}"
        self._parcels: deque[_Parcel] = deque()
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._max_bytes = store.limits.reply  # the bytes of one call, fewer after a timeout
        self._trouble: RedisUnavailable | RedisOutOfMemory | None = None
        self._in_call: list[_Parcel] = []
        self._is_full = self._is_closed = False
        self._answered = asyncio.Event()  # set between calls
        self._answered.set()

    async def send(
        self, records: Sequence[bytes], timeout: float, *, wants_ids: bool = False
    ) -> list[str]:
        """Append records in order.

        Returns:
            The ids of the records, if they are wanted.

        Raises:
            PartitionFull: there was no room for all records during `timeout` seconds.
            RedisUnavailable, RedisOutOfMemory: Redis was unavailable or full during that time.
            ClosedError: the app was closed.
        """
        if self._is_closed:
            raise ClosedError(f"the app was closed before records for {self._stream!r} were sent")
        parcel = _Parcel(records, wants_ids, asyncio.get_running_loop().create_future())
        self._parcels.append(parcel)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(parcel.sent)
        except TimeoutError:
            await self._last_call()
            if parcel.sent.done():
                return parcel.sent.result()
            raise self._late(parcel, timeout) from None
        finally:
            parcel.sent.cancel()

    async def _last_call(self) -> None:
        # After this wait the error is PartitionFull, not RedisUnavailable.
        if self._is_full:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_ANSWER_TIMEOUT_S):
                    await self._answered.wait()

    def _late(self, parcel: _Parcel, timeout: float) -> RinkError:
        left = f"{len(parcel.records) - parcel.done} of {len(parcel.records)} records"
        sent = "may have been sent" if parcel in self._in_call else "were not sent"
        if (trouble := self._trouble) is not None:
            message = f"{trouble}: {left} for {self._subject} {sent} in {timeout:g} s"
            return type(trouble)(message, server=trouble.server)
        if not self._answered.is_set() or not self._is_full:
            return RedisUnavailable(
                f"Redis at {self._store.server} did not answer within {timeout:g} s: {left} for "
                f"{self._subject} {sent}",
                server=self._store.server,
            )
        return PartitionFull(
            f"{self._subject} was full for {timeout:g} s: it holds {self._bounds.limit} "
            f"{plural(self._bounds.limit, 'event')} (partition_size) that some processor has not "
            f"committed, or that no processor has been registered for; {left} were not "
            "sent. `rink streams lag` shows the processors that are behind",
            stream=self._stream,
            partition=self._partition,
        )

    async def _run(self) -> None:
        pauses = Backoff(0.005, 0.25)
        while self._drop_given_up():
            self._number += 1  # the previous call was answered, or no sender waits for it
            records, wants_ids = self._batch()
            tried, count, ids = await self._call(records, wants_ids)
            self._is_full = count < tried
            self._deliver(count, ids)
            if count:
                pauses.reset()
            elif self._parcels:  # full
                await asyncio.sleep(pauses.next())

    def _drop_given_up(self) -> bool:
        """Drop the senders that have given up; return whether any waits."""
        while self._parcels and self._parcels[0].sent.done():
            self._parcels.popleft()
        return bool(self._parcels)

    def _batch(self) -> tuple[list[bytes], bool]:
        records: list[bytes] = []
        wants_ids, size, max_bytes = False, 0, self._max_bytes
        self._in_call = []
        for parcel in self._parcels:
            if parcel.sent.done():
                continue
            left = parcel.records[parcel.done : parcel.done + _MAX_RECORDS - len(records)]
            if records and size + len(left[0]) > max_bytes:
                break
            self._in_call.append(parcel)
            wants_ids = wants_ids or parcel.wants_ids
            fitting = left[: _fitting(left, max_bytes - size)]
            records += fitting
            size += sum(map(len, fitting))
            if len(fitting) < len(left) or len(records) >= _MAX_RECORDS:
                break
        return records, wants_ids

    async def _call(self, records: Sequence[bytes], wants_ids: bool) -> tuple[int, int, list[str]]:
        """Repeat one call until it is answered, or until no sender waits.

        After a timeout it is repeated with fewer records, from the same first record on. It stays
        the same call. Redis carries out at most one of the tries, and the answer has the number of
        added records. These are the first records of the call.

        Returns:
            The number of records in the last try, the number of added records, and their ids.
        """
        pauses, until = Backoff(0.02, 1.0), loop_time() + _REPEAT_TIMEOUT_S
        while not all(parcel.sent.done() for parcel in self._in_call):
            try:
                self._answered.clear()
                some = records[: _fitting(records, self._max_bytes)]
                count, ids = await self._store.append(
                    self._names, self._bounds, some, self._number, wants_ids
                )
            except (RedisUnavailable, RedisOutOfMemory) as error:
                self._trouble = error
                if isinstance(error, RedisUnavailable) and timed_out(error):
                    self._max_bytes = max(self._max_bytes // 2, 1)
                    self._trouble = self._slow(error, records)
                if loop_time() > until:
                    return self._give_up(error)
                await asyncio.sleep(pauses.next())
            except Exception as error:  # a retry would fail in the same way
                return self._give_up(error)
            else:
                self._trouble = None
                limit = self._store.limits.reply
                self._max_bytes = min(self._max_bytes + max(int(limit * _GROWTH), 1), limit)
                return len(some), count, ids
            finally:
                self._answered.set()
        return 0, 0, []

    def _slow(self, error: RedisUnavailable, records: Sequence[bytes]) -> RedisUnavailable:
        """Return an error that names socket_timeout if a record is large."""
        size = len(records[0])
        if size * 4 <= self._store.limits.reply:
            return error
        return RedisUnavailable(
            f"{error}; one record has {size} bytes: if the network is slow, raise socket_timeout "
            f"of the Redis client ({self._store.answer_timeout_s:g} s)",
            server=error.server,
        )

    def _give_up(self, error: Exception) -> tuple[int, int, list[str]]:
        for parcel in self._in_call:
            parcel.fail(error)
        return 0, 0, []

    async def close(self) -> None:
        """Send no more records, and raise ClosedError in waiting sends.

        A waiting sender cannot know whether some records were sent.
        """
        self._is_closed = True
        if self._task is not None:
            await end([self._task])
        for parcel in self._parcels:
            left = len(parcel.records) - parcel.done
            records = f"{left} {plural(left, 'record')}"
            were = "was" if left == 1 else "were"
            error = f"the app was closed while {records} for {self._subject} {were} being sent"
            parcel.fail(ClosedError(f"{error}: they may have been sent, or not"))

    def _deliver(self, count: int, ids: list[str]) -> None:
        for parcel in self._in_call:
            part = min(count, len(parcel.records) - parcel.done)
            if part == 0:
                break
            parcel.done += part
            count -= part
            if parcel.wants_ids:
                parcel.ids += ids[:part]
            ids = ids[part:]
            if parcel.done == len(parcel.records) and not parcel.sent.done():
                parcel.sent.set_result(parcel.ids)
