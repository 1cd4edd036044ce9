"""Kill, freeze or thaw all processes of a driver.

They are Python, a JVM, and the Python workers that Spark starts. They are found by their
environment, which each inherits: Spark's workers leave the process group, and after their driver's
death they are no longer its children.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

SIGNAL_TIMEOUT_S = 10.0


def processes_with(*variables: str) -> list[int]:
    """Return the processes whose environment has all of these `NAME=value`."""
    wanted = {variable.encode() for variable in variables}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found


def kill(*variables: str) -> None:
    """Kill the processes, and those that they start meanwhile."""
    deadline = time.monotonic() + SIGNAL_TIMEOUT_S
    while (found := processes_with(*variables)) and time.monotonic() < deadline:
        _signal(found, signal.SIGKILL)
        time.sleep(0.01)


def freeze(*variables: str) -> int:
    """Stop the processes; return their number once all have stopped."""
    deadline = time.monotonic() + SIGNAL_TIMEOUT_S
    while time.monotonic() < deadline:
        found = processes_with(*variables)
        running = [pid for pid in found if not _is_stopped(pid)]
        if not running:
            return len(found)
        _signal(running, signal.SIGSTOP)
        time.sleep(0.002)
    raise TimeoutError(f"the processes {running} do not stop")


def thaw(*variables: str) -> None:
    _signal(processes_with(*variables), signal.SIGCONT)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    try:
        stat = (Path("/proc") / str(pid) / "stat").read_text()
        # The state follows the name in brackets, which may hold any character.
        return stat.rpartition(")")[2].split()[0] in "TXZ"
    except OSError:
        return True


def main() -> None:
    """Kill the processes that the demo has left, once our stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.read()
    kill(*sys.argv[1:])


if __name__ == "__main__":
    main()
