"""End `rink run` with the exit status of its command, or its own."""

from __future__ import annotations

import os
import resource
import signal
from typing import NoReturn

import attrs

from rink.run import command_guard

NOT_GRANTED = 75
"""The role was not granted within `--wait`: EX_TEMPFAIL of sysexits.h."""

LOST = 124
"""The role was lost, under `--once`."""

FAILED = command_guard.OURS
"""`rink run` itself failed."""

NOT_FOUND = command_guard.NOT_FOUND


@attrs.frozen
class ExitStatus:
    """Hold the exit code of `rink run`, or the signal that ends it."""

    code: int = 0
    signal: int = 0

    @classmethod
    def of(cls, status: int) -> ExitStatus:
        """Return the exit status of a status of `waitpid`."""
        if os.WIFSIGNALED(status):
            return cls(signal=os.WTERMSIG(status))
        return cls(code=os.WEXITSTATUS(status))

    def __str__(self) -> str:
        if not self.signal:
            return f"code {self.code}"
        return command_guard.signal_name(self.signal)


def end(outcome: ExitStatus) -> NoReturn:
    """End this process at once, with the code or by the signal.

    Python's own exit could be delayed. So flush no stream: `rink run` writes only its log, a flush
    may never end, and there may be no stdout.
    """
    # The system discards signals that process 1 does not handle.
    if outcome.signal and os.getpid() != 1:
        # A core dump would show `rink run`, not the command.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if outcome.signal not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(outcome.signal, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [outcome.signal])
        os.kill(os.getpid(), outcome.signal)
    os._exit(128 + outcome.signal if outcome.signal else outcome.code)
