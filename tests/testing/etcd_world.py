"""Describe the etcd of a contract test, and collect its messages."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

import attrs

from rink.etcd.api import (
    Etcd,
    KeepAliveAnswer,
    KeyChange,
    KeyValue,
    Put,
    Watch,
    WatchBroken,
    WatchEvents,
    WatchOpened,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE_TIMEOUT_S = 10.0  # a real server may be slow on a busy machine


@attrs.frozen
class World:
    """One etcd to test, empty under `prefix`, with a second client of it."""

    etcd: Etcd
    other: Etcd
    prefix: bytes
    compact: Callable[[int], None]
    pass_time: Callable[[float], None]  # seconds

    def key(self, name: str) -> bytes:
        return self.prefix + name.encode()

    @property
    def end(self) -> bytes:
        return self.prefix + b"\xff"

    def put(self, name: str, value: bytes = b"", lease: int = 0) -> int:
        """Write one key, and return the revision of the write."""
        return self.etcd.txn((), (Put(self.key(name), value, lease),)).header.revision

    def all(self) -> tuple[KeyValue, ...]:
        return self.etcd.range(self.prefix, self.end).kvs

    def names(self) -> list[str]:
        return [kv.key.removeprefix(self.prefix).decode() for kv in self.all()]

    def revision(self) -> int:
        return self.etcd.range(self.prefix).header.revision


class Seen:
    """Collect the messages of a watch or a keepalive stream."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[WatchEvents | WatchBroken | KeepAliveAnswer] = (
            queue.SimpleQueue()
        )
        self.openings = 0

    def deliver(self, message: WatchOpened | WatchEvents | WatchBroken | KeepAliveAnswer) -> None:
        if isinstance(message, WatchOpened):
            self.openings += 1
        else:
            self.queue.put(message)

    def events_until(self, revision: int) -> list[KeyChange]:
        """Return all events up to a revision, and check their order."""
        events: list[KeyChange] = []
        done = 0
        while done < revision:
            message = self.queue.get(timeout=MESSAGE_TIMEOUT_S)
            assert isinstance(message, WatchEvents), message
            revisions = [event.kv.mod_revision for event in message.events]
            assert revisions == sorted(revisions)
            assert revisions[0] > done, "a part of a revision, or a repeated revision"
            assert message.revision == revisions[-1]
            done = message.revision
            events += message.events
        return events

    def breaks_with(self, error: type[Exception], world: World, watch: Watch) -> None:
        """Check that the watch breaks with this error, and delivers nothing more."""
        message = self.queue.get(timeout=MESSAGE_TIMEOUT_S)
        assert isinstance(message, WatchBroken)
        assert isinstance(message.error, error)
        world.put("a")
        watch.close()
        assert self.queue.empty()

    def answers(self, count: int) -> list[KeepAliveAnswer]:
        answers = [self.queue.get(timeout=MESSAGE_TIMEOUT_S) for _ in range(count)]
        assert all(isinstance(answer, KeepAliveAnswer) for answer in answers)
        return answers


def short(events: list[KeyChange], world: World) -> list[tuple[str, bytes | None]]:
    """Return events as (name, value), or (name, None) for a deletion."""
    return [
        (e.kv.key.removeprefix(world.prefix).decode(), None if e.deleted else e.kv.value)
        for e in events
    ]
