"""Write this member's record (R1).

Invariant: at most one write is unsettled, and only the answer to its newest try settles it. A
transaction whose answer was lost may be applied much later. A frozen follower of etcd forwards it
when it thaws, and a linearizable read in between does not find it. So a read or the watch never
settles a write. All tries of a write have the same compare, so within one history at most one of
them is ever applied.
"""

from __future__ import annotations

import enum

import attrs

from rink.core.effects import WriteRecord
from rink.core.events import WriteAnswered
from rink.core.member_record import MemberRecord
from rink.core.retry_delay import backoff
from rink.core.state_tables import WRITE, Write, WriteEvent, advance
from rink.core.values import Member


class Verdict(enum.Enum):
    """Name what etcd shows of this member's record.

    The record may come from a view, a read or an answer.
    """

    FINE = "no fault is shown; also if the name is taken, or the answer is to an earlier attempt"
    GONE = "there is no record, or another record stands in its place"
    OLDER = "the record is earlier than an answered write: etcd has another history"


@attrs.define
class Writer:
    """Keep the known state of this member's record, and the next write.

    `compare` is the record's mod_revision by the last answer, or 0. `known` is its content by that
    answer. `must_write` requests one more transaction, even if the content is right. It stays set
    until a later transaction is sent. `taken_by` is the record that has the name. `taken_at` is the
    revision of the answer that showed it. `is_doubted` says that a try of this write was given up
    because of a new call of keepalives (R11). The answer to that try is ignored. `awaited` is the
    number of a later try, for which the read waits. `awaited_until` is the end of that wait.
    """

    incarnation: str = ""
    lease: int = 0
    state: Write = Write.ABSENT
    attempt: int = 0
    compare: int = 0
    known: MemberRecord | None = None
    must_write: bool = False
    taken_by: Member | None = None
    taken_at: int = 0
    is_doubted: bool = False
    awaited: int = 0
    awaited_until: float = float("-inf")
    failures: int = 0
    retry_at: float = float("-inf")
    _sent: MemberRecord | None = None

    @property
    def is_settled(self) -> bool:
        """Return whether the last write was answered, and no other is to follow."""
        return self.state is Write.SETTLED and not self.must_write

    @property
    def exists(self) -> bool:
        """Return whether an answer has shown the record; it may be gone by now."""
        return self.compare > 0

    def is_mine(self, member: Member | None) -> bool:
        """Return whether a record under the own key is of this incarnation."""
        return (
            member is not None
            and member.record is not None
            and member.record.incarnation == self.incarnation
            and member.lease == self.lease
        )

    def judge(self, member: Member | None, answered: int) -> Verdict:
        """Judge this member's record as etcd has shown it; None: no record.

        The record must include the answered write of mod_revision `answered`.
        """
        if member is None or not self.is_mine(member):
            return Verdict.GONE
        return Verdict.OLDER if member.mod_revision < answered else Verdict.FINE

    def begin(self, lease: int, incarnation: str) -> None:
        """Forget the record of an earlier incarnation, which ended with its lease."""
        self.lease, self.incarnation = lease, incarnation
        self.state, self.compare, self.known = Write.ABSENT, 0, None
        self.must_write, self.taken_by = False, None
        self.failures, self.is_doubted = 0, False
        self.attempt += 1  # so an answer that is still under way is ignored

    def is_due(self, desired: MemberRecord, now: float) -> bool:
        """Return whether to write now."""
        if self.state is Write.OWED:
            return now >= self.retry_at
        if self.state is Write.SETTLED:
            return self.must_write or self.differs(desired)
        return self.state is Write.ABSENT

    def differs(self, desired: MemberRecord) -> bool:
        """Return whether the record should change.

        A new version number alone does not count, since it is only for people.
        """
        known = self.known
        if known is not None and known.version != desired.version:
            known = attrs.evolve(known, version=desired.version)
        return known != desired

    def send(self, desired: MemberRecord) -> WriteRecord:
        """Begin a transaction.

        Its compare is that of the last answer, so all tries of a write have the same compare.
        """
        self.state = advance(WRITE, self.state, WriteEvent.SEND)
        self.must_write = False
        self.attempt += 1
        self._sent = desired
        return WriteRecord(self.attempt, self.lease, self.compare, desired)

    def answered(self, event: WriteAnswered) -> Verdict:
        """Take an answer, and return what it shows of the record."""
        if event.attempt != self.attempt:
            return Verdict.FINE
        self.failures, self.is_doubted = 0, False
        if event.applied:
            self._settle(event.revision, self._sent)
        elif event.member is not None and self.is_mine(event.member):
            verdict = self.judge(event.member, self.compare)
            self._settle(event.member.mod_revision, event.member.record)
            return verdict
        elif event.member is not None and not self.exists:
            self.state = advance(WRITE, self.state, WriteEvent.FOREIGN)
            self.taken_by, self.taken_at = event.member, event.revision
        else:
            self.state = advance(WRITE, self.state, WriteEvent.MISSING)
            return Verdict.GONE
        return Verdict.FINE

    def _settle(self, mod_revision: int, record: MemberRecord | None) -> None:
        self.state = advance(WRITE, self.state, WriteEvent.ANSWERED)
        self.compare, self.known = mod_revision, record

    def failed(self, attempt: int, now: float) -> bool:
        """Note that a transaction ended without an answer; it may yet be applied.

        Return False for an earlier transaction, whose answer does not matter any more.
        """
        if attempt != self.attempt:
            return False
        self.state = advance(WRITE, self.state, WriteEvent.NO_ANSWER)
        self.failures += 1
        self.retry_at = now + backoff(self.failures, self.incarnation)
        return True

    @property
    def is_awaited(self) -> bool:
        """Return whether the answer to the try under way is awaited, not ignored."""
        return self.state is Write.SENT and self.awaited == self.attempt

    def meet(self, now: float, timeout_s: float) -> None:
        """Note a new call of keepalives, which may reach a copy of etcd (R11).

        The history before may have answered the first try of a write under way. So ignore its
        answer, and try the write again. For a later try, wait `timeout_s` for the answer. A further
        call does not extend that wait. Without the wait, no write would settle while new calls come
        faster than answers to writes.
        """
        if self.state is not Write.SENT:
            return
        if not self.is_doubted:
            self.doubt(now)
        elif not self.is_awaited:
            self.awaited, self.awaited_until = self.attempt, now + timeout_s

    def doubt(self, now: float) -> None:
        """Ignore the answer to the write under way, and try the write again."""
        self.is_doubted = True
        self.state = advance(WRITE, self.state, WriteEvent.NO_ANSWER)
        self.attempt += 1
        self.retry_at = now

    def freed(self) -> None:
        """Note that another record, which had this member's name, is gone."""
        self.state = advance(WRITE, self.state, WriteEvent.FREED)
        self.taken_by = None
