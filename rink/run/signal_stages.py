"""Decide what a signal does, without sending signals or reading a clock.

The first signal begins to leave the group, and the command continues while the leave waits for a
successor. The second signal ends this wait. The last signal kills the command. While no command
runs, any of these signals ends `rink run`. Two signals within a tenth of a second count as one,
since `timeout` sends its signal to the process and then to its group.
"""

from __future__ import annotations

import enum
import math
import signal

import attrs

LEAVING = frozenset({signal.SIGTERM, signal.SIGINT})
"""Signals that begin to leave. The command gets them once its role is lost."""

PASSED_ON = frozenset(
    {signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH}
)
"""Signals that the command gets at once."""

ENDING = LEAVING | {signal.SIGHUP, signal.SIGQUIT}
"""Signals that end `rink run` while no command runs. Others do nothing then."""

SAME_SIGNAL_INTERVAL_S = 0.1
"""Signals of `LEAVING` that follow each other within this time count as one."""


class Deed(enum.Enum):
    """Name the actions of `rink run` after a signal."""

    NOTHING = "nothing"
    PASS_ON = "pass the signal on to the command"  # noqa: S105
    LEAVE = "leave the group, and wait for a successor"
    HURRY = "stop waiting for a successor"
    KILL = "kill the command"
    END = "end, since no command runs"


@attrs.define
class Stages:
    """Keep the stage reached by signals of `LEAVING`, and the last signal.

    `waits` is True if a leave waits for a successor, so that a signal can end the wait.
    """

    waits: bool
    last: int = signal.SIGTERM
    deed: Deed = Deed.NOTHING
    _at: float = -math.inf

    @property
    def is_leaving(self) -> bool:
        """Return whether a signal made `rink run` leave the group."""
        return self.deed is not Deed.NOTHING

    def take(self, number: int, at: float, *, is_running: bool) -> Deed:
        """Return what to do about a signal that came at the time `at`, in seconds."""
        if not is_running:
            if number not in ENDING:
                return Deed.NOTHING
            self.last, self.deed = number, Deed.END
            return Deed.END
        if number not in LEAVING:
            return Deed.PASS_ON
        is_same, self._at = at - self._at < SAME_SIGNAL_INTERVAL_S, at
        if is_same:
            return Deed.NOTHING
        self.last = number
        if self.deed is Deed.NOTHING:
            self.deed = Deed.LEAVE
        elif self.deed is Deed.LEAVE and self.waits:
            self.deed = Deed.HURRY
        else:
            self.deed = Deed.KILL
        return self.deed
