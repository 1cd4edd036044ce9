"""Doom one member of a small group in the middle of a change.

The changes are joins, proclamations and hand-overs. A scene brings a group up to the moment before
the change, arms the doomed member, and lets the change happen. It ends when the change is over or
the doomed member is dead. Afterwards a replacement starts, and the group must be whole again.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from faults_members_group import Group
from faults_members_support import Member, Members

TTL_S = 3
ROLES_PER_GROUP = 6

Doom = tuple[str, int, float]
"""The killing point: which place, which pass of it, and how long a request has under way."""

HARMLESS: Doom = ("", 0, 0.0)


class Doomed(Group):
    """Run a group with a member that dies at a killing point.

    `seed` decides what comes afterwards.
    """

    def __init__(
        self, members: Members, endpoints: Any, folder: Path, scene: str, seed: str, doom: Doom
    ) -> None:
        roles = [f"{scene}/{number}" for number in range(ROLES_PER_GROUP)]
        super().__init__(members, endpoints, folder, roles, TTL_S)
        self._rng = random.Random(seed)
        self.doom = doom

    def has(self, *names: str, doomed: str = "") -> list[Member]:
        """Start members, oldest first, that share the roles.

        The doomed one can be armed later.
        """
        found = []
        for name in names:
            found.append(self.start(name, arm=HARMLESS if name == doomed else None))
            found[-1].wait("joined")
        self.settle()
        return found

    def arm(self, doomed: Member) -> None:
        """Let the member die at any moment from now on."""
        doomed.ask_if_alive("arm", *self.doom)

    def recover(self, doomed: Member) -> float:
        """Start a replacement; return the time by which all roles were held.

        Afterwards nothing moves any more.
        """
        self.alive.remove(doomed)
        again = self._rng.random() < 0.5
        self.start(doomed.name if again else "replacement")
        held_at = self.wait_for_holders()
        self.settle()
        self.wait_for_holders()  # a last version may have been under way
        return held_at


# ── joins ────────────────────────────────────────────────────────────────────────────────────


def joins_first(group: Doomed) -> Member:
    """Let the doomed member be the first of a group, and hold all of it."""
    doomed = group.start("doomed", arm=group.doom)
    group.is_over(doomed)
    return doomed


def joins(group: Doomed) -> Member:
    """Let the doomed member join two others and get a rank.

    Roles come to it from both.
    """
    group.has("first", "second")
    doomed = group.start("doomed", arm=group.doom)
    group.is_over(doomed)
    return doomed


def _dies_of_a_newcomer(group: Doomed, doomed: Member) -> Member:
    group.arm(doomed)
    group.start("third").wait("joined")
    group.is_over(doomed)
    return doomed


def _dies_of_its_leave(group: Doomed, doomed: Member) -> Member:
    group.arm(doomed)
    doomed.say("leave")
    doomed.wait("left", "ended")
    return doomed


# ── proclamations ────────────────────────────────────────────────────────────────────────────


def proclaims_growth(group: Doomed) -> Member:
    """Coordinate while a third member joins."""
    doomed, _ = group.has("doomed", "second", doomed="doomed")
    return _dies_of_a_newcomer(group, doomed)


def proclaims_a_leave(group: Doomed) -> Member:
    """Coordinate while a third member leaves."""
    doomed, _, third = group.has("doomed", "second", "third", doomed="doomed")
    group.arm(doomed)
    group.leave(third)
    group.is_over(doomed)
    return doomed


# ── hand-overs ───────────────────────────────────────────────────────────────────────────────


def leaves(group: Doomed) -> Member:
    """Leave by plan, while another member coordinates."""
    _, doomed = group.has("first", "doomed", doomed="doomed")
    return _dies_of_its_leave(group, doomed)


def leaves_as_coordinator(group: Doomed) -> Member:
    """Let the doomed member leave by plan and proclaim its own leave."""
    doomed, _ = group.has("doomed", "second", doomed="doomed")
    return _dies_of_its_leave(group, doomed)


def gives(group: Doomed) -> Member:
    """Let go of roles for a newcomer, while another member coordinates."""
    _, doomed = group.has("first", "doomed", doomed="doomed")
    return _dies_of_a_newcomer(group, doomed)


def takes(group: Doomed) -> Member:
    """Let the doomed member stand by, and get all roles of a leaver."""
    _, leaver = group.has("first", "leaver")
    doomed = group.start("doomed", arm=HARMLESS, rebalance_delay=60.0)
    doomed.wait("joined")
    leaver.until_it_sees(doomed)
    group.arm(doomed)
    group.leave(leaver)
    group.is_over(doomed)
    return doomed


PHASES = {
    "join": (joins_first, joins),
    "proclaim": (proclaims_growth, proclaims_a_leave),
    "hand-over": (leaves, leaves_as_coordinator, gives, takes),
}
SCENES = {scene.__name__: scene for scenes in PHASES.values() for scene in scenes}
