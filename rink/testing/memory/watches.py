"""Deliver messages of the in-memory etcd's watches and keepalives.

A message waits in its stream's inbox until the stream's own thread delivers it. In a pumped
cluster, `pump` delivers it instead. So the order within a stream always holds, and the caller of
`pump` chooses the order between streams.
"""

from __future__ import annotations

import abc
import logging
import math
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rink.errors import EtcdClusterChanged, EtcdCompacted
from rink.etcd.api import (
    KeepAliveAnswer,
    KeyChange,
    WatchBroken,
    WatchEvents,
    WatchMessage,
    WatchOpened,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from rink.testing.memory.state import MemoryState

log = logging.getLogger(__name__)

M = TypeVar("M")


class StreamCluster(Protocol):
    """Declare the part of a `MemoryCluster` that clients and streams use."""

    store: MemoryState
    streams: list[AnyStream]
    pumped: bool
    is_virtual: bool
    restores: int
    lock: threading.RLock

    def now(self) -> float:
        """Return the seconds on the cluster's clock."""

    def change(self) -> AbstractContextManager[MemoryState]:
        """Hold the lock, and send the changes to all streams at the end."""


class StreamClient(Protocol):
    """Declare the part of a `MemoryEtcd` that its streams use."""

    cluster: StreamCluster
    is_cut: bool

    def refuse_closed(self) -> None:
        """Raise `ClosedError` after `close`."""


class MemoryStream(abc.ABC, Generic[M]):
    """Deliver a stream of messages to one client."""

    def __init__(self, client: StreamClient, deliver: Callable[[M], None]) -> None:
        self.client = client
        self._cluster = client.cluster
        self._deliver = deliver
        self._inbox: deque[M] = deque()
        self._closed = False
        # Use the cluster's lock, so that inboxes change together with the store.
        self._changed = threading.Condition(client.cluster.lock)
        client.cluster.streams.append(self)
        self._thread: threading.Thread | None = None
        if not client.cluster.pumped:
            self._thread = threading.Thread(
                target=self._run, name=f"memory-etcd-{type(self).__name__}", daemon=True
            )
            self._thread.start()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.client!r}, {len(self._inbox)} waiting>"

    @property
    def trouble(self) -> str:
        """Return why the stream gets no answers, or an empty string."""
        return f"{self.client!r} is cut" if self.client.is_cut else ""

    @property
    def pending(self) -> int:
        """Return the number of undelivered messages."""
        with self._changed:
            return len(self._inbox)

    def pump(self) -> bool:
        """Deliver one message on the caller's thread, or return False without any.

        Errors of the user's function are raised here.
        """
        assert self._thread is None
        with self._changed:
            if not self._inbox:
                return False
            message = self._take()
        self._deliver(message)
        return True

    def close(self) -> None:
        """End the stream. Afterwards no message is delivered.

        The stream's own thread may call this, too. It then finishes the current delivery.
        """
        with self._changed:
            self._closed = True
            self._inbox.clear()
            if self in self._cluster.streams:
                self._cluster.streams.remove(self)
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def cut(self) -> None:
        """Lose the messages in the inbox; call this with the lock."""
        self._inbox.clear()

    def catch_up(self) -> None:
        """Send new messages after a change or a heal; call this with the lock."""

    def _post(self, message: M) -> None:
        self._inbox.append(message)
        self._changed.notify()

    def _take(self) -> M:
        return self._inbox.popleft()

    @abc.abstractmethod
    def _failed(self, error: Exception) -> None:
        """Handle an error of the user's function."""

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._inbox or self._closed)
                if self._closed:
                    return
                message = self._take()
            try:
                self._deliver(message)
            except Exception as error:
                log.exception("%r: the user's function raised", self)
                self._failed(error)


