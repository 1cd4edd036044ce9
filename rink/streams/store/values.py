"""Define the values that steps on a partition take and return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from rink.redis.reply_text import text
from rink.redis.scripts import Args
from rink.streams.retention import Retention
from rink.streams.store.keys import PartitionNames

RawEntry = Sequence[Any]
"""One entry of a stream as Redis sends it, in bytes.

It has the id, and a list of names and values in turn.
"""


@attrs.frozen
class PartitionBounds:
    """Bound the events of a partition.

    Attributes:
        limit: the most events; with retention, the most events that some processor has not
            committed.
        loses: drop the oldest events if there is no room.
        retention: how long to keep events; None if the program does not set it.
    """

    limit: int
    loses: bool = False
    retention: Retention | None = None

    @cached_property
    def args(self) -> Args:
        """Return the bounds as scripts take them, without an unset retention."""
        return attrs.asdict(self, filter=lambda _, value: value is not None)


@attrs.frozen
class PartitionPlace:
    """Represent one partition of one processor.

    Attributes:
        stream: the stream's name, as the user wrote it.
        start: where a processor without an offset begins: `earliest` or `latest`.
    """

    stream: str
    number: int
    names: PartitionNames
    processor: str
    bounds: PartitionBounds
    start: str = "earliest"

    @cached_property
    def role(self) -> str:
        """Return the role of the partition's owner."""
        return f"{self.stream}/{self.number}"

    @cached_property
    def at(self) -> str:
        """Return the key of the processor's hash."""
        return self.names.at(self.processor)

    @cached_property
    def args(self) -> Args:
        """Return the arguments that name a processor and its start."""
        return {"processor": self.processor, "start": self.start}

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Return the keys that every step on a position takes."""
        return self.at, *self.names.keys


@attrs.frozen
class Taken:
    """Hold the answer to a take.

    Attributes:
        offset: the id behind which reading continues.
        epoch: how often an operator has moved the offset.
        careful: the last event that the previous owner may have begun before its crash; "" for
            none.
        quarantined: why the partition is quarantined; "" if it is not.
        ends: how many owners have ended while an event was marked, by the event's id.
        first: the first entries behind the offset.
        begun_us: when the previous owner last wrote to Redis which events it begins, in
            microseconds by its clock; 0 for never.
        is_paused: an operator has paused the processor in this partition.
        left_out: bytes of the entry behind `first`, if there was no room for it; otherwise 0.
    """

    offset: str
    epoch: str
    careful: str
    quarantined: str
    ends: Mapping[str, int]
    first: list[RawEntry]
    begun_us: int = 0
    is_paused: bool = False
    left_out: int = 0


@attrs.frozen
class OwnerMemory:
    """Hold the state that an owner knows when it retakes a partition.

    An owner retakes its partition after a reconnect.

    Attributes:
        epoch: the epoch of its last take.
        offset: the last committed offset.
        seen: the last id that the owner has read.
    """

    epoch: str
    offset: str
    seen: str


@attrs.frozen
class Output:
    """Hold one entry that is written together with a commit.

    Attributes:
        target: the partition, or the stream of dead letters, to write to.
        bounds: the bounds of the target; None for no limit.
        fields: names and values in turn, for XADD.
    """

    target: PartitionNames
    bounds: PartitionBounds | None
    fields: tuple[bytes | str, ...]

    @property
    def size(self) -> int:
        """Return the approximate size in bytes."""
        return sum(map(len, self.fields))


@attrs.frozen
class CommitStep:
    """Hold one commit, from an offset to the next.

    Attributes:
        expected: the offset before the commit.
        new: the offset after the commit.
        processed: how many of the passed events were processed.
        ceiling: the last event that may be yielded after the commit; "" to leave it as it is.
        dead: how many of the passed events were given up.
        letters: the dead letters of these events.
        outputs: the entries that the processor writes with the commit.
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
    """Hold the state of a processor in one partition in Redis.

    Attributes:
        offset: the committed offset; "" if the processor was never registered.
        is_open: there is an owner, or the last owner has crashed.
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

    @classmethod
    def of(cls, place: PartitionPlace, at: Sequence[Any], offsets: Sequence[Any]) -> Position:
        """Return the position from the hashes in a script's answer."""
        fields = _pairs(at)
        return cls(
            offset=_pairs(offsets).get(place.processor, ""),
            fence=int(fields.get("fence", 0)),
            epoch=fields.get("epoch", "0"),
            processed=int(fields.get("processed", 0)),
            dead=int(fields.get("dead", 0)),
            unclean=int(fields.get("unclean", 0)),
            is_open=fields.get("open") == "1",
            quarantined=fields.get("quarantined", ""),
            is_paused=fields.get("paused") == "1",
        )


def _pairs(flat: Sequence[Any]) -> dict[str, str]:
    """Return the fields of a hash that a script returned."""
    return dict(zip(map(text, flat[::2]), map(text, flat[1::2]), strict=True))


@attrs.frozen
class Look:
    """Hold a snapshot of a processor in one partition.

    Attributes:
        lag: events behind the offset, or all events if the processor was never registered. If Redis
            has lost the partition's counters, the events are counted one by one, up to the limit of
            the call.
        first: the id of the first event behind the offset; "" if there is none.
        length: events in the partition.
        lost: events that were dropped before the processor had processed them.
        lowest: the lowest offset of all processors; "" if none is registered.
        size: bytes of the events in the partition, too high by at most one segment.
        oldest: the id of the first event in the partition; "" if there is none.
        retention: how long to keep events.
        held: events that count towards the partition's limit. With retention, only the events that
            some processor has not passed, without its replay.
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
