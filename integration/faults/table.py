"""Collect the table of faults, one row per scenario.

It is shown at the end of a run, and written as JSON.
"""

from __future__ import annotations

import json
from pathlib import Path

import attrs
from rich import box
from rich.console import Console
from rich.table import Table

from rink.testing.history import Judgement


@attrs.frozen(kw_only=True)
class Row:
    """Describe the effect of one fault on a group.

    Attributes:
        fault: its description.
        servers: the servers that the members spoke with.
        grants: how often a role was gained, by the fault and in its wake.
        moves: how often by another member than before.
        overlaps: roles held twice.
        early: roles held twice because etcd ended a lease before its holder's deadline.
        stale_accepted: accepted writes that a later holder's write should have barred.
        stale_refused: refused writes that a later holder's write did bar.
        versions: how many were proclaimed, by the fault and in its wake.
        longest_gap: the longest time in seconds without a holder, of roles that had one before.
        bound: the limit of this gap; None if the fault itself sets it.
    """

    fault: str
    servers: str
    grants: int
    moves: int
    overlaps: int
    early: int
    stale_accepted: int
    stale_refused: int
    versions: int | None
    longest_gap: float
    bound: float | None

    @classmethod
    def of(
        cls,
        fault: str,
        servers: str,
        judgement: Judgement,
        since: float,
        *,
        versions: int | None = None,
        bound: float | None = None,
    ) -> Row:
        """Return the row of a judged history; the fault began at `since`."""
        return cls(
            fault=fault,
            servers=servers,
            grants=sum(judgement.gains(since).values()),
            moves=sum(judgement.moves(since).values()),
            overlaps=len(judgement.overlaps),
            early=len(judgement.early),
            stale_accepted=len(judgement.stale),
            stale_refused=judgement.refused,
            versions=versions,
            longest_gap=judgement.longest_gap(since),
            bound=bound,
        )


_HEADS = {
    "fault": "fault",
    "servers": "servers",
    "grants": "grants",
    "moves": "moves",
    "overlaps": "overlaps",
    "early": "(early)",
    "stale_accepted": "stale ok",
    "stale_refused": "refused",
    "versions": "versions",
    "longest_gap": "gap s",
    "bound": "bound",
}


def shown(rows: list[Row], width: int) -> str:
    """Return the rows as a table for people."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title="Faults",
        caption="(early): overlaps where etcd had ended the holder's lease before its time; "
        "stale ok, refused: late writes that the fenced resource took, and did not take; "
        "gap: the longest time that nobody held a role",
    )
    for name, head in _HEADS.items():
        is_text = name in {"fault", "servers"}
        table.add_column(
            head, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold"
        )
    for row in rows:
        table.add_row(*(_cell(getattr(row, name)) for name in _HEADS))
    console = Console(width=max(width, 140))
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def _cell(value: float | str | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def write(rows: list[Row], path: Path) -> None:
    """Write the rows as JSON."""
    path.write_text(json.dumps([attrs.asdict(row) for row in rows], indent=1) + "\n")
