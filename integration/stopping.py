"""Whether a process has stopped: a SIGSTOP is only on its way when it is sent."""

from __future__ import annotations

import time
from pathlib import Path

STOPS_WITHIN_S = 30.0


def thread_states(pid: int) -> set[str]:
    """The states of a process's threads as the kernel names them: `T` is stopped."""
    states = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):  # this thread has ended meanwhile
            continue
    return states


def wait_stopped(pid: int) -> None:
    """Return when none of the threads of a process that was sent SIGSTOP runs any more."""
    end = time.monotonic() + STOPS_WITHIN_S
    while (states := thread_states(pid)) != {"T"}:
        assert time.monotonic() < end, f"process {pid} does not stop: its threads are {states}"
        time.sleep(0.001)
