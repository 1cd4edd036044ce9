"""Apply one event at a time to a whole small world.

A `State` has numbers only. The members and the etcd behind them are in `actors` and `stores`.
"""

from __future__ import annotations

from typing import Any

import attrs
import rules
from actors import Actors
from small_etcd import unanswered
from spec import FAULTS, Spec
from states import DEAD, One, State, with_one
from stores import Stores

from rink.core import effects as do
from rink.core import events as ev
from rink.core.state_tables import Life
from rink.core.view import owner_of

CHORES = (do.LookUpLease, do.RemoveRecord, ev.LeaseLookedUp)


@attrs.define(eq=False)
class Universe:
    """Hold a world's states, as far as they have been met."""

    spec: Spec
    stores: Stores = attrs.field(factory=Stores)
    things: list[Any] = attrs.field(factory=list)
    actors: list[Actors] = attrs.field(init=False)
    _numbers: dict[Any, int] = attrs.field(factory=dict)
    _lost: dict[int, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        spec = self.spec
        self.actors = [
            Actors(name, spec.settings, spec.roles, spec.far_s, self.things, spec.halves)
            for name in spec.names
        ]

    def number(self, thing: Any) -> int:
        """Return the number of an event or a request."""
        found = self._numbers.get(thing)
        if found is None:
            found = self._numbers[thing] = len(self.things)
            self.things.append(thing)
        return found

    # ── beginning ────────────────────────────────────────────────────────────────────────────

    def empty(self) -> State:
        """Return the world before anybody has joined."""
        spec = self.spec
        etcd = self.stores.begin(spec)
        purse = tuple(spec.purse.get(fault, 0) for fault in FAULTS)
        nobody = tuple(One(DEAD, None, (), ()) for _ in spec.members)
        tokens = tuple((DEAD, 0) for _ in spec.roles)
        return State(etcd, nobody, (), tokens, 0, purse, DEAD, 0)

    def start(self, state: State, index: int) -> State:
        """Start a member's process."""
        number, effects = self.actors[index].born()
        one = One(number, None, self._numbered(effects), ())
        return with_one(state, index, one)

    # ── one thing happens ────────────────────────────────────────────────────────────────────

    def act(self, state: State, index: int, what: str, *given: Any) -> State:
        """Apply an event to a member, and send its requests."""
        one = state.members[index]
        number, effects = self.actors[index].act(one.state, what, *given)
        changes, requests = one.changes, one.requests
        if effects:
            asked = self._numbered(effects)
            requests += tuple(each for each in asked if not self._is_chore_again(each, requests))
            if any(type(effect) is do.ListGroup for effect in effects):
                changes = None  # changes on their way belong to the old view
        after = with_one(state, index, One(number, changes, requests, one.answers))
        if self.is_out(after, index):
            after = with_one(state, index, One(number, None, requests, ()))
        return self._note_grants(state, after, index)

    def _is_chore_again(self, message: int, under_way: tuple[int, ...]) -> bool:
        """Return whether the same request of the janitor is under way already."""
        return message in under_way and isinstance(self.things[message], CHORES)

    def _numbered(self, effects: tuple) -> tuple[int, ...]:
        requests = (effect for effect in effects if type(effect) is not do.ListGroup)
        return tuple(self.number(request) for request in requests)

    def changed(self, state: State, done: tuple) -> tuple[State, Any]:
        """Take over a change of etcd, and send it to every member."""
        etcd, answer, changes = done
        if changes:
            numbers = tuple(self.number(change) for change in changes)
            members = tuple(
                one if one.changes is None else one._replace(changes=one.changes + numbers)
                for one in state.members
            )
            state = state._replace(members=members)
        return state._replace(etcd=etcd), answer

    def serve(self, state: State, index: int, request: int) -> tuple[State, Any]:
        """Carry out a request."""
        name = self.spec.names[index]
        done = self.stores.serve(state.etcd, name, request, self.things[request])
        return self.changed(state, done)

    def list(self, state: State, index: int) -> State:
        """Let a member list the range anew.

        Changes on their way to it are overtaken.
        """
        listed = self.number(self.stores.listed(state.etcd))
        one = state.members[index]._replace(changes=())
        return self.act(with_one(state, index, one), index, "step", listed)

    def see(self, state: State, index: int, count: int) -> State:
        """Deliver the first `count` changes to a member, in one step."""
        one = state.members[index]
        assert one.changes is not None
        seen, rest = one.changes[:count], one.changes[count:]
        return self.act(with_one(state, index, one._replace(changes=rest)), index, "step", *seen)

    def pass_on(self, state: State, index: int, role: str) -> State:
        """Let user code pass a role on.

        The next token is greater, also under the same lease.
        """
        after = self.act(state, index, "pass_on", role)
        tokens, at = list(after.tokens), self.spec.roles.index(role)
        tokens[at] = DEAD, tokens[at][1]
        return after._replace(tokens=tuple(tokens))

    def told(self, state: State, index: int) -> State:
        """Answer a keepalive with TTL 0."""
        facts = self.actors[index].facts[state.members[index].state]
        return self.act(state, index, "step", self.number(ev.LeaseEnded(facts.lease)))

    def answer(self, state: State, index: int, answer: Any) -> State:
        """Send an answer to a member.

        There may be no answer, or no member to hear it.
        """
        one = state.members[index]
        if answer is None or self.is_out(state, index):
            return state
        number = self.number(answer)
        if self._is_chore_again(number, one.answers):
            return state
        return with_one(state, index, one._replace(answers=(*one.answers, number)))

    def unanswered(self, request: int) -> Any:
        """Return a member's event for an unanswered request.

        It is the same each time.
        """
        if request not in self._lost:
            self._lost[request] = unanswered(self.things[request])
        return self._lost[request]

    def replace_history(self, state: State, copy: int | None) -> State:
        """Let etcd go on with another history.

        Every watch breaks, and must list anew. Requests on their way to the old servers are lost.
        Later requests go to the new ones.
        """
        etcd, first_lease = self.stores.replace(state.etcd, copy, self.spec)
        members = tuple(one._replace(changes=None) for one in state.members)
        return state._replace(etcd=etcd, members=members, late=(), first_lease=first_lease)

    def kill(self, state: State, index: int) -> State:
        """Kill a process by SIGKILL.

        Its requests may still be carried out, at any time.
        """
        one = state.members[index]
        late = tuple(sorted((*state.late, *((index, request) for request in one.requests))))
        return with_one(state._replace(late=late), index, One(DEAD, None, (), ()))

    def _note_grants(self, before: State, after: State, index: int) -> State:
        facts = self.actors[index].facts
        had = facts[before.members[index].state].holds
        has = facts[after.members[index].state].holds
        if has == had:
            return after
        tokens = list(after.tokens)
        for hold in has:
            if hold not in had and self.covers(after, index, hold.lease):
                rules.check_grant(self, after, index, hold)
                tokens[self.spec.roles.index(hold.role)] = hold.lease, hold.token
        return after._replace(tokens=tuple(tokens))

    # ── facts of a state ─────────────────────────────────────────────────────────────────────

    def is_out(self, state: State, index: int) -> bool:
        """Return whether a member is dead or has left.

        Nothing reaches it then, and it no longer steps. Its user code still works on the roles that
        it has not released.
        """
        number = state.members[index].state
        return number == DEAD or self.actors[index].facts[number].life in (Life.LEFT, Life.RAN_OUT)

    def is_midway(self, state: State, index: int) -> bool:
        """Return whether a member is between the two halves of a step.

        It hears nothing meanwhile.
        """
        return self.actors[index].facts[state.members[index].state].is_midway

    def covers(self, state: State, index: int, lease: int) -> bool:
        """Return whether the record that a grant was under still stands.

        A grant under another record is a zombie's. Only its token keeps it out.
        """
        found = self.stores.contents[state.etcd].records.get(self.spec.names[index])
        return found is not None and found.lease == lease

    def is_adrift(self, state: State, index: int) -> bool:
        """Return whether a member lives in a history of etcd that is gone.

        Its record is missing, or older than its last write. It holds its roles until it notices, or
        until its own deadline. Nothing in etcd stands for it.
        """
        facts = self.actors[index].facts[state.members[index].state]
        if facts.lease >= state.first_lease:
            return False
        found = self.stores.contents[state.etcd].records.get(self.spec.names[index])
        return found is None or found.lease != facts.lease or found.mod < facts.wrote_at

    def is_anybody_adrift(self, state: State) -> bool:
        """Return whether a role may still be held by a lost history.

        It may also be granted: an answer of the old etcd may reach a member late. So a member that
        holds no role counts as well, until its deadline.
        """
        return any(
            one.state != DEAD
            and self.actors[index].facts[one.state].is_alive
            and self.is_adrift(state, index)
            for index, one in enumerate(state.members)
        )

    def is_orphan(self, state: State, name: str, lease: int) -> bool:
        """Return whether a lease lives that no member renews.

        The members of that name do not hold it.
        """
        return lease in self.stores.contents[state.etcd].leases and not any(
            one.state != DEAD and self.actors[index].facts[one.state].lease == lease
            for index, one in enumerate(state.members)
            if self.spec.names[index] == name
        )

    def owner(self, state: State, role: str) -> str | None:
        """Return who owns a role by the newest version in etcd."""
        version = self.stores.contents[state.etcd].version
        return owner_of(version, role, rules.RANK) if version else None
