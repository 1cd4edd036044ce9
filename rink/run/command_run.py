"""Run the command once, under a role that is held.

A run keeps these rules:

* The end sent to the guard is the session's deadline. No other member is granted the role before
  this end, even if this process dies. The end is moved on while the role is held, and while the
  command stops after a loss, since this member's claim lasts until the role is released.
* The run is over only when the guard has reported that the command and its descendants are dead. If
  the guard died, this process kills them, and then the run is over. Only then does the caller
  release the role.

The guard kills the command, in its own process. This module does so only if the guard fails.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from rink import aio
from rink.errors import RoleLost
from rink.run.command_env import RoleFile, environment_of
from rink.run.command_guard import now_ms, signal_name
from rink.run.exit_codes import NOT_FOUND
from rink.run.guard_link import Guarded, KillTimes, Reaper
from rink.run.membership import RunMember
from rink.run.run_settings import RunSettings

log = logging.getLogger("rink.run")

MAX_CHECK_INTERVAL_S = 1.0
"""The maximum number of seconds between two checks of the deadline."""


@attrs.define
class CommandOutcome:
    """Hold the outcome of one run of the command.

    Attributes:
        status: the status of `waitpid`.
        is_started: True if the command was started.
        is_lost: True if it was stopped because the role was lost or was near its end.
        ran_for: the duration of the run, in seconds.
    """

    status: int
    is_started: bool
    is_lost: bool
    ran_for: float


@attrs.frozen(kw_only=True)
class Host:
    """Hold the objects that all runs of one `rink run` share.

    Attributes:
        ignored: the signals that `rink run` ignores, so the command ignores them, too.
        on_stopped: called with the signal that stopped the command.
        loss_signal: returns the signal that the command gets once the role is lost.
    """

    settings: RunSettings
    session: aio.Session
    member: RunMember
    reaper: Reaper
    file: RoleFile
    ignored: Sequence[int]
    on_stopped: Callable[[int], None]
    loss_signal: Callable[[], int]

    @property
    def limits(self) -> KillTimes:
        """Return the times that the guard obeys."""
        return KillTimes.of(self.session.ttl, self.session.margin, self.settings.grace)


class CommandRun:
    """Run the command once, under a role that is held.

    Attributes:
        guarded: the command under its guard, while it runs.
        is_started: True if a guard was started.
    """

    def __init__(self, host: Host, role: aio.Role) -> None:
        self.guarded: Guarded | None = None
        self.is_started = False
        self._host = host
        self._role = role
        self._limits = host.limits
        self._lease = 0

    async def run(self) -> CommandOutcome | None:
        """Run the command; return None if too little time is left to start it."""
        loop = asyncio.get_running_loop()
        lost = asyncio.ensure_future(self._role.lost.wait())
        try:
            while not self._is_time_left() and not lost.done():
                await asyncio.wait({lost}, timeout=0.1)  # until the lease is renewed
            if lost.done():
                return None
            started_at = loop.time()
            guarded = self.guarded = self._start()
            if guarded is None:
                return None
            try:
                is_lost = await self._watch(guarded, lost)
            except Exception:
                guarded.stop(signal.SIGTERM)
                await guarded.ended
                raise
            self._report_failure(guarded)
            return CommandOutcome(
                guarded.ended.result(), guarded.failure is None, is_lost, loop.time() - started_at
            )
        finally:
            self.guarded = None
            self._host.file.clear()
            lost.cancel()

    def _report_failure(self, guarded: Guarded) -> None:
        failure, program = guarded.failure, self._host.settings.command[0]
        if failure is not None and failure.errno:
            what = "was not found" if failure.code == NOT_FOUND else "cannot be run"
            log.error("command %r %s: %s", program, what, os.strerror(failure.errno))

    def _start(self) -> Guarded | None:
        """Start the command, or return None if the role is lost.

        The order matters: the role is checked after the session was read. If the role is held then,
        it was granted under this session. A process that was stopped since the grant may have a new
        session, and must request the role again under the new session.
        """
        host, role = self._host, self._role
        self._lease, until = host.member.lease_and_end()
        if not role.is_held:
            return None
        host.file.write(role.token, until)
        guarded = Guarded(host.reaper, host.on_stopped)
        guarded.start(
            host.settings.command,
            environment_of(os.environ, host.settings.group, role, host.file.path),
            until=until,
            limits=self._limits,
            role=role.name,
            ignored=host.ignored,
            file=host.file.path,
        )
        self.is_started = True
        log.info("command %r starts with token %d", host.settings.command[0], role.token)
        return guarded

    async def _watch(self, guarded: Guarded, lost: asyncio.Future[Any]) -> bool:
        """Keep the guard's deadline up to date until the command has ended.

        Return whether the command was stopped because of the role.
        """
        interval = min(MAX_CHECK_INTERVAL_S, self._host.session.ttl / 12)
        is_lost = False
        # Log each step only after it was done, so that the log does not delay it.
        while not guarded.ended.done():
            if lost.done() and not is_lost:
                is_lost = True
                number = self._host.loss_signal()
                guarded.stop(number)
                self._host.file.clear()
                log.info("the command gets %s, since %s", signal_name(number), self._reason())
            self._move_end(guarded, is_lost=is_lost or guarded.is_late)
            left_ms = guarded.until - self._limits.lead // 2 - now_ms()
            if left_ms <= 0:
                await self._host.reaper.kill_all()
                log.error("the guard did not kill the command in time, so `rink run` killed it")
                await guarded.ended
                continue
            await asyncio.wait(
                {guarded.ended} if is_lost else {guarded.ended, lost},
                timeout=min(interval, left_ms / 1000),
                return_when=asyncio.FIRST_COMPLETED,
            )
        return is_lost or guarded.is_late

    def _move_end(self, guarded: Guarded, *, is_lost: bool) -> None:
        """Send the guard the deadline if it has moved.

        A passed end is never moved. An end is also never moved to the deadline of a new lease,
        since another member may have been granted the role between the two leases.
        """
        lease, until = self._host.member.lease_and_end()
        if until > guarded.until > now_ms() and lease == self._lease:
            guarded.tell(until)
            if not is_lost:
                self._host.file.write(self._role.token, until)

    def _is_time_left(self) -> bool:
        limits = self._limits
        return self._host.member.lease_and_end()[1] - limits.lead - limits.notice > now_ms()

    def _reason(self) -> str:
        try:
            self._role.raise_if_lost()
        except RoleLost as error:
            return str(error)
        return f"role {self._role.name!r} is lost"
