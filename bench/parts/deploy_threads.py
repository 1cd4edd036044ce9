"""Compare rolling deploys with a thread for each role to those of Go Rink.

The threads run the README's loop, 100 times. Go Rink has a goroutine for each role. The deploys of
both take turns in one run, so that whatever else the machine does hits both alike.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from arena import Arena
from child import Child
from figures import Figure, Outcome, PeerFigure, Spread, at_most, below
from gaps import gaps_of
from peers import gorink
from peers.common import NotToBeHadError

from parts.deploy import MEMBERS, Deploys

TITLE = "Rolling deploy (surge 1) of 5 processes with 100 roles, and a thread for each role"
ROLES = 100


class GoDeploys(Deploys):
    """Replace the processes of Go Rink, which have a goroutine for each role."""

    def __init__(self, arena: Arena, program: Path) -> None:
        self._program = program
        super().__init__(arena, ROLES, rest=gorink.SEES_S)

    def _process(self) -> Child:
        return gorink.start(self._arena, self._program)

    def _join(self, child: Child, name: str, wait: float) -> None:
        child.ask("join", group=self._prefix.strip("/"), names=[name], wait=wait)
        child.ask("hold", name=name, roles=self._roles)

    def _wait_seen(self, leaver: Child, name: str, newcomer: str) -> None:
        """Do nothing: members of Go Rink cannot be asked; `rest` is the wait."""


def run(arena: Arena) -> Outcome:
    count = arena.pick(6, 1)
    notes: list[str] = []
    with ExitStack() as stack:
        systems = [Deploys(arena, ROLES, "threads", rest=gorink.SEES_S)]
        stack.callback(systems[0].close)
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gorink-"))
            program, what = gorink.build(Path(folder))
        except NotToBeHadError as missing:
            notes.append(f"{gorink.PEER}: skipped: {missing}")
        else:
            systems.append(GoDeploys(arena, program))
            stack.callback(systems[1].close)
            notes.append(f"{gorink.PEER}: {what}; a goroutine for each role, deploys by turns")
        for turn in range(count):
            for index, system in enumerate(systems):
                arena.progress("deploys", turn * len(systems) + index, count * len(systems))
                for _ in range(MEMBERS):
                    system.replace()
    ours, *theirs = [[1000 * gap for gap in gaps_of(one.stamps)[0]] for one in systems]
    return Outcome(
        part="deploy_threads",
        title=TITLE,
        figures=_figures(ours, *theirs),
        peers=[peer for gaps in theirs for peer in _peers(gaps)],
        notes=notes,
    )


def _figures(gaps: list[float], theirs: list[float] | None = None) -> list[Figure]:
    ours = Spread.of(gaps)
    peer = Spread.of(theirs) if theirs else None
    return [
        Figure(
            key="deploy_threads.p50",
            what="time that nobody held a role: p50",
            value=ours.p50,
            unit="ms",
            target=at_most(0.8 * peer.p50, "≤ 0.8 x Go Rink's") if peer else None,
            note=f"{len(gaps)} moves, p99 {ours.p99:.1f} ms",
            more={"gaps_ms": [round(one, 3) for one in sorted(gaps)]},
        ),
        Figure(
            key="deploy_threads.most",
            what="the longest",
            value=ours.most,
            unit="ms",
            target=below(peer.most, "< Go Rink's") if peer else None,
        ),
    ]


def _peers(gaps: list[float]) -> list[PeerFigure]:
    spread = Spread.of(gaps)
    more = {"moves": len(gaps), "p99": spread.p99}
    return [
        PeerFigure(peer=gorink.PEER, key=f"deploy_threads.{what}", value=one, unit="ms", more=more)
        for what, one in (("p50", spread.p50), ("most", spread.most))
    ]
