"""Hand a real HTTP server over between two hosts, and time the gaps.

Each host is a network namespace.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import attrs
from network import Network, Party
from run_support import Running, wait_for

SERVING = [sys.executable, "-I", "-S", str(Path(__file__).parent / "serving.py")]
PORT = 8080


class Client(threading.Thread):
    """Ask both hosts in turn without a pause.

    `answers` has the times and tokens.
    """

    def __init__(self, hosts):
        super().__init__()
        self.hosts = hosts
        self.answers = []
        self._is_over = threading.Event()

    def run(self):
        while not self._is_over.is_set():
            for host in self.hosts:
                with contextlib.suppress(OSError), socket.create_connection((host, PORT), 1) as one:
                    one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                    answer = b"".join(iter(lambda one=one: one.recv(4096), b""))
                    if answer:
                        self.answers.append((time.monotonic(), int(answer.split(b"\r\n")[-1])))
            time.sleep(0.001)

    def stop(self):
        self._is_over.set()
        self.join()

    def tokens(self):
        return {token for _, token in list(self.answers)}


QUIET_START_S = 0.03
"""The result of `time_start` on a quiet machine."""


def slowness(starts):
    """Return how much slower than a quiet machine this one was, at least 1."""
    return max(1.0, statistics.median(starts) / QUIET_START_S)


def time_start():
    """Return how long a process takes to start now.

    In each gap of a handover, two processes start.
    """
    at = time.monotonic()
    subprocess.run([sys.executable, "-I", "-S", "-c", "import ctypes, socket"], check=True)
    return time.monotonic() - at


@attrs.frozen
class Handovers:
    """Hold a client's record of handovers.

    It has the token of each answer, and the seconds from one holder's last answer to the next
    holder's first.
    """

    tokens: list[int]
    gaps: list[float]


def hand_over(
    network: Network,
    start: Callable[[Party, list[str]], Running],
    count: int,
    each: Callable[[], object] = lambda: None,
) -> Handovers:
    """Hand a server over several times.

    Args:
        network: the network of the hosts and of etcd.
        start: starts `rink run` on a host, with the rest of its command line.
        count: the number of handovers.
        each: called before each one.
    """
    hosts = [network.add(), network.add()]
    client = Client([host.address for host in hosts])

    def serve(host):
        return start(host, ["--handover-wait", "20", "--", *SERVING, host.address, str(PORT)])

    client.start()
    try:
        holder = serve(hosts[0])
        wait_for(client.tokens)
        for number in range(1, count + 1):
            standby = serve(hosts[number % 2])
            standby.wait_log("waits for role")
            each()
            holder.ends(signal.SIGTERM)
            holder = standby
            wait_for(lambda number=number: len(client.tokens()) > number)
        holder.ends(signal.SIGTERM)
    finally:
        client.stop()
    gaps = [
        after - before
        for (before, old), (after, new) in zip(client.answers, client.answers[1:], strict=False)
        if old != new
    ]
    return Handovers([token for _, token in client.answers], gaps)
