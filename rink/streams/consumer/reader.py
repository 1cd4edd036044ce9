"""Read all partitions of a processor in one blocking XREAD.

On a cluster, each partition has a read of its own. XREAD changes nothing in Redis. So an answer is
dropped if it arrives late, or for a grant that has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from rink._cancel import end
from rink.errors import RinkError, StateError
from rink.event_loops import loop_time
from rink.redis.async_client import AnyRedis
from rink.redis.error_map import explained, timed_out
from rink.redis.errors import RedisError, RedisUnavailable
from rink.redis.retry import RetryPauses
from rink.streams.consumer.owner import GrantOwner
from rink.streams.store.byte_limits import SharedMemory, Sizes
from rink.streams.store.store import Store

log = logging.getLogger("rink.streams")

_UNBLOCK_INTERVAL_S = 0.001
_FIRST_REST_S, _MAX_REST_S = 5.0, 60.0
"""Bounds of the pause before the next read of an event that did not come in time."""

Broken = asyncio.Future[None]
"""A future that fails if an owner's partition cannot be read, or was rolled back."""


def make_reader(store: Store, prefetch: int, held: SharedMemory) -> Reader:
    """Return the reader for a store, whose owners may hold `prefetch` events."""
    make = ReaderPerPartition if store.is_cluster else SharedReader
    return make(store, max(prefetch // 4, 1), held)


class Reader:
    """Read for all owners of one processor in this worker.

    Args:
        chunk: how many events of a partition to read at once. A partition is read only if it has
            room for a chunk, unless it has nothing else to do.
        held: the memory that all owners of the worker share.
    """

    def __init__(self, store: Store, chunk: int, held: SharedMemory) -> None:
        self._store = store
        self._chunk = chunk
        self._held = held
        self._sizes: Sizes[GrantOwner[Any]] = Sizes(store.limits.reply)
        # The end of each owner's rest, and its length, in seconds.
        self._rests: dict[GrantOwner[Any], tuple[float, float]] = {}
        self._owners: dict[GrantOwner[Any], Broken] = {}
        self._helpers: set[asyncio.Task[None]] = set()

    def _start(self, helper: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(helper)
        self._helpers.add(task)
        task.add_done_callback(self._helpers.discard)
        return task

    async def close(self) -> None:
        """Cancel all present reads."""
        await end(list(self._helpers))

    def add(self, owner: GrantOwner[Any]) -> Broken:
        """Read for an owner; the future fails if reading cannot continue."""
        broken = self._owners[owner] = asyncio.get_running_loop().create_future()
        self._held.enter(owner, owner.note_share)
        if owner.buffer.ready:  # the events of the take
            self._sizes.note(owner, owner.buffer.ready, owner.buffer.size)
        if owner.left_out:
            self._sizes.note(owner, 1, owner.left_out)
        return broken

    def remove(self, owner: GrantOwner[Any]) -> None:
        """Stop reading for an owner."""
        broken = self._owners.pop(owner, None)
        if broken is not None:
            broken.cancel()
            self._held.leave(owner)
            self._sizes.forget(owner)
            self._rests.pop(owner, None)

    @property
    def first_bytes(self) -> int:
        """Return how many bytes of events the answer to a take may have."""
        return min(self._store.limits.reply, self._held.share)

    @property
    def share(self) -> int:
        """Return how many bytes a partition may hold before reading stops."""
        return self._held.share

    @property
    def owners(self) -> list[GrantOwner[Any]]:
        """Return the owners of this reader."""
        return list(self._owners)

    def fail(self, owner: GrantOwner[Any], error: Exception) -> None:
        """End an owner with this error."""
        broken = self._owners.get(owner)
        if broken is not None and not broken.done():
            broken.set_exception(error)
            # Mark the error as seen, since nobody reads it if the owner ends for another reason.
            broken.exception()

    def wake(self, owner: GrantOwner[Any]) -> None:
        """Wake the reader for an owner that may have room again."""
        raise NotImplementedError

    async def run(self) -> None:
        """Read until cancelled."""
        raise NotImplementedError

    def _has_room(self, owner: GrantOwner[Any]) -> bool:
        # An owner with nothing to yield or to commit may be waiting, so room for one is enough.
        needed = self._chunk if owner.buffer.ready or owner.buffer.has_finished else 1
        has_memory = owner.looks_ahead or owner.buffer.size < self._held.share
        return has_memory and owner.buffer.room >= needed and not self._is_resting(owner)

    def _max_count(self, wanted: Sequence[GrantOwner[Any]]) -> int:
        """Return how many entries of each partition may be read."""
        return min(self._chunk, *(owner.buffer.room for owner in wanted))

    async def _read(
        self,
        client: AnyRedis,
        owners: Sequence[GrantOwner[Any]],
        count: int,
        *,
        waits: bool = True,
    ) -> bool:
        """Read once for these owners; return whether there were events."""
        # Another read or a retake may have moved an owner meanwhile. So an answer counts only for
        # an owner that still exists, and only from the position that was read.
        reads = {owner.place.names.stream: (owner, owner.buffer.read_to) for owner in owners}
        positions = {key: position for key, (_, position) in reads.items()}
        try:
            answer = dict(await self._store.read(client, positions, count, waits=waits))
        except RedisUnavailable as error:
            if timed_out(error) and not self._sizes.halve(owners, count):
                self._rest(owners[0], error)
            raise
        for key, (owner, position) in reads.items():
            entries = answer.get(key, [])
            if owner not in self._owners:
                continue
            self._rests.pop(owner, None)
            if owner.buffer.read_to == position:
                before = owner.buffer.size
                owner.feed(entries)
                self._sizes.note(owner, len(entries), owner.buffer.size - before)
        return bool(answer)

    async def _wait_for_room(self, woken: asyncio.Event) -> None:
        """Wait until an owner has room, at most 1 s if an owner rests."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0 if self._rests else None):
                await woken.wait()

    def _rest(self, owner: GrantOwner[Any], error: RedisUnavailable) -> None:
        """Stop reading an owner for a pause, after the timeout of one event."""
        pause = _FIRST_REST_S
        if owner in self._rests:
            pause = min(self._rests[owner][1] * 2, _MAX_REST_S)
        self._rests[owner] = loop_time() + pause, pause
        log.warning(
            "%s waits: the event after %s did not arrive within %g s, and is read again in %.0f s. "
            "If this event is large or the network is slow, raise socket_timeout of the Redis "
            "client: %s",
            owner.place.role, owner.buffer.read_to, self._store.answer_timeout_s, pause, error,
        )  # fmt: skip

    def _is_resting(self, owner: GrantOwner[Any]) -> bool:
        return owner in self._rests and loop_time() < self._rests[owner][0]

    async def _recheck(self, owners: Sequence[GrantOwner[Any]]) -> None:
        """Fail each owner whose data Redis has lost, after a reconnect."""
        for owner in owners:
            broken = self._owners.get(owner)
            if broken is None or broken.done():
                continue
            try:
                await self._store.take(owner.place, owner.token, known=owner.known)
            except RedisError:
                raise
            except RinkError as error:
                self.fail(owner, error)


class SharedReader(Reader):
    """Read all partitions with one connection and one blocking read."""

    def __init__(self, store: Store, chunk: int, held: SharedMemory) -> None:
        super().__init__(store, chunk, held)
        self._woken = asyncio.Event()
        # The owners that are read in turn and had no event.
        self._empty: set[GrantOwner[Any]] = set()
        self._reading: frozenset[GrantOwner[Any]] = frozenset()
        self._round = 0
        self._unblocking: asyncio.Task[None] | None = None
        self._client_id = 0
        self._must_recheck = False

    def add(self, owner: GrantOwner[Any]) -> Broken:
        """Read for an owner, see `Reader.add`."""
        broken = super().add(owner)
        self.wake(owner)
        return broken

    def wake(self, owner: GrantOwner[Any]) -> None:
        """Wake the reader, and end a read without this owner."""
        if owner in self._reading or owner not in self._owners or not self._has_room(owner):
            return
        self._woken.set()
        if self._reading and (self._unblocking is None or self._unblocking.done()):
            self._unblocking = self._start(self._unblock(self._round))

    async def run(self) -> None:
        """Read until cancelled."""
        pauses = RetryPauses("reading")
        client: AnyRedis | None = None
        try:
            while True:
                try:
                    client = client or await self._connect()
                    await self._read_or_wait(client)
                    pauses.reset()
                except Exception as error:
                    self._must_recheck = True
                    await _closed(client)
                    client = None
                    if not isinstance(error, RinkError):  # a bug, which must reach every owner
                        for owner in self.owners:
                            self.fail(owner, error)
                    await asyncio.sleep(pauses.after(error, at_once=isinstance(error, StateError)))
        finally:
            await _closed(client)

    async def _connect(self) -> AnyRedis:
        client = self._store.reader()
        try:
            with explained(self._store.server):
                self._client_id = await client.client_id()
            await self._prepare()
            if self._must_recheck:
                await self._recheck(self.owners)
                self._must_recheck = False
        except BaseException:
            await _closed(client)
            raise
        return client

    async def _prepare(self) -> None:
        """Open two connections, so that a take or an unblock finds one."""
        redis = self._store.redis
        # With errors as results, gather waits for both requests.
        await asyncio.gather(redis.client_id(), redis.client_id(), return_exceptions=True)

    async def _read_or_wait(self, client: AnyRedis) -> None:
        """Read for all owners with room, or wait until one has room."""
        # If the entries of all partitions do not fit into one answer, the partitions are read in
        # turn, without waiting. Only when none of them has an event, one read waits for all.
        self._woken.clear()
        wanted = [
            owner
            for owner, broken in self._owners.items()
            if self._has_room(owner) and not broken.done()
        ]
        if not wanted:
            await self._wait_for_room(self._woken)
            return
        max_count = self._max_count(wanted)
        planned, count = self._sizes.plan(wanted, max_count)
        is_turn = len(planned) < len(wanted) and not self._empty.issuperset(wanted)
        if not is_turn:
            planned, count = wanted, self._sizes.count(wanted, max_count)
        self._reading = frozenset(wanted)
        try:
            if await self._read(client, planned, count, waits=not is_turn):
                self._empty.clear()
            elif is_turn:
                self._empty.update(planned)
        except RinkError:
            # Events of all partitions may have come meanwhile, with too many bytes for the timeout
            # of one answer. So the next reads take turns again.
            self._empty.clear()
            raise
        finally:
            self._reading = frozenset()
            self._round += 1

    async def _unblock(self, round_: int) -> None:
        """End the present read.

        The read may not have reached Redis yet, so this is repeated until the read has ended.
        """
        with contextlib.suppress(RinkError):  # the read ends by itself, at most a second later
            while self._round == round_ and self._reading:
                with explained(self._store.server):
                    await self._store.redis.execute_command("CLIENT UNBLOCK", self._client_id)
                await asyncio.sleep(_UNBLOCK_INTERVAL_S)


class ReaderPerPartition(Reader):
    """Read each partition by itself, since each has its slot on a cluster."""

    def __init__(self, store: Store, chunk: int, held: SharedMemory) -> None:
        super().__init__(store, chunk, held)
        self._tasks: dict[GrantOwner[Any], asyncio.Task[None]] = {}
        self._woken: dict[GrantOwner[Any], asyncio.Event] = {}

    def add(self, owner: GrantOwner[Any]) -> Broken:
        """Read for an owner, see `Reader.add`."""
        broken = super().add(owner)
        self._woken[owner] = asyncio.Event()
        self._tasks[owner] = self._start(self._run_one(owner))
        return broken

    def remove(self, owner: GrantOwner[Any]) -> None:
        """Stop reading for an owner."""
        super().remove(owner)
        self._woken.pop(owner, None)
        task = self._tasks.pop(owner, None)
        if task is not None:
            task.cancel()

    def wake(self, owner: GrantOwner[Any]) -> None:
        """Wake the reader for an owner that may have room again."""
        if owner in self._woken and self._has_room(owner):
            self._woken[owner].set()

    async def run(self) -> None:
        """Wait until cancelled, since each partition has its own task."""
        await asyncio.Event().wait()

    async def _run_one(self, owner: GrantOwner[Any]) -> None:
        pauses, must_recheck = RetryPauses("reading"), False
        client, woken, broken = self._store.reader(), self._woken[owner], self._owners[owner]
        while not broken.done():  # `remove` cancels it
            try:
                if must_recheck:
                    await self._recheck([owner])
                    must_recheck = False
                woken.clear()
                if self._has_room(owner):
                    count = self._sizes.count([owner], self._max_count([owner]))
                    await self._read(client, [owner], count)
                else:
                    await self._wait_for_room(woken)
                pauses.reset()
            except RinkError as error:
                must_recheck = True
                await asyncio.sleep(pauses.after(error))
            except Exception as error:  # a bug, which must reach the owner
                self.fail(owner, error)


async def _closed(client: AnyRedis | None) -> None:
    if client is not None:
        with contextlib.suppress(Exception):
            await client.aclose()
