"""What streams ask of Redis, as methods whose errors are ours; looks of operators are in `admin/`.

Each step that must be atomic is a script, and safe to be sent again: a retry after a lost answer
finds that it was done. So whoever gets `RedisUnavailable` may ask again with the same arguments.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from redis.asyncio import RedisCluster

from rink.errors import ConfigError, StaleToken, StateError
from rink.redis import async_client, partition_count, stored_format
from rink.redis.async_client import AnyRedis
from rink.redis.error_map import timed_out, explained
from rink.redis.errors import CrossSlot, RedisUnavailable
from rink.redis.partition_count import PartitionCount
from rink.redis.script_pipeline import ScriptPipeline
from rink.redis.scripts import settle_script
from rink.streams.errors import OffsetMoved, PartitionFull, RedisRolledBack
from rink.streams.retention import Retention
from rink.streams.store import entry_ids
from rink.streams.store.byte_limits import REPLY_BYTES, ByteLimits, Sizes
from rink.streams.store.keys import Names, PartitionNames
from rink.streams.store.scripts import script
from rink.streams.store.values import (
    CommitStep,
    Look,
    OwnerMemory,
    PartitionBounds,
    PartitionPlace,
    Position,
    RawEntry,
    Taken,
)

OLDEST_REDIS = (7, 0)
"""Scripts that may go on while Redis is out of memory are of this version."""
_READ_WAITS_S = 1.0
"""So long a read waits for something to come, and a wake-up may cost that got lost; less where the client waits
for no answer as long."""
MOST = 100_000
"""A lag is counted so far: counting keeps Redis from all else."""

_LIMITS = ByteLimits()
_SAYS_NOTHING = PartitionBounds(0)


class Store:
    """A Redis, seen from one event loop.

    Args:
        redis: a client of redis-py's, from now on this store's: see `clients.prepare`.
        limits: limits the bytes of requests and answers.
    """

    def __init__(self, redis: AnyRedis, limits: ByteLimits = _LIMITS) -> None:
        waits = async_client.prepare(redis)
        self.answer_timeout_s = waits
        self._block_ms = max(int(min(_READ_WAITS_S, waits / 2) * 1000), 1)
        self.redis = redis
        self.is_cluster = isinstance(redis, RedisCluster)
        self.server = async_client.server_of(redis)
        self.limits = limits
        self._scripts = ScriptPipeline(redis, limits.reply)
        self._settled: set[tuple[str, int, str]] = set()
        self._sender = secrets.token_hex(8)
        self._told = 0

    async def open(self) -> None:
        """See that Redis answers and is new enough.

        Raises:
            RedisUnavailable: nothing answers.
            RedisAuth: user or password were refused.
            ConfigError: it is older than 7.0.
        """
        with explained(self.server):
            if isinstance(self.redis, RedisCluster):
                await self.redis.initialize()
                found = await self.redis.info("server", target_nodes=self.redis.RANDOM)
            else:
                found = await self.redis.info("server")
        version = str(found.get("redis_version", "0"))
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
            raise ConfigError(
                f"Redis at {self.server} is {version}; streams need {'.'.join(map(str, OLDEST_REDIS))} or "
                "later, whose scripts can commit while it is out of memory"
            )

    async def close(self) -> None:
        """End the scripts that are under way, and close the client's connections."""
        await self._scripts.close()
        await async_client.close(self.redis)

    async def run(self, name: str, keys: Sequence[str], *given: Any, size: int = 0) -> Any:
        """Run one of our scripts; the errors are ours.

        Args:
            name: of the script.
            keys: as it takes them.
            given: its other arguments.
            size: their bytes, if they may be many: limits what goes in one request.
        """
        with explained(self.server, *keys):
            return await self._scripts.run(script(name), keys, given, size)

    # ── the stream ───────────────────────────────────────────────────────────────────────────

    async def settle_count(self, names: Names, stream: str, count: int, hasher: str = "") -> None:
        """Check once that all programs have the same partitions and hasher.

        The first program writes them.

        Args:
            names: of the stream.
            stream: its name, for the errors.
            count: how many partitions this program declares.
            hasher: the fingerprint of the hasher that it declares; "" for the built-in one.

        Raises:
            StateError: Redis has another number, or another hasher.
        """
        if await self.check_count(names, stream, count, hasher):
            return
        # Only where nobody has: a write that changes nothing is refused, too, while Redis is out of memory.
        with explained(self.server, names.about):
            await self._scripts.run(settle_script(), [names.about], (count, hasher))
        await self.check_count(names, stream, count, hasher)

    async def check_count(self, names: Names, stream: str, count: int, hasher: str = "") -> bool:
        """See whether this number of partitions is settled; False where nobody has said any. It writes nothing.

        Raises:
            StateError: Redis has another number or hasher, or the stream is of another layout.
        """
        if self.has_settled(names, count, hasher):
            return True
        with explained(self.server, names.about):
            reply = await self.redis.hmget(names.about, *partition_count.FIELDS)
        found = partition_count.stored(reply, self.server, names.about)
        if found is None:
            return False
        declared = PartitionCount(count, hasher)
        partition_count.check_same(found, declared, f"stream {stream!r}", self.server, names.about)
        self._settled.add((names.about, count, hasher))
        return True

    def has_settled(self, names: Names, count: int, hasher: str) -> bool:
        """Return whether partitions and hasher are settled: they never change."""
        return (names.about, count, hasher) in self._settled

    async def append(
        self,
        names: PartitionNames,
        bounds: PartitionBounds,
        records: Sequence[bytes],
        number: int,
        wants_ids: bool,
    ) -> tuple[int, list[str]]:
        """Add as many of the records as there is room for.

        Args:
            names: of the partition.
            bounds: what it may hold.
            records: their bytes.
            number: of this sender's calls for this partition, which come one after the other; a
                call that is made again with the same number adds nothing more.
            wants_ids: return the ids of all that was added, not of the last one alone.

        Returns:
            How many were added, the first ones; and their ids.
        """
        keys = [*names.keys, names.sent(self._sender)]
        given = (number, int(wants_ids), *bounds.given)
        size = sum(map(len, records))
        count, added_ids = await self.run("append", keys, *given, *records, size=size)
        return int(count), text(added_ids).split()

    async def trim(self, names: PartitionNames, bounds: PartitionBounds = _SAYS_NOTHING) -> int:
        """Trim what all processors have passed; events that are to be kept stay.

        Args:
            names: of the partition.
            bounds: of its program; their retention counts where Redis has none, or has lost it.

        Returns:
            How many events.
        """
        return int(await self.run("trim", names.keys, *bounds.given))

    async def retain(self, names: PartitionNames, bounds: PartitionBounds) -> None:
        """Set how long a partition keeps events, whatever was set before."""
        await self.run("retain", names.keys, *bounds.given)

    async def retention(self, names: PartitionNames) -> Retention | None:
        """Return how long events stay; None where no program has set it."""
        with explained(self.server, names.kept):
            ms, size = await self.redis.hmget(names.kept, "keep", "keep_bytes")
        return None if ms is None or size is None else Retention(int(ms), int(size))

    async def entries(
        self, key: str, after: str = entry_ids.NONE, *, newest_first: bool = False, most: int = 1000
    ) -> AsyncIterator[tuple[bytes, dict[bytes, bytes]]]:
        """Yield the present entries of a stream in order: IDs and fields.

        Args:
            key: the stream's.
            after: only those behind this id.
            newest_first: in the other order.
            most: entries of one answer.
        """
        first, last = f"({after}", await self._newest(key)
        sizes: Sizes[str] = Sizes(self.limits.reply)
        while True:
            asked = sizes.plan([key], most)
            try:
                with explained(self.server, key):
                    ask = self.redis.xrevrange if newest_first else self.redis.xrange
                    found: Any = await ask(key, min=first, max=last, count=asked[1])
            except RedisUnavailable as error:
                if not timed_out(error) or not sizes.halve(*asked):
                    raise
                continue
            if not found:
                return
            size = sum(len(value) for _, fields in found for value in fields.values())
            sizes.note(key, len(found), size)
            for entry_id, fields in found:
                yield entry_id, fields
            if newest_first:
                last = f"({found[-1][0].decode()}"
            else:
                first = f"({found[-1][0].decode()}"

    async def _newest(self, key: str) -> str:
        with explained(self.server, key):
            found: Any = await self.redis.xrevrange(key, count=1)
        return found[0][0].decode() if found else entry_ids.NONE

    # ── positions ────────────────────────────────────────────────────────────────────────────

    async def register(self, place: PartitionPlace) -> str:
        """Register the processor, so that trimming waits; return its offset."""
        return text(await self.run("register", place.keys, place.processor, place.start))

    async def take(
        self,
        place: PartitionPlace,
        token: int,
        first: int = 0,
        known: OwnerMemory | None = None,
        *,
        most_bytes: int = REPLY_BYTES,
    ) -> Taken:
        """Become the owner of a partition.

        Args:
            place: the partition.
            token: of the grant.
            first: how many entries behind the offset to get along.
            known: what it knew before a reconnect.
            most_bytes: limits the entries that the answer brings.

        Raises:
            StaleToken: a later owner has been here.
            RedisRolledBack: Redis has older data than this owner, or the offset, knows.
        """
        knows = (known.epoch, known.offset, known.seen) if known else ("", "", "")
        given = (place.processor, token, place.start, first, int(place.bounds.loses))
        answer = await self.run("take", place.keys, *given, *knows, self._now(), most_bytes)
        self._check(place, token, answer, known.offset if known else "")
        offset, epoch, careful, quarantined = (text(part) for part in answer[1:5])
        flat = [text(part) for part in answer[5]]
        ends = dict(zip(flat[::2], map(int, flat[1::2]), strict=True))
        return Taken(
            offset,
            epoch,
            careful,
            quarantined,
            ends,
            first=answer[6],
            told=int(answer[7]),
            is_paused=text(answer[8]) == "1",
            left_out=answer[9],
        )

    async def commit(self, place: PartitionPlace, step: CommitStep) -> None:
        """Advance the offset, all outputs with it.

        Raises:
            StaleToken: a later owner has been here; nothing was written.
            OffsetMoved: an operator moved the offset; nothing was written.
            RedisRolledBack: Redis has older data than was committed; nothing was written.
            PartitionFull: an output's target has no room; nothing was written.
            CrossSlot: on a cluster, outputs of other slots.
        """
        outputs = (*step.letters, *step.outputs)
        targets = list({output.target: output.bounds for output in outputs}.items())
        if targets and isinstance(self.redis, RedisCluster):
            self._refuse_slots(self.redis, place, [names for names, _ in targets])
        index = {names: number for number, (names, _) in enumerate(targets, 1)}
        given: list[Any] = [
            place.processor, step.token, step.epoch, step.expected, step.new, step.ceiling,
            step.processed, step.dead, int(place.bounds.loses), len(outputs), self._now(),
        ]  # fmt: skip
        for _, bounds in targets:
            given += (bounds or PartitionBounds(0)).given
        for output in outputs:
            given += [index[output.target], len(output.fields), *output.fields]
        keys = [key for names, _ in targets for key in names.keys]
        name = "write" if step.outputs else "commit"
        size = sum(output.size for output in outputs)
        answer = await self.run(name, [*place.keys, *keys], *given, size=size)
        if (said := text(answer[0])) in ("full", "type"):
            key, bounds = targets[int(answer[1]) - 1][0].stream, targets[int(answer[1]) - 1][1]
            self._refused_output(place, said, key, bounds, answer[2])
        self._check(place, step.token, answer, step.expected)

    def _refused_output(
        self, place: PartitionPlace, said: str, key: str, bounds: PartitionBounds | None, found: Any
    ) -> None:
        if said == "type":
            raise StateError(
                f"Redis at {self.server}: an output of {place.role!r} goes to {key!r}, which is a "
                f"{text(found)} and no stream: nothing was written; remove it",
                key=key,
            )
        limit = bounds.limit if bounds else 0
        raise PartitionFull(
            f"{key!r} holds {int(found)} events of {limit} that some processor has not committed, and "
            f"has no room for the outputs of {place.role!r}: nothing was written",
            stream=key,
        )

    def _refuse_slots(
        self, cluster: RedisCluster, place: PartitionPlace, targets: Sequence[PartitionNames]
    ) -> None:
        slot = cluster.keyslot(place.at)
        for names in targets:
            if (other := cluster.keyslot(names.stream)) != slot:
                raise CrossSlot(
                    f"a commit of {place.at!r} (slot {slot}) cannot write to {names.stream!r} (slot "
                    f"{other}) in one step: Redis Cluster has no transactions over several slots. "
                    "Use send() and a plain commit (at least once), or a Redis that is no cluster"
                )

    async def close_place(self, place: PartitionPlace, token: int) -> None:
        """Mark that this owner ended in order.

        The next owner need not be careful.
        """
        self._check(place, token, await self.run("close", [place.at], token))

    async def extend(self, place: PartitionPlace, token: int, epoch: str, ceiling: str) -> None:
        """Mark that events up to an id are about to be yielded."""
        self._check(
            place, token, await self.run("extend", [place.at], token, epoch, ceiling, self._now())
        )

    async def mark(self, place: PartitionPlace, token: int, epoch: str, entry_id: str) -> None:
        """Mark the event that is about to be processed alone."""
        self._check(
            place, token, await self.run("mark", [place.at], token, epoch, entry_id, self._now())
        )

    async def quarantine(self, place: PartitionPlace, token: int, epoch: str, reason: str) -> None:
        """Stop the partition until it is unquarantined."""
        self._check(place, token, await self.run("quarantine", [place.at], token, epoch, reason))

    async def accept(self, place: PartitionPlace, token: int) -> str:
        """Accept the data of Redis, after it lost data.

        Returns:
            The offset behind which this owner goes on.
        """
        answer = await self.run("unquarantine", place.keys, place.processor, place.start, token)
        self._check(place, token, answer)
        return text(answer[2])

    async def look(self, place: PartitionPlace, most: int = MOST) -> Look:
        """Return what Redis holds of a processor in one partition, at one moment.

        Args:
            place: where.
            most: count up to so many events behind the offset, if Redis has lost the counters.
        """
        answer = await self.run("look", place.keys, place.processor, most)
        at, offsets, lag, first, length, lost, size, oldest, ms, bytes_kept, held, removed = answer
        return Look(
            position=_position(place, at, offsets),
            lag=lag,
            first=text(first),
            length=length,
            lost=int(lost),
            lowest=min(map(text, offsets[1::2]), key=entry_ids.order, default=""),
            size=int(size),
            oldest=text(oldest),
            retention=Retention(int(ms), int(bytes_kept)),
            held=held,
            removed=removed,
        )

    async def position(self, place: PartitionPlace) -> Position:
        """Return how far a processor is in one partition, and who is at work for it."""
        return _position(place, *await self.run("look", place.keys[:3], place.processor))

    async def lag(self, place: PartitionPlace, most: int = MOST) -> int:
        """Return how many events lie behind the offset, counted up to `most`."""
        return (await self.look(place, most)).lag

    async def registered(self, names: PartitionNames) -> dict[str, str]:
        """Return the offset of each processor that trimming waits for."""
        with explained(self.server, names.offsets):
            found = await self.redis.hgetall(names.offsets)
        fields = {text(key): text(value) for key, value in found.items()}
        fields.pop(stored_format.FIELD, None)
        return fields

    def _check(
        self, place: PartitionPlace, token: int, answer: Sequence[Any], expected: str = ""
    ) -> None:
        match text(answer[0]):
            case "ok":
                return
            case "stale":
                fence = int(answer[1]) if len(answer) > 1 else 0
                raise StaleToken(
                    f"partition {place.role!r} of processor {place.processor!r} belongs to a later "
                    f"owner: token {token} was refused, {place.at!r} has {fence or 'another one'}",
                    role=place.role,
                    token=token,
                    newer=fence,
                )
            case "moved":
                raise OffsetMoved(f"the offset of {place.at!r} was moved to {text(answer[1])}")
            case _:
                raise _rolled_back(place, token, answer[1:], expected)

    def _now(self) -> int:
        """What a step of an owner is told at, in microseconds, more each time: the order of a process's steps."""
        self._told = max(self._told + 1, time.time_ns() // 1000)
        return self._told

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def reader(self) -> AnyRedis:
        """A client for blocking reads, with a connection of its own; on a cluster, this one."""
        client = self.redis if isinstance(self.redis, RedisCluster) else self.redis.client()
        client.set_response_callback("XREAD", _as_sent)  # redis-py makes a dict of each entry
        return client

    async def read(
        self, client: AnyRedis, positions: Mapping[str, str], count: int, *, waits: bool = True
    ) -> list[tuple[str, list[RawEntry]]]:
        """Read behind positions, or wait for what comes, up to a second.

        Args:
            client: from `reader`.
            positions: an id for each stream.
            count: entries of each stream at most.
            waits: False returns at once if there is nothing.
        """
        given: Any = positions
        with explained(self.server):
            block = self._block_ms if waits else None
            found: Any = await client.xread(given, count=count, block=block)
        pairs = found.items() if isinstance(found, dict) else found
        return [(text(key), entries) for key, entries in pairs or ()]


def _as_sent(response: Any, **kwargs: Any) -> Any:  # noqa: ARG001 - as redis-py asks for it
    return response


def _rolled_back(
    place: PartitionPlace, token: int, found: Sequence[Any], expected: str
) -> RedisRolledBack:
    fence, offset, *last = (text(part) for part in found)
    ours = f"offset {expected} under token {token}" if expected else "an offset within the stream"
    ends = f", and the stream ends at {last[0]}" if last else ""
    return RedisRolledBack(
        f"partition {place.role!r} of processor {place.processor!r} was rolled back: {ours} was known, and "
        f"{place.at!r} now has offset {offset} under fence {fence}{ends}. Redis was restored, "
        "failed over to older data, or has evicted keys. Events may be lost, or come again",
        key=place.at,
        known=expected,
    )


def _position(place: PartitionPlace, at: Sequence[Any], offsets: Sequence[Any]) -> Position:
    found = _pairs(at)
    return Position(
        offset=_pairs(offsets).get(place.processor, ""),
        fence=int(found.get("fence", 0)),
        epoch=found.get("epoch", "0"),
        processed=int(found.get("processed", 0)),
        dead=int(found.get("dead", 0)),
        unclean=int(found.get("unclean", 0)),
        is_open=found.get("open") == "1",
        quarantined=found.get("quarantined", ""),
        is_paused=found.get("paused") == "1",
    )


def _pairs(flat: Sequence[Any]) -> dict[str, str]:
    """A hash, as a script returns it."""
    return dict(zip(map(text, flat[::2]), map(text, flat[1::2]), strict=True))


def text(value: Any) -> str:
    """Return what Redis answered as text."""
    return value.decode() if isinstance(value, bytes) else str(value)
