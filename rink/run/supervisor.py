"""Hold the role, and have a guard run the command while it is held.

Rules that hold here:

* The end told to the guard is the session's deadline. No other member is granted the role before
  it, whatever happens to this process. It is moved on while the role is held, and while the command
  stops after a loss: the claim stands until the role is released.
* The role is released only when the guard has said that the command and its descendants are dead,
  or, if the guard died, when this process has killed them.
* Every start of the command has a greater token than the one before.

Deliberately absent: what kills the command. That is the guard's part, in a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from rink import aio, inside
from rink.errors import (
    ClosedError,
    EtcdAuth,
    EtcdError,
    EtcdTls,
    RoleLost,
    RoleTimeout,
)
from rink.run.exits import FAILED, LOST, NOT_FOUND, NOT_GOT, ExitStatus
from rink.run.guard import now_ms, signal_name
from rink.run.guarded import Guarded, KillTimes, Reaper
from rink.run.slot_duty import SlotDuty
from rink.run.stages import ENDING, LEAVING, PASSED_ON, Deed, Stages
from rink.run.surroundings import RoleFile, environment_of, folders

log = logging.getLogger("rink.run")

TICK_S = 1.0
"""How often the end told is moved on at least, in seconds."""

NEVER_GROWS_S = 365 * 86_400.0
"""The group stays at one rank, which has the role. So standbys wait for that rank: it goes to the one
that has waited longest as soon as the holder leaves, or its lease ends."""

LEAVE_TIMEOUT_S = 10.0
QUICK_LEAVE_S = 0.15
"""Time to leave the group after a signal while no command runs. The lease ends the rest."""

MAX_JOIN_PAUSE_S = 30.0
REPORT_INTERVAL_S = 60.0
"""How often a wait is reported."""

SLOT_INTERVAL_S = 1.0
"""How often a member that waits for the role looks whether the slot was started."""

FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
"""Pauses before `--restart` starts the command again; one that ran for longer begins anew."""

STOP_TAKES_EFFECT_S = 0.2


@attrs.frozen(kw_only=True)
class RunSettings:
    """Hold the options of `rink run`. Durations are in seconds."""

    group: str
    role: str
    command: tuple[str, ...]
    name: str | None = None
    grace: float = 10.0
    wait: float | None = None
    once: bool = False
    restart: bool = False
    handover_wait: float = 0.0
    slot: str | None = None
    retry_if_unfinished: bool = False

    @property
    def leaves_within_s(self) -> float:
        """Return the sum of all waits of a leave."""
        return self.handover_wait + 2 * LEAVE_TIMEOUT_S + self.grace


class Restarts:
    """The pauses of `--restart`. They double, up to a minute."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE_S

    def pause_after(self, ran_for: float) -> float:
        """Return the seconds to wait after a run that took so long."""
        if ran_for >= MAX_PAUSE_S:
            self._next = FIRST_PAUSE_S
        pause, self._next = self._next, min(2 * self._next, MAX_PAUSE_S)
        return pause


class NotGotError(Exception):
    """The role was not got within `--wait`."""


@attrs.define
class Run:
    """How one run of the command went.

    Attributes:
        status: as from `waitpid`.
        is_started: whether the command could be started.
        is_lost: whether it was stopped because the role was lost, or was near its end.
        ran_for: seconds.
    """

    status: int
    is_started: bool
    is_lost: bool
    ran_for: float


