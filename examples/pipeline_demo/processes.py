"""A driver is many processes: Python, a JVM, and the Python workers that Spark starts. Hit all of them, or none.

They are found by their environment, which each inherits: Spark's workers leave the process group, and once
their driver is dead nobody's children are left to look for.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

PATIENCE_S = 10.0


def those_with(*variables: str) -> list[int]:
    """The processes whose environment has all of these, such as NAME=value; zombies have none."""
    wanted = {one.encode() for one in variables}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found


def kill(*variables: str) -> None:
    """Kill them, and those that they have started meanwhile, until there are none."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := those_with(*variables)) and time.monotonic() < deadline:
        _signal(found, signal.SIGKILL)
        time.sleep(0.01)


def freeze(*variables: str) -> int:
    """Stop them; returns how many processes, once all have stopped."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = those_with(*variables)
        running = [pid for pid in found if not _is_stopped(pid)]
        if not running:
            return len(found)
        _signal(running, signal.SIGSTOP)
        time.sleep(0.002)
    raise TimeoutError(f"these do not stop: {running}")


def thaw(*variables: str) -> None:
    _signal(those_with(*variables), signal.SIGCONT)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    try:
        # Behind the name in brackets, which may hold anything.
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[
            0
        ] in "TXZ"
    except OSError:
        return True


def main() -> None:
    """Wait until the demo is gone, however it ended (our standard input closes then), and kill what it has left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.read()
    kill(*sys.argv[1:])


if __name__ == "__main__":
    main()
