"""Measure calls of get_role per second on one thread.

They stand beside those of a bare dict. The calls must send no requests.
"""

from __future__ import annotations

import statistics

from arena import Arena
from figures import Figure, Outcome, at_least, at_most

TITLE = "get_role on one thread"
ROUNDS = 400  # of a millisecond or so: the best of them was not disturbed by other processes
SIZE = 1000
KINDS = {
    # (what, how many lookups of a dict one call may cost at most)
    "other": ("known, another member owns it", 50),
    "held": ("held here: handle made and released", 160),
    "mine": ("mine and free: granted and let go of", 160),
    "new": ("new names of 12 bytes (half are mine: granted and let go of)", 240),
}
BACKGROUND = {"keepalive", "progress", "time_to_live"}
"""Requests that members make now and then, however they are used: see the part `idle`."""
LIMIT_IS = "`dict.get` of the same names in the same loop, best round"


def run(arena: Arena) -> Outcome:
    prefix = arena.prefix()
    settings = {"rebalance_delay": 0, "initial_delay": 0}
    first, second = arena.member(prefix), arena.member(prefix)
    first.ask("join", group="g", names=["a"], settings=settings)
    second.ask("join", group="g", names=["b"], settings=settings)
    for child in (first, second):
        child.ask("settled", size=2)
    arena.progress("get_role", 1, 2)
    before = arena.metrics()
    found = first.ask("get_role", name="a", rounds=arena.pick(ROUNDS, 100), size=SIZE)
    after = arena.metrics()
    for child in (first, second):
        child.close()
    return Outcome(part="get_role", title=TITLE, figures=_figures(found, before, after))


def _figures(found, before, after) -> list[Figure]:
    rates = found["rates"]
    limit = max(rates["dict"])
    figures = []
    for kind, (what, lookups) in KINDS.items():
        best, median = max(rates[kind]), statistics.median(rates[kind])
        figures.append(
            Figure(
                key=f"get_role.{kind}",
                what=what,
                value=best,
                unit="/s",
                limit=limit,
                limit_is=LIMIT_IS,
                target=at_least(limit / lookups, f"≥ limit / {lookups}"),
                note=f"median {median:,.0f}/s",
                more={"rounds": rates[kind]},
            )
        )
    sent = {kind: n for kind, n in found["sent"].items() if kind not in BACKGROUND}
    unary = after.since(before, "grpc_server_started_total")
    unary -= after.since(before, "grpc_server_started_total", "LeaseTimeToLive")
    revisions = after.since(before, "etcd_debugging_mvcc_current_revision")
    figures.append(
        Figure(
            key="get_role.requests",
            what="requests to etcd for all of these calls",
            value=sum(sent.values()) + unary + revisions,
            unit="",
            target=at_most(0, "0"),
            note="by the client's count and by etcd's, beside those that an idle member makes too",
            more={"client": found["sent"], "etcd_calls": unary, "etcd_revisions": revisions},
        )
    )
    return figures
