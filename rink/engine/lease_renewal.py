"""Renew the leases of one session, and watch their deadlines (R6).

Each session has one thread for this, and one stream. The thread renews each lease every sixth of
its TTL, but only while the lease's engine answers, because a live heartbeat must not hide a dead
worker. It watches the deadlines itself, so an engine that hangs still loses its roles in time. It
needs only the engine's lock, which is never held for longer than a step.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Protocol

import attrs

from rink.core.outage import stalled
from rink.engine.clock import Clock, Mailbox
from rink.etcd.api import Etcd, KeepAliveAnswer, KeepAlives

log = logging.getLogger("rink")

RENEWALS_PER_TTL = 6
RECHECK_INTERVAL_S = 0.05
MAX_WAIT_S = 1.0
"""Longest single wait. After a suspend, a wait goes on as if no time had passed, so it is short."""


class LeaseOwner(Protocol):
    """Define an engine as the renewal of its lease sees it."""

    @property
    def deadline(self) -> float:
        """Return the time at which its roles are lost without another renewal."""

    @property
    def ticks_answered(self) -> int:
        """Return the number of ticks that it has answered."""

    def tick(self) -> None:
        """Request a sign of life."""

    def renewed(self, lease: int, sent_at: float, call: int) -> None:
        """Take an answered keepalive, which was sent at `sent_at`."""

    @property
    def overdue_at(self) -> float:
        """Return the time at which to report that the lease is not renewed."""

    def overdue(self, words: str) -> None:
        """Report that the lease is not renewed, and why, if the client knows."""

    def ended(self, lease: int) -> None:
        """Report that etcd has ended the lease."""

    def expire(self) -> None:
        """Lose every role if the deadline has passed."""

    @property
    def trouble(self) -> str:
        """Return why answered keepalives do not count, or ""."""

    def log_pending(self) -> None:
        """Write the pending log lines of an engine that hangs."""


@attrs.define(eq=False)
class _Renewal:
    """Hold a lease that is being renewed."""

    owner: LeaseOwner
    lease: int
    ttl: int
    send_at: float
    ticks_asked: int
    is_troubled: bool = False

    @property
    def is_engine_alive(self) -> bool:
        """Return whether the engine has answered since the last renewal."""
        return self.owner.ticks_answered >= self.ticks_asked

    def wakes(self, now: float) -> list[float]:
        """Return the times at which to check the lease, without times in the past."""
        ahead = [at for at in (self.owner.deadline, self.owner.overdue_at) if at > now]
        return [self.send_at, *ahead]


class LeaseRenewal:
    """Keep the leases of a session alive. Usable from any thread."""

    def __init__(self, etcd: Etcd, clock: Clock) -> None:
        self._etcd = etcd
        self._clock = clock
        self._leases: dict[int, _Renewal] = {}
        self._lock = threading.Lock()
        self._mailbox: Mailbox[bool] | None = None
        self._stream: KeepAlives | None = None  # made by the thread
        self._closed = False

    def start(self) -> None:
        """Start the thread once. A join calls this, and can report the error.

        Raises:
            RuntimeError: no thread can be started now. The next call tries again.
        """
        with self._lock:
            if self._closed or self._mailbox is not None:
                return
            mailbox: Mailbox[bool] = self._clock.mailbox()
            run = partial(self._run, mailbox)
            thread = threading.Thread(target=run, name="rink-leases", daemon=True)
            try:
                self._mailbox = mailbox
                thread.start()
            except BaseException:  # Ctrl-C, too: the next call begins again
                self._mailbox = None
                if thread.ident is None:
                    mailbox.close()
                else:
                    mailbox.put(False)
                raise

    def keep(self, owner: LeaseOwner, lease: int, ttl: int) -> None:
        """Renew a lease from now on. The thread must have been started."""
        renewal = _Renewal(owner, lease, ttl, self._clock.now(), owner.ticks_answered)
        with self._lock:
            if self._closed or self._mailbox is None:
                return
            self._leases[lease] = renewal
            self._mailbox.put(True)

    def drop(self, lease: int) -> None:
        """Stop renewing a lease. After this returns, no keepalive of it is sent."""
        with self._lock:
            self._leases.pop(lease, None)
            if self._stream is not None:
                self._stream.forget(lease)

    def close(self) -> None:
        """Stop renewing all leases, and end the thread."""
        with self._lock:
            self._closed = True
            self._leases.clear()
            if self._mailbox is not None:
                self._mailbox.put(False)

    def _answered(self, answer: KeepAliveAnswer) -> None:
        renewal = self._leases.get(answer.lease)
        if renewal is None:
            return
        if answer.ttl > 0:
            renewal.owner.renewed(answer.lease, answer.sent_at, answer.call)
        else:
            renewal.owner.ended(answer.lease)

    def _run(self, mailbox: Mailbox[bool]) -> None:
        until = self._clock.now()
        while all(mailbox.take(until)):
            now = self._clock.now()
            stalled_s = now - until  # this thread was to run at `until`, or earlier
            with self._lock:
                leases = list(self._leases.values())
            for renewal in leases:
                try:
                    self._check_lease(renewal, now, stalled_s)
                except Exception:  # the session's other leases must still be renewed
                    renewal.send_at = now + RECHECK_INTERVAL_S
                    if not renewal.is_troubled and not self._closed:
                        text = "lease %x: renewal failed, retrying every %g s"
                        log.exception(text, renewal.lease, RECHECK_INTERVAL_S)
                    renewal.is_troubled = True
            wakes = [at for renewal in leases for at in renewal.wakes(now)]
            until = min([now + MAX_WAIT_S, *wakes])
        if self._stream is not None:
            self._stream.close()
        mailbox.close()

    def _check_lease(self, renewal: _Renewal, now: float, stalled_s: float) -> None:
        if now >= renewal.owner.overdue_at:  # also past the deadline: the loss needs a reason
            renewal.owner.overdue(self._why(renewal, stalled_s))
        if now >= renewal.owner.deadline:
            renewal.owner.expire()
        if now < renewal.send_at:
            return
        if renewal.is_engine_alive:
            self._send(renewal.lease)
            renewal.is_troubled = False
            renewal.ticks_asked = renewal.owner.ticks_answered + 1
            renewal.send_at = now + renewal.ttl / RENEWALS_PER_TTL
            renewal.owner.tick()
        else:
            renewal.send_at = now + RECHECK_INTERVAL_S
            renewal.owner.log_pending()

    def _why(self, renewal: _Renewal, stalled_s: float) -> str:
        """Return why the lease is not renewed, as far as this process knows."""
        trouble = self._stream.trouble if self._stream is not None else ""
        if stalled_s >= renewal.ttl / RENEWALS_PER_TTL:  # a renewal was missed meanwhile
            return "; ".join(filter(None, [trouble, stalled(stalled_s)]))
        if trouble:
            return trouble
        if not renewal.is_engine_alive:
            return "this member's engine does not answer"
        return renewal.owner.trouble or "etcd is silent"

    def _send(self, lease: int) -> None:
        if self._stream is None:
            self._stream = self._etcd.keepalives(self._answered)
        with self._lock:
            if lease in self._leases:  # it may have been dropped meanwhile
                self._stream.send(lease)
