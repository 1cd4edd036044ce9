"""Measure kazoo's SetPartitioner on ZooKeeper.

The program on it is `kazoo_member.py`. No member waits in reserve: each join and each leave
partitions the whole set anew. So every item that any member has let go of counts, not only those of
the leaver.
"""

from __future__ import annotations

import importlib.util
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from arena import Arena
from child import Child
from figures import PeerFigure, Spread
from gaps import gaps_of

from peers import zookeeper
from peers.common import APART_S, SETTLING, NotToBeHadError, handover_figures

PEER = "kazoo SetPartitioner"
PROGRAM = str(Path(__file__).with_name("kazoo_member.py"))
SOONEST = 0.1  # time_boundary where it would be in the way: its default is 30 s
TIMEOUT = 3.0  # of a session, as the crashes of ours
HANDOVERS = [(1, 20, 3), (100, 5, 1), (1000, 3, 1)]


def measure(arena: Arena) -> tuple[list[PeerFigure], list[str]]:
    if importlib.util.find_spec("kazoo") is None:
        raise NotToBeHadError("kazoo is not installed here (make bench does it)")
    found: list[PeerFigure] = []
    with zookeeper.running() as server:
        for roles, times, quick_times in HANDOVERS:
            found += _handovers(arena, server, roles, arena.pick(times, quick_times))
        found += [_writes(arena, server, roles) for roles in (10, 1000)]
        found.append(_settling(arena, server))
        found.append(_crash(arena, server))
    note = (
        f"kazoo {version('kazoo')} on ZooKeeper {server.version}, one node, data in memory, "
        f"tickTime {zookeeper.TICK_MS} ms, session timeout {TIMEOUT:g} s; time_boundary "
        f"{SOONEST:g} s, where its default of 30 s would be most of each figure, and "
        f"{SETTLING:g} s where five start; the documented loop, woken by state_change_event "
        "instead of polling. Each change moves most of the set, and lets go of all of it."
    )
    return found, [note]


def _start(server: zookeeper.ZooKeeper) -> Child:
    return Child(PROGRAM, json.dumps({"hosts": server.hosts, "timeout": TIMEOUT}))


def _join(child: Child, group: str, name: str, roles: int, boundary: float = SOONEST) -> None:
    child.ask("join", group=group, names=[name], boundary=boundary, roles=roles)


def _settled(members: dict[str, Child], roles: int) -> list[Any]:
    """Wait until each has its part of the set; all notes since the last time."""
    stamps: list[Any] = []
    order = sorted(members)
    for index, name in enumerate(order):
        mine = len(range(index, roles, len(order)))
        stamps += members[name].ask("settled", name=name, roles=mine)["stamps"]
    return stamps


def _handovers(
    arena: Arena, server: zookeeper.ZooKeeper, roles: int, count: int
) -> list[PeerFigure]:
    group = arena.prefix().strip("/")
    children = [_start(server), _start(server)]
    _join(children[0], group, "m00000", roles)
    _settled({"m00000": children[0]}, roles)
    gaps, spans = [], []
    for turn in range(count + 1):
        arena.progress(f"kazoo: {roles:,} items", turn, count)
        leaver, heir = f"m{turn:05d}", f"m{turn + 1:05d}"
        old, new = children[turn % 2], children[(turn + 1) % 2]
        _join(new, group, heir, roles)
        time.sleep(3 * SOONEST)
        _settled({leaver: old, heir: new}, roles)
        left = old.ask("leave", names=[leaver], quiet=0.3)
        stamps = left["stamps"] + _settled({heir: new}, roles)
        if turn:
            gap, span = gaps_of(one for one in stamps if one[0] >= left["asked_at"])
            gaps.append(gap)
            spans.append(span)
    for child in children:
        child.close()
    return handover_figures(PEER, roles, gaps, spans)


def _writes(arena: Arena, server: zookeeper.ZooKeeper, roles: int) -> PeerFigure:
    arena.progress(f"kazoo: writes with {roles:,} items", 0, 1)
    group = arena.prefix().strip("/")
    members = {name: _start(server) for name in ("a", "b", "c")}
    for name, child in members.items():
        _join(child, group, name, roles)
    time.sleep(1)
    _settled(members, roles)
    before, _ = server.counts()
    members["new"] = _start(server)
    _join(members["new"], group, "new", roles)
    time.sleep(1)
    _settled(members, roles)
    members.pop("b").ask("leave", names=["b"])
    time.sleep(1)
    _settled(members, roles)
    after, _ = server.counts()
    for child in members.values():
        child.close()
    return PeerFigure(peer=PEER, key=f"writes.{roles}.all", value=after - before, unit="")


def _settling(arena: Arena, server: zookeeper.ZooKeeper) -> PeerFigure:
    arena.progress("kazoo: five that start", 0, 1)
    group = arena.prefix().strip("/")
    members = {f"m{index}": _start(server) for index in range(5)}
    for name, child in members.items():
        child.tell("join", group=group, names=[name], boundary=SETTLING, roles=20)
        time.sleep(APART_S)
    began = min(child.answer()["asked_at"] for child in members.values())
    stamps = _settled(members, 20)
    for child in members.values():
        child.close()
    last = max(at for at, what, _ in stamps if what == "gained")
    return PeerFigure(peer=PEER, key="settle.5", value=last - began, unit="s")


def _crash(arena: Arena, server: zookeeper.ZooKeeper) -> PeerFigure:
    took = []
    for turn in range(arena.pick(5, 1)):
        arena.progress("kazoo: crashes", turn, 5)
        group = arena.prefix().strip("/")
        members = {"a": _start(server), "b": _start(server)}
        for name, child in members.items():
            _join(child, group, name, 10)
        time.sleep(1)
        _settled(members, 10)
        time.sleep(0.2 * turn)
        killed = members.pop("a").kill()
        time.sleep(0.5)
        stamps = _settled(members, 10)
        took.append(max(at for at, what, _ in stamps if what == "gained") - killed)
        for child in members.values():
            child.close()
    spread = Spread.of(took)
    note = f"session timeout {TIMEOUT:g} s"
    return PeerFigure(
        peer=PEER, key="crash.ttl3", value=spread.most, unit="s", note=note, more={"took": took}
    )
