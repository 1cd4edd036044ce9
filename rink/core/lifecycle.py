"""Lead a member from join to leave, by the table `LIFE` of `state_tables`.

A failed request ends a join only before etcd has shown that the name is taken (R8):

* Before that, the first failed request ends it. An endpoint at which nothing answers must not look
  like a wait for the name, so it costs the session's `timeout`, not `join_timeout`.
* After that, no failed request ends it. etcd has answered, so a failed request is tried again, as
  for any member. Only `join_timeout` bounds the join, counted from its beginning; None is no bound.
  So a pod that replaces a crashed one survives an outage of etcd as the other members do.
"""

from __future__ import annotations

import math

import attrs

from rink.core import drains
from rink.core.effects import Joined, JoinFailed, Left, Level
from rink.core.events import LeaveAsked
from rink.core.holds import Table
from rink.core.lease import MemberLease
from rink.core.member_record import Phase
from rink.core.outbox import Outbox
from rink.core.record_writer import Writer
from rink.core.state_tables import LIFE, Life, LifeEvent, advance
from rink.core.view import View
from rink.core.wording import describe
from rink.errors import JoinError, MemberNameTaken, RinkError
from rink.report_interval import REPORT_INTERVAL_S

MIN_REVOKE_TIMEOUT_S = 1.0
"""Shortest wait for a revocation, even of a lease that may be over."""

LAST_WRITE_TIMEOUT_S = 1.0
"""Longest wait for the answer to the last record, before the lease is left to run out."""


@attrs.frozen
class LeaveSituation:
    """Hold the inputs of a leave, as of one moment.

    `serves` says that the member has a rank, a live lease and a record. `is_used` says that user
    code holds a role, or waits for one.
    """

    view: View
    serves: bool
    is_used: bool
    now: float


