"""Define the events that `Node.step` takes, in the past tense."""

from __future__ import annotations

import attrs

from rink.core.values import Entry, Member
from rink.core.view import EntryChange


@attrs.frozen
class MemberEvent:
    """Report that something has happened."""


@attrs.frozen
class Listed(MemberEvent):
    """Report the group's whole key range, as it was at `revision`.

    `wanted` is the number of the last `ListGroup` before the list, or 0 without one.
    """

    revision: int
    entries: tuple[Entry, ...]
    wanted: int = 0


@attrs.frozen
class Changed(MemberEvent):
    """Report a watch's changes, in whole revisions up to `revision`."""

    revision: int
    changes: tuple[EntryChange, ...]


@attrs.frozen
class ListFailed(MemberEvent):
    """Report that the group's key range could not be read."""

    error: Exception


@attrs.frozen
class HistoryChanged(MemberEvent):
    """Report that etcd's history changed.

    Another cluster answered, or the history of this cluster went back.
    """

    because: str


@attrs.frozen
class LeaseGranted(MemberEvent):
    """Report that a lease was granted; `sent_at` is just before the request.

    `incarnation` is a fresh uuid for the record that will be bound to the lease.
    """

    lease: int
    ttl: int
    sent_at: float
    incarnation: str


@attrs.frozen
class LeaseFailed(MemberEvent):
    """Report that no lease was granted; an unused one may live for its TTL."""

    error: Exception


@attrs.frozen
class LeaseEnded(MemberEvent):
    """Report that the lease is gone: etcd answered TTL 0."""

    lease: int


@attrs.frozen
class LeaseRevoked(MemberEvent):
    """Report that a lease was revoked."""

    lease: int


@attrs.frozen
class RevokeFailed(MemberEvent):
    """Report that a revocation failed; the lease may be alive."""

    lease: int
    error: Exception


@attrs.frozen
class WriteAnswered(MemberEvent):
    """Report the answer to the transaction on this member's record (R1).

    If not `applied`, `member` is the key as it was found, or None if there was no record.
    """

    attempt: int
    applied: bool
    revision: int
    member: Member | None = None


@attrs.frozen
class WriteFailed(MemberEvent):
    """Report that a write of the record failed; it may yet be applied."""

    attempt: int
    error: Exception


@attrs.frozen
class ProclaimAnswered(MemberEvent):
    """Report the answer to the transaction that proclaims a version."""

    number: int
    applied: bool


@attrs.frozen
class ProclaimFailed(MemberEvent):
    """Report that the transaction that proclaims a version failed."""

    number: int
    error: Exception


@attrs.frozen
class RequestPosted(MemberEvent):
    """Report that the request of this member was posted."""


@attrs.frozen
class PostFailed(MemberEvent):
    """Report that posting a request failed; it may be in etcd all the same."""

    error: Exception


@attrs.frozen
class RecordRead(MemberEvent):
    """Report this member's key as read; `member` is None without a record.

    The other fields are those of the `ReadRecord` effect.
    """

    lease: int
    call: int
    mod_revision: int
    member: Member | None


@attrs.frozen
class RecordReadFailed(MemberEvent):
    """Report that the `ReadRecord` of a lease and call failed."""

    lease: int
    call: int
    error: Exception


@attrs.frozen
class ChoreFailed(MemberEvent):
    """Report a failed request that is repeated anyway; `doing` names it."""

    doing: str
    error: Exception


@attrs.frozen
class LeaseLookedUp(MemberEvent):
    """Report whether etcd knows the lease that a record is bound to."""

    name: str
    mod_revision: int
    is_known: bool


@attrs.frozen
class LeaveAsked(MemberEvent):
    """Report that the user asked to leave, or to leave sooner.

    `release_within` bounds the wait for handles, in seconds. None means the `leave_timeout` of the
    member, and infinity means no bound. With `now`, the member waits for no successor.
    """

    keep_rank: bool = False
    release_within: float | None = None
    now: bool = False


@attrs.frozen
class Nudged(MemberEvent):
    """Request a step: state under the lock changed, or time has passed."""
