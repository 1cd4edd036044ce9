"""Connect the source and the sink to Redis with one client per process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rink.errors import RinkError, StateError
from rink.redis import partition_count
from rink.redis.blocking_client import (
    BlockingRedis,
    checked,
    client_of,
    run_scripts,
    server_of,
    settings_copy_of,
)
from rink.redis.error_map import explained
from rink.redis.errors import RedisUnavailable
from rink.redis.partition_count import PartitionCount
from rink.redis.reply_text import refuse_decoding
from rink.redis.scripts import Args, ScriptCall
from rink.spark.options import StreamPlace, named
from rink.spark.redis_retry import repeat_while_unavailable
from rink.spark.scripts import script

log = logging.getLogger("rink.spark")

T = TypeVar("T")
StepInput = tuple[Sequence[str], Args] | tuple[Sequence[str], Args, Sequence[bytes]]
"""The keys and the named arguments of one script call, and optionally its byte strings."""

_made: dict[tuple[int, str, float], RedisConnection] = {}


class RedisConnection:
    """Run Rink's scripts with a client of redis-py, and raise Rink's errors.

    A call is repeated for `patience` seconds while Redis does not answer. So every call must be
    safe to repeat.
    """

    def __init__(self, client: BlockingRedis, patience: float) -> None:
        refuse_decoding(settings_copy_of(client))
        client.set_response_callback("XRANGE", lambda answer, **_: answer)
        self.client = client
        self.is_cluster = isinstance(client, redis.RedisCluster)
        self.server = server_of(client)
        self._patience = patience

    def run(
        self, name: str, keys: Sequence[str], blobs: Sequence[bytes] = (), /, **args: object
    ) -> Any:
        """Run a script and return its reply."""
        return self.run_each(name, [(keys, args, blobs)])[0]

    def run_each(self, name: str, steps: Sequence[StepInput]) -> list[Any]:
        """Run a script for several partitions, in one round trip if possible.

        Raises:
            RedisUnavailable: Redis did not answer for longer than `patience`.
            RedisError, StateError: see `rink.redis.error_map`.
        """
        return self._run([ScriptCall(script(name), *step) for step in steps])

    def run_for(self, name: str, steps: Mapping[int, StepInput]) -> dict[int, Any]:
        """Run a script for each partition; return its replies by partition."""
        return dict(zip(steps, self.run_each(name, list(steps.values())), strict=True))

    def _run(self, calls: Sequence[ScriptCall]) -> list[Any]:
        keys = calls[0].keys if calls else ()
        return self.repeated(lambda: run_scripts(self.client, calls), *keys)

    def repeated(self, call: Callable[[], T], *keys: str) -> T:
        """Repeat a call until Redis answers, and raise Rink's errors."""

        def explain() -> T:
            with explained(self.server, *keys):
                return call()

        return repeat_while_unavailable(self._patience, explain)

    def partition_count(self, place: StreamPlace) -> int:
        """Return the stream's number of partitions, or raise StateError."""
        return self._count_of(place, self._settled(place))

    def hasher(self, place: StreamPlace) -> str:
        """Return the fingerprint of the stream's hasher in Redis; "" if built in."""
        stored = self._settled(place)
        return stored.hasher if stored else ""

    def settle_count(self, place: StreamPlace) -> None:
        """Check that Redis has the same number of partitions and hasher.

        The first program writes them. Call this method before any other write.

        Raises:
            StateError: Redis has other values, or neither Redis nor the app knows the stream.
        """
        stored, declared = self._settled(place), _declared(place)
        self._count_of(place, stored)
        # Write only if no program has written the values. If Redis is out of memory, it also
        # refuses a write that changes nothing.
        if stored is None and declared is not None:
            self._run([declared.settle(place.names.about)])
            self.partition_count(place)

    def _settled(self, place: StreamPlace) -> PartitionCount | None:
        about = place.names.about
        reply = self.repeated(lambda: self.client.hmget(about, *partition_count.FIELDS), about)
        return partition_count.stored(reply, self.server, about)

    def _count_of(self, place: StreamPlace, stored: PartitionCount | None) -> int:
        about, declared = place.names.about, _declared(place)
        if stored is not None and declared is not None:
            partition_count.check_same(stored, declared, str(place), self.server, about)
        settled = stored or declared
        if settled is None:
            raise StateError(
                f"Redis at {self.server} has no {place}: there is no key {about!r}. Check app, "
                "stream and redis. A stream exists once an event was sent, or once a worker of "
                "the app has run",
                key=about,
            )
        return settled.count


def connection(place: StreamPlace) -> RedisConnection:
    """Return this process's connection for a server and a patience."""
    key = (os.getpid(), place.redis, place.patience)  # a forked child makes its own connection
    connection = _made.get(key)
    if connection is None:
        text = place.redis
        client: BlockingRedis
        if "://" in text:
            client = client_of(text, Retry(NoBackoff(), 0))
        else:
            client = checked(named(text, "redis")(), f"the option redis={text!r}")
        connection = _made[key] = RedisConnection(client, place.patience)
    return connection


def clear_after(error: Exception, clear: Callable[[], None]) -> None:
    """Remove the data of a failed call from Redis, and log if that fails.

    Do nothing if Redis does not answer, since waiting again would take as long.
    """
    if isinstance(error, RedisUnavailable):
        return
    try:
        clear()
    except RinkError as other:
        log.warning("a failed step left data in Redis, which could not be removed: %s", other)


def _declared(place: StreamPlace) -> PartitionCount | None:
    stream = place.declared()
    return PartitionCount(stream.partition_count, stream.hasher) if stream else None
