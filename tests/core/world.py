"""Run cores over an etcd of dicts, with one clock.

Each member is a real `Node`. Its effects become messages to the etcd and back. By default they are
carried at once and in order, so that a test reads as a scenario. `hold` keeps a member's messages
of one kind back until `let`: late answers, late events, a frozen member. `lose` ends a request
without an answer, and `thaw` carries it out after all.

After every step the world checks the invariants (`check`). It also checks that the member knows
when to step again, and that a second step at once does nothing, so there is no lost wake-up and no
busy loop. A member is a `CheckedNode`: its roles are placed before the step, and its state is
compared with the state derived anew.
"""

from __future__ import annotations

from collections import deque

import attrs
from derived import CheckedNode
from small_etcd import KEYS, Etcd, unanswered

from rink.core import effects as do
from rink.core import events as ev
from rink.core.holds import Handle, Hold
from rink.core.member import MemberSettings, Node
from rink.core.placement import Placement
from rink.core.ranks import RankSettings

__all__ = ["KEYS", "KINDS", "RANK", "ROLES", "Member", "World", "role_of"]

KINDS = ("requests", "answers", "events")
ROLES = [f"role-{index}" for index in range(40)]
RANK = Placement().rank


def role_of(rank: int, size: int, skip: int = 0) -> str:
    """A role that jump maps to a rank; the next such one with `skip`."""
    return [role for role in ROLES if RANK(role, "jump", size) == rank][skip]


@attrs.define(eq=False)
class Member:
    """One node, its traffic, and what its user code did."""

    node: Node
    seen: int = 0
    listed: bool = False
    to_etcd: deque = attrs.field(factory=deque)
    from_etcd: deque = attrs.field(factory=deque)
    held: set[str] = attrs.field(factory=set)
    effects: list = attrs.field(factory=list)
    joined: bool = False
    failed: Exception | None = None
    left: bool = False
    alive: bool = True  # its process runs, and its keepalives get through
    lets_go: bool = True  # user code releases a lost role at once
    leases: dict[Hold, int] = attrs.field(factory=dict)  # under which lease it was granted
    clock: tuple[float, float] = (0.0, 1.0)  # what it shows when the world's is 0, and its rate

    def time_at(self, now: float) -> float:
        """Return the time by the member's clock."""
        return self.clock[0] + self.clock[1] * now

    @property
    def wakes_at(self) -> float:
        """Return when it wants to step, by the world's clock, rounded up."""
        wake_at = self.node.wake_at
        if wake_at is None or self.clock == (0.0, 1.0):
            return float("inf") if wake_at is None else wake_at
        return (wake_at - self.clock[0]) / self.clock[1] + 1e-9

    @property
    def reports(self) -> list[str]:
        """Return its log lines, without the line of each version."""
        return [one.text for one in self.made(do.Report) if one.version is None]

    @property
    def lost(self) -> list[str]:
        """The roles it was told to have lost, in order."""
        return [effect.hold.role for effect in self.effects if isinstance(effect, do.Lose)]

    @property
    def ranks(self) -> list[int | None]:
        return [effect.rank for effect in self.effects if isinstance(effect, do.RankChanged)]

    def made(self, kind) -> list:
        """Every effect of one kind so far, in order."""
        return [effect for effect in self.effects if isinstance(effect, kind)]


