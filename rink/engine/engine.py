"""One engine per joined Rink: the thread on which its member lives.

The engine reads its mailbox, steps the core with everything that lay there, and carries out what
the core wants done. All shared state is the core's, under one short lock:

* the stepper places roles *before* it takes the lock, so a scheme, which may be a user's function,
  is never called under it; then it steps and publishes in one hold of the lock (R2). Once the
  effects of that are carried out, it takes the lock again for what the member does for its group.
* callers register handles under the same lock, against the gate they computed with.
* the session's thread takes it to move the deadline, and to lose every role when that has passed.

What a step wants done is done after the lock is released: signals are set, requests go to `calls`,
user callbacks to their worker.
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
from rink.core.events import Event
from rink.core.holds import Handle, Hold
from rink.core.keys import Keys
from rink.core.member import MemberSettings, Node
from rink.core.own_record import some
from rink.core.state_tables import Life
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
from rink.engine.stepper import Stepper, begin_turns_anew
from rink.errors import ClosedError, WrongThreadError
from rink.etcd.api import Etcd

log = logging.getLogger("rink")

_LEVELS = {
    do.Level.INFO: logging.INFO,
    do.Level.WARNING: logging.WARNING,
    do.Level.ERROR: logging.ERROR,
}


RESTS_FROM_S = 0.002
REST_PER_TURN = 3.0
LONGEST_REST_S = 0.1
"""Beside a TTL of 2 s, the shortest, which is renewed every third of a second."""

GIVE_WAY_S = 0.000_1
GIVE_WAY_LEFT_S = 0.003
"""Seconds to sleep after a grant, and after a leave, so that other threads and processes run first.

