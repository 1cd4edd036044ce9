"""Run the member of one joined Rink, on a thread of its own.

The engine reads its mailbox, steps the core with every message in it, and carries out the effects.
All shared state belongs to the core and has one lock, which is held only for short times:

* The stepper places roles *before* it takes the lock. So a scheme, which may be a user's function,
  is never called under the lock. Then it steps and publishes in one hold of the lock (R2). After
  the effects are carried out, it takes the lock again for the work that the member does for its
  group.
* Callers register handles under the same lock, against the gate that they computed with.
* The session's thread takes the lock to move the deadline, and to lose every role once the deadline
  has passed.

Effects are carried out after the lock is released: signals are set, requests go to the request
threads, and user callbacks go to their thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref

from rink.core import effects as do
from rink.core import events as ev
from rink.core.claims import closed
from rink.core.effects import Effect
from rink.core.events import MemberEvent
from rink.core.holds import Handle, Hold
from rink.core.keys import Keys
from rink.core.member import MemberSettings, Node
from rink.core.state_tables import Life
from rink.core.wording import some
from rink.engine.callbacks import Callbacks, Listeners
from rink.engine.caller_context import owns
from rink.engine.clock import Clock, Mailbox
from rink.engine.group_watch import GroupWatch
from rink.engine.last_waits import LastWaits
from rink.engine.lease_renewal import LeaseRenewal
from rink.engine.member_log import MemberLog
from rink.engine.request_threads import RequestThreads
from rink.engine.requests import Requests
from rink.engine.signals import Signal, Subscribers
from rink.engine.stepper import Stepper, step_queue
from rink.errors import ClosedError, WrongThreadError
from rink.etcd.api import Etcd

log = logging.getLogger("rink")

REST_THRESHOLD_S = 0.002
"""Shortest turn that is followed by a rest while roles drain."""

REST_PER_TURN = 3.0
"""Length of a rest, in lengths of the turn before it."""

MAX_REST_S = 0.1
"""Longest rest. The shortest TTL, 2 s, is renewed every third of a second."""

GRANT_PAUSE_S = 0.000_1
"""Pause after a grant, so that other threads run first.

A thread that is woken gets the interpreter only when the engine's thread sleeps.
"""

LEAVE_PAUSE_S = 0.003
"""Pause after a leave, so that other processes run first.

