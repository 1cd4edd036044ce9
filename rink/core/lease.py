"""Keep the lease of one member, and the deadline that it gives (R6, R7).

The deadline is the time of *sending* the last answered keepalive, plus the granted TTL, minus the
margin. etcd starts to count when the keepalive arrives, which is not earlier. At the deadline every
role is lost, whatever etcd says. The lease is then SUSPECT. Rink goes on renewing it, because the
outage may have been on this side only. It ends with TTL 0, a missing record, another history of
etcd (R11) or a leave.
"""

from __future__ import annotations

import math

import attrs

from rink.core.effects import DropLease, Effect, GrantLease, KeepLease, RevokeLease
from rink.core.events import LeaseGranted
from rink.core.outbox import Outbox
from rink.core.retry_delay import backoff
from rink.core.state_tables import LEASE, LeaseEvent, LeaseState, advance


def default_margin(ttl: float) -> float:
    """Return the default margin: TTL / 10, at least 0.5 s."""
    return max(0.5, ttl / 10)


@attrs.define
class MemberLease:
    """Keep one lease at a time, and its deadline.

    All times are readings of the member's clock, in seconds. `id` is the lease of `state`, also
    after it has ended. `margin_set` is the user's margin. If it is None, the margin depends on the
    TTL.

    Invariant: unless the lease is revoked, or etcd has another history, it lives in etcd until
    `deadline` plus `margin` at least. The reason is that only answered requests move the deadline,
    and etcd counts from the arrival of a request, which is later than its sending. `renewed` takes
    the maximum, so an answer that is overtaken does not move the deadline back.
    """

    ttl: int
    margin_set: float | None = attrs.field(alias="margin")
    state: LeaseState = LeaseState.NONE
    id: int = 0
    granted_ttl: int = 0
    deadline: float = -math.inf
    failures: int = 0
    retry_at: float = -math.inf

    @property
    def margin(self) -> float:
        """Return the seconds from the deadline to the lease's earliest end.

        etcd may grant a larger TTL than was requested. A clock that is slow by a tenth then falls
        behind by a tenth of the granted TTL, so the default margin is a tenth of the larger TTL.
        """
        if self.margin_set is not None:
            return self.margin_set
        return default_margin(max(self.ttl, self.granted_ttl))

    @property
    def answered_at(self) -> float:
        """Return when the last counted keepalive, or the grant, was sent."""
        return self.deadline + self.margin - self.granted_ttl

    @property
    def is_alive(self) -> bool:
        """Return whether the lease was renewed in time, at the last step."""
        return self.state is LeaseState.ALIVE

    @property
    def is_held(self) -> bool:
        """Return whether there is a lease that this member has not given up."""
        return self.state in (LeaseState.ALIVE, LeaseState.SUSPECT)

    @property
    def is_revoking(self) -> bool:
        """Return whether the lease is being ended."""
        return self.state is LeaseState.REVOKING

    @property
    def is_known(self) -> bool:
        """Return whether there is a lease that may still live in etcd."""
        return self.is_held or self.is_revoking

    @property
    def is_none(self) -> bool:
        """Return whether there is no lease, and none is requested."""
        return self.state is LeaseState.NONE

    def look(self, wants_lease: bool, now: float, out: Outbox) -> None:
        """Request a new lease, or the revocation again, if it is due."""
        if self.is_none and wants_lease:
            if now >= self.retry_at:
                out.do(self.ask())
            else:
                out.wake(self.retry_at)
        elif self.is_revoking:
            if now >= self.retry_at:
                out.do(self.revoke())
            out.wake(self.retry_at if self.retry_at < math.inf else None)

    def ask(self) -> Effect:
        """Request a lease."""
        self.state = advance(LEASE, self.state, LeaseEvent.ASK)
        return GrantLease(self.ttl)

    def granted(self, event: LeaseGranted) -> Effect:
        """Begin with a new lease."""
        self.state = advance(LEASE, self.state, LeaseEvent.GRANTED)
        self.id, self.granted_ttl = event.lease, event.ttl
        self._succeed()
        self.deadline = event.sent_at + event.ttl - self.margin
        return KeepLease(event.lease, event.ttl)

    def ask_failed(self, now: float, name: str) -> None:
        """Note that no lease was granted."""
        self.state = advance(LEASE, self.state, LeaseEvent.FAILED)
        self.request_failed(now, name)

    def renewed(self, sent_at: float, now: float) -> bool:
        """Move the deadline; return whether that revives a suspect lease."""
        self.deadline = max(self.deadline, sent_at + self.granted_ttl - self.margin)
        if self.state is not LeaseState.SUSPECT or now >= self.deadline:
            return False
        self.state = advance(LEASE, self.state, LeaseEvent.RENEWED)
        return True

    def passed_deadline(self, now: float) -> bool:
        """Mark a live lease as suspect after its deadline; return whether it was."""
        if self.state is not LeaseState.ALIVE or now < self.deadline:
            return False
        self.state = advance(LEASE, self.state, LeaseEvent.DEADLINE)
        return True

    def ended(self) -> Effect:
        """Mark the lease as ended by etcd."""
        self.state = advance(LEASE, self.state, LeaseEvent.ENDED)
        self._succeed()
        return DropLease(self.id)

    def abandon(self) -> Effect:
        """Stop renewing the lease, and let it run out with its record's claims."""
        self.state = advance(LEASE, self.state, LeaseEvent.ABANDON)
        self._succeed()
        return DropLease(self.id)

    def disown(self) -> Effect:
        """Revoke the lease, because the session ends or the member leaves."""
        self.state = advance(LEASE, self.state, LeaseEvent.DISOWN)
        self.failures = 0
        return self.revoke()

    def revoke(self) -> Effect:
        """Request the revocation, for the first time or again."""
        self.retry_at = math.inf  # until it fails
        return RevokeLease(self.id)

    def request_failed(self, now: float, name: str) -> None:
        """Note that a grant or a revocation failed, and schedule the next try."""
        self.failures += 1
        self.retry_at = now + backoff(self.failures, name)

    def revoked(self) -> None:
        """Mark the lease as gone, with all keys bound to it."""
        self.state = advance(LEASE, self.state, LeaseEvent.REVOKED)
        self._succeed()

    def _succeed(self) -> None:
        self.failures, self.retry_at = 0, -math.inf
