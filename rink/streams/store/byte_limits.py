"""Bound the bytes that are asked for, sent and held.

Counts alone do not bound them.

Redis answers by count, so Rink learns the size of entries from earlier answers. The first answer is asked for small.
After a timeout, half as much is asked for, down to one entry of one partition.
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

_FIRST_ANSWER = 16
"""How many entries are asked for in all while no size is known."""

_OF_A_KIND = 8.0
"""Sizes that differ by no more than this factor go into one answer that has no room for a full count."""

_FORGETS = 8
"""After an answer of at least half as many entries, a larger size that was seen before counts half."""


@attrs.frozen
class ByteLimits:
    """Limits the bytes of requests and of events in memory.

    Attributes:
        reply: about the bytes of one answer, or of one request of a sender; at least one entry.
        in_flight: the bytes of all events that a worker or a sender holds, and of one commit's outputs.
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
    """Shares the memory of one worker evenly among its partitions.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._owners: dict[object, Callable[[], None]] = {}

    def enter(self, owner: object, shrunk: Callable[[], None]) -> None:
        """Count one more partition.

        Args:
            owner: whose it is.
            shrunk: called when others enter: what it holds may be all of its share now.
        """
        others = list(self._owners.values())
        self._owners[owner] = shrunk
        for tell in others:
            tell()

    def leave(self, owner: object) -> None:
        """Count one partition less."""
        self._owners.pop(owner, None)

    @property
    def share(self) -> int:
        """Return the bytes that each partition may hold before it stops reading."""
        return self._most // max(len(self._owners), 1)


class Sizes(Generic[K]):
    """Chooses the partitions and the number of entries of one answer.

    Args:
        most: bytes of one answer, about.

    The size of a partition's entries jumps up to a larger mean at once and comes down by degrees, at most by half with
    each answer. So large entries behind a few small ones are no surprise. A new partition is taken to be like the others.

    Redis takes one count for all partitions of an answer. So partitions with large entries are asked apart from those
    with small ones, which would otherwise get as few at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._usual = most / _FIRST_ANSWER
        self._seen: dict[K, float] = {}
        self._turns: list[K] = []  # those asked last come last

    def plan(self, wanted: Sequence[K], most: int) -> tuple[list[K], int]:
        """Return which partitions to ask for now, and how many entries of each.

        Args:
            wanted: partitions that have room, at least one.
            most: the most entries of each.

        Returns:
            All of them if `most` entries of each fit. Otherwise the one that has waited longest, and of those with
            entries of about its size as many as have room for one entry each.
        """
        if self.count(wanted, most) == most:
            return list(wanted), most
        order = self._in_turn(wanted)
        first, *others = order
        asked, total = {first: None}, self._size(first)
        for key in others:
            is_like_it = 1 / _OF_A_KIND <= self._size(key) / self._size(first) <= _OF_A_KIND
            if is_like_it and total + self._size(key) <= self._most:
                asked[key] = None
                total += self._size(key)
        self._turns = [*(key for key in order if key not in asked), *asked]
        return list(asked), self.count(list(asked), most)

    def count(self, asked: Sequence[K], most: int) -> int:
        """Return how many entries of each one answer has room for: 1 to `most`."""
        return max(min(int(self._most / sum(map(self._size, asked))), most), 1)

    def _in_turn(self, wanted: Sequence[K]) -> list[K]:
        """Return the partitions, the one that has waited longest first."""
        there = set(wanted)
        earlier = dict.fromkeys(key for key in self._turns if key in there)
        return [*earlier, *(key for key in wanted if key not in earlier)]

    def note(self, key: K, count: int, size: int) -> None:
        """Learn the size of a partition's entries from an answer."""
        before = self._size(key)
        if count == 0:  # no size to learn
            self._seen[key] = max(min(before, self._usual), before / 2)
            return
        mean, weight = max(size / count, 1.0), min(count / _FORGETS, 0.5)
        self._seen[key] = max(mean, before + (mean - before) * weight)
        self._usual = max(mean, self._usual + (mean - self._usual) * weight)

    def halve(self, asked: Sequence[K], count: int) -> bool:
        """Ask for half as much next time, after a timeout.

        Returns:
            False if it was one entry of one partition: it cannot be less.
        """
        if len(asked) == 1 and count == 1:
            return False
        for key in asked:
            self._seen[key] = max(self._size(key), self._most / (len(asked) * count)) * 2
        return True

    def forget(self, key: K) -> None:
        """Forget the sizes of a partition that is no longer owned here."""
        self._seen.pop(key, None)

    def _size(self, key: K) -> float:
        return self._seen.get(key, self._usual)
