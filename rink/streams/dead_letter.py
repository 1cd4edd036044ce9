"""Define a dead letter: an event that a processor has given up."""

from __future__ import annotations

from typing import Generic, TypeVar

import attrs

R = TypeVar("R")


@attrs.frozen(kw_only=True)
class DeadLetter(Generic[R]):
    """Holds an event that a processor has given up.

    Attributes:
        record: what was sent; its bytes where they do not decode.
        event: the id that it had in its partition.
        error: the last error, in one line.
        trace: the traceback, or "".
        attempts: how often it was tried, or how many crashes it caused.
        processor: the processor that gave it up.
    """

    record: R | bytes
    event: str = ""
    error: str = ""
    trace: str = ""
    attempts: int = 0
    processor: str = ""
