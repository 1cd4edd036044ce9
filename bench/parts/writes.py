"""Measure etcd's writes when one member is replaced.

They must not depend on the number of roles.
"""

from __future__ import annotations

from collections import Counter

from arena import Arena
from figures import Figure, Outcome, Table, at_most

TITLE = "etcd's writes when one of three members is replaced"
FIRST = {"rebalance_delay": 0, "initial_delay": 0}
NEW = {"rebalance_delay": 600, "initial_delay": 600}
KINDS = {
    "joins": "put of the new member's record: it joins",
    "leaving": "put of the leaver's record: it is leaving",
    "versions": "put of the version",
    "claims": "put of the new member's record: its share",
    "drains": "put of the leaver's record: what it has let go of",
    "others": "put of another member's record",
    "gone": "the leaver's record is deleted with its lease",
}
HANDING_OVER = ("leaving", "versions", "claims", "drains", "others")


def run(arena: Arena) -> Outcome:
    figures = []
    counted: dict[int, Counter[str]] = {}
    cases = arena.pick([10, 1000, 10_000], [10, 1000])
    rounds = arena.pick(5, 1)
    for index, roles in enumerate(cases):
        runs = []
        for turn in range(rounds):
            arena.progress(f"{roles:,} roles", index * rounds + turn, len(cases) * rounds)
            runs.append(_replace(arena, roles))
        # The most of any run: how often the leaver writes depends on how fast its roles are let go.
        kinds, calls = max(runs, key=lambda run: run[0].total())
        counted[roles] = kinds
        puts = [sum(one[kind] for kind in HANDING_OVER) for one, _ in runs]
        figures.append(
            Figure(
                key=f"writes.{roles}",
                what=f"{roles:,} roles: writes that hand the roles over, the most of {rounds}",
                value=max(puts),
                unit="",
                target=at_most(4, "≤ 4"),
                note=f"the fewest {min(puts)}",
                more={"runs": puts},
            )
        )
        figures.append(
            Figure(
                key=f"writes.{roles}.all",
                what=f"{roles:,} roles: all revisions, from the newcomer's join to the leaver's "
                "end",
                value=kinds.total(),
                unit="",
                more={"kinds": kinds, "requests": calls},
            )
        )
    heads = ["revision", *[f"{roles:,} roles" for roles in counted]]
    rows = [[text, *[str(one[kind]) for one in counted.values()]] for kind, text in KINDS.items()]
    rows.append(["together", *[str(one.total()) for one in counted.values()]])
    table = Table(title="Revisions by what they are, from join to gone", heads=heads, rows=rows)
    return Outcome(part="writes", title=TITLE, figures=figures, tables=[table])


def _replace(arena: Arena, roles: int) -> tuple[Counter[str], dict[str, int]]:
    prefix = arena.prefix()
    names = ["a", "b", "c"]
    old = {name: arena.member(prefix) for name in names}
    for name, child in old.items():
        child.ask("join", group="g", names=[name], settings=FIRST)
        child.ask("hold", name=name, roles=roles)
    for child in old.values():
        child.ask("settled", size=3)
    watcher = arena.probe()
    watcher.ask("watch", prefix=prefix)
    children = {**old, "new": arena.member(prefix)}
    before = {name: child.ask("calls")["calls"] for name, child in children.items()}
    children["new"].ask("join", group="g", names=["new"], settings=NEW)
    children["new"].ask("hold", name="new", roles=roles)
    old["a"].ask("knows", name="a", other="new")  # the oldest coordinates; b leaves
    old["b"].ask("leave", names=["b"], quiet=1.0)
    for name in ("a", "c", "new"):
        children[name].ask("settled", names=[name], size=3)
    calls: Counter[str] = Counter()
    for name, child in children.items():
        after = child.ask("calls")["calls"]
        calls.update({kind: n - before[name].get(kind, 0) for kind, n in after.items()})
    kinds = _kinds(watcher.ask("take")["events"])
    for child in (watcher, *children.values()):
        child.close()
    return kinds, {kind: n for kind, n in calls.items() if n}


def _kinds(events) -> Counter[str]:
    kinds = Counter(dict.fromkeys(KINDS, 0))
    seen: Counter[str] = Counter()
    for _, key, kind, _, _ in events:
        what, name = key.split("/")[-2:]
        if what == "versions":
            kinds["versions"] += 1
        elif kind == "delete":
            kinds["gone"] += 1
        else:
            seen[name] += 1
            first = {"new": "joins", "b": "leaving"}.get(name, "others")
            later = {"new": "claims", "b": "drains"}.get(name, "others")
            kinds[first if seen[name] == 1 else later] += 1
    return kinds
