"""Open gRPC channels, and count the calls on each.

A channel keeps its client certificate for ever, and the address of a name for half a minute. So a
channel that failed is not repaired: `connections` makes a new one.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from rink._tuning import unhurried
from rink.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc

    from rink.etcd.methods import AnswerT, Method, Request

Metadata = tuple[tuple[str, str], ...]

Received_co = TypeVar("Received_co", covariant=True)


class Answers(Protocol[Received_co]):
    """Give the answers of a stream, as gRPC does."""

    def __iter__(self) -> Iterator[Received_co]:
        """Wait for each answer; raise grpc.RpcError when the stream breaks."""

    def cancel(self) -> object:
        """End the stream, from any thread."""


OPTIONS: tuple[tuple[str, int], ...] = (
    # All three are needed: without the last, a dead connection is noticed after 65 s and not 7 s.
    # A shorter time makes etcd hang up (too_many_pings), and so do pings without calls.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    # After a failed connect, gRPC refuses calls for this long. The client pauses between tries,
    # too. When etcd is back, a lease is not renewed for both pauses together: at most one second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Despite its name, this is how long one attempt to connect may take, with the TLS handshake.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # `transport` decides what is retried, and where. A txn is never sent twice.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # As in etcd's own clients: a group's whole range may exceed gRPC's default of 4 MB.
    ("grpc.max_receive_message_length", 2**31 - 1),
    # Clients share no connections, so neither a close nor a backoff of one affects another.
    ("grpc.use_local_subchannel_pool", 1),
    # By default, gRPC sends a ping after each answer to measure the bandwidth. That is half of the
    # cost of an exchange of two small messages. So the window is fixed, large enough for any list.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2**20),
    # A proxy for web sites does not lead to etcd.
    ("grpc.enable_http_proxy", 0),
)


GRPC_THREADS = 2
"""Number of gRPC's threads for a stream: one reads the channel, one sends requests."""


def check_threads(count: int) -> None:
    """Raise RuntimeError unless this many threads can be started at once."""
    may_end = threading.Event()
    try:
        for _ in range(count):
            threading.Thread(target=may_end.wait, name="rink-etcd-probe", daemon=True).start()
    finally:
        may_end.set()


class CountedChannel:
    """Hold one gRPC channel, and the number of calls that use it.

    Attributes:
        made_at: when the channel was made (monotonic).
        heard_at: when the last answer to any call came over the channel. For a watch, any answer
            proves that the server is alive. For a renewal it does not: a follower that cannot reach
            its leader still answers other calls.
        doubted_at: when a stream last waited in vain for an answer.
        is_closed: whether the channel is closed, or about to be.
        calls: how many calls use the channel; its `Connection` counts them.
    """

    def __init__(self, channel: grpc.Channel) -> None:
        self.made_at = time.monotonic()
        self.heard_at = -math.inf
        self.doubted_at = -math.inf
        self.is_closed = False
        self.calls = 0
        self._channel = channel
        self._callables: dict[str, Any] = {}

    def unary(
        self, method: Method[Request, AnswerT], request: Request, timeout: float, metadata: Metadata
    ) -> AnswerT:
        """Send one request and return its answer, or raise a grpc.RpcError."""
        try:
            call = self._callable(method, "unary_unary")
            answer = cast("AnswerT", call(request, timeout=timeout, metadata=metadata))
        except ValueError as error:
            self._refuse_closed(error)
            raise
        self.answered()
        return answer

    def stream(
        self, method: Method[Request, AnswerT], requests: Iterator[Request], metadata: Metadata
    ) -> Answers[AnswerT]:
        """Open a stream, for the caller to iterate over its answers and to cancel.

        Raises:
            RuntimeError: gRPC got no thread. It has counted the call anyway, so no later stream on
                this channel would be read.
        """
        try:
            call = self._callable(method, "stream_stream")
            return cast("Answers[AnswerT]", unhurried(call(requests, metadata=metadata)))
        except ValueError as error:
            self._refuse_closed(error)
            raise

    def answered(self) -> None:
        """Note that an answer came over the channel."""
        self.heard_at = time.monotonic()

    def doubt(self) -> None:
        """Note that a stream waited in vain, so others request a sign of life."""
        self.doubted_at = time.monotonic()

    @property
    def has_answered(self) -> bool:
        """Return whether any answer came over the channel."""
        return self.heard_at > -math.inf

    @property
    def is_doubted(self) -> bool:
        """Return whether a stream waited in vain, with no answer since."""
        return self.doubted_at > self.heard_at

    def close(self) -> None:
        """End the channel and every call on it. gRPC may take long."""
        self.is_closed = True
        self._channel.close()

    def _callable(self, method: Method[Request, AnswerT], kind: str) -> Any:
        # Two threads may make the same callable. Either may be used.
        call = self._callables.get(method.path)
        if call is None:
            call = self._callables[method.path] = getattr(self._channel, kind)(
                method.path,
                request_serializer=method.encode,
                response_deserializer=method.decode,
            )
        return call

    def _refuse_closed(self, error: ValueError) -> None:
        """Raise ClosedError if gRPC's error is that of a closed channel."""
        if self.is_closed:
            raise ClosedError("the etcd client is closed") from error