class MemoryWatch(MemoryStream[WatchMessage]):
    """Watch a range, and resume after a cut as the real client does.

    If the last delivered revision is not in the store, the watch starts a new history.
    """

    def __init__(
        self,
        client: StreamClient,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        deliver: Callable[[WatchMessage], None],
    ) -> None:
        self._range = key, range_end
        self._start = start_revision  # of the first call; 0 is the next revision
        self._last: tuple[KeyChange, ...] = ()  # the changes of the last delivered revision
        self._listed = 0.0
        self._is_open = False
        self._send_from = 0  # the first revision not yet sent on this connection
        self._restores = client.cluster.restores
        self._broken = False
        super().__init__(client, deliver)

    def wait_open(self, seconds: float) -> bool:
        """Return whether the watch is open; False while the client is cut."""
        return not self.client.is_cut

    def note_list(self, revision: int | None) -> None:
        """Note the revision of the last list of the range, or None during a list."""
        self._listed = math.inf if revision is None else revision

    def cut(self) -> None:
        """Lose the undelivered changes."""
        super().cut()
        self._is_open = False

    def catch_up(self) -> None:
        """Send the new changes, as one message of whole revisions."""
        is_over = self._broken or (self._inbox and isinstance(self._inbox[-1], WatchBroken))
        if is_over or self.client.is_cut:
            return
        store = self._cluster.store
        if self._restores != self._cluster.restores:
            error = EtcdClusterChanged("the etcd cluster is another one, or was restored")
            self._post(WatchBroken(error))
            return
        if not self._is_open and not self._begin(store):
            message = f"revision {self._start} is gone, compacted up to {store.compacted}"
            self._post(WatchBroken(EtcdCompacted(message)))
            return
        changes = list(store.changes(*self._range, self._send_from))
        # If the watch starts at a future revision, it still waits for that revision.
        self._send_from = max(self._send_from, store.revision + 1)
        if changes:
            events = tuple(event for entry in changes for event in entry.events)
            self._post(WatchEvents(changes[-1].revision, events))

    def _begin(self, store: MemoryState) -> bool:
        """Open a call after the last delivered revision, or start a new history.

        Return False if the start revision has been compacted.
        """
        if self._last:
            delivered = self._last[0].kv.mod_revision
            entry = next(store.changes(*self._range, delivered), None)
            can_prove = delivered > self._listed and not all(
                change.deleted for change in self._last
            )
            if can_prove and entry is not None and entry.events == self._last:
                self._send_from, self._is_open = delivered + 1, True
                return True
            self._last, self._start = (), 0
        if 0 < self._start < store.compacted:
            return False
        self._send_from, self._is_open = self._start or store.revision + 1, True
        self._post(WatchOpened())
        return True

    def _take(self) -> WatchMessage:
        message = super()._take()
        match message:
            case WatchBroken():
                self._broken = True
            case WatchEvents(revision, events):
                self._last = tuple(event for event in events if event.kv.mod_revision == revision)
        return message

    def _failed(self, error: Exception) -> None:
        """End the watch, so that the next message does not hide the lost one."""
        with self._changed:
            self._inbox.clear()
            if not self._broken:
                self._post(WatchBroken(error))


class MemoryKeepAlives(MemoryStream[KeepAliveAnswer]):
    """Renew leases at once, and let the answers wait for delivery.

    A heal repeats the requests that were sent during the cut or not answered before it. As in the
    real client, it repeats one request per lease, with its original time.
    """

    def __init__(self, client: StreamClient, deliver: Callable[[KeepAliveAnswer], None]) -> None:
        self._waiting: dict[int, float] = {}  # lease -> time of the request
        self._cuts = 0  # after each cut there is a new call
        super().__init__(client, deliver)

    def send(self, lease: int) -> None:
        """Renew a lease, now or once the client is healed."""
        with self._cluster.change():  # catches up
            self.client.refuse_closed()
            if not self._closed:
                self._waiting[lease] = self._cluster.now()

    def forget(self, lease: int) -> None:
        """Drop requests and answers of a lease."""
        with self._changed:
            self._waiting.pop(lease, None)
            waiting = [answer for answer in self._inbox if answer.lease != lease]
            self._inbox.clear()
            self._inbox.extend(waiting)

    def drop(self) -> None:
        """Lose the next answer, if one waits."""
        with self._changed:
            if self._inbox:
                self._inbox.popleft()

    def cut(self) -> None:
        """Lose the waiting answers, and repeat their requests later."""
        self._waiting |= {answer.lease: answer.sent_at for answer in self._inbox}
        self._cuts += 1
        super().cut()

    def catch_up(self) -> None:
        """Renew the waiting leases in the store."""
        if self.client.is_cut:
            return
        now = self._cluster.now()
        for lease, sent_at in self._waiting.items():
            ttl = self._cluster.store.keep_alive(lease, now)
            call = self._cuts + self._cluster.restores
            self._post(KeepAliveAnswer(lease, sent_at, ttl, call))
        self._waiting.clear()

    def _failed(self, error: Exception) -> None:
        """Do nothing, because a lost answer needs no handling."""


AnyStream = MemoryStream[Any]
