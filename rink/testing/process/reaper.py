"""Own test servers, and remove them when the parent process ends.

This script starts, signals and reaps servers on request, one JSON object a line. When its parent
ends, even by SIGKILL, it kills the servers and removes the folders.

PR_SET_PDEATHSIG alone would not be enough: it fires when the *thread* that started the server ends,
removes no folder, and needs a preexec function, which is not safe in a process with threads. The
reaper has one thread, so it can also use PR_SET_PDEATHSIG, in case it is killed. It uses only the
standard library, because it runs isolated (`python -I -S`) to start fast.
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

# A forked child of the parent may hold stdin open after the parent's death. So the reaper also
# checks the parent's process id.
_PARENT_CHECK_INTERVAL_S = 0.2
_PR_SET_PDEATHSIG = 1
_STOP_TIMEOUT_S = 30.0


def _die_with_reaper() -> None:
    with contextlib.suppress(OSError, AttributeError):  # only Linux has it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_stopped(pid: int) -> None:
    # Sending the signal does not wait: threads on other cores continue for a moment.
    if not hasattr(os, "waitid"):  # macOS has it from Python 3.13 on
        return
    end = time.monotonic() + _STOP_TIMEOUT_S
    wanted = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
    while os.waitid(os.P_PID, pid, wanted) is None:
        if time.monotonic() > end:
            raise TimeoutError(f"process {pid} has not stopped within {_STOP_TIMEOUT_S:g} s")
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
                    preexec_fn=_die_with_reaper,  # noqa: PLW1509 - one thread, see above
                )
            children[child.pid] = child
            return child.pid
        case "signal":  # poll() first: the id of an ended process may belong to another process
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
    """Serve requests until stdin ends or the parent has ended, then clean up."""
    children: dict[int, subprocess.Popen[bytes]] = {}
    while os.getppid() == parent:
        # The parent sends one request at a time, so the line buffer is empty at each select.
        if not select.select([sys.stdin], [], [], _PARENT_CHECK_INTERVAL_S)[0]:
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
        child.kill()  # also ends a frozen process
        child.wait()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
