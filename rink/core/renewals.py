"""Which answered keepalives count: those of a call that is known to reach this history (R11).

A call of the keepalive stream lies within one history of etcd, since it breaks when its server
ends. The next call may reach another history: a copy in which the lease lives, but the own record
is an earlier one. Other members there need not honour what this member holds. So the answers of a
new call do not move the deadline until the own record has been read after the first of them, and
is no earlier than the last answered write.
"""

from __future__ import annotations

import math

import attrs

from rink.core.backoff import backoff
from rink.core.effects import ReadRecord
from rink.core.events import RecordRead
from rink.core.outbox import Outbox


@attrs.define
class Renewals:
    """Hold back the answers of a new call until the own record has been read.

    `call` is the number of the call whose answers count. `new_call` is that of a later one, and
    `sent_at` when the last request was sent that it answered; None where no answer is held back.
    `read_for` is the call for which the own record is being read: a read that hangs must not hold
    up that of the next call.
    """

    call: int | None = None
    new_call: int | None = None
    sent_at: float = -math.inf
    read_for: int | None = None
    failures: int = 0
    retry_at: float = -math.inf

    @property
    def trouble(self) -> str:
        """Return why answers do not count, or ""."""
        if self.new_call is None:
            return ""
        return "answers over a new connection count once the own record is read, which fails so far"

    def begin(self) -> None:
        """Begin with a new lease."""
        self.call = self.new_call = self.read_for = None
        self.failures, self.retry_at = 0, -math.inf

    def counts(self, call: int, sent_at: float, has_record: bool) -> bool:
        """Return whether an answer counts now; else hold it back.

        Args:
            call: the number of the call that brought it.
            sent_at: when its request was sent, in seconds.
            has_record: where no record exists yet, nothing is claimed that could be missing. The
                first call of a lease is known by that. A later one is not: the record may be
                written by now, in the history before.
        """
        if self.call is None and not has_record:
            self.call = call
        if call == self.call or not has_record:
            self.new_call = None
            return True
        self.new_call, self.sent_at = call, sent_at
        return False

    def look(self, lease: int, mod_revision: int, within_s: float, now: float, out: Outbox) -> None:
        """Have the own record read where an answer is held back.

        Args:
            lease: the member's lease.
            mod_revision: that of the last answered write.
            within_s: how long the answer is waited for.
            now: the time, in seconds.
            out: takes the request.
        """
        if self.new_call is None or self.read_for == self.new_call:
            return
        if now < self.retry_at:
            out.wake(self.retry_at)
            return
        self.read_for = self.new_call
        out.do(ReadRecord(lease, self.new_call, mod_revision, within_s))

    def is_read_for(self, call: int) -> bool:
        """Return whether a read for this call is under way, and no later call has answered."""
        return call == self.read_for == self.new_call

    def read(self, event: RecordRead) -> bool:
        """Take the own record, as it was read; return whether it is of the newest call."""
        if event.call != self.read_for:
            return False
        self.read_for, self.failures, self.retry_at = None, 0, -math.inf
        return event.call == self.new_call

    def read_failed(self, call: int, now: float, who: str) -> bool:
        """Note that the own record could not be read; `retry_at` says when to ask again.

        Return False where a read for another call is under way.
        """
        if call != self.read_for:
            return False
        self.read_for = None
        self.failures += 1
        self.retry_at = now + backoff(self.failures, who)
        return True

    def prove(self) -> float:
        """Let the answers of the new call count; return when the last request was sent."""
        self.call, self.new_call = self.new_call, None
        return self.sent_at
