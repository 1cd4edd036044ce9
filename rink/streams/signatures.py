"""Type the functions that users write, for type checkers.

A processor takes the events of its stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, overload

from rink.streams.consumer.thread_bridge import BlockingEvents
from rink.streams.processor_events import Events

R = TypeVar("R")
T = TypeVar("T")


class Declares(Protocol[R]):
    """Decorate a processor, and return the function unchanged."""

    @overload
    def __call__(
        self, function: Callable[[Events[R]], Awaitable[T]], /
    ) -> Callable[[Events[R]], Awaitable[T]]: ...
    @overload
    def __call__(
        self, function: Callable[[BlockingEvents[R]], None], /
    ) -> Callable[[BlockingEvents[R]], None]: ...