class CommandSupervisor:
    """Run a command under a role, in the event loop of the main thread.

    Args:
        settings: what was asked for.
        session: not joined yet.
        beside: runs beside it in the same loop, and shows how it is.

    Attributes:
        starts: how often the command was started.
    """

    def __init__(
        self, settings: RunSettings, session: aio.Session, beside: Beside | None = None
    ) -> None:
        self._settings = settings
        self._beside = beside
        self.starts = 0
        self._session = session
        self._stages = Stages(waits=settings.handover_wait > 0)
        self._limits = KillTimes.of(session.ttl, session.margin, settings.grace)
        self._role = f"role {settings.role!r} of group {settings.group!r}"
        self._ignored = [one for one in _HANDLED if signal.getsignal(one) is signal.SIG_IGN]
        self._member: aio.Rink | None = None
        self._guarded: Guarded | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._restarts = Restarts()
        self._job_is_stopped = False
        self._slot: SlotDuty | None = None
        if settings.slot is not None:
            self._slot = SlotDuty(
                session.etcd,
                session.prefix,
                group=settings.group,
                role=settings.role,
                name=settings.slot,
                retry=settings.retry_if_unfinished,
            )
        self._lease = 0  # of the last start
        self._token = 0  # of the last start: the next one has a greater token
        self._why = "nothing was asked of etcd yet"

    async def run(self) -> ExitStatus:
        """Run the command; return how `rink run` is to end."""
        loop = asyncio.get_running_loop()
        self._reaper = Reaper()
        loop.add_signal_handler(signal.SIGCHLD, self._reaper.reap)
        loop.add_signal_handler(signal.SIGCONT, self._continued)
        for number in _HANDLED:
            if number not in self._ignored or number in LEAVING:
                loop.add_signal_handler(number, self._signalled, number)
        # The command's group is in the foreground, and a terminal may stop others that write to it.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        self._file = RoleFile(folders(os.environ))
        if not self._file.path:
            log.warning("RINK_FILE is not set: no tmpfs at XDG_RUNTIME_DIR or /dev/shm")
        if self._beside is not None:
            self._shown = loop.create_task(self._beside(self))
            self._shown.add_done_callback(_report_end)
        self._work = asyncio.ensure_future(self._hold())
        try:
            return await self._work
        except asyncio.CancelledError:
            await self._leave_quickly()
            return ExitStatus(signal=self._stages.last)
        finally:
            self._file.remove()

    # ── how it is ────────────────────────────────────────────────────────────────────────────

    @property
    def is_joined(self) -> bool:
        """Return whether the group was joined."""
        return self._member is not None

    @property
    def is_running(self) -> bool:
        """Return whether the command runs."""
        return self._guarded is not None

    @property
    def remaining_s(self) -> float:
        """Return the seconds until the session's deadline, or 0."""
        return max(0.0, (self._deadline_ms() - now_ms()) / 1000) if self.is_joined else 0.0

    def why_not_ready(self) -> str:
        """Return why this host could not take the role over, or "".

        A standby is ready. Else a rollout would wait for it, and it for the rollout.
        """
        if not self.is_joined:
            return f"waits to join the group: {self._why}"
        if self._stages.is_leaving:
            return "leaves the group"
        return "" if self.remaining_s else "the session is lost"

    # ── signals ──────────────────────────────────────────────────────────────────────────────

    def _signalled(self, number: int) -> None:
        name = signal_name(number)
        at = asyncio.get_running_loop().time()
        deed = self._stages.take(number, at, is_running=self.is_running)
        guarded, member = self._guarded, self._member
        if deed is Deed.END:
            log.info("%s: ends; no command runs", name)
            self._work.cancel()
        if guarded is None or member is None:
            return
        if deed is Deed.PASS_ON:
            guarded.signal(number)
        elif deed is Deed.LEAVE:
            wait = self._settings.handover_wait
            waits = f"waits up to {wait:g} s for a successor; " if wait else ""
            then = "ends the wait" if wait else "kills the command"
            log.info("%s: leaving; %sa second signal %s", name, waits, then)
            self._leaving = asyncio.ensure_future(member.leave(wait=True))
        elif deed is Deed.HURRY:
            log.info("%s: waits for no successor; another signal kills the command", name)
            self._leaving = asyncio.ensure_future(member.leave(wait=True, now=True))
        elif deed is Deed.KILL:
            log.warning("%s: the command is killed", name)
            guarded.kill()

    def _stopped(self, number: int) -> None:
        """Stop this process too, so that the shell takes its terminal back."""
        if self._guarded is None or not _has_terminal():
            return
        left = (self._guarded.until - self._limits.lead - now_ms()) / 1000
        log.warning(
            "%s: the command is stopped. Unless it goes on, %s is lost and the command killed "
            "within %.0f s",
            signal_name(number),
            self._role,
            left,
        )
        self._job_is_stopped = True
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        # Without a shell that could continue the job, the kernel discards this signal.
        asyncio.get_running_loop().call_later(STOP_TAKES_EFFECT_S, self._go_on)

    def _go_on(self) -> None:
        if self._job_is_stopped:
            self._continued()

    def _continued(self) -> None:
        """Let the command go on too; in the foreground, if a shell has put this process there."""
        self._job_is_stopped = False
        if self._guarded is not None:
            self._guarded.resume()

    # ── the role ─────────────────────────────────────────────────────────────────────────────

    async def _hold(self) -> ExitStatus:
        """Wait for the role and run the command, as often as the settings say."""
        settings = self._settings
        while True:
            try:
                role = await self._get_role()
            except NotGotError:
                log.error(
                    "%s was not got within --wait %g: %s", self._role, settings.wait, self._why
                )
                await self._leave_quickly()
                return ExitStatus(NOT_GOT)
            if role is None:  # the slot is another member's
                await self._leave_quickly()
                return ExitStatus()
            try:
                outcome = await self._use(role)
            except asyncio.CancelledError:  # by a signal, which comes so only if no command runs
                role.release()
                raise
            except RoleLost as error:
                log.warning("%s", error)
                outcome = ExitStatus(LOST) if settings.once else None
            if outcome is not None:
                role.release()
                await self._leave()
                return outcome
            role.release()

    async def _use(self, role: aio.Role) -> ExitStatus | None:
        """Run the command under a role; return how to end, or None to wait for the role again.

        The caller releases the role: no process of the command is left.
        """
        settings = self._settings
        slot = None
        if self._slot is not None and self._member is not None:
            slot = await self._slot.begin(
                role, self._member.name, inside.create_revision_of(self._member)
            )
            if slot is None:
                return ExitStatus()
        run = await self._run(role)
        if run is None:
            return ExitStatus(LOST) if settings.once else None
        outcome = ExitStatus.of(run.status)
        if run.is_lost:
            if self._stages.is_leaving:
                return outcome
            if settings.once:
                return ExitStatus(LOST)
            if role.is_held:  # the guard was killed, or etcd came back just then
                await self._pause(role, run)
            return None
        log.info("the command has ended with %s", outcome)
        if self._slot and slot and run.is_started and not outcome.signal:
            await self._slot.finish(role, slot, outcome.code)
        if not settings.restart or self._stages.is_leaving:
            return outcome
        await self._pause(role, run)
        return None

    async def _pause(self, role: aio.Role, run: Run) -> None:
        """Wait before the command is started again."""
        pause = self._restarts.pause_after(run.ran_for)
        log.info("starts the command again in %g s", pause)
        role.release()
        await asyncio.sleep(pause)

    async def _get_role(self) -> aio.Role | None:
        """Join, and wait for the role; None if the slot need not be run any more."""
        wait = self._settings.wait
        try:
            async with asyncio.timeout(wait):
                if self._slot is not None and await self._slot.is_over():
                    return None
                member = await self._join()
                return await self._await_role(member)
        except TimeoutError as error:
            raise NotGotError from error

    async def _join(self) -> aio.Rink:
        """Join the group; retry while etcd does not answer."""
        if self._member is not None:
            return self._member
        pause, reported_at = 1.0, -math.inf
        while True:
            member = aio.Rink(
                self._session,
                self._settings.group,
                name=self._settings.name,
                scheme=("first", "jump"),
                rebalance_delay=NEVER_GROWS_S,
                initial_delay=NEVER_GROWS_S,
                leave_timeout=LEAVE_TIMEOUT_S,
                handover_wait=self._settings.handover_wait,
            )
            try:
                self._member = await member.join()
            except (EtcdAuth, EtcdTls):
                raise
            except EtcdError as error:
                self._why = str(error)
                now = asyncio.get_running_loop().time()
                if now - reported_at >= REPORT_INTERVAL_S:
                    reported_at = now
                    log.warning("waits to join group %r: %s", self._settings.group, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_JOIN_PAUSE_S)
            else:
                return self._member

    async def _await_role(self, member: aio.Rink) -> aio.Role | None:
        """Wait for the role, and report on what."""
        loop = asyncio.get_running_loop()
        report_at = loop.time() + REPORT_INTERVAL_S
        self._why = self._obstacle(member, "nobody has a rank yet")
        log.info("waits for %s as member %r: %s", self._role, member.name, self._why)
        while True:
            left = report_at - loop.time()
            timeout = left if self._settings.slot is None else min(left, SLOT_INTERVAL_S)
            try:
                return await member.await_role(
                    self._settings.role, max(timeout, 0.01), token_above=self._token
                )
            except RoleTimeout as error:
                self._why = self._obstacle(member, str(error))
            if self._slot is not None and await self._slot.is_over():
                return None
            if loop.time() >= report_at:
                report_at = loop.time() + REPORT_INTERVAL_S
                log.info("still waits for %s: %s", self._role, self._why)

    def _obstacle(self, member: aio.Rink, otherwise: str) -> str:
        """Return what a wait for the role waits on.

        Args:
            member: this process's.
            otherwise: the answer if no other member owns the role.
        """
        owner = member.owner(self._settings.role)
        if owner is None or owner == member.name:
            return otherwise
        return f"member {owner!r} owns it until it leaves, or its lease ends"

    async def _leave(self) -> None:
        """Leave the group; nothing is held any more."""
        if self._member is not None:
            await self._member.leave(now=True)
            log.info("left group %r", self._settings.group)

    async def _leave_quickly(self) -> None:
        with contextlib.suppress(TimeoutError, ClosedError):
            async with asyncio.timeout(QUICK_LEAVE_S):
                await self._leave()

    # ── the command ──────────────────────────────────────────────────────────────────────────

    async def _run(self, role: aio.Role) -> Run | None:
        """Run the command once; None if there is not enough time left to start it."""
        loop = asyncio.get_running_loop()
        lost = asyncio.ensure_future(role.lost.wait())
        try:
            while not self._is_time_left() and not lost.done():
                await asyncio.wait({lost}, timeout=0.1)  # until the lease is renewed
            if lost.done():
                return None
            started_at = loop.time()
            guarded = self._start(role)
            if guarded is None:
                return None
            self._guarded = guarded
            try:
                is_lost = await self._watch(guarded, role, lost)
            except Exception:
                guarded.stop(signal.SIGTERM)
                await guarded.ended
                raise
            status = guarded.ended.result()
            if guarded.failure is not None and guarded.failure.errno:
                code, why = guarded.failure.code, os.strerror(guarded.failure.errno)
                what = "was not found" if code == NOT_FOUND else "cannot be run"
                log.error("command %r %s: %s", self._settings.command[0], what, why)
            return Run(status, guarded.failure is None, is_lost, loop.time() - started_at)
        finally:
            self._guarded = None
            self._file.clear()
            lost.cancel()

    def _start(self, role: aio.Role) -> Guarded | None:
        """Start the command; None if the role is lost.

        The role is looked at after the session. If it is held then, the session is its own: a
        process that was stopped since the grant may have another one by now.
        """
        self._lease, until = self._tenure()
        if not role.is_held:
            return None
        self._token = role.token
        self._file.write(role.token, until)
        guarded = Guarded(self._reaper, self._stopped)
        guarded.start(
            self._settings.command,
            environment_of(
                os.environ,
                group=self._settings.group,
                role=role.name,
                rank=role.rank,
                token=role.token,
                file=self._file.path,
            ),
            until=until,
            limits=self._limits,
            role=role.name,
            ignored=self._ignored,
            file=self._file.path,
        )
        self.starts += 1
        log.info("starts %r with token %d", self._settings.command[0], role.token)
        return guarded

    async def _watch(self, guarded: Guarded, role: aio.Role, lost: asyncio.Future[Any]) -> bool:
        """Move the end on until the command has ended; return whether it was made to end."""
        tick = min(TICK_S, self._session.ttl / 12)
        is_lost = False
        while not guarded.ended.done():
            if lost.done() and not is_lost:
                is_lost = True
                self._file.clear()
                number = self._stages.last if self._stages.is_leaving else signal.SIGTERM
                log.info("%s: the command gets %s", _reason(role), signal_name(number))
                guarded.stop(number)
            self._move_end(guarded, role, is_lost=is_lost or guarded.is_late)
            if now_ms() >= guarded.until - self._limits.lead // 2:
                log.error("the guard does not kill the command: `rink run` does")
                await self._reaper.kill_all()
            await asyncio.wait(
                {guarded.ended} if is_lost else {guarded.ended, lost},
                timeout=tick,
                return_when=asyncio.FIRST_COMPLETED,
            )
        return is_lost or guarded.is_late

    def _move_end(self, guarded: Guarded, role: aio.Role, *, is_lost: bool) -> None:
        """Send the guard the deadline, if it has moved and the last end told is not over.

        The member may have a new lease, whose deadline is not of this grant: between the two
        leases, another member may have been granted the role.
        """
        lease, until = self._tenure()
        if until > guarded.until > now_ms() and lease == self._lease:
            guarded.tell(until)
            if not is_lost:
                self._file.write(role.token, until)

    def _is_time_left(self) -> bool:
        limits = self._limits
        return self._deadline_ms() - limits.lead - limits.notice > now_ms()

    def _deadline_ms(self) -> int:
        """Return the session's deadline, rounded down; 0 where there is none."""
        return self._tenure()[1]

    def _tenure(self) -> tuple[int, int]:
        """Return the live lease and its deadline in milliseconds; 0 and 0 without one."""
        assert self._member is not None
        lease, deadline = inside.tenure_of(self._member)
        return lease, math.floor(deadline * 1000)


_HANDLED = tuple(sorted(ENDING | PASSED_ON))


def _report_end(shown: asyncio.Task[None]) -> None:
    """Log why probes are not answered any more. The command goes on."""
    if not shown.cancelled() and (error := shown.exception()) is not None:
        log.error("probes and metrics have failed, and are not served any more", exc_info=error)


def _reason(role: aio.Role) -> str:
    """Return why a role is lost."""
    try:
        role.raise_if_lost()
    except RoleLost as error:
        return str(error)
    return f"role {role.name!r} is lost"


def _has_terminal() -> bool:
    with contextlib.suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC))
        return True
    return False


Beside = Callable[[CommandSupervisor], Coroutine[Any, Any, None]]


def supervise(
    settings: RunSettings, session: aio.Session, beside: Beside | None = None
) -> ExitStatus:
    """Run a command under a role to its end.

    The loop is not closed: that would wait for threads which ask etcd.
    """
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(CommandSupervisor(settings, session, beside).run())
    except Exception:
        log.critical("`rink run` has failed", exc_info=True)
        return ExitStatus(FAILED)