@attrs.define
class Living:
    """Keep the state of a member's life.

    Times are readings of the member's clock, in seconds.
    """

    name: str
    join_timeout: float | None
    leave_timeout: float
    handover_wait: float = 0.0
    state: Life = Life.JOINING
    began_at: float | None = None
    offer_until: float = math.inf
    leave_until: float = math.inf
    release_within: float = math.inf
    release_until: float = math.inf
    run_out_at: float = math.inf
    revoke_until: float = math.inf
    keeps_rank: bool = False
    _saw_name_taken: bool = False
    _ranks_when_leaving: tuple[str, ...] = ()
    _report_at: float = -math.inf

    @property
    def phase(self) -> Phase:
        """Return the phase for the record.

        While this member waits for a successor, the phase is `offering`, so the group does not
        shrink. While it waits for its handles, the phase is `leaving`, so it gets no rank. While
        its lease runs out, the phase is `leaving` even with `keep_rank`. The name stays taken until
        the lease ends, so nobody could return to the rank, and an active phase would make this
        member look like the coordinator.
        """
        if self.state is Life.OFFERING:
            return Phase.OFFERING
        leaves = self.state in (Life.LEAVING, Life.LETTING_GO) and not self.keeps_rank
        return Phase.LEAVING if leaves or self.state is Life.RUNNING_OUT else Phase.ACTIVE

    @property
    def serves(self) -> bool:
        """Return whether roles may be granted and held."""
        return self.state in (Life.ACTIVE, Life.OFFERING, Life.LEAVING)

    @property
    def wants_record(self) -> bool:
        """Return whether to keep a record, until user code has released the roles."""
        return self.state not in (Life.REVOKING, Life.LEFT, Life.RAN_OUT)

    @property
    def wants_share(self) -> bool:
        """Return whether the record claims a share, and not only unreleased roles."""
        return self.state is not Life.RUNNING_OUT

    @property
    def wants_lease(self) -> bool:
        """Return whether to take a new lease if there is none."""
        return self.state in (Life.JOINING, Life.ACTIVE)

    @property
    def is_ending(self) -> bool:
        """Return whether no role will be granted any more."""
        return not (self.serves or self.wants_lease)

    def _on(self, event: LifeEvent) -> None:
        self.state = advance(LIFE, self.state, event)

    # ── joining ──────────────────────────────────────────────────────────────────────────────

    def join(self, writer: Writer, view: View, now: float, out: Outbox) -> None:
        """Join once the record exists and is in the view; wait for the name (R8)."""
        if self.began_at is None:
            self.began_at = now
        self._wait_for_name(writer, view, now, out)
        if self.state is not Life.JOINING:
            return
        if writer.is_settled and view.revision >= writer.compare:
            self._on(LifeEvent.JOINED)
            out.do(Joined())
        elif self.join_timeout is not None:
            if now >= self.began_at + self.join_timeout:
                self.fail(self._timed_out(writer, out), out)
            else:
                out.wake(self.began_at + self.join_timeout)

    def _wait_for_name(self, writer: Writer, view: View, now: float, out: Outbox) -> None:
        other = writer.taken_by
        self._saw_name_taken = self._saw_name_taken or other is not None
        if not self.wants_record or other is None:
            return
        record = view.members.get(self.name)
        is_free = record is None or writer.is_mine(record)  # own: a create was applied late
        # An older view cannot show that the name is free. It may be of another history.
        if is_free and view.revision >= writer.taken_at:
            writer.freed()
            return
        if not self.wants_lease:
            return
        if now >= self._report_at:
            self._report_at = now + REPORT_INTERVAL_S
            text = f"member {self.name!r} waits to join: {describe(other)} still has its name"
            out.report(Level.WARNING, text)
        out.wake(self._report_at)

    def _timed_out(self, writer: Writer, out: Outbox) -> RinkError:
        text = f"member {self.name!r} did not join within {self.join_timeout:g} s"
        if writer.taken_by is not None:
            return MemberNameTaken(
                f"{text}: {describe(writer.taken_by)} has its name; end that process, or join "
                "under another name",
                member=self.name,
            )
        text = f"{text}; last error: {out.last_error or 'no answer from etcd yet'}"
        return JoinError(text, member=self.name)

    def request_failed(self, error: Exception, writer: Writer, out: Outbox) -> None:
        """Give up the join, unless etcd has shown that the name is taken."""
        if not self._saw_name_taken and writer.taken_by is None:
            self.fail(error, out)

    def fail(self, error: Exception, out: Outbox) -> None:
        """Give up the join; the lease is revoked afterwards."""
        if self.state is Life.JOINING:
            self._on(LifeEvent.GAVE_UP)
            out.do(JoinFailed(error))

    # ── leaving ──────────────────────────────────────────────────────────────────────────────

    def ask_to_leave(self, event: LeaveAsked, situation: LeaveSituation, out: Outbox) -> bool:
        """Begin to leave; return whether every role is to be lost at once.

        A second leave with `now` ends the wait for a successor. A second leave with a bound of its
        own, or with `keep_rank`, also ends the wait for a version.
        """
        # Invariant: a further leave never undoes or delays an earlier one. `release_within` is the
        # least of all bounds, and `LIFE` only leads on: OFFERING, LEAVING, LETTING_GO.
        now, bound = situation.now, event.release_within
        within = self.leave_timeout if bound is None else bound
        self.release_within = min(self.release_within, within)
        if self.state is Life.LETTING_GO:
            self.release_until = min(self.release_until, now + self.release_within)
        if LifeEvent.STOP not in LIFE[self.state]:
            return False  # every role is lost already
        again = self.state in (Life.OFFERING, Life.LEAVING)
        is_bounded = bound not in (None, math.inf)
        if again and not event.keep_rank and not is_bounded:
            if event.now and self.state is Life.OFFERING:
                self._begin_leaving(situation)
            return False  # otherwise it is no more urgent than the leave under way
        # A leave under way has offered the rank or given it up, so it is too late to keep it.
        self.keeps_rank = event.keep_rank and not again
        # There is no wait for a version if the rank is kept, if there is no rank to take, or if
        # this leave is more urgent than the one that waits.
        if event.keep_rank or again or not situation.serves or self.state is Life.JOINING:
            self._stop(LifeEvent.STOP, now)
            return True
        # Wait for a successor only if this leave may take long, and user code needs the roles.
        if event.now or is_bounded or not situation.is_used or not self.handover_wait:
            self._begin_leaving(situation)
            return False
        self._on(LifeEvent.OFFER)
        self.offer_until = now + self.handover_wait
        out.report(Level.INFO, f"member {self.name!r} is {self.doing(now)}")
        return False

    def _begin_leaving(self, situation: LeaveSituation) -> None:
        self._on(LifeEvent.LEAVE)
        self.offer_until = math.inf
        self.leave_until = situation.now + self._version_within
        version = situation.view.version
        self._ranks_when_leaving = version.ranks if version else ()

    def doing(self, now: float) -> str:
        """Return what a leave waits for, and how long at most, or ""."""
        match self.state:
            case Life.OFFERING:
                goal, until = "a successor", self.offer_until
            case Life.LEAVING:
                goal, until = "a version without it", self.leave_until
            case Life.LETTING_GO:
                goal, until = "its roles to be released", self.release_until
            case Life.RUNNING_OUT | Life.REVOKING:
                return "leaving; waits for etcd"
            case _:
                return ""
        bound = "" if until == math.inf else f" up to {max(0.0, until - now):.0f} s"
        return f"leaving; waits{bound} for {goal}"

    @property
    def _version_within(self) -> float:
        """Return the longest wait for a version, at most `release_within`."""
        return min(self.leave_timeout, self.release_within)

    def leave(self, situation: LeaveSituation, out: Outbox) -> bool:
        """Serve until a version without this member is seen or is hopeless.

        While the member is used, it waits for a successor. The successor has taken over once it has
        claimed its share. Until then this member `serves` (`rink.core.handover`).

        Return True if every role is to be lost now.
        """
        # Invariant: UNRANKED means that the followed version gives this member no rank, or that its
        # lease is lost, or no other member is active, or `leave_until` is over.
        view, now = situation.view, situation.now
        if self.state is Life.OFFERING and situation.serves:
            if situation.is_used and now < self.offer_until:
                out.wake(self.offer_until)
                return False
            why = "no code here holds a role or waits for one"
            if situation.is_used:  # a successor may have the rank, and not have claimed its share
                why = f"none has taken over within {self.handover_wait:g} s"
            text = f"member {self.name!r} leaves, and waits for no successor any more: {why}"
            out.report(Level.INFO, text)
            self._begin_leaving(situation)
        if self.state not in (Life.OFFERING, Life.LEAVING):
            return False
        if view.version is not None and view.version.ranks != self._ranks_when_leaving:
            # With `stagger`, other members may leave first, one version each. So each change of the
            # ranks begins the wait anew. A version that changes only pins is no such change.
            self._ranks_when_leaving = view.version.ranks
            self.leave_until = now + self._version_within
        successor = any(member.name != self.name and member.is_active for member in view.by_age)
        if situation.serves and successor and now < self.leave_until:
            out.wake(self.leave_until)
            return False
        is_replaced = view.version is not None and self.name not in view.version.ranks
        if situation.serves and successor and not is_replaced:
            text = f"member {self.name!r} leaves without a successor: no version has given its rank"
            waited = f"to another member within {self._version_within:g} s"
            out.report(Level.WARNING, f"{text} {waited}")
        self._stop(LifeEvent.UNRANKED, now)
        return True

    def _stop(self, event: LifeEvent, now: float) -> None:
        self._on(event)
        self.offer_until = self.leave_until = math.inf
        self.release_until = now + self.release_within  # counted from when user code sees the loss

    def let_go(
        self, table: Table, lease: MemberLease, writer: Writer, now: float, out: Outbox
    ) -> None:
        """Wait for the handles of lost roles, for a bounded time.

        Roles that are not released by then stay claimed, if there is a record. User code may still
        work under them, so the lease is not revoked. The record is written once more, and the lease
        runs out.
        """
        if self.state not in (Life.LETTING_GO, Life.RUNNING_OUT):
            return
        if table.drains and self.state is Life.LETTING_GO:
            if now < self.release_until:
                out.wake(self.release_until if self.release_until < math.inf else None)
                return
            if not (lease.is_held and writer.exists):
                because = "since the member leaves and has lost its session"
                drains.give_up(table, table.draining, because, now, out)
            else:
                drains.overrun(table, lease.granted_ttl, now, out)
                self._on(LifeEvent.OVERRUN)
                self.run_out_at = now + LAST_WRITE_TIMEOUT_S
        if not table.drains:
            self._on(LifeEvent.RELEASED)
            self.revoke_until = now + self.leave_timeout

    def run_out(self, lease: MemberLease, is_written: bool, now: float, out: Outbox) -> None:
        """Let the lease run out once the last record is answered.

        It also runs out if no answer can come any more, or none has come in time.
        """
        if lease.is_alive and not is_written and now < self.run_out_at:
            out.wake(self.run_out_at)
            return
        if lease.is_held:
            out.do(lease.abandon())
        self._on(LifeEvent.RUN_OUT)
        out.do(Left())

    def end(self, lease: MemberLease, now: float, out: Outbox) -> None:
        """End the lease, and with it the member's life."""
        if self.state is not Life.REVOKING:
            return
        if lease.is_held:
            # After its TTL the lease is over, whether the revocation is answered or not.
            over_at = lease.deadline + lease.margin
            self.revoke_until = min(self.revoke_until, max(over_at, now + MIN_REVOKE_TIMEOUT_S))
            out.do(lease.disown())
        if lease.is_revoking:
            if now < self.revoke_until:
                out.wake(self.revoke_until)
            else:
                text = f"lease {lease.id:x} could not be revoked: it runs out"
                out.report(Level.ERROR, f"{text} within {lease.granted_ttl} s")
                out.do(lease.ended())
        if lease.is_none:
            self._on(LifeEvent.ENDED)
            out.do(Left())
