"""Find all processes of a session.

A driver or a worker of Spark starts JVMs and Python workers, which leave its process group but not
its session.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

WAIT_S = 60.0


def processes_of(session, name=""):
    """Return a session's running processes with this text in their command."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has gone meanwhile
            told, _, rest = path.read_text().partition("(")[2].rpartition(")")
            state, _, _, its = rest.split()[:4]
            if int(its) == session and state not in "ZX" and name in told:
                found.append(int(path.parent.name))
    return found


def signal_all(session, which):
    """Send a signal to each of them, and to those that they started meanwhile."""
    reached = set()
    while new := set(processes_of(session)) - reached:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)
        reached |= new
    return reached


def kill(process):
    """Kill the session of a Popen at once, as a power cut does, and wait."""
    end = time.monotonic() + WAIT_S
    while found := processes_of(process.pid):
        assert time.monotonic() < end, f"{found} do not end"
        signal_all(process.pid, signal.SIGKILL)
        time.sleep(0.01)
    process.wait()
