"""What came out: built from the events and the store, shown as tables or as JSON."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from flights_demo import checks
from flights_demo.data import Totals
from flights_demo.events import Event
from flights_demo.store import Store
from flights_demo.tables import duration, faults_table, first_lines, mark, told

Report = dict[str, Any]
MISHAPS = ("deploy", "freeze", "thaw", "kill")


def build(
    history: list[Event], store: Store, expected: Totals, *, ttl: float, unfinished: str = ""
) -> Report:
    history = sorted(history, key=lambda event: event["at"])
    held = checks.holdings(history)
    accepted, refused = store.accepted(), store.refused()
    totals = store.totals()
    frozen = checks.frozen_overlaps(held)
    faults = faults_of_rink(history, held, accepted, ttl)
    if unfinished:
        faults["the demo could not be finished"] = [unfinished]
    else:
        faults |= faults_of_the_work(store, accepted, totals, expected)
        if not refused:
            faults["the fence was never put to the test"] = ["no stale write was refused"]
    return {
        "ok": not any(faults.values()),
        "seconds": round(history[-1]["at"] - history[0]["at"], 1),
        "faults": told(faults),
        "flights": {
            "got": asdict(checks.grand_total(totals)),
            "expected": asdict(checks.grand_total(expected)),
            "carrier_months": len(expected),
        },
        "jobs": len(store.sizes()),
        "grants": len(held),
        "writes": {
            "chunks": sum(first is not None for _, _, _, first, _ in accepted),
            "all": len(accepted),
            "stale_refused": len(refused),
            "refused": [
                f"{role}: {member} with token {token}, after {highest}"
                for role, token, highest, member in refused
            ],
        },
        "frozen_overlap": {"roles": len(frozen), "longest_s": round(max(frozen, default=0.0), 3)},
        **_movements(history, held),
    }


def faults_of_rink(
    history: list[Event], held: list[checks.Holding], accepted: list, ttl: float
) -> dict[str, list[str]]:
    """What must be empty at any time, even where the demo was not finished."""
    # A silent member's lease was renewed at most a sixth of the TTL before, and Rink itself stops
    # a margin before its end. Until then nobody else may have what the member had.
    lease_left = ttl * 5 / 6 - max(0.5, ttl / 10)
    return {
        "overlaps among live processes": checks.overlaps(held, lease_left),
        "stale writes accepted": checks.stale_accepted(accepted),
        "tokens not rising": checks.tokens_not_rising(held),
        "versions seen differently": checks.versions(history)[1],
    }


def faults_of_the_work(
    store: Store, accepted: list, totals: Totals, expected: Totals
) -> dict[str, list[str]]:
    """What must be empty once all the work is done."""
    sizes = store.sizes()
    return {
        "jobs not done": [job for job, size in sizes.items() if store.position(job) != size],
        "chunks doubled or lost": checks.wrong_chunks(accepted, sizes),
        "totals that differ": checks.wrong_totals(totals, expected),
    }


def _movements(history: list[Event], held: list[checks.Holding]) -> Report:
    phases = [(event["at"], event["name"]) for event in history if event["what"] == "phase"]
    long_held = [holding for holding in held if holding.role.startswith("carrier/")]
    # That everybody leaves at the end is no move worth telling of.
    working = [event for event in history if event["at"] < at_of(phases, "stop")]
    moves = checks.rank_moves(working)
    per_role = checks.moves_in_deploy(long_held, phases)
    gaps = checks.gaps(long_held, phases)
    return {
        "versions": len(checks.versions(history)[0]),
        "ranks": [
            {
                "rank": rank,
                "members": members,
                "moves": {phase: moves.get(phase, {}).get(rank, 0) for phase in MISHAPS},
            }
            for rank, members in enumerate(checks.rank_histories(checks.versions(working)[0]))
        ],
        "deploy_moves_per_role": {
            "roles": len(per_role),
            "least": min(per_role.values(), default=0),
            "most": max(per_role.values(), default=0),
        },
        "gaps": {kind: checks.summary(seconds) for kind, seconds in gaps.items()},
    }


def at_of(phases: list[tuple[float, str]], name: str) -> float:
    return next((at for at, phase in phases if phase == name), float("inf"))


GAP_TITLES = {
    "replaced": "planned replacement",
    "rebalanced": "rank added or given up",
    "frozen": "frozen, until the lease ended",
    "killed": "killed, until the lease ended",
}


def show(report: Report, console: Console) -> None:
    frozen, writes = report["frozen_overlap"], report["writes"]
    moves = report["deploy_moves_per_role"]
    console.print()
    console.print(_ranks(report))
    console.print(
        f"In the deploy each of the {moves['roles']} long-held roles moved"
        f" {_times(moves['least'], moves['most'])}.\n"
    )
    if report["gaps"]:
        console.print(_gaps(report))
    console.print(
        f"{frozen['roles']} roles went to others up to {frozen['longest_s']:.2f} s before the frozen"
        " process could know of it.\nNobody can prevent that, so the store looks at the token;"
        f" writes refused: {writes['stale_refused']}."
    )
    first_lines(console, "refused", writes["refused"], "cyan")
    console.print()
    title = f"{report['jobs']:,} jobs, {report['grants']:,} grants, {writes['all']:,} writes"
    console.print(faults_table(title, report["faults"]))
    for name, found in report["faults"].items():
        first_lines(console, name, found["first"], "red")
    console.print()
    console.print(_totals(report))
    verdict = (
        "[bold green]Equal, to the flight: nothing lost, nothing doubled.[/]"
        if report["ok"]
        else "[bold red]NOT as promised; see the lines above.[/]"
    )
    console.print(f"{verdict} {report['seconds']:.0f} s.")


def _ranks(report: Report) -> Table:
    table = Table(title=f"Each rank's moves, over {report['versions']} versions")
    table.add_column("rank", justify="right")
    table.add_column("members, in order")
    for phase in MISHAPS:
        table.add_column(phase, justify="right")
    for rank in report["ranks"]:
        counts = [str(rank["moves"][phase]) for phase in MISHAPS]
        table.add_row(str(rank["rank"]), " → ".join(rank["members"]), *counts)
    return table


def _times(least: int, most: int) -> str:
    if least == most:
        return "exactly once" if most == 1 else f"{most} times"
    return f"{least} to {most} times"


def _gaps(report: Report) -> Table:
    table = Table(title="Gaps: how long nobody had a long-held role")
    table.add_column("the holder before was …")
    for heading in ("hand-overs", "p50", "longest"):
        table.add_column(heading, justify="right")
    for kind, title in GAP_TITLES.items():
        if gap := report["gaps"].get(kind):
            table.add_row(
                title, str(gap["count"]), duration(gap["p50_ms"]), duration(gap["max_ms"])
            )
    return table


def _totals(report: Report) -> Table:
    flights = report["flights"]
    table = Table(title=f"Totals, over {flights['carrier_months']} pairs of carrier and month")
    for heading in ("", "by the processors", "in one plain pass", ""):
        table.add_column(heading, justify="right")
    for key, title in (
        ("flights", "flights"),
        ("cancelled", "cancelled"),
        ("delay", "minutes of departure delay"),
    ):
        got, expected = flights["got"][key], flights["expected"][key]
        table.add_row(title, f"{got:,}", f"{expected:,}", mark(got == expected))
    return table
