"""Start, command, read and kill members that a zygote forks."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forks import Zygote
from members import LONG_S
from processes import wait_stopped

from rink.engine.clock import SYSTEM
from rink.testing.history import History, HistoryEvent, What

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def until(happens: Callable[[], bool], timeout: float = LONG_S) -> None:
    """Poll until a condition holds."""
    end = SYSTEM.now() + timeout
    while not happens():
        assert SYSTEM.now() < end, "the condition did not hold in time"
        time.sleep(0.02)


class Members:
    """Fork members from one process.

    Attributes:
        bugs: the tracebacks that members have logged. No fault that a test makes may cause one.
    """

    def __init__(self, env: dict[str, str] | None = None) -> None:
        self.bugs: list[str] = []
        self._zygote: Zygote[Member] = Zygote(
            [sys.executable, str(HERE / "faults_members_zygote.py")],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        )

    def start(self, history: History, name: str, who: str, **given: Any) -> Member:
        """Fork a member, which the history calls `who`."""
        return self._zygote.fork(
            lambda wire: Member(history, name, who, wire, self.bugs),
            {"name": name, "who": who, **given},
        )

    def check(self) -> None:
        """Fail if a member has logged a traceback since the last check."""
        bugs, self.bugs[:] = list(self.bugs), []
        assert not bugs, "\n\n".join(bugs)

    def close(self) -> None:
        """Kill every member and the zygote."""
        self._zygote.close()


class Member:
    """Run one member's process, and note grants and losses in its history."""

    def __init__(
        self, history: History, name: str, who: str, wire: socket.socket, bugs: list[str]
    ) -> None:
        self.history = history
        self._bugs = bugs
        self.name = name
        self.who = who
        self.wire = wire
        self.pid = 0
        self.died: dict[str, Any] | None = None  # its message when it died at a killing point
        self.left: dict[str, Any] | None = None  # its message when it had left
        self.holding = 0  # roles, by its own messages
        self.logged: list[tuple[float, str]] = []
        self.ended = threading.Event()
        self._rest = b""
        self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def read(self) -> bool:
        """Read the member's lines; return False once it has ended.

        Only the reading thread calls it.
        """
        try:
            data = self.wire.recv(1 << 16)
        except ConnectionResetError:  # it died with commands unread
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take({"who": self.who, **json.loads(line)})
        if not data:
            at = self.died["at"] if self.died else SYSTEM.now()
            self.history.add(HistoryEvent(What.ENDED, self.who, at))
            self._said.put(None)
            self.ended.set()
        return bool(data)

    def _take(self, event: dict[str, Any]) -> None:
        match event["what"]:
            case "gained" | "let go" as what:
                role, token = event["role"], event["token"]
                self.history.add(HistoryEvent(what, self.who, event["at"], role, token))
                self.holding += 1 if what == What.GAINED else -1
            case "began":
                self.pid = event["pid"]
            case "dying":
                self.died = event
            case "left":
                self.left = event
            case "log":
                self.logged.append((event["at"], event["text"]))
            case "bug":
                self._bugs.append(f"{self.who}: {event['text']}")
        self._said.put(event)

    def say(self, command: str, *arguments: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, OSError):  # it is dead
            self.wire.sendall(json.dumps([command, *arguments]).encode() + b"\n")

    def wait(self, *what: str, timeout: float = LONG_S) -> dict[str, Any]:
        """Return the next line of one of these kinds; `ended` is one, too."""
        end = SYSTEM.now() + timeout
        while True:
            try:
                event = self._said.get(timeout=max(0.001, end - SYSTEM.now()))
            except queue.Empty:
                raise AssertionError(f"{self.who} has not said {what} in {timeout} s") from None
            if event is None:
                self._said.put(None)
                assert "ended" in what, f"{self.who} ended, and did not say {what}"
                return {"what": "ended"}
            if event["what"] in what:
                return event

    def ask(self, command: str, *arguments: Any) -> dict[str, Any]:
        self.say(command, *arguments)
        return self.wait(command)

    def ask_if_alive(self, command: str, *arguments: Any) -> dict[str, Any] | None:
        """Ask a member that may be dead; return None if it is."""
        self.say(command, *arguments)
        answer = self.wait(command, "ended")
        return answer if answer["what"] == command else None

    def until_it_sees(self, *others: Member) -> None:
        """Wait until the member's view has these others.

        Otherwise it would leave without waiting for a successor.
        """
        while not {one.name for one in others} <= set(self.ask("status")["members"]):
            pass

    def leave(self) -> None:
        self.say("leave")
        self.wait("left")
        assert self.ended.wait(LONG_S)

    def signal(self, number: int) -> float:
        """Send a signal, and return the time just after it."""
        if not self.pid:
            self.wait("began")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        return SYSTEM.now()

    def freeze(self) -> float:
        """Freeze the process, and return a time at which it is frozen."""
        self.signal(signal.SIGSTOP)
        wait_stopped(self.pid)
        at = SYSTEM.now()
        self.history.add(HistoryEvent(What.FROZEN, self.who, at))
        return at

    def thaw(self) -> float:
        """Thaw the process, and return a time at which it is still frozen."""
        at = SYSTEM.now()
        self.history.add(HistoryEvent(What.THAWED, self.who, at))
        self.signal(signal.SIGCONT)
        return at

    def kill(self) -> float:
        at = self.signal(signal.SIGKILL)
        assert self.ended.wait(LONG_S)
        return at
