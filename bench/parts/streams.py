"""Measure one worker on Redis streams: events a second, and their age.

A bare redis-py loop and Runnel stand beside it. The age is taken when an event is processed.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import arena as arenas
from arena import Arena
from figures import Figure, Outcome, PeerFigure, at_least
from peers import runnel
from peers.common import NotToBeHadError
from sales import PARTITIONS

from parts import streams_latency
from parts.streams_stage import Stage

TITLE = f"One worker on Redis streams, {PARTITIONS} partitions, small JSON records"
LOOP_IS = (
    "a bare asyncio loop with redis-py and hiredis: XREAD of all partitions, json.loads, one "
    "commit (Lua) for each partition and batch"
)
PIPELINE_IS = "a bare asyncio pipeline of XADDs with the same JSON"
HALF, OF_PIPELINE, BY_RUNNEL = 0.5, 0.6, 4
PROCESSING = {
    # kind: (what, batch of the bare loop, of it, Runnel's way)
    "take100": ("processed, take(100)", 100, HALF, "take"),
    "take1000": ("processed, take(1000), max_uncommitted=2000", 1000, HALF, ""),
    "records": ("processed one by one, records()", 100, None, "records"),
    "def": (
        "processed one by one by a plain function, in a thread for each partition",
        100,
        None,
        "",
    ),
}
SENDING = {
    # how: (what, XADDs in a pipeline, of it, Runnel too)
    "many": ("sent, send_many", 1000, OF_PIPELINE, True),
    "other": ("sent one after the other", 1, None, False),
    "once": ("sent one by one, 100 at once", 100, None, False),
}  # fmt: skip
Rate = Callable[[], float]


def run(arena: Arena) -> Outcome:
    with arenas.redis() as redis, runnel.installed(arena) as peer:
        stage = Stage(arena, redis)
        outcome = Outcome(part="streams", title=TITLE, notes=[arenas.about_redis(redis)])
        for kind in PROCESSING:
            _add(outcome, f"streams.{kind}", *_processing(arena, stage, peer, kind))
        for how in SENDING:
            _add(outcome, f"streams.send.{how}", *_sending(arena, stage, peer, how))
        one_by_one = next(one for one in outcome.figures if one.key == "streams.records")
        outcome.figures.extend(streams_latency.figures(arena, stage, one_by_one.value / 2))
        outcome.notes.append(peer.note)
        stage.close()
    return outcome


def _processing(arena: Arena, stage: Stage, peer: runnel.Peer, kind: str):
    what, batch, share, way = PROCESSING[kind]
    each = arena.pick(25_000, 2_500)
    stage.prepare(each)
    rates: dict[str, Rate] = {
        "ours": lambda: stage.processed(kind, each),
        "limit": lambda: stage.looped(batch, each),
    }
    if way:
        rates["runnel"] = lambda: peer.processed(stage.redis.url, way, arena.pick(20_000, 4_000))
    return what, share, _beside(arena, what, rates), LOOP_IS, f"limit: batches of {batch:,}"


def _sending(arena: Arena, stage: Stage, peer: runnel.Peer, how: str):
    what, at_once, share, has_peer = SENDING[how]
    count = arena.pick(200_000, 20_000) if how == "many" else arena.pick(10_000, 1_000)
    rates: dict[str, Rate] = {
        "ours": lambda: stage.sent(how, count),
        "limit": lambda: stage.piped(at_once, count),
    }
    if has_peer:
        rates["runnel"] = lambda: peer.sent(stage.redis.url, arena.pick(50_000, 10_000))
    says = f"limit: {at_once} in a pipeline" if at_once > 1 else "limit: an XADD each, awaited"
    return what, share, _beside(arena, what, rates), PIPELINE_IS, says


def _beside(arena: Arena, what: str, rates: dict[str, Rate]) -> dict[str, list[float]]:
    """Measure several programs in turn, each round in reversed order.

    So a disturbance hits all alike.
    """
    found: dict[str, list[float]] = {name: [] for name in rates}
    rounds = arena.pick(5, 2)
    for turn in range(rounds):
        arena.progress(what, turn, rounds)
        for name in in_turn(list(rates), turn):
            try:
                found[name].append(rates[name]())
            except NotToBeHadError:
                continue  # the note says why
    return {name: values for name, values in found.items() if values}


def in_turn(names: list[str], turn: int) -> list[str]:
    return names if turn % 2 == 0 else names[::-1]


def _add(outcome: Outcome, key: str, what: str, share, found, limit_is: str, note: str) -> None:
    """Add a figure beside its limit, and beside Runnel's if it has one."""
    ours, limit = median(found["ours"]), median(found["limit"])
    outcome.figures.append(
        Figure(
            key=key,
            what=what,
            value=ours,
            unit="/s",
            limit=limit,
            limit_is=limit_is,
            target=at_least(share * limit, f"≥ {share:.0%} of the limit") if share else None,
            note=note,
            more={"rates": found},
        )
    )
    if "runnel" in found:
        theirs = median(found["runnel"])
        outcome.peers.append(PeerFigure(peer=runnel.PEER, key=key, value=theirs, unit="/s"))
        outcome.figures.append(times_figure(key, what, ours / theirs))


def times_figure(key: str, what: str, times: float) -> Figure:
    """Return the figure that compares us with Runnel.

    Only processing has a target; sending has none.
    """
    processed = not key.startswith("streams.send")
    return Figure(
        key=f"{key}.by_runnel",
        what=f"{what}: times what Runnel does",
        value=times,
        unit="x",
        target=at_least(BY_RUNNEL, f"≥ {BY_RUNNEL} x") if processed else None,
    )
