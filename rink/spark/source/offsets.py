"""Offsets, as Spark keeps them in a checkpoint, and how many events one batch takes of each
partition. Pure.

An offset is the id of the last entry that was read, for each partition: `{"0": "1700000000000-0",
"1": "0-0"}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rink.errors import StateError
from rink.streams.store import entry_ids

Offsets = dict[int, str]

PAGE = 10_000
"""So many entries one step of Redis looks at, and one page of a read has: Redis does nothing else
meanwhile.
"""

ANSWER_BYTES = 8_000_000
"""So many bytes one answer of Redis has, about; or one step of it has in memory."""

Bound = Callable[[Mapping[int, tuple[str, int]]], Mapping[int, tuple[int, str]]]
"""Asked with the cursor and a number for each partition: how far so many entries reach, or the
first of them where they are large: how many there are, none only where there are no more, and the
id of the last one.
"""


def as_json(offsets: Mapping[int, str]) -> dict[str, str]:
    """Return offsets as Spark writes them down."""
    return {str(number): offsets[number] for number in sorted(offsets)}


def of_json(found: Mapping[str, str], partition_count: int, what: str) -> Offsets:
    """Read what `as_json` wrote.

    Args:
        found: from a checkpoint.
        partition_count: of the stream.
        what: the stream, for messages.

    Raises:
        StateError: it is of a stream with another number of partitions, or of something else.
    """
    try:
        offsets = {int(number): str(at) for number, at in found.items()}
    except (ValueError, AttributeError):
        offsets = {}
    if not offsets or not all(map(entry_ids.is_id, offsets.values())):
        raise StateError(f"the checkpoint holds {found!r}, and no offsets of {what}")
    if offsets.keys() != set(range(partition_count)):
        raise StateError(
            f"the checkpoint holds offsets of {len(offsets)} partitions, and {what} has "
            f"{partition_count}: it is of another stream. Use the checkpoint of this one, or a "
            "new one with another group"
        )
    return offsets


def share_out(
    start: Mapping[int, str], target: Mapping[int, str], most: int, bound: Bound
) -> Offsets:
    """Return where a batch of so many events ends: evenly, and what one partition does not need
    goes to others.

    Args:
        start: where it begins.
        target: the last entries there are.
        most: how many events, at least 1.
        bound: looks how far a number of entries reaches.
    """
    end = dict(start)
    # The oldest first: where there are fewer events to share than partitions, none is left behind
    # for ever.
    waiting = sorted(
        (
            number
            for number in start
            if entry_ids.order(start[number]) < entry_ids.order(target[number])
        ),
        key=lambda number: entry_ids.order(start[number]),
    )
    left = most
    while left and waiting:
        share, more = divmod(left, len(waiting))
        asked = {
            number: (end[number], min(share + (at < more), PAGE))
            for at, number in enumerate(waiting)
            if share + (at < more)
        }
        for number, (count, last) in bound(asked).items():
            left -= count
            end[number] = last
            if not count or last == target[number]:
                waiting.remove(number)
    return end
