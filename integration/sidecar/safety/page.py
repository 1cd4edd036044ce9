"""Write the table of a run, for a terminal, as JSON and as a page.

The page is docs/internals/sidecar-faults.md.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
from rich import box
from rich.table import Table

from safety.faults import HELD_S
from safety.running import GRACE_S, HOLD_S, TTL_S
from safety.stage import Verdict

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "sidecar-faults.md"

HEADS = (
    "fault", "runs", "grants", "writes", "refused", "stale accepted", "overlaps", "program stopped",
    "late", "gap s (median)", "gap s (longest)",
)  # fmt: skip


@attrs.frozen(kw_only=True)
class Row:
    """One fault over all of its runs; see `Verdict`."""

    fault: str
    says: str
    runs: int
    grants: int
    writes: int
    refused: int
    stale: int
    overlaps: int
    stopped: int
    late: int
    gap_median: float
    gap_longest: float
    problems: tuple[str, ...]

    @classmethod
    def of(cls, fault: str, says: str, verdicts: Iterable[Verdict]) -> Row:
        """Return the row of one or more runs."""
        runs = list(verdicts)
        gaps = [run.gap for run in runs]
        return cls(
            fault=fault,
            says=says,
            runs=len(runs),
            grants=sum(run.grants for run in runs),
            writes=sum(run.accepted + run.refused for run in runs),
            refused=sum(run.refused for run in runs),
            stale=sum(run.stale for run in runs),
            overlaps=sum(run.overlaps for run in runs),
            stopped=sum(run.stopped for run in runs),
            late=sum(run.late for run in runs),
            gap_median=statistics.median(gaps),
            gap_longest=max(gaps),
            problems=tuple(f"{run.seed}: {one}" for run in runs for one in run.problems),
        )

    def cells(self) -> list[str]:
        """Return the cells of the table, in the order of `HEADS`."""
        counts = (
            self.runs, self.grants, self.writes, self.refused, self.stale, self.overlaps,
            self.stopped, self.late,
        )  # fmt: skip
        gaps = (self.gap_median, self.gap_longest)
        return [self.says, *(f"{one:,}" for one in counts), *(f"{one:.2f}" for one in gaps)]


def shown(rows: list[Row]) -> Table:
    """Return the table for a terminal, with a red line for each finding."""
    table = Table(box=box.SIMPLE_HEAD, title="Safety as clients of a sidecar see it")
    for head in HEADS:
        table.add_column(head, justify="left" if head == "fault" else "right")
    for row in rows:
        table.add_row(*row.cells(), style="red" if row.problems else None)
    return table


def as_json(rows: list[Row], verdicts: list[Verdict], troubles: list[str]) -> dict[str, Any]:
    """Return all figures."""
    return {
        "ttl_s": TTL_S,
        "hold_s": HOLD_S,
        "grace_s": GRACE_S,
        "rows": [attrs.asdict(row) for row in rows],
        "runs": [attrs.asdict(verdict) for verdict in verdicts],
        "troubles": troubles,
    }


def written(rows: list[Row], etcd: str, minutes: float, date: str) -> str:
    """Return the text of the page."""
    head = f"| {' | '.join(HEADS)} |\n|---{'|--:' * (len(HEADS) - 1)}|"
    body = "\n".join(f"| {' | '.join(row.cells())} |" for row in rows)
    runs = sum(row.runs for row in rows)
    return TEXT.format(
        table=f"{head}\n{body}", runs=runs, minutes=minutes, etcd=etcd, date=date,
        ttl=TTL_S, hold=HOLD_S, grace=GRACE_S, held=HELD_S,
    )  # fmt: skip


TEXT = """# Faults beside a sidecar

Written by `make sidecar-faults FAULTS=--docs`; do not edit. {runs:,} runs on {date}, in
{minutes:.0f} minutes, with etcd {etcd}.

{table}

## How it is measured

Each run has two sidecars as processes, and two programs beside each. All four programs want the
same two roles. A program has the standard library only. It holds by a stream, and reads
CLOCK_BOOTTIME before each write. It writes only if the end that it was told is more than 50 ms
ahead. Then it waits up to 5 ms, and writes. Whether it renews (`alive`), what a close means
(`on_close`), and whether it resumes a stream or holds anew, is drawn for each program.

Each write goes to two resources at once. The guarded one refuses a token that is below the greatest
one so far. The unguarded one takes every write.

- *writes, refused*: at the guarded resource. A refused write was stale.
- *stale accepted*: writes under an earlier turn that the guard accepted after a write of a later
  turn. It must be 0.
- *overlaps*: turns that two programs had at once. A turn counts from the moment that the program
  was told of it, until the program let go or its end passed. A write at the unguarded resource
  counts, too, if it came after a write of a later turn and before the end that its program knew.
  The sum must be 0.
- *program stopped*: stale writes at the unguarded resource by a program that was frozen between its
  check and its write. The write came after the end that the program had checked. Only the token
  guards against these writes.
- *late*: stale writes as above by a program that was not frozen. The busy machine took more than
  the 50 ms.
- *gap*: the longest time in a run that nobody held a role.

The settings are `--ttl {ttl:g} --hold {hold:g} --grace {grace:g} --absent 1 --rebalance-delay 0.2`.
With this `ttl` an end is at most 0.75 s ahead: half of the time that a session lasts without an
answer. *The hold* is `--hold`, so twice the hold is {held:g} s. *Stopped* means SIGSTOP, and
SIGCONT later. A killed sidecar comes back under its name.

To repeat one run: `make sidecar-faults FAULTS="--one SEED/FAULT/NUMBER"`. The same seed draws the
same settings and pauses.
"""
