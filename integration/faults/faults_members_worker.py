"""Run one member in a child process that a zygote has forked.

It talks JSON lines over one socket. The first is `given`: where etcd is, who it is, which roles it
wants, and the killing point that it dies at. The others are commands, [name, *arguments]: each is
a method of `Worker`, and its answer is a line of the same name.
A role counts as held from the line `gained` to the line `let go`, said before it is released.
"""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import socket
import threading
from collections.abc import Callable
from typing import Any

import faults_killing
import faults_members_clock

import rink
from rink.engine.clock import SYSTEM


class Wire:
    """Send JSON lines to the test, from any thread."""

    def __init__(self, wire: socket.socket) -> None:
        self._socket = wire
        self._lock = threading.Lock()

    def say(self, what: str, **more: Any) -> None:
        with self._lock:
            self._send(what, more)

    def say_last(self, what: str, **more: Any) -> None:
        """Send the last line of this process, and block every later one."""
        self._lock.acquire()  # and kept: between the last word and the signal, others still run
        self._send(what, more)

    def _send(self, what: str, more: dict[str, Any]) -> None:
        # The time is read under the lock: what one process said is in order.
        line = json.dumps({"at": SYSTEM.now(), "what": what, **more})
        self._socket.sendall(line.encode() + b"\n")

    def lines(self):
        with self._socket.makefile("r") as lines:
            for line in lines:
                yield json.loads(line)


