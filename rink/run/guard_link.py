"""Start a guard with its command, and exchange lines with it.

The guard is spawned by its path and not forked, because this process has threads of gRPC. In
addition to its two pipes, the guard gets only the open files that `rink run` itself inherited.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from rink.run import cgroup, command_guard

log = logging.getLogger("rink.run")

GUARD = str(Path(command_guard.__file__).resolve())

KILLED = signal.SIGKILL
"""The `waitpid` status of a command whose guard was killed."""


@attrs.frozen(kw_only=True)
class KillTimes:
    """Hold the times of `command_guard.Ends`, in milliseconds."""

    grace: int
    notice: int
    lead: int

    @classmethod
    def of(cls, ttl: float, margin: float, grace: float) -> KillTimes:
        """Return the times for a lease.

        The session's deadline is `ttl - margin` after the last answered keepalive. An outage of
        etcd of up to two thirds of the TTL must cost no role, so SIGTERM comes only after this.
        """
        span = ttl - margin
        lead = min(0.5, span / 5)
        notice = max(span - lead - ttl * 2 / 3, span / 10)
        return cls(
            grace=round(grace * 1000),
            notice=round(min(notice, grace) * 1000),
            lead=round(lead * 1000),
        )


@attrs.frozen(kw_only=True)
class Failure:
    """Hold why a command did not start, as an exit code of `env` and errno."""

    code: int
    errno: int


class Reaper:
    """Reap every child, as process 1 must, and kill processes of a dead guard."""

    def __init__(self) -> None:
        self._exits: dict[int, asyncio.Future[int]] = {}
        command_guard.become_subreaper()  # to get the command of a guard that was killed

    def follow(self, pid: int) -> asyncio.Future[int]:
        """Return a future with the status of a child."""
        return self._exits.setdefault(pid, asyncio.get_running_loop().create_future())

    def reap(self) -> bool:
        """Reap all ended children, and return whether a child is left."""
        with contextlib.suppress(ChildProcessError):
            for pid, status in command_guard.reaped():
                if not os.WIFSTOPPED(status) and (future := self._exits.pop(pid, None)):
                    future.set_result(status)
            return True
        return False

    async def kill_all(self) -> None:
        """Kill every descendant of this process, until there is none.

        In process 1 of a container, these include orphans of `docker exec`, which cannot be
        distinguished from the others.
        """
        sweeps = command_guard.Sweeps(command_guard.now_ms())
        while self.reap():
            left = command_guard.descendants(os.getpid())
            refused = command_guard.signal_all(left, signal.SIGKILL)
            if report := sweeps.swept(command_guard.now_ms(), left, refused):
                log.error("the command was killed and has not ended. Left: %s", report)
            await asyncio.sleep(sweeps.pause_ms / 1000)


class Guarded:
    """Start one run of the command under its guard, and control it.

    Attributes:
        ended: the command's `waitpid` status, once all its descendants are dead.
        failure: why the command did not start, or None.
        is_late: True if the guard stopped the command because its end came near.
    """

    def __init__(self, reaper: Reaper, on_stopped: Callable[[int], None]) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.failure: Failure | None = None
        self.is_late = False
        self.until = 0
        self._on_stopped = on_stopped
        self._reaper = reaper
        self._is_started = False
        self._text = b""

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        until: int,
        limits: KillTimes,
        role: str,
        ignored: Sequence[int],
        file: str = "",
    ) -> None:
        """Start the guard, and the command under it."""
        self.until = until
        group = cgroup.make(f"rink-run-{os.getpid()}-{secrets.token_hex(4)}")
        self._cgroup = command_guard.Cgroup(group)
        options = {
            "until": until, **attrs.asdict(limits), "job": os.getpgrp(), "file": file,
            "ignored": ",".join(str(int(number)) for number in ignored), "role": repr(role),
            "cgroup": group,
        }  # fmt: skip
        try:
            pid = self._spawn(options, command, environment)
        except BaseException:
            self._cgroup.remove()
            raise
        asyncio.get_running_loop().add_reader(self._from, self._read)
        self._reaper.follow(pid).add_done_callback(self._guard_ended)

    def _spawn(
        self, options: Mapping[str, object], command: Sequence[str], environment: Mapping[str, str]
    ) -> int:
        guard_in, self._to = os.pipe()
        self._from, guard_out = os.pipe()
        options = {"in": guard_in, "out": guard_out, **options}
        line = [f"{name}={value}" for name, value in options.items()]
        try:
            for fd in (guard_in, guard_out):
                os.set_inheritable(fd, True)
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", GUARD, *line, "--", *command],
                environment,
                setpgroup=0,
                setsigmask=(),
            )
        except BaseException:
            self._close()
            raise
        finally:
            os.close(guard_in)
            os.close(guard_out)
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        return pid

    def _close(self) -> None:
        """Close the pipes.

        The numbers are reset, since a connection to etcd may soon have them.
        """
        os.close(self._from)
        os.close(self._to)
        self._from = self._to = -1

    def tell(self, until: int) -> None:
        """Move the end on."""
        self.until = until
        self._say(f"until {until}")

    def signal(self, number: int) -> None:
        """Pass a signal on to the command's process."""
        self._say(f"signal {number}")

    def stop(self, number: int) -> None:
        """Send the command a signal, and kill it when the grace is over."""
        self._say(f"stop {number}")

    def kill(self) -> None:
        """Kill the command and its descendants."""
        self._say("kill")

    def resume(self) -> None:
        """Continue a stopped command, in the foreground if `rink run` is in it."""
        self._say("resume")

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the guard has ended (`_to` is -1), or hangs
            os.write(self._to, f"{line}\n".encode())

    def _read(self) -> None:
        try:
            data = os.read(self._from, 65_536)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(self._from)
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            self._take_line(line.decode())

    def _take_line(self, line: str) -> None:
        word, *numbers = line.split()
        values = [int(number) for number in numbers]
        if word == "started":
            self._is_started = True
        elif word == "failed":
            self.failure = Failure(code=values[0], errno=values[1])
            self._end(values[0] << 8)
        elif word == "ended":
            self._end(values[0])
        elif word == "late":
            self.is_late = True
        elif word == "stopped":
            self._on_stopped(values[0])

    def _end(self, status: int) -> None:
        if not self.ended.done():
            self.ended.set_result(status)

    def _guard_ended(self, exit_status: asyncio.Future[int]) -> None:
        loop = asyncio.get_running_loop()
        self._read()  # its last lines
        loop.remove_reader(self._from)
        self._close()
        if self.ended.done():
            return
        self.is_late = self._is_started
        if not self._is_started:
            self.failure = Failure(code=command_guard.OURS, errno=0)
        self._rescue = loop.create_task(self._kill_rest())
        code = os.waitstatus_to_exitcode(exit_status.result())
        log.error("the guard has ended (%d), so `rink run` kills the command", code)

    async def _kill_rest(self) -> None:
        self._cgroup.kill()
        await self._reaper.kill_all()
        self._cgroup.remove()
        self._end(KILLED if self.failure is None else self.failure.code << 8)
