"""Define the faults, each a generator that yields its waits in seconds."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from safety.running import HOLD_S, TTL_S, Program, Sidecar
from safety.stage import Stage

Steps = Iterator[float]

HELD_S = 2 * HOLD_S
"""Seconds for which bytes are held: twice the hold."""


@attrs.frozen
class Fault:
    """Describe one fault.

    Attributes:
        name: the name of its row.
        says: the row, in words.
        steps: the generator that executes it.
        is_dear: whether a run takes much time or work, so that there are fewer runs.
        settings: the settings of the programs, see `Stage`.
    """

    name: str
    says: str
    steps: Callable[[Stage], Steps]
    is_dear: bool = False
    settings: dict[str, Any] = attrs.field(factory=dict)


# ── stopped for twice the TTL ────────────────────────────────────────────────────────────────


def stop_program(stage: Stage) -> Steps:
    """Stop a holder; another program of its pod gets the turn meanwhile."""
    holder = stage.holder()
    holder.freeze()
    yield 2 * TTL_S
    holder.thaw()
    yield 0.3


def stop_sidecar(stage: Stage) -> Steps:
    """Stop the sidecar of a holder; the other sidecar gets the role meanwhile."""
    sidecar = stage.sidecar_of(stage.holder())
    sidecar.freeze()
    yield 2 * TTL_S
    sidecar.thaw()
    yield 0.3


def stop_both(stage: Stage) -> Steps:
    """Stop a holder and its sidecar, and continue them in any order."""
    holder = stage.holder()
    both: list[Program | Sidecar] = [holder, stage.sidecar_of(holder)]
    stage.random.shuffle(both)
    for one in both:
        one.freeze()
        yield stage.random.uniform(0, 0.05)
    yield 2 * TTL_S
    stage.random.shuffle(both)
    for one in both:
        one.thaw()
        yield stage.random.uniform(0, 0.2)
    yield 0.3


def hold_bytes(stage: Stage) -> Steps:
    """Hold the bytes between a holder and its sidecar, then deliver them.

    This holds both directions.
    """
    wire = stage.wires[stage.holder().who]
    wire.silence()
    yield HELD_S
    wire.heal()
    yield 0.3


# ── old grants, old ids, names ───────────────────────────────────────────────────────────────


def resume_with_old_ids(stage: Stage) -> Steps:
    """Close streams and resume them with the last id.

    Also use the grants of turns that are over.
    """
    for _ in range(4):
        program = stage.holder()
        program.say(stage.random.choice(["reopen", "reopen", "anew"]))
        yield stage.random.uniform(0, 0.3)
        program.say("revisit")
        yield stage.random.uniform(0, 0.3)
    yield 0.5


def use_grants_of_a_former_life(stage: Stage) -> Steps:
    """Kill a sidecar, and send its next life the former grants and tokens.

    They are sent repeatedly.
    """
    sidecar = stage.sidecar_of(stage.holder())
    sidecar.kill()
    yield stage.random.uniform(0, 0.3)
    sidecar.start()
    for _ in range(15):
        for program in stage.beside(sidecar):
            program.say("revisit")
        yield 0.2


def share_a_name(stage: Stage) -> Steps:
    """Let programs of one name drop their grants and hold the roles again."""
    for _ in range(5):
        stage.holder().say("anew")
        yield stage.random.uniform(0, 0.5)
    yield 0.5


# ── ends of processes ────────────────────────────────────────────────────────────────────────


def kill_sidecar(stage: Stage) -> Steps:
    """Kill a holder's sidecar; it is back within a second."""
    sidecar = stage.sidecar_of(stage.holder())
    sidecar.kill()
    yield stage.random.uniform(0, 1.0)
    sidecar.start()
    yield 1.0


def restart_program(stage: Stage) -> Steps:
    """Kill a holder and start it again within 0.2 s, twice."""
    for _ in range(2):
        holder = stage.holder()
        holder.kill()
        yield stage.random.uniform(0, 0.2)
        stage.again(holder)
        yield stage.random.uniform(0, 0.5)
    yield 0.5


def read_slowly(stage: Stage) -> Steps:
    """Let a holder read nothing, and write until its last known end."""
    holder = stage.holder()
    holder.say("deaf", True, stage.random.random() < 0.5)
    yield HELD_S
    holder.say("deaf", False, False)
    yield 0.5


def mislead_by_a_proxy(stage: Stage) -> Steps:
    """Kill a holder while half of the programs use a nonsense proxy."""
    yield from restart_program(stage)


