"""List the next moves of a small world.

They come at any time, in any order.

* a change reaches a member; an answer reaches it; a release, or an alarm, makes it step
* a request is carried out; it is lost, and then carried out at any later time, or never; its answer
  is lost
* a deadline is noticed; a keepalive is answered after it; etcd ends a lease, early too; the member
  is told so
* user code lets go of a lost role, or never does; computes with a gate, and takes by it later
* a member is killed, and its name started again; it lists anew; its record is deleted by hand, or
  the newest version; it leaves, and is told to leave now while it offers its rank
* etcd loses its volume, or is restored from a copy of any time before; fresh members join after
  that
* an operator requests something; if an outsider coordinates, it proclaims the next version

Faults are paid for out of the state's purse. Labels tell the story to people.
"""

from __future__ import annotations

from collections.abc import Iterator

from states import DEAD, State, pay, with_one, without
from universe import Universe

from rink.core import events as ev
from rink.core.state_tables import Life
from rink.core.values import Request

Moves = Iterator[tuple[str, State]]

LEAVE = ev.LeaveAsked()
LEAVE_NOW = ev.LeaveAsked(now=True)


def moves(universe: Universe, state: State) -> Moves:
    """Yield everything that may happen next, and the state that it leads to."""
    for index in range(len(state.members)):
        if state.first_lease and universe.spec.members[index] in universe.spec.cut_off:
            continue  # but for its deadline: `_histories`
        if not universe.is_out(state, index):
            if universe.is_midway(state, index):
                yield (
                    f"{universe.spec.members[index]} steps on",
                    universe.act(state, index, "finish"),
                )
            else:
                yield from _messages(universe, state, index)
            yield from _own_moves(universe, state, index)
        yield from _requests(universe, state, index)
        if universe.spec.is_victim(universe.spec.members[index]):
            yield from _faults(universe, state, index)
    yield from _late_requests(universe, state)
    yield from _leases_and_records(universe, state)
    yield from _histories(universe, state)
    spec = universe.spec
    if state.script < len(spec.script):
        yield _from_outside(universe, state, spec.script[state.script])


def _from_outside(
    universe: Universe, state: State, what: tuple[str, ...] | Request
) -> tuple[str, State]:
    if isinstance(what, Request):
        done = universe.stores.wish(state.etcd, what, state.script)
        label = f"an operator wishes: {what.wish.value} {what.role} {what.member}".rstrip()
    else:
        done = universe.stores.proclaim(state.etcd, what)
        label = f"the outsider proclaims {what}"
    after, _ = universe.changed(state, done)
    return label, after._replace(script=state.script + 1)


def _messages(universe: Universe, state: State, index: int) -> Moves:
    one, name = state.members[index], universe.spec.members[index]
    if one.changes is None:
        yield f"{name} lists", universe.list(state, index)
    elif one.changes:
        yield f"{name} sees a change", universe.see(state, index, 1)
    for at, answer in enumerate(one.answers):
        rest = one._replace(answers=without(one.answers, at))
        heard = universe.act(with_one(state, index, rest), index, "step", answer)
        yield f"{name} hears {_called(universe, answer)}", heard
        if universe.spec.batches and one.changes:
            rest = with_one(state, index, rest._replace(changes=()))
            for batch in ((answer, *one.changes), (*one.changes, answer)):
                both = universe.act(rest, index, "step", *batch)
                yield f"{name} hears and sees all in one step", both


def _own_moves(universe: Universe, state: State, index: int) -> Moves:
    one, name = state.members[index], universe.spec.members[index]
    facts = universe.actors[index].facts[one.state]
    if facts.nudged and not facts.is_midway:
        yield f"{name} steps", universe.act(state, index, "nudge")
    elif facts.alarm_in is not None and facts.alarm_in < universe.spec.far_s:
        yield f"{name} wakes", universe.act(state, index, "alarm")
    if name not in universe.spec.clings:
        for role in facts.to_release:
            yield f"{name} lets go of {role}", universe.act(state, index, "release", role)
    for role in facts.looked:
        yield f"{name} takes {role}", universe.act(state, index, "take", role)
    leases = universe.stores.contents[state.etcd].leases
    if facts.is_suspect and facts.lease in leases:
        yield f"{name} is renewed", universe.act(state, index, "renew")
    if facts.is_known and facts.lease not in leases and not facts.is_midway:
        yield f"{name} is told of TTL 0", universe.told(state, index)


