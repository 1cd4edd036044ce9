"""Build the report from Redis, the files and the notes; show it as tables."""

from dataclasses import dataclass

import pandas as pd
from common import tables
from common.checks import differences, warnings
from common.events import Event
from common.tables import Report
from rich.console import Console
from rich.table import Table

from pipeline_demo import checks, plain
from pipeline_demo.checks import Entry
from pipeline_demo.plain import MEASURES, Totals

CAUSES = {
    "start": "none before (a cold start)",
    "killed": "killed, lease ended",
    "frozen": "frozen, lease ended",
    "given away": "given away",
}
TAKES = ("until_granted", "until_begun", "until_committed", "all", "lease_and_cold_start")
TITLES = {"flights": "flights", "cancelled": "cancelled", "delay": "minutes of departure delay"}


@dataclass(kw_only=True)
class Evidence:
    """Hold the evidence for the report."""

    history: list[Event]
    commits: dict[int, float]  # by batch: when Spark committed it
    accepted: list[Entry]  # accepted parts and raised fences, in their order
    totals: Totals  # in Redis
    rows: pd.DataFrame  # in the Parquet directory, in the order of publishing
    expected: pd.DataFrame
    ttl: float
    unfinished: str = ""


def build(seen: Evidence) -> Report:
    history = sorted(seen.history, key=lambda event: event["at"])
    held = checks.holdings(history, seen.commits)
    refused = [event for event in history if event["what"] == "refused"]
    warned = warnings(history)
    faults = _faults(seen)
    if seen.unfinished:
        faults["the demo could not be finished"] = [seen.unfinished, *warned[-1:]]
    elif not refused:
        faults["the fence was never put to the test"] = ["no stale write was refused"]
    return {
        **tables.head_of(history, faults),
        "ttl": seen.ttl,
        "batches": len(seen.commits),
        "parts": sum("token" in one for one in seen.accepted),
        "known": sum(event["what"] == "known" for event in history),
        "refused": [
            f"{one['member']}, {one['written']} to {one['store']}: {one['why']}" for one in refused
        ],
        "warned": warned,
        "takeovers": checks.takeovers(held, seen.ttl),
        "totals": _totals(seen),
        "keys": {"redis": len(seen.totals), "parquet": len(seen.expected)},
        "timeline": checks.timeline(history, held, seen.commits),
    }


def _faults(seen: Evidence) -> dict[str, list[str]]:
    rows = seen.rows if len(seen.rows) else seen.expected.iloc[:0].assign(batch=0, token=0)
    faults = {
        "stale writes accepted by Redis": checks.stale_parts(seen.accepted),
        "stale writes accepted in Parquet": checks.stale_rows(rows),
        "doubled in Redis": checks.doubled_parts(seen.accepted),
        "doubled in Parquet": checks.doubled_rows(rows),
        "tokens not rising": checks.tokens_not_rising(seen.history),
    }
    if not seen.unfinished:
        right = plain.totals_of(seen.expected)
        faults["totals in Redis that differ"] = differences(seen.totals, right)
        folded, expected = plain.folded(rows), plain.folded(seen.expected)
        faults["rows in Parquet that differ"] = differences(folded, expected)
    return faults


def _totals(seen: Evidence) -> Report:
    carriers = [sums for key, sums in seen.totals.items() if key.startswith("carrier/")]
    in_redis = [sum(column) for column in zip(*carriers, strict=True)] or [0, 0, 0]
    return {
        name: {
            "redis": in_redis[at],
            "parquet": int(seen.rows[name].sum()) if len(seen.rows) else 0,
            "plain": int(seen.expected[name].sum()),
        }
        for at, name in enumerate(MEASURES)
    }


# ── shown ────────────────────────────────────────────────────────────────────────────────────


def show(report: Report, console: Console) -> None:
    console.print()
    console.print(_takeovers(report))
    console.print(
        f"{report['known']} parts came again, and the guards knew them; stale writes refused:"
        f" {len(report['refused'])}."
    )
    tables.first_lines(console, "refused", report["refused"], "cyan")
    tables.first_lines(console, "a driver was warned", report["warned"], "yellow")
    title = f"{report['batches']} batches, {report['parts']} parts accepted by Redis"
    tables.show_faults(console, title, report["faults"])
    console.print(_results(report))
    if page := report.get("page"):
        console.print(f"The page with plots and the time line: {page}", soft_wrap=True)
    good = "Equal, to the minute: nothing lost, nothing doubled, nothing stale."
    tables.show_verdict(console, report, good)


def _takeovers(report: Report) -> Table:
    table = tables.numbers_table(
        f"From one driver's end to the next one's first batch (TTL {report['ttl']:g} s)",
        "the driver before was …",
        "until the role\nis granted",
        "Spark starts\nthe query",
        "the first\nbatch",
        "all",
        "beside: TTL and\na cold start",
    )
    for one in report["takeovers"]:
        shown = ("" if one[name] is None else f"{one[name]:.2f} s" for name in TAKES)
        table.add_row(CAUSES[one["cause"]], *shown)
    return table


def _results(report: Report) -> Table:
    keys = report["keys"]
    return tables.results_table(
        f"Totals: {keys['redis']} in Redis, {keys['parquet']:,} in Parquet",
        ["in Redis", "in Parquet"],
        [(title, list(report["totals"][name].values())) for name, title in TITLES.items()],
    )
