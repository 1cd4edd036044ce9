"""Decide which answered keepalives count (R11).

etcd may be replaced by a copy of an earlier state in which the lease still lives, while the own
record there is an earlier one. The members of that copy need not honour what this member holds, so
its answers to keepalives must not move this member's deadline.

One call of the keepalive stream lies within one history, because the call breaks when its server
ends. Only a new call may have reached a copy. So the answers of a new call are held back. After the
first of them, the member reads its own record. The answers count if that record is no earlier than
the last answered write. So it is with the answers that come while the record is being created: the
copy may be of the moment before.
"""

from __future__ import annotations

import math

import attrs

from rink.core.backoff import backoff
from rink.core.effects import ReadRecord
from rink.core.outbox import Outbox


@attrs.define
class Renewals:
    """Hold back the answers of a new call until the own record has been read.

    `call` is the number of the call whose answers count. `new_call` is the number of the call whose
    answers are held back, or None. `sent_at` is when the last request was sent that the new call
    has answered. `is_reading` says whether the own record is being read for the new call. A read
    for an earlier call may hang, and is not waited for. Answers come in the order of their calls,
    since one thread reads the calls one after another.
    """

    call: int | None = None
    new_call: int | None = None
    sent_at: float = -math.inf
    is_reading: bool = False
    failures: int = 0
    retry_at: float = -math.inf

    @property
    def trouble(self) -> str:
        """Return why answers do not count, or ""."""
        if self.new_call is None:
            return ""
        return "etcd answers, but a new connection counts only once this member's record is read"

    def begin(self) -> None:
        """Begin with a new lease."""
        self.call = self.new_call = None
        self.is_reading, self.failures, self.retry_at = False, 0, -math.inf

    def counts(self, call: int, sent_at: float, may_claim: bool) -> bool:
        """Return whether an answer counts now; else hold it back.

        Args:
            call: the number of the call that brought it.
            sent_at: when its request was sent, in seconds.
            may_claim: whether the own record exists, or is being created. Where it is not, every
                answer counts, since nothing is claimed that a copy could lack.
        """
        if not may_claim:
            self.call, self.new_call = call, None
        if call == self.call:
            return True
        if call != self.new_call:
            self.is_reading = False
        self.new_call, self.sent_at = call, sent_at
        return False

    def look(self, lease: int, mod_revision: int, within_s: float, now: float, out: Outbox) -> None:
        """Request a read of the own record if an answer is held back.

        Args:
            lease: the member's lease.
            mod_revision: the mod_revision of the last answered write.
            within_s: the timeout of the read, in seconds.
            now: the time, in seconds.
            out: takes the request.
        """
        if self.new_call is None or self.is_reading:
            return
        if now < self.retry_at:
            out.wake(self.retry_at)
            return
        self.is_reading = True
        out.do(ReadRecord(lease, self.new_call, mod_revision, within_s))

    def read(self) -> None:
        """Note that the own record has been read for the new call."""
        self.is_reading, self.failures, self.retry_at = False, 0, -math.inf

    def read_failed(self, now: float, who: str) -> None:
        """Note that the own record could not be read; `retry_at` says when to ask again."""
        self.is_reading = False
        self.failures += 1
        self.retry_at = now + backoff(self.failures, who)

    def prove(self) -> float:
        """Let the answers of the new call count; return `sent_at`."""
        self.call, self.new_call = self.new_call, None
        return self.sent_at
