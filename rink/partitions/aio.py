"""Offer `rink.partitions` for asyncio, with the same names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Self

from rink._asyncio import soon_in_loop
from rink.aio import Lost, Rink, Role
from rink.arguments import check_seconds
from rink.errors import EtcdClusterChanged
from rink.partitions.base_consumer import BaseAssignment, BaseConsumer, PartitionChange
from rink.partitions.table import PartitionRow
from rink.with_statements import AsyncFor

__all__ = ["Assignment", "PartitionChange", "PartitionRow", "PartitionedConsumer"]


class Assignment(BaseAssignment[Role]):  # noqa: D101 - documented by its base
    __doc__ = BaseAssignment.__doc__

    __slots__ = ()

    @property
    def lost(self) -> Lost:
        """Return the signal that is set when the partition is lost or released."""
        return Lost(self._held_partitions.lost(self._held))

    async def commit(self, offset: int) -> None:
        """Commit an offset, like `rink.partitions.Assignment.commit`.

        A cancelled commit may or may not be done, like a commit without an answer.
        """
        offset = self._check(offset)
        cursor, etcd = self._held.cursor, self._held_partitions.topic.etcd
        async with self._held.committing:
            while (request := cursor.commit(offset)) is not None:
                try:
                    result = await asyncio.to_thread(etcd.txn, *request)
                except EtcdClusterChanged:
                    cursor.lose_history()
                    raise
                if cursor.answered(offset, result):
                    return


class PartitionedConsumer(AsyncFor, BaseConsumer[Role, Assignment]):  # noqa: D101 - see its base
    __doc__ = BaseConsumer.__doc__
    _rink_class = Rink
    _assignment_class = Assignment

    async def __aenter__(self) -> Self:
        """Request every partition; raise the errors of the blocking consumer."""
        topic = self._check_group()
        result = await asyncio.to_thread(topic.etcd.range, topic.keys.root, topic.keys.end)
        self._changed = asyncio.Event()
        self._begin(topic, result.kvs, asyncio.Lock, soon_in_loop(self._changed.set))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    async def __aiter__(self) -> AsyncIterator[PartitionChange[Assignment]]:
        """Yield each change, until the group or the `with` is left."""
        while (change := await self.next_change()) is not None:
            yield change

    async def next_change(self, timeout: float | None = None) -> PartitionChange[Assignment] | None:
        """Return the next change, or None after `timeout` seconds or at the end.

        It raises the errors of `rink.partitions.PartitionedConsumer.next_change`.
        """
        held_partitions, loop = self._open, asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + check_seconds("timeout", timeout)
        while True:
            is_over = held_partitions.is_over  # read first: changes before the end are returned
            if (change := self._take_change(held_partitions)) is not None or is_over:
                return change
            self._changed.clear()  # a change since then sets it later, in this loop
            try:
                async with asyncio.timeout_at(until):
                    await self._changed.wait()
            except TimeoutError:
                return self._take_change(held_partitions)

    async def commit(self, partition: int, offset: int) -> None:
        """Commit an offset of a partition, like the blocking consumer."""
        await self._assignment(partition).commit(offset)

    async def table(self) -> tuple[PartitionRow, ...]:
        """Return a row for each partition: owner, standby, offset (from etcd)."""
        topic = self._topic
        result = await asyncio.to_thread(topic.etcd.range, topic.keys.root, topic.keys.end)
        return self._rows(result.kvs)
