"""Decide which answered keepalives count (R11).

etcd may be replaced by a copy of an earlier state in which the lease still lives, while this
member's record there is an earlier one. Members that follow the copy may grant the roles that this
member holds. So the copy's answers to keepalives must not move this member's deadline.

One call of the keepalive stream lies within one history, because the call breaks when its server
ends. Only a new call may have reached a copy. So the answers of a new call are held back. After the
first of them, the member reads its own record. The answers count if that record is no earlier than
the last answered write.

Invariant: the answers of a new call count only if its history has every write whose answer the
member has taken. A write may be under way at the first answer of a new call. The history before may
have answered it, and the member may not have taken that answer yet. So the member ignores the
answer and tries the write again (R1). If another new call comes before that try is answered, the
member waits for the answer, takes it, and then reads. If the answer does not come for a while, the
member ignores it, too.

A member whose create has not been answered grants nothing and has nothing to read, so the answers
of a new call count at once. There is one exception. If another new call comes while the second try
of the create is under way, the answers of that call wait, as above.
"""

from __future__ import annotations

import math

import attrs

from rink.core.effects import ReadRecord
from rink.core.outbox import Outbox
from rink.core.retry_delay import backoff


def read_timeout(ttl: float) -> float:
    """Return the timeout of a read of this member's record, in seconds.

    Each failure doubles it, see `Renewals.look`.
    """
    return max(0.5, ttl / 6)


def second_try_timeout(ttl: float) -> float:
    """Return the longest wait for the second try of a write, in seconds.

    From a TTL of 6 s on, this wait and a read take at most a quarter of the TTL. So a write that
    hangs does not use up the time to the deadline. The exception is that each keepalive comes by a
    new call, since a new call begins the read anew.
    """
    return max(0.5, ttl / 12)


@attrs.define
class Renewals:
    """Hold back the answers of a new call until the record has been read.

    `call` is the number of the call whose answers count. `new_call` is the number of the call whose
    answers are held back, or None. `sent_at` is when the request of its last answer was sent.
    `is_reading` says whether this member's record is being read for the new call. A read for an
    earlier call may hang, and nobody waits for it. Answers come in the order of their calls, since
    one thread reads the calls one after another.
    """

    call: int | None = None
    new_call: int | None = None
    sent_at: float = -math.inf
    is_reading: bool = False
    failures: int = 0
    retry_at: float = -math.inf

    @property
    def unread_call(self) -> int | None:
        """Return the new call, or None while its read is under way."""
        return None if self.is_reading else self.new_call

    @property
    def trouble(self) -> str:
        """Return why answers do not count, or ""."""
        if self.new_call is None:
            return ""
        return "etcd answers keepalives, but this member has not found its last write there yet"

    def begin(self) -> None:
        """Begin with a new lease, and forget the answers that were held back.

        `call` stays known, since a call serves many leases.
        """
        self.new_call = None
        self.read()

    def meet(self, call: int) -> bool:
        """Note the call of an answer; return whether the call is new.

        A new call may reach a copy of etcd. So may the first one: the copy may be of the moment
        between the grant of the lease and the create of the record.
        """
        if call in (self.call, self.new_call):
            return False
        self.new_call, self.is_reading, self.retry_at = call, False, -math.inf
        return True

    def counts(self, call: int, sent_at: float) -> bool:
        """Return whether an answer of a call counts now; if not, keep `sent_at`."""
        if call == self.call:
            return True
        self.sent_at = sent_at
        return False

    def look(
        self, call: int, lease: int, mod_revision: int, within_s: float, now: float, out: Outbox
    ) -> None:
        """Request a read of this member's record, or a step at `retry_at`.

        `mod_revision` is that of the last answered write. `within_s` is the timeout of a read if
        none has failed before. Each failure in a row doubles it, up to sixteen times as long.
        """
        if now < self.retry_at:
            out.wake(self.retry_at)
            return
        self.is_reading = True
        timeout_s = within_s * 2 ** min(self.failures, 4)
        out.do(ReadRecord(lease, call, mod_revision, timeout_s))

    def read(self) -> None:
        """Note that this member's record has been read for the new call."""
        self.is_reading, self.failures, self.retry_at = False, 0, -math.inf

    def read_failed(self, now: float, name: str) -> None:
        """Note that the read failed, and schedule the next one."""
        self.is_reading = False
        self.failures += 1
        self.retry_at = now + backoff(self.failures, name)

    def prove(self) -> float:
        """Let the answers of the new call count, and return `sent_at`."""
        self.call, self.new_call = self.new_call, None
        return self.sent_at
