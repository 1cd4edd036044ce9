"""Define the user's policy for events that fail."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Literal, get_args

import attrs

from rink.arguments import check_count, check_seconds
from rink.backoff import Backoff
from rink.errors import ConfigError, RinkError
from rink.streams.consumer.buffer import Letter, StreamEntry
from rink.streams.consumer.circuit_breaker import LAST
from rink.streams.transient_errors import TRANSIENT, TransientError, check_transient, is_transient

OnError = Literal["dead-letter", "quarantine", "halt"]
"""The end of an event that is given up.

It becomes a dead letter, or its partition is quarantined. `halt` also ends this worker with an
error.
"""

_MIN_PAUSE_S = 0.001
"""The shortest pause, even if the user wants none, since transient errors may last for hours."""

_MAX_TRACE = 16_384
"""The most characters of a traceback in a dead letter."""


@attrs.frozen
class Policy:
    """Decide when an event is given up, and what follows.

    Attributes:
        on_error: see `OnError`.
        max_attempts: how often an event must fail alone before it is given up.
        max_crashes: how many crashes an event may cause, 2 or more, since the first crash names no
            event.
        backoff: the first and the longest pause between two tries, in seconds.
        retry_for: the least seconds for which each owner retries an event.
        transient: errors that pass by themselves, so no event is blamed for them.
        transient_for: seconds until a partition with only such errors is quarantined.
        timeout: the most seconds for an event; None for no limit.
        breaker: how many failed events in a row quarantine their partition. 50 failures among the
            last 100 events have the same effect. None for no limit.
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
                f"max_crashes={self.max_crashes}: the first crash does not show which event caused "
                "it; give 2 or more"
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
        """Return the pauses between tries, from the first one on."""
        first, longest = (max(pause, _MIN_PAUSE_S) for pause in self.backoff)
        return Backoff(first, longest)

    def is_transient(self, error: BaseException) -> bool:
        """Return whether an error passes by itself."""
        return is_transient(error, self.transient)

    def gives_up(self, crashes: int) -> bool:
        """Return whether this many crashes under its mark give an event up.

        The crash before the mark names no event, but it counts, too.
        """
        return crashes + 1 >= self.max_crashes


def _check_backoff(backoff: object) -> None:
    if not isinstance(backoff, Sequence) or len(backoff) != 2:
        raise ConfigError(
            "backoff must be two numbers of seconds, the first pause and the longest, "
            f"not {backoff!r}"
        )
    first, longest = (check_seconds("backoff", pause) for pause in backoff)
    if first > longest:
        raise ConfigError(f"backoff={backoff!r}: the first pause is longer than the longest")


class Undecodable(RinkError):  # noqa: N818 - as the other errors are named
    """A record does not decode; users do not see this error."""

    def __init__(self, entry: StreamEntry, error: Exception) -> None:
        super().__init__(said(error))
        self.entry = entry
        self.error = error


class Quarantined(RinkError):  # noqa: N818 - as the other public errors are named
    """A partition is not processed until it is unquarantined.

    Users do not see this error.

    Attributes:
        halts: the worker must end, too.
    """

    def __init__(self, reason: str, *, halts: bool = False) -> None:
        super().__init__(reason)
        self.halts = halts


def letter_of(error: BaseException, attempts: int) -> Letter:
    """Return the dead letter of an event that failed with an error."""
    trace = printable("".join(traceback.format_exception(error)))
    if len(trace) > _MAX_TRACE:
        trace = "…" + trace[-_MAX_TRACE:]
    return Letter(printable(f"{type(error).__name__}: {said(error)}"), trace, attempts)


def said(error: BaseException) -> str:
    """Return an error's text, even if its `__str__` raises."""
    try:
        return str(error)
    except Exception as another:  # even then the event must be given up
        return f"(its __str__ raised {type(another).__name__})"


def printable(text: str) -> str:
    """Return a text that can be encoded, with each lone surrogate escaped."""
    return text.encode(errors="backslashreplace").decode()


def letter_of_crash(crashes: int) -> Letter:
    """Return the dead letter of an event that crashed its processes."""
    return Letter(f"{crashes} processes crashed while they processed it", "", crashes)
