"""One member of a group: `step(now, events) -> effects`.

Everything a member decides is decided here or in the modules this one drives; nothing here does
I/O, reads a clock, logs, or knows of threads. The engine calls `step`, `expire` and `renew` with
its lock held, and publishes what they leave in `table`; callers read only that.

A step has two halves. First each event changes what is known: the view, the lease, the record.
Then, once for all of them, `_conclude` derives what follows, in an order that matters:

    deadline, own record gone → losses by the newest version → life → lease → grace
    → the record's next write → the gate → grants → (for the coordinator) the next version

Losses come before the write because every lost role with an unreleased handle must lie in it (R3);
the write comes before the gate because nothing is granted while it is unsettled (R2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial

from rink.core import drains, grants
from rink.core import effects as do
from rink.core import events as ev
from rink.core.claims import Gate, Obstacles, closed
from rink.core.coordinator import Coordinator, is_settled
from rink.core.effects import Effect, Level
from rink.core.events import Event
from rink.core.foresight import Foresight
from rink.core.handover import GATHER_S, Following
from rink.core.holds import Hold, Table
from rink.core.janitor import Janitor
from rink.core.life import Living
from rink.core.machines import Life, Write
from rink.core.outage import Outage
from rink.core.outbox import Outbox
from rink.core.placement import Placement
from rink.core.ranks import Upcoming
from rink.core.record import claims_of
from rink.core.renewals import Renewals
from rink.core.settings import MemberSettings
from rink.core.sight import Sight
from rink.core.tenure import Tenure
from rink.core.values import Record, Share
from rink.core.view import View
from rink.core.writer import Answer, Writer

__all__ = ["MemberSettings", "Node"]

RECORD_GONE = "its record is gone, or another's stands in its place"


class Node:
    """One member. All times are readings of one monotonic clock, in seconds."""

    def __init__(self, settings: MemberSettings, placement: Placement | None = None) -> None:
        self.settings = settings
        self.placement = placement or Placement()
        self.table = Table()
        self.sight = Sight()
        self.following = Following()
        self.living = Living(settings.name, settings.join_timeout, settings.leave_timeout)
        self.tenure = Tenure(settings.ttl, settings.margin)
        self.renewals = Renewals()
        self.writer = Writer()
        self.outage = Outage()
        self.coordinator = Coordinator(settings.ranking)
        self.janitor = Janitor()
        self.coordinates = False
        self.wake_at: float | None = None
        self.out = Outbox()
        self._look_for_grants = False
        self._gather_until = -math.inf
        self._disproved: str | None = None  # the incarnation that has found another history

    @property
    def name(self) -> str:
        """Return the member's name."""
        return self.settings.name

    @property
    def view(self) -> View:
        """Return the view: what lies in etcd, as far as this member knows."""
        return self.sight.view

    @property
    def share(self) -> Share | None:
        """Return the member's share of the version that it follows, or None."""
        return self.following.share

    @property
    def owned(self) -> dict[str, Share]:
        """Return each member's share of the newest version that can be read."""
        return self.following.owned

    @property
    def rank(self) -> int | None:
        """Return the member's rank in the newest readable version, or None."""
        share = self.owned.get(self.name)
        return share.rank if share else None

    @property
    def is_settled(self) -> bool:
        """Return whether the group is settled, in this member's view."""
        return self.view.version is not None and is_settled(self.view, self.owned)

    @property
    def upcoming(self) -> Upcoming | None:
        """Return the next change of the ranks if nothing happens before.

        Only the coordinator knows it.
        """
        return self.coordinator.upcoming if self.coordinates else None

    def foresee(self, events: Sequence[Event]) -> Foresight:
        """Return what stepping with these events will ask schemes; needs no lock."""
        heard = [event for event in events if self.sight.is_heard(event)]
        return Foresight.of(self.view, self.share, self.following.newest, heard)

    # ── what the session's thread brings, under the same lock ────────────────────────────────

    def expire(self, now: float) -> list[Effect]:
        """Lose every role if the deadline has passed.

        No scheme is called, and nothing else is done.
        """
        self._expire(now)
        return self.out.take_all_but_reports()

    @property
    def owes_reports(self) -> bool:
        """Return whether a step must follow to log what is pending.

        Only the engine's thread logs.
        """
        return bool(self.out.effects)

    def overdue(self, now: float, words: str) -> bool:
        """Warn where no keepalive is answered; return whether a step is to follow.

        Args:
            now: the time, in seconds.
            words: why there is no answer, as far as the client knows.
        """
        self.outage.overdue(self.tenure, words, now, self.out)
        return self.owes_reports

    def renew(self, now: float, lease: int, sent_at: float, call: int) -> tuple[list[Effect], bool]:
        """Take an answered keepalive.

        Args:
            now: the time, in seconds.
            lease: the lease that it renews.
            sent_at: when its request was sent.
            call: the number of the stream's call that brought it; a later call has a higher one.

        Returns:
            What is to be done now, and whether a step is to follow.
        """
        if lease != self.tenure.lease or not self.tenure.is_held:
            return [], False
        if not self.renewals.counts(call, sent_at, self.writer.exists):
            return [], True
        revived = self._renew(now, sent_at)
        return self.out.take_all_but_reports(), revived or self.owes_reports

    def _renew(self, now: float, sent_at: float) -> bool:
        """Move the deadline; return whether a suspect lease has come back to life."""
        self._expire(now)  # a deadline that nobody had time to notice has passed all the same
        revived = self.tenure.renewed(sent_at, now)
        if self.tenure.is_alive and now < self.outage.due_at(self.tenure):
            self.outage.over(self.writer.incarnation, now, self.out)
        self.table.deadline = self.tenure.deadline
        return revived

    def _expire(self, now: float) -> None:
        if self.tenure.passed_deadline(now):
            self.writer.must_write = True  # R7: nothing is granted before a write is answered
            self.outage.lost(self.tenure, len(self.table.held), now, self.out)
            self._lose_all(now, "the session was not renewed before its deadline")
            self.table.gate = closed("the session is lost")

    # ── a step ───────────────────────────────────────────────────────────────────────────────

    def step(self, now: float, events: Sequence[Event]) -> list[Effect]:
        """Take in events, in order, and return everything that is to be done now."""
        for event in events:
            self._take(event, now)
        self._conclude(now)
        return self.out.take()

    def _take(self, event: Event, now: float) -> None:
        match event:
            case ev.Listed() if self.sight.is_heard(event):
                if because := self.sight.replace(event):
                    self._change_history(because, now)
            case ev.Changed():
                self.sight.change(event)
            case ev.WriteAnswered():
                self._take_answer(self.writer.answered(event), now)
            case ev.ProclaimAnswered():
                self.coordinator.answered(event, self.view, now, self.name)
            case ev.RequestPosted():
                self.sight.history.posted(now)
            case ev.LeaseLookedUp():
                self.janitor.looked_up(event, self.view.members.get(event.name), now)
            case ev.LeaveAsked():
                self._ask_to_leave(event, now)
            case ev.Nudged():
                self._look_for_grants = True
            case _:
                self._take_failure(event, now)

    def _take_failure(self, event: Event, now: float) -> None:
        match event:
            case ev.WriteFailed():
                self.writer.failed(event.attempt, now)
                self._failed("writing the own record", event.error, now)
            case ev.ProclaimFailed():
                self._failed(self.coordinator.failed(event, now, self.name), event.error, now)
            case ev.ListFailed():
                self._failed("reading the group", event.error, now)
            case ev.PostFailed():
                self.sight.history.posted(now)
                self._failed("asking for a higher token base", event.error, now)
            case ev.ChoreFailed():
                self.out.warn_of(f"{event.doing} failed: {event.error}", now)
            case _:
                self._take_lease(event, now)

    def _take_lease(self, event: Event, now: float) -> None:
        tenure = self.tenure
        match event:
            case ev.LeaseGranted():
                self.out.do(tenure.granted(event))
                self.writer.begin(event.lease, event.incarnation)
                self.renewals.begin()
                self.outage.over(event.incarnation, now, self.out)
                self.table.deadline = tenure.deadline
            case ev.LeaseFailed():
                tenure.ask_failed(now, self.name)
                self._failed("asking for a lease", event.error, now)
            case ev.LeaseEnded(lease=lease) if lease == tenure.lease and tenure.is_known:
                if tenure.is_held:
                    self._lose_session(now, "etcd has ended its lease")
                self.out.do(tenure.ended())
            case ev.LeaseRevoked(lease=lease) if lease == tenure.lease and tenure.is_revoking:
                tenure.revoked()
            case ev.RevokeFailed(lease=lease) if lease == tenure.lease and tenure.is_revoking:
                tenure.revoke_failed(now, self.name)
                self._failed("revoking the lease", event.error, now)
            case ev.RecordRead(lease=lease) if lease == tenure.lease and tenure.is_held:
                if self.renewals.read(event):
                    self._take_own_record(event, now)
            case ev.RecordReadFailed(lease=lease) if lease == tenure.lease and tenure.is_held:
                self.renewals.read_failed(now, self.name)
                self._failed("reading the own record", event.error, now)
            case ev.HistoryChanged() if not self._is_disproved():
                self._change_history(event.because, now)
            case _:
                pass  # about a past lease, or a change of history that was already handled

    def _take_answer(self, answer: Answer, now: float) -> None:
        if answer is Answer.GONE:
            self._disown(now, "its record is gone")
        elif answer is Answer.OLDER and not self._is_disproved():
            self._change_history("etcd returned a record older than this member's last write", now)

    def _take_own_record(self, event: ev.RecordRead, now: float) -> None:
        """Let a new call's answers count where it reaches the history of the last write."""
        found = event.found
        if found is None or not self.writer.is_mine(found):
            self._disown(now, RECORD_GONE)
        elif found.mod_revision < event.mod_revision:
            self._find_older(event.mod_revision, found.mod_revision, now)
        else:
            self._renew(now, self.renewals.prove())

    # ── another history (R11) ────────────────────────────────────────────────────────────────

    def _find_older(self, was: int, is_now: int, now: float) -> None:
        because = f"this member wrote its record at revision {was}, but etcd has it at {is_now}"
        self._change_history(because, now)

    def _throw_view_away(self) -> None:
        """Throw the view away when the lease is over, whatever ended it.

        Nothing is granted before a new list.
        """
        self.sight.throw_view_away(self.out, lists=self.living.wants_lease)

    def _is_disproved(self) -> bool:
        """Return whether the change of history was handled for this lease.

        Each call reports the change, and an old record stays for a while.
        """
        return self._disproved == self.writer.incarnation and not self.tenure.is_held

    def _change_history(self, because: str, now: float) -> None:
        """End the session, since etcd has another history now.

        The lease is revoked, not forgotten: a restored etcd may hold it, with an old record that
        would keep the name.
        """
        self._disproved = self.writer.incarnation
        self._lose_all(now, because)
        self._throw_view_away()
        self.sight.begin_anew(because, now, self.out)
        if self.tenure.is_held:
            self.out.do(self.tenure.disown())
        self.coordinator = Coordinator(self.settings.ranking)

    def _failed(self, doing: str, error: Exception, now: float) -> None:
        self.out.warn_of(f"{doing} failed: {error}", now)
        self.living.request_failed(error, self.writer, self.out)  # only while joining

    def _conclude(self, now: float) -> None:
        self.out.wakes.clear()
        self._expire(now)
        self._check_own_record(now)
        self._follow_version(now)
        if self.sight.note(self.name, now, self.out):
            self._look_for_grants = True
        self._live(now)
        drains.watch(self.table, self.settings.grace, now, self.out)
        self.living.let_go(self.table, self.tenure, self.writer, now, self.out)
        self._keep_lease(now)
        self.sight.history.raise_tokens(self.view, self.writer, now, self.out)
        self._write(now)
        self._publish(now)
        self._grant(now)
        self._coordinate(now)
        self._look_after_the_dead(now)
        if self.tenure.is_alive:
            self.out.wake(self.tenure.deadline)
        self.wake_at = min(self.out.wakes, default=None)

    # ── losses ───────────────────────────────────────────────────────────────────────────────

    def _check_own_record(self, now: float) -> None:
        if not self.writer.exists or self.view.revision < self.writer.compare:
            return
        found = self.view.members.get(self.name)
        if not self.writer.is_mine(found):
            self._disown(now, RECORD_GONE)
        elif found and found.mod_revision < self.writer.compare and not self._is_disproved():
            self._find_older(self.writer.compare, found.mod_revision, now)
        elif found and found.mod_revision > self.writer.compare and self.writer.is_settled:
            self.writer.must_write = True  # somebody else has written it: put it right

    def _disown(self, now: float, because: str) -> None:
        """Lose everything and end the lease.

        A new incarnation comes after it (R6, R7).
        """
        if self.tenure.is_held:
            self._lose_session(now, because)
            self.out.do(self.tenure.disown())

    def _lose_session(self, now: float, because: str) -> None:
        self._lose_all(now, because)
        self._throw_view_away()
        self.outage.begun(now)
        self.out.report(Level.WARNING, f"member {self.name!r} lost its session: {because}")

    def _follow_version(self, now: float) -> None:
        """Lose what the newest version gives to others (R3).

        Newcomers must have claimed it first.
        """
        before, rank = self.share, self.rank
        follows = self.following.follow(
            self.view, self.name, self.table.held, self.placement, now, self.out
        )
        if self.rank != rank:
            self.out.do(do.RankChanged(self.rank))
        if not follows:
            return
        version = self.following.version
        because = f"version {version.number} gives it to another" if version else "no version"
        for hold in list(self.table.held.values()):
            if not self.placement.has(self.share, hold.role):
                self._lose(hold, before, now, because)
                self._gather_until = now + GATHER_S

    def _lose(self, hold: Hold, share: Share | None, now: float, because: str) -> None:
        hold.share = share or hold.share  # the newest share that claimed it
        self.table.lose(hold, now, because)
        self.out.do(do.Lose(hold))

    def _lose_all(self, now: float, because: str) -> None:
        for hold in list(self.table.held.values()):
            self._lose(hold, self.share, now, because)

    # ── life, lease and record ───────────────────────────────────────────────────────────────

    def _ask_to_leave(self, event: ev.LeaveAsked, now: float) -> None:
        ranked = self.share is not None and self.tenure.is_alive and self.writer.exists
        number = self.view.newest.number if self.view.newest else 0
        if self.living.ask_to_leave(event, ranked, number, now):
            self._lose_all(now, "the member leaves")

    def _live(self, now: float) -> None:
        self.living.join(self.writer, self.view, now, self.out)
        ranked = self.share is not None
        if self.living.leave(self.view, ranked, self.tenure.is_alive, now, self.out):
            self._lose_all(now, "the member leaves")
            self._follow_version(now)  # nothing is held any more that a newcomer is to claim

    def _keep_lease(self, now: float) -> None:
        if self.living.state is Life.RUNNING_OUT:
            is_written = self.writer.is_settled and not self.writer.differs(self._desired_record())
            self.living.run_out(self.tenure, is_written, now, self.out)
        if self.tenure.is_held:
            self.renewals.look(self.tenure.lease, self.writer.compare, now, self.out)
        self.living.end(self.tenure, now, self.out)
        self.tenure.look(self.living.wants_lease, now, self.out)

    def _write(self, now: float) -> None:
        if not self.tenure.is_alive or not self.living.wants_record or not self.view.revision:
            return
        desired = self._desired_record()
        if not self.writer.is_due(desired, now):
            self.out.wake(self.writer.retry_at if self.writer.state is Write.OWED else None)
        elif (
            now < self._gather_until
            and self.table.draining
            and self.writer.is_settled  # not for a write that settles
        ):
            self.out.wake(self._gather_until)
        else:
            self.out.do(self.writer.send(desired))

    def _desired_record(self) -> Record:
        limit = self.settings.draining_limit_bytes
        share = self.share if self.living.wants_share else None
        shares, draining = claims_of(share, self.table.draining, self.placement, limit)
        return Record(
            incarnation=self.writer.incarnation,
            ttl=self.tenure.granted_ttl,
            phase=self.living.phase,
            version=self.following.version.number if self.following.version else 0,
            shares=shares,
            draining=draining,
            **self.settings.recorded,
        )

    # ── grants ───────────────────────────────────────────────────────────────────────────────

    def _publish(self, now: float) -> None:
        awaits, version = self.following.awaits, self.following.version
        token = self.sight.chronicle.token_base + self.view.revision if version else 0
        because = self.sight.history.why_closed(now) or grants.why_closed(
            self.name,
            self.living,
            self.tenure,
            self.writer,
            self.view,
            self.share,
            awaits,
            self.sight.why_unrankable,
        )
        if now < self.sight.history.grants_from:
            self.out.wake(self.sight.history.grants_from)
        share = None if because else self.share
        before = self.table.gate
        if share == before.share and because == before.closed_because and token == before.token:
            return
        ranks = self.placement.ranks(share.scheme, share.size) if share else {}
        number = version.number if version else 0
        # Two threads may seek them at once: they come from a frozen view.
        find = cache(partial(Obstacles.of, self.view, self.name, self.owned, self.placement))
        self.table.gate = Gate(share, find, token, number, because, ranks)
        self._look_for_grants = True

    def _grant(self, now: float) -> None:
        if self.table.gate.share is not None and self._look_for_grants:
            self._look_for_grants = False
            for effect in grants.grant(self.table, self.placement, now):
                self.out.do(effect)

    # ── for everybody ────────────────────────────────────────────────────────────────────────

    def _coordinate(self, now: float) -> None:
        me = self.view.coordinator
        coordinates = (
            me is not None
            and self.writer.is_mine(me)
            and self.tenure.is_alive
            and self.living.wants_record
        )
        if coordinates != self.coordinates:
            self.coordinates = coordinates
            self.out.do(do.CoordinatorChanged(coordinates))
        if coordinates and me is not None:
            settled = is_settled(self.view, self.owned)
            effects, look_at = self.coordinator.coordinate(
                me, self.view, self.sight.chronicle, settled, now
            )
            for effect in effects:
                self.out.do(effect)
            self.out.wake(look_at)

    def _look_after_the_dead(self, now: float) -> None:
        if not self.tenure.is_alive or self.living.state is Life.REVOKING:
            return
        waits_for_name = self.writer.state is Write.TAKEN
        suspects = self.janitor.suspects(self.view, self.name, self.coordinates, waits_for_name)
        effects, look_at = self.janitor.look(suspects, now)
        for effect in effects:
            self.out.do(effect)
        self.out.wake(look_at)
