"""Measure a rolling deploy: five processes are replaced one by one.

Each new process starts before an old one leaves.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import Any

from arena import Arena
from child import Child
from figures import Figure, Outcome, Spread, at_most
from gaps import gaps_of

TITLE = "Rolling deploy (surge 1) of 5 processes with 1,000 roles"
MEMBERS = 5
ROLES = 1000
FIRST_WAIT_S = 0.01
NEW_WAIT_S = 600.0  # a newcomer waits for the rank of a leaver
HELD_TIMEOUT_S = 30.0


class Deploys:
    """Replace the five processes of one system, the oldest first.

    Attributes:
        stamps: the notes of all members since the first five held every role.
    """

    def __init__(self, arena: Arena, roles: int, how: str = "set", *, rest: float = 0.0) -> None:
        self._arena, self._roles, self._how, self._rest = arena, roles, how, rest
        self._prefix = arena.prefix()
        self._names = map("m{}".format, itertools.count(1))
        self._running: dict[str, Child] = {}  # the oldest is the first
        self.stamps: list[Any] = []
        for _ in range(MEMBERS):
            self._start(FIRST_WAIT_S)
        self._settle(more=roles)
        self.stamps.clear()

    def replace(self) -> None:
        """Replace the oldest process by a new one, and take their notes."""
        name, child = next(iter(self._running.items()))
        newcomer = self._start(NEW_WAIT_S)
        self._wait_seen(child, name, newcomer)
        time.sleep(self._rest)
        # The answer comes after the hand-over, and takes no time from the new owners.
        self.stamps += child.ask("leave", names=[name], quiet=0.3)["stamps"] or []
        del self._running[name]
        child.close()
        self._settle(more=0)

    def version(self) -> int:
        """Return the group's version, as the newest member sees it."""
        name = next(reversed(self._running))
        return self._running[name].ask("info", name=name)["version"]

    def close(self) -> None:
        """Kill all processes: their leaves are not measured."""
        for child in self._running.values():
            child.kill()
            child.close()

    def _start(self, wait: float) -> str:
        name = next(self._names)
        self._running[name] = self._process()
        self._join(self._running[name], name, wait)
        return name

    def _process(self) -> Child:
        return self._arena.member(self._prefix, ttl=30)

    def _join(self, child: Child, name: str, wait: float) -> None:
        settings = {"rebalance_delay": wait, "initial_delay": wait}
        child.ask("join", group="g", names=[name], settings=settings)
        child.ask("hold", name=name, roles=self._roles, how=self._how)

    def _wait_seen(self, leaver: Child, name: str, newcomer: str) -> None:
        """Wait until the leaver knows its successor.

        Otherwise it would leave as the last member does.
        """
        leaver.ask("knows", name=name, other=newcomer)

    def _settle(self, more: int) -> None:
        """Wait until all members have ranks, and `more` roles are held."""
        for name, child in self._running.items():
            child.ask("settled", names=[name], size=MEMBERS)
        ends = time.monotonic() + HELD_TIMEOUT_S
        while (held := self._held()) != more:
            if time.monotonic() > ends:
                held += self._roles - more
                raise RuntimeError(f"{held} of {self._roles} roles held after {HELD_TIMEOUT_S:g} s")
            time.sleep(0.05)

    def _held(self) -> int:
        """Take all notes; return how many roles were gained and not let go."""
        for name, child in self._running.items():
            self.stamps += child.ask("stamped", name=name)["stamps"] or []
        count = Counter(what for _, what, _ in self.stamps)
        return count["gained"] - count["let go"]


def run(arena: Arena) -> Outcome:
    deploys = Deploys(arena, ROLES, "set")
    before = deploys.version()
    for index in range(MEMBERS):
        arena.progress("replacing", index, MEMBERS)
        deploys.replace()
    versions = deploys.version() - before
    deploys.close()
    return Outcome(part="deploy", title=TITLE, figures=_figures(deploys.stamps, versions))


def _figures(stamps: list[Any], versions: int) -> list[Figure]:
    moves = Counter(role for _, what, role in stamps if what == "gained")
    gaps = [1000 * gap for gap in gaps_of(stamps)[0]]
    spread = Spread.of(gaps)
    return [
        Figure(
            key="deploy.moves",
            what="moves per role, the most",
            value=max(moves.values()),
            unit="",
            target=at_most(1, "1"),
            note=f"{len(moves)} roles moved, {moves.total() / ROLES:g} times on average",
        ),
        Figure(
            key="deploy.versions",
            what="versions proclaimed",
            value=versions,
            unit="",
            target=at_most(MEMBERS, "one per process"),
        ),
        Figure(
            key="deploy.gap",
            what="longest time that nobody held a role",
            value=spread.most,
            unit="ms",
            note=f"p50 {spread.p50:.1f} ms, p99 {spread.p99:.1f} ms",
            more={"gaps_ms": [round(one, 3) for one in sorted(gaps)]},
        ),
    ]
