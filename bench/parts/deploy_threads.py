"""A rolling deploy where each process waits for each role on a thread of its own, beside Go Rink.

That is the README's loop, 100 times. Deploys of ours and of Go Rink, which has a goroutine for each
role, take turns in one run, so that whatever else the machine does hits both alike.
"""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from arena import Arena
from child import Child
from figures import Figure, Outcome, PeerFigure, Spread, at_most
from gaps import gaps_of
from peers import gorink
from peers.common import NotToBeHadError

TITLE = "Rolling deploy (surge 1) of 5 processes with 100 roles, and a thread for each role"
MEMBERS = 5
ROLES = 100
NEW_WAIT_S = 600.0  # newcomers wait for somebody's rank
FIRST_WAIT_S = 0.01
HELD_WITHIN_S = 30.0


class Deploys(ABC):
    """Five processes of one system, which are replaced one by one."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.group = arena.prefix().strip("/")
        self.gaps: list[float] = []  # ms, for each time that a role moved
        self._running: dict[str, Child] = {}
        self._count = 0
        self._stamps: list[Any] = []
        for _ in range(MEMBERS):
            self._start(FIRST_WAIT_S)
        self._settle()

    @abstractmethod
    def make(self) -> Child:
        """Start a process."""

    @abstractmethod
    def join(self, child: Child, name: str, wait: float) -> None:
        """Have it join, and wait for every role."""

    @abstractmethod
    def see(self, leaver: Child, name: str, newcomer: str) -> None:
        """Wait until the one that is to leave knows of its successor, and all are at rest."""

    def deploy(self) -> None:
        """Replace each process once, and note for how long nobody held each role that moved."""
        self._stamps.clear()
        for name, child in list(self._running.items()):
            newcomer = self._start(NEW_WAIT_S)
            self.see(child, name, newcomer)
            # The answer comes a while after it is over, and takes no time from the new owners.
            self._stamps += child.ask("leave", names=[name], quiet=0.3)["stamps"] or []
            del self._running[name]
            child.close()
            self._settle()
        self.gaps += [1000 * gap for gap in gaps_of(self._stamps)[0]]

    def _start(self, wait: float) -> str:
        self._count += 1
        name = f"m{self._count}"
        self._running[name] = self.make()
        self.join(self._running[name], name, wait)
        return name

    def _settle(self) -> None:
        """Wait until all are ranked, and every role is held."""
        for name, child in self._running.items():
            child.ask("settled", names=[name], size=MEMBERS)
        already = 0 if self._count == MEMBERS else ROLES
        ends = time.monotonic() + HELD_WITHIN_S
        while True:
            for name, child in self._running.items():
                self._stamps += child.ask("stamped", name=name)["stamps"] or []
            moves = [{"gained": 1, "let go": -1}[what] for _, what, _ in self._stamps]
            held = already + sum(moves)
            if held == ROLES:
                return
            if time.monotonic() > ends:
                raise RuntimeError(f"{held} of {ROLES} roles held, after {HELD_WITHIN_S:g} s")
            time.sleep(0.05)

    def close(self) -> None:
        for child in self._running.values():
            child.kill()
            child.close()


class Ours(Deploys):
    """Rink for Python: a thread for each role."""

    def make(self) -> Child:
        return self.arena.member(f"{self.group}/", ttl=30)

    def join(self, child: Child, name: str, wait: float) -> None:
        settings = {"rebalance_delay": wait, "initial_delay": wait}
        child.ask("join", group="g", names=[name], settings=settings)
        child.ask("hold", name=name, roles=ROLES, how="threads")

    def see(self, leaver: Child, name: str, newcomer: str) -> None:
        leaver.ask("knows", name=name, other=newcomer)
        time.sleep(gorink.SEES_S)


class GoRink(Deploys):
    """Go Rink: a goroutine for each role."""

    def __init__(self, arena: Arena, program: Path) -> None:
        self._program = program
        super().__init__(arena)

    def make(self) -> Child:
        return gorink.start(self.arena, self._program)

    def join(self, child: Child, name: str, wait: float) -> None:
        child.ask("join", group=self.group, names=[name], wait=wait)
        child.ask("hold", name=name, roles=ROLES)

    def see(self, leaver: Child, name: str, newcomer: str) -> None:
        time.sleep(gorink.SEES_S)


def run(arena: Arena) -> Outcome:
    count = arena.pick(6, 1)
    notes: list[str] = []
    with ExitStack() as stack:
        ours = Ours(arena)
        stack.callback(ours.close)
        systems: list[Deploys] = [ours]
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gorink-"))
            program, what = gorink.build(Path(folder))
        except NotToBeHadError as missing:
            notes.append(f"{gorink.PEER}: skipped: {missing}")
        else:
            systems.append(GoRink(arena, program))
            stack.callback(systems[-1].close)
            notes.append(f"{gorink.PEER}: {what}; a goroutine for each role, deploys by turns")
        for turn in range(count):
            for index, system in enumerate(systems):
                arena.progress("deploys", turn * len(systems) + index, count * len(systems))
                system.deploy()
    return Outcome(
        part="deploy_threads",
        title=TITLE,
        figures=_figures(ours.gaps, systems[1].gaps if systems[1:] else None),
        peers=_peers(systems[1].gaps) if systems[1:] else [],
        notes=notes,
    )


def _figures(found: list[float], theirs: list[float] | None) -> list[Figure]:
    ours = Spread.of(found)
    peer = Spread.of(theirs) if theirs else None
    return [
        Figure(
            key="deploy_threads.p50",
            what="time that nobody held a role: p50",
            value=ours.p50,
            unit="ms",
            target=at_most(0.8 * peer.p50, "≤ 0.8 x Go Rink's") if peer else None,
            note=f"{len(found)} moves, p99 {ours.p99:.1f} ms",
            more={"gaps_ms": [round(one, 3) for one in sorted(found)]},
        ),
        Figure(
            key="deploy_threads.most",
            what="the longest",
            value=ours.most,
            unit="ms",
            target=at_most(peer.most, "≤ Go Rink's") if peer else None,
        ),
    ]


def _peers(found: list[float]) -> list[PeerFigure]:
    spread = Spread.of(found)
    more = {"moves": len(found), "p99": spread.p99}
    return [
        PeerFigure(peer=gorink.PEER, key=f"deploy_threads.{what}", value=one, unit="ms", more=more)
        for what, one in (("p50", spread.p50), ("most", spread.most))
    ]
