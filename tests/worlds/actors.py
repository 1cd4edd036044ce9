"""Run a member of a small world, with one snapshot per state.

The member is the real `Node` and its user code. Each step depends only on the member's own state
and on its input, so it is done once: `Actors.act` remembers it. Two states are one if their
fingerprints are equal.

**Time.** Every member has a clock of its own, since no rule compares two. It moves only when an
alarm rings or the deadline is noticed. A fingerprint has no readings: only which moments have
passed, in which order the others will come, and which of them are too far to ring. This is exact as
long as all alarms of a world are far apart: gathering (1 ms), retries (0.05 to 2 s), a newcomer
that does not claim (1 s), and then nothing below the world's `far_s` but the subject of the world.
"""

from __future__ import annotations

from typing import Any

import attrs
import derived
from snapshots import Snapshots

from rink.core import effects as do
from rink.core import events as ev
from rink.core.holds import Handle, Hold
from rink.core.member import MemberSettings, Node
from rink.core.record_index import is_same
from rink.core.state_tables import Life, Write
from rink.core.waits import Waits

NEVER_S = 1_000_000
"""A TTL that no number of alarms uses up: a deadline is noticed by a move of its own."""

IDLE_EFFECTS = (do.Report, do.Lose, do.Refuse, do.KeepLease, do.DropLease)
IDLE_EFFECTS += (do.CoordinatorChanged, do.RankChanged, do.Joined, do.JoinFailed, do.Left, do.Grant)


STEPS = ("step", "alarm", "nudge", "finish")
"""Events that end within a step, so nothing may be left to do after it."""


class QuietWaits(Waits):
    """Report no wait that lasts.

    Such reports are for people, and their time would be one more moment.
    """

    def lasting(self, now: float) -> tuple[list[str], float | None]:
        """Return that nothing is to be reported."""
        return [], None


@attrs.define(eq=False)
class Actor:
    """Run one member in one state.

    If it steps by `halves`, it is `midway` after the first half of a step. Anything may happen
    until the second half.

    `handles` are those that its user code has, waits for or works under. The world believes them,
    whatever the member's own table says. `gates` are those that callers computed with and have not
    used yet.
    """

    node: Node
    roles: tuple[str, ...]
    now: float = 0.0
    nudged: bool = False
    halves: bool = False
    midway: bool = False
    handles: list[Handle] = attrs.field(factory=list)
    gates: dict[str, Any] = attrs.field(factory=dict)

    # ── what may happen to it ────────────────────────────────────────────────────────────────

    def start(self) -> list:
        """Begin to join, while user code waits for every role."""
        for role in self.roles:
            self._want(role)
        return self.step([])

    def _want(self, role: str, token_above: int = 0) -> None:
        handle = Handle(role, token_above=token_above)
        self.handles.append(handle)
        self.node.table.want(handle)

    def step(self, events: list) -> list:
        """Step with these events, as the engine does with its mailbox."""
        events = [self._by_own_clock(event) for event in events]
        return self._stepped(events)

    def _stepped(self, events: list) -> list:
        """Step as the engine does, after placing the roles that it needs."""
        effects = self.finish() if self.midway else []
        derived.place(self.node, events)
        effects += self.node.step_own(self.now, events)
        derived.check_own(self.node, self.now)
        self.midway = True
        return effects if self.halves else effects + self.finish()

    def finish(self) -> list:
        """Do the second half of the step that is under way."""
        self.midway = False
        effects = self.node.step_group(self.now)
        derived.check_group(self.node, self.now)
        return effects

    def check(self) -> None:
        """Check that a step is done at once, and the next wake is in time."""
        wake_at = self.node.wake_at
        assert wake_at is None or wake_at > self.now, "it would wake at once, for ever"
        again = self._stepped([])
        again += self.finish() if self.midway else []
        assert not again, f"not done in one step: {again}"
        assert (wake_at or 0) <= (self.node.wake_at or float("inf")), "it would sleep for too long"

    def _by_own_clock(self, event: ev.MemberEvent) -> ev.MemberEvent:
        if isinstance(event, ev.LeaseGranted):
            return attrs.evolve(event, sent_at=self.now)
        if isinstance(event, ev.Listed):
            return attrs.evolve(event, wanted=self.node.view_state.lists_wanted)
        return event

    def nudge(self) -> list:
        """Let the engine hear that something under the lock has changed."""
        self.nudged = False
        return self.step([ev.Nudged()])

    def alarm(self) -> list:
        """Let time pass until the member wants to step."""
        assert self.node.wake_at is not None
        self.now = max(self.now, self.node.wake_at)
        return self.step([])

    def rest(self, seconds: float) -> list:
        """Let time pass without faults.

        Keepalives are answered, and the member wakes in time.
        """
        effects = []
        member_lease, until = self.node.member_lease, self.now + seconds
        self.now = max(self.now, until - 1.0)
        if member_lease.is_held:
            effects += self.renew()
        self.now = until
        return effects + self.step([])  # else `wake_at` might be of a deadline that has moved since

    def expire(self) -> list:
        """Let the session's thread notice that the deadline has passed."""
        self.now = max(self.now, self.node.member_lease.deadline)
        self.nudged = True
        return self.node.expire(self.now)

    def renew(self) -> list:
        """Answer a keepalive, by a call that is known to reach this history."""
        self.node.renewals.call = 0
        effects, must_step = self.node.renew(self.now, self.node.member_lease.id, self.now, 0)
        self.nudged |= must_step
        return effects

    def release(self, role: str) -> list:
        """Let user code release a role, and wait for it again."""
        for handle in [one for one in self.handles if one.role == role and one.hold is not None]:
            self.node.table.release(handle)
            self.handles.remove(handle)
        if not any(handle.role == role for handle in self.handles):
            self._want(role)
        self.nudged = True
        return []

    def pass_on(self, role: str) -> list:
        """Let user code release a role for another user in this process.

        That user needs a greater token.
        """
        self._want(role, self.node.table.held[role].token)
        return self.release(role)

    def look(self, role: str) -> list:
        """Do the part of `get_role` before its lock, on the caller's thread."""
        gate, placement = self.node.table.gate, self.node.placement
        free = gate.is_mine(role, placement) and not gate.obstacle(role, placement)
        self.gates[role] = gate if free else None
        return []

    def take(self, role: str) -> list:
        """Do the rest of `get_role`, under the lock."""
        gate, handle = self.gates.pop(role), Handle(role)
        table = self.node.table
        if gate is not None and table.take(gate, handle, self.now):
            self.handles.append(handle)
        else:
            table.release(handle)
        return []

    # ── the view from outside ────────────────────────────────────────────────────────────────

    def holds(self) -> dict[Hold, int]:
        """Return the roles that user code works on, with their leases.

        The lease is the one that the role was granted under. Roles whose claim was given up are
        left out (R10).
        """
        granted = [handle for handle in self.handles if handle.hold is not None]
        return {handle.hold: handle.lost for handle in granted if not handle.hold.given_up}


