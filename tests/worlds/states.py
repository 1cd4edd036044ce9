"""Represent a state of a small world as a tuple of numbers.

So millions of states fit into memory.
"""

from __future__ import annotations

from typing import NamedTuple

from spec import FAULTS

DEAD = -1


class One(NamedTuple):
    """Represent one member: its state and its messages.

    `changes` are those on their way to it, or None before its first list.
    """

    state: int
    changes: tuple[int, ...] | None
    requests: tuple[int, ...]
    answers: tuple[int, ...]


class State(NamedTuple):
    """Hold a whole world.

    `tokens`: for each role, its last grantee and token. `copy` is an earlier state of etcd that may
    be restored, or DEAD; `first_lease` is the first lease of the present history of etcd.
    """

    etcd: int
    members: tuple[One, ...]
    late: tuple[tuple[int, int], ...]
    tokens: tuple[tuple[int, int], ...]
    script: int
    purse: tuple[int, ...]
    copy: int
    first_lease: int


_PLACES = {fault: at for at, fault in enumerate(FAULTS)}


def pay(state: State, fault: str) -> State | None:
    at, purse = _PLACES[fault], state.purse
    left = purse[at]
    if not left:
        return None
    return state._replace(purse=(*purse[:at], left - 1, *purse[at + 1 :]))


def with_one(state: State, index: int, one: One) -> State:
    etcd, members, *rest = state  # quicker than `_replace`
    return State(etcd, (*members[:index], one, *members[index + 1 :]), *rest)


def without(things: tuple, at: int) -> tuple:
    return things[:at] + things[at + 1 :]
