"""Connect to the endpoints, in the order in which they are to be tried.

Rink does the failover itself. A gRPC channel with a list of addresses hides which one answered, and
gRPC notices a frozen server late. Channels are opened on first use, because a process may safely
fork before that, and not after it. docs/internals/design/0002-etcd-client.md has figures of both.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import grpc

from rink.errors import ClosedError
from rink.etcd import tlsprobe
from rink.etcd.channels import OPTIONS, CountedChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rink.etcd.endpoints import Endpoint
    from rink.etcd.tls import TlsSource

_log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 2.0
_CLOSER = "rink-etcd-close"

MIN_CHANNEL_AGE_S = 0.5
"""Age below which a failed channel is kept, since gRPC reconnects it by itself.

Otherwise each of many streams would make a channel at each try while etcd is down.
"""


class Connection:
    """Connect to one endpoint, over a new channel after a failure.

    A channel is opened on first use. A new channel looks up the endpoint's name, and reads the
    files of certificates. The previous channel is closed after its last call, since the answer to
    that call may be on its way.

    Attributes:
        name: the endpoint's address, for messages.
        is_proven: True if the endpoint answered, and nothing failed since. A request that may be
            sent only once is sent only on such a connection.
    """

    def __init__(self, name: str, make: Callable[[], grpc.Channel]) -> None:
        self.name = name
        self.is_proven = False
        self._make = make
        self._lock = threading.Lock()
        self._current: CountedChannel | None = None
        self._dropped: list[CountedChannel] = []
        self._closed = False

    @contextlib.contextmanager
    def channel(self) -> Iterator[CountedChannel]:
        """Use the channel for one call, or for one stream."""
        with self._lock:
            if self._closed:
                raise ClosedError("the etcd client is closed")
            if self._current is None:
                self._current = CountedChannel(self._make())
            channel = self._current
            channel.calls += 1
        try:
            yield channel
        finally:
            with self._lock:
                channel.calls -= 1
            self._close_unused()

    def failed(self, channel: CountedChannel, *, is_silent: bool) -> None:
        """Use another channel from now on, unless this one may recover.

        `is_silent` says that no answer came in time. Otherwise gRPC reported a failure.
        """
        if is_silent and not channel.has_answered:
            return  # it is still connecting, and a new channel would start over
        if time.monotonic() - channel.made_at >= MIN_CHANNEL_AGE_S:
            self.drop(channel)

    def drop(self, channel: CountedChannel) -> None:
        """Use another channel from now on; close this one after its last call."""
        with self._lock:
            if channel is self._current:
                self._current = None
                self._dropped.append(channel)

    def lost_thread(self, channel: CountedChannel) -> None:
        """Use another channel, because this one got no thread to read a stream.

        gRPC has counted the stream, so it never starts that thread for a later one.
        """
        self.drop(channel)

    def close(self) -> None:
        """End every channel and every call on it."""
        with self._lock:
            self._closed = True
            channels = [*([self._current] if self._current else []), *self._dropped]
            self._current, self._dropped = None, []
            for channel in channels:
                channel.is_closed = True
        for channel in channels:
            self._end(channel)

    def _close_unused(self) -> None:
        """Close dropped channels, each on a thread, since gRPC may take long."""
        if not self._dropped:
            return
        with self._lock:
            for channel in [dropped for dropped in self._dropped if not dropped.calls]:
                end = partial(self._end, channel)
                try:
                    threading.Thread(target=end, name=_CLOSER, daemon=True).start()
                except RuntimeError:  # no thread can be started now; retried after the next call
                    return
                self._dropped.remove(channel)

    def _end(self, channel: CountedChannel) -> None:
        channel.close()

    def find_tls_trouble(self, deadline: float) -> None:
        """Raise EtcdTls if TLS keeps this connection from working; see `tlsprobe`."""


class OwnConnection(Connection):
    """Connect to an endpoint of the settings."""

    def __init__(self, endpoint: Endpoint, tls: TlsSource) -> None:
        super().__init__(endpoint.url, self._open)
        self._endpoint = endpoint
        self._tls = tls

    def _open(self) -> grpc.Channel:
        target = self._endpoint.target
        if not self._endpoint.tls:
            return grpc.insecure_channel(target, options=OPTIONS)
        # A channel keeps its credentials for ever, so each new channel reads the files again.
        tls = self._tls.read()
        credentials = grpc.ssl_channel_credentials(tls.ca, tls.pair.key, tls.pair.cert)
        return grpc.secure_channel(target, credentials, options=OPTIONS)

    def find_tls_trouble(self, deadline: float) -> None:
        """Raise EtcdTls if TLS keeps this connection from working; see `tlsprobe`."""
        tlsprobe.find_tls_trouble(self._endpoint, self._tls.read(), deadline)


_never_collected: list[CountedChannel] = []
"""Channels that lost a thread. gRPC would close a collected one, which would wait for ever."""


class BorrowedConnection(Connection):
    """Connect over the channel of an application's own client.

    Only the application may close the channel, and only it can make a new one.
    """

    def lost_thread(self, channel: CountedChannel) -> None:
        """Warn that only the application can replace this channel."""
        _log.warning(
            "%s: no thread could be started to read a stream, so its channel will answer no later "
            "stream. Only your application can make a new channel. Do not close the old one: its "
            "close() would never return",
            self.name,
        )
        _never_collected.append(channel)
        super().lost_thread(channel)

    def _end(self, channel: CountedChannel) -> None:
        pass


class Ring:
    """Order the connections: the last one that worked comes first."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = tuple(connections)
        self._lock = threading.Lock()
        self._first = 0

    @property
    def first(self) -> Connection:
        """Return the connection to try now."""
        return self._connections[self._first]

    def in_order(self) -> list[Connection]:
        """Return all connections, the one to try first in front."""
        first = self._first
        return [*self._connections[first:], *self._connections[:first]]

    def worked(self, connection: Connection) -> None:
        """Note that an answer came over the connection."""
        connection.is_proven = True
        if self.first is connection:
            return
        with self._lock:
            self._first = self._connections.index(connection)
        _log.debug("etcd %s answered, so it is tried first now", connection.name)

    def failed(self, connection: Connection) -> None:
        """Note that the connection failed or fell silent: others come first now."""
        connection.is_proven = False
        with self._lock:
            if self._connections[self._first] is not connection:
                return
            self._first = (self._first + 1) % len(self._connections)
            following = self._connections[self._first]
        if following is not connection:
            _log.debug("etcd %s failed, so %s is tried first now", connection.name, following.name)

    def close(self) -> None:
        """Close all connections.

        gRPC's own close waits without a bound for the channel's calls to end. So a close that does
        not return in time is logged and left behind. Otherwise a process could not exit.
        """
        threads = [
            (connection.name, threading.Thread(target=connection.close, name=_CLOSER, daemon=True))
            for connection in self._connections
        ]
        for _, thread in threads:
            try:
                thread.start()
            except RuntimeError:  # the interpreter exits, and no thread can be started
                thread.run()
        end = time.monotonic() + _CLOSE_TIMEOUT_S
        for name, thread in threads:
            if thread.ident is not None:
                thread.join(max(end - time.monotonic(), 0.0))
            if thread.is_alive():
                _log.error("etcd %s: gRPC does not close the channel; leaving it open", name)
