"""Start and strike programs and sidecars, and read their reports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forks import Zygote
from processes import wait_stopped

from rink.engine.clock import SYSTEM
from rink.testing.process.ports import free_ports

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
START_TIMEOUT_S = 120.0

TTL_S = 2.0
HOLD_S = 1.0
GRACE_S = 3.0
OPTIONS = (
    "--ttl", f"{TTL_S:g}", "--hold", f"{HOLD_S:g}", "--rebalance-delay", "0.2",
    "--absent", "1", "--grace", f"{GRACE_S:g}", "--public", "",
)  # fmt: skip

BUGS = ("Traceback (most recent call last)", "was never awaited", "never retrieved")
"""Texts that no fault may bring into the log of a sidecar."""

Hear = Callable[["Program", list[Any]], None]


class Programs:
    """Fork programs from one process.

    Args:
        stderr: the file for their tracebacks.
    """

    def __init__(self, stderr: Path) -> None:
        self.stderr = stderr
        with stderr.open("wb") as log:
            command = [sys.executable, "-I", "-S", str(HERE / "program.py")]
            self._zygote: Zygote[Program] = Zygote(command, stderr=log)

    def start(self, who: str, hear: Hear, **settings: Any) -> Program:
        """Fork a program; `hear` gets each line of it, and then ["ended"]."""
        return self._zygote.fork(lambda wire: Program(who, wire, hear), settings)

    def close(self) -> None:
        """Kill all of them."""
        self._zygote.close()


class Program:
    """Control one program by its process and its socket."""

    def __init__(self, who: str, wire: socket.socket, hear: Hear) -> None:
        self.who, self.wire = who, wire
        self.pid = 0
        self.ended = threading.Event()
        self.killed_at: float | None = None
        self.stops: list[tuple[float, float]] = []
        """When it was sent each SIGSTOP, and when it had stopped."""
        self.frozen: list[tuple[float, float]] = []
        """When it was frozen, as pairs; the end of the latest is infinite before the thaw."""
        self._began = threading.Event()
        self._hear = hear
        self._rest = b""

    def read(self) -> bool:
        """Read its reports, and return False once it has ended.

        Only one thread calls it.
        """
        try:
            data = self.wire.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if said[0] == "began":
                self.pid = said[1]
                self._began.set()
            else:
                self._hear(self, said)
        if not data:
            self._hear(self, ["ended"])
            self.ended.set()
        return bool(data)

    def say(self, *command: Any) -> None:
        """Send it a command, unless it is dead."""
        self.put(list(command))

    def put(self, value: Any) -> None:
        """Send one line."""
        with contextlib.suppress(OSError):
            self.wire.sendall(json.dumps(value).encode() + b"\n")

    def freeze(self) -> None:
        """Freeze it, and return once it no longer runs."""
        assert self._began.wait(START_TIMEOUT_S)
        if self.ended.is_set() or self.is_frozen:
            return
        with contextlib.suppress(ProcessLookupError, AssertionError):  # it was killed meanwhile
            at = self._stop()
            self.frozen.append((at, float("inf")))
            self._hear(self, ["frozen", at])

    def _stop(self) -> float:
        """Stop it, and return the time before."""
        at = SYSTEM.now()
        os.kill(self.pid, signal.SIGSTOP)
        wait_stopped(self.pid)
        self.stops.append((at, SYSTEM.now()))
        return at

    def thaw(self) -> None:
        """Continue it."""
        if self.is_frozen and not self.ended.is_set():
            at = SYSTEM.now()
            self.frozen[-1] = self.frozen[-1][0], at
            self._hear(self, ["thawed", at])
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)

    @property
    def is_frozen(self) -> bool:
        """Return whether it is frozen now."""
        return bool(self.frozen) and self.frozen[-1][1] == float("inf")

    def kill(self) -> None:
        """Kill it, and wait until all its reports are read.

        It is stopped first. So its last action is before the noted time, and its connections are
        closed after it. Otherwise a role that it gives up with its connection might have its next
        turn before that time.
        """
        assert self._began.wait(START_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError, AssertionError):  # it is dead
            self.killed_at = self._stop()
            os.kill(self.pid, signal.SIGKILL)
        assert self.ended.wait(START_TIMEOUT_S)


class Sidecar:
    """Run one `rink sidecar`, which comes back under its name and port.

    Args:
        name: the name of its member.
        endpoint: the endpoint of etcd.
        prefix: the prefix of its keys.
        folder: the folder of its log.
    """

    def __init__(self, name: str, endpoint: str, prefix: str, folder: Path) -> None:
        self.name = name
        self.port = free_ports(1)[0]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"{name}.log"
        self._lock = threading.RLock()
        self._command = [
            sys.executable, "-m", "rink.cli", "sidecar", "--group", "g", "--name", name,
            "--endpoints", endpoint, "--prefix", prefix, "--listen", f"127.0.0.1:{self.port}",
            *OPTIONS,
        ]  # fmt: skip
        self._is_frozen = False
        self._is_told = False
        self._is_ended = True
        """Whether the test has ended it, so that it may be gone."""
        self._failures: list[str] = []
        self.start()

    def start(self) -> None:
        """Start it, unless it runs."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("RINK_")}
        env["PYTHONPATH"] = str(ROOT)
        with self._lock, self.log.open("ab") as log:
            if self._is_ended:
                self._process = subprocess.Popen(self._command, env=env, stderr=log, stdout=log)
                self._is_frozen = self._is_ended = False

    def wait(self) -> None:
        """Wait until it listens."""
        end = time.monotonic() + START_TIMEOUT_S
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            assert self._process.poll() is None, f"{self.name} has ended: {self.text()[-1000:]}"
            assert time.monotonic() < end, f"{self.name} does not listen: {self.text()[-1000:]}"
            time.sleep(0.02)

    def freeze(self) -> None:
        """Freeze it, and return once it no longer runs."""
        with self._lock:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGSTOP)
                with contextlib.suppress(AssertionError):  # it has ended by itself
                    wait_stopped(self._process.pid)
                self._is_frozen = True

    def thaw(self) -> None:
        """Continue it."""
        with self._lock:
            if self._is_frozen:
                self._process.send_signal(signal.SIGCONT)
                self._is_frozen = False

    def term(self) -> None:
        """Send SIGTERM: `kill` must follow before it may be started again."""
        with self._lock:
            self._is_told = True
            self._process.terminate()

    def kill(self) -> None:
        """Kill it."""
        with self._lock:
            code = self._process.poll()
            if not (self._is_ended or self._is_told or code is None):
                self._failures.append(f"{self.name} ended by itself with status {code}")
            self._process.kill()
            self._process.wait()
            self._is_ended, self._is_told = True, False

    def revive(self) -> None:
        """Make it run in any state, and wait until it listens."""
        self.thaw()
        with self._lock:
            if self._process.poll() is not None:
                self.kill()
                self.start()
        self.wait()

    def text(self) -> str:
        """Return its log."""
        return self.log.read_text(errors="replace")

    def bugs(self) -> list[str]:
        """Return the texts in its log that no fault may cause."""
        text = self.text()
        bugs = [bug for bug in BUGS if bug in text]
        return self._failures + [
            f"{self.name} logged: {text[text.index(bug) :][:1500]}" for bug in bugs
        ]
