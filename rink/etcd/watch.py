"""One watch: every change of a key range once and in order, whatever happens to the servers.

A call of a watch may end and be opened again, on another server perhaps. etcd may have lost its
volume meanwhile, or have been restored: its cluster id, raft term and revision need not tell. So a
call that is opened again starts *at* the last delivered revision, not behind it, and **the same
events must come again** (R11). If they do, it is the same history, and the watch goes on behind
them. If other events come, or none within `_PROVEN_WITHIN_S`, or that revision was compacted, or
nothing but deletions was delivered since the list, then nothing is proven, and `WatchOpened` is
delivered before anything else: whoever keeps a view of the range lists it anew.

Further rules, each with a test of its name in integration/etcd:
- The header of the `created` answer is the store's revision, and events below it may still be on
  their way. Progress answers of older servers overtake events: they are signs of life only.
- etcd never splits a revision over two answers unless asked to (`fragment`, which we leave false).
- What cannot go on at all (another cluster, refused) ends it with a WatchBroken.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING

import grpc

from rink.errors import EtcdAuth, EtcdClusterChanged, EtcdCompacted, EtcdError
from rink.etcd.answer_timeout import ANSWER_WITHIN_S, AnswerTimeout
from rink.etcd.api import KeyChange, WatchBroken, WatchEvents, WatchOpened
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

# Any answer on a channel is a sign of life for all its streams. After so long without one a watch
# asks for it, so a frozen server is left within 12 s where nothing else is on the channel. At a TTL
# of 60 s keepalives are answered every 10 s, so a little more is waited. Each question wakes a
# dozen threads of gRPC's: asked every 3 s, they were a fifth of what an idle member takes.
ASK_AFTER_S = 10.2
# Where answers are slow (see `AnswerTimeout`): a view that is so late is late anyway.
_ANSWER_WITHIN_AT_MOST_S = 12.0

# Time for the last delivered events to come again. etcd brings a watch that begins in the past
# up to date ten times a second. Beyond that a new list is cheaper than a view nobody can trust.
_PROVEN_WITHIN_S = 2.0

Delivery = WatchOpened | WatchEvents | WatchBroken


class RunningWatch(BidiCall[pb.WatchRequest, pb.WatchResponse, Delivery]):
    """Implements `rink.etcd.api.Watch`."""

    def __init__(
        self,
        transport: Transport,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        deliver: Callable[[Delivery], None],
    ) -> None:
        patience = AnswerTimeout(ANSWER_WITHIN_S, _ANSWER_WITHIN_AT_MOST_S)
        super().__init__(transport, WATCH, deliver, patience, "rink-etcd-watch")
        self._key = key
        self._range_end = range_end
        # Where the first call begins, and a later one while nothing was delivered; 0 is "from now".
        self._start = start_revision
        # All events of the revision that was delivered last: what proves the history of a new call.
        self._last: tuple[KeyChange, ...] = ()
        self._listed = 0.0  # the revision of the last list of the range; infinity: one is under way
        # Whether the call now open is known to bring the history of `_last`, and since when
        # (monotonic) a server has followed the range for it.
        self._is_proven = True
        self._created_at: float | None = None
        self._was_refused = False
        self._open = threading.Event()
        self._asked_at: float | None = None
        self._requests: Open[pb.WatchRequest, pb.WatchResponse] | None = None
        self._epoch = transport.guard.known.epoch

    @property
    def _delivered(self) -> int:
        """Return the last delivered revision, or 0."""
        return self._last[0].kv.mod_revision if self._last else 0

    @property
    def _can_prove(self) -> bool:
        """Return whether the last events can prove that the next call's history is the same.

        A list has later changes than an event before it. A deletion says only its key and revision.
        """
        if not self._last:
            return True  # nothing was delivered: the call begins at `_start`
        return self._delivered > self._listed and not all(one.deleted for one in self._last)

    def note_list(self, revision: int | None) -> None:
        """Note at which revision the range was listed, or None while a list is under way."""
        self._listed = math.inf if revision is None else revision

    def wait_open(self, seconds: float) -> bool:
        """Wait until a server follows the range, or the watch is over.

        Return False if it takes longer.
        """
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
            name = opened.connection.name
            self._transport.guard.check(
                answer.header, opened.known, name, quorum=False, revision=False
            )
        except EtcdClusterChanged as error:
            self._break(error)
        if answer.canceled:
            self._canceled(opened, answer)
        self._was_refused = False
        if answer.created:
            self._created_at = time.monotonic()
            if self._is_proven:  # nothing was delivered, so there is nothing to prove
                self._tell(WatchOpened())
                self._open.set()
        if answer.events:
            self._events(tuple(map(to_event, answer.events)))

    def _canceled(
        self, opened: Open[pb.WatchRequest, pb.WatchResponse], answer: pb.WatchResponse
    ) -> None:
        if answer.compact_revision:
            if self._last or not self._start:
                self._forget_history()
                raise BrokenError(f"etcd has compacted up to revision {answer.compact_revision}")
            self._break(
                EtcdCompacted(
                    f"watch of {self._key!r} from revision {self._start}: etcd has compacted up to "
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

    def _events(self, events: tuple[KeyChange, ...]) -> None:
        if not self._is_proven:
            self._prove(events)
        elif events[0].kv.mod_revision == self._delivered:
            # Never seen; but the rest of that revision would be taken for a repetition below.
            text = f"etcd split revision {self._delivered} over two answers of a watch"
            self._break(EtcdError(text))
        # These came again, as asked. Older servers also repeat earlier ones after a resume.
        new = tuple(event for event in events if event.kv.mod_revision > self._delivered)
        if new:
            revision = new[-1].kv.mod_revision
            self._tell(WatchEvents(revision, new))
            self._last = tuple(event for event in new if event.kv.mod_revision == revision)

    def _prove(self, events: tuple[KeyChange, ...]) -> None:
        """Hold the first events of a call against what was delivered last."""
        self._is_proven = True
        again = tuple(event for event in events if event.kv.mod_revision == self._delivered)
        if again != self._last:
            self._forget_history()
            self._tell(WatchOpened())
        self._open.set()

    def _forget_history(self) -> None:
        """Forget the delivered events; the next call begins from now on."""
        name, delivered = self._thread.name, self._delivered
        _log.debug(
            "%s: etcd did not send revision %d again, so the range is listed anew", name, delivered
        )
        self._last, self._start = (), 0

    def _tell(self, delivery: Delivery) -> None:
        bug = self._deliver(delivery)
        if bug is not None:
            # A receiver that failed on these must not get the next events as if it had taken them.
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
        """Return when the call must have proved its history.

        The time is monotonic, and infinity where it has.
        """
        is_awaited = self._created_at is not None and not self._is_proven
        return (self._created_at or 0.0) + _PROVEN_WITHIN_S if is_awaited else math.inf

    def _due_at(
        self,
        channel: CountedChannel,
        heard_at: float,  # noqa: ARG002 - the question's time counts
    ) -> float:
        asked_at = self._asked_at
        if asked_at is None:
            return self._proof_due_at  # the call ends then, and the next one begins a history anew
        if self._has_answered:
            asked_at = max(asked_at, channel.heard_at)
        return min(asked_at + self._patience.seconds, self._proof_due_at)

    def _asks_at(self, channel: CountedChannel, heard_at: float) -> float:
        if self._asked_at is not None:
            return math.inf
        if channel.is_doubted:
            return channel.doubted_at
        return max(heard_at, channel.heard_at) + ASK_AFTER_S

    def _ask(self, now: float) -> None:
        opened = self._requests
        if opened is not None:
            self._asked_at = now
            self._transport.count("progress")
            opened.requests.put(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
