"""Measure the memory and CPU of a sidecar and its clients.

It is measured idle and with many streams.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import resource
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

from arena import Arena
from child import cpu_seconds, now
from figures import Figure, Outcome, at_least, at_most

TITLE = "A sidecar (ttl 20 s, hold 10 s)"
STREAMS = 1_000
CLIENTS = 1_000
BARE = Path(__file__).parent.parent / "sidecar_bare.py"
STARTS_WITHIN_S = 30.0


def run(arena: Arena) -> Outcome:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    try:
        with tempfile.TemporaryDirectory() as folder:
            figures = _measure(arena, Path(folder))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return Outcome(part="sidecar", title=TITLE, figures=figures)


def _measure(arena: Arena, folder: Path) -> list[Figure]:
    seconds = arena.pick(30, 5)
    with _Process(_line(arena, 256), folder / "one.log", "the API is at") as one:
        with contextlib.closing(_Streams(one.port, 1)) as streams:
            alone = one.cpu(streams, seconds)
        idle = one.settle(5)  # the member is still joined
        ratio, rate, bare = _rates(arena, one, folder)
        before = one.settle(2)
        amid = _harass(one)
        after = one.settle(8)
    with (
        _Process(_line(arena, STREAMS), folder / "many.log", "the API is at") as many,
        contextlib.closing(_Streams(many.port, STREAMS)) as streams,
    ):
        streams.until_all_granted()
        busy = many.cpu(streams, seconds)
        resident = many.rss()
    return [
        Figure(
            key="sidecar.rss", what="memory, joined, without a client", value=idle,
            unit="MB", target=at_most(60),
        ),
        Figure(
            key="sidecar.cpu.1", what=f"CPU with one stream, over {seconds} s", value=alone,
            unit="% of a core", target=at_most(0.5),
        ),
        Figure(
            key="sidecar.rss.1000", what=f"memory with {STREAMS:,} streams", value=resident,
            unit="MB", target=at_most(100),
        ),
        Figure(
            key="sidecar.cpu.1000", what=f"CPU with {STREAMS:,} streams", value=busy,
            unit="% of a core", target=at_most(5),
        ),
        Figure(
            key="sidecar.role", value=ratio, unit="x", target=at_least(0.5, "≥ 0.5"),
            what="GET /v1/role beside a bare Starlette route, median of ratios",
            note=f"best {rate:,.0f}/s and {bare:,.0f}/s, one connection",
        ),
        Figure(
            key="sidecar.harassed", value=amid - before, unit="MB", target=at_most(10),
            what=f"memory more with {CLIENTS:,} slow and vanished clients, at most",
        ),
        Figure(
            key="sidecar.recovered", value=after - before, unit="MB", target=at_most(10),
            what="memory more after them",
        ),
    ]  # fmt: skip


def _line(arena: Arena, streams: int) -> list[str]:
    return [
        sys.executable, "-m", "rink.cli", "sidecar", "--group", "g", "--prefix", arena.prefix(),
        "--endpoints", arena.etcd.endpoint, "--listen", "127.0.0.1:0", "--public", "127.0.0.1:0",
        "--rebalance-delay", "0", "--max-streams", str(streams), "--handover-wait", "0",
    ]  # fmt: skip


class _Process:
    """Run a server in a process, and read its address."""

    def __init__(self, line: list[str], log: Path, says: str) -> None:
        self._line = line
        self._log = log
        self._says = says

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._line, stdout=log, stderr=log)
        end = time.monotonic() + STARTS_WITHIN_S
        while not (found := re.search(rf"{self._says} \S*:(\d+)", self._log.read_text())):
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.05)
        self.port = int(found[1])
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def rss(self) -> float:
        """Return its memory in MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def settle(self, seconds: float) -> float:
        """Return its memory in MB, once it had time to come to rest."""
        time.sleep(seconds)
        return self.rss()

    def cpu(self, streams: _Streams, seconds: float) -> float:
        """Return the percentage of a core that it uses while streams are read."""
        streams.read(3)
        began, before = now(), cpu_seconds(self._process.pid)
        streams.read(seconds)
        return 100 * (cpu_seconds(self._process.pid) - before) / (now() - began)


