"""Measure the same figures of other systems.

They are Go Rink v2 on etcd, and kazoo's SetPartitioner on ZooKeeper. Their figures stand beside
ours in the tables of the other parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from arena import Arena
from figures import Figure, Outcome, PeerFigure
from peers import gorink, partitioner
from peers.common import APART_S, SETTLING, NotToBeHadError

TITLE = (
    f"Five processes started {APART_S:g} s apart: settled after (newcomers wait {SETTLING:g} s for "
    "others, in each of the systems)"
)
PEERS: dict[str, Callable[[Arena], tuple[list[PeerFigure], list[str]]]] = {
    "Go Rink v2": gorink.measure,
    "kazoo SetPartitioner": partitioner.measure,
}


def run(arena: Arena) -> Outcome:
    outcome = Outcome(part="peers", title=TITLE, figures=[_ours(arena)])
    for name, measure in PEERS.items():
        try:
            figures, notes = measure(arena)
        except NotToBeHadError as missing:
            outcome.notes.append(f"{name}: skipped: {missing}")
            continue
        outcome.peers.extend(figures)
        outcome.notes.extend(f"{name}: {note}" for note in notes)
    return outcome


def _ours(arena: Arena) -> Figure:
    arena.progress("Rink: five at once", 0, 1)
    prefix = arena.prefix()
    settings = {"initial_delay": SETTLING}
    children = [arena.member(prefix) for _ in range(5)]
    for child in children:
        child.ask("calls")  # it has started
    for index, child in enumerate(children):
        child.tell("join", group="g", names=[f"m{index}"], settings=settings)
        time.sleep(APART_S)
    began = min(child.answer()["asked_at"] for child in children)
    for child in children:
        child.tell("settled", size=5)
    settled = max(child.answer()["at"] for child in children)
    for child in children:
        child.close()
    return Figure(key="settle.5", what="settled", value=settled - began, unit="s")
