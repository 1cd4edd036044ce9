"""One watch: every change of a key range once and in order, whatever happens to the servers.

Rules (ETCD-CLIENT section 8), each with a test of its name in integration/etcd:
- it resumes at the last *delivered* event's revision + 1. The header of the `created` answer is
  the store's revision, and events below it may still be on their way; it counts only where no start
  was asked for. Progress answers of older servers overtake events: they are signs of life only.
- etcd never splits a revision over two answers unless asked to (`fragment`, which we leave false).
- what cannot be resumed (compacted, another cluster, refused) ends it with a WatchBroken.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import grpc

from rink.errors import EtcdAuth, EtcdClusterChanged, EtcdCompacted, EtcdError
from rink.etcd.api import WatchBroken, WatchEvents
from rink.etcd.faults import refusal
from rink.etcd.messages import to_event
from rink.etcd.methods import WATCH
from rink.etcd.patience import Patience
from rink.etcd.proto import rinketcd_pb2 as pb
from rink.etcd.stream import BrokenError, FinishedError, Open, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from rink.etcd.guard import Known
    from rink.etcd.transport import Transport

# After this much silence the server is asked for a sign of life, and so long it may take to answer:
# together, and with the ticker's period, a frozen server is left within 5 s. Each question wakes a
# dozen threads of gRPC's: asked twice as often, they were a fifth of what an idle member takes.
_ASK_AFTER_S = 3.0
_ANSWER_WITHIN_S = 1.5
# Where answers are slow (see `Patience`): a view that is so late is late anyway.
_ANSWER_WITHIN_AT_MOST_S = 12.0

Delivery = WatchEvents | WatchBroken


class RunningWatch(Stream[pb.WatchRequest, pb.WatchResponse, Delivery]):
    """Implements `rink.etcd.api.Watch`."""

    def __init__(
        self,
        transport: Transport,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        deliver: Callable[[Delivery], None],
    ) -> None:
        patience = Patience(_ANSWER_WITHIN_S, _ANSWER_WITHIN_AT_MOST_S)
        super().__init__(transport, WATCH, deliver, patience, "rink-etcd-watch")
        self._key = key
        self._range_end = range_end
        # 0: from whenever the server first hears of it.
        self._next = start_revision
        self._delivered = 0
        # What `_delivered` was when the call now open began.
        self._resumed_behind = 0
        self._was_refused = False
        self._open = threading.Event()
        self._asked_at: float | None = None
        self._requests: Open[pb.WatchRequest, pb.WatchResponse] | None = None
        self._epoch = transport.guard.known.epoch

    def wait_open(self, seconds: float) -> bool:
        """Wait until a server follows the range, or the watch is over; false if it takes longer."""
        return self._open.wait(seconds)

    def close(self) -> None:
        """Stop it; waits for a delivery under way, unless called from within it."""
        super().close()
        self._open.set()

    def _opened(
        self,
        opened: Open[pb.WatchRequest, pb.WatchResponse],
        header: pb.ResponseHeader | None,
    ) -> None:
        self._check_history(opened.known, header)
        self._asked_at = time.monotonic()  # to be told that the watch is created
        self._resumed_behind = self._delivered
        self._requests = opened
        create = pb.WatchCreateRequest(
            key=self._key, range_end=self._range_end, start_revision=self._next
        )
        opened.requests.put(pb.WatchRequest(create_request=create))

    def _check_history(self, known: Known, header: pb.ResponseHeader | None) -> None:
        if known.epoch != self._epoch:
            self._break(EtcdClusterChanged("the etcd cluster was seen to change under this watch"))
        # The guard knows what was listed before; a user whose reads tell no revision has only this.
        if header is not None and header.revision < self._delivered:
            self._break(
                EtcdClusterChanged(
                    f"etcd is at revision {header.revision}, and {self._delivered} was delivered "
                    "already: was it restored from a backup?"
                )
            )

    def _received(
        self, opened: Open[pb.WatchRequest, pb.WatchResponse], answer: pb.WatchResponse
    ) -> None:
        asked_at, self._asked_at = self._asked_at, None
        if asked_at is not None:
            self._patience.answered(time.monotonic() - asked_at)
        try:
            self._transport.guard.check(answer.header, opened.known, quorum=False, revision=False)
        except EtcdClusterChanged as error:
            self._break(error)
        if answer.canceled:
            self._canceled(opened, answer)
        self._was_refused = False
        self._open.set()
        if answer.created and not self._next:
            self._next = answer.header.revision + 1
        if answer.events:
            self._events(answer)

    def _canceled(
        self, opened: Open[pb.WatchRequest, pb.WatchResponse], answer: pb.WatchResponse
    ) -> None:
        if answer.compact_revision:
            self._break(
                EtcdCompacted(
                    f"watch of {self._key!r} from revision {self._next}: etcd has compacted up to "
                    f"{answer.compact_revision}"
                )
            )
        reason = answer.cancel_reason or "no reason given"
        # Refused logins come as an answer here, and not as an error of the call.
        error = refusal(
            grpc.StatusCode.UNKNOWN, reason, f"the watch of {self._key!r}", opened.connection.name
        )
        if not isinstance(error, EtcdAuth):
            raise BrokenError(reason)
        # etcd 3.5 says "permission denied" of a stale token too: only a fresh one is believed.
        if self._was_refused or not self._transport.tokens.can_refresh:
            self._break(error)
        self._was_refused = True
        self._transport.tokens.refused(opened.token)
        raise BrokenError(reason)

    def _events(self, answer: pb.WatchResponse) -> None:
        first = answer.events[0].kv.mod_revision
        if first == self._delivered and self._delivered > self._resumed_behind:
            # Never seen; but the rest of that revision would be taken for a repetition below.
            self._break(EtcdError(f"etcd split revision {first} over two answers of a watch"))
        # Older servers were seen to repeat events after a resume; none is delivered twice.
        events = tuple(
            to_event(event) for event in answer.events if event.kv.mod_revision > self._delivered
        )
        if not events:
            return
        revision = events[-1].kv.mod_revision
        bug = self._deliver(WatchEvents(revision, events))
        if bug is not None:
            # Whoever did not take these must not be given the next ones as if they had.
            self._break(bug)
        self._delivered = revision
        self._next = revision + 1

    def _break(self, error: Exception) -> None:
        self._deliver(WatchBroken(error))
        self._open.set()
        raise FinishedError

    def _refused(self, error: Exception) -> None:
        self._break(error)

    def _ended(self) -> None:
        self._requests = None

    def _is_stalled(self, now: float, heard_at: float) -> bool:
        asked_at, opened = self._asked_at, self._requests
        if asked_at is not None:
            return now - asked_at > self._patience.seconds
        if now - heard_at > _ASK_AFTER_S and opened is not None:
            self._asked_at = time.monotonic()
            self._transport.count("progress")
            opened.requests.put(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
        return False

    def _look_in(self, now: float, heard_at: float) -> float:
        return 0.0 if self._asked_at is not None else heard_at + _ASK_AFTER_S - now
