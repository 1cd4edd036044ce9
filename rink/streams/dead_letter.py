"""Define a dead letter: an event that a processor has given up."""

from __future__ import annotations

from typing import Generic, TypeVar

import attrs

R = TypeVar("R")


@attrs.frozen(kw_only=True)
class DeadLetter(Generic[R]):
    """Hold an event that a processor has given up.

    Attributes:
        record: the event's record; its bytes if they do not decode.
        event: the id of the event in its partition.
        error: the last error, in one line.
        trace: the traceback, or "".
        attempts: how often the event was tried, or how many crashes it caused.
        processor: the processor that gave it up.
    """

    record: R | bytes
    event: str = ""
    error: str = ""
    trace: str = ""
    attempts: int = 0
    processor: str = ""
