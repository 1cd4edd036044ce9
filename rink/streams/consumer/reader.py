"""Reads all partitions of a processor in one blocking XREAD; on a cluster, each in a read of its own.

XREAD changes nothing in Redis, so an answer that comes late, or for a grant that is over, is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from rink._cancel import end
from rink.errors import RinkError, StateError
from rink.redis.async_client import AnyRedis
from rink.redis.error_map import timed_out, explained
from rink.redis.errors import RedisError, RedisUnavailable
from rink.redis.retry import RetryPauses
from rink.streams.consumer.owner import GrantOwner
from rink.streams.store.byte_limits import SharedMemory, Sizes
from rink.streams.store.store import Store

log = logging.getLogger("rink.streams")

_UNBLOCK_AGAIN_S = 0.001
_RESTS_S = (5.0, 60.0)
"""Shortest and longest pause before an event that did not come in time is asked for again."""

Broken = asyncio.Future[None]
"""Fails where an owner's partition cannot be read, or was rolled back."""


def make_reader(store: Store, prefetch: int, held: SharedMemory) -> Reader:
    """Return the reader that a store needs.

    Args:
        store: where.
        prefetch: how many events an owner may hold.
        held: the memory that all owners of the worker share.
    """
    chunk = max(prefetch // 4, 1)
    make = ReaderPerPartition if store.is_cluster else SharedReader
    return make(store, chunk, held)


class Reader:
    """Reads for all owners of one processor in this worker.

    Args:
        store: where.
        chunk: how many events to read of a partition at once; it must have room for so many while a commit may bring it.
        held: the memory that all owners of the worker share.
    """

    def __init__(self, store: Store, chunk: int, held: SharedMemory) -> None:
        self._store = store
        self._chunk = chunk
        self._held = held
        self._sizes: Sizes[GrantOwner[Any]] = Sizes(store.limits.reply)
        # Until when each rests, and how long that was, in seconds.
        self._rests: dict[GrantOwner[Any], tuple[float, float]] = {}
        self._owners: dict[GrantOwner[Any], Broken] = {}
        self._helpers: set[asyncio.Task[None]] = set()

    def _start(self, helper: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(helper)
        self._helpers.add(task)
        task.add_done_callback(self._helpers.discard)
        return task

    async def close(self) -> None:
        """End whatever still reads; nobody is read for any more."""
        await end(list(self._helpers))

    def add(self, owner: GrantOwner[Any]) -> Broken:
        """Read for an owner; returns what fails where that cannot go on."""
        broken = self._owners[owner] = asyncio.get_running_loop().create_future()
        self._held.enter(owner, owner.note_share)
        if owner.inbox.ready:  # came along with the take
            self._sizes.note(owner, owner.inbox.ready, owner.inbox.size)
        if owner.left_out:
            self._sizes.note(owner, 1, owner.left_out)
        return broken

    def remove(self, owner: GrantOwner[Any]) -> None:
        """Read for it no longer."""
        broken = self._owners.pop(owner, None)
        if broken is not None:
            broken.cancel()
            self._held.leave(owner)
            self._sizes.forget(owner)
            self._rests.pop(owner, None)

    @property
    def first_bytes(self) -> int:
        """Return how many bytes of events a take may bring."""
        return min(self._store.limits.reply, self._held.share)

    @property
    def share(self) -> int:
        """Return how many bytes a partition may hold, before more is read of it."""
        return self._held.share

    @property
    def owners(self) -> list[GrantOwner[Any]]:
        """Return the owners that it reads for."""
        return list(self._owners)

    def fail(self, owner: GrantOwner[Any], error: Exception) -> None:
        """End an owner with this error."""
        broken = self._owners.get(owner)
        if broken is not None and not broken.done():
            broken.set_exception(error)
            broken.exception()  # it may end for another reason first: then nobody asks

    def wake(self, owner: GrantOwner[Any]) -> None:
        """Wake the reader: it may have room again."""
        raise NotImplementedError

    async def run(self) -> None:
        """Read until cancelled."""
        raise NotImplementedError

    def _has_room(self, owner: GrantOwner[Any]) -> bool:
        # One that has nothing left to give or to commit may wait for more: then a little room is enough.
        least = self._chunk if owner.inbox.ready or owner.inbox.has_finished else 1
        has_memory = owner.looks_ahead or owner.inbox.size < self._held.share
        return has_memory and owner.inbox.room >= least and not self._is_resting(owner)

    def _most(self, wanted: Sequence[GrantOwner[Any]]) -> int:
        """Return how many entries of each may be asked for."""
        return min(self._chunk, *(owner.inbox.room for owner in wanted))

    async def _read(
        self,
        client: AnyRedis,
        owners: Sequence[GrantOwner[Any]],
        count: int,
        *,
        waits: bool = True,
    ) -> bool:
        """Read once for these owners, and give each its events.

        Args:
            client: a connection for reads.
            owners: the owners of the partitions.
            count: the most entries of each.
            waits: wait for an event if there is none.

        Returns:
            Whether there was anything.
        """
        asked = {owner.place.names.stream: (owner, owner.inbox.read_to) for owner in owners}
        positions = {key: position for key, (_, position) in asked.items()}
        try:
            found = dict(await self._store.read(client, positions, count, waits=waits))
        except RedisUnavailable as error:
            if timed_out(error) and not self._sizes.halve(owners, count):
                self._rest(owners[0], error)
            raise
        for key, (owner, position) in asked.items():
            entries = found.get(key, [])
            if owner not in self._owners:
                continue
            self._rests.pop(owner, None)
            if owner.inbox.read_to == position:
                before = owner.inbox.size
                owner.feed(entries)
                self._sizes.note(owner, len(entries), owner.inbox.size - before)
        return bool(found)

    async def _wait_for_room(self, woken: asyncio.Event) -> None:
        """Wait until an owner has room; a second at most if one rests."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0 if self._rests else None):
                await woken.wait()

    def _rest(self, owner: GrantOwner[Any], error: RedisUnavailable) -> None:
        """Read the other partitions, while the one with a large event rests."""
        first, longest = _RESTS_S
        pause = min(self._rests[owner][1] * 2, longest) if owner in self._rests else first
        self._rests[owner] = time.monotonic() + pause, pause
        log.warning(
            "%s waits: one event, the first behind %s, did not come within %g s, and is asked for again in %.0f s. If "
            "it is large or the network is slow, raise socket_timeout of the Redis client: %s",
            owner.place.role, owner.inbox.read_to, self._store.answer_timeout_s, pause, error,
        )  # fmt: skip

    def _is_resting(self, owner: GrantOwner[Any]) -> bool:
        return owner in self._rests and time.monotonic() < self._rests[owner][0]

    async def _recheck(self, owners: Sequence[GrantOwner[Any]]) -> None:
        """After a reconnect: does Redis still know what each owner knows?"""
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
    """One connection and one blocking read for all partitions."""

    def __init__(self, store: Store, chunk: int, held: SharedMemory) -> None:
        super().__init__(store, chunk, held)
        self._woken = asyncio.Event()
        self._found_nothing: set[GrantOwner[Any]] = set()  # of those that were asked in turn
        self._reading: frozenset[GrantOwner[Any]] = frozenset()
        self._round = 0
        self._unblocking: asyncio.Task[None] | None = None
        self._client_id = 0
        self._must_recheck = False

    def add(self, owner: GrantOwner[Any]) -> Broken:
        """Read for an owner; returns what fails where that cannot go on."""
        broken = super().add(owner)
        self.wake(owner)
        return broken

    def wake(self, owner: GrantOwner[Any]) -> None:
        """Wake the reader, which may have room again.

        It must not wait for the read that is under way without it.
        """
        if owner in self._reading or owner not in self._owners or not self._has_room(owner):
            return
        self._woken.set()
        if self._reading and (self._unblocking is None or self._unblocking.done()):
            self._unblocking = self._start(self._unblock(self._round))

    async def run(self) -> None:
        """Read until cancelled."""
        patience = RetryPauses("reading")
        client: AnyRedis | None = None
        try:
            while True:
                try:
                    client = client or await self._connect()
                    await self._look(client)
                    patience.reset()
                except Exception as error:
                    self._must_recheck = True
                    await _closed(client)
                    client = None
                    if not isinstance(error, RinkError):  # nobody else would notice it
                        for owner in self.owners:
                            self.fail(owner, error)
                    await asyncio.sleep(
                        patience.after(error, at_once=isinstance(error, StateError))
                    )
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
        """Have two connections at hand: a take and the end of a read are no moments to open one."""
        redis = self._store.redis
        # Errors as results: at the first error, gather would leave the other request to itself.
        await asyncio.gather(redis.client_id(), redis.client_id(), return_exceptions=True)

    async def _look(self, client: AnyRedis) -> None:
        """One read for all who have room, or a wait until somebody has."""
        self._woken.clear()
        wanted = [
            owner
            for owner, broken in self._owners.items()
            if self._has_room(owner) and not broken.done()
        ]
        if not wanted:
            await self._wait_for_room(self._woken)
            return
        most = self._most(wanted)
        asked, count = self._sizes.plan(wanted, most)
        # They do not go into one answer: each has its turn, without a wait, until none has an event.
        is_turn = len(asked) < len(wanted) and not self._found_nothing.issuperset(wanted)
        if not is_turn:
            asked, count = wanted, self._sizes.count(wanted, most)
        self._reading = frozenset(wanted)
        try:
            if await self._read(client, asked, count, waits=not is_turn):
                self._found_nothing.clear()
            elif is_turn:
                self._found_nothing.update(asked)
        except RinkError:
            # Events may have come meanwhile, of all of them: in one answer they may be too large for its time.
            self._found_nothing.clear()
            raise
        finally:
            self._reading = frozenset()
            self._round += 1

    async def _unblock(self, round_: int) -> None:
        """End the read that is under way; it may not have reached Redis yet, so ask again."""
        with contextlib.suppress(RinkError):  # then it ends by itself, a moment later
            while self._round == round_ and self._reading:
                with explained(self._store.server):
                    await self._store.redis.execute_command("CLIENT UNBLOCK", self._client_id)
                await asyncio.sleep(_UNBLOCK_AGAIN_S)


class ReaderPerPartition(Reader):
    """A blocking read for each partition: on a cluster each has a slot of its own."""

    def __init__(self, store: Store, chunk: int, held: SharedMemory) -> None:
        super().__init__(store, chunk, held)
        self._tasks: dict[GrantOwner[Any], asyncio.Task[None]] = {}
        self._woken: dict[GrantOwner[Any], asyncio.Event] = {}

    def add(self, owner: GrantOwner[Any]) -> Broken:
        """Read for an owner; returns what fails where that cannot go on."""
        broken = super().add(owner)
        self._woken[owner] = asyncio.Event()
        self._tasks[owner] = self._start(self._run_one(owner))
        return broken

    def remove(self, owner: GrantOwner[Any]) -> None:
        """Read for it no longer."""
        super().remove(owner)
        self._woken.pop(owner, None)
        task = self._tasks.pop(owner, None)
        if task is not None:
            task.cancel()

    def wake(self, owner: GrantOwner[Any]) -> None:
        """Wake the reader: it may have room again."""
        if owner in self._woken and self._has_room(owner):
            self._woken[owner].set()

    async def run(self) -> None:
        """Wait until cancelled: each partition reads for itself."""
        await asyncio.Event().wait()

    async def _run_one(self, owner: GrantOwner[Any]) -> None:
        patience, must_recheck = RetryPauses("reading"), False
        client, woken, broken = self._store.reader(), self._woken[owner], self._owners[owner]
        while not broken.done():  # also where it was removed
            try:
                if must_recheck:
                    await self._recheck([owner])
                    must_recheck = False
                woken.clear()
                if self._has_room(owner):
                    count = self._sizes.count([owner], self._most([owner]))
                    await self._read(client, [owner], count)
                else:
                    await self._wait_for_room(woken)
                patience.reset()
            except RinkError as error:
                must_recheck = True
                await asyncio.sleep(patience.after(error))
            except Exception as error:  # nobody else would notice that nothing is read any more
                self.fail(owner, error)


async def _closed(client: AnyRedis | None) -> None:
    if client is not None:
        with contextlib.suppress(Exception):
            await client.aclose()
