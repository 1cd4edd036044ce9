"""Offer `rink.partitions` for threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Self

from rink.arguments import check_seconds
from rink.engine.caller_context import warn_in_event_loop
from rink.engine.clock import SIGNAL_CHECK_INTERVAL_S, ClockEvent
from rink.engine.signals import Signal
from rink.errors import EtcdClusterChanged
from rink.partitions.base_consumer import BaseAssignment, BaseConsumer, PartitionChange
from rink.partitions.table import PartitionRow
from rink.rink import Rink
from rink.roles import Role
from rink.with_statements import PlainFor


class Assignment(BaseAssignment[Role]):  # noqa: D101 - documented by its base
    __doc__ = BaseAssignment.__doc__

    __slots__ = ()

    @property
    def lost(self) -> Signal:
        """Return the signal that is set when the partition is lost or released.

        Use `lost.wait(timeout)` and `lost.is_set()`.
        """
        return self._held_partitions.lost(self._held)

    def commit(self, offset: int) -> None:
        """Commit an offset, after all work before it is done.

        The next owner begins there.

        Raises:
            ConfigError: the offset is not a whole number, or negative.
            UsageError: the offset is smaller than the committed one.
            RoleLost: the assignment was released.
            StaleToken: another member took over, or the session was lost; nothing was changed.
            EtcdError: there was no answer, so the offset may be committed or not. The next commit
                settles it.
        """
        offset = self._check(offset)
        cursor = self._held.cursor
        with self._held.committing:
            while (request := cursor.commit(offset)) is not None:
                try:
                    result = self._held_partitions.topic.etcd.txn(*request)
                except EtcdClusterChanged:
                    cursor.lose_history()
                    raise
                if cursor.answered(offset, result):
                    return


class PartitionedConsumer(PlainFor, BaseConsumer[Role, Assignment]):  # noqa: D101 - see its base
    __doc__ = BaseConsumer.__doc__
    _rink_class = Rink
    _assignment_class = Assignment

    def __enter__(self) -> Self:
        """Request every partition.

        Raises:
            ConfigError: the group's scheme, or a committed offset, has another number of
                partitions.
            StateError: an offset cannot be read; the message names the key.
            EtcdError: etcd could not be reached, or refused the request.
        """
        warn_in_event_loop("PartitionedConsumer()")
        topic = self._check_group()
        kvs = topic.etcd.range(topic.keys.root, topic.keys.end).kvs
        self._changed = ClockEvent()
        self._begin(topic, kvs, threading.Lock, self._changed.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __iter__(self) -> Iterator[PartitionChange[Assignment]]:
        """Yield each change, until the group or the `with` is left.

        It raises the errors of `next_change`.
        """
        while (change := self.next_change()) is not None:
            yield change

    def next_change(self, timeout: float | None = None) -> PartitionChange[Assignment] | None:
        """Return the next change, or None after `timeout` seconds or at the end.

        Raises:
            ConfigError: an offset of another number of partitions was found.
            StateError: the offset of a partition of this member cannot be read.
            StaleToken: a partition of this member was taken over under a greater token.
        """
        held_partitions = self._open
        held_partitions.topic.engine.refuse_own_thread("next_change()")
        clock = held_partitions.topic.engine.clock
        until = None if timeout is None else clock.now() + check_seconds("timeout", timeout)
        while True:
            is_over = held_partitions.is_over  # read first: changes before the end are returned
            if (change := self._take_change(held_partitions)) is not None:
                return change
            left = SIGNAL_CHECK_INTERVAL_S if until is None else until - clock.now()
            if is_over:
                self._changed.set()  # wake the next thread that waits
            if is_over or left <= 0:
                return None
            self._changed.wait(min(left, SIGNAL_CHECK_INTERVAL_S))
            self._changed.clear()

    def commit(self, partition: int, offset: int) -> None:
        """Commit an offset of a partition, like `Assignment.commit`.

        The partition must be assigned here, or revoked and not released yet.

        Raises:
            UsageError: the offset is smaller than the committed one, or there is no such partition.
            RoleLost: the partition is not assigned here.
        """
        self._assignment(partition).commit(offset)

    def table(self) -> tuple[PartitionRow, ...]:
        """Return a row for each partition: owner, standby, offset.

        The offsets are read from etcd.

        Raises:
            ConfigError: an offset of another number of partitions was found.
            StateError: an offset cannot be read; the message names the key.
            EtcdError: etcd could not be reached, or refused the request.
        """
        topic = self._topic
        return self._rows(topic.etcd.range(topic.keys.root, topic.keys.end).kvs)
