"""A state of a small world: a tuple of numbers, so that millions of them fit."""

from __future__ import annotations

from typing import NamedTuple

from spec import FAULTS

DEAD = -1


class One(NamedTuple):
    """One member: its state, the changes on their way to it (None: it has not listed yet), and so on."""

    state: int
    changes: tuple[int, ...] | None
    requests: tuple[int, ...]
    answers: tuple[int, ...]


class State(NamedTuple):
    """A whole world. `tokens`: for each role, who was granted it last, and its token."""

    etcd: int
    members: tuple[One, ...]
    late: tuple[tuple[int, int], ...]
    tokens: tuple[tuple[int, int], ...]
    script: int
    purse: tuple[int, ...]


def pay(state: State, fault: str) -> State | None:
    at = FAULTS.index(fault)
    left = state.purse[at]
    if not left:
        return None
    return state._replace(purse=(*state.purse[:at], left - 1, *state.purse[at + 1 :]))


def with_one(state: State, index: int, one: One) -> State:
    members = state.members
    return state._replace(members=(*members[:index], one, *members[index + 1 :]))


def without(things: tuple, at: int) -> tuple:
    return things[:at] + things[at + 1 :]
