"""Build the report from the events and the store, and show it as tables."""

from dataclasses import asdict

from common import tables
from common.checks import summary
from common.events import Event
from common.tables import Report
from rich.console import Console
from rich.table import Table

from flights_demo import checks
from flights_demo.data import Totals
from flights_demo.store import Store

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
        **tables.head_of(history, faults),
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
    """Return the faults that may never occur, even in an unfinished demo."""
    # A silent member's lease was renewed at most a sixth of the TTL before, and Rink itself stops
    # a margin before its end. Until then no other member may have its roles.
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
    """Return the faults that may not remain once all the work is done."""
    sizes = store.sizes()
    return {
        "jobs not done": [job for job, size in sizes.items() if store.position(job) != size],
        "chunks doubled or lost": checks.wrong_chunks(accepted, sizes),
        "totals that differ": checks.wrong_totals(totals, expected),
    }


def _movements(history: list[Event], held: list[checks.Holding]) -> Report:
    phases = [(event["at"], event["name"]) for event in history if event["what"] == "phase"]
    long_held = [holding for holding in held if holding.role.startswith("carrier/")]
    # The leaves at the end do not count as moves.
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
        "gaps": {kind: summary(seconds) for kind, seconds in gaps.items()},
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
        f"{frozen['roles']} roles went to others up to {frozen['longest_s']:.2f} s before the"
        " frozen process could know of it.\nNobody can prevent that, so the store looks at the"
        f" token; writes refused: {writes['stale_refused']}."
    )
    tables.first_lines(console, "refused", writes["refused"], "cyan")
    title = f"{report['jobs']:,} jobs, {report['grants']:,} grants, {writes['all']:,} writes"
    tables.show_faults(console, title, report["faults"])
    console.print(_totals(report))
    tables.show_verdict(console, report, "Equal, to the flight: nothing lost, nothing doubled.")


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
    title = "Gaps: how long nobody had a long-held role"
    table = tables.numbers_table(title, "the holder before was …", "hand-overs", "p50", "longest")
    for kind, cause in GAP_TITLES.items():
        if gap := report["gaps"].get(kind):
            table.add_row(cause, *tables.gap_cells(gap))
    return table


def _totals(report: Report) -> Table:
    flights = report["flights"]
    titles = {"flights": "flights", "cancelled": "cancelled", "delay": "minutes of departure delay"}
    return tables.results_table(
        f"Totals, over {flights['carrier_months']} pairs of carrier and month",
        ["by the processors"],
        [(title, [flights["got"][key], flights["expected"][key]]) for key, title in titles.items()],
    )
