"""Define the events that `Node.step` takes, in the past tense."""

from __future__ import annotations

import attrs

from rink.core.values import Entry, Member
from rink.core.view import Change


@attrs.frozen
class MemberEvent:
    """One thing that has happened."""


@attrs.frozen
class Listed(MemberEvent):
    """Brings the group's whole key range, as it was at `revision`.

    `wanted` is the number of the `ListGroup` that it answers, 0 for the list at the beginning.
    """

    revision: int
    entries: tuple[Entry, ...]
    wanted: int = 0


@attrs.frozen
class Changed(MemberEvent):
    """Brings the changes of whole revisions, up to `revision`, of a watch."""

    revision: int
    changes: tuple[Change, ...]


@attrs.frozen
class ListFailed(MemberEvent):
    """Says that the group's key range could not be read."""

    error: Exception


@attrs.frozen
class HistoryChanged(MemberEvent):
    """Voids all that was seen of etcd.

    Another cluster answered, or this one's history went back.
    """

    because: str


@attrs.frozen
class LeaseGranted(MemberEvent):
    """Grants a lease; `sent_at` is the clock just before it was asked for.

    `incarnation` is a fresh uuid for the record that will be bound to it.
    """

    lease: int
    ttl: int
    sent_at: float
    incarnation: str


@attrs.frozen
class LeaseFailed(MemberEvent):
    """Says that no lease was granted; an unused one may exist for its TTL."""

    error: Exception


@attrs.frozen
class LeaseEnded(MemberEvent):
    """Says that the lease is gone: etcd answered TTL 0."""

    lease: int


@attrs.frozen
class LeaseRevoked(MemberEvent):
    """Answers a revocation."""

    lease: int


@attrs.frozen
class RevokeFailed(MemberEvent):
    """Says that a revocation was not answered."""

    lease: int
    error: Exception


@attrs.frozen
class WriteAnswered(MemberEvent):
    """Answers the transaction on this member's record, by either branch (R1).

    `member` is the key as the else branch returned it, or None if there was no record.
    """

    attempt: int
    applied: bool
    revision: int
    member: Member | None = None


@attrs.frozen
class WriteFailed(MemberEvent):
    """Says that a write of this record had no answer; it may yet be applied."""

    attempt: int
    error: Exception


@attrs.frozen
class ProclaimAnswered(MemberEvent):
    """Answers the transaction that proclaims a version."""

    number: int
    applied: bool


@attrs.frozen
class ProclaimFailed(MemberEvent):
    """Says that the transaction that proclaims a version had no answer."""

    number: int
    error: Exception


@attrs.frozen
class RequestPosted(MemberEvent):
    """Says that the request of this member was posted."""


@attrs.frozen
class PostFailed(MemberEvent):
    """Says that the post of a request had no answer; it may lie in etcd."""

    error: Exception


@attrs.frozen
class RecordRead(MemberEvent):
    """Brings this member's key as `member`, or None if there is no record.

    The other fields are those of the `ReadRecord` that this answers.
    """

    lease: int
    call: int
    mod_revision: int
    member: Member | None


@attrs.frozen
class RecordReadFailed(MemberEvent):
    """Says that the `ReadRecord` of a lease and call had no answer."""

    lease: int
    call: int
    error: Exception


@attrs.frozen
class ChoreFailed(MemberEvent):
    """Says that a request failed that is made again anyway; `doing` names it."""

    doing: str
    error: Exception


@attrs.frozen
class LeaseLookedUp(MemberEvent):
    """Says whether etcd knows the lease that a record is bound to."""

    name: str
    mod_revision: int
    is_known: bool


@attrs.frozen
class LeaveAsked(MemberEvent):
    """Begins a leave that the user asked for, or makes one more urgent.

    `release_within` bounds the wait for handles, in seconds: the member's `leave_timeout` where
    None, and infinity for no bound. With `now`, no successor is waited for.
    """

    keep_rank: bool = False
    release_within: float | None = None
    now: bool = False


@attrs.frozen
class Nudged(MemberEvent):
    """Asks for a step: something under the lock changed, or time has passed."""
