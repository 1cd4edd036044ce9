"""An interactive shell on a terminal of its own, as a person would use it."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import threading

from run_support import DEFAULT_SIGNALS, LONG_S, wait_for

PROMPT = "ready$ "


class Shell:
    """Run a bash with job control.

    `text` is all that the terminal has shown.
    """

    def __init__(self, folder, **env):
        self.text = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.update(env, PS1=PROMPT)
            os.execvp("env", [*DEFAULT_SIGNALS, "bash", "--norc", "--noprofile", "-i"])
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        self.wait(PROMPT)

    def _read(self):
        with contextlib.suppress(OSError):  # EIO: the last process has closed the terminal
            while data := os.read(self._fd, 4096):
                self.text += data.decode(errors="replace")

    def type(self, text):
        os.write(self._fd, text.encode())

    def wait(self, text, since=0):
        """Wait until the terminal has shown a text, and return where it ends.

        On a busy machine, what follows it may be there already.
        """
        wait_for(lambda: text in self.text[since:])
        return self.text.index(text, since) + len(text)

    def foreground(self):
        """Return the process group in the terminal's foreground."""
        return os.tcgetpgrp(self._fd)

    def close(self):
        os.kill(self.pid, signal.SIGHUP)  # which bash passes on to its jobs
        os.kill(self.pid, signal.SIGCONT)
        with contextlib.suppress(OSError):  # it has ended
            self.type("\n")  # a bash that was about to read looks at its signals after that
        ended = lambda: os.waitpid(self.pid, os.WNOHANG)[0]  # noqa: E731
        try:
            wait_for(ended)
        finally:
            os.close(self._fd)
            self._thread.join(LONG_S)
