"""One gRPC channel per endpoint, and the order in which the endpoints are tried.

Failover is ours: a channel on a list of addresses hides which one answered, and gRPC notices a
frozen server late (ETCD-CLIENT section 4). Channels are opened on first use, since a process that
forks before that is safe and one that forks after it is not (section 7).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import grpc

from rink.errors import ClosedError
from rink.etcd import tlsprobe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rink.etcd.endpoints import Endpoint, TlsSettings
    from rink.etcd.methods import AnswerT, Method, Request

_log = logging.getLogger(__name__)

_CLOSE_S = 2.0

Metadata = tuple[tuple[str, str], ...]

Received_co = TypeVar("Received_co", covariant=True)


class Answers(Protocol[Received_co]):
    """The answers of a stream, as gRPC gives them."""

    def __iter__(self) -> Iterator[Received_co]:
        """Waits for each; raises grpc.RpcError when the stream breaks."""
        ...

    def cancel(self) -> object:
        """End the stream, from any thread."""
        ...


_OPTIONS: tuple[tuple[str, int], ...] = (
    # All three are needed: without the last, a dead connection is noticed after 65 s and not 7 s.
    # A shorter time makes etcd hang up (too_many_pings), and so do pings without calls.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    # After a failed connect gRPC refuses calls unasked for this long; we pause between tries too.
    # What the two take together, a lease goes without after etcd is back: a second at the most.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Despite its name: how long one attempt to connect may take, TLS handshake included.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # What is tried again, and where, is decided here; a txn is never sent twice.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # As etcd's own clients: a group's whole range may exceed gRPC's default of 4 MB.
    ("grpc.max_receive_message_length", 2**31 - 1),
    # A client's connections are its own: closing one client, or its backoff, touches no other.
    ("grpc.use_local_subchannel_pool", 1),
    # Each answer would be followed by a ping of gRPC's that measures how much may be under way: half of
    # what an exchange of two small messages costs. So a window is set, large enough for any list.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2**20),
    # A cluster's store is no web site; a proxy meant for those would only be in the way.
    ("grpc.enable_http_proxy", 0),
)


LOOK_UP_S = 2.0
"""How often gRPC looks up all the same; where it supports forks, it waits for that for 5 s at most."""


class _Unhurried(threading.Condition):
    """One whose waits are long."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(timeout if timeout is None else max(timeout, LOOK_UP_S))


def unhurried(call: Any) -> Any:
    """Have whoever waits for an answer of a stream woken by answers only.

    gRPC wakes them ten times a second besides, so that signal handlers may run: they do so on the
    main thread, where no stream of ours is read, and it was two fifths of what an idle member takes.
    This reaches into gRPC. Where that looks otherwise one day nothing is changed: it polls again.
    """
    condition = getattr(getattr(call, "_state", None), "condition", None)
    if type(condition) is threading.Condition:
        with contextlib.suppress(TypeError):
            condition.__class__ = _Unhurried
    return call


