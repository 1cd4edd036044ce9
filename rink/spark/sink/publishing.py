"""A batch is decided in one step, which is its commit, and then published from the manifest that was decided.

Whoever comes next publishes to its end what was decided; whoever comes late publishes nothing twice.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
KEPT_S = 30 * 86_400
"""So long what a batch was decided of waits for somebody who publishes it."""
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


@attrs.frozen
class _Move:
    """One staged list on its way into its partition."""

    number: int
    keys: tuple[str, ...]
    seq: int
    first: int
    count: int

    @property
    def given(self) -> tuple[int, int, int]:
        return self.seq, self.first, self.count


@attrs.frozen
class _Decided:
    """What was decided before: this very batch, or one that is to be published first."""

    manifest: Manifest
    is_this: bool


class _Lost(Exception):  # noqa: N818 - what the user sees is a StateError
    """A staged list is gone; so many records of its batch were published."""

    def __init__(self, move: _Move, done: int) -> None:
        super().__init__(move, done)
        self.move, self.done = move, done


class Sink:
    """What Redis holds of one sink, and the steps on it.

    Args:
        place: the stream.
        redis: where it lies.
        name: of the sink.
        token: under which it is written; 0 without a role.
        bounds: of each partition.
        patience: seconds that a full partition is waited for.
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
    ) -> None:
        self.name = check_name("name", name)
        self._place = place
        self._redis = redis
        self._token = token
        self._bounds = bounds
        self._patience = patience
        self._pause = threading.Event().wait
        self._key = f"{PREFIX}{{{place.names.root}}}:sink:{encode(name)}"

    def raise_fence(self) -> None:
        """Have lower tokens refused from now on.

        Raises:
            StaleToken: a later driver has been here.
        """
        self._check(self._redis.run("open", (self._key,), self._token))

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
        replaces = ""
        while True:
            seq, decided = self._decide(batch, manifest, replaces)
            try:
                self._publish(seq, manifest if decided is None else decided.manifest)
            except _Lost as lost:
                # A replay has the same rows again: of what was not begun with, they take the place.
                if lost.done or decided is None or not decided.is_this or replaces:
                    raise self._torn(lost) from lost
                replaces = str(seq)
                continue
            if decided is None:
                return
            if decided.is_this:
                if decided.manifest != manifest:
                    self.drop(manifest)
                return

    def _decide(
        self, batch: Batch, manifest: Manifest, replaces: str
    ) -> tuple[int, _Decided | None]:
        """Return the number of what is to be published now; what it is where it is not this manifest."""
        given = (self._token, batch.query, batch.number, _dumps(manifest), replaces)
        answer = self._redis.run("decide", (self._key,), *given)
        if answer[0] in (b"stale", b"other"):
            self.drop(
                manifest
            )  # it is not what is to be published now, or it would have been told so; nor will it be
            self._check(answer)
        seq = int(answer[1])
        if answer[0] == b"ok":
            return seq, None
        found = _loads(answer[2]) if answer[2] else {}  # {}: all of it is published
        return seq, _Decided(found, is_this=answer[0] == b"again")

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
        found = self._redis.run_each("keep", [((key,), (KEPT_S,)) for key, _ in lists])
        for (key, count), length in zip(lists, found, strict=True):
            if length != count:
                raise gone(key, count, length)

    def _publish(self, seq: int, manifest: Manifest) -> None:
        """Move all of it; nothing before all of it was seen to be there."""
        moves = list(self._moves(seq, manifest))
        looks = [(move.keys, (*move.given, 0, *self._room())) for move in moves]
        found = self._redis.run_each("publish", looks)
        if gone := [move for move, (said, _) in zip(moves, found, strict=True) if said == b"gone"]:
            raise _Lost(gone[0], sum(done for _, done in found))
        for move in moves:
            self._move(move)
        self._redis.run("finish", (self._key,), seq)

    def _moves(self, seq: int, manifest: Manifest) -> Iterator[_Move]:
        for number in sorted({number for counts in manifest.values() for number in counts}):
            names, first = self._place.names.partition(number), 0
            for attempt in sorted(manifest):
                count = manifest[attempt].get(number, 0)
                key = staged(self._place, number, attempt)
                keys = (names.stream, names.offsets, names.lost, self._mark(number), key)
                if count:
                    yield _Move(number, keys, seq, first, count)
                first += count

    def _move(self, move: _Move) -> None:
        end = time.monotonic() + self._patience
        while True:
            said, done = self._redis.run("publish", move.keys, *move.given, STEP, *self._room())
            if said == b"gone":
                raise _Lost(move, done)
            if said == b"late":
                self._see_that_it_is_late(move)
            if done >= move.first + move.count:
                return
            if said == b"ok":
                end = time.monotonic() + self._patience
            elif time.monotonic() > end:
                raise PartitionFull(
                    f"partition {move.number} of {self._place} was full for {self._patience:g} s: it holds "
                    f"{self._bounds.limit} events (partition_size) that some processor has not committed. The batch is "
                    "decided, and goes on where it stopped; `rink streams lag` shows whom it waits for",
                    stream=self._place.stream,
                    partition=move.number,
                )
            else:
                self._pause(_LOOKS_AGAIN_S)

    def _see_that_it_is_late(self, move: _Move) -> None:
        """A later batch is in the partition: then this one was published, or Redis went back in one of two places."""
        seq, manifest = self._redis.run("state", (self._key,))
        if int(seq) == move.seq and manifest:
            raise StateError(
                f"sink {self.name!r} of {self._place} has gone back: {move.keys[3]!r} knows of a later batch than "
                f"{self._key!r}. One of them was restored from an older state, or removed by hand: restore both to one "
                f"moment; or, to begin anew, remove both",
                key=self._key,
            )

    def _room(self) -> tuple[int, int]:
        return self._bounds.limit, int(self._bounds.loses)

    def _mark(self, number: int) -> str:
        return f"{self._place.names.partition(number).stream}:sunk:{encode(self.name)}"

    def _lists(self, manifest: Manifest) -> list[tuple[str, int]]:
        return [
            (staged(self._place, number, attempt), count)
            for attempt, counts in manifest.items()
            for number, count in counts.items()
        ]

    def _torn(self, lost: _Lost) -> StateError:
        key = lost.move.keys[4]
        return StateError(
            f"sink {self.name!r} of {self._place} has decided on a batch, and {key!r} of its {lost.move.count} records is "
            f"gone: Redis has lost it, or it has expired ({lost.done} records of the batch were published). Where Redis "
            "was restored, restore it to one moment; or take the loss: "
            f"HDEL {self._key} manifest",
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
