"""Run one group of forked members, and judge what they did."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path
from typing import Any

import attrs
from faults_members_support import Member, Members
from ledger import Ledger
from members import LONG_S, QUICK
from table import Row

from rink.core.schemes import rank_of
from rink.engine.clock import SYSTEM
from rink.testing.history import History, Judgement


def row_of_all(
    fault: str, servers: str, judged: list[tuple[Judgement, float]], bound: float | None = None
) -> Row:
    """Return one row for many groups that suffered the same fault.

    Each judgement comes with the time of its fault.
    """
    rows = [Row.of(fault, servers, judgement, since, bound=bound) for judgement, since in judged]
    counts = ("grants", "moves", "overlaps", "early", "stale_accepted", "stale_refused")
    return attrs.evolve(
        rows[0],
        longest_gap=max(row.longest_gap for row in rows),
        **{count: sum(getattr(row, count) for row in rows) for count in counts},
    )


class Group:
    """Run a group under its own prefix, with history and fenced resource.

    Attributes:
        alive: the members that should hold all roles together, oldest first.
    """

    def __init__(
        self, members: Members, endpoints: Any, folder: Path, roles: list[str], ttl: int
    ) -> None:
        self._members = members
        self._endpoints = endpoints
        self._started: list[Member] = []
        self.prefix = f"test-{uuid.uuid4().hex}/"
        self.roles = roles
        self.ttl = ttl
        self.history = History()
        self.ledger = Ledger(self.history, folder)
        self.alive: list[Member] = []

    def start(
        self,
        name: str,
        *,
        by: Members | None = None,
        arm: Any = None,
        shift: int = 0,
        roles: list[str] | None = None,
        writes: bool = True,
        ttl: int | None = None,
        **settings: Any,
    ) -> Member:
        """Start a member.

        It is called `name#n` in the history, since names may come again.

        Args:
            name: the member's.
            by: another zygote than the group's.
            arm: the killing point, for a member that can die at one.
            shift: by how many seconds its wall clock is wrong.
            roles: the roles that it follows; all of the group if None.
            writes: whether it writes to the resource when it has gained a role.
            ttl: of its session; that of the group if None.
            settings: of the member.
        """
        member = (by or self._members).start(
            self.history,
            name,
            f"{name}#{len(self._started)}",
            endpoints=self._endpoints,
            prefix=self.prefix,
            roles=self.roles if roles is None else roles,
            session={"ttl": ttl or self.ttl},
            member={**QUICK, **settings},
            ledger=self.ledger.path if writes else None,
            arm=arm,
            shift=shift,
        )
        self._started.append(member)
        self.alive.append(member)
        return member

    def joined(self, name: str, **given: Any) -> Member:
        """Start a member, and wait until it has joined."""
        member = self.start(name, **given)
        member.wait("joined")
        return member

    def leave(self, member: Member) -> None:
        """Make a member leave by plan."""
        self.alive.remove(member)
        member.leave()

    def kill(self, member: Member) -> float:
        """Kill one; when."""
        self.alive.remove(member)
        return member.kill()

    def settle(self) -> None:
        """Wait until each of the living holds what the newest version gives it."""
        for member in self.alive:
            assert self.is_over(member), f"{member.who} is dead: {member.died}"

    def is_over(self, member: Member) -> bool:
        """Wait until the living are ranked, and this member has its roles.

        Return False if the member is dead.
        """
        end = SYSTEM.now() + LONG_S
        while True:
            status = member.ask_if_alive("status", True)
            if status is None:
                return False
            who = {one.name: one.who for one in self.alive}
            if status["settled"] and sorted(status["ranks"]) == sorted(who):
                with contextlib.suppress(TimeoutError):
                    self._wait_for_its(member, status["ranks"])
                    return not member.ended.is_set()
            assert SYSTEM.now() < end, f"{member.who} sees {status} and not {who}"

    def _wait_for_its(self, member: Member, ranks: list[str]) -> None:
        """Wait until a member holds what these ranks give it, or is dead.

        The wait is short, since other members may come.
        """
        its = {r for r in self.roles if ranks[rank_of(r, len(ranks))] == member.name}
        self.history.wait(
            lambda history: (
                member.ended.is_set()
                or {r for r, holder in history.holders.items() if holder == member.who} == its
            ),
            timeout=1.0,
        )

    def wait_for_holders(self, *members: Member, timeout: float = LONG_S) -> float:
        """Wait until each role is held; return the time by which that was so.

        The holders must be the given members, or else the living ones.
        """
        living = {member.who for member in members or self.alive}
        roles = set(self.roles)
        self.history.wait(
            lambda history: (
                history.holders.keys() == roles and living.issuperset(history.holders.values())
            ),
            timeout,
        )
        return SYSTEM.now()

    def close(self) -> None:
        """Kill whoever is left."""
        for member in self._started:
            if not member.ended.is_set():
                member.kill()
        self.ledger.close()
