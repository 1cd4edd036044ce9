"""Measure the time from send to processed.

A bare XADD whose event wakes a reader in another process stands beside it.
"""

from __future__ import annotations

import time

from arena import Arena
from figures import Figure, Spread

from parts.streams_stage import Stage

SLOW = 200.0
BARE_READY_S = 0.3
SLOW_IS = "a bare XADD in one process → XREAD that was blocked in another, decoded"
BUSY_IS = "the same events, from the same bare sender, to a bare XREAD loop"


def figures(arena: Arena, stage: Stage, busy: float) -> list[Figure]:
    """Return the figures at a low rate and at a high one.

    At the low rate our own `send` sends. At half of the rate of processing one by one, a bare
    sender does.
    """
    found = []
    for name, rate, is_slow in (("slow", SLOW, True), ("busy", busy, False)):
        arena.progress(f"from send to processed, {rate:,.0f}/s", 0, 1)
        delays: dict[str, list[float]] = {"ours": [], "limit": []}
        rates = []
        for turn in range(arena.pick(4, 2)):
            count = int(rate * arena.pick(4, 1))
            for who in sorted(delays, reverse=turn % 2 == 1):
                got, at = (
                    _ours(stage, rate, count, is_slow)
                    if who == "ours"
                    else _bare(stage, rate, count)
                )
                delays[who] += got
                rates.append(at)
        found += spreads(name, delays, min(rates), SLOW_IS if is_slow else BUSY_IS)
    return found


def _ours(stage: Stage, rate: float, count: int, by_us: bool) -> tuple[list[float], float]:
    app, keys = stage.fresh()
    stage.member.tell("listen", app=app, count=count)
    stage.wait_open(app, "work")
    if by_us:
        sent = stage.second.ask("pace", app=app, rate=rate, count=count)
    else:
        sent = stage.sender.ask("pace", keys=keys, rate=rate, count=count)
    return stage.member.answer()["delays"], sent["rate"]


def _bare(stage: Stage, rate: float, count: int) -> tuple[list[float], float]:
    _, keys = stage.fresh()
    stage.bare.tell("listen", keys=keys, count=count)
    time.sleep(BARE_READY_S)
    sent = stage.sender.ask("pace", keys=keys, rate=rate, count=count)
    return stage.bare.answer()["delays"], sent["rate"]


def spreads(name: str, delays: dict[str, list[float]], rate: float, limit_is: str) -> list[Figure]:
    """Return p50 and p99, in milliseconds."""
    ours, limit = (Spread.of([1000 * one for one in delays[who]]) for who in ("ours", "limit"))
    return [
        Figure(
            key=f"streams.age.{name}.{which}",
            what=f"from send to processed at {rate:,.0f}/s, records(): {which}",
            value=getattr(ours, which),
            unit="ms",
            limit=getattr(limit, which),
            limit_is=limit_is,
            note=f"most {ours.most:.1f} ms, limit's {limit.most:.1f} ms" if which == "p99" else "",
        )
        for which in ("p50", "p99")
    ]
