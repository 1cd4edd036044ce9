"""Read the state of a process from the kernel."""

from __future__ import annotations

import time
from pathlib import Path

STOPS_WITHIN_S = 30.0


def thread_states(pid: int) -> set[str]:
    """Return the states of a process's threads.

    `T` is stopped, `Z` and `X` are dead. The set is empty if the process is gone.
    """
    states = set()
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return states
    for task in tasks:
        try:
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):  # this thread has ended meanwhile
            continue
    return states


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not dead.

    A dead one is `Z` until its parent asks after it, and `X` for a moment then.
    """
    return bool(thread_states(pid) - {"Z", "X"})


def wait_stopped(pid: int) -> None:
    """Wait until no thread of a process that was sent SIGSTOP runs."""
    end = time.monotonic() + STOPS_WITHIN_S
    while (states := thread_states(pid)) != {"T"}:
        assert states, f"process {pid} is gone: it cannot stop"
        assert time.monotonic() < end, f"process {pid} does not stop: its threads are {states}"
        time.sleep(0.001)
