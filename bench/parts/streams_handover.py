"""Measure the pause of 64 partitions when their worker leaves.

Another worker takes them. The pauses of the other partitions are measured, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import arena as arenas
import attrs
from arena import Arena
from figures import Figure, Outcome, Spread, at_most

from parts.streams_trio import PARTITIONS, SHARE, BareTrio, BaseTrio, Trio

TITLE = f"A planned leave and a crash of a worker that has {SHARE} of {PARTITIONS} partitions"
WINDOW_S = 1.0
QUIET = 3
"""Windows without a rebalance, just before each hand-over."""
WARM_S = 1.0
TTL = 3
LIMIT_IS = (
    "the same partitions of the same worker in the seconds just before, when nothing was handed "
    "over"
)
BARE_IS = "of a hand-over: the same with redis-py and gRPC alone, one leave of each by turns"
Stamp = Sequence[float]
"""Processed at, partition, sent at."""


@attrs.frozen
class Load:
    """Describe the load during a hand-over.

    Attributes:
        every: seconds between two events of one partition.
        bound: the target of a moved partition's p99, as a multiple of the limit.
    """

    name: str
    every: float
    bound: float

    def __str__(self) -> str:
        return f"{PARTITIONS / self.every:,.0f} events/s"


CALM = Load("", 0.2, 2.9)
BUSY = Load("busy.", 0.05, 4.9)
"""With the sender, Redis, etcd and three workers on two cores, little of these is left."""

HOW = (
    f"Three workers in processes of their own: two have {SHARE} partitions each, one stands by. A "
    f"bare sender gives each partition an event every {1000 * CALM.every:g} or "
    f"{1000 * BUSY.every:g} ms. One of the two leaves (as at SIGTERM), and the one that stood by "
    "takes its partitions. The leaver comes back and stands by in turn."
)


def run(arena: Arena) -> Outcome:
    turns = arena.pick(12, 2)
    with arenas.redis() as redis:
        trio, bare = Trio(arena, redis, ttl=60), BareTrio(arena, redis)
        figures = []
        for load in (CALM, BUSY):
            found, limit = [], []
            for turn in range(turns):  # by turns: what disturbs the one disturbs the other
                arena.progress(f"planned leaves at {load}", turn, turns)
                found.append(_leave(trio, load.every))
                limit.append(_leave(bare, load.every))
            figures += [*_moved(load, found, limit), _stayed(load, found, limit)]
        trio.close()
        bare.close()
        return Outcome(
            part="streams_handover",
            title=TITLE,
            figures=[*figures, *_crashes(arena, redis)],
            notes=[HOW, arenas.about_redis(redis)],
        )


@attrs.frozen
class Leave:
    """Hold the seconds of one hand-over.

    Attributes:
        between: of each moved partition, from the return of the leaver's processor (the end of
            the drain) to the call of the new owner's.
        gaps: between its last event here and its first there, less the interval of sending.
        took: the leave as a whole, for its caller.
        stayed: meanwhile, the largest gap of a partition that did not move.
        quiet: the same in each of the windows before.
    """

    between: list[float]
    gaps: list[float]
    took: float
    stayed: float
    quiet: list[float]


def _leave(trio: BaseTrio, every: float) -> Leave:
    seconds = WARM_S + QUIET * WINDOW_S + WINDOW_S
    trio.send(every, seconds + WARM_S)
    time.sleep(WARM_S + QUIET * WINDOW_S)
    told = trio.leave()
    trio.sent()
    old, new, other = (one.ask("noted") for one in (trio.leaver, trio.heir, trio.other))
    trio.turn()
    at = told["asked_at"]
    first = at - QUIET * WINDOW_S
    quiet = [largest_gap(other["events"], first + n * WINDOW_S, WINDOW_S) for n in range(QUIET)]
    gaps = moved(old["events"], new["events"], every)
    between = rested(old["ends"], new["begins"])
    if len(gaps) != SHARE or len(between) != SHARE:
        raise RuntimeError(f"{len(gaps)} partitions were handed over, and not {SHARE}")
    stayed = largest_gap(other["events"], at, WINDOW_S)
    return Leave(between, gaps, told["left_at"] - at, stayed, quiet)


def moved(old: Iterable[Stamp], new: Iterable[Stamp], every: float) -> list[float]:
    """Return the gap of each partition that both have processed.

    The interval of sending is subtracted.
    """
    last = {partition: at for at, partition, _ in old}
    first: dict[float, float] = {}
    for at, partition, _ in new:
        first.setdefault(partition, at)
    return [max(first[one] - last[one] - every, 0.0) for one in sorted(last.keys() & first.keys())]


def rested(ends: Iterable[Sequence[float]], begins: Iterable[Sequence[float]]) -> list[float]:
    """Return the pause of each partition that moved from one to the other."""
    ended = {partition: at for at, partition in ends}
    began = {partition: at for at, partition in begins}
    return [began[one] - ended[one] for one in sorted(ended.keys() & began.keys())]


def largest_gap(stamps: Iterable[Stamp], begin: float, seconds: float) -> float:
    """Return the longest time between two events of one partition.

    The second event must lie in the window.
    """
    before: dict[float, float] = {}
    largest = 0.0
    for at, partition, _ in stamps:
        if begin <= at < begin + seconds and partition in before:
            largest = max(largest, at - before[partition])
        before[partition] = at
    return largest


def _moved(load: Load, found: list[Leave], bare: list[Leave]) -> list[Figure]:
    between, bare_between = (_spread(ones, lambda one: one.between) for ones in (found, bare))
    gaps, bare_gaps = (_spread(ones, lambda one: one.gaps) for ones in (found, bare))
    slowest = median(1000 * max(one.between) for one in found)
    return [
        Figure(
            key=f"streams_handover.{load.name}p99",
            what=f"{load}: of a moved partition, from the end of the drain to the call of the "
            f"processor: p99 of {between.count}",
            value=between.p99,
            unit="ms",
            limit=bare_between.p99,
            limit_is=f"{BARE_IS} (p50 {bare_between.p50:.0f} ms, most {bare_between.most:.0f} ms)",
            target=at_most(load.bound * bare_between.p99, f"≤ {load.bound:g} x limit"),
            note=f"{len(found)} leaves, p50 {between.p50:.0f} ms, most {between.most:.0f} ms; the "
            f"slowest of a leave's {SHARE}: median {slowest:.0f} ms",
            more={"between_ms": [[round(1000 * one, 2) for one in each.between] for each in found]},
        ),
        Figure(
            key=f"streams_handover.{load.name}gap.p99",
            what=f"{load}: between its last event here and its first there, beyond the interval of "
            "sending: p99",
            value=gaps.p99,
            unit="ms",
            limit=bare_gaps.p99,
            limit_is=BARE_IS,
            note=f"the drain included; p50 {gaps.p50:.0f} ms, most {gaps.most:.0f} ms",
            more={"gaps_ms": [[round(1000 * one, 2) for one in each.gaps] for each in found]},
        ),
        Figure(
            key=f"streams_handover.{load.name}leave",
            what=f"{load}: the leave as a whole, for the worker that leaves",
            value=1000 * median(one.took for one in found),
            unit="ms",
        ),
    ]


def _spread(found: list[Leave], of: Callable[[Leave], list[float]]) -> Spread:
    return Spread.of([1000 * seconds for one in found for seconds in of(one)])


def _stayed(load: Load, found: list[Leave], bare: list[Leave]) -> Figure:
    """Return the figure of the partitions that stayed.

    It compares medians: both sides have as many windows, and the largest of all would be on either
    side by chance.
    """
    stayed = [1000 * one.stayed for one in found]
    quiet = [1000 * max(one.quiet) for one in found]
    limit = median(quiet)
    single = median(1000 * one for leave in found for one in leave.quiet)
    first = sum(one.stayed > max(one.quiet) for one in found)
    bare_stayed = median(1000 * one.stayed for one in bare)
    bare_single = median(1000 * one for leave in bare for one in leave.quiet)
    return Figure(
        key=f"streams_handover.{load.name}unaffected",
        what=f"{load}: the largest gap of an unaffected partition in the {WINDOW_S:g} s of a "
        "hand-over",
        value=median(stayed),
        unit="ms",
        limit=limit,
        limit_is=LIMIT_IS,
        target=at_most(limit, f"≤ the largest of {QUIET} s before"),
        note=f"medians of {len(found)}, most {max(stayed):.0f} ms; before: of a single second "
        f"{single:.0f} ms, most {max(quiet):.0f} ms; largest of its {QUIET + 1} s in {first} "
        f"leaves, by chance in {len(found) / (QUIET + 1):.0f}; with redis-py and gRPC alone "
        f"{bare_stayed:.0f} ms, of a single second before {bare_single:.0f} ms",
        more={
            "stayed_ms": stayed,
            "quiet_ms": [[1000 * q for q in one.quiet] for one in found],
        },
    )


# ── kill -9 ──────────────────────────────────────────────────────────────────────────────────


def _crashes(arena: Arena, redis: Any) -> list[Figure]:
    took: list[float] = []
    turns = arena.pick(4, 1)
    for turn in range(turns):
        arena.progress("kill -9", turn, turns)
        took += _crash(Trio(arena, redis, ttl=TTL))
    spread = Spread.of(took)
    return [
        Figure(
            key="streams_handover.crash",
            what=f"kill -9: until a partition is processed again, the longest of {spread.count}",
            value=spread.most,
            unit="s",
            limit=TTL,
            limit_is="of a crash: the ttl, after which etcd ends the lease of the dead",
            note=f"p50 {spread.p50:.2f} s, least {spread.least:.2f} s, ttl {TTL} s",
            more={"seconds": took},
        )
    ]


def _crash(trio: Trio) -> list[float]:
    """Return the pause of each partition of a killed worker.

    It lasts until the partition's first event at the heir.
    """
    trio.send(BUSY.every, WARM_S + TTL + 2)
    time.sleep(WARM_S)
    killed = trio.leaver.kill()
    trio.sent()
    trio.heir.ask("seen", count=SHARE)
    first: dict[float, float] = {}
    for at, partition, _ in trio.heir.ask("noted")["events"]:
        first.setdefault(partition, at)
    trio.close()
    return [at - killed for at in first.values()]
