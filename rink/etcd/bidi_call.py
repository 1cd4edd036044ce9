"""Keep a two-way call open: reopen it elsewhere if it ends or is silent.

Each stream has a thread that reads it and delivers the answers. Each client has one more thread,
the ticker. It checks all streams regularly, and cancels the calls of silent servers. This is
needed because the TCP connection of a frozen server stays open, and gRPC's own keepalive takes 7 s
to notice it.
"""

from __future__ import annotations

import abc
import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs
import grpc

from rink.backoff import Backoff
from rink.errors import ClosedError, EtcdUnavailable, RinkError
from rink.etcd.answer_timeout import AnswerTimeout
from rink.etcd.channels import GRPC_THREADS, check_threads
from rink.etcd.error_map import read_fault
from rink.etcd.methods import AnswerT, Method, Request
from rink.etcd.transport import NotAnsweredError, Transport, metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from rink.etcd.channels import Answers, CountedChannel
    from rink.etcd.cluster_identity import KnownCluster
    from rink.etcd.connections import Connection
    from rink.etcd.proto import rinketcd_pb2 as pb

_log = logging.getLogger(__name__)

# Bounds of the time between two checks of a stream, in seconds. The ticker checks it when an answer
# is due. The upper bound is needed, because an answer to a later request may be due before.
MIN_TICK_INTERVAL_S = 0.05
MAX_TICK_INTERVAL_S = 1.75
_JOIN_TIMEOUT_S = 1.0

T = TypeVar("T")
Delivered = TypeVar("Delivered")

Outgoing = queue.SimpleQueue[T | None]
"""The requests of one stream, until None. A thread of gRPC's takes them."""


@attrs.frozen
class Open(Generic[Request, AnswerT]):
    """Hold one call of a stream, on one connection."""

    connection: Connection
    channel: CountedChannel
    requests: Outgoing[Request]
    answers: Answers[AnswerT]
    token: str | None
    known: KnownCluster


class BrokenError(Exception):
    """Report that this call is over, and the next may go on. Internal."""


class FinishedError(Exception):
    """Report that the stream has delivered its end. Internal."""


