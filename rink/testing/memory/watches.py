"""Watches and keepalive streams of the in-memory etcd, and how their messages are delivered.

A message waits in its stream's inbox, in order, until a thread of the stream's own delivers it or,
with a pumped cluster, until somebody calls `pump`. So order within a stream always holds, and
between streams it is the caller's to choose.
"""

from __future__ import annotations

import abc
import logging
import math
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rink.errors import EtcdClusterChanged, EtcdCompacted
from rink.etcd.api import KeepAliveAnswer, KeyChange, WatchBroken, WatchEvents, WatchOpened

if TYPE_CHECKING:
    from collections.abc import Callable

    from rink.testing.memory.client import MemoryEtcd
    from rink.testing.memory.state import MemoryState

log = logging.getLogger(__name__)

M = TypeVar("M")


class MemoryStream(abc.ABC, Generic[M]):
    """A stream of messages to one client.

    Attributes:
        client: whose stream it is.
    """

    def __init__(self, client: MemoryEtcd, deliver: Callable[[M], None]) -> None:
        self.client = client
        self._cluster = client.cluster
        self._deliver = deliver
        self._inbox: deque[M] = deque()
        self._closed = False
        # The cluster's one lock: what a stream holds changes together with the store.
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
        """Return why nothing is answered: the client is cut."""
        return f"{self.client!r} is cut" if self.client.is_cut else ""

    @property
    def pending(self) -> int:
        """Return how many messages wait to be delivered."""
        with self._changed:
            return len(self._inbox)

    def pump(self) -> bool:
        """Deliver one message on the caller's thread; False where none waits.

        Only for a pumped cluster. What the user's function raises comes out here.
        """
        assert self._thread is None
        with self._changed:
            if not self._inbox:
                return False
            message = self._take()
        self._deliver(message)
        return True

    def close(self) -> None:
        """End the stream; nothing is delivered once this has returned, except from within."""
        with self._changed:
            self._closed = True
            self._inbox.clear()
            if self in self._cluster.streams:
                self._cluster.streams.remove(self)
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def cut(self) -> None:
        """The connection is gone, and what was under way on it; with the lock held."""
        self._inbox.clear()

    def catch_up(self) -> None:
        """The store has changed, or the connection is back; with the lock held."""

    def _post(self, message: M) -> None:
        self._inbox.append(message)
        self._changed.notify()

    def _take(self) -> M:
        return self._inbox.popleft()

    @abc.abstractmethod
    def _failed(self, error: Exception) -> None:
        """The user's function raised."""

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
                log.exception("%r: the function delivered to raised", self)
                self._failed(error)


WatchMessage = WatchOpened | WatchEvents | WatchBroken


class MemoryWatch(MemoryStream[WatchMessage]):
    """A watch that goes on after a cut as the real client's does.

    It begins at what it delivered last. Where that does not lie in the store, a history begins
    anew.
    """

    def __init__(
        self,
        client: MemoryEtcd,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        deliver: Callable[[WatchMessage], None],
    ) -> None:
        self._range = key, range_end
        self._start = start_revision  # where the first call begins; 0 is: from now on
        self._last: tuple[KeyChange, ...] = ()  # of the revision that was delivered last
        self._listed = 0.0
        self._is_open = False
        self._send_from = 0  # the first revision not yet sent on this connection
        self._restores = client.cluster.restores
        self._broken = False
        super().__init__(client, deliver)

    def wait_open(self, seconds: float) -> bool:
        """Say whether the range is followed; a cut client's is not before it is healed."""
        return not self.client.is_cut

    def note_list(self, revision: int | None) -> None:
        """Note at which revision the range was listed, or None while a list is under way."""
        self._listed = math.inf if revision is None else revision

    def cut(self) -> None:
        """Lose what was sent and not delivered."""
        super().cut()
        self._is_open = False

    def catch_up(self) -> None:
        """Send what is new, as one message of whole revisions."""
        ends = self._broken or (self._inbox and isinstance(self._inbox[-1], WatchBroken))
        if ends or self.client.is_cut:
            return
        store = self._cluster.store
        if self._restores != self._cluster.restores:
            error = EtcdClusterChanged("the etcd cluster is another one, or was restored")
            self._post(WatchBroken(error))
            return
        if not self._is_open and not self._begin(store):
            gone = f"revision {self._start} is gone, compacted up to {store.compacted}"
            self._post(WatchBroken(EtcdCompacted(gone)))
            return
        news = list(store.changes(*self._range, self._send_from))
        # A start in the future stays there.
        self._send_from = max(self._send_from, store.revision + 1)
        if news:
            events = tuple(event for entry in news for event in entry.events)
            self._post(WatchEvents(news[-1].revision, events))

    def _begin(self, store: MemoryState) -> bool:
        """Open a call behind what was delivered, if that lies in the store, else anew.

        Returns:
            False if the start revision has been compacted.
        """
        if self._last:
            delivered = self._last[0].kv.mod_revision
            entry = next(store.changes(*self._range, delivered), None)
            can_prove = delivered > self._listed and not all(one.deleted for one in self._last)
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
        """End: whoever did not take this must not be given the next as if they had."""
        with self._changed:
            self._inbox.clear()
            if not self._broken:
                self._post(WatchBroken(error))


class MemoryKeepAlives(MemoryStream[KeepAliveAnswer]):
    """A keepalive stream; a request reaches the store at once, its answer waits in the inbox.

    What was asked for during a cut, or not answered before it, is asked for anew when the client is
    healed, once per lease and with the first sending's time: so does the real client.
    """

    def __init__(self, client: MemoryEtcd, deliver: Callable[[KeepAliveAnswer], None]) -> None:
        self._waiting: dict[int, float] = {}  # lease -> when it was asked for
        self._cuts = 0  # each is followed by a new call
        super().__init__(client, deliver)

    def send(self, lease: int) -> None:
        """Renew a lease, now or once the client is healed.

        Raises:
            ClosedError: the client was closed.
        """
        with self._cluster.change():  # catches up
            self.client.refuse_closed()
            if not self._closed:
                self._waiting[lease] = self._cluster.now()

    def forget(self, lease: int) -> None:
        """Ask no more for this lease."""
        with self._changed:
            self._waiting.pop(lease, None)
            waiting = [answer for answer in self._inbox if answer.lease != lease]
            self._inbox.clear()
            self._inbox.extend(waiting)

    def drop(self) -> None:
        """Lose the answer that would be delivered next, if one waits."""
        with self._changed:
            if self._inbox:
                self._inbox.popleft()

    def cut(self) -> None:
        """Lose the answers under way."""
        self._waiting |= {answer.lease: answer.sent_at for answer in self._inbox}
        self._cuts += 1
        super().cut()

    def catch_up(self) -> None:
        """Ask the store for what waits."""
        if self.client.is_cut:
            return
        now = self._cluster.now()
        for lease, sent_at in self._waiting.items():
            ttl = self._cluster.store.keep_alive(lease, now)
            call = self._cuts + self._cluster.restores
            self._post(KeepAliveAnswer(lease, sent_at, ttl, call))
        self._waiting.clear()

    def _failed(self, error: Exception) -> None:
        """Go on: what the user's function raises is its own."""


AnyStream = MemoryStream[Any]
