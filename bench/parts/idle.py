"""What a member costs that has nothing to do, beside a bare keepalive stream and a bare watch."""

from __future__ import annotations

import statistics
import time

from arena import Arena
from child import Child, cpu_seconds, now
from figures import Figure, Outcome, at_most

TITLE = "An idle member (ttl 60 s, the default; a group of three, one role held by each)"
MEMBERS = 3
LIMIT_IS = "a process with one bare gRPC keepalive stream and one bare watch, idle for as long"


def run(arena: Arena) -> Outcome:
    prefix = arena.prefix()
    settings = {"rebalance_delay": 0, "initial_delay": 0}
    members = {f"m{i}": arena.member(prefix) for i in range(MEMBERS)}
    for name, child in members.items():
        child.ask("join", group="g", names=[name], settings=settings)
        child.ask("hold", name=name, roles=20)
    for child in members.values():
        child.ask("settled", size=MEMBERS)
    bare, same = [arena.probe() for _ in range(2)], [arena.probe(options=True) for _ in range(2)]
    for child in (*bare, *same):
        child.ask("idle", ttl=60)
    time.sleep(3)  # what starting has left to do is done
    calls = {name: child.ask("calls")["calls"] for name, child in members.items()}
    time.sleep(0.5)
    seconds = arena.pick(60, 10)
    groups = {"members": list(members.values()), "bare": bare, "same": same}
    used = _used(arena, groups, seconds)
    sent: dict[str, float] = {}
    for name, child in members.items():
        for kind, count in child.ask("calls")["calls"].items():
            more = count - calls[name].get(kind, 0)
            sent[kind] = sent.get(kind, 0) + more * 60 / (seconds + 0.5) / MEMBERS
    for child in (*members.values(), *bare, *same):
        child.close()
    return Outcome(part="idle", title=TITLE, figures=_figures(used, sent, seconds))


def _used(arena: Arena, groups: dict[str, list[Child]], seconds: int) -> dict[str, list[float]]:
    """The share of a core that each process used, in percent."""
    began = now()
    before = {name: [cpu_seconds(one.pid) for one in group] for name, group in groups.items()}
    for second in range(seconds):
        arena.progress("idle", second, seconds)
        time.sleep(1)
    took = now() - began
    return {
        name: [
            100 * (cpu_seconds(one.pid) - was) / took
            for one, was in zip(group, before[name], strict=True)
        ]
        for name, group in groups.items()
    }


def _figures(used, sent, seconds) -> list[Figure]:
    sent = {kind: round(rate, 1) for kind, rate in sent.items() if rate}
    bare, same = statistics.mean(used["bare"]), statistics.mean(used["same"])
    return [
        Figure(
            key="idle.cpu",
            what=f"CPU over {seconds} s, mean of {len(used['members'])}",
            value=statistics.mean(used["members"]),
            unit="% of a core",
            limit=bare,
            limit_is=LIMIT_IS,
            target=at_most(0.2, "< 0.2 %"),
            note=f"the limit with the pings and settings of Rink's own channels: {same:.3f} %",
            more=used,
        ),
        Figure(
            key="idle.requests",
            what="requests per minute",
            value=sum(sent.values()),
            unit="",
            limit=6,
            limit_is="6 keepalives a minute, a sixth of the TTL apart",
            note=", ".join(f"{kind} {rate:g}" for kind, rate in sent.items()),
        ),
    ]
