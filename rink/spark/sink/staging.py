"""Records put aside by one attempt of one task, in lists that expire unless a batch is decided of
them.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable

from rink.errors import StateError
from rink.spark.options import StreamPlace
from rink.spark.redis_connection import RedisConnection

AT_ONCE = 1000
"""Records of a partition that are sent in one step."""
MOST_BYTES = 1_000_000
"""Bytes of a partition that are sent in one step; a record that is larger goes alone."""


def staged(place: StreamPlace, number: int, attempt: str) -> str:
    """Return the key of what an attempt puts aside for a partition; it lies in the partition's
    slot.
    """
    return f"{place.names.partition(number).stream}:staged:{attempt}"


class Staging:
    """What one attempt of a task puts aside.

    Args:
        place: the stream.
        redis: where it lies.
        ttl: seconds until it is removed, if nobody hears of it again.

    Attributes:
        attempt: an id of its own: two attempts of one task never mix.
        counts: how many records for each partition.
    """

    def __init__(self, place: StreamPlace, redis: RedisConnection, ttl: float) -> None:
        self.attempt = secrets.token_hex(8)
        self.counts: dict[int, int] = defaultdict(int)
        self._place = place
        self._redis = redis
        self._ttl = max(int(ttl), 1)
        self._held: dict[int, list[bytes]] = defaultdict(list)
        self._bytes: dict[int, int] = defaultdict(int)

    def add(self, records: Iterable[tuple[int, bytes]]) -> None:
        """Put records aside, by partition."""
        for number, data in records:
            held, size = self._held[number], self._bytes[number] + len(data)
            if len(held) >= AT_ONCE or size > MOST_BYTES:
                self._send(number)
            self._held[number].append(data)
            self._bytes[number] += len(data)

    def end(self) -> None:
        """Send the rest."""
        for number in list(self._held):
            self._send(number)

    def drop(self) -> None:
        """Remove it, where the task has failed: nobody else knows of it."""
        for number in list(self.counts):
            remove(self._redis, staged(self._place, number, self.attempt))

    def _send(self, number: int) -> None:
        held = self._held.pop(number, [])
        self._bytes.pop(number, None)
        if not held:
            return
        key = staged(self._place, number, self.attempt)
        answer = self._redis.run("stage", (key,), self.counts[number], self._ttl, *held)
        if answer[0] != b"ok":
            raise gone(key, self.counts[number], int(answer[1]))
        self.counts[number] += len(held)


def remove(redis: RedisConnection, key: str) -> None:
    """Remove a key; Redis frees a long list aside."""
    redis.repeated(lambda: redis.client.unlink(key), key)


def rolled_back(place: str, query: str, number: int, newest: int, key: str) -> StateError:
    """Return the error about a batch that comes behind later ones of its query: other rows may have
    its number now.
    """
    return StateError(
        f"{place}: batch {number} of query {query} comes, and batch {newest} of it was written "
        "before: its checkpoint was rolled back (restored from an older state), or another "
        "driver is at work on it. Nothing of this batch was written: what has its number now may "
        "be other rows. Begin with a new checkpoint, and let only who holds a role run the query",
        key=key,
    )


def gone(key: str, wanted: int, found: int) -> Exception:
    """Return the error about records that were put aside and are not there any more."""
    return StateError(
        f"{key!r} holds {found} of {wanted} records that were put aside: it has expired (raise "
        "the option stagingTtl), or Redis has lost it. Nothing of this batch was published; it "
        "can be repeated",
        key=key,
    )
