"""All processes of a session: a driver or a worker of Spark, its JVMs, and their Python workers,
which leave its group.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

WAIT_S = 60.0


def processes_of(session, name=""):
    """Return those of a session that have not ended, and whose command has this in its name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has gone meanwhile
            told, _, rest = path.read_text().partition("(")[2].rpartition(")")
            state, _, _, its = rest.split()[:4]
            if int(its) == session and state not in "ZX" and name in told:
                found.append(int(path.parent.name))
    return found


def signal_all(session, which):
    """Send a signal to each of them, and to what they have started meanwhile."""
    reached = set()
    while new := set(processes_of(session)) - reached:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)
        reached |= new
    return reached


def kill(process):
    """Kill the session that a Popen leads, at once, as a power cut does; returns when none of it is
    left.
    """
    end = time.monotonic() + WAIT_S
    while found := processes_of(process.pid):
        assert time.monotonic() < end, f"{found} do not end"
        signal_all(process.pid, signal.SIGKILL)
        time.sleep(0.01)
    process.wait()
