"""Stage the records of one attempt of a task in lists that expire."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable

from rink.errors import StateError
from rink.spark.options import StreamPlace
from rink.spark.redis_connection import RedisConnection

MAX_STEP_RECORDS = 1000
"""The maximum number of a partition's records in one step."""
MAX_STEP_BYTES = 1_000_000
"""The maximum size of a partition's records in one step. A larger record is sent alone."""


def staged(place: StreamPlace, number: int, attempt: str) -> str:
    """Return the key of an attempt's staged records for a partition."""
    return f"{place.names.partition(number).stream}:staged:{attempt}"


class Staging:
    """Stage the records of one attempt of a task.

    Redis removes the records after `ttl` seconds, unless their batch is decided.

    Attributes:
        attempt: a random id, so that two attempts of one task never mix.
        counts: the number of records for each partition.
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
        """Stage records, given as (partition, data)."""
        for number, data in records:
            held, size = self._held[number], self._bytes[number] + len(data)
            if len(held) >= MAX_STEP_RECORDS or size > MAX_STEP_BYTES:
                self._send(number)
            self._held[number].append(data)
            self._bytes[number] += len(data)

    def end(self) -> None:
        """Send the remaining records."""
        for number in list(self._held):
            self._send(number)

    def drop(self) -> None:
        """Remove the records of a failed task, since no other process knows them."""
        for number in list(self.counts):
            remove(self._redis, staged(self._place, number, self.attempt))

    def _send(self, number: int) -> None:
        held = self._held.pop(number, [])
        self._bytes.pop(number, None)
        if not held:
            return
        key = staged(self._place, number, self.attempt)
        answer = self._redis.run(
            "sink/stage", (key,), held, count=self.counts[number], kept_s=self._ttl
        )
        if answer[0] != b"ok":
            raise gone(key, self.counts[number], int(answer[1]))
        self.counts[number] += len(held)


def remove(redis: RedisConnection, key: str) -> None:
    """Remove a key; Redis frees a long list in the background."""
    redis.repeated(lambda: redis.client.unlink(key), key)


def rolled_back(place: str, query: str, number: int, newest: int, key: str) -> StateError:
    """Return the error for a batch that comes after later batches."""
    return StateError(
        f"{place}: batch {number} of query {query} arrived after batch {newest} was written. Its "
        "checkpoint was rolled back (restored from an older state), or another driver is running "
        "the query. Nothing of this batch was written, since its number may mean other rows now. "
        "Begin with a new checkpoint, and let only the holder of a role run the query",
        key=key,
    )


def gone(key: str, wanted: int, count: int) -> Exception:
    """Return the error for staged records that are gone."""
    return StateError(
        f"{key!r} holds {count} of {wanted} staged records: it has expired (raise the option "
        "stagingTtl), or Redis has lost it. Nothing of this batch was published, so it can be "
        "repeated",
        key=key,
    )
