"""Keep the state of one member, and change it by each event.

Each step begins here, and `rink.core.member` then derives the consequences. If an event ends the
session, or proves another history, the roles are lost here and at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from rink.core import effects as do
from rink.core import events as ev
from rink.core.claims import closed
from rink.core.coordinator import Coordinator
from rink.core.effects import Effect, Level
from rink.core.events import MemberEvent
from rink.core.grants import NOT_RANKED
from rink.core.handover import Following
from rink.core.holds import Hold, Table
from rink.core.janitor import Janitor
from rink.core.lease import MemberLease
from rink.core.lifecycle import LeaveSituation, Living
from rink.core.member_record import Share
from rink.core.outage import Outage
from rink.core.outbox import Outbox
from rink.core.placement import Placement
from rink.core.ranks import Upcoming
from rink.core.record_writer import Verdict, Writer
from rink.core.renewals import Renewals, read_timeout, second_try_timeout
from rink.core.scheme_prefetch import Placing
from rink.core.settings import MemberSettings
from rink.core.state_tables import Life
from rink.core.unsettled_records import Unsettled
from rink.core.values import Member
from rink.core.view import View
from rink.core.view_state import ViewState
from rink.core.why_not_held import HoldObstacles, why_not_ranked

LIST_FAILURE_TIMEOUT_S = 60.0
"""Seconds until Rink warns of failing lists; see `_list_failed`."""

RECORD_GONE = "the member's record is gone, or another record stands in its place"


class MemberState:
    """Keep one member's view, lease, record and roles.

    Times are of one monotonic clock, in seconds.
    """

    def __init__(self, settings: MemberSettings, placement: Placement | None = None) -> None:
        self.settings = settings
        self.name = settings.name
        self.placement = placement or Placement()
        self.table = Table()
        self.view_state = ViewState()
        self.following = Following()
        self.living = Living(
            settings.name,
            settings.join_timeout,
            settings.leave_timeout,
            settings.ranking.handover_wait,
        )
        self.member_lease = MemberLease(settings.ttl, settings.margin)
        self.renewals = Renewals()
        self.writer = Writer()
        self.outage = Outage()
        self.coordinator = Coordinator(settings.ranking)
        self.janitor = Janitor()
        self.coordinates = False
        self.placing = Placing()
        self._unsettled = Unsettled()
        self.wake_at: float | None = None
        self.out = Outbox()
        self._tried: tuple[object, ...] = ()
        self._gather_until = -math.inf
        self._disproved: str | None = None  # the incarnation that has found another history
        self._list_failing_since: float | None = None

    @property
    def view(self) -> View:
        """Return this member's view of its group."""
        return self.view_state.view

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
    def unsettled(self) -> Mapping[str, Member]:
        """Return the records that are not exactly their shares of `owned`."""
        return self._unsettled.find(self.view.records, self.owned)

    @property
    def is_settled(self) -> bool:
        """Return whether the group is settled, in this member's view."""
        return self.view.version is not None and not self.unsettled

    @property
    def upcoming(self) -> Upcoming | None:
        """Return the next change of the ranks, which only the coordinator knows."""
        return self.coordinator.upcoming if self.coordinates else None

    def hold_obstacles(self, lost: Collection[str], now: float) -> HoldObstacles:
        """Return what keeps roles from this member; `lost` are unreleased roles."""
        gate, not_ranked = self.table.gate, ""
        if gate.closed_because == NOT_RANKED:
            not_ranked = why_not_ranked(self.view, self.view_state.observed_times, self.name, now)
        return HoldObstacles(self.name, gate, self.view.version, lost, not_ranked)

    # ── what other threads call, under the engine's lock ──────────────────────────────────────────

    def expire(self, now: float) -> list[Effect]:
        """Lose every role if the deadline has passed.

        It calls no scheme, and does nothing else.
        """
        self._expire(now)
        return self.out.take_all_but_reports()

    @property
    def owes_reports(self) -> bool:
        """Return whether log lines are pending, so that a step must follow.

        The session's thread logs none of them: a log handler may block it.
        """
        return bool(self.out.effects)

    def overdue(self, now: float, words: str) -> bool:
        """Warn if the lease is not renewed; return whether a step must follow.

        `words` say why it is not renewed, as far as the client knows.
        """
        self.outage.overdue(self.member_lease, words, now, self.out)
        return self.owes_reports

    def renew(self, now: float, lease: int, sent_at: float, call: int) -> tuple[list[Effect], bool]:
        """Take an answered keepalive of a lease, sent at `sent_at`.

        `call` is the number of the stream's call that brought it. A later call has a higher number.
        Return the effects to carry out now, and whether a step must follow.
        """
        if lease != self.member_lease.id or not self.member_lease.is_held:
            return [], False
        if self.renewals.meet(call):
            self.writer.meet(now, second_try_timeout(self.member_lease.granted_ttl))
        if self.renewals.counts(call, sent_at):
            revived = self._renew(now, sent_at)
            return self.out.take_all_but_reports(), revived or self.owes_reports
        self._look_for_proof(now)  # at once, since a hanging engine may step after the deadline
        return self.out.take_all_but_reports(), True

    def prove(self, now: float, event: ev.RecordRead) -> tuple[list[Effect], bool]:
        """Let answers that were held back count if the record allows it.

        The thread that has read the record calls this, under the engine's lock. If the record does
        not allow it, a step handles the event. A step also repeats a read that failed. Return the
        effects to carry out now, and whether the answers count.
        """
        verdict = self._judge(event)
        if verdict is not Verdict.FINE:
            return [], False
        self._take_read(event, verdict, now)
        return self.out.take_all_but_reports(), True

    def _judge(self, event: ev.RecordRead) -> Verdict | None:
        """Judge this member's record as read; None if the read is out of date."""
        if not self._is_current(event):
            return None
        return self.writer.judge(event.member, event.mod_revision)

    def _is_current(self, answer: ev.RecordRead | ev.RecordReadFailed) -> bool:
        """Return whether a read is of this lease, and for the newest call."""
        is_of_lease = self.member_lease.is_held and answer.lease == self.member_lease.id
        return is_of_lease and answer.call == self.renewals.new_call

    def _look_for_proof(self, now: float) -> None:
        """Request a read of this member's record for a new keepalive call.

        It does nothing without such a call. It first waits for the second try of a write, since the
        answer changes what the read must find. Without a record there is nothing to read, and the
        answers count.
        """
        call = self.renewals.unread_call
        if call is None:
            return
        if self.writer.is_awaited:
            if now < self.writer.awaited_until:
                self.out.wake(self.writer.awaited_until)
                return  # the step that takes the answer or the failure comes here again
            self.writer.doubt(now)
        if not self.writer.exists:  # no claim could be missing in a copy
            self._renew(now, self.renewals.prove())
            return
        within_s = read_timeout(self.member_lease.granted_ttl)
        lease, compare = self.member_lease.id, self.writer.compare
        self.renewals.look(call, lease, compare, within_s, now, self.out)

    def _renew(self, now: float, sent_at: float) -> bool:
        """Move the deadline; return whether a suspect lease has come back to life."""
        self._expire(now)  # first: a deadline that no step has noticed has passed all the same
        revived = self.member_lease.renewed(sent_at, now)
        if self.member_lease.is_alive and now < self.outage.due_at(self.member_lease):
            self.outage.over(self.writer.incarnation, now, self.out)
        self.table.deadline = self.member_lease.deadline
        return revived

    def _expire(self, now: float) -> None:
        if self.member_lease.passed_deadline(now):
            self.writer.must_write = True  # R7: nothing is granted before a write is answered
            self.outage.lost(self.member_lease, len(self.table.held), now, self.out)
            self._lose_all(now, "the session was not renewed before its deadline")
            self.table.gate = closed("the session is lost")

    # ── what events bring ────────────────────────────────────────────────────────────────────────

    def _take(self, event: MemberEvent, now: float) -> None:
        match event:
            case ev.Listed() if self.view_state.is_heard(event):
                self._list_failing_since = None
                if because := self.view_state.replace(event, self.name):
                    self._change_history(because, now)
            case ev.Changed():
                self.view_state.change(event)
            case ev.WriteAnswered():
                self._take_answer(self.writer.answered(event), now)
            case ev.ProclaimAnswered():
                self.coordinator.answered(event, self.view, now, self.name)
            case ev.RequestPosted():
                self.view_state.history.posted(now)
            case ev.LeaseLookedUp():
                self.janitor.looked_up(event, self.view.members.get(event.name), now)
            case ev.LeaveAsked():
                self._ask_to_leave(event, now)
            case ev.Nudged():
                pass  # the step reads the table
            case _:
                self._take_failure(event, now)

    def _take_failure(self, event: MemberEvent, now: float) -> None:
        match event:
            case ev.WriteFailed():
                if self.writer.failed(event.attempt, now):
                    self._failed("writing this member's record", event.error, now)
            case ev.ProclaimFailed():
                doing = self.coordinator.failed(event, now, self.name)
                self.out.warn_of(f"{doing} failed: {event.error}", now)
            case ev.ListFailed():
                self._list_failed(event.error, now)
            case ev.PostFailed():
                self.view_state.history.posted(now)
                self.out.warn_of(f"asking for a higher token base failed: {event.error}", now)
            case ev.ChoreFailed():
                self.out.warn_of(f"{event.doing} failed: {event.error}", now)
            case _:
                self._take_lease(event, now)

    def _take_lease(self, event: MemberEvent, now: float) -> None:
        # Invariant: an event about an earlier lease changes nothing. Most cases compare the lease.
        # A grant or its failure needs no such check, since a request is made only in the state
        # NONE, and `advance` accepts its answer only in the state ASKED.
        member_lease = self.member_lease
        match event:
            case ev.LeaseGranted():
                self.out.do(member_lease.granted(event))
                self.writer.begin(event.lease, event.incarnation)
                self.renewals.begin()
                self.outage.over(event.incarnation, now, self.out)
                if now >= member_lease.deadline:
                    self.outage.words = "the grant of the lease came after its deadline"
                self.table.deadline = member_lease.deadline
            case ev.LeaseFailed():
                member_lease.ask_failed(now, self.name)
                self._failed("asking for a lease", event.error, now)
            case ev.LeaseEnded(lease=lease) if lease == member_lease.id and member_lease.is_known:
                if member_lease.is_held:
                    self._lose_session(now, "etcd has ended the member's lease")
                self.out.do(member_lease.ended())
            case ev.LeaseRevoked(lease=lease) if (
                lease == member_lease.id and member_lease.is_revoking
            ):
                member_lease.revoked()
            case ev.RevokeFailed(lease=lease) if (
                lease == member_lease.id and member_lease.is_revoking
            ):
                member_lease.request_failed(now, self.name)
                self._failed("revoking the lease", event.error, now)
            case ev.RecordRead():
                self._take_read(event, self._judge(event), now)
            case ev.RecordReadFailed() if self._is_current(event):
                self.renewals.read_failed(now, self.name)
                # No log line: if it lasts, the outage is logged with the reason.
                self.out.last_error = f"reading this member's record failed: {event.error}"
            case ev.HistoryChanged() if self._is_disproved():
                self.view_state.history.wait(now)  # the same change again, or a further one
            case ev.HistoryChanged():
                self._change_history(event.because, now)
            case _:
                pass  # the event is about an earlier lease

    def _take_answer(self, verdict: Verdict, now: float) -> None:
        if verdict is Verdict.GONE:
            self._disown(now, "the member's record is gone")
        elif verdict is Verdict.OLDER and not self._is_disproved():
            self._change_history("etcd returned a record older than this member's last write", now)

    def _take_read(self, event: ev.RecordRead, verdict: Verdict | None, now: float) -> None:
        """Let answers count by the record as read, or end the session."""
        if verdict is None:
            return
        self.renewals.read()
        if verdict is Verdict.FINE:
            self._renew(now, self.renewals.prove())
        elif event.member is None or verdict is Verdict.GONE:
            self._disown(now, RECORD_GONE)
        else:
            self._find_older(event.mod_revision, event.member.mod_revision, now)

    def _ask_to_leave(self, event: ev.LeaveAsked, now: float) -> None:
        if self.living.ask_to_leave(event, self._leave_situation(now), self.out):
            self._lose_all(now, "the member leaves")

    def _leave_situation(self, now: float) -> LeaveSituation:
        serves = self.share is not None and self.member_lease.is_alive and self.writer.exists
        return LeaveSituation(self.view, serves, self.table.is_used, now)

    def _list_failed(self, error: Exception, now: float) -> None:
        """Warn of a failed list, unless it belongs to a logged outage.

        An answered keepalive that was sent after the first failure shows that only lists fail.
        Without such an answer, the outage is logged and its lists are not. If no outage is logged,
        failing lists are warned of after a while. While the member joins or has no lease, each
        failure is warned of.
        """
        if self._list_failing_since is None:
            self._list_failing_since = now
        since, is_logged = self._list_failing_since, self.outage.since is not None
        is_answered = self.member_lease.answered_at > since
        is_long = now > since + LIST_FAILURE_TIMEOUT_S and not is_logged
        is_joining = self.living.state is Life.JOINING
        if is_answered or is_long or is_joining or not self.member_lease.is_held:
            self._failed("reading the group", error, now)
        else:
            self.out.last_error = f"reading the group failed: {error}"

    def _failed(self, doing: str, error: Exception, now: float) -> None:
        self.out.warn_of(f"{doing} failed: {error}", now)
        self.living.request_failed(error, self.writer, self.out)  # only while joining

    # ── another history (R11) ────────────────────────────────────────────────────────────────────

    def _find_older(self, was: int, is_now: int, now: float) -> None:
        because = f"this member wrote its record at revision {was}, but etcd has it at {is_now}"
        self._change_history(because, now)

    def _throw_view_away(self) -> None:
        """Throw the view away, since the lease is over.

        Nothing is granted before a new list.
        """
        self.view_state.throw_view_away(self.out, lists=self.living.wants_lease)

    def _is_heard(self, event: MemberEvent) -> bool:
        """Return whether the content of an event counts for the view."""
        if isinstance(event, ev.HistoryChanged):
            return not self._is_disproved()
        return self.view_state.is_heard(event)

    def _is_disproved(self) -> bool:
        """Return whether the change of history was handled for this lease.

        Each request under way reports the same change again, and the old record stays for a while.
        """
        return self._disproved == self.writer.incarnation and not self.member_lease.is_held

    def _change_history(self, because: str, now: float) -> None:
        """End the session, since etcd has another history now.

        The lease is revoked, not forgotten. A restored etcd may have it, with an old record that
        would keep the name.
        """
        self._disproved = self.writer.incarnation
        self._lose_all(now, because)
        self._throw_view_away()
        self.view_state.begin_anew(because, now, self.out)
        if self.member_lease.is_held:
            self.out.do(self.member_lease.disown())
        self.coordinator = Coordinator(self.settings.ranking)

    # ── losses ───────────────────────────────────────────────────────────────────────────────────

    def _disown(self, now: float, because: str) -> None:
        """Lose everything and end the lease; a new incarnation follows (R6, R7)."""
        if self.member_lease.is_held:
            self._lose_session(now, because)
            self.out.do(self.member_lease.disown())

    def _lose_session(self, now: float, because: str) -> None:
        # Otherwise the loss was logged at the deadline.
        is_news = self.member_lease.is_alive
        self._lose_all(now, because)
        self._throw_view_away()
        self.outage.begun(now)
        level = Level.WARNING if is_news else Level.INFO
        self.out.report(level, f"member {self.name!r} lost its session: {because}")

    def _lose(self, hold: Hold, share: Share | None, now: float, because: str) -> None:
        hold.share = share or hold.share  # the newest share that claimed it
        self.table.lose(hold, now, because)
        self.out.do(do.Lose(hold))

    def _lose_all(self, now: float, because: str) -> None:
        for hold in list(self.table.held.values()):
            self._lose(hold, self.share, now, because)
