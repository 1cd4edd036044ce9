"""Run `rink run` as a process, and read the beats of its commands."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import attrs
from processes import is_alive

ROOT = Path(__file__).parents[2]
RINK = [sys.executable, "-m", "rink.cli"]

DEFAULT_SIGNALS = ["env", "--default-signal"]
"""The beginning of a command line.

If tests run in the background, SIGHUP, SIGINT or SIGQUIT are ignored, and children inherit that.
"""
BEATING = [sys.executable, "-I", "-S", str(Path(__file__).parent / "beating.py")]
LONG_S = 30.0
UNREAD_S = 10.0
"""Most seconds in which a thread reads the last output of an ended process."""
TTL = 20
"""Seconds: the lease of a host outlives a stall of the machine."""
SHORT_TTL = 3
"""Seconds, for a test that waits for the end of a lease.

The deadline is at most 2.5 s ahead, SIGKILL comes 0.5 s before it, and SIGTERM after 1.75 s.
"""
MAX_LEAD_MS = 2_500
"""Greatest time from now to a told end, with a short TTL."""


def boot_ms():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def wait_for(condition, within_s=LONG_S):
    """Wait until a condition holds, and return its value."""
    end = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.005)
    return value


@attrs.frozen
class Beat:
    name: str
    pid: int
    token: int
    at: int
    until: int


class Beats:
    """Read the lines that the commands of a test have written to a file.

    Attributes:
        stalled_ms: the longest time in which `wait_over` itself did not run. Nothing can kill a
            process while the machine stands still, so ends are later by that much.
    """

    def __init__(self, path):
        self.path = path
        self.stalled_ms = 0
        path.touch()

    def all(self, name=None):
        lines = self.path.read_text().splitlines(keepends=True)
        beats = [
            Beat(words[0], *map(int, words[1:]))
            for words in (line.split() for line in lines if line.endswith("\n"))
        ]
        return [beat for beat in beats if name in (None, beat.name)]

    def wait(self, name="child", token_above=0, after=0):
        """Return the first beat of a kind."""

        def found():
            kind = self.all(name)
            return next((b for b in kind if b.token > token_above and b.at > after), None)

        return wait_for(found)

    def command(self, *words):
        """Return the command that beats."""
        return [*BEATING, str(self.path), *words]

    def wait_over(self, pids=None):
        """Wait until processes are dead, and return the last time of life.

        Without names, all processes that have beaten are meant. The time of a check is read before
        it. So if the test is suspended, no process counts as alive longer than it was.
        """
        pids = {beat.pid for beat in self.all()} if pids is None else pids
        alive_at, at = 0, boot_ms()

        def are_over():
            nonlocal alive_at, at
            last, at = at, boot_ms()
            self.stalled_ms = max(self.stalled_ms, at - last)
            if any(map(is_alive, pids)):
                alive_at = at
                return False
            return True

        wait_for(are_over)
        return alive_at

    def assert_over_before(self, until, alive_at=0):
        """Check that all are dead, and that no life was seen at or after a time."""
        beats = self.all()
        assert beats
        assert max(beats[-1].at, alive_at) < until + self.stalled_ms
        assert [beat for beat in beats if is_alive(beat.pid)] == []


class Running:
    """Run `rink run`, and read its log on a thread."""

    def __init__(self, endpoint, prefix, *line, ttl=TTL, role="r", before=(), popen=(), **env):
        options = ["--group", "g", "--role", role, "--prefix", prefix, "--ttl", str(ttl)]
        self.started_at = time.monotonic()
        files = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "start_new_session": True,
            **dict(popen),
        }
        self.process = subprocess.Popen(
            [*DEFAULT_SIGNALS, *before, *RINK, "run", *options, *line],
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "RINK_ETCD": endpoint, **env},
            **files,
        )
        self._read = {}
        self._threads = {
            pipe: threading.Thread(target=self._read_all, args=[pipe])
            for pipe in (self.process.stdout, self.process.stderr)
            if pipe is not None
        }
        for thread in self._threads.values():
            thread.start()

    def _read_all(self, pipe):
        for line in pipe:
            self._read[pipe] = self._read.get(pipe, "") + line

    def _text(self, pipe):
        """Return the text of a pipe.

        If the process has ended and no other process can write, this is all of its text.
        """
        if self.process.poll() is not None and pipe in self._threads:
            self._threads[pipe].join(UNREAD_S)
        return self._read.get(pipe, "")

    @property
    def log(self):
        return self._text(self.process.stderr)

    @property
    def output(self):
        return self._text(self.process.stdout)

    @property
    def pid(self):
        return self.process.pid

    @property
    def guard(self):
        """Return the process id of its guard."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        (guard,) = map(int, children)
        return guard

    def wait_log(self, text):
        """Wait until the log has a text."""

        def has():
            assert self.process.poll() is None or text in self.log, self.log
            return text in self.log

        wait_for(has)

    def send(self, number):
        self.process.send_signal(number)

    def ends(self, number=None, within_s=LONG_S):
        """Return the exit code, perhaps after a signal."""
        if number is not None:
            self.send(number)
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log) from None

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()  # its guard then ends the command
        self.process.wait()
        for thread in self._threads.values():
            thread.join(LONG_S)  # until the guard has ended too
            assert not thread.is_alive(), "a process of the command still runs"
        for pipe in self._threads:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
