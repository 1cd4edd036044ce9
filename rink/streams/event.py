"""Define an event, as processors get it, and middleware around batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

from rink.streams.store import entry_ids

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Event(Generic[R_co]):
    """Hold one event of a partition.

    Attributes:
        id: the event's id in the partition, `milliseconds-sequence`.
        record: the record that was sent.
    """

    __slots__ = ("id", "record")

    def __init__(self, entry_id: str, record: R_co) -> None:
        self.id = entry_id
        self.record = record

    @property
    def sent_at(self) -> float:
        """Return when the event was added, in seconds since 1970.

        The time comes from the clock of the Redis server.
        """
        return entry_ids.seconds(self.id)

    def __repr__(self) -> str:
        return f"<Event {self.id} {self.record!r}>"


Middleware = Callable[[list[Event[R]]], AbstractAsyncContextManager[object]]
"""A function that returns a context manager around each batch of a processor.

It is entered before the batch. It is left when the batch is done, or with the exception if it
failed. If it yields a list, the processor gets that list instead of the batch.
"""
