"""Hold the role, and run the command while it is held.

The supervisor keeps these rules:

* The role is released only after a run is over, when no process of the command is left.
* Every start of the command has a greater token than the start before.
* Once the exit status of `rink run` is known, a signal only shortens the leave.
* Whenever `rink run` ends by itself, it leaves the group, so that no standby waits for a lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from rink import _member_internals, aio
from rink.errors import RinkError, RoleLost
from rink.run.command_env import RoleFile, folders
from rink.run.command_guard import now_ms, signal_name
from rink.run.command_run import CommandOutcome, CommandRun, Host
from rink.run.exit_codes import FAILED, LOST, NOT_GRANTED, ExitStatus
from rink.run.guard_link import Guarded, Reaper
from rink.run.membership import RunMember
from rink.run.run_settings import RunSettings
from rink.run.signal_stages import ENDING, LEAVING, PASSED_ON, Deed, Stages
from rink.run.slot_duty import SlotDuty

log = logging.getLogger("rink.run")

FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
"""Longest pause before `--restart` starts the command again.

After a run that took at least as long, the pauses begin anew.
"""

STOP_TIMEOUT_S = 0.2


class Restarts:
    """Choose the pauses of `--restart`, which double up to a minute."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE_S

    def pause_after(self, ran_for: float) -> float:
        """Return the seconds to wait after a run of this length."""
        if ran_for >= MAX_PAUSE_S:
            self._next = FIRST_PAUSE_S
        pause, self._next = self._next, min(2 * self._next, MAX_PAUSE_S)
        return pause


