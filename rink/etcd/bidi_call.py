"""A two-way call that is kept up: opened again elsewhere whenever it ends or falls silent.

One thread of its own reads each stream, and delivers what it read. One more thread per client, the
ticker, looks at all streams now and then and cancels those whose server is silent: the TCP
connection of a frozen server stays open, and gRPC's own keepalive takes 7 s to notice it.
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
    from collections.abc import Callable, Iterator

    from rink.etcd.channels import Answers, CountedChannel
    from rink.etcd.cluster_identity import KnownCluster
    from rink.etcd.connections import Connection
    from rink.etcd.proto import rinketcd_pb2 as pb

_log = logging.getLogger(__name__)

# The ticker looks at a stream when an answer is due, but never sooner than after the first of these
# and never later than after the second: what was asked meanwhile may be due by then.
TICK_S = 0.05
IDLE_TICK_S = 1.75
_JOIN_S = 1.0

T = TypeVar("T")
Delivered = TypeVar("Delivered")


class Outgoing(Generic[T]):
    """What is sent on one stream: gRPC iterates over it on a thread of its own until the end."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[T | None] = queue.SimpleQueue()

    def put(self, request: T) -> None:
        """Send this; never blocks."""
        self._queue.put(request)

    def end(self) -> None:
        """Let gRPC's thread go."""
        self._queue.put(None)

    def __iter__(self) -> Iterator[T]:
        return iter(self._queue.get, None)


@attrs.frozen
class Open(Generic[Request, AnswerT]):
    """One call of a stream, on one connection."""

    connection: Connection
    channel: CountedChannel
    requests: Outgoing[Request]
    answers: Answers[AnswerT]
    token: str | None
    known: KnownCluster


class BrokenError(Exception):
    """This call of the stream is over and another may go on; never leaves this package."""


class FinishedError(Exception):
    """The stream is over and has said so; never leaves this package."""


