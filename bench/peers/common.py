"""Share helpers between the peers' measurements."""

from __future__ import annotations

from figures import PeerFigure, Spread

SETTLING = 2.0
"""Seconds that newcomers of a starting group wait for others; Rink's default, so everybody's."""
APART_S = 0.2
"""Seconds between the starts of the five."""


class NotToBeHadError(Exception):
    """Report that a peer cannot be run on this machine.

    The message says why, and what would help.
    """


def handover_figures(
    peer: str, roles: int, gaps: list[list[float]], spans: list[float]
) -> list[PeerFigure]:
    """Return the figures of a planned leave, under the names of ours."""
    spread = Spread.of([1000 * gap for turn in gaps for gap in turn])
    found = [("p50", spread.p50), ("p99", spread.p99)]
    if roles > 1:
        found.append(("all", Spread.of([1000 * span for span in spans]).p50))
    more = {"hand_overs": len(gaps), "most_ms": spread.most}
    return [
        PeerFigure(
            peer=peer,
            key=f"handover.{roles}.blocking.{what}",
            value=value,
            unit="ms",
            more=more,
        )
        for what, value in found
    ]