A thread that is woken gets the interpreter only when the engine's thread sleeps. A machine with few
cores has one free for the new owner only when the old owner rests.
"""


class _Tick:
    """Asks for a sign of life."""


class _Stop:
    """Ends the thread at once, whatever state the member is in."""


class _Flush:
    """Ask for what was noted to be written to the log."""


_Message = Event | Handle | _Tick | _Stop | _Flush

_FLUSH = _Flush()

_NUDGED = ev.Nudged()

STOPPED = "the member was stopped before it had left"


class Engine:
    """Runs one member. Everything public here may be called from any thread."""

    def __init__(
        self,
        etcd: Etcd,
        keys: Keys,
        settings: MemberSettings,
        *,
        clock: Clock,
        calls: RequestThreads,
        reads: RequestThreads,
        lessor: LeaseRenewal,
        listeners: Listeners,
        group: str,
    ) -> None:
        self.node = Node(settings)
        self.table = self.node.table
        self.lock = threading.RLock()
        # Whether this thread holds the lock already: a signal handler runs in the midst of a call.
        self.is_interrupted = owns(self.lock)
        self.clock = clock
        self.group = group
        self.joined = Signal(clock)
        self.join_error: Exception | None = None
        self.left = Signal(clock)
        self.failure: Exception | None = None
        self.journal = MemberLog(group, settings.name, clock, lambda: self._mailbox.put(_FLUSH))
        self.callbacks = Callbacks(clock, listeners, self.journal.about)
        self.stepped = Subscribers()
        self.forked = False
        self._etcd = etcd
        self._keys = keys
        self._logger: threading.Thread | None = None
        self._lessor = lessor
        self._mailbox: Mailbox[_Message] = clock.mailbox()
        self._ticks_answered = 0
        self._last_waits = LastWaits(self.table, self.lock, clock)
        self._stepper = Stepper(self.node, self.lock, clock, self.callbacks)
        self._follower = GroupWatch(etcd, keys, calls, clock, self.post)
        self._requests = Requests(etcd, keys, settings.name, calls, reads, clock, self._answered)
        self._thread = threading.Thread(target=self._run, name=f"rink-engine-{group}", daemon=True)
        _engines.add(self)

    def start(self) -> None:
        """Start the threads; the member joins."""
        self.callbacks.start()
        self._thread.start()

    def abandon(self) -> None:
        """End the engine where its thread could not be started.

        Otherwise a caller would wait for ever.
        """
        if self._thread.ident is None:
            self.callbacks.close()
            self.left.set()
            self._end_join()

    def post(self, event: Event) -> None:
        """Post an event to the engine."""
        self._mailbox.put(event)

    def _answered(self, event: Event) -> None:
        """Take the answer to a request; what keeps the lease alive does not wait for a step."""
        if isinstance(event, ev.RecordRead):
            with self.lock:
                effects, is_done = self.node.prove(self.clock.now(), event)
            self._carry_out(effects)
            event = _NUDGED if is_done else event
        self.post(event)

    def drop(self, handle: Handle) -> None:
        """Release a handle by message.

        Use this where nothing may be locked, such as in a finalizer.
        """
        self._mailbox.put(handle)

    def stop(self) -> None:
        """Lose every role and end the thread, without leaving the group.

        The lease runs out by itself. The losses are told on the caller's thread: the engine's may
        hang, and nobody watches the deadline once the lessor is closed.
        """
        if not self.left.is_set():
            self._give_everything_up(STOPPED)
        self._mailbox.put(_Stop())

    def report_leaving(self) -> None:
        """Log what a leave that takes long is waiting for."""
        with self.lock:
            drains = sorted(hold.role for hold in self.table.draining)
            doing, state = self.node.living.doing(self.clock.now()), self.node.living.state
        roles = f": {some([repr(role) for role in drains])}" if drains else ""
        level = logging.INFO if state is Life.OFFERING else logging.WARNING
        who = f"group {self.group!r}: member {self.node.name!r}"
        text = f"{who} is still {doing or state.value}{roles}"
        log.log(level, "%s", text, extra=self.journal.about)

    def nudge(self) -> None:
        """Wake the engine, so that it looks again at what lies under the lock."""
        self._mailbox.put(_NUDGED)

    def refuse_own_thread(self, what: str) -> None:
        """Raise where a blocking call would wait for its own thread."""
        self.refuse_interrupted(what)
        if self.callbacks.is_here() or threading.current_thread() is self._thread:
            raise WrongThreadError(
                f"{what} blocks and was called from a callback of group {self.group!r}: it would "
                "wait for itself. Do it on a thread of your own"
            )

    def refuse_interrupted(self, what: str) -> None:
        """Raise where a signal handler interrupted another call of the group.

        The handler would find that call half done, or wait for it.
        """
        if self.is_interrupted():
            raise WrongThreadError(
                f"{what}: a signal handler called it in the midst of another call of group "
                f"{self.group!r}. In a handler set an event, or raise SystemExit, and leave there"
            )

    # ── what the session's thread uses (rink.engine.lease_renewal.Tenant) ───────────────────────────

    @property
    def deadline(self) -> float:
        """Return when every role is lost if the lease is not renewed before."""
        return self.node.member_lease.deadline

    @property
    def ticks_answered(self) -> int:
        """Return how many ticks the engine has answered."""
        return self._ticks_answered

    def tick(self) -> None:
        """Ask the engine for a sign of life."""
        self._mailbox.put(_Tick())

    def renewed(self, lease: int, sent_at: float, call: int) -> None:
        """Take an answered keepalive, and move the deadline if it counts."""
        with self.lock:
            effects, must_step = self.node.renew(self.clock.now(), lease, sent_at, call)
        self._carry_out(effects)
        if must_step or effects:
            self.post(ev.Nudged())

    @property
    def trouble(self) -> str:
        """Return why keepalives that are answered do not count, or ""."""
        return self.node.renewals.trouble

    @property
    def overdue_at(self) -> float:
        """Return when to report that the lease is not renewed."""
        return self.node.outage.due_at(self.node.member_lease)

    def overdue(self, words: str) -> None:
        """Report that the lease is not renewed, once per outage."""
        with self.lock:
            must_step = self.node.overdue(self.clock.now(), words)
        if must_step:
            self.post(ev.Nudged())

    def log_pending(self) -> None:
        """Log what the engine's thread has yet to log, while that thread hangs.

        A user's scheme or a log handler may block it. A handler may block the next thread, too, so
        neither the session's thread nor one for requests does it.
        """
        if self.node.owes_reports and (self._logger is None or not self._logger.is_alive()):
            name = f"rink-log-{self.group}"
            self._logger = threading.Thread(target=self._log_pending, name=name, daemon=True)
            with contextlib.suppress(RuntimeError):  # no thread can be started now: try again
                self._logger.start()

    def _log_pending(self) -> None:
        with self.lock:
            reports = self.node.out.take()  # between two steps nothing else is pending
        self._carry_out(reports)
        self.journal.flush()

    def ended(self, lease: int) -> None:
        """Report that etcd does not know the lease any more."""
        self.post(ev.LeaseEnded(lease))

    def expire(self) -> None:
        """Lose every role if the deadline has passed."""
        with self.lock:
            effects = self.node.expire(self.clock.now())
            must_step = self.node.owes_reports
        self._carry_out(effects)
        if must_step or effects:
            self.post(ev.Nudged())

    # ── the thread ───────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            self._follower.start()
            self._advance([])
            while not self.left.is_set():
                messages = self._mailbox.take(self._wake_at())
                began_at = self.clock.now()
                self._turn(messages)
                self._rest(self.clock.now() - began_at)
        except Exception as error:
            text = "the engine of group %r failed"
            log.critical(text, self.group, exc_info=True, extra=self.journal.about)
            self._fail(error)
        finally:
            self._follower.close()
            self.left.set()
            self.journal.flush()
            self._end_join()
            self._last_waits.end()
            self.callbacks.close()
            self.stepped.tell()
            self._mailbox.close()  # last: virtual time waits for whoever reads a mailbox

    def _rest(self, seconds: float) -> None:
        """Rest between turns while very many roles drain.

        The rest is longer than the last turn took. It ends early once no role drains. Each release
        asks for a turn, and each turn goes through all that drains. User code shares the
        interpreter: without a rest it would get to a few releases between two turns, and with one
        it gets to thousands.
        """
        if seconds < RESTS_FROM_S:
            return
        rest = min(REST_PER_TURN * seconds, LONGEST_REST_S)
        until, never = self.clock.now() + rest, self.clock.event()
        while self.clock.now() < until:
            with self.lock:
                if not self.table.drains:
                    return
            self.clock.wait(never, RESTS_FROM_S)

    def _end_join(self) -> None:
        if not self.joined.is_set():
            text = f"group {self.group!r} was left before it had been joined"
            self.join_error = self.join_error or ClosedError(text)
            self.joined.set()

    def _wake_at(self) -> float | None:
        wakes = (self.node.wake_at, self._follower.wake_at, self._last_waits.end_at)
        return min([at for at in wakes if at is not None], default=None)

    def _turn(self, messages: list[_Message]) -> None:
        events: list[Event] = []
        is_nudged = False
        for message in messages:
            match message:
                case _Tick():
                    self._ticks_answered += 1
                case ev.Nudged():
                    is_nudged = True  # by a thousand releases at once, say: one look does
                case _Flush():
                    pass  # at the end of this turn
                case Handle():
                    with self.lock:
                        self._release(message)
                    is_nudged = True
                case _Stop():
                    self._give_everything_up(STOPPED)  # what was granted since, too
                    self.left.set()
                    return
                case _:
                    events.append(message)
        if is_nudged:
            events.append(_NUDGED)
        for event in events:
            if isinstance(event, ev.HistoryChanged):
                self._follower.history_told()
            if isinstance(event, ev.ListFailed | ev.HistoryChanged):
                self._follower.restart_soon()
        if self._follower.wake_at is not None and self.clock.now() >= self._follower.wake_at:
            self._follower.start()
        wake_at = self.node.wake_at
        if events or (wake_at is not None and self.clock.now() >= wake_at):
            self._advance(events)
        self._last_waits.end_if_due()
        self.journal.flush()

    def release(self, handle: Handle) -> None:
        """Release a handle, on a user's thread."""
        with self.lock:
            must_step = self._release(handle)
        if must_step:
            self.nudge()

    def _release(self, handle: Handle) -> bool:
        """Release a handle under the lock; return whether a step must follow."""
        hold = handle.hold
        is_released = hold is None or handle not in hold.handles
        must_step = self.table.release(handle)
        if hold is not None and not hold.handles and not is_released:
            self.journal.released(hold)
        return must_step

    def _advance(self, events: list[Event]) -> None:
        """Step the core: what somebody waits for, then what the member does for its group."""
        step = self._stepper.step_own(events)
        self._carry_out(step.effects)
        for hold in step.granted:
            self.journal.granted(hold)
        if step.granted:
            self.clock.give_way(GIVE_WAY_S)
        if self._gave_back(step.effects):
            # The thread that sends the revocation needs the interpreter now. Nothing waits for the
            # second half: the member coordinates no more, and nothing of its group concerns it.
            self._follower.mute()
            self.clock.give_way(GIVE_WAY_LEFT_S)
        group = self._stepper.step_group(step.unplaced)
        self._carry_out(group)
        if step.unplaced:
            self.nudge()  # they are placed and looked at next
        if self.node.living.is_ending:
            self._last_waits.schedule()
        if step.changed or group:
            self.stepped.tell()

    def _gave_back(self, effects: list[Effect]) -> bool:
        """Return whether these effects give the lease back because the member leaves."""
        return not self.node.living.wants_record and any(
            isinstance(one, do.RevokeLease) for one in effects
        )

    def _fail(self, error: Exception) -> None:
        """Give everything up: the engine cannot go on.

        Its lease is renewed no more.
        """
        self.failure = error
        self.join_error = error
        self._give_everything_up(f"the engine failed: {error!r}")

    def _give_everything_up(self, because: str) -> None:
        """Lose every role, and have the lease renewed no more."""
        with self.lock:
            self._lessor.drop(self.node.member_lease.id)
            self.node.out.last_error = because
            self.table.deadline = float("-inf")
            self.table.gate = closed(because)
            for hold in list(self.table.held.values()):
                self.table.lose(hold, self.clock.now(), because)
            holds = list(self.table.lost.values())  # those too whose loss was not told yet
        for hold in holds:
            self._carry_out([do.Lose(hold)])

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case do.Lose(hold=hold):
                    self._tell_of_loss(hold)
                case do.Grant(handle=handle) | do.Refuse(handle=handle):
                    handle.signal.set()
                case do.KeepLease(lease=lease, ttl=ttl):
                    self._lessor.keep(self, lease, ttl)
                case do.DropLease(lease=lease):
                    self._lessor.drop(lease)
                case do.ListGroup(wanted=wanted):
                    self._follower.list_anew(wanted)
                case do.Joined():
                    self._tell_of_join()
                    self.joined.set()
                case do.JoinFailed(error=error):
                    self.join_error = error
                    self.joined.set()
                case do.Left():
                    self.journal.flush()
                    self.journal.write(logging.INFO, f"member {self.node.name!r} has left")
                    self.left.set()
                case do.CoordinatorChanged(coordinates=coordinates):
                    self.callbacks.coordinates(coordinates)
                case do.RankChanged(rank=rank):
                    self.callbacks.ranked(rank)
                case do.Report(level=level, text=text, version=version, role=role):
                    self.journal.write(_LEVELS[level], text, version=version, role=role)
                case _:
                    if isinstance(effect, do.RevokeLease):
                        self._lessor.drop(effect.lease)
                    self._requests.carry_out(effect)

    def _tell_of_join(self) -> None:
        name, ttl = self.node.name, self.node.member_lease.granted_ttl
        text = f"joined as {name!r}, by etcd at {self._etcd.endpoint}, with a ttl of {ttl} s"
        self.journal.write(logging.INFO, text)

    def _tell_of_loss(self, hold: Hold) -> None:
        with self.lock:
            signals = [handle.lost for handle in hold.handles if handle.lost is not None]
        for signal in signals:
            signal.set()
        self.callbacks.lost(hold)
        self.journal.lost(hold)


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def mark_forked() -> None:
    """Make every engine of the parent refuse, in a forked child.

    Nothing of the engines is touched.
    """
    begin_turns_anew()
    for engine in list(_engines):
        engine.forked = True