class CommandSupervisor:
    """Run a command under a role, in the event loop of the main thread.

    `beside` returns a coroutine for the same loop, which serves probes and metrics.
    """

    def __init__(
        self, settings: RunSettings, session: aio.Session, beside: Beside | None = None
    ) -> None:
        self._settings = settings
        self._beside = beside
        self._ended_runs = 0
        self._session = session
        self._stages = Stages(waits=settings.handover_wait > 0)
        self._ignored = [sig for sig in _HANDLED if signal.getsignal(sig) is signal.SIG_IGN]
        self._member = RunMember(settings, session)
        self._shown: asyncio.Task[None] | None = None
        self._current: CommandRun | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._restarts = Restarts()
        self._job_is_stopped = False
        self._slot: SlotDuty | None = None
        if settings.slot is not None:
            self._slot = SlotDuty(session.etcd, session.prefix, settings)
        self._token = 0  # the token of the last start; the next start has a greater token
        self._outcome: ExitStatus | None = None  # the exit status, once it is known
        self._hurried = asyncio.Event()  # cuts the leave short

    async def run(self) -> ExitStatus:
        """Run the command, and return the exit status of `rink run`."""
        loop = asyncio.get_running_loop()
        reaper = Reaper()
        loop.add_signal_handler(signal.SIGCHLD, reaper.reap)
        loop.add_signal_handler(signal.SIGCONT, self._continued)
        for number in _HANDLED:
            if number not in self._ignored or number in LEAVING:
                loop.add_signal_handler(number, self._signalled, number)
        # The command's group is in the foreground. A terminal may stop other groups that write.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        file = RoleFile(folders(os.environ))
        if not file.is_possible:
            log.warning("RINK_FILE is not set: no tmpfs at XDG_RUNTIME_DIR or /dev/shm")
        self._host = Host(
            settings=self._settings,
            session=self._session,
            member=self._member,
            reaper=reaper,
            file=file,
            ignored=self._ignored,
            on_stopped=self._stopped,
            loss_signal=self._loss_signal,
        )
        if self._beside is not None:
            self._shown = loop.create_task(self._beside(self))
            self._shown.add_done_callback(_report_end)
        self._work = asyncio.ensure_future(self._hold())
        try:
            return await self._work
        except asyncio.CancelledError:
            return await self._end(ExitStatus(signal=self._stages.last), is_hurried=True)
        except Exception as error:
            _report_failure(error)
            return await self._end(self._outcome or ExitStatus(FAILED))
        finally:
            file.clear()
            if self._shown is not None:
                self._shown.cancel()

    # ── the state ────────────────────────────────────────────────────────────────────────────

    @property
    def is_joined(self) -> bool:
        """Return whether the group was joined."""
        return self._member.is_joined

    @property
    def is_running(self) -> bool:
        """Return whether the command runs."""
        return self._guarded is not None

    @property
    def _guarded(self) -> Guarded | None:
        return None if self._current is None else self._current.guarded

    @property
    def starts(self) -> int:
        """Return the number of starts of the command."""
        return self._ended_runs + (self._current is not None and self._current.is_started)

    @property
    def remaining_s(self) -> float:
        """Return the seconds until the session's deadline, or 0."""
        return max(0.0, (self._member.lease_and_end()[1] - now_ms()) / 1000)

    def why_not_ready(self) -> str:
        """Return why this host could not take over the role, or "".

        A standby is ready. Otherwise a rollout and the standby would wait for each other.
        """
        if not self.is_joined:
            return f"waits to join the group: {self._member.why}"
        if self._stages.is_leaving:
            return "leaves the group"
        return "" if self.remaining_s else "the session is lost"

    # ── signals ──────────────────────────────────────────────────────────────────────────────

    def _signalled(self, number: int) -> None:
        name = signal_name(number)
        at = asyncio.get_running_loop().time()
        deed = self._stages.take(number, at, is_running=self.is_running)
        guarded = self._guarded
        if deed is Deed.END and self._outcome is None:
            self._work.cancel()
            log.info("%s: `rink run` ends, since no command runs", name)
        elif deed is Deed.END:
            self._hurried.set()
            text = "%s: `rink run` ends with %s, and cuts its leave short"
            log.info(text, name, self._outcome)
        if guarded is None:
            return
        if deed is Deed.PASS_ON:
            guarded.signal(number)
        elif deed is Deed.LEAVE:
            self._leaving = asyncio.ensure_future(self._member.rink.leave(wait=True))
            wait = self._settings.handover_wait
            waits = f"waits up to {wait:g} s for a successor; " if wait else ""
            then = "ends the wait" if wait else "kills the command"
            log.info("%s: leaving; %sa second signal %s", name, waits, then)
        elif deed is Deed.HURRY:
            leave = self._member.rink.leave(wait=True, now=True)
            self._leaving = asyncio.ensure_future(leave)
            text = "%s: `rink run` waits for no successor; another signal kills the command"
            log.info(text, name)
        elif deed is Deed.KILL:
            guarded.kill()
            log.warning("%s: the command is killed", name)

    def _stopped(self, number: int) -> None:
        """Stop this process, too, so that the shell takes its terminal back."""
        guarded = self._guarded
        if guarded is None or not _has_terminal():
            return
        left = (guarded.until - self._host.limits.lead - now_ms()) / 1000
        log.warning(
            "%s: the command is stopped. Unless it goes on, %s is lost and the command is killed "
            "within %.0f s",
            signal_name(number),
            self._settings.what,
            left,
        )
        for handler in logging.getLogger().handlers:
            handler.flush()  # the thread that writes the log stops, too
        self._job_is_stopped = True
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        # Without a shell that could continue the job, the kernel discards this signal.
        asyncio.get_running_loop().call_later(STOP_TIMEOUT_S, self._go_on)

    def _go_on(self) -> None:
        if self._job_is_stopped:
            self._continued()

    def _continued(self) -> None:
        """Continue the command, too, in the foreground if `rink run` is in it."""
        self._job_is_stopped = False
        if (guarded := self._guarded) is not None:
            guarded.resume()

    def _loss_signal(self) -> int:
        return self._stages.last if self._stages.is_leaving else signal.SIGTERM

    # ── the role ─────────────────────────────────────────────────────────────────────────────

    async def _hold(self) -> ExitStatus:
        settings = self._settings
        while True:
            try:
                role = await self._get_role()
            except TimeoutError:
                text = "%s was not granted within --wait %g: %s"
                log.error(text, settings.what, settings.wait, self._member.why)
                return await self._end(ExitStatus(NOT_GRANTED), is_hurried=True)
            if role is None:  # another member has run the slot
                return await self._end(ExitStatus(), is_hurried=True)
            try:
                outcome = await self._use(role)
            except RoleLost as error:
                log.warning("%s", error)
                outcome = ExitStatus(LOST) if settings.once else None
            finally:  # no command runs, whatever was raised
                role.release()
            if outcome is not None:
                return await self._end(outcome)

    async def _end(self, outcome: ExitStatus, *, is_hurried: bool = False) -> ExitStatus:
        """Leave the group, and return the exit status.

        A signal shortens the leave, but does not change the exit status.
        """
        self._outcome = outcome
        if is_hurried:
            self._hurried.set()
        await self._member.leave(self._hurried)
        return outcome

    async def _use(self, role: aio.Role) -> ExitStatus | None:
        """Run the command under a role, and return the exit status.

        None means to wait for the role again.
        """
        # Invariant: when this returns, no process of the command is left, so the caller may release
        # the role. It holds since each path either starts no command or has awaited `_run`, and
        # that ends only after the guard, or this process, has seen all descendants dead. A slot is
        # finished only for a run that ended by itself with a code: other runs may be repeated.
        settings = self._settings
        slot = None
        if self._slot is not None:
            member = self._member.rink
            slot = await self._slot.begin(
                role, member.name, _member_internals.create_revision_of(member)
            )
            if slot is None:
                return ExitStatus()
        run = await self._run(role)
        if run is None:
            return ExitStatus(LOST) if settings.once else None
        if self._slot is not None:
            self._slot.started()
        outcome = ExitStatus.of(run.status)
        if run.is_lost:
            if self._stages.is_leaving:
                return outcome
            if settings.once:
                return ExitStatus(LOST)
            if role.is_held:  # the guard was killed, or etcd came back just in time
                await self._pause(role, run)
            return None
        log.info("the command has ended with %s", outcome)
        if settings.restart and not self._stages.is_leaving:
            await self._pause(role, run)
            return None
        self._outcome = outcome
        if self._slot and slot and run.is_started and not outcome.signal:
            await self._slot.finish(role, slot, outcome.code)  # a signal does not end this
        return outcome

    async def _run(self, role: aio.Role) -> CommandOutcome | None:
        """Run the command once, or return None if the role ends too soon."""
        self._current = CommandRun(self._host, role)
        try:
            return await self._current.run()
        finally:
            if self._current.is_started:
                self._ended_runs += 1
                self._token = role.token
            self._current = None

    async def _pause(self, role: aio.Role, run: CommandOutcome) -> None:
        pause = self._restarts.pause_after(run.ran_for)
        log.info("the command starts again in %g s", pause)
        role.release()
        await asyncio.sleep(pause)

    async def _get_role(self) -> aio.Role | None:
        """Join and wait for the role, or return None if the slot needs no run.

        Raises:
            TimeoutError: the role was not granted within `--wait`.
        """
        async with asyncio.timeout(self._settings.wait):
            if await self._is_slot_over():
                return None
            await self._member.join()
            return await self._member.await_role(self._token, self._is_slot_over)

    async def _is_slot_over(self) -> bool:
        return self._slot is not None and await self._slot.is_over()


_HANDLED = tuple(sorted(ENDING | PASSED_ON))


def _report_end(shown: asyncio.Task[None]) -> None:
    """Log why probes are no longer answered, while the command continues."""
    if not shown.cancelled() and (error := shown.exception()) is not None:
        log.error(
            "the server of probes and metrics has failed; the command goes on", exc_info=error
        )


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

    The loop is not closed, since that would wait for threads with requests to etcd.
    """
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(CommandSupervisor(settings, session, beside).run())
    except Exception as error:
        _report_failure(error)
        return ExitStatus(FAILED)


def _report_failure(error: Exception) -> None:
    if isinstance(error, RinkError):
        log.error("%s", error)
    else:
        log.critical("`rink run` has failed", exc_info=error)
