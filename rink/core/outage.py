"""Log an outage: a warning, the loss of the session, and the return.

Nothing else warns of an outage, because an idle member sends only keepalives.
"""

from __future__ import annotations

import attrs

from rink.core.effects import Level
from rink.core.lease import MemberLease
from rink.core.outbox import Outbox
from rink.plural import plural

OVERDUE_PARTS = 3
"""Divisor of the TTL: a renewal is due after a sixth of it, and overdue after a third."""


def stalled(seconds: float) -> str:
    """Return the reason of an outage in which this process did not run."""
    text = f"this process did not run for at least {seconds:.1f} s"
    return f"{text}: it was stopped or suspended, or one thread held up all others"


@attrs.define
class Outage:
    """Keep when the lease was last renewed, and why it is not renewed now.

    `since` is None until an outage is noted.
    """

    since: float | None = None
    words: str = ""

    @staticmethod
    def due_at(lease: MemberLease) -> float:
        """Return when to warn, unless the lease is renewed before."""
        return lease.answered_at + lease.granted_ttl / OVERDUE_PARTS

    def overdue(self, lease: MemberLease, words: str, now: float, out: Outbox) -> None:
        """Warn once that the lease is not renewed, with the time left.

        After the deadline, the words are only kept for the loss, which is logged instead.
        """
        self.words = words or self.words
        if self.since is not None or not lease.is_alive:
            return
        if not self.due_at(lease) <= now < lease.deadline:
            return
        self.since = lease.answered_at
        text = f"lease {lease.id:x}: not renewed for {now - self.since:.1f} s{self._why}"
        left = f"every role is lost in {lease.deadline - now:.1f} s unless the lease is renewed"
        out.report(Level.WARNING, f"{text}; {left}")

    def lost(self, lease: MemberLease, roles: int, now: float, out: Outbox) -> None:
        """Report that the deadline has passed."""
        if self.since is None:
            self.since = lease.answered_at
            # No thread has given a reason, though one checks every second. So none has run.
            self.words = self.words or stalled(now - self.due_at(lease))
        text = f"lease {lease.id:x}: not renewed for {now - self.since:.1f} s{self._why}"
        losses = f"the session and {roles:,} {plural(roles, 'role')} are lost"
        out.report(Level.ERROR, f"{text}: {losses}; Rink keeps asking etcd")

    def begun(self, now: float) -> None:
        """Begin the outage now, if none has begun yet."""
        self.since = now if self.since is None else self.since

    def over(self, incarnation: str, now: float, out: Outbox) -> None:
        """Report that the member is back, if it was away."""
        if self.since is not None:
            away = f"the session is back after {now - self.since:.1f} s"
            out.report(Level.INFO, f"{away} as incarnation {incarnation[:8]}")
        self.since, self.words = None, ""

    @property
    def _why(self) -> str:
        return f" ({self.words})" if self.words else ""
