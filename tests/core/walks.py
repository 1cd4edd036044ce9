"""Walks: a world in which everything that can go wrong does, one small step after another.

A walk is a list of triples of numbers, so that it can be replayed and shrunk; each means something
in any state of the world. Nothing is carried but what a step of the walk carries. After the walk
all faults stop, and the group must settle: every role that is waited for where it belongs is held.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from world import KINDS, World

from rink.core import codec
from rink.core.machines import Life
from rink.core.values import Request, Wish
from rink.core.view import owner_of

ROLES = ["x", "y", "z", "BTC/ETH"]
NAMES = ["a", "b", "c"]
Step = tuple[str, int, int]

# How often each kind of step is drawn.
WEIGHTS = {
    "carry": 70,
    "pass": 6,
    "add": 5,
    "get": 10,
    "want": 6,
    "let_go": 5,
    "release": 4,
    "kill": 1,
    "bury": 2,
    "partition": 1,
    "heal": 3,
    "expire": 1,
    "leave": 1,
    "lose": 5,
    "thaw": 4,
    "relist": 1,
    "pin": 8,
    "vandalise": 1,
}


class Walk(World):
    """The world of a walk."""

    def take(self, step: Step) -> None:
        kind, who, what = step
        name = NAMES[who % len(NAMES)]
        member = self.members.get(name)
        if kind == "bury":
            self._bury(what)
        elif member is None:
            if kind == "add":
                self._add(name, what)
        elif kind != "add":
            getattr(self, f"_{kind}")(name, member, what)

    def _add(self, name, what) -> None:
        self.add(
            name,
            held=KINDS,
            rebalance_delay=[0.0, 5.0][what % 2],
            leave_delay=[0.0, 20.0][what // 2 % 2],
            draining_limit_bytes=[65_536, 2][what // 4 % 2],
            stagger=[None, 1][what // 8 % 2],
            grace=[None, None, None, 3.0][what // 16 % 4],
        ).lets_go = what // 64 % 2 == 0

    def _carry(self, name, member, what) -> None:
        for _ in range(1 + what // 3 % 4):
            self.carry(member, KINDS[what % 3])

    def _pass(self, name, member, what) -> None:
        self.sleep([0.01, 0.3, 2.0, 12.0, 30.0][what % 5])

    def _get(self, name, member, what) -> None:
        for role in ROLES:
            self.get(name, role)

    def _want(self, name, member, what) -> None:
        self.want(name, ROLES[what % len(ROLES)])

    def _let_go(self, name, member, what) -> None:
        self.let_go(name)

    def _release(self, name, member, what) -> None:
        if hold := member.node.table.held.get(ROLES[what % len(ROLES)]):
            self.release(name, hold)

    def _kill(self, name, member, what) -> None:
        self.kill(name)

    def _partition(self, name, member, what) -> None:
        member.alive = False

    def _heal(self, name, member, what) -> None:
        member.alive = True

    def _expire(self, name, member, what) -> None:
        self.etcd.end_lease(member.node.tenure.lease)

    def _leave(self, name, member, what) -> None:
        self.leave(name, keep_rank=what % 3 == 0, release_within=[None, 2.0][what % 2])

    def _lose(self, name, member, what) -> None:
        if member.to_etcd:
            self.lose(name, answer=what % 2 == 0)

    def _thaw(self, name, member, what) -> None:
        if self.late:
            self.thaw(what % len(self.late))

    def _relist(self, name, member, what) -> None:
        member.listed = False

    def _pin(self, name, member, what) -> None:
        role, to = ROLES[what % len(ROLES)], NAMES[what // 4 % len(NAMES)]
        wish = Request([Wish.PIN, Wish.UNPIN][what // 12 % 2], role, to)
        self.etcd.put(f"requests/u{what}", codec.encode(wish))

    def _vandalise(self, name, member, what) -> None:
        match what % 6:
            case 0:
                self.etcd.delete(f"members/{name}")
            case 1:
                self.etcd.put(f"members/{name}", b"?", lease=0)
            case 2 | 3:
                self.etcd.put("members/junk", [b"?", b'{"format":9}'][what % 2], lease=0)
            case 4:
                self.etcd.delete("versions/")
            case 5:
                newest = max((k for k in self.etcd.kvs if b"/versions/" in k), default=None)
                if newest:
                    self.etcd.change({}, [newest])

    def _bury(self, what) -> None:
        if self.unrenewed:
            self.etcd.end_lease(self.unrenewed.pop(what % len(self.unrenewed)))

    def settle(self) -> None:
        """Have everybody join and be ranked, before anything goes wrong."""
        for name in list(self.members):
            self.let(name)
        self.sleep(10.0)
        for name, member in self.members.items():
            member.held.update(KINDS)
            for role in ROLES:
                self.get(name, role)

    # ── the end of all faults ────────────────────────────────────────────────────────────────

    def calm(self) -> None:
        """Everything gets through, user code lets go, and time passes."""
        while self.late:
            self.thaw()
        while self.unrenewed:
            self.etcd.end_lease(self.unrenewed.pop())
        for name, member in list(self.members.items()):
            member.held.clear()
            member.alive = member.lets_go = True
            self.let_go(name)
        self.sleep(200.0)
        while self.unrenewed:  # of members that were on their way out
            self.etcd.end_lease(self.unrenewed.pop())
        self.sleep(200.0)

    def check_settled(self) -> None:
        """The group is settled, in every member's view, and every owner has what it waits for."""
        serving = {n: m for n, m in self.members.items() if m.node.living.state is Life.ACTIVE}
        assert serving.keys() == self.members.keys(), "somebody is stuck on its way in or out"
        for name, member in self.members.items():
            node = member.node
            assert node.is_settled, f"{name} sees no settled group"
            assert name in self.ranks
            assert node.table.gate.closed_because == ""
            for role in ROLES:
                owner = owner_of(self.version, role, node.placement.rank)
                assert (owner == name) == bool(self.get(name, role)), f"{role} at {name}"
                assert owner != name or role not in node.table.waits


def draw(seed: int, length: int) -> list[Step]:
    """Draw a walk; one of four begins with its members on their way in, the others settled."""
    lots = random.Random(seed)
    kinds = lots.choices(list(WEIGHTS), list(WEIGHTS.values()), k=length)
    steps = [(kind, lots.randrange(len(NAMES)), lots.randrange(256)) for kind in kinds]
    start = [("add", who, lots.randrange(256)) for who in range(len(NAMES))]
    return start + [("settle", 0, 0)] * (seed % 4 > 0) + steps


def walk(steps: Sequence[Step]) -> Walk:
    """Take a walk to its end, and check that the group settles."""
    world = Walk()
    for step in steps:
        if step[0] == "settle":
            world.settle()
        else:
            world.take(step)
    world.calm()
    world.check_settled()
    return world


def shrink(steps: list[Step]) -> list[Step]:
    """Leave out whatever a failing walk fails without; for people who look for the cause."""
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps):
            shorter = steps[:start] + steps[start + size :]
            try:
                walk(shorter)
                start += size
            except Exception:
                steps = shorter
        size //= 2
    return steps
