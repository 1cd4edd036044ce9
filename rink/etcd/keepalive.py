"""Renew many leases over one keepalive stream.

etcd answers the requests of a stream one by one and in order. So the k-th answer belongs to the
k-th request, and a lease's deadline counts from the time noted for that request. The time is read
before the request is handed to gRPC. A time that is too early costs a moment of the lease. A time
that is too late could let two members hold one role.
"""

from __future__ import annotations

import collections
import logging
import math
import threading
import time
from typing import TYPE_CHECKING

import attrs

from rink.errors import EtcdClusterChanged, EtcdError
from rink.etcd.answer_timeout import AnswerTimeout
from rink.etcd.api import KeepAliveAnswer
from rink.etcd.bidi_call import BidiCall, BrokenError, Open, Outgoing
from rink.etcd.methods import KEEPALIVE
from rink.etcd.proto import rinketcd_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from rink.etcd.channels import CountedChannel
    from rink.etcd.transport import Transport

_log = logging.getLogger(__name__)

# If a request is unanswered for longer than this part of the TTL, the server is frozen or cannot
# reach its leader. The next server may be the frozen leader itself. The third must still answer in
# time, with twice the timeout. If the last answer took longer than half of this part, the timeout
# begins longer, and then only the second server can be in time.
_PATIENCES_PER_TTL = 12
_LONGEST_PER_TTL = 6
_LONGEST_PER_SHORT_TTL = 3
_ANSWER_TIMEOUT_S = 2.0

# Requests a sign of life and renews nothing: etcd answers an unknown lease with a TTL of 0. (A
# lease may be renewed only while its engine answers.)
NO_LEASE = 0


_FORGOTTEN = -1
"""The epoch of forgotten requests. It is before all others, so they are not sent again."""


@attrs.frozen
class Sent:
    """Hold a request that was sent.

    `sent_at` is by the caller's clock, and `handed_at` is monotonic. `epoch` is the guard's epoch,
    since a request to one cluster must not be sent to another.
    """

    lease: int
    sent_at: float
    handed_at: float
    epoch: int


class Unanswered:
    """Keep the unanswered requests of one client.

    The requests on the stream are in order. The others wait for a stream: at most one for each
    lease, since a later request replaces an earlier one. Not thread-safe.
    """

    def __init__(self) -> None:
        self._sent: collections.deque[Sent] = collections.deque()
        self._waiting: dict[int, Sent] = {}

    def wait(self, request: Sent) -> None:
        """Keep a request until there is a stream to send it on."""
        self._waiting[request.lease] = request

    def send(self, request: Sent) -> None:
        """Note a request as handed to the stream."""
        self._sent.append(request)

    def forget(self, lease: int) -> None:
        """Forget the lease's requests, so that none is sent again.

        A request on the stream keeps its place in the order.
        """
        self._waiting.pop(lease, None)
        self._sent = collections.deque(
            attrs.evolve(sent, epoch=_FORGOTTEN) if sent.lease == lease else sent
            for sent in self._sent
        )

    def take_waiting(self, epoch: int) -> list[Sent]:
        """Return the waiting requests to be sent now.

        Requests to an earlier cluster are forgotten.
        """
        waiting, self._waiting = self._waiting, {}
        return [request for request in waiting.values() if request.epoch >= epoch]

    def answered(self, lease: int) -> Sent | None:
        """Return the request that an answer belongs to, or None if out of order."""
        if not self._sent or self._sent[0].lease != lease:
            return None
        return self._sent.popleft()

    def drop_sent(self) -> None:
        """Make the requests of a broken stream wait for the next stream.

        None of them will be answered. They keep the time of their first sending, which is safe
        because it is earlier.
        """
        for sent in self._sent:
            if sent.lease == NO_LEASE:
                continue
            later = self._waiting.get(sent.lease)
            if later is None or sent.sent_at > later.sent_at:
                self._waiting[sent.lease] = sent
        self._sent.clear()

    @property
    def oldest_at(self) -> float | None:
        """Return when the oldest unanswered request was handed over (monotonic)."""
        return self._sent[0].handed_at if self._sent else None


OpenKeepAlive = Open[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]


