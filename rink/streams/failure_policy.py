"""What becomes of an event that fails, as the user wrote it at the processor."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Literal, get_args

import attrs

from rink.arguments import check_count, check_seconds
from rink.backoff import Backoff
from rink.errors import ConfigError, RinkError
from rink.streams.consumer.buffer import Entry, Letter
from rink.streams.consumer.circuit_breaker import LAST
from rink.streams.transient_errors import TRANSIENT, TransientError, check_transient, is_transient

OnError = Literal["dead-letter", "quarantine", "halt"]
"""What happens to an event that is given up.

It becomes a dead letter, or its partition is quarantined; `halt` also ends this worker with an error.
"""

_LEAST_PAUSE_S = 0.001
"""Shortest pause, even if the user wants none: transient errors may go on for hours."""

_LONGEST_TRACE = 16_384


@attrs.frozen
class Policy:
    """Decides when an event is given up, and what follows.

    Attributes:
        on_error: see `OnError`.
        max_attempts: how often an event must fail alone before it is given up.
        max_crashes: how many crashes an event may cause, 2 or more: the first names no event.
        backoff: the first pause between two tries, and the longest one, in seconds.
        retry_for: seconds for which an event is retried, at least; by each owner anew.
        transient: errors that pass by themselves: no event is blamed for them.
        transient_for: seconds until a partition with nothing but such errors is quarantined.
        timeout: seconds for an event; None for no limit.
        breaker: how many events in a row, or half of the last 100, quarantine their partition instead
            of being given up; None for no limit.
    """

    on_error: OnError = "dead-letter"
    max_attempts: int = 3
    max_crashes: int = 3
    backoff: tuple[float, float] = (0.1, 30.0)
    retry_for: float = 600.0
    transient: tuple[TransientError, ...] = attrs.field(
        default=TRANSIENT, converter=check_transient
    )
    transient_for: float = 3600.0
    timeout: float | None = None
    breaker: int | None = 5

    def __attrs_post_init__(self) -> None:
        if self.on_error not in get_args(OnError):
            raise ConfigError(
                f"on_error={self.on_error!r} is not one of {', '.join(get_args(OnError))}"
            )
        check_count("max_attempts", self.max_attempts)
        if check_count("max_crashes", self.max_crashes) < 2:
            raise ConfigError(
                f"max_crashes={self.max_crashes}: the first process that ends does not tell which event it was; "
                "give 2 or more"
            )
        _check_backoff(self.backoff)
        check_seconds("retry_for", self.retry_for)
        check_seconds("transient_for", self.transient_for)
        if self.timeout is not None and check_seconds("timeout", self.timeout) <= 0:
            raise ConfigError(
                "timeout=0: no event can be processed in no time; give None for any time"
            )
        if self.breaker is not None:
            check_count("breaker", self.breaker, most=LAST)

    def pauses(self) -> Backoff:
        """Return the pauses between tries, from the beginning."""
        first, longest = (max(one, _LEAST_PAUSE_S) for one in self.backoff)
        return Backoff(first, longest)

    def is_transient(self, error: BaseException) -> bool:
        """Return whether an error passes by itself."""
        return is_transient(error, self.transient)

    def condemns(self, crashes: int) -> bool:
        """Return whether so many crashes under its mark condemn an event."""
        return crashes + 1 >= self.max_crashes


def _check_backoff(backoff: object) -> None:
    if not isinstance(backoff, Sequence) or len(backoff) != 2:
        raise ConfigError(
            f"backoff must be two numbers of seconds, the first pause and the longest, not {backoff!r}"
        )
    first, longest = (check_seconds("backoff", one) for one in backoff)
    if first > longest:
        raise ConfigError(f"backoff={backoff!r}: the first pause is longer than the longest")


class Undecodable(RinkError):  # noqa: N818 - as the other errors are named
    """Says that a record does not decode; users do not see it."""

    def __init__(self, entry: Entry, error: Exception) -> None:
        super().__init__(said(error))
        self.entry = entry
        self.error = error


class Quarantined(RinkError):  # noqa: N818 - as the other public errors are named
    """Says that a partition is not processed until it is unquarantined.

    Users do not see this error.

    Attributes:
        halts: the worker is to end, too.
    """

    def __init__(self, reason: str, *, halts: bool = False) -> None:
        super().__init__(reason)
        self.halts = halts


def letter_of(error: BaseException, attempts: int) -> Letter:
    """Return what a dead letter says of an error."""
    trace = printable("".join(traceback.format_exception(error)))
    if len(trace) > _LONGEST_TRACE:
        trace = "…" + trace[-_LONGEST_TRACE:]
    return Letter(printable(f"{type(error).__name__}: {said(error)}"), trace, attempts)


def said(error: BaseException) -> str:
    """Return what an error says, also where that raises."""
    try:
        return str(error)
    except Exception as another:  # it must not keep the event from its end
        return f"(its __str__ raised {type(another).__name__})"


def printable(text: str) -> str:
    """Return a text that can be encoded: a half of a surrogate pair, as JSON may bring, cannot."""
    return text.encode(errors="backslashreplace").decode()


def letter_of_crash(crashes: int) -> Letter:
    """Return what a dead letter says of an event that ended its processes."""
    return Letter(f"{crashes} processes crashed while they processed it", "", crashes)
