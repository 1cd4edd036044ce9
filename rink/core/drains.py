"""Roles that were lost and are not released yet: said aloud, and given up where grace ends (R10).

A member may lose ten thousand at once: whoever reads its log is told of them in one line.
"""

from __future__ import annotations

from collections.abc import Sequence

from rink.core.effects import Level
from rink.core.holds import Hold, Table
from rink.core.outbox import Outbox
from rink.core.record import some

REPORT_AFTER_S = 10.0


def watch(table: Table, grace: float | None, now: float, out: Outbox) -> None:
    """Report the holders that do not let go, once; give up their claims when `grace` is over."""
    late, over = list[Hold](), list[Hold]()
    for hold in table.draining:
        assert hold.lost_at is not None
        if grace is not None and now >= hold.lost_at + grace:
            over.append(hold)
            continue
        if grace is not None:
            out.wake(hold.lost_at + grace)
        if not hold.reported and now >= hold.lost_at + REPORT_AFTER_S:
            hold.reported = True
            late.append(hold)
        elif not hold.reported:
            out.wake(hold.lost_at + REPORT_AFTER_S)
    if late:
        out.report(Level.WARNING, _late(late, now))
    if over:
        give_up(over, f"the grace of {grace:g} s is over", now, out)


def give_up(holds: Sequence[Hold], because: str, now: float, out: Outbox) -> None:
    """Withdraw the claims of roles that user code may still be working on."""
    for hold in holds:
        hold.given_up = True
    first, ago = holds[0], f"{_seconds_ago(holds, now):.1f} s ago"
    if len(holds) == 1:
        text = f"role {first.role!r} was lost {ago} and is not released: its claim is given up, "
        guards = f"Only fencing token {first.token} guards what it still does"
    else:
        text = f"{len(holds):,} roles were lost {ago} and are not released: their claims are given up, "
        tokens = some([f"{hold.token} of {hold.role!r}" for hold in holds])
        guards = f"Only fencing tokens guard what they still do: {tokens}"
    out.report(Level.ERROR, f"{text}{because}. {guards}")


def _late(holds: Sequence[Hold], now: float) -> str:
    ago = f"{_seconds_ago(holds, now):.0f} s ago ({holds[0].lost_because})"
    if len(holds) == 1:
        text = f"role {holds[0].role!r} was lost {ago} and is still not released"
        return f"{text}: nobody else can have it before"
    names = some([repr(hold.role) for hold in holds])
    text = f"{len(holds):,} roles were lost {ago} and are still not released"
    return f"{text}: nobody else can have them before: {names}"


def _seconds_ago(holds: Sequence[Hold], now: float) -> float:
    """Since when at least one of them is lost."""
    return max(now - hold.lost_at for hold in holds if hold.lost_at is not None)
