"""One member's connection to an in-memory etcd, and everything that can happen to it."""

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
)
from rink.testing.memory.watches import AnyStream, MemoryKeepAlives, MemoryWatch, WatchMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rink.testing.memory.cluster import MemoryCluster
    from rink.testing.memory.state import MemoryState

_Txn = tuple[tuple[Compare, ...], tuple[Op, ...], tuple[Op, ...]]


class HeldTxn:
    """A transaction that is under way for long: its caller was told that there is no answer.

    Attributes:
        is_sent: the transaction has been sent; until then there is nothing to apply.
    """

    def __init__(self, cluster: MemoryCluster) -> None:
        self.is_sent = False
        self._cluster = cluster
        self._txn: _Txn | None = None

    def apply(self) -> TxnResult:
        """Let it arrive now.

        Raises:
            UsageError: there is nothing to apply: not sent yet, or applied or dropped before.
            EtcdError: etcd refuses it.
        """
        txn = self._take()
        with self._cluster.change() as store:
            return store.txn(*txn)

    def drop(self) -> None:
        """Let it never arrive.

        Raises:
            UsageError: as for `apply`.
        """
        self._take()

    def hold(self, txn: _Txn) -> NoReturn:
        """Take what was sent, and answer nothing.

        Raises:
            EtcdUnavailable: always.
        """
        self.is_sent = True
        self._txn = txn
        raise EtcdUnavailable("no answer within the deadline (memory etcd: held)")

    def _take(self) -> _Txn:
        txn, self._txn = self._txn, None
        if txn is None:
            raise UsageError("no transaction is held here")
        return txn


class MemoryEtcd:
    """An `rink.etcd.api.Etcd` in this process; made by `MemoryCluster.client`.

    Calls are answered at once, so `timeout` is not looked at: one that gets no answer raises
    without waiting. May be used from any thread.

    Attributes:
        cluster: what it is connected to.
        name: says whose it is, in errors and `repr`.
        is_cut: nothing reaches the cluster or comes from it.
    """

    def __init__(self, cluster: MemoryCluster, name: str) -> None:
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
        """Return a name that stands for the endpoint, in the log."""
        return f"memory ({self.name})"

    @property
    def timeout(self) -> float:
        """Return the real client's default timeout; no call takes time here."""
        return 5.0

    @property
    def epoch(self) -> int:
        """Return how often another cluster or another history was seen."""
        return self._restores

    @property
    def streams(self) -> list[AnyStream]:
        """Its open watches and keepalive streams, in the order in which they were opened."""
        with self.cluster.lock:
            return [stream for stream in self.cluster.streams if stream.client is self]

    # What an etcd does.

    def range(
        self, key: bytes, range_end: bytes = b"", *, timeout: float | None = None
    ) -> RangeResult:
        """Read [key, range_end).

        Raises:
            EtcdError: refused. As all calls do: `EtcdUnavailable` while cut, and once, after a
                restored backup, `EtcdClusterChanged`, though it was done.
            ClosedError: after `close`, as all calls do.
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
        """Run one branch atomically, unless a fault was ordered for this transaction."""
        with self._reach() as store:
            held, self._hold_next = self._hold_next, None
            if held is not None:
                held.hold((compare, then, otherwise))
            result = store.txn(compare, then, otherwise)
            if self._lose_next_answer:
                self._lose_next_answer = False
                raise EtcdUnavailable("no answer within the deadline (memory etcd: answer lost)")
            return result

    def grant(self, ttl: int, *, lease: int = 0, timeout: float | None = None) -> GrantedLease:
        """Take a new lease for `ttl` seconds, at least 2, under the given id unless that is 0."""
        with self._reach() as store:
            return store.grant(ttl, lease, self.cluster.now())

    def revoke(self, lease: int, *, timeout: float | None = None) -> None:
        """End a lease, deleting the keys bound to it; an unknown one is fine."""
        with self._reach() as store:
            store.revoke(lease)

    def time_to_live(self, lease: int, *, timeout: float | None = None) -> int:
        """Return the seconds that a lease has left, or -1 if it is unknown."""
        with self._reach() as store:
            return store.time_to_live(lease, self.cluster.now())

    def watch(
        self,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        deliver: Callable[[WatchMessage], None],
    ) -> MemoryWatch:
        """Deliver all changes in [key, range_end) from a revision on; 0 is from now on."""
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

    # What can happen to it.

    def cut(self) -> None:
        """Break the connection: calls raise `EtcdUnavailable`, streams fall silent."""
        with self.cluster.lock:
            self.is_cut = True
            for stream in self.streams:
                stream.cut()

    def heal(self) -> None:
        """Connect again: watches go on behind what they delivered last, or say that they cannot."""
        with self.cluster.change():
            self.is_cut = False

    def lose_next_answer(self) -> None:
        """Make the next transaction apply and lose its answer.

        It raises `EtcdUnavailable`.
        """
        self._lose_next_answer = True

    def hold_next_txn(self) -> HeldTxn:
        """Make the next transaction raise `EtcdUnavailable`.

        It is applied or dropped later.
        """
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
