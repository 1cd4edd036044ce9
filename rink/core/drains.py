"""Report lost roles that are not released; enforce `grace` (R10).

A member may lose ten thousand roles at once, so one log line reports all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from rink.core.effects import Level
from rink.core.holds import Hold, Table, made_by
from rink.core.outbox import Outbox
from rink.core.wording import some

REPORT_AFTER_S = 10.0

MAX_GUARDED_NAMED = 20
"""Largest number of roles, and of handles of each, in a line about unreleased roles."""


def watch(table: Table, grace: float | None, now: float, out: Outbox) -> None:
    """Report each late role once, and give up its claim when `grace` is over."""
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
        give_up(table, over, f"the grace of {grace:g} s is over", now, out)


def give_up(table: Table, holds: Sequence[Hold], because: str, now: float, out: Outbox) -> None:
    """Withdraw the claims of roles that user code may still be working on."""
    for hold in holds:
        hold.given_up = True
    claims = "its claim is" if len(holds) == 1 else "their claims are"
    _log_overrun(table, holds, f"{claims} given up, {because}. Now", now, out)


def overrun(table: Table, ttl: int, now: float, out: Outbox) -> None:
    """Report that the member leaves before user code has released its roles.

    Its record claims these roles until the lease runs out, within `ttl` seconds.
    """
    holds = table.draining
    claims = "its claim ends" if len(holds) == 1 else "their claims end"
    follows = f"the member leaves, and {claims} with the lease, within {ttl} s. Then"
    _log_overrun(table, holds, follows, now, out)


def _log_overrun(
    table: Table, holds: Sequence[Hold], follows: str, now: float, out: Outbox
) -> None:
    """Count and log the roles that only a token guards, with their handles."""
    table.overruns += len(holds)
    out.report(Level.ERROR, f"{_unreleased(holds, now)}: {follows} {_guards(holds)}")


def _unreleased(holds: Sequence[Hold], now: float) -> str:
    ago = f"{_seconds_ago(holds, now):.1f} s ago"
    if len(holds) == 1:
        return f"role {holds[0].role!r} was lost {ago} and is not released"
    return f"{len(holds):,} roles were lost {ago} and are not released"


def _guards(holds: Sequence[Hold]) -> str:
    """Return a text that names roles which only their tokens guard."""
    guards = "its fencing token guards" if len(holds) == 1 else "their fencing tokens guard"
    text = f"only {guards} the work that still runs"
    named = ", ".join(_handles(hold) for hold in holds[:MAX_GUARDED_NAMED])
    more = len(holds) - MAX_GUARDED_NAMED
    return f"{text}: {named} and {more:,} more" if more > 0 else f"{text}: {named}"


def _handles(hold: Hold) -> str:
    """Return a role with its token, and where its handles were taken.

    At most `MAX_GUARDED_NAMED` handles are looked up, since finding a line takes time.
    """
    some_handles = islice(hold.handles, MAX_GUARDED_NAMED)
    counts = Counter(map(made_by, some_handles))
    del counts[""]  # handles whose place is unknown
    places = [f"{place} ({n} handles)" if n > 1 else place for place, n in sorted(counts.items())]
    taken = f", taken at {' and at '.join(places)}" if places else ""
    more = len(hold.handles) - MAX_GUARDED_NAMED
    rest = f" and {more:,} more {'handle' if more == 1 else 'handles'}" if more > 0 else ""
    return f"{hold.role!r} (token {hold.token}{taken}{rest})"


def _late(holds: Sequence[Hold], now: float) -> str:
    ago = f"{_seconds_ago(holds, now):.0f} s ago ({holds[0].lost_because})"
    if len(holds) == 1:
        text = f"role {holds[0].role!r} was lost {ago} and is still not released"
        return f"{text}, so nobody else can have it"
    names = some([repr(hold.role) for hold in holds])
    text = f"{len(holds):,} roles were lost {ago} and are still not released"
    return f"{text}, so nobody else can have them: {names}"


def _seconds_ago(holds: Sequence[Hold], now: float) -> float:
    """Return the seconds since the first of the roles was lost."""
    return max(now - hold.lost_at for hold in holds if hold.lost_at is not None)
