"""Measure how long nobody holds a role in a planned leave.

Two processes leave and join by turns. Between two hand-overs the limit is measured, so that
whatever else the machine does hits both alike.
"""

from __future__ import annotations

import time
from typing import Any

from arena import Arena
from child import Child
from figures import Figure, Outcome, Spread, at_most
from gaps import gaps_of

from parts.handover_stages import breakdown

TITLE = "Planned leave between two processes: the time that nobody holds a role"
WAITS = {"rebalance_delay": 600, "initial_delay": 600}
PUTS = 6  # before each hand-over
PAUSE_S = 0.03  # before one more put: cores that slept take longer to be at work again
LIMIT_IS = (
    "bare gRPC put in one process → event in another, measured between the hand-overs: its p50 "
    "(its p99 beside the p99 of many roles)"
)
RESTED_IS = (
    f"after a rest: the same put, made {1000 * PAUSE_S:.0f} ms after the last, as a hand-over "
    "begins on cores that slept too"
)
CASES = [
    # (roles, how they are held, face, hand-overs, of a quick run)
    (1, "one", "blocking", 200, 20),
    (1, "one", "asyncio", 200, 20),
    (100, "set", "blocking", 20, 3),
    (1_000, "set", "blocking", 10, 2),
    (1_000, "set", "asyncio", 10, 2),
    (10_000, "set", "blocking", 7, 1),
    (10_000, "set", "asyncio", 7, 1),
]


def run(arena: Arena) -> Outcome:
    figures: list[Figure] = []
    putter, watcher = arena.probe(), arena.probe()
    watcher.ask("watch", prefix="bench-limit/")
    total = sum(arena.pick(case[3], case[4]) for case in CASES)
    done = 0
    for roles, how, face, times, quick_times in CASES:
        count = arena.pick(times, quick_times)
        arena.progress(f"{roles:,} roles, {face}", done, total)
        turns = PingPong(arena, roles, how, face)
        limits: list[float] = []
        rested: list[float] = []
        gaps: list[list[float]] = []
        spans: list[float] = []
        for turn in range(count + 1):
            limit = put_to_event(putter, watcher, PUTS)
            time.sleep(PAUSE_S)
            rest = put_to_event(putter, watcher, 1)
            gap, span = turns.hand_over()
            if turn == 0:
                continue  # the first one warms both processes up
            limits += limit
            rested += rest
            gaps.append(gap)
            spans.append(span)
            arena.progress(f"{roles:,} roles, {face}", done + turn, total)
        turns.close()
        done += count
        figures += _figures(roles, face, gaps, spans, limits, rested)
    tables = breakdown(arena, PingPong, arena.pick(100, 10))
    for child in (putter, watcher):
        child.close()
    return Outcome(part="handover", title=TITLE, figures=figures, tables=tables)


def put_to_event(putter: Child, watcher: Child, count: int) -> list[float]:
    """Return the seconds from a put to its event in the other process."""
    sent = putter.ask("put", key="bench-limit/x", count=count, pause=0.002)["sent"]
    events: list[Any] = []
    while len(events) < count:
        events += watcher.ask("take")["events"]
    return [event[0] - at for at, event in zip(sent, events, strict=True)]


class PingPong:
    """Run two processes that hand all roles to each other in turn."""

    def __init__(self, arena: Arena, roles: int, how: str, face: str, *, trace: bool = False):
        self._roles, self._how, self._face = roles, how, face
        prefix = arena.prefix()
        self.holder = arena.member(prefix, trace=trace)
        self.heir = arena.member(prefix, trace=trace)
        self._turn = 0
        self.last = (0.0, 0.0)  # of the last turn: when all was let go of, and all gained
        self._join(self.holder)
        self.holder.ask("held", name=self._name, roles=roles)

    @property
    def _name(self) -> str:
        return f"m{self._turn}"

    @property
    def holding(self) -> str:
        """Return the name of the member that holds every role now."""
        return self._name

    def _join(self, child: Child) -> None:
        names = [self._name]
        child.ask("join", group="g", names=names, face=self._face, settings=WAITS)
        child.ask("hold", name=self._name, roles=self._roles, how=self._how)

    def _wait_seen(self, leaver: str) -> None:
        """Wait until the leaver knows of the heir.

        Otherwise it would leave as the last member does.
        """
        self.holder.ask("knows", name=leaver, other=self._name)

    def hand_over(self) -> tuple[list[float], float]:
        """Hand every role over; return the gap of each, and their span."""
        leaver = self._name
        self._turn += 1
        self._join(self.heir)
        self._wait_seen(leaver)
        # Both are quiet when it begins, and the answer comes when it is over.
        quiet = 0.03 if self._roles < 1000 else 0.5
        left = self.holder.ask("leave", names=[leaver], quiet=quiet)
        gained = self.heir.ask("held", name=self._name, roles=self._roles)["stamps"]
        self.holder, self.heir = self.heir, self.holder
        self.last = max(at for at, _, _ in left["stamps"]), max(at for at, _, _ in gained)
        gaps, span = gaps_of([*left["stamps"], *gained])
        if len(gaps) != self._roles:
            raise RuntimeError(f"{len(gaps)} of {self._roles} roles were handed over")
        return gaps, span

    def close(self) -> None:
        for child in (self.holder, self.heir):
            child.close()


def _figures(roles, face, gaps, spans, limits, rested) -> list[Figure]:
    limit = Spread.of([1000 * one for one in limits])
    slept = Spread.of([1000 * one for one in rested]).p50
    spread = Spread.of([1000 * gap for turn in gaps for gap in turn])
    more = {
        "gaps_ms": [round(1000 * one, 3) for turn in gaps for one in turn] if roles == 1 else []
    }
    name = f"{roles:,} role{'s' if roles > 1 else ''}, {face}"
    key = f"handover.{roles}.{face}"
    one = roles == 1
    figures = [
        Figure(
            key=f"{key}.p50",
            what=f"{name}: p50",
            value=spread.p50,
            unit="ms",
            limit=limit.p50,
            limit_is=LIMIT_IS,
            target=at_most(2.2 * limit.p50, "≤ 2.2 x limit") if one else None,
            note=f"{len(gaps)} hand-overs",
            more=more,
        ),
        Figure(
            key=f"{key}.p50.rested",
            what=f"{name}: p50, beside a put after a rest",
            value=spread.p50,
            unit="ms",
            limit=slept,
            limit_is=RESTED_IS,
            target=at_most(2.2 * slept, "≤ 2.2 x limit") if one else None,
        ),
        Figure(
            key=f"{key}.p99",
            what=f"{name}: p99",
            value=spread.p99,
            unit="ms",
            limit=limit.p50 if one else limit.p99,
            limit_is=LIMIT_IS,
            target=at_most(15 * limit.p50, "≤ 15 x limit") if one else None,
            note=f"most {spread.most:.1f} ms, limit's p99 {limit.p99:.2f} ms" if one else "",
        ),
    ]
    if not one:
        figures.append(_of_all(key, name, roles, spans, limit.p50))
    return figures


def _of_all(key, name, roles, spans, limit) -> Figure:
    return Figure(
        key=f"{key}.all",
        what=f"{name}: all of them, first loss → last gain",
        value=Spread.of([1000 * span for span in spans]).p50,
        unit="ms",
        limit=limit,
        limit_is=LIMIT_IS,
        target=at_most(400 * limit, "≤ 400 x limit") if roles == 10_000 else None,
        note=f"most {1000 * max(spans):.0f} ms",
        more={"spans_ms": [round(1000 * span, 2) for span in spans]},
    )