class BidiCall(abc.ABC, Generic[Request, AnswerT, Delivered]):
    """A stream that reconnects until it is closed.

    Args:
        transport: the client's.
        method: what is called.
        deliver: the user's function; called on the stream's thread, one call at a time.
        patience: with a silent server.
        name: of the thread.
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
        # Held around every delivery, so that close() can wait for one that is under way. Reentrant:
        # close() may be called from within a delivery.
        self._delivery = threading.RLock()
        self._lock = threading.Lock()
        self._call: Answers[AnswerT] | None = None
        self._channel: CountedChannel | None = None  # that the call is on
        self._heard_at: float | None = None
        self._has_answered = False  # the call now open
        self._backoff = Backoff(first=0.05, longest=0.5)
        self._failed_at: float | None = None  # the first failure since a call was answered
        self._troubles: dict[str, str] = {}  # the last of each endpoint, until a call is answered
        self._patience = patience
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop it; waits for a delivery under way, unless called from within it.

        In a forked child it does nothing: the stream is the parent's.
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
        """Wait until its thread has ended."""
        if threading.current_thread() is not self._thread:
            self._thread.join(seconds)

    @property
    def trouble(self) -> str:
        """Return why calls ended, for each endpoint.

        It is empty once another call is answered.
        """
        troubles = list(self._troubles.items())
        return "; ".join(why if name in why else f"{name}: {why}" for name, why in troubles)

    @property
    def is_done(self) -> bool:
        """Return whether the thread has ended."""
        return not self._thread.is_alive()

    # ---------------------------------------------------------------- for the kinds of stream

    @abc.abstractmethod
    def _opened(self, opened: Open[Request, AnswerT], header: pb.ResponseHeader | None) -> None:
        """Send what an opened call begins with.

        `header` is of the check before it.
        """

    @abc.abstractmethod
    def _received(self, opened: Open[Request, AnswerT], answer: AnswerT) -> None:
        """Treat one answer. Raises BrokenError to go on elsewhere."""

    @abc.abstractmethod
    def _ended(self) -> None:
        """Forget what belonged to a call that is over."""

    @abc.abstractmethod
    def _due_at(self, channel: CountedChannel, heard_at: float) -> float:
        """Return when an answer is due (monotonic).

        Infinity where none is awaited.

        Args:
            channel: that the call is on.
            heard_at: since when the stream waits for its server.
        """

    @abc.abstractmethod
    def _asks_at(self, channel: CountedChannel, heard_at: float) -> float:
        """Return when to ask for a sign of life without an answer (monotonic)."""

    @abc.abstractmethod
    def _ask(self, now: float) -> None:
        """Ask the server for a sign of life, now (monotonic)."""

    @abc.abstractmethod
    def _refused(self, error: Exception) -> None:
        """Handle an error after which the stream cannot go on.

        Raises FinishedError to end the stream.
        """

    def _deliver(self, value: Delivered) -> Exception | None:
        """Deliver a value to the user's function, and return what it raised.

        What it raises is a bug of its own.
        """
        with self._delivery:
            if self._closed.is_set():
                return None
            try:
                self._user(value)
            except Exception as error:
                _log.exception("%s: the function delivered to raised", self._thread.name)
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
                _log.debug("%s: %s: %s; trying again", name, connection.name, error)
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
            # What etcd refuses for good; or a bug of ours, which must not end a stream in silence.
            if not isinstance(error, RinkError):
                _log.exception("%s: a bug of rink's", self._thread.name)
            self._refused(error)
            raise BrokenError(str(error)) from error

    def _once(self, connection: Connection) -> None:
        try:
            check_threads(GRPC_THREADS)
        except RuntimeError as error:
            raise BrokenError(str(error)) from error
        known = self._transport.guard.known
        # A member that cannot read through a quorum, or is of another cluster, is found out here
        # and not by its silence.
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
        requests: Outgoing[Request] = Outgoing()
        self._transport.count(self._method.name)
        try:
            answers = channel.stream(self._method, iter(requests), metadata(token))
        except RuntimeError as error:
            connection.lost_thread(channel)
            raise BrokenError(str(error)) from error
        try:
            with self._lock:
                self._call, self._channel = answers, channel
            self._has_answered = False
            if self._closed.is_set():
                return
            opened: Open[Request, AnswerT] = Open(
                connection, channel, requests, answers, token, known
            )
            self._opened(opened, header)
            self._heard_at = time.monotonic()
            self._read(opened)
        finally:
            self._heard_at = None
            with self._lock:
                self._call = self._channel = None
            answers.cancel()
            requests.end()
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
                # While we deliver we do not read: that is no silence of the server's.
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
            # What gRPC raises is the call itself. With its traceback it would be in a cycle, so
            # that the garbage collector of the exiting interpreter finalizes it: that takes a lock
            # which a thread that the exit has killed may hold, and the process hangs.
            error.__traceback__ = None
            if not self._closed.is_set():  # else it was cancelled, and the channel is well
                opened.connection.failed(opened.channel, is_silent=fault.is_timeout)
            # Only we end a call of a stream: the ticker, where it finds the server silent.
            raise BrokenError(
                "the server is silent" if fault.is_timeout else fault.words
            ) from error

    def _recovered(self, connection: Connection) -> None:
        """Forget earlier failures, since a call was answered."""
        self._backoff.reset()
        self._troubles.clear()
        if self._failed_at is not None:
            seconds, self._failed_at = time.monotonic() - self._failed_at, None
            text = "%s: connected again to %s after %.1f s"
            _log.debug(text, self._thread.name, connection.name, seconds)

    def tick(self, now: float) -> float:
        """Cancel the call if its server is silent.

        The ticker calls this.

        Returns:
            In how many seconds to look again.
        """
        # In this order: a call that has taken this one's place meanwhile is not the one cancelled.
        with self._lock:
            call, channel = self._call, self._channel
        heard_at = self._heard_at
        # Silence is not to go on for much longer because it began just after a look.
        longest = max(min(IDLE_TICK_S, self._patience.seconds), TICK_S)
        if call is None or channel is None or heard_at is None:
            return longest
        if self._asks_at(channel, heard_at) < now:
            self._ask(now)
        due_at = self._due_at(channel, heard_at)
        if due_at < now:
            _log.debug("%s: the server is silent", self._thread.name)
            self._patience.was_in_vain()
            self._heard_at = None  # one silence is one, though the reader may not get to run soon
            channel.doubt()
            call.cancel()
            return 0.0  # the other streams on the channel are asked at once
        look_at = min(due_at, self._asks_at(channel, heard_at))
        return min(max(look_at - now, TICK_S), longest)


class Streams:
    """All streams of one client, and the thread that looks for silent servers among them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self._streams: set[BidiCall[Any, Any, Any]] = set()
        self._ticker: threading.Thread | None = None

    def start(self, stream: BidiCall[Any, Any, Any]) -> None:
        """Begin a stream, and look after it until it ends.

        Raises:
            EtcdUnavailable: there is no thread for it, and nothing has begun.
        """
        with self._lock:
            try:
                self._start_ticker()  # first: no stream goes without
                stream.start()
            except RuntimeError as error:
                text = f"no thread for a stream to etcd: {error}. Does this process have too many?"
                raise EtcdUnavailable(text) from error
            self._streams.add(stream)

    def _start_ticker(self) -> None:
        if self._ticker is None:
            ticker = threading.Thread(target=self._tick, name="rink-etcd-ticker", daemon=True)
            ticker.start()
            self._ticker = ticker

    def close(self) -> None:
        """Close them all; the client has been marked closed before."""
        for stream in self._running():
            stream.close()

    def join(self) -> None:
        """Wait a moment for the threads to end.

        The connections have been closed before.
        """
        end = time.monotonic() + _JOIN_S
        for stream in self._running():
            stream.join(max(end - time.monotonic(), 0.0))

    def _running(self) -> list[BidiCall[Any, Any, Any]]:
        with self._lock:
            self._streams = {one for one in self._streams if not one.is_done}
            return list(self._streams)

    def _tick(self) -> None:
        pause = TICK_S
        while not self._transport.wait_closed(pause):
            now = time.monotonic()
            pause = min((stream.tick(now) for stream in self._running()), default=IDLE_TICK_S)
