"""Compute offsets, and the number of events per partition in a batch.

The module is pure. Offsets are the ids of the last read entries by partition: `{"0":
"1700000000000-0", "1": "0-0"}`. Spark keeps them in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rink.errors import StateError
from rink.plural import plural
from rink.streams.store import entry_ids

Offsets = dict[int, str]

PAGE = 10_000
"""The maximum number of entries in a page and in one script call, since a call blocks Redis."""

ANSWER_BYTES = 8_000_000
"""The approximate size of one answer of Redis, and of the entries in one script's memory."""

Bound = Callable[[Mapping[int, tuple[str, int]]], Mapping[int, tuple[int, str]]]
"""A function from a cursor and a maximum number of entries, for each partition, to the number of
entries after the cursor and the id of the last. If entries are large, it may return fewer. It
returns none only if there are no more.
"""


def as_json(offsets: Mapping[int, str]) -> dict[str, str]:
    """Return offsets as Spark stores them."""
    return {str(number): offsets[number] for number in sorted(offsets)}


def of_json(document: Mapping[str, str], partition_count: int, what: str) -> Offsets:
    """Read the offsets that `as_json` returned.

    Raises:
        StateError: the document has no offsets of `what`, or the number of partitions differs.
    """
    try:
        offsets = {int(number): str(at) for number, at in document.items()}
    except (ValueError, AttributeError):
        offsets = {}
    if not offsets or not all(map(entry_ids.is_id, offsets.values())):
        raise StateError(
            f"the checkpoint holds {document!r}, which is not offsets of {what}: use its own "
            "checkpoint"
        )
    if offsets.keys() != set(range(partition_count)):
        raise StateError(
            f"the checkpoint holds offsets of {len(offsets)} {plural(len(offsets), 'partition')}, "
            f"but {what} has {partition_count}: it belongs to another stream. Use the checkpoint "
            "of this stream, or a new one with another group"
        )
    return offsets


def share_out(
    start: Mapping[int, str], target: Mapping[int, str], most: int, bound: Bound
) -> Offsets:
    """Return the end of a batch of at least one and at most `most` events.

    The batch begins at `start` and ends at `target`, the last entries, or before. Partitions share
    the events evenly. If a partition does not need its share, the others get the rest.
    """
    end = dict(start)
    # Serve the oldest partition first. So none waits forever if `most` is less than their number.
    begins = {number: entry_ids.order(at) for number, at in start.items()}
    behind = [number for number in start if begins[number] < entry_ids.order(target[number])]
    waiting = sorted(behind, key=begins.__getitem__)
    left = most
    while left and waiting:
        share, more = divmod(left, len(waiting))
        requests = {
            number: (end[number], min(share + (at < more), PAGE))
            for at, number in enumerate(waiting)
            if share + (at < more)
        }
        for number, (count, last) in bound(requests).items():
            left -= count
            end[number] = last
            if not count or last == target[number]:
                waiting.remove(number)
    return end
