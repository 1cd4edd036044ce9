"""A blocking Redis for source and sink: one client for each process, steps that are repeated while it is away."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis
import tenacity
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from rink.errors import ConfigError, RinkError, StateError
from rink.spark.options import Place, named
from rink.spark.scripts import script
from rink.streams import layout
from rink.streams.blocking import Client, checked, client_of, server_of, settings_of
from rink.streams.errors import RedisUnavailable
from rink.streams.faults import explained
from rink.streams.hashers import other_hasher

log = logging.getLogger("rink.spark")

T = TypeVar("T")
Asked = tuple[Sequence[str], Sequence[Any]]
"""The keys and the arguments of one step."""

_made: dict[tuple[int, str, float], Connection] = {}


class Connection:
    """A client of redis-py's with our scripts and our errors.

    Args:
        client: a blocking one.
        patience: seconds that a call is repeated while Redis is away. All calls may be repeated.
    """

    def __init__(self, client: Client, patience: float) -> None:
        if settings_of(client).get("decode_responses"):
            raise ConfigError(
                "the Redis client has decode_responses=True: records are bytes, so make it without"
            )
        client.set_response_callback("XRANGE", lambda found, **_: found)
        self.client = client
        self.is_cluster = isinstance(client, redis.RedisCluster)
        self.server = server_of(client)
        self._patience = patience

    def run(self, name: str, keys: Sequence[str], *given: Any) -> Any:
        """Run one step."""
        return self.run_each(name, [(keys, given)])[0]

    def run_each(self, name: str, asked: Sequence[Asked]) -> list[Any]:
        """Run a step for each of several partitions, in one round trip where there is one server.

        Raises:
            RedisUnavailable: it is away for longer than we are patient.
            RedisError, StateError: as `rink.streams` raises them.
        """
        step = script(name)

        def send() -> list[Any]:
            try:
                return self._send([("EVALSHA", step.sha, *_flat(one)) for one in asked])
            except NoScriptError:
                # Steps may be repeated, so those that were carried out are, too.
                return self._send([("EVAL", step.text, *_flat(one)) for one in asked])

        return self.repeated(send, *(asked[0][0] if asked else ()))

    def repeated(self, call: Callable[[], T], *keys: str) -> T:
        """Call until Redis answers, or patience is over; its errors are ours."""

        def explain() -> T:
            with explained(self.server, *keys):
                return call()

        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(RedisUnavailable),
            stop=tenacity.stop_after_delay(self._patience),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        ):
            with attempt:
                return explain()
        raise AssertionError("tenacity returns or raises")

    def partition_count(self, place: Place) -> int:
        """Return how many partitions the stream has.

        Raises:
            StateError: Redis knows no such stream.
        """
        return self._count_of(place, *self._stored(place))

    def hasher(self, place: Place) -> str:
        """Return the fingerprint of the stream's hasher in Redis.

        "" for the built-in one.
        """
        return self._stored(place)[1]

    def _stored(self, place: Place) -> tuple[Any, str]:
        """Return the stream's number of partitions, or None, and its hasher."""
        about = place.names.about
        found, known, hasher = self.repeated(
            lambda: self.client.hmget(about, "partitions", layout.FIELD, "hasher"), about
        )
        if found is not None and _text(known) != layout.FORMAT:
            raise layout.other_format(self.server, about, _text(known))
        return found, _text(hasher)

    def _count_of(self, place: Place, found: Any, hasher: str) -> int:
        about, declared = place.names.about, place.declared()
        if found is None and declared is None:
            raise StateError(
                f"Redis at {self.server} has no {place}: no key {about!r}. Check app, stream and redis; a "
                "stream is there once something was sent, or a worker of the app has run",
                key=about,
            )
        count = int(found) if found is not None else declared.partition_count if declared else 0
        if declared is not None and declared.partition_count != count:
            raise StateError(
                f"{place} has {count} partitions in Redis at {self.server} (key {about!r}), and "
                f"{declared.partition_count} as {place.app} declares it: use {count}, or another stream",
                key=about,
            )
        if declared is not None and found is not None and declared.hasher != hasher:
            raise other_hasher(str(place), self.server, about, hasher, declared.hasher)
        return count

    def settle_count(self, place: Place) -> None:
        """Check that Redis has the same number of partitions and hasher.

        The first program writes them. It is called before anything else is written.

        Raises:
            StateError: as of `partition_count`.
        """
        found, hasher = self._stored(place)
        count, declared = self._count_of(place, found, hasher), place.declared()
        # Only where nobody has: a write that changes nothing is refused, too, while Redis is out of memory.
        if found is None:
            self.run("settle", [place.names.about], count, declared.hasher if declared else "")
            self.partition_count(place)

    def _send(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        if self.is_cluster or len(commands) == 1:
            return [self.client.execute_command(*one) for one in commands]  # type: ignore[no-untyped-call]
        with self.client.pipeline(transaction=False) as pipeline:
            for one in commands:
                pipeline.execute_command(*one)
            return list(pipeline.execute())


def connection(place: Place) -> Connection:
    """Return this process's connection to a server, for one patience; a forked child makes its own."""
    key = (os.getpid(), place.redis, place.patience)
    found = _made.get(key)
    if found is None:
        found = _made[key] = Connection(_client(place.redis), place.patience)
    return found


def clear_after(error: Exception, clear: Callable[[], None]) -> None:
    """Remove what a failed step left in Redis; log what goes wrong here.

    It does nothing if Redis is away, since that would take as long again.
    """
    if isinstance(error, RedisUnavailable):
        return
    try:
        clear()
    except RinkError as other:
        log.warning("a failed step left data in Redis, which could not be removed: %s", other)


def _client(text: str) -> Client:
    if "://" not in text:
        return checked(named(text, "redis")(), f"the option redis={text!r}")
    return client_of(text, Retry(NoBackoff(), 0))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _flat(asked: Asked) -> tuple[Any, ...]:
    keys, given = asked
    return len(keys), *keys, *given
