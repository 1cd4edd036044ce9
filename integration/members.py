"""Run members in processes of their own; freeze, kill and hear them.

Their messages about roles go into a `rink.testing.history.History`. Tests wait for the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from processes import wait_stopped

from rink.core.schemes import rank_of
from rink.engine.clock import SYSTEM
from rink.testing.history import History, HistoryEvent

ROOT = Path(__file__).parents[1]
LONG_S = 30.0
HEADROOM_S = 5.0
"""Seconds added to a limit of time on takeovers, since seven tests may run beside this one.

With 2 s, one run in some hundreds was over the limit. A member that did not take over in time would
wait for half a minute or more, so the limit tells the two apart.
"""
QUICK = {"rebalance_delay": 0.0, "initial_delay": 0.0}


class Worker:
    """Run one process with one member.

    Args:
        history: gets the roles that the member gains and lets go of.
        name: the member's.
        endpoints: for the session.
        prefix: for the session.
        roles: the roles that it follows.
        session: more settings of its session.
        ledger: the socket of a `ledger.Ledger` that it writes to, with its tokens.
        command: the start of its command line, such as `ip netns exec name`.
        settings: of the member.
    """

    script = "member_process.py"

    def __init__(
        self,
        history: History,
        name: str,
        endpoints: Any,
        prefix: str,
        *,
        roles: list[str] | tuple[str, ...] = (),
        session: dict[str, Any] | None = None,
        ledger: str | None = None,
        command: tuple[str, ...] = (),
        **settings: Any,
    ):
        given = {
            "name": name,
            "endpoints": endpoints,
            "prefix": prefix,
            "roles": list(roles),
            "session": session or {"ttl": 5},
            "ledger": ledger,
            "member": {**QUICK, **settings},
        }
        self.name = name
        self.history = history
        script = str(Path(__file__).parent / self.script)
        self.process = subprocess.Popen(
            [*command, sys.executable, "-X", "faulthandler", script, json.dumps(given)],
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
                said = {"who": self.name, **json.loads(line)}
                if said["what"] in {"gained", "let go"}:
                    self.history.add(HistoryEvent(**said))
                self.hear(said)
                self._said.put(said)
        self._said.put(None)

    def hear(self, said: dict[str, Any]) -> None:
        """Take each message as it comes; for subclasses."""

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors = self.process.stderr.read()

    def wait(self, what: str, timeout: float = LONG_S, **fields: Any) -> dict[str, Any]:
        """Return the member's next message of this kind."""
        end = SYSTEM.now() + timeout
        while True:
            said = self._said.get(timeout=max(0.001, end - SYSTEM.now()))
            assert said is not None, f"{self.name} ended: {self._errors}"
            if said["what"] == what and fields.items() <= said.items():
                return said

    def say(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def ask(self, command: str) -> dict[str, Any]:
        self.say(command)
        return self.wait(command)

    def wait_renewed(self, timeout: float = LONG_S) -> float:
        """Wait until a keepalive is answered; return the seconds.

        A keepalive is sent every sixth of the TTL.
        """
        begin = SYSTEM.now()
        before = self.ask("remaining")["seconds"]
        while (after := self.ask("remaining")["seconds"]) <= before:
            before = after
            assert SYSTEM.now() - begin < timeout, f"{self.name} was not renewed"
            time.sleep(0.05)
        return SYSTEM.now() - begin

    def leave(self) -> None:
        self.say("leave")
        self.wait("left")
        self.ends()

    def ends(self) -> None:
        """Wait until the process has ended well, or show its threads' stacks."""
        try:
            code = self.process.wait(LONG_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler writes every thread's stack
            code = self.process.wait(LONG_S)
        self._threads[1].join(LONG_S)
        assert code == 0, f"{self.name} ended with {code}:\n{self._errors}"

    def freeze(self) -> float:
        """Keep it from running; the time from which it does not."""
        self.process.send_signal(signal.SIGSTOP)
        wait_stopped(self.process.pid)
        at = SYSTEM.now()
        self.history.add(HistoryEvent("frozen", self.name, at))
        return at

    def thaw(self) -> float:
        """Let it go on; the time from which it does."""
        at = SYSTEM.now()
        self.history.add(HistoryEvent("thawed", self.name, at))
        self.process.send_signal(signal.SIGCONT)
        return at

    def kill(self) -> float:
        """End it at once; the time by which it has ended."""
        self.process.kill()
        self.process.wait(LONG_S)
        at = SYSTEM.now()
        self._threads[0].join()
        self.history.add(HistoryEvent("ended", self.name, at))
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


def settle(history: History, workers: list[Worker], roles: list[str]) -> None:
    """Wait until the members have every rank and hold its roles.

    It is not enough that all members together hold all roles: a newcomer's gain may be read here
    before another member has let go of the roles that still move to it. Nor is it enough that each
    role is held by its owner: each member reports through its own pipe, so a gain may be read
    before the loss that came first.
    """

    def is_settled() -> bool:
        ranks = {worker.ask("rank")["rank"]: worker.name for worker in workers}
        if set(ranks) != set(range(len(workers))):
            return False
        owners = {role: ranks[rank_of(role, len(workers))] for role in roles}
        overlaps = history.judge().overlaps
        return history.holders == owners and all(one.end is not None for one in overlaps)

    history.wait(lambda h: set(h.holders.values()) == {one.name for one in workers})
    end = SYSTEM.now() + LONG_S
    while not is_settled():
        assert SYSTEM.now() < end, history.events[-10:]
