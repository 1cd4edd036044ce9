"""Wait for a rank, on both faces."""

from __future__ import annotations

import logging
import math

from rink.core.waits import REPORT_AFTER_S
from rink.engine.engine import Engine
from rink.errors import RoleTimeout

log = logging.getLogger("rink")


def rank_for_grants(engine: Engine) -> int | None:
    """Return the member's rank if roles can be granted under it, else None.

    A rank alone is not enough. The member must also have written and seen its claim.
    """
    with engine.lock:
        is_open = not engine.table.gate.closed_because
        return engine.node.rank if is_open and not engine.left.is_set() else None


class RankWait:
    """Track one caller's wait for the member's rank."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._report_at = engine.clock.now() + REPORT_AFTER_S

    def rank(self) -> int | None:
        """Return the rank if roles can be granted under it, else None."""
        return rank_for_grants(self._engine)

    def pause(self, left: float = math.inf) -> float | None:
        """Return how long to wait for a change, or None for no limit.

        The first pause that begins after ten seconds logs the reason of the wait. `left` is the
        seconds until the wait times out.
        """
        now = self._engine.clock.now()
        if now >= self._report_at:
            self._report_at = math.inf
            text = f"a rank has been awaited for over {REPORT_AFTER_S:g} s: {self._because()}"
            log.info("group %r: %s", self._engine.group, text, extra=self._engine.member_log.about)
        pause = min(left, self._report_at - now)
        return None if pause == math.inf else pause

    def timed_out(self, timeout: float) -> RoleTimeout:
        """Return the error of the wait, with the time when the group will grow."""
        name, group = self._engine.node.name, self._engine.group
        return RoleTimeout(
            f"{name!r} was not ranked in group {group!r} within {timeout:g} s: {self._because()}",
            group=group,
            member=name,
        )

    def _because(self) -> str:
        with self._engine.lock:
            obstacles = self._engine.node.hold_obstacles((), self._engine.clock.now())
        return obstacles.not_ranked or obstacles.gate.closed_because
