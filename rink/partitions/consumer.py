"""The blocking face: `PartitionedConsumer` on threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Self

from rink.arguments import check_seconds
from rink.engine.caller_context import warn_in_event_loop
from rink.engine.clock import SIGNAL_CHECK_INTERVAL_S, ClockEvent
from rink.engine.signals import Signal
from rink.errors import EtcdClusterChanged
from rink.face_misuse import PlainFor
from rink.partitions.face import BaseAssignment, BaseConsumer, PartitionChange
from rink.partitions.table import PartitionRow
from rink.rink import Rink
from rink.roles import Role


class Assignment(BaseAssignment[Role]):  # noqa: D101 - documented by its base
    __doc__ = BaseAssignment.__doc__

    __slots__ = ()

    @property
    def lost(self) -> Signal:
        """Return the signal that is set when the partition is lost or released.

        Use `lost.wait(timeout)` and `lost.is_set()`.
        """
        return self._lanes.lost(self._lane)

    def commit(self, offset: int) -> None:
        """Commit an offset: everything before it is done.

        The next owner begins there.

        Raises:
            ConfigError: it is no whole number, or negative.
            UsageError: it is smaller than the committed one.
            RoleLost: the assignment was released.
            StaleToken: another has taken over, or the session was lost; nothing was changed.
            EtcdError: there was no answer: it may be committed or not. The next commit settles it.
        """
        offset = self._check(offset)
        cursor = self._lane.cursor
        with self._lane.committing:
            while (asked := cursor.commit(offset)) is not None:
                try:
                    result = self._lanes.topic.etcd.txn(asked.compare, asked.then, asked.otherwise)
                except EtcdClusterChanged:
                    cursor.lose_history()
                    raise
                if cursor.answered(offset, result):
                    return


class PartitionedConsumer(PlainFor, BaseConsumer[Role, Assignment]):  # noqa: D101 - documented by its base
    __doc__ = BaseConsumer.__doc__
    _rink_class = Rink
    _assignment_class = Assignment

    def __enter__(self) -> Self:
        """Begin to want every partition.

        Raises:
            ConfigError: the group's scheme, or the offsets that lie there, are of another number of
                partitions.
            StateError: an offset cannot be read; names the key.
            EtcdError: etcd could not be reached, or refused.
        """
        warn_in_event_loop("PartitionedConsumer()")
        topic = self._check_group()
        found = topic.etcd.range(topic.keys.root, topic.keys.end).kvs
        self._changed = ClockEvent()
        self._begin(topic, found, threading.Lock, self._changed.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __iter__(self) -> Iterator[PartitionChange[Assignment]]:
        """Yield each change, until the group or the `with` is left.

        It raises as `next_change` does.
        """
        while (change := self.next_change()) is not None:
            yield change

    def next_change(self, timeout: float | None = None) -> PartitionChange[Assignment] | None:
        """Return the next change.

        None where the timeout, in seconds, or everything is over.

        Raises:
            ConfigError: offsets of another number of partitions were found.
            StateError: the offset of a partition that is here cannot be read.
            StaleToken: a partition that is here was taken over under a greater token.
        """
        lanes = self._open
        lanes.topic.engine.refuse_own_thread("next_change()")
        clock = lanes.topic.engine.clock
        until = None if timeout is None else clock.now() + check_seconds("timeout", timeout)
        while True:
            is_over = lanes.is_over  # before the look: what was told before the end comes first
            if (change := self._take_change(lanes)) is not None:
                return change
            left = SIGNAL_CHECK_INTERVAL_S if until is None else until - clock.now()
            if is_over:
                self._changed.set()  # for whoever waits on another thread
            if is_over or left <= 0:
                return None
            self._changed.wait(min(left, SIGNAL_CHECK_INTERVAL_S))
            self._changed.clear()

    def commit(self, partition: int, offset: int) -> None:
        """Commit an offset of a partition.

        It is assigned here, or revoked and not released yet.

        Raises:
            ConfigError: it is no whole number, or negative.
            UsageError: it is smaller than the committed one, or there is no such partition.
            RoleLost: the partition is not assigned here.
            StaleToken: another has taken over, or the session was lost; nothing was changed.
            EtcdError: there was no answer: it may be committed or not. The next commit settles it.
        """
        self._assignment(partition).commit(offset)

    def table(self) -> tuple[PartitionRow, ...]:
        """Return a row for each partition: owner, standby, offset.

        The offsets are read from etcd.

        Raises:
            ConfigError: offsets of another number of partitions were found.
            StateError: an offset cannot be read; names the key.
            EtcdError: etcd could not be reached, or refused.
        """
        topic = self._topic
        return self._rows(topic.etcd.range(topic.keys.root, topic.keys.end).kvs)
