"""Members in processes of their own, and the history that they make."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from rink.core.schemes import rank_of
from rink.engine.clock import SYSTEM

ROOT = Path(__file__).parents[2]
LONG_S = 30.0
QUICK = {"rebalance_delay": 0.0, "initial_delay": 0.0}


class Worker:
    """One process; `events` is all it has said, with its name."""

    def __init__(self, history: History, name: str, endpoints: Any, prefix: str, **settings: Any):
        given = {
            "name": name,
            "endpoints": endpoints,
            "prefix": prefix,
            "roles": settings.pop("roles", []),
            "session": settings.pop("session", {"ttl": 5}),
            "member": {**QUICK, **settings},
        }
        self.name = name
        self.history = history
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-X",
                "faulthandler",
                str(Path(__file__).with_name("real_worker.py")),
                json.dumps(given),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._errors = ""
        self._threads = [threading.Thread(target=run) for run in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(json.JSONDecodeError):  # a line cut short by SIGKILL
                event = {"who": self.name, **json.loads(line)}
                self.history.add(event)
                self._said.put(event)
        self._said.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors = self.process.stderr.read()

    def wait(self, what: str, timeout: float = LONG_S, **fields: Any) -> dict[str, Any]:
        """The next thing of this kind that it says."""
        end = SYSTEM.now() + timeout
        while True:
            event = self._said.get(timeout=max(0.001, end - SYSTEM.now()))
            assert event is not None, f"{self.name} ended: {self._errors}"
            if event["what"] == what and fields.items() <= event.items():
                return event

    def say(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def ask(self, command: str) -> dict[str, Any]:
        self.say(command)
        return self.wait(command)

    def leave(self) -> None:
        self.say("leave")
        self.wait("left")
        self.ends()

    def ends(self) -> None:
        """The process ends by itself, and well; what its threads are at is shown where it does not."""
        try:
            code = self.process.wait(LONG_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler writes every thread's stack
            code = self.process.wait(LONG_S)
        self._threads[1].join(LONG_S)
        assert code == 0, f"{self.name} ended with {code}:\n{self._errors}"

    def signal(self, number: int) -> float:
        """Send a signal; the time just after it."""
        self.process.send_signal(number)
        return SYSTEM.now()

    def kill(self) -> float:
        at = self.signal(signal.SIGKILL)
        self.process.wait(LONG_S)
        self._threads[0].join()
        self.history.add({"at": at, "what": "ended", "who": self.name})
        return at

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class History:
    """Everything that all members said. May be added to from any thread."""

    def __init__(self, events: list[dict[str, Any]] | None = None) -> None:
        self.events = list(events or [])
        self._changed = threading.Condition()

    def add(self, event: dict[str, Any]) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, happens: Any, timeout: float = LONG_S) -> None:
        """Wait until something is true of the history."""
        with self._changed:
            assert self._changed.wait_for(lambda: happens(self), timeout), self.events[-10:]

    def settle(self, workers: list[Worker], roles: list[str]) -> None:
        """Wait until these members have every rank and hold the roles of it: nothing moves now.

        That all roles are held, by all of them, is not enough: what a newcomer has gained may be
        read here before what is still to move to it has been let go of.
        """

        def is_settled(history: History) -> bool:
            ranks = {worker.ask("rank")["rank"]: worker.name for worker in workers}
            return set(ranks) == set(range(len(workers))) and history.holders == {
                role: ranks[rank_of(role, len(workers))] for role in roles
            }

        self.wait(lambda history: set(history.holders.values()) == {one.name for one in workers})
        end = SYSTEM.now() + LONG_S
        while not is_settled(self):
            assert SYSTEM.now() < end, self.events[-10:]

    @property
    def in_order(self) -> list[dict[str, Any]]:
        """By time; what one process said stays in the order in which it said it."""
        return sorted(self.events, key=lambda event: event["at"])

    @property
    def holders(self) -> dict[str, str]:
        """Who holds which role now, as far as was said."""
        holders: dict[str, str] = {}
        for event in self.in_order:
            if event["what"] == "gained":
                holders[event["role"]] = event["who"]
            elif event["what"] == "let go" and holders.get(event["role"]) == event["who"]:
                del holders[event["role"]]
            elif event["what"] == "ended":
                holders = {r: who for r, who in holders.items() if who != event["who"]}
        return holders

    def moves(self, since: float) -> dict[str, int]:
        """How often each role was gained since then."""
        moves: dict[str, int] = {}
        for event in self.events:
            if event["what"] == "gained" and event["at"] > since:
                moves[event["role"]] = moves.get(event["role"], 0) + 1
        return moves

    def gaps(self, since: float) -> list[float]:
        """For each move since then, how long nobody held the role, in seconds."""
        free: dict[str, float] = {}
        gaps = []
        for event in self.in_order:
            if event["what"] == "let go":
                free[event["role"]] = event["at"]
            elif event["what"] == "gained" and event["at"] > since and event["role"] in free:
                gaps.append(event["at"] - free.pop(event["role"]))
        return sorted(gaps)


def problems(history: History) -> list[str]:
    """What a history has that Rink forbids: roles held twice, and tokens that do not rise."""
    found = []
    held: dict[str, dict[str, int]] = {}
    newest: dict[str, tuple[int, str]] = {}
    for event in history.in_order:
        who, role, token = event["who"], event.get("role", ""), event.get("token", 0)
        holders = held.setdefault(role, {})
        match event["what"]:
            case "gained":
                if who in holders:
                    found.append(f"{who} gained {role} twice")
                elif holders:
                    found.append(f"{who} gained {role} while {sorted(holders)} held it")
                last, of = newest.get(role, (0, ""))
                if token < last or (token == last and who != of):
                    found.append(f"{who} has token {token} of {role}, after {of} had {last}")
                newest[role] = token, who
                holders[who] = token
            case "let go":
                if holders.pop(who, None) != token:
                    found.append(f"{who} let go of {role} ({token}), which it did not hold")
            case "ended":
                for others in held.values():
                    others.pop(who, None)
    return found