class _Streams:
    """Read streams of consumers in this process, each with its own role."""

    def __init__(self, port: int, count: int) -> None:
        self._poll = select.epoll()
        self._sockets = {}
        self._granted: set[int] = set()
        for index in range(count):
            connection = _connect(port, {"roles": [f"job-{index}"]}, stream=True)
            connection.setblocking(False)
            self._sockets[connection.fileno()] = connection
            self._poll.register(connection, select.EPOLLIN)

    def read(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for fd, _ in self._poll.poll(left):
                data = self._sockets[fd].recv(65_536)
                assert data, "a stream was closed"
                if b"event: granted" in data:
                    self._granted.add(fd)

    def until_all_granted(self) -> None:
        for _ in range(60):
            if len(self._granted) == len(self._sockets):
                return
            self.read(1)
        raise AssertionError(f"{len(self._granted)} of {len(self._sockets)} are granted")

    def close(self) -> None:
        self._poll.close()
        for connection in self._sockets.values():
            connection.close()


def _connect(port: int, body: dict, *, stream: bool) -> socket.socket:
    """Return a connection on which a hold was asked for."""
    text = json.dumps(body)
    accept = "Accept: text/event-stream\r\n" if stream else ""
    connection = socket.create_connection(("127.0.0.1", port), 10)
    connection.sendall(
        f"POST /v1/hold HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"{accept}Content-Length: {len(text)}\r\n\r\n{text}".encode()
    )
    return connection


def _rates(arena: Arena, one: _Process, folder: Path) -> tuple[float, float, float]:
    """Return the median ratio, and the best rates, of two routes.

    One is ours and one is bare; they are measured in turn.
    """
    line = [sys.executable, os.fspath(BARE)]
    with _Process(line, folder / "bare.log", "listens at") as bare:
        rates, limits = [], []
        for turn in range(arena.pick(7, 3)):
            arena.progress("GET /v1/role", turn, 7)
            rates.append(_rate(one.port, "/v1/role?name=leader"))
            limits.append(_rate(bare.port, "/"))
    ratios = [rate / limit for rate, limit in zip(rates, limits, strict=True)]
    return statistics.median(ratios), max(rates), max(limits)


def _rate(port: int, path: str, seconds: float = 1.0) -> float:
    """Return the requests a second of one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
            count += 1
        return count / seconds


def _harass(one: _Process) -> float:
    """Return the most memory in MB while clients are slow or vanish.

    They send half a head or half a body, read nothing of a stream, or reset a connection.
    """
    kept, most = [], 0.0
    for index in range(CLIENTS):
        with contextlib.suppress(ConnectionError):  # there are too many
            kept.append(_bad_client(one.port, index))
        most = max(most, one.rss())
    for _ in range(40):  # meanwhile ends are moved on, without a reader
        most = max(most, one.settle(0.5))
    for connection in kept:
        connection.close()
    return most


def _bad_client(port: int, index: int) -> socket.socket:
    match index % 4:
        case 0:
            connection = socket.create_connection(("127.0.0.1", port), 10)
            connection.sendall(b"POST /v1/hold HTTP/1.1\r\nHost: ")
        case 1:
            connection = socket.create_connection(("127.0.0.1", port), 10)
            connection.sendall(
                f"POST /v1/hold HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: "
                'application/json\r\nContent-Length: 60000\r\n\r\n{"roles": ["'.encode()
            )
        case 2:
            connection = _connect(port, {"roles": [f"slow-{index}"]}, stream=True)
        case _:
            connection = _connect(port, {"roles": [f"gone-{index}"], "wait": 60}, stream=False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
    return connection
