"""Measure the CPU of one event of another member, by roles and by members.

A record that another member rewrites is the commonest event. The core handles it here as the engine
does, on one thread. There are three comparisons. Each has its own limit, which
is its smallest case. All cases of a comparison are built before the first event. Then they take
turns: in each round every case has some events, and every second round goes the other way. The
garbage collector is off during the events, and runs before each round.

A round gives one median for each case. The figure of a case is its round with the median ratio to
the limit of the same round, as the machine may be slower from one round to the next.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import attrs
from arena import Arena
from figures import Figure, Outcome, at_most
from settled import Group

TITLE = "CPU of one event of another member"
SMALL = 5
"""Members of the group in which roles are waited for and held."""
WAITS = {1_000: 1.3, 10_000: 1.3, 100_000: 1.3}
HELD = {10_000: 1.3}
FEWEST_MEMBERS = 100
MEMBERS = {300: 1.7, 1_000: 1.7, 3_000: 3.0}
ROUNDS, QUICK_ROUNDS = 101, 11
EVENTS = 50
"""Events of a case in one round."""
MAX_ROUNDS_S = 15.0
"""Limit of a comparison's time: a slow machine makes fewer rounds."""


@attrs.frozen
class Case:
    """Describe a group in a comparison, and its target.

    Attributes:
        bound: the target, as a multiple of the limit; None for the limit itself.
    """

    key: str
    what: str
    group: Timed
    bound: float | None = None


def run(arena: Arena) -> Outcome:
    rounds = arena.pick(ROUNDS, QUICK_ROUNDS)
    comparisons = (
        ("the same member with no roles, by turns", _by_roles),
        (f"the same in a group of {FEWEST_MEMBERS}, by turns", lambda: _by_members("member")),
        (
            f"the coordinator of a group of {FEWEST_MEMBERS}, by turns",
            lambda: _by_members("coordinator"),
        ),
    )
    figures = []
    for index, (limit_is, build) in enumerate(comparisons):
        arena.progress(limit_is, index, len(comparisons))
        cases = build()
        medians = by_turns([case.group for case in cases], rounds)
        figures += [
            _figure(case, limit_is, times, medians[0])
            for case, times in zip(cases[1:], medians[1:], strict=True)
        ]
    note = (
        f"All cases of a comparison take turns: up to {rounds} rounds with {EVENTS} events of each "
        "case, every second round the other way. A figure and its limit are the medians of one "
        "round, the one with the median ratio. The garbage collector runs between the rounds only."
    )
    return Outcome(part="events", title=TITLE, figures=figures, notes=[note])


def _by_roles() -> list[Case]:
    cases = [Case("none", "no roles", Timed(SMALL))]
    for kind, what, counts in (
        ("waits", "waited for, of others", WAITS),
        ("held", "held", HELD),
    ):
        for count, bound in counts.items():
            group = Timed(SMALL)
            group.want(count, is_mine=kind == "held")
            cases.append(Case(f"{kind}_{count}", f"{count:,} roles {what}", group, bound))
    return cases


def _by_members(kind: str) -> list[Case]:
    what = "the coordinator" if kind == "coordinator" else "a member"
    return [
        Case(
            f"{kind}_of_{count}",
            f"{what} of {count:,}",
            Timed(count, coordinates=kind == "coordinator"),
            bound,
        )
        for count, bound in {FEWEST_MEMBERS: None, **MEMBERS}.items()
    ]


def by_turns(groups: list[Timed], rounds: int) -> list[list[float]]:
    """Return for each group the median CPU of an event in each round, in µs."""
    medians: list[list[float]] = [[] for _ in groups]
    ends = time.monotonic() + MAX_ROUNDS_S
    with _collector_off():
        for turn in range(rounds):
            gc.collect()
            turns = list(zip(groups, medians, strict=True))
            for group, times in turns if turn % 2 == 0 else turns[::-1]:
                times.append(median(group.times(EVENTS)))
            if time.monotonic() > ends:
                break
    return medians


@contextmanager
def _collector_off() -> Iterator[None]:
    """Keep the garbage collector off; spare it all objects that exist already."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def median_round(times: list[float], limits: list[float]) -> tuple[float, float]:
    """Return time and limit of the round with the median ratio."""
    rounds = sorted(zip(times, limits, strict=True), key=lambda one: one[0] / one[1])
    return rounds[(len(rounds) - 1) // 2]


def _figure(case: Case, limit_is: str, times: list[float], limits: list[float]) -> Figure:
    value, limit = median_round(times, limits)
    bound = case.bound
    return Figure(
        key=f"events.{case.key}",
        what=case.what,
        value=value,
        unit="us",
        limit=limit,
        limit_is=limit_is,
        target=at_most(bound * limit, f"≤ {bound:g} x limit") if bound else None,
        more={"times": times, "limits": limits},
    )


class Timed(Group):
    """Time the events of a settled group."""

    def times(self, count: int) -> list[float]:
        """Return the CPU of each of some more events, in µs."""
        events = [self.rewritten() for _ in range(count)]
        return [_measured(lambda event=event: self.step(event)) for event in events]


def _measured(work: Callable[[], None]) -> float:
    began_at = time.thread_time()
    work()
    return 1e6 * (time.thread_time() - began_at)
