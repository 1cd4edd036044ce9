"""Decide on a batch in one atomic step, and publish its manifest.

If a writer fails after the decision, the next writer publishes the rest of the batch. A late writer
publishes nothing twice.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import attrs

from rink.core.keys import check_name, encode_name
from rink.errors import RinkError, StaleToken, StateError
from rink.plural import plural
from rink.redis.scripts import Args
from rink.redis.stored_format import STREAM_PREFIX
from rink.spark.options import StreamPlace
from rink.spark.redis_connection import RedisConnection, clear_after
from rink.spark.sink.staging import gone, remove, rolled_back, staged
from rink.streams.errors import PartitionFull
from rink.streams.store.values import PartitionBounds

STEP, STEP_BYTES = 1000, 1_000_000
"""The maximum records of one step, and the bytes that end it, since a step blocks Redis."""
DECIDED_TTL_S = 30 * 86_400
"""The lifetime of a decided batch until its publication, and of a remembered `writeId`."""
UNRESUMABLE_TTL_S = 86_400
"""The lifetime of a batch write without a `writeId`, in seconds.

No other run can continue it. Its publication ends within this time.
"""
_LOOK_INTERVAL_S = 0.2

Manifest = Mapping[str, Mapping[int, int]]
"""The number of staged records, by the successful task attempt and the partition."""


@attrs.frozen
class SinkBatch:
    """Identify a batch of a query, whose id is new with each checkpoint."""

    query: str
    number: int


@attrs.frozen
class _Move:
    """Describe the move of a staged list into its partition."""

    number: int
    keys: tuple[str, ...]
    seq: int
    first: int
    count: int


@attrs.frozen
class _Decided:
    """Hold the manifest to publish now.

    The status is `ok` (this batch was decided now), `again` (this batch was decided before) or
    `pending` (another batch must be published first).
    """

    seq: int
    status: bytes
    manifest: Manifest


@attrs.define
class _Lost(Exception):  # noqa: N818 - the user sees a StateError
    """Report that a staged list is gone after `done` published records."""

    move: _Move
    done: int


def raise_fence(
    place: StreamPlace, redis: RedisConnection, name: str, token: int, *, once: bool = False
) -> None:
    """Make a sink refuse lower tokens from now on; `Sink` explains `once`.

    Raises:
        StaleToken: the sink has seen a greater token.
    """
    key = _state(place, name, once)
    answer = redis.run("sink/open", (key,), token=str(token), kept_s=_kept_s(once))
    if answer[0] == b"stale":
        raise _stale(place, name, token, int(answer[1]), key)


@attrs.define(eq=False)
class Sink:
    """Change the state of one sink in Redis, and publish its batches.

    Args:
        place: the stream.
        redis: the connection to the stream's Redis.
        name: the sink's name.
        token: the role's token, or 0.
        bounds: the bounds of each partition.
        patience: how long to wait for room in a full partition, in seconds.
        resumes: True if another run may publish the rest of a decided batch. It is False if the
            name is used only once.
        once: True if the sink has only one batch. Then Redis forgets the sink `DECIDED_TTL_S` after
            the decision: first the state, then the marks. If the marks went first, a half published
            batch would be published again as a whole. The state of a query never expires. Both
            kinds have separate names.
    """

    _place: StreamPlace
    _redis: RedisConnection
    name: str
    _token: int
    _bounds: PartitionBounds
    _patience: float = attrs.field(kw_only=True)
    _once: bool = attrs.field(default=False, kw_only=True)
    _resumes: bool = attrs.field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_name("name", self.name)

    @property
    def _key(self) -> str:
        return _state(self._place, self.name, self._once)

    def raise_fence(self) -> None:
        """Make the sink refuse lower tokens from now on."""
        raise_fence(self._place, self._redis, self.name, self._token, once=self._once)

    def commit(self, batch: SinkBatch, manifest: Manifest) -> None:
        """Decide on a batch, and publish it.

        A batch that was decided before keeps its first manifest.

        Raises:
            StaleToken: the sink has seen a greater token. This batch is not written, unless it was
                decided, Redis' answer was lost, and the later driver has published it.
            StateError: a staged list is gone, or another query writes under this name, or this
                query's checkpoint was rolled back.
            PartitionFull: a partition stayed full. The batch is decided, and the next try continues
                it.
        """
        try:
            self._count(manifest)
        except RinkError as error:
            clear_after(error, partial(self._drop_undecided, manifest))
            raise
        replaces = ""
        while decided := self._decide(batch, manifest, replaces):
            try:
                self._publish(decided)
            except _Lost as lost:
                # A replay has the same rows. So if nothing of the batch was published, the replay's
                # lists may replace the lost lists.
                if lost.done or decided.status != b"again" or replaces:
                    self._drop_spare(manifest, decided)
                    raise self._torn(lost) from lost
                replaces = str(decided.seq)
                continue
            except RinkError as error:
                clear_after(error, partial(self._drop_spare, manifest, decided))
                raise
            if decided.status != b"pending":
                self._drop_spare(manifest, decided)
                return
        self.drop(manifest)

    def _decide(self, batch: SinkBatch, manifest: Manifest, replaces: str) -> _Decided | None:
        """Return the manifest to publish now; None if the batch is published."""
        status, *rest = self._redis.run(
            "sink/decide", (self._key,),
            token=str(self._token), query=batch.query, batch=str(batch.number),
            manifest=_dumps(manifest), replaces=replaces, kept_s=_kept_s(self._once),
        )  # fmt: skip
        if status in (b"stale", b"other", b"back"):
            # Redis would answer "again" for a decided batch. So this batch was not decided, and
            # never will be.
            self.drop(manifest)
            raise self._refusal(status, rest[0], batch)
        if status == b"done":
            return None
        return _Decided(int(rest[0]), status, manifest if status == b"ok" else _loads(rest[1]))

    def _drop_spare(self, manifest: Manifest, decided: _Decided) -> None:
        """Remove staged records that a decision does not use.

        Otherwise, each try while a partition is full would leave another copy of the batch.
        """
        if decided.manifest != manifest:
            self.drop(manifest)

    def _drop_undecided(self, manifest: Manifest) -> None:
        """Remove the staged records of a batch that cannot be decided.

        Otherwise they would be kept as long as the records of decided batches.
        """
        _, decided = self._redis.run("sink/state", (self._key,))
        if not decided or _loads(decided) != manifest:
            self.drop(manifest)

    def drop(self, manifest: Manifest) -> None:
        """Remove the staged records of a manifest."""
        for key, _ in self._lists(manifest):
            remove(self._redis, key)

    def forget(self, numbers: Iterable[int]) -> None:
        """Remove the state and the marks of a sink that is written once."""
        for number in numbers:
            remove(self._redis, self._mark(number))
        remove(self._redis, self._key)

    def _count(self, manifest: Manifest) -> None:
        """Check that all staged records exist, and extend their expiry."""
        lists = self._lists(manifest)
        args = {"kept_s": DECIDED_TTL_S if self._resumes else UNRESUMABLE_TTL_S}
        lengths = self._redis.run_each("sink/keep", [((key,), args) for key, _ in lists])
        for (key, count), length in zip(lists, lengths, strict=True):
            if length != count:
                raise gone(key, count, length)

    def _publish(self, decided: _Decided) -> None:
        """Check that all lists exist, and then move them to their partitions."""
        moves = list(self._moves(decided.seq, decided.manifest))
        looks = [(move.keys, self._args(move, 0)) for move in moves]
        answers = self._redis.run_each("sink/publish", looks)
        lost = [move for move, (status, _) in zip(moves, answers, strict=True) if status == b"gone"]
        if lost:
            in_each = {move.number: done for move, (_, done) in zip(moves, answers, strict=True)}
            raise _Lost(lost[0], sum(in_each.values()))
        before = 0
        for move in moves:
            self._move(move, before)
            before += move.count
        self._redis.run("sink/finish", (self._key,), seq=str(decided.seq))

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
        """Move one list, after `before` records of the batch."""
        end = time.monotonic() + self._patience
        while True:
            status, done = self._redis.run("sink/publish", move.keys, **self._args(move, STEP))
            if status == b"gone":
                raise _Lost(move, before + done - move.first)
            if status == b"late":
                self._see_that_it_is_late(move)
            if done >= move.first + move.count:
                return
            if status == b"ok":
                end = time.monotonic() + self._patience
            elif time.monotonic() > end:
                raise PartitionFull(
                    f"partition {move.number} of {self._place} was full for {self._patience:g} s: "
                    f"it holds {self._bounds.limit} {plural(self._bounds.limit, 'event')} "
                    "(partition_size) that some processor has not committed. Run `rink streams "
                    "lag` to see which. "
                    f"{self._how_it_goes_on()}",
                    stream=self._place.stream,
                    partition=move.number,
                )
            else:
                threading.Event().wait(_LOOK_INTERVAL_S)

    def _how_it_goes_on(self) -> str:
        if self._resumes:
            return "The batch is decided, and the next try continues it"
        return (
            "It has no writeId, so no run continues it: published events stay, and the next run "
            "writes all of them again"
        )

    def _see_that_it_is_late(self, move: _Move) -> None:
        """Check that a batch was published, if the partition has a later batch.

        Otherwise the sink's state or the partition was rolled back.
        """
        seq, manifest = self._redis.run("sink/state", (self._key,))
        if int(seq) == move.seq and manifest:
            raise StateError(
                f"sink {self.name!r} of {self._place} was rolled back: {move.keys[5]!r} knows a "
                f"later batch than {self._key!r}. One of them was restored from an older state, "
                "or removed by hand. Restore both to one moment, or remove both to begin anew",
                key=self._key,
            )

    def _args(self, move: _Move, max_count: int) -> Args:
        return {
            "seq": str(move.seq), "first": move.first, "count": move.count,
            "max_count": max_count, "max_bytes": STEP_BYTES, "kept_s": _kept_s(self._once),
            "bounds": self._bounds.args,
        }  # fmt: skip

    def _mark(self, number: int) -> str:
        stream = self._place.names.partition(number).stream
        return f"{stream}:sunk:{_key_name(self.name, self._once)}"

    def _lists(self, manifest: Manifest) -> list[tuple[str, int]]:
        return [
            (staged(self._place, number, attempt), count)
            for attempt, counts in manifest.items()
            for number, count in counts.items()
        ]

    def _torn(self, lost: _Lost) -> StateError:
        key = lost.move.keys[6]
        way_out = (
            "If Redis was restored, restore it to one moment. To accept the loss, run HDEL "
            f"{self._key} manifest"
            if self._resumes
            else self._how_it_goes_on()
        )
        return StateError(
            f"sink {self.name!r} of {self._place} has decided on a batch, but {key!r} with "
            f"{lost.move.count} of its records is gone: Redis has lost it, or it has expired "
            f"(records of the batch that were published: {lost.done}). {way_out}",
            key=key,
        )

    def _refusal(self, status: bytes, known: bytes, batch: SinkBatch) -> Exception:
        if status == b"stale":
            return _stale(self._place, self.name, self._token, int(known), self._key)
        if status == b"back":
            sink = f"sink {self.name!r} of {self._place}"
            return rolled_back(sink, batch.query, batch.number, int(known), self._key)
        return StateError(
            f"sink {self.name!r} of {self._place} belongs to query {known.decode()}, which "
            "has another checkpoint. Nothing was written. Give this query another name. If the "
            "other query is gone for good, start this one under a new grant of its role, or "
            f"remove {self._key!r}",
            key=self._key,
        )


def _stale(place: StreamPlace, name: str, token: int, newer: int, key: str) -> StaleToken:
    return StaleToken(
        f"sink {name!r} of {place} belongs to a later driver: token {token} was refused, since "
        f"{key!r} has {newer}. This driver writes nothing there any more",
        role=name, token=token, newer=newer,
    )  # fmt: skip


def _key_name(name: str, once: bool) -> str:
    # An encoded name has no colon, so the keys of queries and of writeIds never collide.
    return f"once:{encode_name(name)}" if once else encode_name(name)


def _state(place: StreamPlace, name: str, once: bool) -> str:
    return f"{STREAM_PREFIX}{{{place.names.root}}}:sink:{_key_name(name, once)}"


def _kept_s(once: bool) -> int:
    """Return how long state and marks are kept, in seconds; 0: forever."""
    return DECIDED_TTL_S if once else 0


def _dumps(manifest: Manifest) -> str:
    return json.dumps({attempt: manifest[attempt] for attempt in sorted(manifest)})


def _loads(manifest: bytes) -> dict[str, dict[int, int]]:
    return {
        attempt: {int(number): count for number, count in known.items()}
        for attempt, known in json.loads(manifest).items()
    }
