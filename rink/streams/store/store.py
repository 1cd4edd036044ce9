"""Offer the steps of streams on Redis as methods.

The methods raise errors of Rink. Each step that must be atomic is a script. A script may be sent
again, since a retry after a lost answer finds that the step was done. So after `RedisUnavailable` a
caller may repeat the call with the same arguments. The queries of operators are in `admin/`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import attrs
from redis.asyncio import RedisCluster

from rink.errors import ConfigError
from rink.redis import async_client, partition_count, stored_format
from rink.redis.async_client import AnyRedis
from rink.redis.error_map import explained, timed_out
from rink.redis.errors import RedisUnavailable
from rink.redis.partition_count import PartitionCount
from rink.redis.reply_text import text
from rink.redis.script_pipeline import ScriptPipeline
from rink.redis.scripts import ScriptCall
from rink.streams.retention import Retention
from rink.streams.store import entry_ids, refusals
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
"""The first version whose scripts may run while Redis is out of memory."""
_READ_TIMEOUT_S = 1.0
"""The longest wait of a read for new events, even after a lost wake-up."""
MAX_COUNTED = 100_000
"""The default limit for counting a lag, since Redis does nothing else while it counts."""

_LIMITS = ByteLimits()
_SAYS_NOTHING = PartitionBounds(0)


class Store:
    """Run the steps of streams on Redis, for one event loop.

    A store owns its redis-py client, and prepares it with `async_client.prepare`.
    """

    def __init__(self, redis: AnyRedis, limits: ByteLimits = _LIMITS) -> None:
        self.answer_timeout_s = async_client.prepare(redis)
        read_timeout_s = min(_READ_TIMEOUT_S, self.answer_timeout_s / 2)
        self._block_ms = max(int(read_timeout_s * 1000), 1)
        self.redis = redis
        self.is_cluster = isinstance(redis, RedisCluster)
        self.server = async_client.server_of(redis)
        self.limits = limits
        self._scripts = ScriptPipeline(redis, limits.reply)
        self._settled: set[tuple[str, int, str]] = set()
        self._sender = secrets.token_hex(8)
        self._last_step_us = 0

    async def open(self) -> None:
        """Check that Redis answers and is new enough.

        Raises:
            RedisUnavailable: Redis does not answer.
            RedisAuth: Redis refused the user or the password.
            ConfigError: the server is older than 7.0.
        """
        with explained(self.server):
            if isinstance(self.redis, RedisCluster):
                await self.redis.initialize()
                info = await self.redis.info("server", target_nodes=self.redis.RANDOM)
            else:
                info = await self.redis.info("server")
        version = str(info.get("redis_version", "0"))
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
            oldest = ".".join(map(str, OLDEST_REDIS))
            raise ConfigError(
                f"Redis at {self.server} is {version}; streams need {oldest} or later, where "
                "scripts can commit while Redis is out of memory"
            )

    async def close(self) -> None:
        """Cancel the running scripts, and close the client's connections."""
        await self._scripts.close()
        await async_client.close(self.redis)

    async def run(
        self, name: str, keys: Sequence[str], blobs: Sequence[bytes | str] = (), /, **args: object
    ) -> Any:
        """Run a script of streams with these keys, bytes and `Args`."""
        with explained(self.server, *keys):
            return await self._scripts.run(ScriptCall(script(name), keys, args, blobs))

    async def settle_count(self, names: Names, stream: str, count: int, hasher: str = "") -> None:
        """Check once that all programs have the same partitions and hasher.

        The first program writes both. The fingerprint of the built-in hasher is "".

        Raises:
            StateError: Redis has another number, or another hasher.
        """
        if await self.check_count(names, stream, count, hasher):
            return
        # Write only if no program has. While Redis is out of memory, it refuses even a write that
        # changes nothing.
        with explained(self.server, names.about):
            await self._scripts.run(PartitionCount(count, hasher).settle(names.about))
        await self.check_count(names, stream, count, hasher)

    async def check_count(self, names: Names, stream: str, count: int, hasher: str = "") -> bool:
        """Return whether this number of partitions is settled; write nothing.

        Returns:
            False if no program has settled any number.

        Raises:
            StateError: Redis has another number or hasher, or the stream has another format.
        """
        if self.has_settled(names, count, hasher):
            return True
        with explained(self.server, names.about):
            reply = await self.redis.hmget(names.about, *partition_count.FIELDS)
        settled = partition_count.stored(reply, self.server, names.about)
        if settled is None:
            return False
        declared = PartitionCount(count, hasher)
        subject = f"stream {stream!r}"
        partition_count.check_same(settled, declared, subject, self.server, names.about)
        self._settled.add((names.about, count, hasher))
        return True

    def has_settled(self, names: Names, count: int, hasher: str) -> bool:
        """Return whether these values are settled. Settled values never change."""
        return (names.about, count, hasher) in self._settled

    async def append(
        self,
        names: PartitionNames,
        bounds: PartitionBounds,
        records: Sequence[bytes],
        number: int,
        wants_ids: bool,
    ) -> tuple[int, list[str]]:
        """Add as many of the first records as fit.

        This sender's calls for this partition come one after the other, and `number` counts them.
        A call that is repeated with the same number adds nothing more.

        Returns:
            The number of added records, and their ids; without `wants_ids`, only the last id.
        """
        keys = [*names.keys, names.sent(self._sender)]
        count, added_ids = await self.run(
            "append", keys, records, number=str(number), wants_ids=wants_ids, bounds=bounds.args
        )
        return int(count), text(added_ids).split()

    async def trim(self, names: PartitionNames, bounds: PartitionBounds = _SAYS_NOTHING) -> int:
        """Trim events that all processors have passed and that are not kept.

        If Redis has no retention, the retention of `bounds` is used. Return the number of trimmed
        events.
        """
        return int(await self.run("trim", names.keys, bounds=bounds.args))

    async def retain(self, names: PartitionNames, bounds: PartitionBounds) -> None:
        """Set how long a partition keeps events, and replace earlier values."""
        await self.run("retain", names.keys, bounds=bounds.args)

    async def retention(self, names: PartitionNames) -> Retention | None:
        """Return how long to keep events; None if no program has set it."""
        with explained(self.server, names.kept):
            ms, size = await self.redis.hmget(names.kept, "keep", "keep_bytes")
        return None if ms is None or size is None else Retention(int(ms), int(size))

    async def entries(
        self, key: str, after: str = entry_ids.NONE, *, newest_first: bool = False, most: int = 1000
    ) -> AsyncIterator[tuple[bytes, dict[bytes, bytes]]]:
        """Yield the id and the fields of each present entry behind `after`.

        One answer of Redis has at most `most` entries.
        """
        first, last = f"({after}", await self._newest(key)
        sizes: Sizes[str] = Sizes(self.limits.reply)
        while True:
            planned, count = sizes.plan([key], most)
            try:
                with explained(self.server, key):
                    read = self.redis.xrevrange if newest_first else self.redis.xrange
                    page: Any = await read(key, min=first, max=last, count=count)
            except RedisUnavailable as error:
                if not timed_out(error) or not sizes.halve(planned, count):
                    raise
                continue
            if not page:
                return
            size = sum(len(value) for _, fields in page for value in fields.values())
            sizes.note(key, len(page), size)
            for entry_id, fields in page:
                yield entry_id, fields
            behind = f"({text(page[-1][0])}"
            first, last = (first, behind) if newest_first else (behind, last)

    async def _newest(self, key: str) -> str:
        with explained(self.server, key):
            entries: Any = await self.redis.xrevrange(key, count=1)
        return text(entries[0][0]) if entries else entry_ids.NONE

    async def register(self, place: PartitionPlace) -> str:
        """Register the processor, so that trimming waits; return its offset."""
        return text(await self.run("register", place.keys, **place.args))

    async def take(
        self,
        place: PartitionPlace,
        token: int,
        first: int = 0,
        known: OwnerMemory | None = None,
        *,
        max_bytes: int = REPLY_BYTES,
    ) -> Taken:
        """Become the owner of a partition.

        The answer has the `first` entries behind the offset, limited by `max_bytes`. `known` is
        the owner's state before a reconnect; None for a new owner.

        Raises:
            StaleToken: a later owner has taken the partition.
            RedisRolledBack: Redis has older data than this owner knows, or than the offset shows.
        """
        args: dict[str, object] = {
            **place.args, "token": str(token), "first": first, "max_bytes": max_bytes,
            "loses": place.bounds.loses, "now_us": self._now_us(),
        }  # fmt: skip
        if known:
            args["known"] = attrs.asdict(known)
        answer = await self.run("take", place.keys, **args)
        refusals.check(place, token, answer, known.offset if known else "")
        offset, epoch, careful, quarantined = (text(part) for part in answer[1:5])
        flat = [text(part) for part in answer[5]]
        ends = dict(zip(flat[::2], map(int, flat[1::2]), strict=True))
        return Taken(
            offset, epoch, careful, quarantined, ends, first=answer[6], begun_us=int(answer[7]),
            is_paused=text(answer[8]) == "1", left_out=answer[9],
        )  # fmt: skip

    async def commit(self, place: PartitionPlace, step: CommitStep) -> None:
        """Advance the offset and write all outputs, in one step.

        After one of these errors, nothing was written.

        Raises:
            StaleToken: a later owner has taken the partition.
            OffsetMoved: an operator moved the offset.
            RedisRolledBack: Redis has older data than the last commit.
            PartitionFull: the target of an output has no room.
            CrossSlot: on a cluster, an output goes to another slot.
        """
        outputs = (*step.letters, *step.outputs)
        targets = list({output.target: output.bounds for output in outputs}.items())
        if targets and isinstance(self.redis, RedisCluster):
            refusals.check_slots(self.redis, place, [names.stream for names, _ in targets])
        index = {names: number for number, (names, _) in enumerate(targets, 1)}
        args: dict[str, object] = {
            "processor": place.processor, "token": str(step.token), "epoch": step.epoch,
            "expected": step.expected, "new": step.new, "processed": step.processed,
            "now_us": self._now_us(),
        }  # fmt: skip
        # Each argument costs time, and most commits have none of these.
        rare = {"ceiling": step.ceiling, "dead": step.dead, "loses": place.bounds.loses}
        args |= {arg: value for arg, value in rare.items() if value}
        if outputs:
            args["targets"] = [(bounds or _SAYS_NOTHING).args for _, bounds in targets]
            args["outputs"] = [(index[output.target], len(output.fields)) for output in outputs]
        keys = [key for names, _ in targets for key in names.keys]
        fields = [field for output in outputs for field in output.fields]
        name = "write" if step.outputs else "commit"
        answer = await self.run(name, [*place.keys, *keys], fields, **args)
        if text(answer[0]) in ("full", "type"):
            names, bounds = targets[int(answer[1]) - 1]
            raise refusals.of_output(self.server, place, names.stream, bounds, answer)
        refusals.check(place, step.token, answer, step.expected)

    async def close_place(self, place: PartitionPlace, token: int) -> None:
        """Mark a clean shutdown, so that this end does not count as a crash."""
        refusals.check(place, token, await self.run("close", [place.at], token=str(token)))

    async def extend(self, place: PartitionPlace, token: int, epoch: str, ceiling: str) -> None:
        """Raise the ceiling, which is the last event that may be yielded."""
        now_us = self._now_us()
        await self._owner_step("extend", place, token, epoch, ceiling=ceiling, now_us=now_us)

    async def mark(self, place: PartitionPlace, token: int, epoch: str, entry_id: str) -> None:
        """Mark the event that will be processed alone; "" removes the mark."""
        now_us = self._now_us()
        await self._owner_step("mark", place, token, epoch, entry_id=entry_id, now_us=now_us)

    async def quarantine(self, place: PartitionPlace, token: int, epoch: str, reason: str) -> None:
        """Stop the partition until it is unquarantined."""
        await self._owner_step("quarantine", place, token, epoch, reason=reason)

    async def accept(self, place: PartitionPlace, token: int) -> str:
        """Accept the data of Redis after a loss; return the new offset."""
        answer = await self.run("unquarantine", place.keys, **place.args, token=str(token))
        refusals.check(place, token, answer)
        return text(answer[2])

    async def look(self, place: PartitionPlace, max_counted: int = MAX_COUNTED) -> Look:
        """Return a snapshot of a processor in one partition.

        If Redis has lost the counters, at most `max_counted` events are counted behind the offset.
        """
        answer = await self.run("look", place.keys, **place.args, max_counted=max_counted)
        at, offsets, lag, first, length, lost, size, oldest, ms, bytes_kept, held, removed = answer
        return Look(
            position=Position.of(place, at, offsets), lag=lag, first=text(first), length=length,
            lost=int(lost),
            lowest=min(map(text, offsets[1::2]), key=entry_ids.order, default=""),
            size=int(size), oldest=text(oldest), retention=Retention(int(ms), int(bytes_kept)),
            held=held, removed=removed,
        )  # fmt: skip

    async def position(self, place: PartitionPlace) -> Position:
        """Return the state of a processor in one partition."""
        return Position.of(place, *await self.run("look", place.keys[:3]))

    async def lag(self, place: PartitionPlace, max_counted: int = MAX_COUNTED) -> int:
        """Return how many events lie behind the offset, see `look`."""
        return (await self.look(place, max_counted)).lag

    async def registered(self, names: PartitionNames) -> dict[str, str]:
        """Return the offset of each processor that trimming waits for."""
        with explained(self.server, names.offsets):
            fields = await self.redis.hgetall(names.offsets)
        offsets = {text(key): text(value) for key, value in fields.items()}
        offsets.pop(stored_format.FIELD, None)
        return offsets

    async def _owner_step(
        self, name: str, place: PartitionPlace, token: int, epoch: str, **args: str
    ) -> None:
        """Run an owner's step on its hash, and raise its refusal."""
        answer = await self.run(name, [place.at], token=str(token), epoch=epoch, **args)
        refusals.check(place, token, answer)

    def _now_us(self) -> str:
        """Return a time for an owner's step, in microseconds.

        The time rises with each call, even if the clock is set back. Scripts compare it to ignore a
        step that arrives after a later step of the same owner.
        """
        self._last_step_us = max(self._last_step_us + 1, time.time_ns() // 1000)
        return str(self._last_step_us)

    def reader(self) -> AnyRedis:
        """Return a client for blocking reads.

        It has a connection of its own. On a cluster it is the store's client.
        """
        client = self.redis if isinstance(self.redis, RedisCluster) else self.redis.client()
        client.set_response_callback("XREAD", _as_sent)  # redis-py makes a dict of each entry
        return client

    async def read(
        self, client: AnyRedis, positions: Mapping[str, str], count: int, *, waits: bool = True
    ) -> list[tuple[str, list[RawEntry]]]:
        """Read the entries behind positions.

        It reads at most `count` entries of each stream, by the client that `reader` returned. If
        there are no entries and `waits` is true, it waits for up to a second.
        """
        streams: Any = positions
        with explained(self.server):
            block = self._block_ms if waits else None
            answer: Any = await client.xread(streams, count=count, block=block)
        pairs = answer.items() if isinstance(answer, dict) else answer
        return [(text(key), entries) for key, entries in pairs or ()]


def _as_sent(response: Any, **kwargs: Any) -> Any:  # noqa: ARG001 - as redis-py asks for it
    return response
