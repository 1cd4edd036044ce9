"""Build the report from the outputs and the notes, and show it as tables."""

from dataclasses import dataclass, field

from common import tables
from common.checks import summary, warnings
from common.events import Event
from common.tables import Report
from rich.console import Console
from rich.table import Table

from rink.streams import partition_of
from streams_demo import checks
from streams_demo.checks import Again, Step
from streams_demo.legs import Aircraft, Histories

CAUSES = {
    "deploy": "rolling deploy",
    "rebalanced": "given to another",
    "frozen": "owner frozen, lease ended",
    "killed": "owner killed, lease ended",
    "": "none: the owner stayed",
}
TITLES = {
    "legs": "legs",
    "delay": "minutes of departure delay",
    "longest": "longest chain of late legs",
    "sum_of_longest": "each one's longest, added up",
}


@dataclass(kw_only=True)
class Evidence:
    """Hold the evidence for the report."""

    history: list[Event]
    steps: dict[str, list[Step]]  # by processor, in the order of writing
    again: list[Again]  # legs that `plain` got although they were done
    refused: list[tuple]  # writes that the ledger refused
    expected: Histories
    partitions: int
    window: int
    unfinished: str = ""
    mishaps: list[checks.Mishap] = field(init=False)
    overruns: list[checks.Mishap] = field(init=False)

    def __post_init__(self) -> None:
        self.history.sort(key=lambda event: event["at"])
        self.mishaps = checks.mishaps(self.history)
        self.overruns = checks.overruns(self.history)


def build(seen: Evidence) -> Report:
    faults = {
        f"{name}: {fault}": found
        for name, steps in seen.steps.items()
        for fault, found in _faults(seen, name, steps).items()
    }
    if seen.unfinished:
        faults["the demo could not be finished"] = [seen.unfinished]
    return {
        **tables.head_of(seen.history, faults),
        "expected": _totals(
            {key: history[-1] for key, history in seen.expected.items()},
            sum(map(len, seen.expected.values())),
        ),
        "processors": {name: _processor(seen, name, steps) for name, steps in seen.steps.items()},
        "again": _again(seen),
        "warned": warnings(seen.history),
        "window": seen.window,
    }


def _faults(seen: Evidence, name: str, steps: list[Step]) -> dict[str, list[str]]:
    faults = {
        "order violations": checks.order_violations(
            steps, lambda key: partition_of(key, seen.partitions)
        ),
        "doubled": checks.duplicates(steps),
        "stale writes accepted": checks.stale(steps),
        "states that differ": checks.wrong_states(steps, seen.expected),
    }
    if name == "plain":
        owned = checks.owners(seen.history, name)
        faults["again, beyond a lost window"] = checks.unexplained_again(
            seen.again, steps, owned, seen.mishaps + seen.overruns, seen.window
        )
    if not seen.unfinished:
        faults["lost"] = checks.lost(steps, seen.expected)
        tested = bool(_refused(seen, name))
        faults["fence never tested"] = [] if tested else ["no stale write was refused"]
    return faults


def _refused(seen: Evidence, name: str) -> list[str]:
    return [
        f"{event['member']}: {event['why']}"
        for event in seen.history
        if event["what"] == "refused" and event["processor"] == name
    ]


def _processor(seen: Evidence, name: str, steps: list[Step]) -> Report:
    last = {step.key: step.aircraft for step in steps}
    times = [step.at for step in steps] or [0.0]
    return {
        **_totals(last, len(steps)),
        "refused": _refused(seen, name),
        "events_per_s": round(len(steps) / max(max(times) - min(times), 0.001)),
        "gaps": {
            cause or "none": summary(seconds)
            for cause, seconds in checks.gaps(steps, seen.mishaps).items()
        },
    }


def _totals(last: dict[str, Aircraft], count: int) -> Report:
    return {
        "legs": count,
        "aircraft": len(last),
        "delay": sum(aircraft.delay for aircraft in last.values()),
        "longest": max((aircraft.longest for aircraft in last.values()), default=0),
        "sum_of_longest": sum(aircraft.longest for aircraft in last.values()),
    }


def _again(seen: Evidence) -> Report:
    counts = checks.again_by_origin(seen.again, seen.steps["plain"]).values()
    return {"legs": sum(counts), "grants": len(counts), "most": max(counts, default=0)}


# ── shown ────────────────────────────────────────────────────────────────────────────────────


def show(report: Report, console: Console) -> None:
    console.print()
    console.print(_gaps(report))
    again = report["again"]
    console.print(
        f"After the freeze and the kill {again['legs']} legs came to `plain` again, of"
        f" {again['grants']} grants, {again['most']} at most (window: {report['window']});"
        " the ledger knew them."
    )
    for name, found in report["processors"].items():
        tables.first_lines(console, f"refused to {name}", found["refused"], "cyan")
    tables.first_lines(console, "a worker was warned", report["warned"], "yellow")
    rates = ", ".join(
        f"{name} {found['events_per_s']:,}" for name, found in report["processors"].items()
    )
    tables.show_faults(console, f"Events per second: {rates}", report["faults"])
    console.print(_results(report))
    good = "Equal, after every single leg: in order, nothing lost, nothing doubled."
    tables.show_verdict(console, report, good)


def _gaps(report: Report) -> Table:
    headings = [
        heading for name in report["processors"] for heading in (f"{name}:", "p50", "longest")
    ]
    table = tables.numbers_table(
        "Gaps: how long a partition put out nothing", "hand-over", *headings
    )
    for cause, title in CAUSES.items():
        row = [title]
        for found in report["processors"].values():
            gap = found["gaps"].get(cause or "none")
            row += tables.gap_cells(gap) if gap else ["0", "", ""]
        table.add_row(*row)
    return table


def _results(report: Report) -> Table:
    columns = [*report["processors"].values(), report["expected"]]
    return tables.results_table(
        f"{report['expected']['aircraft']:,} aircraft in the end",
        report["processors"],
        [(title, [column[key] for column in columns]) for key, title in TITLES.items()],
    )
