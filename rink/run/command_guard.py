"""Run a command as its parent, and end it in time.

The command ends in time even if `rink run` is stopped or killed.

This file is started by its path, as a separate process, and uses only the standard library. It has
one thread and no connection to etcd, so no other work can delay it. It stays one file, since Python
starts it in isolated mode, in which it finds no other module of Rink.

The guard keeps these rules:

* `rink run` sends an end in milliseconds of CLOCK_BOOTTIME, and later moves it on. The command and
  all its descendants are dead before the last sent end. An end that arrives after the kill was due
  is ignored.
* If the pipe from `rink run` closes, the command gets SIGTERM at once.
* The guard is a subreaper: an orphan of the command becomes the guard's child. So there are no
  descendants exactly when `waitpid` knows no child. Only then does the guard send `ended`.
* The guard first acts and then logs. No line that it writes can delay it.
* SIGTERM and passed-on signals go to the command's own process. Once that process has ended, its
  remaining descendants get SIGTERM. SIGKILL goes to all of these processes.

PDEATHSIG of the command is a second protection, in case the guard itself is killed.

Lines from `rink run`: `until MS`, `signal N`, `stop N`, `kill`, `resume`. Lines to `rink run`:
`started PID`, `failed CODE ERRNO`, `stopped N`, `late`, `ended STATUS`. STATUS is a status of
`waitpid`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CLOCK_BOOTTIME = 7
TFD_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
TFD_TIMER_ABSTIME = 1

OURS, CANNOT_RUN, NOT_FOUND = 125, 126, 127
"""Exit codes if the command did not start; `env` uses the same."""

TERM, KILL = "term", "kill"

SWEEP_INTERVAL_MS = 5
"""Pause between two reads of `/proc` while descendants are being killed."""

SLOW_SWEEP_INTERVAL_MS = 500
"""Longer pause, once a second has passed and the same processes are left."""

MAX_REMOVE_TRIES = 20

NEW_FILE = "role.new"
"""Name of RINK_FILE's file while it is written. A killed `rink run` may leave it behind."""

WRITE_TIMEOUT_S = 0.02
"""Timeout of a line for stderr, since the pipe may have no reader."""

SLOW_KILL_TIMEOUT_MS = 1_000
"""Time after which an unfinished kill is reported."""

REPORT_INTERVAL_MS = 60_000
MAX_REPORTED = 10
"""The maximum number of processes that a report names."""

IGNORED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)
"""Signals that the guard ignores. Only its pipe and its timer control it."""

_libc = ctypes.CDLL(None, use_errno=True)


def now_ms() -> int:
    """Return CLOCK_BOOTTIME in whole milliseconds."""
    return time.clock_gettime_ns(CLOCK_BOOTTIME) // 1_000_000


