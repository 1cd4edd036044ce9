"""Run the checks and the measures from the command line."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from style.findings import CHECKED, MEASURED, Checkout, Finding, find
from style.table import markdown, measure

Debt = Mapping[str, Mapping[str, int]]


def main(debt: Debt, description: str, arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Args:
        debt: how many findings each room still has of each rule.
        description: what `--help` says.
        arguments: those of the command line; None is `sys.argv`.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    rules = [*CHECKED, *MEASURED]
    listing = f"print all findings of a rule: {', '.join(rules)}"
    parser.add_argument("--list", metavar="RULE", choices=rules, help=listing)
    parser.add_argument("--table", action="store_true", help="print the measures as Markdown")
    parser.add_argument("--json", action="store_true", help="print the measures as JSON")
    parser.add_argument("--debt", action="store_true", help="print the DEBT of today")
    root = Path(__file__).parents[2]
    where = "the checkout to look at; default: this one"
    parser.add_argument("--root", type=Path, default=root, metavar="DIR", help=where)
    options = parser.parse_args(arguments)
    checkout = Checkout(options.root.resolve())
    if options.list:
        for finding in find(checkout, options.list):
            print(finding)
    elif options.json:
        print(json.dumps(measure(checkout), indent=1, ensure_ascii=False))
    elif options.table:
        print(markdown(measure(checkout)))
    elif options.debt:
        print(written(debt_of(all_findings(checkout))))
    else:
        complaints = list(judged(all_findings(checkout), debt))
        print(*complaints or ["style: no new findings"], sep="\n")
        return 1 if complaints else 0
    return 0


def all_findings(checkout: Checkout) -> list[Finding]:
    """Return the findings of all checked rules."""
    return [finding for rule in CHECKED for finding in find(checkout, rule)]


def debt_of(findings: Sequence[Finding]) -> dict[str, dict[str, int]]:
    """Count the findings of each rule in each room."""
    return {
        rule: dict(sorted(rooms.items()))
        for rule in CHECKED
        if (rooms := Counter(finding.room for finding in findings if finding.rule == rule))
    }


def judged(findings: Sequence[Finding], debt: Debt) -> Iterator[str]:
    """Yield what to complain of: new findings, and a DEBT that can be lowered.

    A room without DEBT has each finding printed. In a room with DEBT the new findings are not
    known from the old, so it has one line that says where to look.
    """
    counts = debt_of(findings)
    for rule in CHECKED:
        now, noted = counts.get(rule, {}), debt.get(rule, {})
        for room in sorted({*now, *noted}):
            count, allowed = now.get(room, 0), noted.get(room, 0)
            if count > allowed == 0:
                of_room = [f for f in findings if (f.rule, f.room) == (rule, room)]
                yield from map(str, of_room)
            elif count > allowed:
                yield (
                    f"{room}: {rule}: {count} findings, and DEBT has {allowed}; "
                    f"`.ci/style --list {rule}` names them, mend those of this change"
                )
            elif count < allowed:
                yield (
                    f"{room}: {rule}: {count} findings; lower DEBT in .ci/style from {allowed} "
                    f"to {count}"
                    + ("" if count else ", which is to remove the entry")
                )  # fmt: skip


def written(debt: Debt) -> str:
    """Return DEBT as `.ci/style` has it."""
    lines = ["DEBT = {"]
    for rule, rooms in debt.items():
        lines += [f'    "{rule}": {{', *(f'        "{room}": {n},' for room, n in rooms.items())]
        lines += ["    },"]
    return "\n".join([*lines, "}"])
