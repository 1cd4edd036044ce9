"""Connect a guard to Redis, with Rink's scripts and errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, cast

import attrs
import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import MovedError
from redis.retry import Retry

from rink.errors import ConfigError
from rink.redis.blocking_client import (
    BlockingRedis,
    checked,
    client_of,
    close_idle,
    run_scripts,
    server_of,
)
from rink.redis.error_map import explained
from rink.redis.reply_text import text
from rink.redis.scripts import Script, ScriptCall, compose, read

ConnectBlocking = Callable[[], BlockingRedis]

MAX_STEP_KEYS = 1_000
"""The largest number of keys for which one script call raises the fence."""


@cache
def script(name: str) -> Script:
    """Return a script of this package. Without memory, only `part` fails."""
    return compose([read(__package__, name)], "" if name == "part" else "allow-oom")


@attrs.frozen
class CommandSpec:
    """Hold Redis' description of a command: its words, keys and flags."""

    arity: int
    flags: frozenset[str]
    first: int
    last: int
    step: int

    def keys(self, words: Sequence[bytes]) -> list[bytes]:
        """Return the keys in the words, or only some if `movablekeys` is set."""
        if self.first == 0:
            return []
        last = self.last if self.last >= 0 else len(words) + self.last
        return list(words[self.first : last + 1 : max(self.step, 1)])

    def fits(self, words: Sequence[bytes]) -> bool:
        """Return whether the command allows this number of words."""
        return len(words) == self.arity if self.arity > 0 else len(words) >= -self.arity


class GuardConnection:
    """Run a guard's scripts with a blocking client of redis-py."""

    def __init__(self, client: BlockingRedis) -> None:
        self.client = client
        self.is_cluster = isinstance(client, redis.RedisCluster)
        self.server = server_of(client)
        self.encoder = client.get_encoder()
        self._commands: dict[str, CommandSpec] = {}

    def slot(self, key: str | bytes) -> int:
        """Return the slot of a key; 0 if Redis is not a cluster."""
        if isinstance(self.client, redis.RedisCluster):
            return int(cast("Any", self.client).keyslot(key))
        return 0

    def run(
        self, name: str, keys: Sequence[str | bytes], blobs: Sequence[bytes] = (), /, **args: object
    ) -> list[str]:
        """Run one script. It must be repeatable, since redis-py may repeat it."""
        call = ScriptCall(script(name), keys, args, blobs)
        with self.explain_redis_errors(text(keys[0])):
            [reply] = run_scripts(self.client, [call])
        return [text(word) for word in reply]

    def run_on_all(self, name: str, keys: Sequence[str], **args: object) -> list[str]:
        """Run a script for many keys; return the first failure, or ["ok"]."""
        by_slot: dict[int, list[str]] = {}
        for key in keys:
            by_slot.setdefault(self.slot(key), []).append(key)
        for some in by_slot.values():
            for i in range(0, len(some), MAX_STEP_KEYS):
                reply = self.run(name, some[i : i + MAX_STEP_KEYS], **args)
                if reply[0] != "ok":
                    return reply
        return ["ok"]

    def fields(self, key: str, *fields: str) -> list[str | None]:
        """Return the values of some fields of a hash; None if a field is missing."""
        with self.explain_redis_errors(key):
            values = cast("Any", self.client).hmget(key, *fields)
        return [None if value is None else text(value) for value in values]

    def command(self, words: Sequence[bytes]) -> CommandSpec | None:
        """Return Redis' description of a command; None if it is unknown."""
        if not self._commands:
            with explained(self.server):
                self._commands = _table(cast("dict[str, Any]", self.client.command()))
        name = words[0].decode(errors="replace").lower()
        if len(words) > 1:
            spec = self._commands.get(f"{name}|{words[1].decode(errors='replace').lower()}")
            if spec:
                return spec
        return self._commands.get(name)

    @contextlib.contextmanager
    def explain_redis_errors(self, *keys: str) -> Iterator[None]:
        """Translate errors of redis-py inside the block to Rink's errors."""
        with explained(self.server, *keys):
            try:
                yield
            except MovedError as error:
                raise ConfigError(
                    f"Redis at {self.server} is a node of a cluster: give the guard a function "
                    "that returns a redis.RedisCluster, instead of a URL"
                ) from error

    def close(self) -> None:
        """Close idle connections. Parts of other guards may use the others."""
        close_idle(self.client)


def connected(source: str | ConnectBlocking) -> GuardConnection:
    """Return a connection to the Redis of a URL or of a user's function."""
    if isinstance(source, str):
        retry = Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), 3)
        return GuardConnection(client_of(source, retry))
    return GuardConnection(checked(source(), "the function given as redis"))


def _spec(arity: Any, flags: Any, first: Any, last: Any, step: Any) -> CommandSpec:
    return CommandSpec(int(arity), frozenset(map(text, flags)), int(first), int(last), int(step))


def _table(reply: dict[str, Any]) -> dict[str, CommandSpec]:
    table = {}
    for name, known in reply.items():
        places = known["first_key_pos"], known["last_key_pos"], known["step_count"]
        table[name] = _spec(known["arity"], known["flags"], *places)
        for sub in known.get("subcommands") or ():
            table[text(sub[0])] = _spec(*sub[1:6])
    return table