def _requests(universe: Universe, state: State, index: int) -> Moves:
    one, is_victim = state.members[index], universe.spec.is_victim(universe.spec.members[index])
    for at, request in enumerate(one.requests):
        called = f"{universe.spec.members[index]}'s {_called(universe, request)}"
        rest = with_one(state, index, one._replace(requests=without(one.requests, at)))
        served, answer = universe.serve(rest, index, request)
        yield f"{called} is carried out", universe.answer(served, index, answer)
        lost = universe.unanswered(request)
        if lost is None or one.state == DEAD or not is_victim:
            continue
        if paid := pay(served, "lose answer"):
            yield f"the answer to {called} is lost", universe.answer(paid, index, lost)
        if paid := pay(rest, "lose request"):
            late = paid._replace(late=tuple(sorted((*paid.late, (index, request)))))
            yield f"{called} is lost", universe.answer(late, index, lost)


def _late_requests(universe: Universe, state: State) -> Moves:
    for at, (index, request) in enumerate(state.late):
        rest = state._replace(late=without(state.late, at))
        called = f"{universe.spec.members[index]}'s {_called(universe, request)}"
        yield f"{called} is carried out after all", universe.serve(rest, index, request)[0]


def _leases_and_records(universe: Universe, state: State) -> Moves:
    stores, spec = universe.stores, universe.spec
    contents = stores.contents[state.etcd]
    for name, found in contents.records.items():
        if name not in spec.names or found.lease not in contents.leases:
            continue
        is_victim = spec.is_victim(name)
        is_orphan = universe.is_orphan(state, name, found.lease)
        if paid := state if is_orphan else is_victim and pay(state, "end lease"):
            after, _ = universe.changed(paid, stores.end_lease(state.etcd, found.lease))
            yield f"etcd ends the lease of {name}", after
        if paid := is_victim and pay(state, "delete"):
            after, _ = universe.changed(paid, stores.delete(state.etcd, name))
            yield f"somebody deletes the record of {name}", after
    if paid := contents.number > 1 and pay(state, "unproclaim"):
        after, _ = universe.changed(paid, stores.unproclaim(state.etcd))
        yield f"somebody deletes version {contents.number}", after


def _histories(universe: Universe, state: State) -> Moves:
    if paid := pay(state, "wipe"):
        yield "etcd loses its volume", universe.replace_history(paid, None)
    if paid := pay(state, "restore"):
        if state.copy == DEAD:
            yield "etcd is copied", state._replace(copy=state.etcd)
        else:
            yield "etcd is restored", universe.replace_history(paid, state.copy)
    if not state.first_lease:
        return
    for index, one in enumerate(state.members):
        name = universe.spec.members[index]
        if one.state == DEAD:
            if name in universe.spec.fresh and not universe.is_anybody_adrift(state):
                yield f"{name} is started", universe.start(state, index)
        elif universe.actors[index].facts[one.state].is_alive and universe.is_adrift(state, index):
            yield f"{name} notices its deadline", universe.act(state, index, "expire")


# Every fault is yielded from a state that has paid for it, so a world has finitely many states.
# Faults of the mailbox wait while the member is midway: it hears nothing between its two halves.
def _faults(universe: Universe, state: State, index: int) -> Moves:
    one, name = state.members[index], universe.spec.members[index]
    if one.state == DEAD:
        if paid := pay(state, "restart"):
            yield f"{name} is started", universe.start(paid, index)
        return
    facts = universe.actors[index].facts[one.state]
    if paid := pay(state, "kill"):
        yield f"{name} is killed", universe.kill(paid, index)
    if paid := facts.is_alive and pay(state, "expire"):
        yield f"{name} notices its deadline", universe.act(paid, index, "expire")
    if paid := one.changes and not facts.is_midway and pay(state, "relist"):
        yield f"{name} lists anew", universe.list(paid, index)
    if paid := facts.life is Life.ACTIVE and not facts.is_midway and pay(state, "leave"):
        yield f"{name} is to leave", universe.act(paid, index, "step", universe.number(LEAVE))
    if paid := facts.life is Life.OFFERING and not facts.is_midway and pay(state, "leave now"):
        number = universe.number(LEAVE_NOW)
        yield f"{name} is to leave now", universe.act(paid, index, "step", number)
    for role in facts.held:
        if paid := pay(state, "pass on"):
            yield f"{name} passes {role} on", universe.pass_on(paid, index, role)
    for role in universe.spec.roles:
        if paid := role not in facts.looked and pay(state, "look"):
            yield f"{name} looks for {role}", universe.act(paid, index, "look", role)
            if role in facts.held:
                yield f"{name} releases {role}", universe.act(paid, index, "release", role)


def _called(universe: Universe, number: int) -> str:
    return type(universe.things[number]).__name__