def signal_name(number: int) -> str:
    """Return the name of a signal."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


class Ends:
    """Decide when the command gets SIGTERM and SIGKILL, without a clock.

    Invariant: `kill_at` is never after `until - lead`. `move_end` changes `until` only while the
    kill is not due. So a guard that was frozen kills first, whatever lies in its pipe.

    Args:
        until: the first end, in milliseconds.
        grace: milliseconds from a SIGTERM to SIGKILL.
        notice: milliseconds from SIGTERM to SIGKILL when the end comes near.
        lead: milliseconds from SIGKILL to the end.
    """

    def __init__(self, until: int, grace: int, notice: int, lead: int) -> None:
        self.until = until
        self._grace = grace
        self._notice = notice
        self._lead = lead
        self._stopped_at: int | None = None
        self._is_killed = False
        self._is_closed = False

    @property
    def is_stopping(self) -> bool:
        """Return whether the command got SIGTERM, or was killed."""
        return self._is_killed or self._stopped_at is not None

    @property
    def kill_at(self) -> int:
        """Return the time at which the command must be killed."""
        end = self.until - self._lead
        if self._stopped_at is None or self._is_closed:
            return end
        return min(end, self._stopped_at + self._grace)

    @property
    def wake_at(self) -> int:
        """Return the time at which the result of `due` may change."""
        return self.kill_at if self.is_stopping else self.kill_at - self._notice

    def move_end(self, until: int, now: int) -> None:
        """Set a new end, unless the kill is already due."""
        if not self._is_closed and not self._is_killed and now < self.kill_at:
            self.until = until

    def stop(self, now: int) -> bool:
        """Begin to stop, and return whether to send SIGTERM now."""
        if self.is_stopping:
            return False
        self._stopped_at = now
        return True

    def close(self, now: int) -> bool:
        """Note that `rink run` is gone, and return whether to send SIGTERM now."""
        self._is_closed = True
        return self.stop(now)

    def kill(self) -> None:
        """Kill from now on."""
        self._is_killed = True

    def due(self, now: int) -> str:
        """Return `KILL`, `TERM` or ""."""
        if self._is_killed or now >= self.kill_at:
            self._is_killed = True
            return KILL
        if not self.is_stopping and now >= self.kill_at - self._notice:
            self._stopped_at = now
            return TERM
        return ""


def checked(result: int, call: str) -> int:
    """Return the result of a C call, or raise its OSError."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
    return result


def prctl(option: int, value: int) -> None:
    """Call prctl, or raise an OSError."""
    rest = [ctypes.c_ulong(0)] * 3
    checked(_libc.prctl(option, ctypes.c_ulong(value), *rest), f"prctl({option})")


def become_subreaper() -> None:
    """Become the parent of all descendants whose parent ends."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def _fields(path: str) -> list[bytes]:
    """Return the fields of a `stat` file after the command's name.

    The name may have any characters, so the fields are counted from its closing bracket.
    """
    with open(path, "rb") as file:
        return file.read().rpartition(b")")[2].split()


def descendants(root: int) -> list[int]:
    """Return the descendants of a process, by one read of `/proc`.

    A process whose parent ends during the read may be missing. So an empty list proves nothing.
    Only `waitpid` proves that no descendant is left.
    """
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                children.setdefault(int(_fields(f"/proc/{name}/stat")[1]), []).append(int(name))
    pids: list[int] = []
    rest = [root]
    while rest:
        below = children.pop(rest.pop(), [])
        pids += below
        rest += below
    return pids


def signal_all(pids: list[int], number: int) -> list[int]:
    """Send a signal to processes, and return those that may not be signalled.

    A process may end after the read of `/proc`, and its number may be reused. For this, all numbers
    must be used up within a millisecond. A pidfd would not be simpler: it has to be checked against
    `/proc` again, and kernels and sandboxes without pidfds would still need this function.
    """
    refused = []
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            refused.append(pid)
    return refused


def name_of(pid: int) -> str:
    """Return a process's name, or "?" if it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8") as file:
        return file.read().strip()
    return "?"


class Sweeps:
    """Choose the pauses between the sweeps of one kill, and report it.

    A process may outlive SIGKILL if it is in state D or belongs to another user. Each sweep reads
    all of `/proc`, so sweeps get rare while the same processes are left. Processes that start new
    ones change the list, so sweeps stay frequent.

    Args:
        now: the time in milliseconds.
    """

    def __init__(self, now: int) -> None:
        self.pause_ms = SWEEP_INTERVAL_MS
        self._slow_at = self._report_at = now + SLOW_KILL_TIMEOUT_MS
        self._left: list[int] = []

    def swept(self, now: int, left: list[int], refused: list[int]) -> str:
        """Take the result of a sweep, and return a report if it is due, else "".

        `left` has the remaining processes, and `refused` those that this process may not kill.
        """
        is_stuck = now >= self._slow_at and left == self._left
        self.pause_ms = SLOW_SWEEP_INTERVAL_MS if is_stuck else SWEEP_INTERVAL_MS
        self._left = left
        if now < self._report_at:
            return ""
        self._report_at = now + REPORT_INTERVAL_MS
        notes = dict.fromkeys(refused, ", of another user")
        names = [f"{pid} ({name_of(pid)}{notes.get(pid, '')})" for pid in left[:MAX_REPORTED]]
        more = len(left) - len(names)
        return f"{', '.join(names) or 'nothing'}{f' and {more} more' if more else ''}"


