"""A batch is decided in one step, which is its commit, and then published from the manifest that
was decided.

Whoever comes next publishes to its end what was decided; whoever comes late publishes nothing
twice.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from rink.core.keys import check_name, encode
from rink.errors import RinkError, StaleToken, StateError
from rink.spark.options import StreamPlace
from rink.spark.redis_connection import RedisConnection, clear_after
from rink.spark.sink.staging import gone, remove, rolled_back, staged
from rink.streams.errors import PartitionFull
from rink.streams.store.keys import PREFIX
from rink.streams.store.values import PartitionBounds

STEP, STEP_BYTES = 1000, 1_000_000
"""So many records one step moves, and it ends with the one that makes it so large: Redis does
nothing else meanwhile.
"""
KEPT_S = 30 * 86_400
"""So long what a batch was decided of waits for somebody who publishes it, and a write that is done
once is known.
"""
WAITS_S = 86_400
"""So long a batch lies there that nobody goes on with: its publication ends before."""
_LOOKS_AGAIN_S = 0.2

Manifest = Mapping[str, Mapping[int, int]]
"""For each attempt of a task that counts, how many records it put aside for each partition."""


@attrs.frozen
class SinkBatch:
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
    """A staged list is gone; so many records of its batch, in all partitions, were published."""

    def __init__(self, move: _Move, done: int) -> None:
        super().__init__(move, done)
        self.move, self.done = move, done


def raise_fence(
    place: StreamPlace, redis: RedisConnection, name: str, token: int, *, once: bool = False
) -> None:
    """Make a sink refuse lower tokens from now on.

    Args:
        place: the stream.
        redis: where it lies.
        name: of the sink.
        token: of the grant; 0 without a role.
        once: as of `Sink`.

    Raises:
        StaleToken: a later driver has been here.
    """
    key = _state(place, name, once)
    answer = redis.run("open", (key,), token, _kept(once))
    if answer[0] == b"stale":
        raise _stale(place, name, token, int(answer[1]), key)


class Sink:
    """What Redis holds of one sink, and the steps on it.

    Args:
        place: the stream.
        redis: where it lies.
        name: of the sink.
        token: under which it is written; 0 without a role.
        bounds: of each partition.
        patience: seconds that a full partition is waited for.
        resumes: whether anybody may publish to its end what was decided: not under a name that
            nobody has again.
        once: it has one batch, and what Redis knows of it ends `KEPT_S` after that was decided.
            First the state, then the marks: with the state alone, a batch of which half is
            published would be published whole again. Of a query nothing ends; the two have names of
            their own.
    """

    def __init__(
        self,
        place: StreamPlace,
        redis: RedisConnection,
        name: str,
        token: int,
        bounds: PartitionBounds,
        *,
        patience: float,
        once: bool = False,
        resumes: bool = True,
    ) -> None:
        self.name = check_name("name", name)
        self._once = once
        self._place = place
        self._redis = redis
        self._token = token
        self._bounds = bounds
        self._patience = patience
        self._resumes = resumes
        self._pause = threading.Event().wait
        self._key = _state(place, name, once)

    def raise_fence(self) -> None:
        """Make the sink refuse lower tokens; raises a StaleToken."""
        raise_fence(self._place, self._redis, self.name, self._token, once=self._once)

    def commit(self, batch: SinkBatch, manifest: Manifest) -> None:
        """Decide on a batch, and publish it.

        Args:
            batch: which one.
            manifest: of what it consists; a batch that was decided before keeps the one it has.

        Raises:
            StaleToken: a later driver has been here. This batch is not written, but where it had
                been decided, the answer was lost, and the later driver has published it.
            StateError: something that was put aside is gone, or another query writes under this
                name, or this one's checkpoint was rolled back.
            PartitionFull: a partition stayed full; the batch is decided, and its next try goes on.
        """
        try:
            self._count(manifest)
        except RinkError as error:
            clear_after(error, partial(self._drop_undecided, manifest))
            raise
        replaces = ""
        while True:
            found = self._decide(batch, manifest, replaces)
            if found is None:
                self.drop(manifest)
                return
            seq, decided = found
            try:
                self._publish(seq, manifest if decided is None else decided.manifest)
            except _Lost as lost:
                # A replay has the same rows again: of what was not begun with, they take the place.
                if lost.done or decided is None or not decided.is_this or replaces:
                    self._drop_spare(manifest, decided)
                    raise self._torn(lost) from lost
                replaces = str(seq)
                continue
            except RinkError as error:
                spare = partial(self._drop_spare, manifest, decided)
                clear_after(error, spare)
                raise
            if decided is None:
                return
            if decided.is_this:
                self._drop_spare(manifest, decided)
                return

    def _decide(
        self, batch: SinkBatch, manifest: Manifest, replaces: str
    ) -> tuple[int, _Decided | None] | None:
        """Return the number of what is to be published now; what it is where it is not this
        manifest.

        None: this batch was published before.
        """
        given = (self._token, batch.query, batch.number, _dumps(manifest), replaces)
        answer = self._redis.run("decide", (self._key,), *given, _kept(self._once))
        if answer[0] in (b"stale", b"other", b"back"):
            # It is not what is to be published now, or it would have been told so; nor will it be.
            self.drop(manifest)
            raise self._refusal(answer, batch)
        if answer[0] == b"done":
            return None
        seq = int(answer[1])
        if answer[0] == b"ok":
            return seq, None
        return seq, _Decided(_loads(answer[2]), is_this=answer[0] == b"again")

    def _drop_spare(self, manifest: Manifest, decided: _Decided | None) -> None:
        """Remove what was put aside in vain; else each try while a partition is full would leave a
        batch more.
        """
        if decided is not None and decided.manifest != manifest:
            self.drop(manifest)

    def _drop_undecided(self, manifest: Manifest) -> None:
        """Remove what was put aside for a batch that cannot be: its lists would lie there for as
        long as decided ones.
        """
        _, decided = self._redis.run("state", (self._key,))
        if not decided or _loads(decided) != manifest:
            self.drop(manifest)

    def drop(self, manifest: Manifest) -> None:
        """Remove what was put aside."""
        for key, _ in self._lists(manifest):
            remove(self._redis, key)

    def forget(self, numbers: Iterable[int]) -> None:
        """Remove what is kept of a sink that is written once: its state, and its marks."""
        for number in numbers:
            remove(self._redis, self._mark(number))
        remove(self._redis, self._key)

    def _count(self, manifest: Manifest) -> None:
        """See that all that was put aside is there, and will be for a while."""
        lists = self._lists(manifest)
        kept = KEPT_S if self._resumes else WAITS_S
        found = self._redis.run_each("keep", [((key,), (kept,)) for key, _ in lists])
        for (key, count), length in zip(lists, found, strict=True):
            if length != count:
                raise gone(key, count, length)

    def _publish(self, seq: int, manifest: Manifest) -> None:
        """Move all of it; nothing before all of it was seen to be there."""
        moves = list(self._moves(seq, manifest))
        looks = [(move.keys, (*move.given, 0, *self._limits())) for move in moves]
        found = self._redis.run_each("publish", looks)
        if gone := [move for move, (said, _) in zip(moves, found, strict=True) if said == b"gone"]:
            in_each = {move.number: done for move, (_, done) in zip(moves, found, strict=True)}
            raise _Lost(gone[0], sum(in_each.values()))
        before = 0
        for move in moves:
            self._move(move, before)
            before += move.count
        self._redis.run("finish", (self._key,), seq)

    def _moves(self, seq: int, manifest: Manifest) -> Iterator[_Move]:
        for number in sorted({number for counts in manifest.values() for number in counts}):
            names, first = self._place.names.partition(number), 0
            for attempt in sorted(manifest):
                count = manifest[attempt].get(number, 0)
                key = staged(self._place, number, attempt)
                keys = (*names.keys, self._mark(number), key)
                if count:
                    yield _Move(number, keys, seq, first, count)
                first += count

    def _move(self, move: _Move, before: int) -> None:
        """Move one list, behind so many records of the batch."""
        end = time.monotonic() + self._patience
        while True:
            said, done = self._redis.run("publish", move.keys, *move.given, STEP, *self._limits())
            if said == b"gone":
                raise _Lost(move, before + done - move.first)
            if said == b"late":
                self._see_that_it_is_late(move)
            if done >= move.first + move.count:
                return
            if said == b"ok":
                end = time.monotonic() + self._patience
            elif time.monotonic() > end:
                raise PartitionFull(
                    f"partition {move.number} of {self._place} was full for {self._patience:g} s: "
                    f"it holds {self._bounds.limit} events (partition_size) that some processor "
                    "has not committed; `rink streams lag` shows whom it waits for. "
                    f"{self._how_it_goes_on()}",
                    stream=self._place.stream,
                    partition=move.number,
                )
            else:
                self._pause(_LOOKS_AGAIN_S)

    def _how_it_goes_on(self) -> str:
        if self._resumes:
            return "The batch is decided, and goes on where it stopped"
        return (
            "It has no writeId, so nobody goes on with it: what was published stays, and a run "
            "after this writes all of it again"
        )

    def _see_that_it_is_late(self, move: _Move) -> None:
        """A later batch is in the partition: then this one was published, or one of two places was
        rolled back.
        """
        seq, manifest = self._redis.run("state", (self._key,))
        if int(seq) == move.seq and manifest:
            raise StateError(
                f"sink {self.name!r} of {self._place} was rolled back: {move.keys[5]!r} knows of "
                f"a later batch than {self._key!r}. One of them was restored from an older state, "
                "or removed by hand: restore both to one moment; or, to begin anew, remove both",
                key=self._key,
            )

    def _limits(self) -> tuple[int | str, ...]:
        return STEP_BYTES, _kept(self._once), *self._bounds.given

    def _mark(self, number: int) -> str:
        return (
            f"{self._place.names.partition(number).stream}:sunk:{_key_name(self.name, self._once)}"
        )

    def _lists(self, manifest: Manifest) -> list[tuple[str, int]]:
        return [
            (staged(self._place, number, attempt), count)
            for attempt, counts in manifest.items()
            for number, count in counts.items()
        ]

    def _torn(self, lost: _Lost) -> StateError:
        key = lost.move.keys[6]
        way_out = (
            "Where Redis was restored, restore it to one moment; or take the loss: HDEL "
            f"{self._key} manifest"
            if self._resumes
            else self._how_it_goes_on()
        )
        return StateError(
            f"sink {self.name!r} of {self._place} has decided on a batch, and {key!r} of its "
            f"{lost.move.count} records is gone: Redis has lost it, or it has expired "
            f"({lost.done} records of the batch were published). {way_out}",
            key=key,
        )

    def _refusal(self, answer: Sequence[Any], batch: SinkBatch) -> Exception:
        if answer[0] == b"stale":
            return _stale(self._place, self.name, self._token, int(answer[1]), self._key)
        if answer[0] == b"back":
            return rolled_back(
                f"sink {self.name!r} of {self._place}",
                batch.query,
                batch.number,
                int(answer[1]),
                self._key,
            )
        return StateError(
            f"sink {self.name!r} of {self._place} belongs to query {answer[1].decode()}, which "
            "has another checkpoint: give this query another name; or, if the other is gone for "
            f"good, start this one under a new grant of its role, or remove {self._key!r}. "
            "Nothing was written",
            key=self._key,
        )


def _stale(place: StreamPlace, name: str, token: int, newer: int, key: str) -> StaleToken:
    return StaleToken(
        f"sink {name!r} of {place} belongs to a later driver: token {token} was refused, {key!r} "
        f"has {newer}; it writes nothing here any more",
        role=name,
        token=token,
        newer=newer,
    )


def _key_name(name: str, once: bool) -> str:
    """A name in keys; in an encoded one there is no colon, so a query and a writeId never meet."""
    return f"once:{encode(name)}" if once else encode(name)


def _state(place: StreamPlace, name: str, once: bool) -> str:
    return f"{PREFIX}{{{place.names.root}}}:sink:{_key_name(name, once)}"


def _kept(once: bool) -> int:
    """Return for how many seconds state and marks are kept; 0: for ever."""
    return KEPT_S if once else 0


def _dumps(manifest: Manifest) -> str:
    return json.dumps({attempt: manifest[attempt] for attempt in sorted(manifest)})


def _loads(text: bytes) -> dict[str, dict[int, int]]:
    return {
        attempt: {int(number): count for number, count in counts.items()}
        for attempt, counts in json.loads(text).items()
    }
