"""Run an etcd in memory, with etcd's promises and faults on command.

    cluster = MemoryCluster()
    one, two = cluster.client("one"), cluster.client("two")    # each an rink.etcd.api.Etcd
    two.cut()

By default time is real, and a thread ends leases. With a `clock`, the caller controls time. Leases
then end at the next call, or at `tick()`.

By default each stream has a thread that delivers its messages. With `pumped=True` only `pump()` of
the cluster, or of one stream in `streams`, delivers them. So a simulation can hold, delay and order
the messages of watches and keepalives. With both, a cluster uses no thread and is deterministic.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, Self

from rink.testing.memory.client import HeldTxn, MemoryEtcd
from rink.testing.memory.state import MemoryState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rink.testing.memory.watches import AnyStream

__all__ = ["HeldTxn", "MemoryClock", "MemoryCluster", "MemoryEtcd"]


# The real client reads the same clock. CLOCK_BOOTTIME counts suspended time.
_REAL_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class MemoryClock(Protocol):
    """Describe a clock that a test controls."""

    def now(self) -> float:
        """Return the seconds since a fixed moment; the value never goes back."""


class MemoryCluster:
    """Run an in-memory etcd, which any number of clients and threads share.

    Args:
        clock: the clock of leases; None is real time.
        pumped: deliver messages only by `pump`.

    Attributes:
        store: the state. Change it only through clients and the methods of this class.
        streams: the open watches and keepalive streams of all clients, in the order of opening.
        pumped: the argument.
        is_virtual: True if there is a `clock`.
        restores: the number of restored backups.
        lock: guards the state, the streams and their inboxes.
    """

    def __init__(self, *, clock: MemoryClock | None = None, pumped: bool = False) -> None:
        self.store = MemoryState()
        self.streams: list[AnyStream] = []
        self.pumped = pumped
        self.is_virtual = clock is not None
        self.restores = 0
        self.lock = threading.RLock()
        self._clock = clock
        self._leases_changed = threading.Condition(self.lock)
        self._timer: threading.Thread | None = None
        self._timer_ends = math.inf
        self._closed = False
        self._clients: list[MemoryEtcd] = []

    def client(self, name: str | None = None) -> MemoryEtcd:
        """Connect a new client; its name is for errors and `repr`."""
        with self.lock:
            client = MemoryEtcd(self, name or f"client-{len(self._clients)}")
            self._clients.append(client)
            return client

    def close(self) -> None:
        """Close every client."""
        with self.lock:
            self._closed = True
            self._leases_changed.notify()
        for client in self._clients:
            client.close()
        if self._timer is not None:
            self._timer.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> float:
        """Return the seconds on the cluster's clock."""
        return self._clock.now() if self._clock else time.clock_gettime(_REAL_CLOCK)

    def tick(self) -> None:
        """End the expired leases; call this if only the clock has moved."""
        with self.change():
            pass

    @property
    def next_expiry(self) -> float | None:
        """Return the time of the next lease's end, on the cluster's clock."""
        with self.lock:
            return self.store.next_expiry

    def pump(self) -> int:
        """Deliver a pumped cluster's messages, and return their number.

        Each round delivers one message of each stream. Deliveries may cause further messages, which
        are delivered, too.
        """
        count = 0
        while delivered := sum(stream.pump() for stream in list(self.streams)):
            count += delivered
        return count

    @property
    def leases(self) -> list[int]:
        """Return the ids of the live leases, oldest first."""
        with self.change() as store:
            return store.lease_ids

    def expire_lease(self, lease: int) -> None:
        """End a lease before its time; an unknown lease is no error."""
        with self.change() as store:
            store.revoke(lease)

    def compact(self, revision: int) -> None:
        """Forget the history before a revision.

        Raises:
            EtcdCompacted: the revision is compacted already.
            EtcdError: the revision does not exist yet.
        """
        with self.change() as store:
            store.compact(revision)

    def backup(self) -> MemoryState:
        """Return a copy of the state, for `restore_backup`."""
        with self.change() as store:
            return store.copy()

    def restore_backup(self, backup: MemoryState) -> None:
        """Go back to a backup, with another cluster id.

        Watches end with `EtcdClusterChanged`, and each client's next call raises it.
        """
        with self.change():
            self.store = self.store.restored(backup, self.now())
            self.restores += 1

    def replace_history(self, backup: MemoryState | None = None) -> None:
        """Replace the state by a backup or an empty state, with the same ids.

        This simulates an etcd that lost its volume, or was restored with a bumped revision. The
        headers show only a later revision. All connections break.
        """
        with self.change():
            self.store = self.store.replaced(backup, self.now())
            for stream in self.streams:
                stream.cut()

    @contextmanager
    def change(self) -> Iterator[MemoryState]:
        """End expired leases, yield the locked state, and send its changes."""
        with self.lock:
            self.store.expire(self.now())
            try:
                yield self.store
            finally:
                for stream in self.streams:
                    stream.catch_up()
                if self._clock is None:
                    self._set_timer()

    def _set_timer(self) -> None:
        expiry = self.store.next_expiry
        if expiry is None or expiry >= self._timer_ends:
            return  # the timer wakes earlier, and then checks again
        self._timer_ends = expiry
        if self._timer is None:
            self._timer = threading.Thread(
                target=self._run_timer, name="memory-etcd-leases", daemon=True
            )
            self._timer.start()
        self._leases_changed.notify()

    def _run_timer(self) -> None:
        with self.lock:
            while not self._closed:
                endless = math.isinf(self._timer_ends)
                self._leases_changed.wait(None if endless else self._timer_ends - self.now())
                if self.now() >= self._timer_ends:
                    self._timer_ends = math.inf
                    self.tick()
