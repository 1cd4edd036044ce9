"""What steps on a partition are asked with, and what they answer: plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from rink.streams.retention import Retention
from rink.streams.store.keys import PartitionNames

RawEntry = Sequence[Any]
"""One entry of a stream as Redis sends it: its id, and a list of names and values in turn, all of it bytes."""


@attrs.frozen
class PartitionBounds:
    """Bounds what a partition may hold.

    Attributes:
        limit: the most events; with retention, the most that some processor has not committed.
        loses: drop the oldest events if there is no room.
        retention: how long events stay; None if the program does not set it.
    """

    limit: int
    loses: bool = False
    retention: Retention | None = None

    @property
    def given(self) -> tuple[int | str, ...]:
        """Return the bounds in the order in which scripts take them."""
        kept = self.retention
        said: tuple[int | str, ...] = ("", "") if kept is None else (kept.ms, kept.size)
        return self.limit, int(self.loses), *said


@attrs.frozen
class PartitionPlace:
    """One partition as one processor sees it.

    Attributes:
        stream: the stream's name, as the user gave it.
        start: where a processor begins that has no offset yet: `earliest` or `latest`.
    """

    stream: str
    number: int
    names: PartitionNames
    processor: str
    bounds: PartitionBounds
    start: str = "earliest"

    @cached_property
    def role(self) -> str:
        """The role that goes with the partition."""
        return f"{self.stream}/{self.number}"

    @cached_property
    def at(self) -> str:
        """The key of the processor's hash."""
        return self.names.at(self.processor)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys that every step on a position is given."""
        return self.at, *self.names.keys


@attrs.frozen
class Taken:
    """What a take answered.

    Attributes:
        offset: read on from behind this id.
        epoch: how often an operator has moved the offset.
        careful: the last event that the previous owner may have begun before its crash; "" for none.
        quarantined: why nobody processes this partition; "" where somebody may.
        ends: how many owners have ended while an event was marked, by the event's id.
        first: the first entries behind the offset.
        told: when the owner before told Redis last of what it begins with, in microseconds by its clock; 0 for never.
        is_paused: an operator has paused the processor in this partition.
        left_out: bytes of the entry behind `first`, if there was no room for it; otherwise 0.
    """

    offset: str
    epoch: str
    careful: str
    quarantined: str
    ends: Mapping[str, int]
    first: list[RawEntry]
    told: int = 0
    is_paused: bool = False
    left_out: int = 0


@attrs.frozen
class OwnerMemory:
    """What an owner knows that takes a partition again, after a reconnect."""

    epoch: str
    offset: str
    seen: str


@attrs.frozen
class Output:
    """One entry to be written together with a commit.

    Attributes:
        target: the partition, or the stream of dead letters, that it goes to.
        bounds: what that may hold; None: anything.
        fields: as XADD takes them, names and values in turn.
    """

    target: PartitionNames
    bounds: PartitionBounds | None
    fields: tuple[bytes | str, ...]

    @property
    def size(self) -> int:
        """Return how large it is, about, in bytes."""
        return sum(map(len, self.fields))


@attrs.frozen
class CommitStep:
    """One commit: from an offset to the next.

    Attributes:
        ceiling: up to here events may be yielded after it; "" as before.
        processed: how many events it passes that were processed.
        dead: how many of them were given up.
        letters: the dead letters of these.
        outputs: what the processor sends along.
    """

    token: int
    epoch: str
    expected: str
    new: str
    processed: int
    ceiling: str = ""
    dead: int = 0
    letters: tuple[Output, ...] = ()
    outputs: tuple[Output, ...] = ()


@attrs.frozen
class Position:
    """Holds what Redis knows of a processor in one partition, for people.

    Attributes:
        offset: "" where the processor was never registered.
        is_open: an owner is in, or has crashed.
        is_paused: an operator has paused the processor in this partition.
    """

    offset: str
    fence: int
    epoch: str
    processed: int
    dead: int
    unclean: int
    is_open: bool
    quarantined: str
    is_paused: bool = False


@attrs.frozen
class Look:
    """All that Redis holds of a processor in one partition, as it was at one moment.

    Attributes:
        lag: events behind the offset, or all events if it was never registered. If Redis has lost the partition's
            counters, they are counted one by one, up to the limit of the call.
        first: the id of the first of them; "" where there is none.
        length: events in the partition.
        lost: events that were dropped before it had processed them.
        lowest: the lowest offset of all processors; "" where none is registered.
        size: bytes of the events in the partition: at most a segment too many.
        oldest: the id of the first event in the partition; "" where there is none.
        retention: how long events stay.
        held: events that count towards the partition's limit. With retention, only those that some processor has
            not passed, without its replay.
        removed: how many events have been removed since the beginning.
    """

    position: Position
    lag: int
    first: str
    length: int
    lost: int
    lowest: str
    size: int
    oldest: str
    retention: Retention
    held: int
    removed: int