class BidiCall(abc.ABC, Generic[Request, AnswerT, Delivered]):
    """Keep a stream open: reconnect it until it is closed.

    `deliver` is called on the stream's thread, one call at a time. `patience` is the timeout for a
    silent server, and `name` is the name of the thread.
    """

    def __init__(
        self,
        transport: Transport,
        method: Method[Request, AnswerT],
        deliver: Callable[[Delivered], None],
        patience: AnswerTimeout,
        name: str,
    ) -> None:
        self._transport = transport
        self._method = method
        self._user = deliver
        self._closed = threading.Event()
        # Held around every delivery, so that close() can wait for it. It is reentrant, since
        # close() may be called within a delivery.
        self._delivery = threading.RLock()
        self._lock = threading.Lock()
        self._call: Answers[AnswerT] | None = None
        self._channel: CountedChannel | None = None  # the channel of the call
        self._heard_at: float | None = None
        self._has_answered = False  # True after an answer to the open call
        self._backoff = Backoff(first=0.05, longest=0.5)
        self._failed_at: float | None = None  # the first failure since a call was answered
        self._troubles: dict[str, str] = {}  # by endpoint, until a call is answered
        self._patience = patience
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the stream, and wait until the current delivery has ended.

        If `deliver` itself calls this, there is no wait. In a forked child this does nothing, since
        the stream belongs to the parent.
        """
        if self._transport.is_forked:
            return
        self._closed.set()
        with self._lock:
            call = self._call
        if call is not None:
            call.cancel()
        with self._delivery:
            pass

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, at most `seconds`."""
        if threading.current_thread() is not self._thread:
            self._thread.join(seconds)

    @property
    def trouble(self) -> str:
        """Return why calls ended, for each endpoint, or "" after an answer."""
        troubles = list(self._troubles.items())
        return "; ".join(why if name in why else f"{name}: {why}" for name, why in troubles)

    @property
    def is_done(self) -> bool:
        """Return whether the thread has ended."""
        return not self._thread.is_alive()

    # ---------------------------------------------------------------- for the kinds of stream

    @abc.abstractmethod
    def _opened(self, opened: Open[Request, AnswerT], header: pb.ResponseHeader | None) -> None:
        """Send the first requests of a call; `header` is of the check before it."""

    @abc.abstractmethod
    def _received(self, opened: Open[Request, AnswerT], answer: AnswerT) -> None:
        """Handle one answer. Raise BrokenError to go on elsewhere."""

    @abc.abstractmethod
    def _ended(self) -> None:
        """Forget the state of a call that is over."""

    @abc.abstractmethod
    def _due_at(self, channel: CountedChannel, heard_at: float) -> float:
        """Return when an answer is due (monotonic), or infinity.

        The stream has waited for its server since `heard_at`.
        """

    @abc.abstractmethod
    def _asks_at(self, channel: CountedChannel, heard_at: float) -> float:
        """Return when to request a sign of life without an answer (monotonic)."""

    @abc.abstractmethod
    def _ask(self, now: float) -> None:
        """Request a sign of life from the server; `now` is monotonic."""

    @abc.abstractmethod
    def _refused(self, error: Exception) -> None:
        """Handle a final error. Raise FinishedError to end the stream."""

    def _deliver(self, value: Delivered) -> Exception | None:
        """Deliver a value to the user's function, and return its error, if any."""
        with self._delivery:
            if self._closed.is_set():
                return None
            try:
                self._user(value)
            except Exception as error:
                text = "%s: the function that receives deliveries raised an error"
                _log.exception(text, self._thread.name)
                return error
            return None

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        while not self._closed.is_set():
            connection = self._transport.ring.first
            try:
                self._attempt(connection)
            except (ClosedError, FinishedError):
                return
            except (NotAnsweredError, BrokenError) as error:
                if self._closed.is_set():
                    return
                # The engine warns of an outage that lasts, so this is for debugging.
                name = self._thread.name
                _log.debug("%s: %s: %s; retrying", name, connection.name, error)
                if self._failed_at is None:
                    self._failed_at = time.monotonic()
                self._troubles[connection.name] = str(error)
                self._transport.ring.failed(connection)
            self._closed.wait(self._backoff.next())

    def _attempt(self, connection: Connection) -> None:
        try:
            self._once(connection)
        except (ClosedError, FinishedError, NotAnsweredError, BrokenError):
            raise
        except Exception as error:
            # A final refusal of etcd, or a bug of Rink, which must not end a stream silently.
            if not isinstance(error, RinkError):
                text = "%s failed with an unexpected error; please report it"
                _log.exception(text, self._thread.name)
            self._refused(error)
            raise BrokenError(str(error)) from error

    def _once(self, connection: Connection) -> None:
        try:
            check_threads(GRPC_THREADS)
        except RuntimeError as error:
            raise BrokenError(str(error)) from error
        known = self._transport.guard.known
        # This finds a server that has no quorum, or is of another cluster, before the stream would
        # find it silent.
        header, token = self._verify(connection)
        with connection.channel() as channel:
            self._use(connection, channel, header, token, known)

    def _use(
        self,
        connection: Connection,
        channel: CountedChannel,
        header: pb.ResponseHeader | None,
        token: str | None,
        known: KnownCluster,
    ) -> None:
        requests: Outgoing[Request] = queue.SimpleQueue()
        self._transport.count(self._method.name)
        try:
            answers = channel.stream(self._method, iter(requests.get, None), metadata(token))
        except RuntimeError as error:
            connection.lost_thread(channel)
            raise BrokenError(str(error)) from error
        try:
            with self._lock:
                self._call, self._channel = answers, channel
            self._has_answered = False
            if self._closed.is_set():
                return
            opened = Open(connection, channel, requests, answers, token, known)
            self._opened(opened, header)
            self._heard_at = time.monotonic()
            self._read(opened)
        finally:
            self._heard_at = None
            with self._lock:
                self._call = self._channel = None
            answers.cancel()
            requests.put(None)
            self._ended()

    def _verify(self, connection: Connection) -> tuple[pb.ResponseHeader | None, str | None]:
        deadline = time.monotonic() + self._patience.seconds
        try:
            header = self._transport.verify(connection, deadline)
            return header, self._transport.token(connection, deadline)
        except NotAnsweredError:
            if time.monotonic() >= deadline:
                self._patience.was_in_vain()
            raise

    def _read(self, opened: Open[Request, AnswerT]) -> None:
        answers = iter(opened.answers)
        try:
            while True:
                answer = next(answers)
                opened.channel.answered()
                # Nothing is read during a delivery, and that is not the server's silence.
                self._heard_at, self._has_answered = None, True
                self._received(opened, answer)
                self._recovered(opened.connection)
                if self._closed.is_set():
                    return
                self._heard_at = time.monotonic()
        except StopIteration:
            raise BrokenError("the server ended the stream") from None
        except grpc.RpcError as error:
            fault = read_fault(error, has_user=self._transport.tokens.can_refresh)
            # gRPC raises the call itself. With its traceback the call would be in a cycle, which
            # the garbage collector would finalize while the interpreter exits. That takes a lock
            # which a thread killed by the exit may hold, and the process would hang.
            error.__traceback__ = None
            if not self._closed.is_set():  # otherwise close() cancelled it, and the channel is fine
                opened.connection.failed(opened.channel, is_silent=fault.is_timeout)
            # Only the ticker cancels a call of an open stream, if it finds the server silent.
            why = "the server is silent" if fault.is_timeout else fault.words
            raise BrokenError(why) from error

    def _recovered(self, connection: Connection) -> None:
        """Forget earlier failures, since a call was answered."""
        self._backoff.reset()
        self._troubles.clear()
        if self._failed_at is not None:
            seconds, self._failed_at = time.monotonic() - self._failed_at, None
            text = "%s: connected again to %s after %.1f s"
            _log.debug(text, self._thread.name, connection.name, seconds)

    def tick(self, now: float) -> float:
        """Cancel the call if its server is silent; return the next check's delay."""
        # The call is read before `heard_at`. So if a new call takes its place meanwhile, this
        # cancels the old one.
        with self._lock:
            call, channel = self._call, self._channel
        heard_at = self._heard_at
        # A silence that begins just after a check must not last much longer than others.
        longest = max(min(MAX_TICK_INTERVAL_S, self._patience.seconds), MIN_TICK_INTERVAL_S)
        if call is None or channel is None or heard_at is None:
            return longest
        if self._asks_at(channel, heard_at) < now:
            self._ask(now)
        due_at = self._due_at(channel, heard_at)
        if due_at < now:
            _log.debug("%s: the server is silent", self._thread.name)
            self._patience.was_in_vain()
            self._heard_at = None  # count this silence once, even if the reader runs much later
            channel.doubt()
            call.cancel()
            return 0.0  # the other streams on the channel request a sign of life at once
        look_at = min(due_at, self._asks_at(channel, heard_at))
        return min(max(look_at - now, MIN_TICK_INTERVAL_S), longest)


