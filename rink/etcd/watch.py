"""Deliver every change of a key range once and in order, despite failures.

A call of a watch may end and be opened again, perhaps on another server. Meanwhile etcd may have
lost its volume, or have been restored. Its cluster id, raft term and revision need not show that.
So a reopened call starts *at* the last delivered revision, not after it, and **the same events must
come again** (R11). If they do, it is the same history, and the watch goes on after them. It proves
nothing if other events come, if none comes within `_PROOF_TIMEOUT_S`, if that revision was
compacted, or if only deletions were delivered since the list. Then `WatchOpened` is delivered
first, and the receiver lists the range again.

Further rules, each with a test in integration/etcd or tests/etcd:
- The header of the `created` answer is the store's revision, and events below it may still be on
  their way. Progress answers of older servers overtake events, so they are only signs of life.
- etcd never splits a revision over two answers, since this watch does not set `fragment`.
- If the watch cannot go on (another cluster, a refusal), it ends with a WatchBroken.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING

import grpc

from rink.errors import EtcdAuth, EtcdClusterChanged, EtcdCompacted, EtcdError
from rink.etcd.answer_timeout import ANSWER_TIMEOUT_S, AnswerTimeout
from rink.etcd.api import KeyChange, WatchBroken, WatchEvents, WatchMessage, WatchOpened
from rink.etcd.bidi_call import BidiCall, BrokenError, FinishedError, Open
from rink.etcd.error_map import refusal
from rink.etcd.messages import to_event
from rink.etcd.methods import WATCH
from rink.etcd.proto import rinketcd_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from rink.etcd.channels import CountedChannel
    from rink.etcd.cluster_identity import KnownCluster
    from rink.etcd.transport import Transport

_log = logging.getLogger(__name__)

# Any answer on a channel is a sign of life for all its streams. After this time without one, a
# watch requests a sign of life. So a frozen server is left within 12 s if the channel has no other
# streams. At a TTL of 60 s, keepalives are answered every 10 s, so this is a little longer. Each
# request wakes a dozen threads of gRPC. Every 3 s, that was a fifth of an idle member's CPU time.
PROBE_INTERVAL_S = 10.2
# The bound if answers are slow (see `AnswerTimeout`). The view is late then anyway.
_MAX_ANSWER_TIMEOUT_S = 12.0

# Timeout for the last delivered events to come again. etcd brings a watch that begins in the past
# up to date ten times a second. After this time, a new list is better than an unproven view.
_PROOF_TIMEOUT_S = 2.0

OpenWatch = Open[pb.WatchRequest, pb.WatchResponse]


class RunningWatch(BidiCall[pb.WatchRequest, pb.WatchResponse, WatchMessage]):
    """Implement `rink.etcd.api.Watch`."""

    def __init__(
        self,
        transport: Transport,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        deliver: Callable[[WatchMessage], None],
    ) -> None:
        patience = AnswerTimeout(ANSWER_TIMEOUT_S, _MAX_ANSWER_TIMEOUT_S)
        super().__init__(transport, WATCH, deliver, patience, "rink-etcd-watch")
        self._key = key
        self._range_end = range_end
        # The start of the first call, and of later ones while nothing was delivered; 0 is "now".
        self._start = start_revision
        # All events of the last delivered revision, which prove the history of a new call.
        self._last: tuple[KeyChange, ...] = ()
        self._listed = 0.0  # the revision of the last list of the range; infinity during a list
        # `_is_proven`: the open call is proven to have the history of `_last`. `_created_at`: when
        # (monotonic) a server began to follow the range for this call, or None.
        self._is_proven = True
        self._created_at: float | None = None
        self._was_refused = False
        self._open = threading.Event()
        self._asked_at: float | None = None
        self._requests: OpenWatch | None = None
        self._epoch = transport.guard.known.epoch

    @property
    def _delivered(self) -> int:
        """Return the last delivered revision, or 0."""
        return self._last[0].kv.mod_revision if self._last else 0

    @property
    def _can_prove(self) -> bool:
        """Return whether the last events can prove the next call's history.

        Events before a list prove nothing about the list. And a deletion has only its key and
        revision, which another history may have, too.
        """
        if not self._last:
            return True  # nothing was delivered: the call begins at `_start`
        return self._delivered > self._listed and not all(event.deleted for event in self._last)

    def note_list(self, revision: int | None) -> None:
        """Note the revision of the last list, or None while a list is under way."""
        self._listed = math.inf if revision is None else revision

    def wait_open(self, seconds: float) -> bool:
        """Wait until a server follows the range, or the watch is over."""
        return self._open.wait(seconds)

    def close(self) -> None:
        """Stop the watch, and wait for the current delivery to end."""
        super().close()
        self._open.set()

    def _opened(self, opened: OpenWatch, header: pb.ResponseHeader | None) -> None:
        self._check_history(opened.known, header)
        self._asked_at = time.monotonic()  # the answer is that the watch is created
        if not self._can_prove:
            self._last, self._start = (), 0
        self._is_proven, self._created_at = not self._last, None
        self._requests = opened
        create = pb.WatchCreateRequest(
            key=self._key,
            range_end=self._range_end,
            start_revision=self._delivered or self._start,
        )
        opened.requests.put(pb.WatchRequest(create_request=create))

    def _check_history(self, known: KnownCluster, header: pb.ResponseHeader | None) -> None:
        if known.epoch != self._epoch:
            self._break(EtcdClusterChanged("the etcd cluster changed while this watch was open"))
        # The guard knows the revisions of lists. For a user whose reads are refused, only this
        # check remains.
        if header is not None and header.revision < self._delivered:
            text = f"etcd is at revision {header.revision}, but {self._delivered} was delivered"
            self._break(EtcdClusterChanged(f"{text} already: was it restored from a backup?"))

    def _received(self, opened: OpenWatch, answer: pb.WatchResponse) -> None:
        asked_at, self._asked_at = self._asked_at, None
        if asked_at is not None:
            self._patience.answered(time.monotonic() - asked_at)
        guard, name = self._transport.guard, opened.connection.name
        try:
            guard.check(answer.header, opened.known, name, quorum=False, revision=False)
        except EtcdClusterChanged as error:
            self._break(error)
        if answer.canceled:
            self._canceled(opened, answer)
        self._was_refused = False
        if answer.created:
            self._created_at = time.monotonic()
            if self._is_proven:  # nothing was delivered before, so nothing needs proof
                self._tell(WatchOpened())
                self._open.set()
        if answer.events:
            self._events(tuple(map(to_event, answer.events)))

    def _canceled(self, opened: OpenWatch, answer: pb.WatchResponse) -> None:
        if answer.compact_revision:
            if self._last or not self._start:
                self._forget_history()
                raise BrokenError(f"etcd has compacted up to revision {answer.compact_revision}")
            text = f"watch of {self._key!r} from revision {self._start}: etcd has compacted up to"
            self._break(EtcdCompacted(f"{text} {answer.compact_revision}"))
        reason = answer.cancel_reason or "no reason given"
        # Here a refused login is an answer, and not an error of the call.
        doing, where = f"the watch of {self._key!r}", opened.connection.name
        error = refusal(grpc.StatusCode.UNKNOWN, reason, doing, where)
        if not isinstance(error, EtcdAuth):
            raise BrokenError(reason)
        # etcd 3.5 reports a stale token as "permission denied", too. So only the refusal of a new
        # token counts.
        if self._was_refused or not self._transport.tokens.can_refresh:
            self._break(error)
        self._was_refused = True
        self._transport.tokens.refused(opened.token)
        raise BrokenError(reason)

    def _events(self, events: tuple[KeyChange, ...]) -> None:
        if not self._is_proven:
            self._prove(events)
        elif events[0].kv.mod_revision == self._delivered:
            # This was never seen. The rest of that revision would be taken for a repetition below.
            text = f"etcd split revision {self._delivered} over two answers of a watch"
            self._break(EtcdError(text))
        # The last events came again, as requested. Older servers also repeat earlier ones.
        new = tuple(event for event in events if event.kv.mod_revision > self._delivered)
        if new:
            revision = new[-1].kv.mod_revision
            self._tell(WatchEvents(revision, new))
            self._last = tuple(event for event in new if event.kv.mod_revision == revision)

    def _prove(self, events: tuple[KeyChange, ...]) -> None:
        """Compare the first events of a call with the last delivered events."""
        self._is_proven = True
        again = tuple(event for event in events if event.kv.mod_revision == self._delivered)
        if again != self._last:
            self._forget_history()
            self._tell(WatchOpened())
        self._open.set()

    def _forget_history(self) -> None:
        """Forget the delivered events. The next call begins with the next change."""
        text = "%s: etcd did not send revision %d again, so the range is listed anew"
        _log.debug(text, self._thread.name, self._delivered)
        self._last, self._start = (), 0

    def _tell(self, delivery: WatchMessage) -> None:
        bug = self._deliver(delivery)
        if bug is not None:
            # A receiver that failed on these events must not get the next ones.
            self._break(bug)

    def _break(self, error: Exception) -> None:
        self._deliver(WatchBroken(error))
        self._open.set()
        raise FinishedError

    def _refused(self, error: Exception) -> None:
        self._break(error)

    def _ended(self) -> None:
        self._requests = None
        if time.monotonic() > self._proof_due_at:
            self._forget_history()

    @property
    def _proof_due_at(self) -> float:
        """Return when the call must have proved its history, or infinity."""
        is_awaited = self._created_at is not None and not self._is_proven
        return (self._created_at or 0.0) + _PROOF_TIMEOUT_S if is_awaited else math.inf

    def _due_at(
        self,
        channel: CountedChannel,
        heard_at: float,  # noqa: ARG002 - the time of the request counts
    ) -> float:
        asked_at = self._asked_at
        if asked_at is None:
            return self._proof_due_at  # then the call ends, and the next one begins a new history
        if self._has_answered:
            asked_at = max(asked_at, channel.heard_at)
        return min(asked_at + self._patience.seconds, self._proof_due_at)

    def _asks_at(self, channel: CountedChannel, heard_at: float) -> float:
        if self._asked_at is not None:
            return math.inf
        if channel.is_doubted:
            return channel.doubted_at
        return max(heard_at, channel.heard_at) + PROBE_INTERVAL_S

    def _ask(self, now: float) -> None:
        opened = self._requests
        if opened is not None:
            self._asked_at = now
            self._transport.count("progress")
            opened.requests.put(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
