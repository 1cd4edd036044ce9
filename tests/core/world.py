"""A small world for cores: an etcd of dicts, one clock, and messages that a test may hold back.

Each member is a real `Node`. Its effects become messages to the etcd and back; by default they are
carried out at once and in order, so that a test reads as a scenario. `hold` keeps a member's
traffic of one kind until `let`: late answers, late events, a frozen member.
"""

from __future__ import annotations

from collections import deque

import attrs

from rink.core import codec
from rink.core import effects as do
from rink.core import events as ev
from rink.core.holds import Hold, Wait
from rink.core.keys import Keys
from rink.core.machines import Life
from rink.core.node import MemberSettings, Node
from rink.core.ranks import Settings
from rink.core.view import gone

KEYS = Keys.of("rink/", "g")


@attrs.frozen
class Kv:
    value: bytes
    create: int
    mod: int
    lease: int


@attrs.define(eq=False)
class Etcd:
    """Revisions, leases, transactions and a log of changes; no time of its own."""

    revision: int = 1
    kvs: dict[bytes, Kv] = attrs.field(factory=dict)
    leases: set[int] = attrs.field(factory=set)
    log: list[tuple[int, list]] = attrs.field(factory=list)
    next_lease: int = 1
    writes: list[str] = attrs.field(factory=list)

    def entry(self, key):
        kv = self.kvs[key]
        return codec.read(KEYS.root, key, kv.value, kv.create, kv.mod, kv.lease)

    def change(self, puts: dict[bytes, tuple[bytes, int]], deletes=()) -> int:
        self.revision += 1
        changes = []
        for key in deletes:
            if key in self.kvs:
                changes.append(gone(self.entry(key)))
                del self.kvs[key]
        for key, (value, lease) in puts.items():
            old = self.kvs.get(key)
            create = old.create if old else self.revision
            self.kvs[key] = Kv(value, create, self.revision, lease)
            changes.append(self.entry(key))
            self.writes.append(key.decode())
        self.log.append((self.revision, changes))
        return self.revision

    def end_lease(self, lease: int) -> None:
        self.leases.discard(lease)
        dead = [key for key, kv in self.kvs.items() if kv.lease == lease]
        if dead:
            self.change({}, dead)


@attrs.define(eq=False)
class Member:
    """One node, its traffic, and what its user code did."""

    node: Node
    seen: int = 0
    listed: bool = False
    to_etcd: deque = attrs.field(factory=deque)
    from_etcd: deque = attrs.field(factory=deque)
    held: set[str] = attrs.field(factory=set)
    reports: list[str] = attrs.field(factory=list)
    lost: list[Hold] = attrs.field(factory=list)
    ranks: list = attrs.field(factory=list)
    joined: bool = False
    failed: Exception | None = None
    frozen: bool = False
    alive: bool = True  # its process runs, and its keepalives get through
    lets_go: bool = True  # user code releases a lost role at once
    versions: list[int] = attrs.field(factory=list)


