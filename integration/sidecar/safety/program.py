"""Hold roles by a sidecar's stream, and write before the told end.

This is one program beside a sidecar, with only the standard library. It reads CLOCK_BOOTTIME before
each write, and writes only if its end is further away than a write takes. It reports to the test
over a socket, in lines of JSON: `gained`, `let go`, and `write`, which the test answers.

    python -I -S program.py FD     forks programs on requests of the test at this socket

A turn ends for the program at the end that it knows, or with its answer to `lost`. It never works
again under the token of a turn that is over.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import os
import queue
import random
import signal
import socket
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
from typing import Any

TICK_S = 0.03
LEAD_S = 0.05
"""Seconds that a write may take: it begins only if the end is further away."""
MAX_PAUSE_S = 0.005
"""Seconds between check and write, at most."""
RETRY_S = 0.03
CALL_TIMEOUT_S = 5.0
STREAM_TIMEOUT_S = 60.0

BROKEN = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError)
"""Errors of a connection, or of an answer that is no sidecar's. HTTPError is an OSError."""


def now() -> float:
    """Return the time of CLOCK_BOOTTIME in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Turn:
    """One role that this program may work under until its end."""

    def __init__(self, role: str, token: int, grant: str, until: float) -> None:
        self.role, self.token, self.grant, self.until = role, token, grant, until
        self.is_lost = False


class Program:
    """Run one program.

    Args:
        wire: the socket to the test.
        settings: `url`, `host` of the sidecar, `roles`, `consumer`, `alive` in seconds or None,
            `on_close`, `resumes`, `obeys_proxy`, `obstinate` (it answers no loss before its end)
            and `seed`.
    """

    def __init__(self, wire: socket.socket, settings: dict[str, Any]) -> None:
        self.url, self.host, self.roles = settings["url"], settings["host"], settings["roles"]
        self.consumer, self.alive = settings["consumer"], settings["alive"]
        self.on_close, self.resumes = settings["on_close"], settings["resumes"]
        self.obstinate = settings["obstinate"]
        self.random = random.Random(settings["seed"])
        proxies = [] if settings["obeys_proxy"] else [urllib.request.ProxyHandler({})]
        self.opener = urllib.request.build_opener(*proxies)
        self.wire, self.lines = wire, wire.makefile("r")
        self.lock = threading.RLock()
        self.grant, self.last_id = "", ""
        self.turns: dict[str, Turn] = {}
        self.done: set[tuple[str, int]] = set()
        self.former: list[Turn] = []
        self.dropped: set[str] = set()
        self.stream: Any = None
        self.deaf = self.mute = False
        self.written: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[Turn] = queue.SimpleQueue()

    def run(self) -> None:
        """Work until killed."""
        steps = [self.listen, self.answer, self.obey, *([self.renew] if self.alive else [])]
        for step in steps:
            threading.Thread(target=fatal, args=(step,), daemon=True).start()
        while True:
            with self.lock:
                turns = list(self.turns.values())
            for turn in turns:
                self.serve(turn)
            time.sleep(TICK_S)

    # ── the work ─────────────────────────────────────────────────────────────────────────────

    def serve(self, turn: Turn) -> None:
        """Write once under a turn, or end the turn."""
        until, checked = turn.until, now()
        if checked >= until or (turn.is_lost and not self.obstinate):
            self.stop(turn)
        elif checked + LEAD_S < until:
            time.sleep(self.random.random() * MAX_PAUSE_S)
            self.report("write", turn.role, turn.token, now(), until, checked)
            self.written.get()

    def stop(self, turn: Turn) -> None:
        """Note that the work has ended, and only then answer."""
        with self.lock:
            if self.turns.get(turn.role) is not turn:
                return
            del self.turns[turn.role]
            self.done.add((turn.role, turn.token))
            self.former.append(turn)
            self.report("let go", turn.role, turn.token, min(now(), turn.until))
        self.answers.put(turn)

    def report(self, what: str, role: str, token: int, at: float, *more: float) -> None:
        """Send a report to the test."""
        with self.lock:
            self.wire.sendall(json.dumps([what, role, token, at, *more]).encode() + b"\n")

    # ── what the sidecar says ────────────────────────────────────────────────────────────────

    def listen(self) -> None:
        """Keep a stream open: resume it, or hold the roles anew."""
        while True:
            try:
                with self.open_stream() as stream:
                    self.read(stream)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 410:
                    self.grant = ""
            except BROKEN:
                pass
            if not self.resumes:
                self.grant = ""
            time.sleep(RETRY_S)

    def open_stream(self) -> Any:
        """Return a new stream, which resumes the former one if possible."""
        if self.grant:
            headers, body = {"Last-Event-ID": self.last_id}, {"grant": self.grant}
        else:
            body = {"roles": self.roles, "consumer": self.consumer, "on_close": self.on_close}
            headers, body = {}, {**body, **({"alive": self.alive} if self.alive else {})}
        stream = self.call("hold", body, STREAM_TIMEOUT_S, Accept="text/event-stream", **headers)
        if not stream.headers.get("content-type", "").startswith("text/event-stream"):
            stream.close()
            raise ValueError("no stream of events")
        self.stream = stream
        return stream

    def read(self, stream: Any) -> None:
        """Take the events of a stream until it ends."""
        kind = data = ""
        for raw in stream:
            while self.deaf:
                time.sleep(TICK_S)
            line = raw.decode().rstrip("\r\n")
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "event":
                kind = value
            elif name == "data":
                data = value
            elif not line and data:  # other lines are comments
                self.take(stream, kind, json.loads(data))
                kind = data = ""

    def take(self, stream: Any, kind: str, fields: dict[str, Any]) -> None:
        """Take one event, unless the stream was closed here meanwhile."""
        with self.lock:
            if stream is not self.stream:
                return
            if kind in ("granted", "lost"):
                self.told(fields)
            elif kind == "renewed":
                for role in fields["roles"]:
                    turn = self.turns.get(role)
                    if turn and turn.grant == fields["grant"]:
                        self.move_on(turn, fields["until_ms"] / 1000)
            if kind in ("granted", "lost", "renewed", "waiting"):
                self.grant = str(fields["grant"])

    def told(self, fields: dict[str, Any]) -> None:
        """Take the end of one turn, which may be new."""
        role, token, until = fields["role"], int(fields["token"]), fields["until_ms"] / 1000
        with self.lock:
            turn = self.turns.get(role)
            if turn is None or turn.token != token:
                if (role, token) in self.done or fields["grant"] in self.dropped:
                    return
                if turn is not None:
                    self.stop(turn)
                turn = Turn(role, token, str(fields["grant"]), until)
                at = now()
                if at >= until:  # read too late
                    self.done.add((role, token))
                    self.former.append(turn)
                    self.answers.put(turn)
                    return
                self.turns[role] = turn
                self.report("gained", role, token, at, until)
            self.move_on(turn, until)
            turn.is_lost = turn.is_lost or fields["state"] == "lost"

    def move_on(self, turn: Turn, until: float) -> None:
        """Note a later end."""
        if until > turn.until:
            turn.until = until
            self.report("until", turn.role, turn.token, now(), until)

    # ── what it says to the sidecar ──────────────────────────────────────────────────────────

    def call(self, path: str, body: dict[str, Any], timeout: float, **headers: str) -> Any:
        """Make a call of the API, and return the open answer."""
        request = urllib.request.Request(
            f"{self.url}/v1/{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Host": self.host, **headers},
        )
        return self.opener.open(request, timeout=timeout)

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        """Make a call, and return its JSON, or None after a failure."""
        try:
            with self.call(path, body, CALL_TIMEOUT_S) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            error.close()
        except BROKEN:
            pass
        return None

    def renew(self) -> None:
        """Renew the grant, and take the new ends."""
        while True:
            time.sleep(self.alive / 4)
            if self.grant and not self.mute:
                fields = self.ask("renew", {"grant": self.grant})
                if fields and not self.deaf:
                    try:
                        for held in fields["held"]:
                            self.told(held)
                    except BROKEN:
                        pass

    def answer(self) -> None:
        """Answer for each turn that is over, and wait for its role again."""
        while True:
            turn = self.answers.get()
            body = {"grant": turn.grant, "role": turn.role, "token": turn.token}
            self.ask("release", body)
            if turn.grant == self.grant and not turn.is_lost:  # given back: it waits no more
                self.hold_anew()

    def hold_anew(self) -> None:
        """Forget the grant, and hold the roles as another consumer."""
        with self.lock:
            self.dropped.add(self.grant)
            self.grant = ""
            self.close_stream()

    def close_stream(self) -> None:
        """Close the connection of the stream; its reader sees the end.

        If a close gives the roles back, the work ends before it.
        """
        with self.lock:
            if self.on_close == "release":
                self.dropped.update(turn.grant for turn in self.turns.values())
                for turn in list(self.turns.values()):
                    self.stop(turn)
            stream, self.stream = self.stream, None
            with contextlib.suppress(BROKEN):
                stream.fp.raw._sock.shutdown(socket.SHUT_RDWR)

    # ── what the test has it do ──────────────────────────────────────────────────────────────

    def obey(self) -> None:
        """Execute the commands of the test, and take its answers to writes."""
        for line in self.lines:
            said = json.loads(line)
            if isinstance(said, bool):
                self.written.put(said)
                continue
            match said:
                case ["deaf", deaf, mute]:
                    self.deaf, self.mute = deaf, mute
                case ["obstinate"]:
                    self.obstinate = True
                case ["reopen"]:
                    self.close_stream()
                case ["anew"]:
                    self.hold_anew()
                case ["revisit"]:
                    threading.Thread(target=fatal, args=(self.revisit,), daemon=True).start()
        os._exit(0)

    def revisit(self) -> None:
        """Use all grants and tokens of turns that are over."""
        with self.lock:
            working = {turn.grant for turn in self.turns.values()} - {self.grant}
            former = [turn for turn in self.former[-5:] if turn.grant not in working]
        for turn in former:
            grant = {"grant": turn.grant}
            self.ask("release", {**grant, "role": turn.role, "token": turn.token})
            if turn.grant == self.grant:
                continue
            self.ask("renew", grant)
            self.ask("release", {**grant, "role": turn.role})
            try:
                headers = {"Accept": "text/event-stream", "Last-Event-ID": "0:1"}
                self.call("hold", grant, CALL_TIMEOUT_S, **headers).close()
            except urllib.error.HTTPError as error:
                error.close()
            except BROKEN:
                pass


def fatal(step: Any) -> None:
    """Run a thread whose error ends the program."""
    try:
        step()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def fork(wire: int, requests: socket.socket) -> None:
    """Fork one program, which reads its settings from its socket."""
    if os.fork():
        os.close(wire)
        return
    code = 1
    try:
        requests.close()
        ours = socket.socket(fileno=wire)
        line = b""
        while not line.endswith(b"\n"):
            line += ours.recv(1)
        settings = json.loads(line)
        os.environ.update(settings["env"])
        ours.sendall(json.dumps(["began", os.getpid()]).encode() + b"\n")
        Program(ours, settings).run()
    except (BrokenPipeError, ConnectionResetError):
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Fork programs until the socket of requests ends."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    gc.freeze()
    while True:
        request, wires, _, _ = socket.recv_fds(requests, 16, 1)
        if not request:
            os.killpg(0, signal.SIGKILL)
        fork(wires[0], requests)


if __name__ == "__main__":
    main()