class World:
    """Members of one group and their etcd; time moves only by `sleep`."""

    def __init__(self) -> None:
        self.etcd = Etcd()
        self.now = 1000.0
        self.members: dict[str, Member] = {}
        self.everyone: list[Member] = []  # those that have left or were killed as well
        self.incarnations = 0
        self.late: list[tuple[str, object]] = []
        self.tokens: dict[str, tuple[Member, int]] = {}
        # Leases that nobody renews any more: etcd ends them some day.
        self.unrenewed: list[int] = []
        self.expiries: dict[int, float] = {}  # when etcd ends a lease; here only a test does

    # ── what a test says ─────────────────────────────────────────────────────────────────────

    def add(self, name: str, *, held=(), **settings) -> Member:
        """Start a member; it joins with the next `run`."""
        ranking = {k: settings.pop(k) for k in list(settings) if hasattr(RankSettings(), k)}
        clock = settings.pop("clock", (0.0, 1.0))
        given = {"ttl": 60, **settings}
        node = CheckedNode(MemberSettings(name, ranking=RankSettings(**ranking), **given))
        member = self.members[name] = Member(node, held=set(held), clock=clock)
        self.everyone.append(member)
        self.step(member, [])
        self.run()
        return member

    def node(self, name: str) -> Node:
        return self.members[name].node

    def want(self, name: str, role: str, token_above: int = 0) -> Handle:
        """`await_role`, without the waiting."""
        member = self.members[name]
        handle = Handle(role, token_above=token_above)
        member.node.table.want(handle)
        self.step(member, [ev.Nudged()])
        self.run()
        return handle

    def get(self, name: str, role: str) -> Hold | None:
        """`get_role`."""
        member, node = self.members[name], self.node(name)
        handle = Handle(role)
        hold = node.table.join(handle, member.time_at(self.now))
        gate = node.table.gate
        if (
            hold is None
            and gate.is_mine(role, node.placement)
            and not gate.obstacle(role, node.placement)
            and (hold := node.table.take(gate, handle, member.time_at(self.now)))
        ):
            self._granted(member, hold)
        return hold

    def release(self, name: str, hold: Hold) -> None:
        """Let go of one handle of a hold."""
        member = self.members[name]
        if member.node.table.release(next(iter(hold.handles))):
            self.step(member, [ev.Nudged()])
        self.run()

    def let_go(self, name: str) -> None:
        """User code releases everything that it has lost."""
        table = self.node(name).table
        while table.lost and name in self.members:  # the last one may end its leaving
            self.release(name, next(iter(table.lost.values())))

    def leave(self, name: str, **how) -> None:
        self.step(self.members[name], [ev.LeaveAsked(**how)])
        self.run()

    def tell(self, name: str, *events) -> None:
        self.step(self.members[name], list(events))
        self.run()

    def kill(self, name: str) -> Member:
        """Kill the process; its lease lives on for its TTL (`expire` ends it)."""
        self.unrenewed.append(self.node(name).member_lease.id)
        return self.members.pop(name)

    def expire(self, member: Member) -> None:
        self.etcd.end_lease(member.node.member_lease.id)
        self.run()

    def replace_history(self, copy: Etcd | None = None) -> None:
        """Continue etcd from nothing or from a copy; every watch breaks."""
        self.etcd.go_on_from(copy)
        for member in self.members.values():
            member.listed = False
            member.seen = self.etcd.revision

    def sleep(self, seconds: float) -> None:
        """Let time pass, with keepalives answered; stop where a member wakes."""
        end = self.now + seconds
        while True:
            self.run()
            wakes = [member.wakes_at for member in self.members.values()]
            sixths = [member.node.settings.ttl / 6 for member in self.members.values()]
            wakes += [self.now + min(sixths, default=10.0), end, *self.expiries.values()]
            self.now = max(self.now, min(wakes))
            self.end_leases()
            for member in list(self.members.values()):
                self.keep_alive(member)
                if member.wakes_at <= self.now:
                    self.step(member, [])
            if self.now >= end:
                self.run()
                return

    def end_leases(self) -> None:
        """End the leases that are over, in a world whose leases end themselves."""
        for lease in [lease for lease, at in self.expiries.items() if at <= self.now]:
            del self.expiries[lease]
            self.etcd.end_lease(lease)

    def keep_alive(self, member: Member) -> None:
        """Send a keepalive, if it gets through; expire as the session does."""
        if member.alive and member.node.member_lease.is_held:
            self.beat(member, member.node.member_lease.id)
        if effects := member.node.expire(member.time_at(self.now)):
            self._do(member, effects)
            self.step(member, [ev.Nudged()])

    def beat(self, member: Member, lease: int) -> None:
        """Deliver a keepalive and its answer, at once."""
        self.answer_beat(member, lease, member.time_at(self.now), lease in self.etcd.leases)

    def answer_beat(self, member: Member, lease: int, sent_at: float, is_renewed: bool) -> None:
        """Deliver the answer to a keepalive that was sent some time ago."""
        if not is_renewed:
            self.step(member, [ev.LeaseEnded(lease)])
            return
        now = member.time_at(self.now)
        effects, must_step = member.node.renew(now, lease, sent_at, self.etcd.history)
        self._do(member, effects)
        if must_step:
            self.step(member, [ev.Nudged()])

    def hold(self, name: str, *kinds: str) -> None:
        """Keep back messages of one kind.

        The kinds are `requests` (not sent), `answers` (applied, not answered) and `events`.
        """
        self.members[name].held.update(kinds)

    def let(self, name: str, *kinds: str) -> None:
        self.members[name].held.difference_update(kinds or KINDS)
        self.run()

    def lose(self, name: str, answer: bool = False) -> None:
        """Lose a member's next request, or its answer.

        A request that was not sent is kept in `late`: a frozen follower forwards it when it thaws.
        """
        member = self.members[name]
        effect = member.to_etcd.popleft()
        if answer:
            self._serve(member, effect)
        else:
            self.late.append((name, effect))
        if (event := unanswered(effect)) is not None:
            self.step(member, [event])
        self.run()

    def thaw(self, index: int = 0) -> None:
        """Carry out a request that was given up long ago."""
        name, effect = self.late.pop(index)
        self.etcd.serve(name, effect, self.now, "")
        self.run()

    # ── how it runs ──────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Carry every message that is not held back, until nothing moves."""
        moved, rounds = True, 0
        while moved:
            moved, rounds = False, rounds + 1
            for member in list(self.members.values()):
                moved |= self.move(member)
            assert rounds < 2000, "this never comes to rest"

    def move(self, member: Member) -> bool:
        return any(self.carry(member, kind) for kind in KINDS if kind not in member.held)

    def carry(self, member: Member, kind: str) -> bool:
        """Carry one message of a kind; false where there is none."""
        if kind == "requests":
            if not member.to_etcd:
                return False
            answer = self._serve(member, member.to_etcd.popleft())
            if answer is not None:
                member.from_etcd.append(answer)
            return True
        if kind == "answers":
            event = member.from_etcd.popleft() if member.from_etcd else None
        elif not member.listed:
            event, member.listed = self.etcd.listed(member.node.view_state.lists_wanted), True
            member.seen = event.revision
        elif event := self.etcd.changes_after(member.seen):
            member.seen = event.revision
        if event is not None:
            self.step(member, [event])
        return event is not None

    def _serve(self, member: Member, effect) -> ev.MemberEvent | None:
        if isinstance(effect, do.GrantLease):
            self.incarnations += 1
        now = member.time_at(self.now)
        return self.etcd.serve(member.node.name, effect, now, f"i{self.incarnations}")

    def step(self, member: Member, events: list) -> None:
        node, now = member.node, member.time_at(self.now)
        self._do(member, node.step(now, events))
        assert node.wake_at is None or node.wake_at > now, "it would wake at once, for ever"
        wake_at, again = node.wake_at or float("inf"), node.step(now, [])
        assert not again, f"not done in one step: {again}"
        assert wake_at <= (node.wake_at or float("inf")), "it would have slept for too long"
        self.check()

    def _do(self, member: Member, effects: list) -> None:
        # Invariant: an effect for etcd is only queued here, in the order of the step, and `run`
        # carries it out. User code releases its lost roles last, when every effect of the step is
        # taken, because a release steps the member again.
        member.effects += effects
        for effect in effects:
            match effect:
                case do.Joined():
                    member.joined = True
                case do.JoinFailed():
                    member.failed = effect.error
                case do.Grant():
                    self._granted(member, effect.handle.hold)
                case do.Left():
                    member.left = True
                    self.unrenewed.append(member.node.member_lease.id)
                    if self.members.get(member.node.name) is member:
                        del self.members[member.node.name]
                case do.ListGroup():
                    member.listed = False
                case (
                    do.KeepLease()
                    | do.Report()
                    | do.Lose()
                    | do.Refuse()
                    | do.DropLease()
                    | do.CoordinatorChanged()
                    | do.RankChanged()
                ):
                    pass
                case _:
                    member.to_etcd.append(effect)
        if member.lets_go:
            for effect in effects:
                if isinstance(effect, do.Lose):
                    while effect.hold.handles:
                        member.node.table.release(next(iter(effect.hold.handles)))
                    self.step(member, [ev.Nudged()])

    # ── what must always hold ────────────────────────────────────────────────────────────────

    def _granted(self, member: Member, hold: Hold) -> None:
        member.leases.setdefault(hold, member.node.member_lease.id)
        if self.covers(member, hold):  # otherwise only its token guards against the member
            before, token = self.tokens.get(hold.role, (member, 0))
            assert before is member or hold.token > token, f"{hold.role}: a token did not rise"
            self.tokens[hold.role] = member, hold.token
        self.check()

    def check(self) -> None:
        """Check promise 1: no role is held by two members whose leases live.

        A hold does not count if its lease has ended, or its record was deleted. Its member has the
        margin to stop, or loses the role with the next event. A hold of a member that has left does
        count, because its process goes on.
        """
        holders: dict[str, Member] = {}
        gone = [member for member in self.everyone if member.left]
        for member in (*self.members.values(), *gone):
            table = member.node.table
            for hold in [*table.held.values(), *table.draining]:
                if self.covers(member, hold):
                    other = holders.setdefault(hold.role, member)
                    both = f"{other.node.name} and {member.node.name}"
                    assert other is member, f"{hold.role} is held by {both}"

    def covers(self, member: Member, hold: Hold) -> bool:
        """Whether the record under which a hold was granted still stands in etcd."""
        kv = self.etcd.kvs.get(KEYS.member(member.node.name))
        return kv is not None and kv.lease == member.leases.get(hold)

    # ── what a test asks ─────────────────────────────────────────────────────────────────────

    @property
    def ranks(self) -> list[str]:
        """The newest version's ranks, as etcd has them."""
        version = self.version
        return list(version.ranks) if version else []

    @property
    def version(self):
        numbers = [key for key in self.etcd.kvs if b"/versions/" in key]
        return self.etcd.entry(max(numbers)).version if numbers else None

    def record(self, name: str):
        """A member's record, as etcd has it."""
        key = KEYS.member(name)
        return self.etcd.entry(key).record if key in self.etcd.kvs else None

    def holders(self, roles: list[str]) -> dict[str, str]:
        """Return who holds each role, after every member takes what it can."""
        found = {}
        for name, member in self.members.items():
            if member.node.living.serves:
                for role in roles:
                    if self.get(name, role):
                        found[role] = name
        self.check()
        return found