class World:
    """Members of one group and their etcd; time moves only by `sleep`."""

    def __init__(self) -> None:
        self.etcd = Etcd()
        self.now = 1000.0
        self.members: dict[str, Member] = {}
        self.incarnations = 0

    # ── what a test says ─────────────────────────────────────────────────────────────────────

    def add(self, name: str, **settings) -> Member:
        """Start a member; it joins with the next `run`."""
        ranking = {k: settings.pop(k) for k in list(settings) if hasattr(Settings(), k)}
        node = Node(MemberSettings(name, ranking=Settings(**ranking), **settings))
        member = self.members[name] = Member(node)
        self.step(member, [])
        self.run()
        return member

    def node(self, name: str) -> Node:
        return self.members[name].node

    def want(self, name: str, role: str) -> Wait:
        """`await_role`, without the waiting."""
        member = self.members[name]
        wait = Wait(role)
        member.node.table.want(wait)
        self.step(member, [ev.Nudged()])
        self.run()
        return wait

    def get(self, name: str, role: str) -> Hold | None:
        """`get_role`."""
        node = self.node(name)
        hold = node.table.join(role, self.now)
        gate = node.table.gate
        if hold is None and gate.is_mine(role, node.placement):
            if not gate.obstacle(role, node.placement):
                hold = node.table.take(gate, role, self.now)
        return hold

    def release(self, name: str, hold: Hold) -> None:
        member = self.members[name]
        if member.node.table.release(hold):
            self.step(member, [ev.Nudged()])
        self.run()

    def leave(self, name: str, **how) -> None:
        self.step(self.members[name], [ev.LeaveAsked(**how)])
        self.run()

    def kill(self, name: str) -> Member:
        """SIGKILL: the process is gone, its lease lives on for its TTL (`expire` ends it)."""
        return self.members.pop(name)

    def expire(self, member: Member) -> None:
        self.etcd.end_lease(member.node.tenure.lease)
        self.run()

    def sleep(self, seconds: float) -> None:
        """Let time pass, with everybody's keepalives answered, stopping wherever somebody wakes."""
        end = self.now + seconds
        while True:
            self.run()
            wakes = [m.node.wake_at for m in self.members.values() if m.node.wake_at is not None]
            self.now = max(self.now, min([*wakes, self.now + 0.5, end]))
            for member in self.members.values():
                if member.alive and member.node.tenure.lease in self.etcd.leases:
                    member.node.renew(self.now, member.node.tenure.lease, self.now)
                self._do(member, member.node.expire(self.now))
                if member.node.wake_at is not None and member.node.wake_at <= self.now:
                    self.step(member, [])
            if self.now >= end:
                self.run()
                return

    def hold(self, name: str, *kinds: str) -> None:
        """Keep back `requests` (not sent), `answers` (applied, not answered) or `events`."""
        self.members[name].held.update(kinds)

    def let(self, name: str, *kinds: str) -> None:
        self.members[name].held.difference_update(kinds)
        self.run()

    # ── how it runs ──────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Carry every message that is not held back, until nothing moves."""
        moved = True
        while moved:
            moved = False
            for member in list(self.members.values()):
                moved |= self._move(member)

    def _move(self, member: Member) -> bool:
        if member.to_etcd and "requests" not in member.held:
            answer = self._serve(member, member.to_etcd.popleft())
            if answer is not None:
                member.from_etcd.append(answer)
            return True
        if member.from_etcd and "answers" not in member.held:
            self.step(member, [member.from_etcd.popleft()])
            return True
        if "events" in member.held:
            return False
        if not member.listed:
            member.listed, member.seen = True, self.etcd.revision
            entries = tuple(self.etcd.entry(key) for key in self.etcd.kvs)
            self.step(member, [ev.Listed(self.etcd.revision, entries)])
            return True
        for revision, changes in self.etcd.log:
            if revision > member.seen:
                member.seen = revision
                self.step(member, [ev.Changed(revision, tuple(changes))])
                return True
        return False

    def step(self, member: Member, events: list) -> None:
        self._do(member, member.node.step(self.now, events))
        self.check()

    def _do(self, member: Member, effects: list) -> None:
        for effect in effects:
            match effect:
                case do.Report():
                    member.reports.append(effect.text)
                case do.Lose():
                    member.lost.append(effect.hold)
                case do.Joined():
                    member.joined = True
                case do.JoinFailed():
                    member.failed = effect.error
                case do.RankChanged():
                    member.ranks.append(effect.rank)
                case do.Grant() | do.KeepLease() | do.DropLease() | do.LeadershipChanged():
                    pass
                case do.Left():
                    self.members.pop(member.node.name, None)
                case _:
                    member.to_etcd.append(effect)
        if member.lets_go:
            for effect in effects:
                if isinstance(effect, do.Lose):
                    while effect.hold.handles:
                        member.node.table.release(effect.hold)
                    self.step(member, [ev.Nudged()])

    def _serve(self, member: Member, effect) -> ev.Event | None:
        etcd = self.etcd
        match effect:
            case do.GrantLease():
                lease, etcd.next_lease = etcd.next_lease, etcd.next_lease + 1
                etcd.leases.add(lease)
                self.incarnations += 1
                return ev.LeaseGranted(lease, effect.ttl, self.now, f"i{self.incarnations}")
            case do.RevokeLease():
                etcd.end_lease(effect.lease)
                return ev.LeaseRevoked(effect.lease)
            case do.WriteRecord():
                key = KEYS.member(member.node.name)
                kv = etcd.kvs.get(key)
                if (kv.mod if kv else 0) != effect.compare:
                    found = etcd.entry(key) if kv else None
                    return ev.WriteAnswered(effect.attempt, False, etcd.revision, found)
                if effect.lease not in etcd.leases:
                    return ev.WriteFailed(effect.attempt, RuntimeError("lease not found"))
                revision = etcd.change({key: (codec.encode(effect.record), effect.lease)})
                return ev.WriteAnswered(effect.attempt, True, revision)
            case do.Proclaim():
                return self._proclaim(member, effect)
            case do.Prune():
                dead = [k for k in etcd.kvs if KEYS.version(1) <= k < KEYS.version(effect.below)]
                etcd.change({}, dead)
            case do.LookUpLease():
                known = effect.lease in etcd.leases
                return ev.LeaseLookedUp(effect.name, effect.mod_revision, known)
            case do.RemoveRecord():
                key = KEYS.member(effect.name)
                if key in etcd.kvs and etcd.kvs[key].mod == effect.mod_revision:
                    etcd.change({}, [key])
        return None

    def _proclaim(self, member: Member, effect: do.Proclaim) -> ev.Event:
        etcd, number = self.etcd, effect.version.number
        own = etcd.kvs.get(KEYS.member(member.node.name))
        ok = (
            own is not None
            and own.create == effect.create_revision
            and KEYS.version(number) not in etcd.kvs
            and (number == 1 or KEYS.version(number - 1) in etcd.kvs)
        )
        if ok:
            etcd.change(
                {KEYS.version(number): (codec.encode(effect.version), 0)},
                [KEYS.request(request) for request in effect.requests],
            )
        return ev.ProclaimAnswered(number, ok)

    # ── what must always hold ────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Promise 1: no role is held by two members whose leases live."""
        holders: dict[str, str] = {}
        for name, member in self.members.items():
            node = member.node
            if node.tenure.lease not in self.etcd.leases:
                continue
            for role in [*node.table.held, *(hold.role for hold in node.table.draining)]:
                assert role not in holders, f"{role} is held by {holders[role]} and {name}"
                holders[role] = name

    # ── what a test asks ─────────────────────────────────────────────────────────────────────

    @property
    def ranks(self) -> list[str]:
        """The newest version's ranks, as etcd has them."""
        version = self.version
        return list(version.ranks) if version else []

    @property
    def version(self):
        numbers = [k for k in self.etcd.kvs if b"/versions/" in k]
        return self.etcd.entry(max(numbers)).version if numbers else None

    def holders(self, roles: list[str]) -> dict[str, str]:
        """Who holds each role, letting every member take what it can."""
        found = {}
        for name, member in self.members.items():
            if member.node.living.state in (Life.ACTIVE, Life.LEAVING):
                for role in roles:
                    if self.get(name, role):
                        found[role] = name
        self.check()
        return found
