"""Fork members on request from a process that has imported rink.

It has imported gRPC, too, so a fork costs milliseconds. Forking is safe here: there is one thread
and no channel (gRPC begins its own with the first one). The process checks this before every fork.
Requests come over the socket whose number is the first argument, each with the member's own end of
a socket, which brings all else. When that socket ends, so does every member.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import socket
import sys
import traceback
from pathlib import Path

import faults_members_worker


def fork(wire: int, requests: socket.socket) -> None:
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread has been started"
    if os.fork():
        os.close(wire)
        return
    code = 1
    try:
        requests.close()
        faults_members_worker.run(socket.socket(fileno=wire))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main() -> None:
    faulthandler.enable()
    requests = socket.socket(fileno=int(sys.argv[1]))
    gc.collect()
    gc.freeze()  # all forks share the imported modules
    while True:
        request, fds, _, _ = socket.recv_fds(requests, 16, 1)
        if not request:
            os.killpg(0, signal.SIGKILL)
        fork(fds[0], requests)
        reap()


if __name__ == "__main__":
    main()
