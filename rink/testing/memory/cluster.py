"""An etcd in this process: the same promises as the real one, faults on command, no server.

    cluster = MemoryCluster()
    one, two = cluster.client("one"), cluster.client("two")    # each an rink.etcd.api.Etcd
    two.cut()

Time is real by default, and a small thread ends leases. With a `clock` it is the caller's: leases
end on the next call, or on `tick()`, once the clock says so (`next_expiry` tells when that will
be). Delivery is by a thread per stream by default. With `pumped=True` nothing is delivered until
`pump()`, or `pump()` of one stream in `streams`, is called: so a simulation holds, delays and
orders what watches and keepalives say.

With both, a cluster uses no thread and is deterministic.
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


class MemoryClock(Protocol):
    """What tells the time."""

    def now(self) -> float:
        """Return the seconds since some fixed moment; never goes back."""
        ...


class _RealClock:
    # The clock that the real client reads: it counts suspend, where there is one that does.
    _clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> float:
        return time.clock_gettime(self._clock)


class MemoryCluster:
    """An in-memory etcd that any number of clients share. May be used from any thread.

    Args:
        clock: whose time leases live by; None is real time.
        pumped: deliver nothing before `pump`.

    Attributes:
        store: its state; change it only through clients and the methods here.
        streams: the open watches and keepalive streams of all clients, in the order of opening.
        pumped: as given.
        restores: how many times a backup was restored.
    """

    def __init__(self, *, clock: MemoryClock | None = None, pumped: bool = False) -> None:
        self.store = MemoryState()
        self.streams: list[AnyStream] = []
        self.pumped = pumped
        self.restores = 0
        self.lock = threading.RLock()
        self._clock = clock or _RealClock()
        self._real_time = clock is None
        self._leases_changed = threading.Condition(self.lock)
        self._timer: threading.Thread | None = None
        self._timer_ends = math.inf
        self._closed = False
        self._clients: list[MemoryEtcd] = []

    def client(self, name: str | None = None) -> MemoryEtcd:
        """Connect a new client.

        Args:
            name: says whose it is; None counts.
        """
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
        return self._clock.now()

    def tick(self) -> None:
        """End the leases whose time is over; needed when the clock moves and nobody calls."""
        with self.change():
            pass

    @property
    def next_expiry(self) -> float | None:
        """Return when the next lease ends if it is not renewed.

        The time is on the cluster's clock.
        """
        with self.lock:
            return self.store.next_expiry

    def pump(self) -> int:
        """Deliver until nothing waits, in turn one message of each stream; how many it was.

        What is caused by a delivery is delivered too. Only for a pumped cluster.
        """
        count = 0
        while delivered := sum(stream.pump() for stream in list(self.streams)):
            count += delivered
        return count

    def expire_lease(self, lease: int) -> None:
        """End a lease before its time, as `tick` would; an unknown one is fine."""
        with self.change() as store:
            store.revoke(lease)

    def compact(self, revision: int) -> None:
        """Forget the history before a revision.

        Raises:
            EtcdCompacted: it has been compacted already.
            EtcdError: it is yet to come.
        """
        with self.change() as store:
            store.compact(revision)

    def backup(self) -> MemoryState:
        """Everything as it is now, for `restore_backup`."""
        with self.change() as store:
            return store.copy()

    def restore_backup(self, backup: MemoryState) -> None:
        """Go back to a backup, as another cluster.

        Watches end with `EtcdClusterChanged`, and each client's next call raises it.
        """
        with self.change():
            self.store = self.store.restored(backup, self.now())
            self.restores += 1

    def replace_history(self, backup: MemoryState | None = None) -> None:
        """Replace the store by a backup or an empty one, unseen in headers.

        As in an etcd that lost its volume, or was restored with a bumped revision, cluster id and
        raft term are the same, and the revision is ahead. All connections break.
        """
        with self.change():
            self.store = self.store.replaced(backup, self.now())
            for stream in self.streams:
                stream.cut()

    @contextmanager
    def change(self) -> Iterator[MemoryState]:
        """Hold the lock, with leases ended up to now, and send what has changed at the end."""
        with self.lock:
            self.store.expire(self.now())
            try:
                yield self.store
            finally:
                for stream in self.streams:
                    stream.catch_up()
                if self._real_time:
                    self._set_timer()

    def _set_timer(self) -> None:
        expiry = self.store.next_expiry
        if expiry is None or expiry >= self._timer_ends:
            return  # it looks again when it ends
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