class KeepAliveStream(
    BidiCall[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse, KeepAliveAnswer]
):
    """Implement `rink.etcd.api.KeepAlives`.

    `clock` gives `sent_at`. `is_gone` asks etcd whether a lease has ended, and raises EtcdError
    without an answer.
    """

    def __init__(
        self,
        transport: Transport,
        deliver: Callable[[KeepAliveAnswer], None],
        clock: Callable[[], float],
        is_gone: Callable[[int], bool],
    ) -> None:
        patience = AnswerTimeout(_ANSWER_TIMEOUT_S, _ANSWER_TIMEOUT_S)  # until the TTL is known
        super().__init__(transport, KEEPALIVE, deliver, patience, "rink-etcd-keepalive")
        self._clock = clock
        self._is_gone = is_gone
        self._order = threading.Lock()
        self._unanswered = Unanswered()
        self._requests: Outgoing[pb.LeaseKeepAliveRequest] | None = None
        self._shortest_ttl = math.inf
        self._call_number = 0  # the number of the call that is open

    def send(self, lease: int) -> None:
        """Request one renewal, without blocking.

        While the stream is down, one request for each lease waits for it.
        """
        self._transport.check_usable()
        with self._order:
            epoch = self._transport.guard.known.epoch
            request = Sent(lease, self._clock(), time.monotonic(), epoch)
            if self._requests is None:
                self._unanswered.wait(request)
            else:
                self._hand_over(self._requests, request)

    def forget(self, lease: int) -> None:
        """Stop sending requests of this lease, also unanswered ones."""
        with self._order:
            self._unanswered.forget(lease)

    def _hand_over(self, requests: Outgoing[pb.LeaseKeepAliveRequest], request: Sent) -> None:
        # Both happen in one hold of the lock, so the noted order is the order of sending.
        self._unanswered.send(request)
        self._transport.count(KEEPALIVE.name)
        requests.put(pb.LeaseKeepAliveRequest(ID=request.lease))

    def _opened(
        self,
        opened: OpenKeepAlive,
        header: pb.ResponseHeader | None,  # noqa: ARG002 - the guard has checked it
    ) -> None:
        self._call_number += 1
        with self._order:
            self._requests = opened.requests
            now = time.monotonic()
            for request in self._unanswered.take_waiting(opened.known.epoch):
                self._hand_over(opened.requests, attrs.evolve(request, handed_at=now))

    def _received(self, opened: OpenKeepAlive, answer: pb.LeaseKeepAliveResponse) -> None:
        # An answer is delivered only if it proves the renewal by its request. Three checks show
        # that: its raft term is not below any seen, it is next in order, and it is of the cluster
        # that the call was opened on. Their order matters: an answer of an old leader must leave
        # its request unanswered, so the request is sent again.
        guard = self._transport.guard
        if answer.header.raft_term < guard.known.raft_term:
            # A former leader may still renew its own copy of a lease that has ended long ago.
            raise BrokenError(f"an answer of the past raft term {answer.header.raft_term}")
        with self._order:
            sent = self._unanswered.answered(answer.ID)
        if sent is None:
            raise BrokenError(f"an answer for lease {answer.ID:x} out of order")
        try:
            name = opened.connection.name
            guard.check(answer.header, opened.known, name, quorum=answer.TTL > 0, revision=False)
        except EtcdClusterChanged as error:
            raise BrokenError(str(error)) from error
        if answer.TTL > 0:
            self._shortest_ttl = ttl = min(self._shortest_ttl, answer.TTL)
            short = min(ttl / _LONGEST_PER_SHORT_TTL, _ANSWER_TIMEOUT_S)
            self._patience.bound(ttl / _PATIENCES_PER_TTL, max(ttl / _LONGEST_PER_TTL, short))
        self._patience.answered(time.monotonic() - sent.handed_at)
        if answer.TTL > 0:
            self._deliver(KeepAliveAnswer(sent.lease, sent.sent_at, answer.TTL, self._call_number))
        elif sent.lease != NO_LEASE:
            self._gone(opened, sent)

    def _gone(self, opened: OpenKeepAlive, sent: Sent) -> None:
        # TTL 0 ends a session, so etcd is asked once more. With a token from before a restart, a
        # server has answered 0 instead of a refusal. And a leader that lags behind may not know a
        # lease that was just granted.
        self._transport.tokens.refused(opened.token)
        try:
            gone = self._is_gone(sent.lease)
        except EtcdError as error:
            text = "lease %x: etcd reported that the lease has ended, but did not confirm: %s"
            _log.debug(text, sent.lease, error)
            return
        if gone:
            self._deliver(KeepAliveAnswer(sent.lease, sent.sent_at, 0, self._call_number))
        else:
            text = "lease %x: etcd reported that the lease has ended, but it still exists"
            _log.warning(text, sent.lease)

    def _refused(self, error: Exception) -> None:
        if self._backoff.is_fresh:  # the session warns if this lasts
            _log.debug("leases cannot be renewed: %s", error)

    def _ended(self) -> None:
        with self._order:
            self._requests = None
            self._unanswered.drop_sent()

    def _due_at(self, channel: CountedChannel, heard_at: float) -> float:
        # Answers to other calls do not count: a follower that cannot reach its leader gives them.
        with self._order:
            oldest_at = self._unanswered.oldest_at
        if oldest_at is None:
            return math.inf
        due_at = max(oldest_at, heard_at) + self._patience.seconds
        if channel.is_doubted:
            asked_at = max(oldest_at, channel.doubted_at)
            due_at = min(due_at, asked_at + self._patience.when_asked)
        return due_at

    def _asks_at(
        self,
        channel: CountedChannel,
        heard_at: float,  # noqa: ARG002 - each renewal requests an answer
    ) -> float:
        with self._order:
            is_awaited = self._unanswered.oldest_at is not None
        return channel.doubted_at if channel.is_doubted and not is_awaited else math.inf

    def _ask(self, now: float) -> None:
        with self._order:
            if self._requests is not None:
                epoch = self._transport.guard.known.epoch
                self._hand_over(self._requests, Sent(NO_LEASE, self._clock(), now, epoch))
