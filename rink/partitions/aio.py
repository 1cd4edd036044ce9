"""The asyncio face: the same names as `rink.partitions`; what waits is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Self

from rink._asyncio import soon_in_loop
from rink.aio import Lost, Rink, Role
from rink.arguments import check_seconds
from rink.errors import EtcdClusterChanged
from rink.face_misuse import AsyncFor
from rink.partitions.face import BaseAssignment, BaseConsumer, PartitionChange
from rink.partitions.table import PartitionRow

__all__ = ["Assignment", "PartitionChange", "PartitionRow", "PartitionedConsumer"]


class Assignment(BaseAssignment[Role]):  # noqa: D101 - documented by its base
    __doc__ = BaseAssignment.__doc__

    __slots__ = ()

    @property
    def lost(self) -> Lost:
        """Return the signal that is set when the partition is lost or released.

        Use `await lost.wait(timeout)` and `lost.is_set()`.
        """
        return Lost(self._lanes.lost(self._lane))

    async def commit(self, offset: int) -> None:
        """Commit an offset: everything before it is done.

        The next owner begins there. A commit that is cancelled may have been done or not, as one
        without an answer.

        Raises:
            ConfigError: it is no whole number, or negative.
            UsageError: it is smaller than the committed one.
            RoleLost: the assignment was released.
            StaleToken: another has taken over, or the session was lost; nothing was changed.
            EtcdError: there was no answer: it may be committed or not. The next commit settles it.
        """
        offset = self._check(offset)
        cursor, etcd = self._lane.cursor, self._lanes.topic.etcd
        async with self._lane.committing:
            while (asked := cursor.commit(offset)) is not None:
                send = asyncio.to_thread(etcd.txn, asked.compare, asked.then, asked.otherwise)
                try:
                    result = await send
                except EtcdClusterChanged:
                    cursor.lose_history()
                    raise
                if cursor.answered(offset, result):
                    return


class PartitionedConsumer(AsyncFor, BaseConsumer[Role, Assignment]):  # noqa: D101 - documented by its base
    __doc__ = BaseConsumer.__doc__
    _rink_class = Rink
    _assignment_class = Assignment

    async def __aenter__(self) -> Self:
        """Begin to want every partition.

        Raises:
            ConfigError: the group's scheme, or the offsets that lie there, are of another number of
                partitions.
            StateError: an offset cannot be read; names the key.
            EtcdError: etcd could not be reached, or refused.
        """
        topic = self._check_group()
        found = await asyncio.to_thread(topic.etcd.range, topic.keys.root, topic.keys.end)
        self._changed = asyncio.Event()
        self._begin(topic, found.kvs, asyncio.Lock, soon_in_loop(self._changed.set))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    async def __aiter__(self) -> AsyncIterator[PartitionChange[Assignment]]:
        """Yield each change, until the group or the `with` is left.

        It raises as `next_change` does.
        """
        while (change := await self.next_change()) is not None:
            yield change

    async def next_change(self, timeout: float | None = None) -> PartitionChange[Assignment] | None:
        """Return the next change.

        None where the timeout, in seconds, or everything is over.

        Raises:
            ConfigError: offsets of another number of partitions were found.
            StateError: the offset of a partition that is here cannot be read.
            StaleToken: a partition that is here was taken over under a greater token.
        """
        lanes, loop = self._open, asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + check_seconds("timeout", timeout)
        while True:
            is_over = lanes.is_over  # before the look: what was told before the end comes first
            if (change := self._take_change(lanes)) is not None or is_over:
                return change
            self._changed.clear()  # what has come since that look has yet to set it, in this loop
            try:
                async with asyncio.timeout_at(until):
                    await self._changed.wait()
            except TimeoutError:
                return self._take_change(lanes)

    async def commit(self, partition: int, offset: int) -> None:
        """Commit an offset of a partition.

        It is assigned here, or revoked and not released yet.

        Raises:
            ConfigError: it is no whole number, or negative.
            UsageError: it is smaller than the committed one, or there is no such partition.
            RoleLost: the partition is not assigned here.
            StaleToken: another has taken over, or the session was lost; nothing was changed.
            EtcdError: there was no answer: it may be committed or not. The next commit settles it.
        """
        await self._assignment(partition).commit(offset)

    async def table(self) -> tuple[PartitionRow, ...]:
        """Return a row for each partition: owner, standby, offset.

        The offsets are read from etcd.

        Raises:
            ConfigError: offsets of another number of partitions were found.
            StateError: an offset cannot be read; names the key.
            EtcdError: etcd could not be reached, or refused.
        """
        topic = self._topic
        found = await asyncio.to_thread(topic.etcd.range, topic.keys.root, topic.keys.end)
        return self._rows(found.kvs)