class Connection:
    """A channel to one endpoint, opened on first use.

    Attributes:
        name: the endpoint's address, for messages.
        is_proven: it answered, and nothing failed on it since. What may be sent only once is sent
            only on such a connection.
    """

    def __init__(self, name: str, make: Callable[[], grpc.Channel]) -> None:
        self.name = name
        self.is_proven = False
        self._make = make
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._calls: dict[str, Any] = {}
        self._closed = False

    def unary(
        self, method: Method[Request, AnswerT], request: Request, timeout: float, metadata: Metadata
    ) -> AnswerT:
        """One request, one answer.

        Raises:
            grpc.RpcError: no answer, or an error for one.
            ClosedError: the connection was closed.
        """
        call = self._callable(method, "unary_unary")
        try:
            return cast("AnswerT", call(request, timeout=timeout, metadata=metadata))
        except ValueError as error:
            raise self._closed_error(error) from error

    def stream(
        self, method: Method[Request, AnswerT], requests: Iterator[Request], metadata: Metadata
    ) -> Answers[AnswerT]:
        """Many requests, many answers; iterate over what is returned, and cancel it in the end.

        Raises:
            ClosedError: the connection was closed.
        """
        call = self._callable(method, "stream_stream")
        try:
            return cast("Answers[AnswerT]", unhurried(call(requests, metadata=metadata)))
        except ValueError as error:
            raise self._closed_error(error) from error

    def close(self) -> None:
        """End the channel and every call on it."""
        with self._lock:
            self._closed = True
            channel, self._channel = self._channel, None
            self._calls.clear()
        if channel is not None:
            self._end(channel)

    def _end(self, channel: grpc.Channel) -> None:
        channel.close()

    def find_tls_trouble(self, deadline: float) -> None:
        """Raise EtcdTls if TLS is why nothing comes over this connection; see `tlsprobe`."""

    def _callable(self, method: Method[Request, AnswerT], kind: str) -> Any:
        found = self._calls.get(method.path)
        if found is not None:
            return found
        with self._lock:
            if self._closed:
                raise ClosedError("the etcd client is closed")
            if self._channel is None:
                self._channel = self._make()
            made = getattr(self._channel, kind)(
                method.path,
                request_serializer=method.encode,
                response_deserializer=method.decode,
            )
            self._calls[method.path] = made
            return made

    def _closed_error(self, error: ValueError) -> Exception:
        # gRPC's way to say that another thread closed the channel meanwhile.
        return ClosedError("the etcd client is closed") if self._closed else error


class OwnConnection(Connection):
    """A connection made from settings."""

    def __init__(self, endpoint: Endpoint, tls: TlsSettings) -> None:
        super().__init__(endpoint.url, self._open)
        self._endpoint = endpoint
        self._tls = tls

    def _open(self) -> grpc.Channel:
        target = self._endpoint.target
        if not self._endpoint.tls:
            return grpc.insecure_channel(target, options=_OPTIONS)
        credentials = grpc.ssl_channel_credentials(self._tls.ca, self._tls.key, self._tls.cert)
        return grpc.secure_channel(target, credentials, options=_OPTIONS)

    def find_tls_trouble(self, deadline: float) -> None:
        """Raise EtcdTls if TLS is why nothing comes over this connection; see `tlsprobe`."""
        tlsprobe.find_tls_trouble(self._endpoint, self._tls, deadline)


class BorrowedConnection(Connection):
    """A connection over the channel of an application's own client, which alone may close it."""

    def _end(self, channel: grpc.Channel) -> None:
        pass


class Ring:
    """The connections in their order of preference: the last one that worked comes first."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = tuple(connections)
        self._lock = threading.Lock()
        self._first = 0

    @property
    def first(self) -> Connection:
        """The one to try now."""
        return self._connections[self._first]

    def in_order(self) -> list[Connection]:
        """All of them, the one to try first in front."""
        first = self._first
        return [*self._connections[first:], *self._connections[:first]]

    def worked(self, connection: Connection) -> None:
        """An answer came over it."""
        connection.is_proven = True
        if self.first is connection:
            return
        with self._lock:
            self._first = self._connections.index(connection)

    def failed(self, connection: Connection) -> None:
        """It did not answer, or fell silent: others come first from now on."""
        connection.is_proven = False
        with self._lock:
            if self._connections[self._first] is connection:
                self._first = (self._first + 1) % len(self._connections)

    def close(self) -> None:
        """Close them all; one that does not come back from it is left behind, and said.

        gRPC's own close waits without a bound for the channel's calls to end. Nobody who leaves may
        be kept by that: the process could not end.
        """
        threads = [
            (one.name, threading.Thread(target=one.close, name="rink-etcd-close", daemon=True))
            for one in self._connections
        ]
        for _, thread in threads:
            try:
                thread.start()
            except RuntimeError:  # the interpreter exits, and lets no thread begin any more
                thread.run()
        end = time.monotonic() + _CLOSE_S
        for name, thread in threads:
            if thread.ident is not None:
                thread.join(max(end - time.monotonic(), 0.0))
            if thread.is_alive():
                _log.error("etcd %s: gRPC does not close the channel; it is left behind", name)
