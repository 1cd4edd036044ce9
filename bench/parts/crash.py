"""Measure how long after kill -9 another member holds the roles.

The share of etcd's lease in this time is shown, too.
"""

from __future__ import annotations

import random
import time

from arena import Arena
from child import now
from figures import Figure, Outcome, Spread, at_most

TITLE = "Crash (kill -9): the time until a waiting member holds the roles"
ROLES = 10
GROUPS = 4  # killed beside each other
BOUNDS = {3: 1.34, 10: 1.12}
"""Target of the longest crash for each TTL, as a multiple of the limit."""
PROMISED_S = 1.5
"""Time that a crash takes beyond the TTL at most, as the docs say."""
WAITS = {"rebalance_delay": 600, "initial_delay": 600}
LIMIT_IS = "kill → the deletion of the dead member's record, as a bare gRPC watch sees it"


def run(arena: Arena) -> Outcome:
    figures = []
    cases = arena.pick([(3, 3), (10, 1)], [(3, 1)])
    done, total = 0, sum(rounds for _, rounds in cases)
    for ttl, rounds in cases:
        took, ended = [], []
        for _ in range(rounds):
            arena.progress(f"ttl {ttl} s", done, total)
            for takeover, deletion in _round(arena, ttl):
                took.append(takeover)
                ended.append(deletion)
            done += 1
        spread, limit = Spread.of(took), Spread.of(ended)
        figures.append(
            Figure(
                key=f"crash.ttl{ttl}",
                what=f"ttl {ttl} s: the longest of {len(took)}",
                value=spread.most,
                unit="s",
                limit=limit.most,
                limit_is=LIMIT_IS,
                target=at_most(BOUNDS[ttl] * limit.most, f"≤ {BOUNDS[ttl]:g} x limit"),
                note=f"p50 {spread.p50:.2f} s; the docs say at most {ttl + PROMISED_S:g} s",
                more={"takeovers_s": took, "deletions_s": ended},
            )
        )
        after = Spread.of([1000 * (a - b) for a, b in zip(took, ended, strict=True)])
        figures.append(
            Figure(
                key=f"crash.ttl{ttl}.after",
                what=f"ttl {ttl} s: of that, after etcd has ended the lease, p50",
                value=after.p50,
                unit="ms",
                note=f"most {after.most:.1f} ms",
            )
        )
    return Outcome(part="crash", title=TITLE, figures=figures)


def _round(arena: Arena, ttl: int) -> list[tuple[float, float]]:
    """Kill one holder in each of several groups.

    For each group, return the seconds until the takeover, and until etcd ended the lease.
    """
    prefix = arena.prefix()
    watcher, heirs = arena.probe(), arena.member(prefix, ttl=ttl)
    holders = []
    for group in range(GROUPS):
        holder = arena.member(prefix, ttl=ttl)
        holder.ask("join", group=f"g{group}", names=["a"], settings=WAITS)
        holder.ask("hold", name="a", roles=ROLES)
        holder.ask("held", name="a", roles=ROLES)
        heir = f"b{group}"
        heirs.ask("join", group=f"g{group}", names=[heir], shared=False, settings=WAITS)
        heirs.ask("hold", name=heir, roles=ROLES)
        holders.append(holder)
    watcher.ask("watch", prefix=prefix)
    killed = {}
    for group, holder in enumerate(holders):
        time.sleep(random.uniform(0, ttl / 6))  # anywhere between two keepalives
        killed[group] = holder.kill()
    ends = now() + ttl + 20
    deleted: dict[int, float] = {}
    while len(deleted) < GROUPS and now() < ends:
        for at, key, kind, _, _ in watcher.ask("take")["events"]:
            if kind == "delete" and key.endswith("/members/a"):
                deleted[int(key.split("/")[1][1:])] = at
        time.sleep(0.05)
    found = []
    for group in range(GROUPS):
        stamps = heirs.ask("held", name=f"b{group}", roles=ROLES)["stamps"]
        gained = max(at for at, what, _ in stamps if what == "gained")
        found.append((gained - killed[group], deleted[group] - killed[group]))
    for child in (watcher, heirs, *holders):
        child.close()
    return found
