"""Roles that were lost and are not released yet: said aloud, and given up where grace ends (R10)."""

from __future__ import annotations

from rink.core.effects import Level
from rink.core.holds import Hold, Table
from rink.core.outbox import Outbox

REPORT_AFTER_S = 10.0


def watch(table: Table, grace: float | None, now: float, out: Outbox) -> None:
    """Report each holder that does not let go, once; give its claim up when `grace` is over."""
    for hold in table.draining:
        assert hold.lost_at is not None
        if grace is not None and now >= hold.lost_at + grace:
            give_up(hold, f"its grace of {grace:g} s is over", now, out)
            continue
        if grace is not None:
            out.wake(hold.lost_at + grace)
        if not hold.reported and now >= hold.lost_at + REPORT_AFTER_S:
            hold.reported = True
            out.report(
                Level.WARNING,
                f"role {hold.role!r} was lost {now - hold.lost_at:.0f} s ago ({hold.lost_because}) "
                "and is still not released: nobody else can have it before",
            )
        elif not hold.reported:
            out.wake(hold.lost_at + REPORT_AFTER_S)


def give_up(hold: Hold, because: str, now: float, out: Outbox) -> None:
    """Withdraw the claim of a role that user code may still be working on."""
    assert hold.lost_at is not None
    hold.given_up = True
    out.report(
        Level.ERROR,
        f"role {hold.role!r} was lost {now - hold.lost_at:.1f} s ago and is not released: its claim "
        f"is given up, {because}. Only fencing token {hold.token} guards what it still does",
    )
