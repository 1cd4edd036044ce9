"""What an event costs that another member causes: by roles waited for and held, and by members.

A record that another member rewrites is the commonest event. The core handles it here as the engine
does, on one thread: fold, place, step. Each figure stands beside the same in the smallest group.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from arena import Arena
from figures import Figure, Outcome, at_most, percentile

from rink.core import effects as do
from rink.core import events as ev
from rink.core.holds import Handle
from rink.core.node import MemberSettings, Node
from rink.core.values import Member, Proclaimed, Record, Share, Version

TITLE = "CPU of one event of another member"
SMALL = 5
"""Members of the group in which roles are waited for and held."""
WAITS = {1_000: 1.3, 10_000: 1.3, 100_000: 1.3}
HELD = {10_000: 1.3}
LEAST_MEMBERS = 100
MEMBERS = {300: 1.7, 1_000: 1.7, 3_000: 3.0}
EVENTS = 60
NOW = 100.0


def run(arena: Arena) -> Outcome:
    figures = []
    bare = _quartile(Group(SMALL).times())
    for kind, counts in (("waits", WAITS), ("held", HELD)):
        for count, bound in counts.items():
            arena.progress(f"{count:,} {kind}", len(figures), 10)
            group = Group(SMALL)
            group.want(count, is_mine=kind == "held")
            what = f"{count:,} roles {'waited for, of others' if kind == 'waits' else 'held'}"
            figures.append(_figure(f"{kind}_{count}", what, group, bare, bound))
    for coordinates in (False, True):
        smallest = _quartile(Group(LEAST_MEMBERS, coordinates=coordinates).times())
        for count, bound in MEMBERS.items():
            arena.progress(f"{count:,} members", len(figures), 10)
            who = "the coordinator" if coordinates else "a member"
            key = f"{'coordinator' if coordinates else 'member'}_of_{count}"
            group = Group(count, coordinates=coordinates)
            figures.append(_figure(key, f"{who} of {count:,}", group, smallest, bound))
    return Outcome(part="events", title=TITLE, figures=figures)


def _figure(key: str, what: str, group: Group, limit: float, bound: float) -> Figure:
    times = group.times()
    return Figure(
        key=f"events.{key}",
        what=what,
        value=_quartile(times),
        unit="us",
        limit=limit,
        limit_is=f"the same with no roles, or in a group of {LEAST_MEMBERS}",
        target=at_most(bound * limit, f"≤ {bound:g} times the limit"),
        more={"times": times},
    )


def _quartile(times: list[float]) -> float:
    """Return the first quartile: other processes disturb the rest."""
    return percentile(times, 0.25)


class Group:
    """A settled group, as one of its members sees it."""

    def __init__(self, count: int, *, coordinates: bool = False) -> None:
        self.count, self.me = count, 0 if coordinates else count // 2
        self.names = [f"host-{number:05d}-abcdef0123" for number in range(count)]
        self.settings = [MemberSettings(name=name, ttl=60) for name in self.names]
        self.node = Node(self.settings[self.me])
        self.revision = 10 + count
        self.created = 5 if coordinates else 10 + self.me  # the coordinator's is the oldest
        self.node.step(NOW, [])
        self.node.step(NOW, [ev.LeaseGranted(self._lease(self.me), 60, NOW, f"i{self.me}")])
        others = [self._member(number, 10 + number) for number in range(count) if number != self.me]
        version = Proclaimed(1, Version(1, tuple(self.names), "jump"), 9, 100)
        self._settle(self.node.step(NOW, [ev.Listed(self.revision, (*others, version))]))

    def _settle(self, effects: list[do.Effect]) -> None:
        while writes := [one for one in effects if isinstance(one, do.WriteRecord)]:
            self.revision += 1
            effects = self.node.step(
                NOW, [ev.WriteAnswered(writes[0].attempt, True, self.revision)]
            )
            own = Member(
                self.names[self.me],
                writes[0].record,
                self.created,
                self.revision,
                self._lease(self.me),
            )
            effects += self.node.step(NOW, [ev.Changed(self.revision, (own,))])
        if not self.node.is_settled or self.node.table.gate.share is None:
            raise AssertionError(self.node.table.gate.closed_because or "not settled")

    def _lease(self, number: int) -> int:
        return 1000 + number

    def _member(self, number: int, revision: int, version: int = 1) -> Member:
        record = Record(
            incarnation=f"i{number}",
            ttl=60,
            version=version,
            shares=(Share(number, self.count, "jump"),),
            **self.settings[number].recorded,
        )
        return Member(self.names[number], record, 10 + number, revision, self._lease(number))

    def want(self, count: int, *, is_mine: bool) -> None:
        """Wait for so many roles: of this member, which are granted, or of others."""
        roles = (f"orders/{number:08d}" for number in range(10**9))
        rank_of = self.node.placement.rank
        for role in roles:
            if count == 0:
                break
            if (rank_of(role, "jump", self.count, bounded=False) == self.me) == is_mine:
                self.node.table.want(Handle(role))
                count -= 1
        self._advance([ev.Nudged()])

    def times(self) -> list[float]:
        """Return what each of some events took, in microseconds of CPU."""
        times = []
        for number in range(EVENTS):
            self.revision += 1
            other = (self.me + 1 + number % (self.count - 1)) % self.count
            event = ev.Changed(self.revision, (self._member(other, self.revision, number),))
            times.append(_measured(lambda event=event: self._advance([event])))
        return times

    def _advance(self, events: list[ev.Event]) -> None:
        node = self.node
        for role, scheme, size in node.placing.missing(
            node.foresee(events), node.table, node.placement
        ):
            node.placement.rank(role, scheme, size, bounded=False)
        node.placing.done(node.table, set())
        node.step(NOW, events)


def _measured(work: Callable[[], None]) -> float:
    began_at = time.thread_time()
    work()
    return 1e6 * (time.thread_time() - began_at)