A machine with few cores has one free for the new owner only while the old owner sleeps.
"""


class _Tick:
    """Request a sign of life."""


class _Stop:
    """Request the end of the thread at once, in any state of the member."""


class _Flush:
    """Request that noted log lines are written."""


_Message = MemberEvent | Handle | _Tick | _Stop | _Flush

_FLUSH = _Flush()

_NUDGED = ev.Nudged()

STOPPED = "the member was stopped before it had left"


class Engine:
    """Run one member. All public methods may be called from any thread."""

    def __init__(
        self,
        etcd: Etcd,
        keys: Keys,
        settings: MemberSettings,
        *,
        clock: Clock,
        request_threads: RequestThreads,
        read_threads: RequestThreads,
        lease_renewal: LeaseRenewal,
        listeners: Listeners,
        group: str,
    ) -> None:
        self.node = Node(settings)
        self.table = self.node.table
        self.lock = threading.RLock()
        # True if the calling thread holds the lock, because a signal handler interrupted a call.
        self.is_interrupted = owns(self.lock)
        self.clock = clock
        self.group = group
        self.joined = Signal(clock)
        self.join_error: Exception | None = None
        self.left = Signal(clock)
        self.failure: Exception | None = None
        self.member_log = MemberLog(group, settings.name, clock, lambda: self._mailbox.put(_FLUSH))
        self.callbacks = Callbacks(clock, listeners, self.member_log.about)
        self.stepped = Subscribers()
        self.forked = False
        self._etcd = etcd
        self._keys = keys
        self._logger: threading.Thread | None = None
        self._lease_renewal = lease_renewal
        self._mailbox: Mailbox[_Message] = clock.mailbox()
        self.ticks_answered = 0
        self._last_waits = LastWaits(self.table, self.lock, clock)
        self._stepper = Stepper(self.node, self.lock, clock, self.callbacks)
        self._group_watch = GroupWatch(etcd, keys, request_threads, clock, self.post)
        self._requests = Requests(
            etcd, keys, settings.name, request_threads, read_threads, clock, self._answered
        )
        self._thread = threading.Thread(target=self._run, name=f"rink-engine-{group}", daemon=True)
        _engines.add(self)

    def start(self) -> None:
        """Start the threads. The member then joins the group."""
        self.callbacks.start()
        self._thread.start()

    def abandon(self) -> None:
        """End the engine if its thread could not be started, so nobody waits."""
        if self._thread.ident is None:
            self.callbacks.close()
            self.left.set()
            self._end_join()

    def post(self, event: MemberEvent) -> None:
        """Post an event to the engine."""
        self._mailbox.put(event)

    def _answered(self, event: MemberEvent) -> None:
        """Take the answer to a request.

        A record may let renewals count (R11). `prove` runs on this thread, so it waits for no step.
        """
        if isinstance(event, ev.RecordRead):
            with self.lock:
                effects, is_done = self.node.prove(self.clock.now(), event)
            self._carry_out(effects)
            event = _NUDGED if is_done else event
        self.post(event)

    def drop(self, handle: Handle) -> None:
        """Release a handle by message, without a lock, for finalizers."""
        self._mailbox.put(handle)

    def stop(self) -> None:
        """Lose every role and end the thread, without leaving the group.

        The lease runs out by itself. The caller's thread signals the losses, because the engine's
        thread may hang, and the deadline is not watched after the lease renewal is closed.
        """
        if not self.left.is_set():
            self._give_everything_up(STOPPED)
        self._mailbox.put(_Stop())

    def report_leaving(self) -> None:
        """Log what a slow leave is waiting for."""
        with self.lock:
            drains = sorted(hold.role for hold in self.table.draining)
            doing, state = self.node.living.doing(self.clock.now()), self.node.living.state
        roles = f": {some([repr(role) for role in drains])}" if drains else ""
        level = logging.INFO if state is Life.OFFERING else logging.WARNING
        who = f"group {self.group!r}: member {self.node.name!r}"
        text = f"{who} is still {doing or state.value}{roles}"
        log.log(level, "%s", text, extra=self.member_log.about)

    def nudge(self) -> None:
        """Request a step, after a change of the state under the lock."""
        self._mailbox.put(_NUDGED)

    def refuse_own_thread(self, what: str) -> None:
        """Raise if a blocking call would wait for its own thread."""
        self.refuse_interrupted(what)
        if self.callbacks.is_here() or threading.current_thread() is self._thread:
            raise WrongThreadError(
                f"{what} blocks and was called from a callback of group {self.group!r}: it would "
                "wait for itself. Call it on a thread of your own"
            )

    def refuse_interrupted(self, what: str) -> None:
        """Raise if a signal handler interrupted another call of the group.

        The handler would find the state of that call half changed, or wait for the call.
        """
        if self.is_interrupted():
            raise WrongThreadError(
                f"{what}: a signal handler called it in the middle of another call of group "
                f"{self.group!r}. In a handler, set an event or raise SystemExit, and leave there"
            )

    # ── for the session's thread (rink.engine.lease_renewal.LeaseOwner) ──────────────────────

    @property
    def deadline(self) -> float:
        """Return the time at which every role is lost without another renewal."""
        return self.node.member_lease.deadline

    def tick(self) -> None:
        """Request a sign of life from the engine."""
        self._mailbox.put(_Tick())

    def renewed(self, lease: int, sent_at: float, call: int) -> None:
        """Take an answered keepalive, and move the deadline if it counts."""
        with self.lock:
            effects, must_step = self.node.renew(self.clock.now(), lease, sent_at, call)
        self._carry_out(effects)
        if must_step or effects:
            self.nudge()

    @property
    def trouble(self) -> str:
        """Return why answered keepalives do not count, or ""."""
        return self.node.renewals.trouble

    @property
    def overdue_at(self) -> float:
        """Return the time at which to report that the lease is not renewed."""
        return self.node.outage.due_at(self.node.member_lease)

    def overdue(self, words: str) -> None:
        """Report that the lease is not renewed, once per outage."""
        with self.lock:
            must_step = self.node.overdue(self.clock.now(), words)
        if must_step:
            self.nudge()

    def log_pending(self) -> None:
        """Write the pending log lines of an engine whose thread hangs.

        A user's scheme or a log handler may block that thread. A log handler may block the next
        thread, too. So this uses a thread of its own, and neither the session's thread nor one of
        the request threads.
        """
        if self.node.owes_reports and (self._logger is None or not self._logger.is_alive()):
            name = f"rink-log-{self.group}"
            self._logger = threading.Thread(target=self._log_pending, name=name, daemon=True)
            with contextlib.suppress(RuntimeError):  # no thread can be started now; retried later
                self._logger.start()

    def _log_pending(self) -> None:
        with self.lock:
            reports = self.node.out.take()  # between two steps, only reports are pending
        self._carry_out(reports)
        self.member_log.flush()

    def ended(self, lease: int) -> None:
        """Report that etcd has ended the lease."""
        self.post(ev.LeaseEnded(lease))

    def expire(self) -> None:
        """Lose every role if the deadline has passed."""
        with self.lock:
            effects = self.node.expire(self.clock.now())
            must_step = self.node.owes_reports
        self._carry_out(effects)
        if must_step or effects:
            self.nudge()

    # ── the thread ───────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            self._group_watch.start()
            self._advance([])
            while not self.left.is_set():
                messages = self._mailbox.take(self._wake_at())
                began_at = self.clock.now()
                self._turn(messages)
                self._rest(self.clock.now() - began_at)
        except Exception as error:
            text = "the engine of group %r failed"
            log.critical(text, self.group, exc_info=True, extra=self.member_log.about)
            self._fail(error)
        finally:
            self._group_watch.close()
            self.left.set()
            self.member_log.flush()
            self._end_join()
            self._last_waits.end()
            self.callbacks.close()
            self.stepped.notify()
            self._mailbox.close()  # last: virtual time waits for each thread that reads a mailbox

    def _rest(self, seconds: float) -> None:
        """Rest between turns while very many roles drain.

        The rest is longer than the last turn took. It ends early once no role drains. Each release
        requests a turn, and each turn goes through all draining roles. User code shares the
        interpreter. Without a rest it would make a few releases between two turns; with a rest it
        makes thousands.
        """
        if seconds < REST_THRESHOLD_S:
            return
        rest = min(REST_PER_TURN * seconds, MAX_REST_S)
        until, never = self.clock.now() + rest, self.clock.event()
        while self.clock.now() < until:
            with self.lock:
                if not self.table.drains:
                    return
            self.clock.wait(never, REST_THRESHOLD_S)

    def _end_join(self) -> None:
        if not self.joined.is_set():
            text = f"group {self.group!r} was left before it had been joined"
            self.join_error = self.join_error or ClosedError(text)
            self.joined.set()

    def _wake_at(self) -> float | None:
        wakes = (self.node.wake_at, self._group_watch.wake_at, self._last_waits.end_at)
        return min([at for at in wakes if at is not None], default=None)

    def _turn(self, messages: list[_Message]) -> None:
        # Invariant: a turn makes at most one step, with all events in the order of their posting.
        # A nudge and a release have no data for the step, which reads the state under the lock. So
        # one nudge stands for all of them. The order of the rest matters:
        # - `_Stop` ends the turn before any step, so nothing is granted after the losses.
        # - The group watch learns of a failed list before the step. So a list that the step
        #   requests waits for the restart and its pause, and is not tried at once.
        # - The log is written last, after all effects, because a log handler may block.
        events: list[MemberEvent] = []
        is_nudged = False
        for message in messages:
            match message:
                case _Tick():
                    self.ticks_answered += 1
                case ev.Nudged():
                    is_nudged = True
                case _Flush():
                    pass  # the end of each turn flushes
                case Handle():
                    with self.lock:
                        self._release(message)
                    is_nudged = True
                case _Stop():
                    self._give_everything_up(STOPPED)  # also roles that were granted after stop()
                    self.left.set()
                    return
                case _:
                    events.append(message)
        if is_nudged:
            events.append(_NUDGED)
        for event in events:
            if isinstance(event, ev.HistoryChanged):
                self._group_watch.history_told()
            if isinstance(event, ev.ListFailed | ev.HistoryChanged):
                self._group_watch.restart_soon()
        if self._group_watch.wake_at is not None and self.clock.now() >= self._group_watch.wake_at:
            self._group_watch.start()
        wake_at = self.node.wake_at
        if events or (wake_at is not None and self.clock.now() >= wake_at):
            self._advance(events)
        self._last_waits.end_if_due()
        self.member_log.flush()

    def release(self, handle: Handle) -> None:
        """Release a handle, on a user's thread."""
        with self.lock:
            must_step = self._release(handle)
        if must_step:
            self.nudge()

    def _release(self, handle: Handle) -> bool:
        """Release a handle under the lock. Return whether a step must follow."""
        hold = handle.hold
        is_released = hold is None or handle not in hold.handles
        must_step = self.table.release(handle)
        if hold is not None and not hold.handles and not is_released:
            self.member_log.released(hold)
        return must_step

    def _advance(self, events: list[MemberEvent]) -> None:
        """Step the core twice: for this member first, then for its group."""
        # Invariant: each effect of the own step is carried out before the group step is computed.
        # Other threads and members wait for these effects: grants, losses, the record. The group
        # step takes the lock anew and reads the state again, so it depends on nothing of the own
        # step except `unplaced`. Its work may therefore be late, but never wrong. Roles that were
        # left out request the next step themselves. Subscribers are notified last, so they see the
        # state after both steps.
        step = self._stepper.step_own(events)
        self._carry_out(step.effects)
        for hold in step.granted:
            self.member_log.granted(hold)
        if step.granted:
            self.clock.give_way(GRANT_PAUSE_S)
        if self._gave_back(step.effects):
            # The thread that sends the revocation needs the interpreter now. Nothing waits for the
            # group step: the member no longer coordinates, and its group no longer concerns it.
            self._group_watch.mute()
            self.clock.give_way(LEAVE_PAUSE_S)
        group = self._stepper.step_group(step.unplaced)
        self._carry_out(group)
        if step.unplaced:
            self.nudge()  # the next step places these roles
        if self.node.living.is_ending:
            self._last_waits.schedule()
        if step.changed or group:
            self.stepped.notify()

    def _gave_back(self, effects: list[Effect]) -> bool:
        """Return whether these effects revoke the lease because the member leaves."""
        return not self.node.living.wants_record and any(
            isinstance(effect, do.RevokeLease) for effect in effects
        )

    def _fail(self, error: Exception) -> None:
        """Give up every role and the lease after an error of the engine."""
        self.failure = error
        self.join_error = error
        self._give_everything_up(f"the engine failed: {error!r}")

    def _give_everything_up(self, because: str) -> None:
        """Lose every role, and stop renewing the lease."""
        with self.lock:
            self._lease_renewal.drop(self.node.member_lease.id)
            self.node.out.last_error = because
            self.table.deadline = float("-inf")
            self.table.gate = closed(because)
            for hold in list(self.table.held.values()):
                self.table.lose(hold, self.clock.now(), because)
            holds = list(self.table.lost.values())  # also losses that are not signalled yet
        for hold in holds:
            self._carry_out([do.Lose(hold)])

    def _carry_out(self, effects: list[Effect]) -> None:
        # Invariant: the lock is not held here, since signals and callbacks run other code. Besides
        # the engine's thread, the session's thread, a request thread and a caller of stop() may be
        # here at once. Each case is safe for that: signals need no lock, and the other objects have
        # locks of their own. Effects keep the core's order. RevokeLease drops the lease from the
        # renewal before the revocation is sent, so no keepalive follows it.
        for effect in effects:
            match effect:
                case do.Lose(hold=hold):
                    self._signal_loss(hold)
                case do.Grant(handle=handle) | do.Refuse(handle=handle):
                    handle.signal.set()
                case do.KeepLease(lease=lease, ttl=ttl):
                    self._lease_renewal.keep(self, lease, ttl)
                case do.DropLease(lease=lease):
                    self._lease_renewal.drop(lease)
                case do.ListGroup(wanted=wanted):
                    self._group_watch.list_anew(wanted)
                case do.Joined():
                    self._log_join()
                    self.joined.set()
                case do.JoinFailed(error=error):
                    self.join_error = error
                    self.joined.set()
                case do.Left():
                    self.member_log.flush()
                    self.member_log.write(logging.INFO, f"member {self.node.name!r} has left")
                    self.left.set()
                case do.CoordinatorChanged(coordinates=coordinates):
                    self.callbacks.coordinates(coordinates)
                case do.RankChanged(rank=rank):
                    self.callbacks.ranked(rank)
                case do.Report(level=level, text=text, version=version, role=role):
                    self.member_log.write(int(level), text, version=version, role=role)
                case _:
                    if isinstance(effect, do.RevokeLease):
                        self._lease_renewal.drop(effect.lease)
                    self._requests.carry_out(effect)

    def _log_join(self) -> None:
        name, ttl = self.node.name, self.node.member_lease.granted_ttl
        text = f"joined as {name!r}, by etcd at {self._etcd.endpoint}, with a ttl of {ttl} s"
        self.member_log.write(logging.INFO, text)

    def _signal_loss(self, hold: Hold) -> None:
        with self.lock:
            signals = [handle.lost for handle in hold.handles if handle.lost is not None]
        self.member_log.lost(hold)  # first: a thread that wakes may note its release at once
        for signal in signals:
            signal.set()
        self.callbacks.lost(hold)


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def mark_forked() -> None:
    """Mark every engine of the parent process in a forked child.

    A marked engine refuses each call. Nothing else of the engines is touched.
    """
    step_queue.reset()
    for engine in list(_engines):
        engine.forked = True
