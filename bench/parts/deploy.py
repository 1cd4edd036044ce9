"""A rolling deploy: five processes replaced one by one, each new one started before the old leaves."""

from __future__ import annotations

from collections import Counter

from arena import Arena
from figures import Figure, Outcome, Spread, at_most
from gaps import gaps_of

TITLE = "Rolling deploy (surge 1) of 5 processes with 1,000 roles"
MEMBERS = 5
ROLES = 1000
FIRST = {"rebalance_delay": 0, "initial_delay": 0}
NEW = {"rebalance_delay": 600, "initial_delay": 600}


def run(arena: Arena) -> Outcome:
    prefix = arena.prefix()
    old = {f"old-{i}": arena.member(prefix, ttl=30) for i in range(MEMBERS)}
    for name, child in old.items():
        _join(child, name, FIRST)
    for child in old.values():
        child.ask("settled", size=MEMBERS)
    first = next(iter(old.values()))
    number = first.ask("info", name="old-0")["version"]
    # Only what happens from here on counts. What each holds now is what it will let go of.
    for name, child in old.items():
        child.ask("held", name=name, roles=1)
    stamps, new = [], {}
    for index, (name, child) in enumerate(old.items()):
        arena.progress("replacing", index, MEMBERS)
        heir = f"new-{index}"
        new[heir] = arena.member(prefix, ttl=30)
        _join(new[heir], heir, NEW)
        child.ask("knows", name=name, other=heir)
        stamps += child.ask("leave", names=[name], quiet=0.3)["stamps"]
        for other, process in list(new.items()) + list(old.items())[index + 1 :]:
            process.ask("settled", names=[other], size=MEMBERS)
    for name, child in new.items():
        stamps += child.ask("stamped", name=name)["stamps"]
    versions = new[heir].ask("info", name=heir)["version"] - number
    for child in (*old.values(), *new.values()):
        child.close()
    return Outcome(part="deploy", title=TITLE, figures=_figures(stamps, versions))


def _join(child, name, settings) -> None:
    child.ask("join", group="g", names=[name], settings=settings)
    child.ask("hold", name=name, roles=ROLES)


def _figures(stamps, versions) -> list[Figure]:
    moves = Counter(role for _, what, role in stamps if what == "gained")
    gaps = [1000 * gap for gap in gaps_of(stamps)[0]]
    spread = Spread.of(gaps)
    return [
        Figure(
            key="deploy.moves",
            what="moves per role, the most",
            value=max(moves.values()),
            unit="",
            target=at_most(1, "1"),
            note=f"{len(moves)} roles moved, {moves.total() / ROLES:g} times on average",
        ),
        Figure(
            key="deploy.versions",
            what="versions proclaimed",
            value=versions,
            unit="",
            target=at_most(MEMBERS, "one per process"),
        ),
        Figure(
            key="deploy.gap",
            what="longest time that nobody held a role",
            value=spread.most,
            unit="ms",
            note=f"p50 {spread.p50:.1f} ms, p99 {spread.p99:.1f} ms",
            more={"gaps_ms": [round(one, 3) for one in sorted(gaps)]},
        ),
    ]
