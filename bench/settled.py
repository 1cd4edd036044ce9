"""Step one member of a settled group, without etcd and at a fixed time."""

from __future__ import annotations

import threading
from typing import Any

from rink.core import effects as do
from rink.core import events as ev
from rink.core.holds import Handle
from rink.core.member import MemberSettings, Node
from rink.core.member_record import MemberRecord, Share
from rink.core.values import Member, Proclaimed, Version
from rink.engine.callbacks import Callbacks, Listeners
from rink.engine.clock import SystemClock
from rink.engine.stepper import Stepper

NOW = 100.0


class _Standing(SystemClock):
    def now(self) -> float:
        return NOW


class Group:
    """Step one member of a group as its engine does.

    The steps run on the caller's thread. The member has the middle rank. If it `coordinates`, it
    has rank 0, and is the oldest.
    """

    def __init__(self, count: int, *, coordinates: bool = False) -> None:
        self.count, self.me = count, 0 if coordinates else count // 2
        self.names = [f"host-{number:05d}-abcdef0123" for number in range(count)]
        self.settings = [MemberSettings(name=name, ttl=60) for name in self.names]
        self.node = Node(self.settings[self.me])
        self.revision = 10 + count
        clock = _Standing()
        callbacks = Callbacks(clock, Listeners(), {"group": "g"})
        self._stepper = Stepper(self.node, threading.RLock(), clock, callbacks)
        self.step()
        self.step(ev.LeaseGranted(1000 + self.me, 60, NOW, f"i{self.me}"))
        others = [self.member(number) for number in range(count) if number != self.me]
        version = Proclaimed(1, Version(1, tuple(self.names), "jump"), 9, 9)
        self._settle(self.step(ev.Listed(self.revision, (*others, version))))
        if self.node.coordinates != coordinates:
            raise AssertionError("another member coordinates")

    def step(self, *events: ev.MemberEvent) -> list[do.Effect]:
        """Step with these events; return what is to be done."""
        own = self._stepper.step_own(list(events))
        return own.effects + self._stepper.step_group(own.unplaced)

    def member(self, number: int, **changed: Any) -> Member:
        """Return the record of a rank at this revision.

        The oldest member has rank 0.
        """
        fields = {"version": 1, "shares": (Share(number, self.count, "jump"),)}
        fields |= {**self.settings[number].recorded, **changed}
        record = MemberRecord(incarnation=f"i{number}", ttl=60, **fields)
        return Member(self.names[number], record, 10 + number, self.revision, 1000 + number)

    def rewritten(self, **changed: Any) -> ev.Changed:
        """Return the event of another member's record, of each one by turns."""
        self.revision += 1
        other = (self.me + 1 + self.revision % (self.count - 1)) % self.count
        labels = {"written": str(self.revision)}
        return ev.Changed(self.revision, (self.member(other, labels=labels, **changed),))

    def want(self, count: int, *, is_mine: bool) -> None:
        """Wait for `count` roles: of this member, which are granted, or of others."""
        rank_of, number = self.node.placement.rank, 0
        while count:
            role, number = f"orders/{number:08d}", number + 1
            if (rank_of(role, "jump", self.count, bounded=False) == self.me) == is_mine:
                self.node.table.want(Handle(role))
                count -= 1
        self.step(ev.Nudged())

    def _settle(self, effects: list[do.Effect]) -> None:
        """Answer what the member writes, until it may be granted roles."""
        while writes := [one for one in effects if isinstance(one, do.WriteRecord)]:
            self.revision += 1
            effects = self.step(ev.WriteAnswered(writes[0].attempt, True, self.revision))
            own = Member(
                self.names[self.me], writes[0].record, 10 + self.me, self.revision, 1000 + self.me
            )
            effects += self.step(ev.Changed(self.revision, (own,)))
        if not self.node.is_settled or self.node.table.gate.share is None:
            raise AssertionError(self.node.table.gate.closed_because or "not settled")