def reaped() -> Iterator[tuple[int, int]]:
    """Yield each child that has ended or stopped, with its status.

    Raises:
        ChildProcessError: there is no child, and so no descendant.
    """
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return
        yield pid, status


class Timer:
    """Keep a timer on CLOCK_BOOTTIME, which counts suspended time, too."""

    def __init__(self) -> None:
        fd = _libc.timerfd_create(CLOCK_BOOTTIME, TFD_FLAGS)
        self.fd = checked(fd, "timerfd_create(CLOCK_BOOTTIME)")

    def set(self, at_ms: int) -> None:
        """Set the time at which the timer expires."""
        at_ms = max(at_ms, 1)  # 0 would disarm it
        spec = (ctypes.c_long * 4)(0, 0, at_ms // 1000, at_ms % 1000 * 1_000_000)
        result = _libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, ctypes.byref(spec), None)
        checked(result, "timerfd_settime")


class Terminal:
    """Give the controlling terminal to process groups, if there is one.

    `job` is the process group of `rink run`, which a shell puts into the foreground.
    """

    def __init__(self, job: int) -> None:
        self._job = job
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)

    @property
    def exists(self) -> bool:
        """Return whether there is a controlling terminal."""
        return self._fd >= 0

    def give(self, group: int) -> None:
        """Put the command's group into the foreground, in place of `rink run`."""
        self._move(self._job, group)

    def take_back(self, group: int) -> None:
        """Put `rink run` into the foreground, in place of the command's group."""
        self._move(group, self._job)

    def _move(self, source: int, target: int) -> None:
        if self.exists:
            with contextlib.suppress(OSError):  # the terminal hung up, or the group is gone
                if os.tcgetpgrp(self._fd) == source:
                    os.tcsetpgrp(self._fd, target)


class Cgroup:
    """Keep the command in a cgroup if `rink.run.cgroup` could make one."""

    def __init__(self, path: str) -> None:
        self._path = path

    def enter(self) -> None:
        """Move this process into the cgroup, if the kernel allows it."""
        self._write("cgroup.procs", "0")

    def kill(self) -> None:
        """Kill all processes in the cgroup."""
        self._write("cgroup.kill", "1")

    def remove(self) -> None:
        """Remove the cgroup; the kernel may take a moment to see it empty."""
        for _ in range(MAX_REMOVE_TRIES if self._path else 0):
            try:
                os.rmdir(self._path)
            except OSError:
                time.sleep(SWEEP_INTERVAL_MS / 1000)
            else:
                return

    def _write(self, name: str, text: str) -> None:
        if self._path:
            path = f"{self._path}/{name}"
            with contextlib.suppress(OSError), open(path, "w", encoding="ascii") as file:
                file.write(text)


