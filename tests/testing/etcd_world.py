"""One etcd to test, whichever it is, and what its streams delivered."""

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

PATIENCE_S = 10.0  # for what must come; on a busy machine a real server may take its time


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
        """Write one key; the revision that made."""
        return self.etcd.txn((), (Put(self.key(name), value, lease),)).header.revision

    def all(self) -> tuple[KeyValue, ...]:
        return self.etcd.range(self.prefix, self.end).kvs

    def names(self) -> list[str]:
        return [kv.key.removeprefix(self.prefix).decode() for kv in self.all()]

    def revision(self) -> int:
        return self.etcd.range(self.prefix).header.revision


class Seen:
    """What a watch or a keepalive stream delivered."""

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
        """All events up to a revision, checked to be whole and in order."""
        events: list[KeyChange] = []
        done = 0
        while done < revision:
            message = self.queue.get(timeout=PATIENCE_S)
            assert isinstance(message, WatchEvents), message
            revisions = [event.kv.mod_revision for event in message.events]
            assert revisions == sorted(revisions)
            assert revisions[0] > done, "a part of a revision, or one seen before"
            assert message.revision == revisions[-1]
            done = message.revision
            events += message.events
        return events

    def breaks_with(self, error: type[Exception], world: World, watch: Watch) -> None:
        """The watch, which has been read so far, breaks with this error and tells no more."""
        message = self.queue.get(timeout=PATIENCE_S)
        assert isinstance(message, WatchBroken)
        assert isinstance(message.error, error)
        world.put("a")
        watch.close()
        assert self.queue.empty()

    def answers(self, count: int) -> list[KeepAliveAnswer]:
        found = [self.queue.get(timeout=PATIENCE_S) for _ in range(count)]
        assert all(isinstance(answer, KeepAliveAnswer) for answer in found)
        return found


def told(events: list[KeyChange], world: World) -> list[tuple[str, bytes | None]]:
    """Events in short: (name, value), or (name, None) for a deletion."""
    return [
        (e.kv.key.removeprefix(world.prefix).decode(), None if e.deleted else e.kv.value)
        for e in events
    ]
