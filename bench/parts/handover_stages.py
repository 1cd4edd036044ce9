"""Show the stages of a role's hand-over between `let go` and `gained`.

The notes of both processes are read backwards from the grant: the event that woke the granting
step, the leaver's request before that event, and so on.
"""

from __future__ import annotations

import statistics
from typing import Any

from arena import Arena
from figures import Table

Note = tuple[float, str, str, str]  # when, whose, what, with what
STAGES = [
    "leaver: release() → its engine's thread is awake",
    "leaver: the step; what to send is decided",
    "leaver: another thread takes it, and makes the request",
    "gRPC and etcd: sent → applied → event at the new owner",
    "new owner: decoded, and its engine's thread is awake",
    "new owner: the step; granted",
    "new owner: the user's thread is awake: gained",
]
OWN_CLAIM = "the new owner saw its own claim last, after the leaver's release"
SHOWN = {"step", "step done", "asked", "sent", "sent done", "delivered", "carried out"}


def breakdown(arena: Arena, ping_pong: Any, count: int) -> list[Table]:
    """Run hand-overs with noting doors, and say what each stage took."""
    turns = ping_pong(arena, 1, "one", "blocking", trace=True)
    seen: list[tuple[float, list[float], list[Note], float]] = []
    own = 0
    for turn in range(count + 1):
        arena.progress("where the time goes", turn, count)
        leaver = turns.holder
        for child in (turns.holder, turns.heir):
            child.ask("stages")
        turns.hand_over()
        start, gained = turns.last
        notes = [(at, "leaver", *more) for at, *more in leaver.ask("stages")["stages"]]
        notes += [(at, "new owner", *more) for at, *more in turns.holder.ask("stages")["stages"]]
        marks = critical_path(sorted(notes), start, gained)
        if turn:
            seen.append((gained - start, marks, sorted(notes), start))
            own += waits_for_own_claim(notes, marks[4], turns.holding)
    turns.close()
    rows = [
        [
            text,
            f"{1e6 * statistics.median(marks[i + 1] - marks[i] for _, marks, _, _ in seen):,.0f}",
        ]
        for i, text in enumerate(STAGES)
    ]
    rows.append(["together", f"{1e6 * statistics.median(one[0] for one in seen):,.0f}"])
    rows.append([f"hand-overs in which {OWN_CLAIM}", f"{own} of {len(seen)}"])
    title = (
        f"Where the time of a hand-over of one role goes: µs, medians of {len(seen)}, each noted"
    )
    return [Table(title=title, heads=["stage", "µs"], rows=rows), _timeline(seen)]


def critical_path(notes: list[Note], start: float, gained: float) -> list[float]:
    """Return the begin of each stage, and the end of the last one."""

    def last(whose: str, what: str, before: float, about: str = "") -> float:
        found = [
            at
            for at, who, noted, of in notes
            if (who, noted) == (whose, what) and about in of and at <= before
        ]
        return max(found, default=start)

    granted = last("new owner", "carried out", gained, "Grant")
    stepped = last("new owner", "step", granted)
    delivered = last("new owner", "delivered", stepped)
    sent = last("leaver", "sent", delivered)
    asked = last("leaver", "asked", sent)
    awake = last("leaver", "step", asked)
    marks = [start, awake, asked, sent, delivered, stepped, granted, gained]
    # The step had begun before the release: the hand-over waited for the new owner.
    return [max(start, one) for one in marks]


def waits_for_own_claim(notes: list[Note], delivered: float, name: str) -> bool:
    """Return whether the new owner's own claim was the last event.

    If so, no release was late.
    """
    return any(
        (at, who, what) == (delivered, "new owner", "delivered") and f"put of members/{name}" in of
        for at, who, what, of in notes
    )


def _timeline(seen: list[tuple[float, list[float], list[Note], float]]) -> Table:
    """Return one hand-over of median length, stage by stage."""
    gap, _, notes, start = sorted(seen, key=lambda one: one[0])[len(seen) // 2]
    rows = [
        [f"{1e6 * (at - start):,.0f}", who, f"{what} {about}".strip()]
        for at, who, what, about in notes
        if what in SHOWN and -0.5 * gap - 0.0005 <= at - start <= gap
    ]
    rows.append([f"{1e6 * gap:,.0f}", "new owner", "gained"])
    rows.append(["0", "leaver", "let go"])
    rows.sort(key=lambda row: float(row[0].replace(",", "")))
    return Table(
        title="One of median length, door by door",
        heads=["µs since `let go`", "who", "what"],
        rows=rows,
    )