class CommandGuard:
    """Run the command; `rink.run.guard_link` makes the `options`."""

    def __init__(self, options: dict[str, str], command: list[str]) -> None:
        self._command = command
        self._in, self._out = int(options["in"]), int(options["out"])
        self._ignored = [int(number) for number in options["ignored"].split(",") if number]
        self._file = options["file"]
        self._role = options["role"]
        self._group = Cgroup(options["cgroup"])
        self._ends = Ends(*(int(options[name]) for name in ("until", "grace", "notice", "lead")))
        self._terminal = Terminal(int(options["job"]))
        self._timer = Timer()
        self._text = b""
        self._status: int | None = None  # of the command's own process, once it has ended
        self._sweeps: Sweeps | None = None  # of the kill, once it has begun
        self._is_reported = False
        self._is_writing = False  # to stderr

    def run(self) -> None:
        """Run the command to its end."""
        for fd in (self._in, self._out):
            os.set_inheritable(fd, False)
            os.set_blocking(fd, False)
        become_subreaper()
        wake, ring = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        if not self._start():
            return
        # Only after the fork, so that the command inherits the former handler of this signal.
        signal.signal(signal.SIGALRM, self._end_write)
        poll = select.poll()
        for fd in (self._in, self._timer.fd, wake):
            poll.register(fd, select.POLLIN)
        while not self._step():
            for fd, _ in poll.poll(self._sweeps.pause_ms if self._sweeps else None):
                if fd == self._in:
                    self._read(poll)
                else:
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 4096)
        self._forget_file()
        self._forget_folder()
        self._terminal.take_back(self._pid)
        self._group.remove()
        self._say(f"ended {self._status}")

    # ── the start ────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> bool:
        read, write = os.pipe2(os.O_CLOEXEC)
        guard = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            code = OURS
            try:
                self._prepare(guard)
                code = CANNOT_RUN
                os.execvp(self._command[0], self._command)  # noqa: S606 - this is its purpose
            except OSError as error:
                if code == CANNOT_RUN and error.errno in (errno.ENOENT, errno.ENOTDIR):
                    code = NOT_FOUND
                os.write(write, f"{code} {error.errno}".encode())
            finally:
                os._exit(code)
        os.close(write)
        with open(read, "rb") as file:
            failure = file.read().decode()
        if failure:
            os.waitpid(self._pid, 0)
            self._terminal.take_back(self._pid)
            self._group.remove()
            self._say(f"failed {failure}")
            return False
        self._say(f"started {self._pid}")
        return True

    def _prepare(self, guard: int) -> None:
        if self._terminal.exists:
            os.setpgid(0, 0)
            self._terminal.give(os.getpid())
        else:
            os.setsid()
        self._group.enter()
        signal.set_wakeup_fd(-1)
        for number in (*IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            is_ignored = number in self._ignored
            signal.signal(number, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
        # This matters only if the guard is killed. A program that changes its user clears it.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(OURS)

    # ── the run ──────────────────────────────────────────────────────────────────────────────────

    def _step(self) -> bool:
        """Do what is due, and return whether the command has ended."""
        now = now_ms()
        # This comes before any line is read: an end that arrives too late must not save the
        # command.
        due = self._ends.due(now)
        if due == TERM:
            self._say("late")
            self._terminate(signal.SIGTERM)
            left = self._left(now)
            self._log(f"gets SIGTERM, and SIGKILL in {left} ms: the role's end is near")
        if not self._reap(now):
            return True
        if due == KILL:
            self._kill(now)
        else:
            self._timer.set(self._ends.wake_at)
        return False

    def _reap(self, now: int) -> bool:
        """Reap all ended children, and return whether a child is left."""
        try:
            for pid, status in reaped():
                if os.WIFSTOPPED(status):
                    if pid == self._pid and not self._ends.is_stopping:
                        self._say(f"stopped {os.WSTOPSIG(status)}")
                elif pid == self._pid:
                    self._status = status
        except ChildProcessError:
            return False
        if self._status is not None and not self._is_reported:
            self._is_reported = True
            self._ends.stop(now)
            self._terminate(signal.SIGTERM)
        return True

    def _terminate(self, number: int) -> None:
        """Signal the command's process, or its remaining descendants."""
        self._forget_file()
        if self._status is None:
            signal_all([self._pid], number)
            self._resume()  # a stopped process does not act on SIGTERM
        else:
            left = descendants(os.getpid())
            signal_all(left, number)
            signal_all(left, signal.SIGCONT)

    def _kill(self, now: int) -> None:
        """Kill all descendants once. `run` repeats it until no child is left."""
        self._forget_file()
        self._group.kill()
        if self._status is None:  # so no other group has this number
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
        left = descendants(os.getpid())
        refused = signal_all(left, signal.SIGKILL)
        if self._sweeps is None:
            self._sweeps = Sweeps(now)
            if self._status is None:
                self._say("late")
                self._log("is killed")
        if report := self._sweeps.swept(now, left, refused):
            self._log(f"was killed and has not ended. Left: {report}", level="ERROR")

    def _resume(self) -> None:
        if self._status is None:  # so no other group has this number
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signal.SIGCONT)

    def _left(self, now: int) -> int:
        return max(0, self._ends.kill_at - now)

    # ── lines from and to rink run ───────────────────────────────────────────────────────────────

    def _read(self, poll: select.poll) -> None:
        try:
            data = os.read(self._in, 65_536)
        except BlockingIOError:
            return
        if not data:
            poll.unregister(self._in)
            now = now_ms()
            if self._ends.close(now):
                self._terminate(signal.SIGTERM)
                left = self._left(now)
                self._log(f"gets SIGTERM, and SIGKILL in {left} ms: `rink run` has ended")
            return
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            word, _, number = line.decode().partition(" ")
            self._orders[word](self, int(number or 0))

    def _until(self, until: int) -> None:
        self._ends.move_end(until, now_ms())

    def _signal(self, number: int) -> None:
        if self._status is None:
            signal_all([self._pid], number)

    def _stop(self, number: int) -> None:
        if self._ends.stop(now_ms()):
            self._terminate(number)

    def _kill_now(self, _: int) -> None:
        self._ends.kill()

    def _resume_in_front(self, _: int) -> None:
        if self._status is None:
            self._terminal.give(self._pid)
            self._resume()

    _orders: dict[str, Callable[[CommandGuard, int], None]] = {
        "until": _until,
        "signal": _signal,
        "stop": _stop,
        "kill": _kill_now,
        "resume": _resume_in_front,
    }

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # `rink run` is gone, or has been stopped for long
            os.write(self._out, f"{line}\n".encode())

    def _log(self, what: str, level: str = "WARNING") -> None:
        """Write a log line in the format of `rink run`.

        `rink run` may be stopped or dead. The caller acts before it logs. If no process reads
        stderr, the write would never end. O_NONBLOCK would change the command's stderr, too. A poll
        before the write proves nothing, since the command may fill the pipe in between. So an alarm
        ends the write, and the line is lost. The alarm repeats, since the first alarm may come just
        before the write begins.
        """
        at = time.strftime("%Y-%m-%d %H:%M:%S")
        head = f"{at},{time.time_ns() // 1_000_000 % 1000:03d} {level:<7} rink.run: "
        line = f"{head}command {self._command[0]!r} of role {self._role} {what}\n".encode()
        with contextlib.suppress(OSError):
            try:
                self._is_writing = True
                signal.setitimer(signal.ITIMER_REAL, WRITE_TIMEOUT_S, WRITE_TIMEOUT_S)
                os.write(2, line[: select.PIPE_BUF])
            finally:
                self._is_writing = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _end_write(self, *_: object) -> None:
        """End a write to stderr. Only `_log` may be interrupted, and only once."""
        if self._is_writing:
            self._is_writing = False
            raise TimeoutError

    def _forget_file(self) -> None:
        if self._file:
            with contextlib.suppress(OSError):
                os.unlink(self._file)

    def _forget_folder(self) -> None:
        """Remove the file's folder, too, in case `rink run` was killed."""
        if self._file:
            folder = os.path.dirname(self._file)
            with contextlib.suppress(OSError):
                os.unlink(f"{folder}/{NEW_FILE}")
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def main(arguments: list[str]) -> None:
    """Run the guard: `NAME=VALUE` options, `--`, and the command."""
    place = arguments.index("--")
    options = dict(option.partition("=")[::2] for option in arguments[:place])
    CommandGuard(options, arguments[place + 1 :]).run()


if __name__ == "__main__":
    main(sys.argv[1:])