@attrs.frozen
class Work:
    """Hold a role that user code works on, by a grant under a lease."""

    role: str
    token: int
    lease: int


@attrs.frozen
class Facts:
    """Hold the facts of a member's state that the world needs."""

    alarm_in: float | None
    is_midway: bool
    nudged: bool
    holds: tuple[Work, ...]
    to_release: tuple[str, ...]
    held: tuple[str, ...]
    looked: tuple[str, ...]
    lease: int
    wrote_at: int
    is_alive: bool
    is_suspect: bool
    is_known: bool
    life: Life
    is_settled: bool
    waits_for_name: bool
    waits: tuple[str, ...]


def facts(actor: Actor) -> Facts:
    """Derive them, once per state."""
    node, member_lease, holds = actor.node, actor.node.member_lease, actor.holds()
    return Facts(
        alarm_in=None if node.wake_at is None or actor.midway else node.wake_at - actor.now,
        is_midway=actor.midway,
        nudged=actor.nudged,
        holds=tuple(Work(hold.role, hold.token, lease) for hold, lease in holds.items()),
        to_release=tuple(sorted({hold.role for hold in holds if hold.lost_at is not None})),
        held=tuple(sorted({hold.role for hold in holds if hold.lost_at is None})),
        looked=tuple(sorted(actor.gates)),
        lease=member_lease.id if member_lease.is_known else 0,
        wrote_at=node.writer.compare,
        is_alive=member_lease.is_alive,
        is_suspect=member_lease.is_held and not member_lease.is_alive,
        is_known=member_lease.is_known,
        life=node.living.state,
        is_settled=node.is_settled and node.writer.state is Write.SETTLED,
        waits_for_name=node.writer.state is Write.TAKEN,
        waits=tuple(sorted({one.role for one in actor.handles if one.hold is None})),
    )


# ── fingerprints ─────────────────────────────────────────────────────────────────────────────────

_PASSED_OVER = {
    "upcoming", "failures", "settings", "lost_because", "reported", "left_out",
    "_saw_name_taken", "pruned_below", "margin_set", "join_timeout", "leave_timeout",
    "handover_wait",
    "_sources", "_watched", "_due",
}  # fmt: skip
"""Derived, said only to people, constant, or how long a retry waits, which no order depends on."""


def _walk(value: Any, out: list) -> None:
    """Write a value out, flat; a float is a moment."""
    if isinstance(value, dict):
        out.append(len(value))
        for key in sorted(value, key=repr):
            out.append(key)
            _walk(value[key], out)
    elif isinstance(value, (set, list)):
        out.append(len(value))
        out.extend(sorted(value, key=repr))
    elif attrs.has(type(value)) and type(value).__hash__ is None:
        for field in attrs.fields(type(value)):
            if field.name not in _PASSED_OVER:
                _walk(getattr(value, field.name), out)
    else:
        out.append(value)


