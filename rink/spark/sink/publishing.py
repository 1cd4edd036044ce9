"""A batch is decided in one step, which is its commit, and then published from the manifest that was decided.

Whoever comes next publishes to its end what was decided; whoever comes late publishes nothing twice.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from rink.core.keys import check_name, encode
from rink.errors import StaleToken, StateError
from rink.spark.connections import Connection
from rink.spark.options import Place
from rink.spark.sink.staging import gone, staged
from rink.streams.errors import PartitionFull
from rink.streams.names import PREFIX
from rink.streams.values import Bounds

STEP = 1000
"""So many records one step moves: Redis does nothing else meanwhile."""
_LOOKS_AGAIN_S = 0.2

Manifest = Mapping[str, Mapping[int, int]]
"""For each attempt of a task that counts, how many records it put aside for each partition."""


@attrs.frozen
class Batch:
    """Which batch of which query.

    Attributes:
        query: the query's id, which is new with each checkpoint.
        number: Spark's batch id.
    """

    query: str
    number: int


class Sink:
    """What Redis holds of one sink, and the steps on it.

    Args:
        place: the stream.
        redis: where it lies.
        name: of the sink.
        token: under which it is written; 0 without a role.
        bounds: of each partition.
        patience: seconds that a full partition is waited for.
        ttl: seconds that what was put aside is kept until it is decided on.
    """

    def __init__(
        self,
        place: Place,
        redis: Connection,
        name: str,
        token: int,
        bounds: Bounds,
        *,
        patience: float,
        ttl: float,
    ) -> None:
        self.name = check_name("name", name)
        self._place = place
        self._redis = redis
        self._token = token
        self._bounds = bounds
        self._patience = patience
        self._ttl = max(int(ttl), 1)
        self._pause = threading.Event().wait
        self._key = f"{PREFIX}{{{place.names.root}}}:sink:{encode(name)}"

    def open(self) -> None:
        """Have lower tokens refused from now on, and publish what was decided and left.

        Raises:
            StaleToken: a later driver has been here.
        """
        answer = self._redis.run("open", (self._key,), self._token)
        self._check(answer)
        if answer[2]:
            self._publish(int(answer[1]), _loads(answer[2]))

    def commit(self, batch: Batch, manifest: Manifest) -> None:
        """Decide on a batch, and publish it.

        Args:
            batch: which one.
            manifest: of what it consists; a batch that was decided before keeps the one it has.

        Raises:
            StaleToken: a later driver has been here; nothing was written.
            StateError: something that was put aside is gone, or another query writes under this name.
            PartitionFull: a partition stayed full; the batch is decided, and its next try goes on.
        """
        self._count(manifest)
        given = (self._token, batch.query, batch.number, _dumps(manifest))
        while True:
            answer = self._redis.run("decide", (self._key,), *given)
            self._check(answer)
            seq, decided = int(answer[1]), answer[2]
            match answer[0]:
                case b"pending":
                    self._publish(seq, _loads(decided))
                case b"again":
                    if decided:
                        self._publish(seq, _loads(decided))
                    if not decided or _loads(decided) != manifest:
                        self.drop(manifest)
                    return
                case _:
                    self._publish(seq, manifest)
                    return

    def drop(self, manifest: Manifest) -> None:
        """Remove what was put aside."""
        for key, _ in self._lists(manifest):
            self._redis.repeated(lambda key=key: self._redis.client.delete(key), key)  # type: ignore[misc]

    def forget(self, numbers: Iterable[int]) -> None:
        """Remove what is kept of a sink that is written once: its state, and its marks."""
        for number in numbers:
            mark = self._mark(number)
            self._redis.repeated(lambda key=mark: self._redis.client.delete(key), mark)  # type: ignore[misc]
        self._redis.repeated(lambda: self._redis.client.delete(self._key), self._key)

    def _count(self, manifest: Manifest) -> None:
        """See that all that was put aside is there, and will be for a while."""
        lists = self._lists(manifest)
        found = self._redis.run_each("keep", [((key,), (self._ttl,)) for key, _ in lists])
        for (key, count), length in zip(lists, found, strict=True):
            if length != count:
                raise gone(key, count, length)

    def _publish(self, seq: int, manifest: Manifest) -> None:
        self._redis.run_each("keep", [((key,), (0,)) for key, _ in self._lists(manifest)])
        for number in sorted({number for counts in manifest.values() for number in counts}):
            first = 0
            for attempt in sorted(manifest):
                count = manifest[attempt].get(number, 0)
                if count:
                    self._move(seq, number, attempt, first, count)
                first += count
        self._redis.run("finish", (self._key,), seq)

    def _move(self, seq: int, number: int, attempt: str, first: int, count: int) -> None:
        names = self._place.names.partition(number)
        key = staged(self._place, number, attempt)
        keys = (names.stream, names.offsets, names.lost, self._mark(number), key)
        given = (seq, first, count, STEP, self._bounds.limit, int(self._bounds.loses))
        end = time.monotonic() + self._patience
        while True:
            said, done = self._redis.run("publish", keys, *given)
            if said == b"gone":
                raise self._torn(key, count, done)
            if done >= first + count:
                return
            if said == b"ok":
                end = time.monotonic() + self._patience
            elif time.monotonic() > end:
                raise PartitionFull(
                    f"partition {number} of {self._place} was full for {self._patience:g} s: it holds "
                    f"{self._bounds.limit} events (partition_size) that some processor has not committed. The batch is "
                    "decided, and goes on where it stopped; `rink streams lag` shows whom it waits for",
                    stream=self._place.stream,
                    partition=number,
                )
            else:
                self._pause(_LOOKS_AGAIN_S)

    def _mark(self, number: int) -> str:
        return f"{self._place.names.partition(number).stream}:sunk:{encode(self.name)}"

    def _lists(self, manifest: Manifest) -> list[tuple[str, int]]:
        return [
            (staged(self._place, number, attempt), count)
            for attempt, counts in manifest.items()
            for number, count in counts.items()
        ]

    def _torn(self, key: str, count: int, done: int) -> StateError:
        return StateError(
            f"sink {self.name!r} of {self._place} has decided on a batch, and {key!r} of its {count} records is gone: "
            f"Redis has lost it, or it has expired ({done} records of its partition were published). Where Redis was "
            "restored, restore it to one moment; or take the loss, and have the batch decided anew, which may write "
            f"again what was published of it: HDEL {self._key} manifest query",
            key=key,
        )

    def _check(self, answer: Sequence[Any]) -> None:
        if answer[0] == b"stale":
            newer = int(answer[1])
            raise StaleToken(
                f"sink {self.name!r} of {self._place} belongs to a later driver: token {self._token} was refused, "
                f"{self._key!r} has {newer}; nothing was written",
                role=self.name,
                token=self._token,
                newer=newer,
            )
        if answer[0] == b"other":
            raise StateError(
                f"sink {self.name!r} of {self._place} belongs to query {answer[1].decode()}, which has another "
                "checkpoint: give this query another name; or, if the other is gone for good, start this one under a "
                f"new grant of its role, or remove {self._key!r}. Nothing was written",
                key=self._key,
            )


def _dumps(manifest: Manifest) -> str:
    return json.dumps({attempt: manifest[attempt] for attempt in sorted(manifest)})


def _loads(text: bytes) -> dict[str, dict[int, int]]:
    return {
        attempt: {int(number): count for number, count in counts.items()}
        for attempt, counts in json.loads(text).items()
    }
