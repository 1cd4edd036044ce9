"""Collect the effects of a step, its log lines, and the next wake."""

from __future__ import annotations

import attrs

from rink.core.effects import Effect, Joined, Level, Lose, Report

REPEAT_INTERVAL_S = 60.0
"""Least interval between two warnings with the same text, in seconds."""


@attrs.define
class Outbox:
    """Collect effects and wakes over a step; `last_error` stays longer."""

    effects: list[Effect] = attrs.field(factory=list)
    wakes: list[float] = attrs.field(factory=list)
    last_error: str = ""
    _warned: dict[str, float] = attrs.field(factory=dict)

    def do(self, effect: Effect) -> None:
        """Append an effect, and remember its text if it is a warning or an error."""
        if isinstance(effect, Report) and effect.level is not Level.INFO:
            self.last_error = effect.text
        self.effects.append(effect)

    def report(self, level: Level, text: str) -> None:
        """Append a log line."""
        self.do(Report(level, text))

    def warn_of(self, failure: str, now: float) -> None:
        """Append a warning, unless it was appended within the last minute."""
        warned = self._warned.items()
        self._warned = {text: at for text, at in warned if now < at + REPEAT_INTERVAL_S}
        self.last_error = failure
        if failure not in self._warned:
            self._warned[failure] = now
            self.report(Level.WARNING, failure)

    def wake(self, at: float | None) -> None:
        """Schedule a step at a time, if nothing happens before."""
        if at is not None:
            self.wakes.append(at)

    def take(self) -> list[Effect]:
        """Return the effects in order, but losses first, then the join.

        A log handler may block, and would delay the losses behind its line. A version that came in
        the same step as the join is logged after the join.
        """
        effects = sorted(self.effects, key=_order)
        self.effects = []
        return effects

    def take_all_but_reports(self) -> list[Effect]:
        """Return all effects except the reports, which the next step returns."""
        effects: list[Effect] = [e for e in self.effects if not isinstance(e, Report)]
        self.effects = [e for e in self.effects if isinstance(e, Report)]
        return effects


def _order(effect: Effect) -> int:
    return (Lose, Joined, type(effect)).index(type(effect))
