"""Draw docs/internals/machines.md from the state tables: `make docs`.

The page cannot drift from the code: a test compares them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path

from rink.core.state_tables import LEASE, LIFE, WRITE, LeaseState, Life, Write

Table = Mapping[enum.Enum, Mapping[enum.Enum, enum.Enum]]

HEAD = """# The three machines of a member

Drawn from the tables in `rink/core/state_tables.py` by `make docs`; do not edit. A transition that is
not drawn does not happen: the core refuses it.

A role is granted only while the life is *active* or *leaving*, the lease *alive* and the record
*settled*. Joining waits for the record to be settled, revoking for the lease to be none.

A role has no table: in one process it is *held*, and once *lost* stays so until its last handle is
released (`rink/core/holds.py`).
"""

TEXTS = {
    "Life": "Where a member stands between join and leave.",
    "Lease": "What is known of its lease. In *suspect* every role has been lost, and the same lease"
    " is asked for once more before a new one is taken.",
    "Record": "What is known of this member's record in etcd. In *sent* and *owed* it is unsettled: only"
    " the answer of a transaction settles it.",
}


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    tables: list[tuple[str, Table, enum.Enum]] = [
        ("Life", LIFE, Life.JOINING),
        ("Lease", LEASE, LeaseState.NONE),
        ("Record", WRITE, Write.ABSENT),
    ]
    for title, table, first in tables:
        parts.append(f"## {title}\n\n{TEXTS[title]}\n\n```mermaid\n{_diagram(table, first)}\n```\n")
    return "\n".join(parts)


def _diagram(table: Table, first: enum.Enum) -> str:
    lines = ["stateDiagram-v2", "    direction LR"]
    lines += [f'    state "{state.value}" as {state.name}' for state in table]
    lines.append(f"    [*] --> {first.name}")
    for state, row in table.items():
        for to in dict.fromkeys(
            row.values()
        ):  # one arrow from state to state, whatever moves it on
            events = [event.value for event, leads_to in row.items() if leads_to is to]
            label = "<br/>or ".join(event.replace(", ", ",<br/>") for event in events)
            lines.append(f"    {state.name} --> {to.name}: {label}")
        if not row:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join(lines)


if __name__ == "__main__":
    Path(__file__).with_name("machines.md").write_text(page(), encoding="utf-8")
