"""Run a command as a process, and read it line by line."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time

DEADLINE_S = 90


def without_announcements(ended):
    """Drop the lines of an ended command about a late answer.

    On a busy machine, answers come late.
    """
    lines = ended.stderr.splitlines(keepends=True)
    ended.stderr = "".join(one for one in lines if not one.startswith("rink: no answer yet"))
    return ended


class Lines:
    """Run a command, and read its output on a thread.

    Args:
        command: the command line.
        folder: its working folder.
        of: the stream to read, `stdout` or `stderr`.
        env: further environment variables.

    Attributes:
        read: all lines so far.
    """

    def __init__(self, command, folder=None, of="stdout", **env):
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **env},
            text=True,
            **{of: subprocess.PIPE},
        )
        self.read = []
        self._lines = queue.SimpleQueue()
        pipe = getattr(self.process, of)
        self._reader = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._reader.start()

    def _read(self, pipe):
        with pipe:
            for line in pipe:
                self.read.append(line)
                self._lines.put(line)

    def next(self):
        return self._lines.get(timeout=DEADLINE_S)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()


def wait_for(condition):
    """Wait until a condition holds, and return its value."""
    end = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.02)
    return found