class Streams:
    """Hold the streams of one client, and find silent servers among them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self._streams: set[BidiCall[Any, Any, Any]] = set()
        self._ticker: threading.Thread | None = None

    def start(self, stream: BidiCall[Any, Any, Any]) -> None:
        """Start a stream, and check it until it ends.

        Raises:
            EtcdUnavailable: no thread can be started for it, and nothing has begun.
        """
        with self._lock:
            try:
                self._start_ticker()  # first: a stream without it would not notice silence
                stream.start()
            except RuntimeError as error:
                text = (
                    f"no thread for a stream to etcd: {error}. Does this process have too many "
                    "threads?"
                )
                raise EtcdUnavailable(text) from error
            self._streams.add(stream)

    def _start_ticker(self) -> None:
        if self._ticker is None:
            ticker = threading.Thread(target=self._tick, name="rink-etcd-ticker", daemon=True)
            ticker.start()
            self._ticker = ticker

    def close(self) -> None:
        """Close all streams, after the client has been marked closed."""
        for stream in self._running():
            stream.close()

    def join(self) -> None:
        """Wait for the threads to end, a moment at most.

        The connections must have been closed before.
        """
        end = time.monotonic() + _JOIN_TIMEOUT_S
        for stream in self._running():
            stream.join(max(end - time.monotonic(), 0.0))

    def _running(self) -> list[BidiCall[Any, Any, Any]]:
        with self._lock:
            self._streams = {stream for stream in self._streams if not stream.is_done}
            return list(self._streams)

    def _tick(self) -> None:
        pause = MIN_TICK_INTERVAL_S
        while not self._transport.closed.wait(pause):
            now = time.monotonic()
            pauses = [stream.tick(now) for stream in self._running()]
            pause = min(pauses, default=MAX_TICK_INTERVAL_S)
