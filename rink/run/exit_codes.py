"""End `rink run` as its command ended, and name the codes of its own."""

from __future__ import annotations

import os
import resource
import signal
from typing import NoReturn

import attrs

from rink.run import command_guard

NOT_GOT = 75
"""The role was not got within `--wait`: EX_TEMPFAIL of sysexits.h."""

LOST = 124
"""The role was lost, under `--once`."""

FAILED = command_guard.OURS
"""`rink run` itself failed."""

NOT_FOUND = command_guard.NOT_FOUND


@attrs.frozen
class ExitStatus:
    """Hold how `rink run` ends: with a code, or by a signal other than 0."""

    code: int = 0
    signal: int = 0

    @classmethod
    def of(cls, status: int) -> ExitStatus:
        """Return how a command ended, by its status from `waitpid`."""
        if os.WIFSIGNALED(status):
            return cls(signal=os.WTERMSIG(status))
        return cls(code=os.WEXITSTATUS(status))

    def __str__(self) -> str:
        if not self.signal:
            return f"code {self.code}"
        return command_guard.signal_name(self.signal)


def end(outcome: ExitStatus) -> NoReturn:
    """End this process, with the code or by the signal.

    It ends at once: nothing at the exit of Python may hold it up. Nothing is flushed: `rink run`
    writes nothing but its log, and a flush may never end, or find that there is no stdout.
    """
    if outcome.signal and os.getpid() != 1:  # process 1 gets no signal that it does not handle
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core would be of `rink run`
        if outcome.signal not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(outcome.signal, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [outcome.signal])
        os.kill(os.getpid(), outcome.signal)
    os._exit(128 + outcome.signal if outcome.signal else outcome.code)