def _walk_table(actor: Actor, out: list) -> None:
    table = actor.node.table
    for holds in (table.held, table.lost):
        for role in sorted(holds):
            hold = holds[role]
            out += (role, hold.token, hold.share, len(hold.handles), hold.given_up)
            out += (hold.version, hold.lost_at, hold.reported)
            out += sorted(handle.lost for handle in hold.handles)
        out.append(len(holds))
    out += sorted((role, len(handles)) for role, handles in table.waits.items())
    out += sorted(table.waits.unsorted)
    out.append(table.token_above)
    out += sorted((one.role, one.token_above) for one in actor.handles if one.token_above)
    out.append(table.waits.share == actor.node.share)
    out += sorted((one.role, one.hold.token if one.hold else 0) for one in actor.handles)
    for gate in (table.gate, *(actor.gates[role] for role in sorted(actor.gates))):
        if gate is None:
            out.append("not free")
        else:
            out += (gate.share, gate.token, gate.version, gate.closed_because)
            out.append(gate is table.gate)
            out += (gate.obstacles.to(role, actor.node.placement) for role in actor.roles)
    out += sorted(actor.gates)


def fingerprint(actor: Actor, far_s: float) -> tuple:
    """Return a tuple that is equal only for equal states.

    Of a future moment, it also holds whether the moment is far.
    """
    node, out = actor.node, [actor.nudged, actor.midway]
    out += sorted(node.out.wakes) if actor.midway else []
    parts = (
        node.living,
        node.member_lease,
        node.writer,
        node.view_state.observed_times,
        node.coordinator,
        node.janitor,
    )
    for part in (*parts, node.following):
        _walk(part, out)
    view, history = node.view, node.view_state.history
    out += (history.grants_from, history.token_floor, history.post_at)
    ranking = node.settings.ranking
    kept_s = max(ranking.leave_delay, ranking.handover_wait)
    out += [at + kept_s for _, at in sorted(node.view_state.observed_times.emptied_since.items())]
    if not view.revision:  # else it is written over before anybody looks at it
        out += (history.number, history.mod_revision, history.ttl, history.token)
        out += sorted(history.records.items())
    out.append(view.revision)
    for entries in (view.members, view.versions, view.requests):
        out.extend(entries[key] for key in sorted(entries))
        out.append(len(entries))
    sources = (view.records.standing, view.versions, view.requests, not node.unsettled)
    out.append(is_same(sources, node.coordinator._sources))
    out.append(is_same((node.unsettled, node.owned), node._tried[:2]))
    out += (node.coordinates, node._gather_until)
    _walk_table(actor, out)
    ahead = sorted({x for x in out if type(x) is float and actor.now < x < float("inf")})
    order = {x: (index, x - actor.now < far_s) for index, x in enumerate(ahead)}
    return tuple(
        (order.get(x, "ever" if x == float("inf") else "past") if type(x) is float else x)
        for x in out
    )


# ── all states of one member ─────────────────────────────────────────────────────────────────────


@attrs.define(eq=False)
class Actors:
    """Hold all states of one member of a world, and their transitions."""

    name: str
    settings: dict[str, Any]
    roles: tuple[str, ...]
    far_s: float
    things: list[Any]
    halves: bool = False
    facts: list[Facts] = attrs.field(factory=list)
    _snapshots: Snapshots = attrs.field(factory=Snapshots)
    _ids: dict[tuple, int] = attrs.field(factory=dict)
    _checked: set[int] = attrs.field(factory=set)
    _done: dict[tuple, tuple[int, tuple]] = attrs.field(factory=dict)

    def born(self) -> tuple[int, tuple]:
        """Return the state of a fresh process, and its requests."""
        given = {"ttl": NEVER_S, "margin": NEVER_S / 10, **self.settings}
        node = Node(MemberSettings(self.name, **given))
        node.table.waits = QuietWaits()
        actor = Actor(node, self.roles, halves=self.halves)
        return self._keep(actor, actor.start(), is_stepped=True)

    def wake(self, state: int) -> Actor:
        """Return a member in that state."""
        actor: Actor = self._snapshots.bring_back(state)
        return actor

    def act(self, state: int, what: str, *given: Any) -> tuple[int, tuple]:
        """Do something to a member in a state.

        Return its next state and its requests. The events of a step are given by their numbers in
        `things`.
        """
        key = (state, what, given)
        done = self._done.get(key)
        if done is None:
            actor = self.wake(state)
            if what == "step":
                effects = actor.step([self.things[number] for number in given])
            else:
                effects = getattr(actor, what)(*given)
            done = self._done[key] = self._keep(actor, effects, what in STEPS)
        return done

    def _keep(self, actor: Actor, effects: list, is_stepped: bool) -> tuple[int, tuple]:
        for handle in actor.handles:
            if handle.hold is not None and handle.lost is None:
                # The core only carries it: here, the lease that the role was granted under.
                handle.lost = actor.node.member_lease.id
        seen = fingerprint(actor, self.far_s)
        state = self._ids.get(seen)
        if state is None:
            state = self._ids[seen] = self._snapshots.keep(actor)
            self.facts.append(facts(actor))
        is_done = is_stepped and not actor.midway and not (actor.halves and actor.nudged)
        if is_done and state not in self._checked:
            self._checked.add(state)
            actor.check()
        return state, tuple(effect for effect in effects if not isinstance(effect, IDLE_EFFECTS))
