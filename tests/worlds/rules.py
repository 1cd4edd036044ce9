"""Check the rules that hold in every state of every small world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from states import DEAD, State

from rink.core.effects import RemoveRecord
from rink.core.placement import Placement
from rink.core.state_tables import Life

if TYPE_CHECKING:
    from actors import Work
    from stores import Contents
    from universe import Universe

RANK = Placement().rank

UNPROCLAIMED = "the newest version is deleted by hand"


class BrokenRuleError(AssertionError):
    """Report that a rule is broken in a state."""


def check_state(universe: Universe, state: State) -> None:
    """Check that no role has two claiming holders whose leases live.

    A member that lives in a lost history of etcd holds its roles until it has noticed. After that,
    its user code's work counts only as far as the record in etcd still claims the role. Nor does a
    leaving member end its lease itself while its user code works under it.
    """
    holders: dict[str, str] = {}
    contents = universe.stores.contents[state.etcd]
    for index, one in enumerate(state.members):
        if one.state == DEAD:
            continue
        process, name = universe.spec.members[index], universe.spec.names[index]
        facts, is_adrift = universe.actors[index].facts[one.state], universe.is_adrift(state, index)
        if facts.life is Life.REVOKING and facts.holds:
            role = facts.holds[0].role
            raise BrokenRuleError(f"{process} revokes its lease, and works on {role}")
        for hold in facts.holds:
            is_held, stands = hold.role in facts.held, universe.covers(state, index, hold.lease)
            is_claimed = stands and _claims(contents, name, hold.role)
            is_of_before = hold.lease < state.first_lease
            if not (is_claimed or (is_held and is_adrift) or (stands and not is_of_before)):
                continue
            if hold.role in holders:
                both = f"by {holders[hold.role]} and by {process}"
                raise BrokenRuleError(f"{hold.role} is held {both}")
            holders[hold.role] = process
            if not is_claimed and not is_adrift:  # R3: so is every role with an unreleased handle
                text = f"{name} works on {hold.role}, and its record does not claim it"
                raise BrokenRuleError(text)


def _claims(contents: Contents, name: str, role: str) -> bool:
    """Return whether the record of a member claims a role."""
    record = contents.records[name].record
    shares = (share.has(role, RANK(role, share.scheme, share.size)) for share in record.shares)
    return role in record.draining or any(shares)


def check_grant(universe: Universe, state: State, index: int, hold: Work) -> None:
    """Check that tokens rise, and that rejoined members are waited for.

    A grant is by a view of revision `token`. A member that had its record back by then must have
    let go of the role, even of a role granted under an earlier lease (R7).
    """
    names, role = universe.spec.members, hold.role
    lease, token = state.tokens[universe.spec.roles.index(role)]
    if hold.lease != lease and hold.token <= token:
        raise BrokenRuleError(f"{role}: token {hold.token} of {names[index]} after {token}")
    for other, one in enumerate(state.members):
        if other == index or one.state == DEAD or universe.is_adrift(state, other):
            continue
        found = universe.stores.contents[state.etcd].records.get(universe.spec.names[other])
        facts = universe.actors[other].facts[one.state]
        if (
            found is None
            or found.created > hold.token
            or _is_twins(universe, state, other, found.lease)
        ):
            continue
        for work in facts.holds:
            if work.role == role and work.lease != found.lease:
                text = (
                    f"{role} is granted to {names[index]}; {names[other]}, which rejoined, has it"
                )
                raise BrokenRuleError(text)


def _is_twins(universe: Universe, state: State, index: int, lease: int) -> bool:
    """Return whether a lease is that of a process of the same name."""
    name = universe.spec.names[index]
    return any(
        universe.spec.names[other] == name
        and other != index
        and universe.actors[other].facts[one.state].lease == lease
        for other, one in enumerate(state.members)
        if one.state != DEAD
    )


def check_change(before: Contents, after: Contents, effect: object) -> None:
    """Check the versions and records after a change of etcd."""
    if effect != UNPROCLAIMED:
        _check_versions(before, after)
    for name, found in before.records.items():
        other = after.records.get(name)
        if other is not None and other.created == found.created and other.lease != found.lease:
            raise BrokenRuleError(f"the record of {name} is written over by another of its name")
        if other is None and isinstance(effect, RemoveRecord) and found.lease in before.leases:
            raise BrokenRuleError(f"the record of {name} is removed, and its lease lives")


def _check_versions(before: Contents, after: Contents) -> None:
    """Check that versions follow each other by one.

    They must rank nobody twice, and rank from 0 on without a gap.
    """
    if after.number not in (before.number, before.number + 1):
        raise BrokenRuleError(f"version {after.number} follows {before.number}")
    if after.number and after.version is None:
        raise BrokenRuleError(
            f"version {after.number} cannot be read"
        )  # a name ranked twice, for example
    if before.version and after.version and after.version.token_base < before.version.token_base:
        raise BrokenRuleError(f"version {after.number} lowers the token base")
