"""Step one member of a group: events go in, effects come out.

Every decision of a member is made here, or in the modules that this one drives. Nothing here does
I/O, reads a clock, logs, or knows of threads. The engine calls `step_own`, `step_group`, `expire`
and `renew` with its lock held. They leave the result in `table`, which is all that callers read.

A step has two halves. In `step_own`, each event changes the state (`rink.core.member_state`): the
view, the lease, the record. Then the step derives, once for all events, what follows for the
member's roles, in an order that matters:

    deadline, own record gone → losses by the newest version → life → lease → grace
    → the record's next write → the gate → grants

Losses come before the write, because every lost role with an unreleased handle must lie in it (R3).
The write comes before the gate, because nothing is granted while it is unsettled (R2). Callers and
other members wait for this half. Nobody waits for `step_group`: it reports long waits, proclaims
the next version if this member coordinates, and removes dead records.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from rink.core import drains, grants
from rink.core import effects as do
from rink.core.claims import Gate, Obstacles
from rink.core.effects import Effect, Level
from rink.core.events import MemberEvent
from rink.core.handover import GATHER_TIMEOUT_S
from rink.core.member_record import MemberRecord
from rink.core.member_state import RECORD_GONE, MemberState
from rink.core.own_claims import claims_of
from rink.core.record_index import is_same
from rink.core.record_writer import Verdict
from rink.core.scheme_prefetch import SchemePrefetch
from rink.core.settings import MemberSettings
from rink.core.state_tables import Life, Write
from rink.core.waits import REPORT_AFTER_S
from rink.core.wording import some

__all__ = ["MemberSettings", "Node"]


class Node(MemberState):
    """Derive what follows from the state of one member."""

    def prefetch(self, events: Sequence[MemberEvent]) -> SchemePrefetch:
        """Return the ranks that a step with these events needs; needs no lock."""
        counted = [event for event in events if self._is_heard(event)]
        return SchemePrefetch.of(self.view_state.fold(counted), self.share, self.following.newest)

    def step(
        self, now: float, events: Sequence[MemberEvent], unplaced: Collection[str] = ()
    ) -> list[Effect]:
        """Take in events, oldest first, and return everything to be done now.

        The `unplaced` roles are awaited, and were not placed before this step. This step leaves
        them out, and another step must follow.
        """
        return self.step_own(now, events, unplaced) + self.step_group(now, unplaced)

    def step_own(
        self, now: float, events: Sequence[MemberEvent], unplaced: Collection[str] = ()
    ) -> list[Effect]:
        """Do the first half of a step, about the member's own roles."""
        for event in events:
            self._take(event, now)
        self.out.wakes.clear()
        self._expire(now)
        self._check_own_record(now)
        self._follow_version(now)
        self.view_state.note(self.name, now, self.out)
        self._live(now)
        drains.watch(self.table, self.settings.grace, now, self.out)
        self.living.let_go(self.table, self.member_lease, self.writer, now, self.out)
        self._keep_lease(now)
        self.view_state.history.raise_tokens(self.view, self.writer, now, self.out)
        self._raise_token()
        self._write(now)
        self._publish(now)
        self._grant(now, unplaced)
        self._report_coordinator()
        return self.out.take()

    def step_group(self, now: float, unplaced: Collection[str] = ()) -> list[Effect]:
        """Do the second half of a step, and say when to step again.

        Callers may take and release roles between the halves, and the lease may end.
        """
        self._report_waits(now, unplaced)
        self._coordinate(now)
        self._look_after_the_dead(now)
        if self.member_lease.is_alive:
            self.out.wake(self.member_lease.deadline)
        self.wake_at = min(self.out.wakes, default=None)
        return self.out.take()

    # ── losses ───────────────────────────────────────────────────────────────────────────────────

    def _check_own_record(self, now: float) -> None:
        if not self.writer.exists or self.view.revision < self.writer.compare:
            return
        member = self.view.members.get(self.name)
        verdict = self.writer.judge(member, self.writer.compare)
        if member is None or verdict is Verdict.GONE:
            self._disown(now, RECORD_GONE)
        elif verdict is Verdict.OLDER and not self._is_disproved():
            self._find_older(self.writer.compare, member.mod_revision, now)
        elif member.mod_revision > self.writer.compare and self.writer.is_settled:
            self.writer.must_write = True  # another process has written it, so write it again

    def _follow_version(self, now: float) -> None:
        """Lose the roles that the newest version gives to others (R3).

        Newcomers among the new owners must have claimed their shares first.
        """
        before, rank = self.share, self.rank
        offer_until = self.living.offer_until if self.living.state is Life.OFFERING else now
        follows = self.following.follow(
            self.view, self.name, self.table.held, self.placement, offer_until, now, self.out
        )
        if self.rank != rank:
            self.out.do(do.RankChanged(self.rank))
        if not follows:
            return
        version = self.following.version
        self._report_version()
        because = (
            f"version {version.number} changed the owner" if version else "the group has no version"
        )
        for hold in list(self.table.held.values()):
            if not self.placement.has(self.share, hold.role):
                self._lose(hold, before, now, because)
                self._gather_until = now + GATHER_TIMEOUT_S

    def _report_version(self) -> None:
        """Report the version that the member follows while it serves."""
        version = self.following.version
        if version is None or not self.living.serves:
            return
        size = len(version.ranks)
        rank = f"rank {self.rank} of {size}" if self.rank is not None else f"no rank (of {size})"
        text = f"version {version.number}: {rank}: {some(version.because)}"
        self.out.do(do.Report(Level.INFO, text, version.number))

    # ── life, lease and record ───────────────────────────────────────────────────────────────────

    def _live(self, now: float) -> None:
        was_joining = self.living.state is Life.JOINING
        self.living.join(self.writer, self.view, now, self.out)
        if was_joining:
            self._report_version()  # a newcomer followed it before its record existed
        if self.living.leave(self._leave_situation(now), self.out):
            self._lose_all(now, "the member leaves")
            self._follow_version(now)  # no role is held any more for a newcomer
        self.table.is_offered = self.living.state is Life.OFFERING

    def _keep_lease(self, now: float) -> None:
        if self.living.state is Life.RUNNING_OUT:
            is_written = self.writer.is_settled and not self.writer.differs(self._desired_record())
            self.living.run_out(self.member_lease, is_written, now, self.out)
        if self.member_lease.is_held:
            self._look_for_proof(now)
        self.living.end(self.member_lease, now, self.out)
        self.member_lease.look(self.living.wants_lease, now, self.out)

    def _raise_token(self) -> None:
        """Write the record once more if a handle waits for a greater token.

        The revision of that write is greater than that of every view before it. The gate is closed
        until the view has reached it. A view that has moved on by itself needs no write. One write
        serves every handle that waits by now, so a wait never costs more than one write.
        """
        reached = max(self.view.revision, self.writer.compare)
        if self.table.token_above < self.view_state.observed_times.token_base + reached:
            self.table.token_above = 0
        elif self.writer.is_settled:  # the revision of a write under way may be too low
            self.writer.must_write = True
            self.table.token_above = 0

    def _write(self, now: float) -> None:
        if not self.member_lease.is_alive or not self.living.wants_record or not self.view.revision:
            return
        desired = self._desired_record()
        if not self.writer.is_due(desired, now):
            self.out.wake(self.writer.retry_at if self.writer.state is Write.OWED else None)
        elif (
            now < self._gather_until
            and self.table.drains
            and self.writer.is_settled  # a retry, or a first write, is not delayed
        ):
            self.out.wake(self._gather_until)
        else:
            self.out.do(self.writer.send(desired))

    def _desired_record(self) -> MemberRecord:
        limit = self.settings.draining_limit_bytes
        share = self.share if self.living.wants_share else None
        shares, draining = claims_of(share, self.table.draining, self.placement, limit)
        return MemberRecord(
            incarnation=self.writer.incarnation,
            ttl=self.member_lease.granted_ttl,
            phase=self.living.phase,
            version=self.following.version.number if self.following.version else 0,
            shares=shares,
            draining=draining,
            **self.settings.recorded,
        )

    # ── grants ───────────────────────────────────────────────────────────────────────────────────

    def _publish(self, now: float) -> None:
        awaits, version = self.following.awaits, self.following.version
        token = self.view_state.observed_times.token_base + self.view.revision if version else 0
        history, lease = self.view_state.history, self.member_lease
        unrankable = self.view_state.why_unrankable
        because = history.why_closed(now) or grants.why_closed(
            self.name, self.living, lease, self.writer, self.view, self.share, awaits, unrankable
        )
        if now < history.grants_from:
            self.out.wake(history.grants_from)
        share = None if because else self.share
        known, before = self.placing.schemes, self.table.gate
        now_and_before = (share, because, token, known)
        if now_and_before == (before.share, before.closed_because, before.token, before.schemes):
            return
        ranks = self.placement.ranks(share.scheme, share.size) if share else {}
        number = version.number if version else 0
        find = partial(Obstacles.of, self.unsettled, self.name, self.owned, self.placement)
        self.table.gate = Gate(share, find, token, number, because, ranks, known)

    def _grant(self, now: float, unplaced: Collection[str]) -> None:
        """Grant the awaited roles that are free.

        A role that was tried before stays blocked until an unsettled record, a share or the number
        of schemes changes. Only then are all roles tried again. A role whose lost handle was
        released counts as new (`Table.release`).
        """
        if self.table.gate.share is None:
            return
        sources = (self.unsettled, self.owned, self.placing.schemes)
        only_new = is_same(sources, self._tried)
        self._tried = sources
        if not only_new or self.table.waits.unsorted:
            for effect in grants.grant(self.table, self.placement, now, unplaced, only_new):
                self.out.do(effect)

    def _report_waits(self, now: float, unplaced: Collection[str]) -> None:
        """Report the roles that have been awaited long, and why."""
        roles, look_at = self.table.waits.lasting(now)
        self.out.wake(look_at)
        if not roles:
            return
        role, because = roles[0], "its owner is being computed"
        if role not in unplaced:
            because = self.hold_obstacles(self.table.lost, now).obstacle(role, self.placement)
        seconds = f"over {REPORT_AFTER_S:g} s"
        if len(roles) == 1:
            text = f"role {role!r} has been awaited for {seconds}: {because}"
            self.out.do(do.Report(Level.INFO, text, role=role))
        else:
            names = some([repr(role) for role in roles])
            text = f"{len(roles):,} roles have been awaited for {seconds}: {names}"
            self.out.report(Level.INFO, f"{text}; {role!r}: {because}")

    # ── the group ────────────────────────────────────────────────────────────────────────────────

    def _is_coordinator(self) -> bool:
        me = self.view.coordinator
        is_mine = me is not None and self.writer.is_mine(me)
        return is_mine and self.member_lease.is_alive and self.living.wants_record

    def _report_coordinator(self) -> None:
        """Report a change of whether this member coordinates.

        The first half reports it, since user code that a grant or the join wakes may ask at once.
        """
        coordinates = self._is_coordinator()
        if coordinates != self.coordinates:
            self.coordinates = coordinates
            self.out.do(do.CoordinatorChanged(coordinates))

    def _coordinate(self, now: float) -> None:
        me = self.view.coordinator
        if me is None or not self._is_coordinator():  # the lease may have ended since `step_own`
            return
        effects, look_at = self.coordinator.coordinate(
            me, self.view, self.view_state.observed_times, not self.unsettled, now
        )
        for effect in effects:
            self.out.do(effect)
        self.out.wake(look_at)

    def _look_after_the_dead(self, now: float) -> None:
        if not self.member_lease.is_alive or self.living.state is Life.REVOKING:
            return
        waits_for_name = self.writer.state is Write.TAKEN
        effects, look_at = self.janitor.look_after(
            self.view, self.name, self.coordinates, waits_for_name, now
        )
        for effect in effects:
            self.out.do(effect)
        self.out.wake(look_at)
