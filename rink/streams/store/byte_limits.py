"""Bound the bytes of requests, of answers and of events in memory.

Redis answers by count, so Rink learns the size of entries from earlier answers. The first answer is
kept small. After a timeout Rink reads half as much, down to one entry of one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import attrs

from rink.arguments import check_count
from rink.errors import ConfigError

REPLY_BYTES = 2**20
IN_FLIGHT_BYTES = 32 * 2**20

K = TypeVar("K", bound=Hashable)

_FIRST_COUNT = 16
"""The number of entries of the first answer, while no size is known."""

_MAX_SIZE_RATIO = 8.0
"""The largest ratio of sizes within one answer that has no room for a full count."""

_HALVING_COUNT = 8
"""An answer with at least half as many entries halves the weight of a larger earlier size."""


@attrs.frozen
class ByteLimits:
    """Limit the bytes of requests and of events in memory.

    Attributes:
        reply: about the most bytes of one answer, or of one request of a sender. One entry always
            fits.
        in_flight: the bytes of all events that a worker or a sender holds, and of the outputs of
            one commit.
    """

    reply: int = REPLY_BYTES
    in_flight: int = IN_FLIGHT_BYTES

    def __attrs_post_init__(self) -> None:
        check_count("max_reply_bytes", self.reply)
        if check_count("max_in_flight_bytes", self.in_flight) < self.reply:
            raise ConfigError(
                f"max_in_flight_bytes={self.in_flight}, max_reply_bytes={self.reply}: "
                "max_reply_bytes <= max_in_flight_bytes is needed"
            )


class SharedMemory:
    """Share the memory of one worker evenly among its partitions."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._owners: dict[object, Callable[[], None]] = {}

    def enter(self, owner: object, shrunk: Callable[[], None]) -> None:
        """Count one more partition; call `shrunk` when its share shrinks."""
        callbacks = list(self._owners.values())
        self._owners[owner] = shrunk
        for callback in callbacks:
            callback()

    def leave(self, owner: object) -> None:
        """Count one fewer partition."""
        self._owners.pop(owner, None)

    @property
    def share(self) -> int:
        """Return the bytes that each partition may hold before it stops reading."""
        return self._max_bytes // max(len(self._owners), 1)


class Sizes(Generic[K]):
    """Choose the partitions and the number of entries of one answer.

    An answer has about `max_bytes`. The expected size of a partition's entries rises to a larger
    mean at once. It falls slowly, at most by half with each answer, so that large entries behind a
    few small ones still fit. A new partition is expected to be like the others.

    Redis takes one count for all partitions of an answer. So partitions with large and with small
    entries are read separately. Otherwise all would get as few entries as the large entries allow.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._usual_size = max_bytes / _FIRST_COUNT
        self._sizes: dict[K, float] = {}
        self._turns: list[K] = []  # the partitions of the last plan stand last

    def plan(self, wanted: Sequence[K], max_count: int) -> tuple[list[K], int]:
        """Return the partitions to read now, and the entries of each.

        Returns:
            All partitions if `max_count` entries of each fit. Otherwise the partition that has
            waited longest, and more partitions with entries of about its size, as long as one entry
            of each fits.
        """
        if self.count(wanted, max_count) == max_count:
            return list(wanted), max_count
        order = self._in_turn(wanted)
        first, *others = order
        planned, total = {first: None}, self._size(first)
        for key in others:
            ratio = self._size(key) / self._size(first)
            is_similar = 1 / _MAX_SIZE_RATIO <= ratio <= _MAX_SIZE_RATIO
            if is_similar and total + self._size(key) <= self._max_bytes:
                planned[key] = None
                total += self._size(key)
        self._turns = [*(key for key in order if key not in planned), *planned]
        return list(planned), self.count(list(planned), max_count)

    def count(self, planned: Sequence[K], max_count: int) -> int:
        """Return how many entries of each partition fit into one answer.

        It is at least 1 and at most `max_count`.
        """
        return max(min(int(self._max_bytes / sum(map(self._size, planned))), max_count), 1)

    def _in_turn(self, wanted: Sequence[K]) -> list[K]:
        """Return the partitions by their waiting time, longest first."""
        wanted_keys = set(wanted)
        earlier = dict.fromkeys(key for key in self._turns if key in wanted_keys)
        return [*earlier, *(key for key in wanted if key not in earlier)]

    def note(self, key: K, count: int, size: int) -> None:
        """Learn the size of a partition's entries from an answer."""
        before = self._size(key)
        if count == 0:  # the answer shows no size
            self._sizes[key] = max(min(before, self._usual_size), before / 2)
            return
        mean, weight = max(size / count, 1.0), min(count / _HALVING_COUNT, 0.5)
        self._sizes[key] = max(mean, before + (mean - before) * weight)
        self._usual_size = max(mean, self._usual_size + (mean - self._usual_size) * weight)

    def halve(self, planned: Sequence[K], count: int) -> bool:
        """Read half as much next time, after a timeout.

        Returns:
            False if the request was for one entry of one partition, which cannot be halved.
        """
        if len(planned) == 1 and count == 1:
            return False
        for key in planned:
            answered = self._max_bytes / (len(planned) * count)
            self._sizes[key] = max(self._size(key), answered) * 2
        return True

    def forget(self, key: K) -> None:
        """Forget the sizes of a partition that is no longer owned here."""
        self._sizes.pop(key, None)

    def _size(self, key: K) -> float:
        return self._sizes.get(key, self._usual_size)
