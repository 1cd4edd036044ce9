"""The guard: a small process that owns test servers and outlives whoever asked for them.

Run as a script with the parent's process id and the folders to remove. It starts, signals and
reaps servers on request (one JSON object a line), and when its parent is gone, however that died,
it kills them and removes the folders. So nothing is left behind even by a SIGKILLed test run.

Why a process of its own: PR_SET_PDEATHSIG alone fires when the *thread* that started the server
ends, removes no folder, and needs a preexec function, which is not safe in a process with threads.
Here there is one thread, so the servers may have it too, for the case that the guard is killed.
Only the standard library is used, since it runs isolated (`python -I -S`) to start fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_LOOK_EVERY_S = 0.2  # at the parent; a forked child of it may hold our stdin open past its death
_PR_SET_PDEATHSIG = 1
_STOPS_WITHIN_S = 30.0


def _die_with_guard() -> None:
    with contextlib.suppress(OSError, AttributeError):  # elsewhere than on Linux: the guard is all
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_stopped(pid: int) -> None:
    # The signal is on its way when it is sent: on another core threads go on for a moment.
    if not hasattr(os, "waitid"):  # macOS has it from Python 3.13 on
        return
    end = time.monotonic() + _STOPS_WITHIN_S
    wanted = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
    while os.waitid(os.P_PID, pid, wanted) is None:
        if time.monotonic() > end:
            raise TimeoutError(f"process {pid} has not stopped within {_STOPS_WITHIN_S:g} s")
        time.sleep(0.0005)


def _answer(request: dict[str, Any], children: dict[int, subprocess.Popen[bytes]]) -> Any:
    match request["do"]:
        case "start":
            with Path(request["log"]).open("ab") as log:
                child = subprocess.Popen(
                    request["command"],
                    env=request["env"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=_die_with_guard,  # noqa: PLW1509 - one thread, see above
                )
            children[child.pid] = child
            return child.pid
        case "signal":  # poll() first: the id of one that has ended may be somebody else's by now
            child = children[request["pid"]]
            if child.poll() is None:
                child.send_signal(request["signal"])
                if request["signal"] == signal.SIGSTOP:
                    _wait_stopped(child.pid)
            return None
        case "running":
            return children[request["pid"]].poll() is None
        case unknown:
            raise ValueError(unknown)


def main(parent: int, folders: list[str]) -> None:
    """Serve requests until stdin ends or the parent is gone, then clean up."""
    children: dict[int, subprocess.Popen[bytes]] = {}
    while os.getppid() == parent:
        # One request is under way at a time, so the line buffer is empty whenever we select.
        if not select.select([sys.stdin], [], [], _LOOK_EVERY_S)[0]:
            continue
        line = sys.stdin.readline()
        if not line:
            break
        try:
            reply = {"is": _answer(json.loads(line), children)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()
    for child in children.values():
        child.kill()  # ends a stopped (frozen) one as well
        child.wait()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
