"""All processes of a session: a driver or a worker of Spark, its JVMs, and their Python workers, which leave its group."""

import contextlib
import os
import signal
import subprocess
import time

WAIT_S = 60.0


def processes_of(session, name="."):
    """Return those of a session whose command has this name."""
    command = ["pgrep", "--session", str(session), name]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


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
    """Kill the session that a Popen leads, at once, as a power cut does; returns when none of it is left."""
    end = time.monotonic() + WAIT_S
    while found := processes_of(process.pid):
        assert time.monotonic() < end, f"{found} do not end"
        signal_all(process.pid, signal.SIGKILL)
        process.poll()  # or it stays, as a zombie
        time.sleep(0.01)
    process.wait()
