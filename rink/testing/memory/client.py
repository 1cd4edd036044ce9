"""Connect a member to an in-memory etcd, and break the connection."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from rink.errors import ClosedError, EtcdClusterChanged, EtcdUnavailable, UsageError
from rink.etcd.api import (
    Compare,
    GrantedLease,
    KeepAliveAnswer,
    Op,
    RangeResult,
    TxnResult,
    WatchMessage,
)
from rink.testing.memory.watches import (
    AnyStream,
    MemoryKeepAlives,
    MemoryWatch,
    StreamCluster,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rink.testing.memory.state import MemoryState

_Txn = tuple[tuple[Compare, ...], tuple[Op, ...], tuple[Op, ...]]


class HeldTxn:
    """Hold a transaction that arrives late or never; its caller got no answer.

    Attributes:
        is_sent: True once the transaction was sent. Until then there is nothing to apply.
    """

    def __init__(self, cluster: StreamCluster) -> None:
        self.is_sent = False
        self._cluster = cluster
        self._txn: _Txn | None = None

    def apply(self) -> TxnResult:
        """Apply the transaction now, and return its result.

        Raises:
            UsageError: the transaction was not sent yet, or was applied or dropped before.
            EtcdError: etcd refuses the transaction.
        """
        txn = self._take()
        with self._cluster.change() as store:
            return store.txn(*txn)

    def drop(self) -> None:
        """Drop the transaction, so that it never arrives; see `apply` for errors."""
        self._take()

    def hold(self, txn: _Txn) -> NoReturn:
        """Keep a transaction that was sent, and raise EtcdUnavailable."""
        self.is_sent = True
        self._txn = txn
        raise EtcdUnavailable("no answer within the deadline (memory etcd: held)")

    def _take(self) -> _Txn:
        txn, self._txn = self._txn, None
        if txn is None:
            raise UsageError("no transaction is held: it was not sent yet, or applied or dropped")
        return txn


class MemoryEtcd:
    """Implement `rink.etcd.api.Etcd` in memory.

    `MemoryCluster.client` makes the clients, which are thread-safe. Calls are answered at once and
    ignore `timeout`. A call without an answer raises at once.

    Attributes:
        cluster: the `MemoryCluster` of the client.
        name: the name for errors and `repr`.
        is_cut: True while the connection is broken.
    """

    def __init__(self, cluster: StreamCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.is_cut = False
        self._closed = False
        self._restores = cluster.restores
        self._lose_next_answer = False
        self._hold_next: HeldTxn | None = None

    def __repr__(self) -> str:
        return f"<MemoryEtcd {self.name}>"

    @property
    def endpoint(self) -> str:
        """Return a name for the log, in place of an endpoint."""
        return f"memory ({self.name})"

    @property
    def timeout(self) -> float:
        """Return the real client's default timeout; no call takes time here."""
        return 5.0

    @property
    def is_virtual(self) -> bool:
        """Return whether a test moves the cluster's time."""
        return self.cluster.is_virtual

    @property
    def epoch(self) -> int:
        """Return the number of changes of the cluster that the client noticed."""
        return self._restores

    @property
    def streams(self) -> list[AnyStream]:
        """Return the open watches and keepalive streams, in the order of opening."""
        with self.cluster.lock:
            return [stream for stream in self.cluster.streams if stream.client is self]

    # Calls of `rink.etcd.api.Etcd`.

    def range(
        self, key: bytes, range_end: bytes = b"", *, timeout: float | None = None
    ) -> RangeResult:
        """Read [key, range_end).

        Raises:
            EtcdError: etcd refuses the call. While the client is cut, each call raises
                `EtcdUnavailable`. After a restored backup, one call raises `EtcdClusterChanged`,
                although etcd has executed it.
            ClosedError: after `close`, as in all calls.
        """
        with self._reach() as store:
            return store.range(key, range_end)

    def txn(
        self,
        compare: tuple[Compare, ...],
        then: tuple[Op, ...],
        otherwise: tuple[Op, ...] = (),
        *,
        timeout: float | None = None,
    ) -> TxnResult:
        """Run one branch atomically, unless a fault was set for this transaction."""
        with self._reach() as store:
            held_txn, self._hold_next = self._hold_next, None
            if held_txn is not None:
                held_txn.hold((compare, then, otherwise))
            result = store.txn(compare, then, otherwise)
            if self._lose_next_answer:
                self._lose_next_answer = False
                raise EtcdUnavailable("no answer within the deadline (memory etcd: answer lost)")
            return result

    def grant(self, ttl: int, *, lease: int = 0, timeout: float | None = None) -> GrantedLease:
        """Grant a lease of `ttl` seconds, at least 2; `lease` may be its id."""
        with self._reach() as store:
            return store.grant(ttl, lease, self.cluster.now())

    def revoke(self, lease: int, *, timeout: float | None = None) -> None:
        """End a lease and delete its keys; an unknown lease is no error."""
        with self._reach() as store:
            store.revoke(lease)

    def time_to_live(self, lease: int, *, timeout: float | None = None) -> int:
        """Return the remaining seconds of a lease, or -1 if it is unknown."""
        with self._reach() as store:
            return store.time_to_live(lease, self.cluster.now())

    def watch(
        self,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        deliver: Callable[[WatchMessage], None],
    ) -> MemoryWatch:
        """Deliver changes in [key, range_end) from a revision; 0 is the next one."""
        with self.cluster.change():
            self.refuse_closed()
            return MemoryWatch(self, key, range_end, start_revision, deliver)

    def keepalives(self, deliver: Callable[[KeepAliveAnswer], None]) -> MemoryKeepAlives:
        """Open a keepalive stream."""
        with self.cluster.change():
            self.refuse_closed()
            return MemoryKeepAlives(self, deliver)

    def close(self) -> None:
        """Close every watch and stream."""
        self._closed = True
        for stream in self.streams:
            stream.close()

    # Faults.

    def cut(self) -> None:
        """Break the connection: calls raise `EtcdUnavailable`."""
        with self.cluster.lock:
            self.is_cut = True
            for stream in self.streams:
                stream.cut()

    def heal(self) -> None:
        """Connect again. Each watch resumes after its last delivery, or breaks."""
        with self.cluster.change():
            self.is_cut = False

    def lose_next_answer(self) -> None:
        """Apply the next transaction, but raise `EtcdUnavailable` in its call."""
        self._lose_next_answer = True

    def hold_next_txn(self) -> HeldTxn:
        """Hold the next transaction, and raise `EtcdUnavailable` in its call."""
        self._hold_next = HeldTxn(self.cluster)
        return self._hold_next

    @contextmanager
    def _reach(self) -> Iterator[MemoryState]:
        with self.cluster.change() as store:
            self.refuse_closed()
            if self.is_cut:
                raise EtcdUnavailable(f"no answer within the deadline ({self!r} is cut)")
            yield store
            if self._restores != self.cluster.restores:
                self._restores = self.cluster.restores
                raise EtcdClusterChanged("the etcd cluster is another one, or was restored")

    def refuse_closed(self) -> None:
        """Raise `ClosedError` after `close`."""
        if self._closed:
            raise ClosedError(f"{self!r} is closed")
