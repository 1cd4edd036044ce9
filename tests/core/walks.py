"""Walk through a world in which everything that can go wrong does.

A walk is a list of triples of numbers, so that it can be replayed and shrunk. Each triple means
something in any state of the world. A message is carried only by a step of the walk. After the walk
all faults stop, and the group must settle: every owner holds each role that it waits for.

Leases end here exactly when etcd may end them, a TTL after the last keepalive arrived. For a slow
member, keepalives and their answers are under way until the walk carries them, in order, or loses
them. So if R6 is broken, user code may go on for a while after its lease has ended.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict, deque
from collections.abc import Sequence

import attrs
from world import KINDS, Member, World

from rink.core import codec
from rink.core import events as ev
from rink.core.state_tables import Life
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
    "slow": 3,
    "beat": 12,
    "vandalise": 1,
}

# Of walks in which nothing is late but what goes between etcd and members that are slow.
SLUGGISH = {
    **WEIGHTS,
    "carry": 10,
    "lose": 0,
    "thaw": 0,
    "slow": 10,
    "pass": 40,
    "beat": 90,
    "want": 40,
}


@attrs.define
class Beat:
    """A keepalive under way, or its answer once it has arrived at etcd."""

    lease: int
    sent_at: float
    is_renewed: bool | None = None


class Walk(World):
    """The world of a walk."""

    def __init__(self) -> None:
        super().__init__()
        self.beats: dict[Member, deque[Beat]] = defaultdict(deque)
        self.slow: set[Member] = set()
        self.longest_beat = 0.0
        self.cut_short: set[int] = set()  # leases, or their records, that ended before their time

    # ── keepalives ───────────────────────────────────────────────────────────────────────────

    def beat(self, member, lease) -> None:
        self.beats[member].append(Beat(lease, member.time_at(self.now)))
        while self.beats[member] and member not in self.slow:
            self.carry_beat(member)

    def carry_beat(self, member) -> None:
        """Deliver the oldest keepalive of a member, or its answer."""
        beat = self.beats[member][0]
        if beat.is_renewed is None:
            self.arrive(member, beat)
        else:
            self.beats[member].popleft()
            self.longest_beat = max(self.longest_beat, member.time_at(self.now) - beat.sent_at)
            self.answer_beat(member, beat.lease, beat.sent_at, beat.is_renewed)

    def arrive(self, member, beat) -> None:
        beat.is_renewed = beat.lease in self.etcd.leases
        if beat.is_renewed:
            self.expiries[beat.lease] = self.now + member.node.settings.ttl

    def _serve(self, member, effect):
        answer = super()._serve(member, effect)
        if isinstance(answer, ev.LeaseGranted):
            self.expiries[answer.lease] = self.now + answer.ttl
        return answer

    def check(self) -> None:
        """Check promise 1: a role held by `is_held` is held by no other member."""
        super().check()
        holders: dict[str, str] = {}
        for name, member in self.members.items():
            table = member.node.table
            is_live = member.time_at(self.now) < table.deadline
            if is_live and member.node.member_lease.id not in self.cut_short:
                for role in table.held:
                    other = holders.setdefault(role, name)
                    assert other == name, f"{role} is believed to be held by {other} and {name}"

    # ── the steps ────────────────────────────────────────────────────────────────────────────

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
            handover_wait=[0.0, 8.0, 30.0][what % 3],
            draining_limit_bytes=[65_536, 2][what // 4 % 2],
            stagger=[None, 1][what // 8 % 2],
            grace=[None, None, None, 3.0][what // 16 % 4],
            ttl=[9, 60][what // 128],
            margin=0.5,
            # Clocks of machines that were booted at other times; one runs at twice the rate.
            clock=[(0.0, 1.0), (1e5, 1.0), (-300.0, 2.0)][NAMES.index(name)],
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
        self.cut_short.add(member.node.member_lease.id)
        self.etcd.end_lease(member.node.member_lease.id)

    def _slow(self, name, member, what) -> None:
        self.slow ^= {member}
        if member in self.slow:
            member.held.add("events")
        else:
            self.let(name)

    def _beat(self, name, member, what) -> None:
        beats = self.beats[member]
        if what % 8 == 0:
            beats.clear()  # the stream broke, with all that was under way on it
        elif what % 8 < 4:  # one more keepalive arrives, or several
            for beat in [beat for beat in beats if beat.is_renewed is None][: 1 + what // 8 % 3]:
                self.arrive(member, beat)
        elif beats and beats[0].is_renewed is not None:
            self.carry_beat(member)

    def _leave(self, name, member, what) -> None:
        within = [None, 2.0, math.inf, math.inf][what // 3 % 4]
        self.leave(name, keep_rank=what % 5 == 0, release_within=within, now=what % 7 == 0)

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
        request = Request([Wish.PIN, Wish.UNPIN][what // 12 % 2], role, to)
        self.etcd.put(f"requests/u{what}", codec.encode(request))

    def _vandalise(self, name, member, what) -> None:
        match what % 6:
            case 0:
                self.cut_short.add(member.node.member_lease.id)
                self.etcd.delete(f"members/{name}")
            case 1:
                self.cut_short.add(member.node.member_lease.id)
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
        """Let every member join and be ranked, before anything goes wrong."""
        for name in list(self.members):
            self.let(name)
        self.sleep(10.0)
        for name, member in self.members.items():
            member.held.update(KINDS)
            for role in ROLES:
                self.get(name, role)

    def let_flow(self) -> None:
        """Carry everything at once, except for slow members; all want all roles."""
        for name in list(self.members):
            self.let(name)
            for role in ROLES:
                self.want(name, role)

    # ── the end of all faults ────────────────────────────────────────────────────────────────

    def calm(self) -> None:
        """Everything gets through, user code lets go, and time passes."""
        self.slow.clear()
        while self.late:
            self.thaw()
        while self.unrenewed:
            self.etcd.end_lease(self.unrenewed.pop())
        for name, member in list(self.members.items()):
            member.held.clear()
            member.alive = member.lets_go = True
            if name in self.members:  # else one before it was all that it waited for
                self.let_go(name)
        self.sleep(200.0)
        while self.unrenewed:  # of members that were on their way out
            self.etcd.end_lease(self.unrenewed.pop())
        self.sleep(200.0)

    def check_settled(self) -> None:
        """Check that every view is settled, and every owner has its roles."""
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
    """Draw a walk; in one of four, the members are still joining.

    In one of four, only messages between etcd and slow members are late.
    """
    lots = random.Random(seed)
    weights = SLUGGISH if seed % 4 == 3 else WEIGHTS
    kinds = lots.choices(list(weights), list(weights.values()), k=length)
    steps = [(kind, lots.randrange(len(NAMES)), lots.randrange(256)) for kind in kinds]
    start = [("add", who, lots.randrange(256)) for who in range(len(NAMES))]
    start += [("settle", 0, 0)] * (seed % 4 > 0) + [("let_flow", 0, 0)] * (seed % 4 == 3)
    return start + steps


def walk(steps: Sequence[Step]) -> Walk:
    """Take a walk to its end, and check that the group settles."""
    world = Walk()
    for step in steps:
        if step[0] in ("settle", "let_flow"):
            getattr(world, step[0])()
        else:
            world.take(step)
    world.calm()
    world.check_settled()
    return world


def shrink(steps: list[Step]) -> list[Step]:
    """Return the steps that a failing walk needs, for people."""
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