class _Log(logging.Handler):
    """Send each log line to the test, and each traceback as a bug."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        self._wire.say("log", level=record.levelname, text=record.getMessage())
        if record.exc_info:
            self._wire.say("bug", text=self.format(record))


class Ledger:
    """Connect a worker to the fenced resource of the test."""

    def __init__(self, path: str, who: str, member: rink.Rink) -> None:
        self._who = who
        self._member = member
        self._lock = threading.Lock()
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(path)
            self._lines = end.makefile("rw")

    def write(self, role: str, token: int, midway: Callable[[], None] = lambda: None) -> bool:
        """Write to the fenced resource, and return whether it was accepted."""
        left = self._member.session_remaining
        until = SYSTEM.now() + left if left < math.inf else None
        line = {"who": self._who, "role": role, "token": token, "until": until}
        with self._lock:
            print(json.dumps(line), file=self._lines, flush=True)
            midway()
            return bool(json.loads(self._lines.readline()))


class Worker:
    """Run one member and its user code."""

    def __init__(self, given: dict[str, Any], wire: Wire) -> None:
        self.given = given
        self.say = wire.say
        self.who = given["who"]
        self.killer = faults_killing.Killer(wire.say_last)
        self.handles: dict[str, rink.Role] = {}
        self.ledger: Ledger | None = None

    def run(self, commands) -> None:
        given = self.given
        if given.get("shift"):
            self.shift(given["shift"])
        if given.get("arm") is not None:
            faults_killing.install(self.killer)
            self.killer.arm(*given["arm"])
        self.session = rink.Session(given["endpoints"], prefix=given["prefix"], **given["session"])
        self.member = rink.Rink(self.session, "g", name=given["name"], **given["member"])
        try:
            self.member.join()
        except rink.RinkError as error:
            self.say("failed", error=type(error).__name__, text=str(error))
            return
        self.say("joined", name=self.member.name)
        if given.get("ledger"):
            self.ledger = Ledger(given["ledger"], self.who, self.member)
        with self.member.roles(given["roles"]) as self.roles:
            following = threading.Thread(target=self._follow, name="user")
            following.start()
            for name, *arguments in commands:
                answer = getattr(self, name)(*arguments)
                if answer is not None:
                    self.say(name, **answer)
                if name == "leave":
                    break
            self.member.leave()
            following.join()
        self.session.close()
        self.say("left", counts=self.killer.counts)

    def _follow(self) -> None:
        """Act as user code: write to the resource for each role gained."""
        cross = self.killer.cross
        for change in self.roles:
            role = change.role
            if change.gained:
                cross("gained")
                self.say("gained", role=role.name, token=role.token)
                if self.ledger is not None:
                    cross("writing")
                    self.ledger.write(role.name, role.token, lambda: cross("midway"))
                    cross("written")
            else:
                cross("lost")
                self.say("let go", role=role.name, token=role.token)
                cross("let go")

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def arm(self, place: str, nth: int, pause: float) -> dict[str, Any]:
        self.killer.arm(place, nth, pause)
        return {}

    def counts(self) -> dict[str, Any]:
        return {"counts": self.killer.counts}

    def status(self, wait: bool = False) -> dict[str, Any]:
        """Return the member's view, after a wait of at most 1 s if asked."""
        if wait:
            self.member.wait_settled(1.0)
        status = self.member.status()
        return {
            "settled": status.settled,
            "rank": status.rank,
            "ranks": status.ranks,
            "version": status.version,
            "members": [one.name for one in status.members],
            "coordinates": self.member.is_coordinator,
            "held": sorted(status.held),
            "waiting_for": dict(status.waiting_for),
            "draining": status.draining,
            "last_error": status.last_error,
            "live": self.session.is_live,
            "remaining": status.session_remaining,
            "calls": dict(self.session.etcd.calls),
        }

    def count(self) -> dict[str, Any]:
        return {"held": len(self.roles.held)}

    def take(self, names: list[str], tell: bool = False) -> dict[str, Any]:
        """Take handles beside those of `_follow`, and report them if `tell`."""
        found = {name: self.member.get_role(name) for name in names}
        taken = {name: role for name, role in found.items() if role is not None}
        for name, role in taken.items() if tell else ():
            self.say("gained", role=name, token=role.token)
        self.handles |= taken
        return {"taken": sorted(taken)}

    def get_all(self, how: str) -> dict[str, Any]:
        """Take and release every role once, and return the µs for each."""
        take = getattr(self.member, how)
        begin = SYSTEM.now()
        handles = [take(name) for name in self.given["roles"]]
        taken_at = SYSTEM.now()
        got = sum(handle is not None for handle in handles)
        each_us = 1e6 * (taken_at - begin) / len(handles)
        for handle in handles:
            if handle is not None:
                handle.release()
        released_us = 1e6 * (SYSTEM.now() - taken_at) / len(handles)
        return {"got": got, "each_us": each_us, "released_us": released_us}

    def why_not(self, name: str, timeout: float) -> dict[str, Any]:
        """Return the message of the timeout of a wait for a role."""
        try:
            self.member.await_role(name, timeout).release()
        except rink.RoleTimeout as error:
            return {"because": str(error)}
        return {"because": ""}

    def held(self) -> dict[str, Any]:
        """Return the names of the handles whose `is_held` is True now."""
        return {"held": [name for name, role in self.handles.items() if role.is_held]}

    def lost(self, timeout: float) -> dict[str, Any]:
        return {"lost": [n for n, role in self.handles.items() if role.lost.wait(timeout)]}

    def write(self) -> dict[str, Any]:
        """Write with every handle, without a look at `is_held`."""
        assert self.ledger is not None
        wrote = {n: self.ledger.write(n, r.token) for n, r in self.handles.items()}
        return {"accepted": [n for n, ok in wrote.items() if ok]}

    def release(self, tell: bool = False) -> dict[str, Any]:
        for name, role in self.handles.items():
            if tell:
                self.say("let go", role=name, token=role.token)
            role.release()
        self.handles = {}
        return {}

    def shift(self, seconds: int) -> dict[str, Any]:
        """Set the wall clock of this process wrong."""
        return {"how": faults_members_clock.shift(seconds), "wall": SYSTEM.wall()}

    def usage(self) -> dict[str, Any]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"max_rss_kb": used.ru_maxrss, "cpu_s": used.ru_utime + used.ru_stime}

    def leave(self, keep_rank: bool = False) -> None:
        self.member.leave(keep_rank=keep_rank)

    def begin_to_leave(self) -> dict[str, Any]:
        """Leave on another thread, and go on answering commands."""

        def leave() -> None:
            self.member.leave(wait=True)  # however slow the machine is
            self.say("left the group")

        threading.Thread(target=leave, name="leaves").start()
        return {}


def run(connection: socket.socket) -> None:
    """Run the member until it has left."""
    wire = Wire(connection)
    logging.getLogger("rink").addHandler(_Log(wire))
    logging.getLogger("rink").propagate = False
    wire.say("began", pid=os.getpid())
    lines = wire.lines()
    Worker(next(lines), wire).run(lines)