# ── our own ──────────────────────────────────────────────────────────────────────────────────


def hurry_out(stage: Stage) -> Steps:
    """Send a sidecar three SIGTERMs, and start it again.

    Its programs answer no loss. The third signal ends the process amid its leave. Programs work on
    until their ends.
    """
    sidecar = stage.sidecar_of(stage.holder())
    for program in stage.beside(sidecar):
        program.say("obstinate")
    for _ in range(3):
        sidecar.term()
        yield stage.random.uniform(0, 0.4)
    sidecar.kill()
    yield stage.random.uniform(0, 0.3)
    sidecar.start()
    yield 1.0


def storm(stage: Stage) -> Steps:
    """Start six of these faults at any moments of three seconds.

    A fault may hit a target of another fault.
    """
    for _ in range(6):
        stage.meanwhile(stage.random.choice(SMALL)(stage, random.Random(stage.random.random())))
        yield stage.random.uniform(0, 0.8)


def _freeze_any(stage: Stage, draw: random.Random) -> Steps:
    one = draw.choice([*stage.sidecars, *stage.programs])
    one.freeze()
    yield draw.uniform(0, 1.5 * TTL_S)
    one.thaw()


def _kill_sidecar(stage: Stage, draw: random.Random) -> Steps:
    sidecar = draw.choice(stage.sidecars)
    sidecar.kill()
    yield draw.uniform(0, 1.0)
    sidecar.start()


def _restart_program(stage: Stage, draw: random.Random) -> Steps:
    program = stage.any_program()
    program.kill()
    yield draw.uniform(0, 0.2)
    stage.again(program)


def _say(stage: Stage, draw: random.Random) -> Steps:
    program = stage.any_program()
    command = draw.choice([["anew"], ["revisit"], ["deaf", True, True], ["obstinate"]])
    program.say(*command)
    yield draw.uniform(0, HELD_S)
    if command[0] == "deaf":
        program.say("deaf", False, False)


SMALL = (_freeze_any, _freeze_any, _kill_sidecar, _restart_program, _say)


# ── a proxy that answers nonsense ────────────────────────────────────────────────────────────

NONSENSE = (
    b"",
    b"\x00\xff\xfe nonsense\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<h1>Please log in</h1>",
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: granted\ndata: {}\n\n",
    (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: granted\ndata: "
        b'{"role":"r","token":1,"grant":"x","state":"held","until_ms":1,"life":"0"}\n\n'
    ),
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"held": null}',
    b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\ncut short",
)


class NonsenseProxy:
    """Answer each connection with nonsense, in turn, until closed."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, name="nonsense")
        self._thread.start()
        self.count = 0

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(1.0)
                try:
                    connection.recv(65536)
                    connection.sendall(NONSENSE[self.count % len(NONSENSE)])
                except OSError:
                    pass
            self.count += 1

    def close(self) -> None:
        """End the proxy."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._listener.close()


FAULTS = (
    Fault(
        "program stopped",
        "a program stopped for twice the ttl",
        stop_program,
        True,
        {"alive": [1.0]},
    ),
    Fault("sidecar stopped", "its sidecar stopped for twice the ttl", stop_sidecar, True),
    Fault("both stopped", "both stopped for twice the ttl", stop_both, True),
    Fault(
        "bytes held",
        "a proxy between program and sidecar holds bytes for twice the hold",
        hold_bytes,
        True,
        {"wired": True},
    ),
    Fault(
        "old ids",
        "streams resumed with old ids, and grants of turns that are over",
        resume_with_old_ids,
        settings={"reopens": True},
    ),
    Fault(
        "former life",
        "grants and tokens of a former life of the sidecar",
        use_grants_of_a_former_life,
    ),
    Fault(
        "one name",
        "all programs of a sidecar have one name",
        share_a_name,
        settings={"consumer": "same", "reopens": True},
    ),
    Fault("sidecar killed", "the sidecar killed, and back within 1 s", kill_sidecar),
    Fault(
        "slow reader",
        "a program that reads no stream for twice the hold, and writes by its last end",
        read_slowly,
    ),
    Fault(
        "nonsense proxy",
        "http_proxy leads to nonsense; half of the programs obey it",
        mislead_by_a_proxy,
        settings={"obedient": 1},
    ),
    Fault("program restarted", "a program killed, and back within 0.2 s", restart_program),
    Fault("hurried out", "three SIGTERMs while programs answer no loss", hurry_out, True),
    Fault("storm", "six faults at once, of processes and of programs", storm, True),
)
