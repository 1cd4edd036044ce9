"""Connect a guard to Redis, with our scripts and our errors."""

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
"""The most keys for which one step raises the fence."""


@cache
def script(name: str) -> Script:
    """Return a script of ours; if Redis is out of memory, only `part` fails."""
    return compose([read(__package__, name)], "" if name == "part" else "allow-oom")


@attrs.frozen
class CommandSpec:
    """A command as Redis describes it: its words, its keys and its flags."""

    arity: int
    flags: frozenset[str]
    first: int
    last: int
    step: int

    def keys(self, words: Sequence[bytes]) -> list[bytes]:
        """Return the keys among the words; with `movablekeys` not all of them."""
        if self.first == 0:
            return []
        last = self.last if self.last >= 0 else len(words) + self.last
        return list(words[self.first : last + 1 : max(self.step, 1)])

    def fits(self, words: Sequence[bytes]) -> bool:
        """Return whether the command may have so many words."""
        return len(words) == self.arity if self.arity > 0 else len(words) >= -self.arity


class GuardConnection:
    """A blocking client of redis-py, with our scripts."""

    def __init__(self, client: BlockingRedis) -> None:
        self.client = client
        self.is_cluster = isinstance(client, redis.RedisCluster)
        self.server = server_of(client)
        self.encoder = client.get_encoder()
        self._commands: dict[str, CommandSpec] = {}

    def slot(self, key: str | bytes) -> int:
        """Return the slot of a key; one server is one slot."""
        if isinstance(self.client, redis.RedisCluster):
            return int(cast("Any", self.client).keyslot(key))
        return 0

    def run(
        self, name: str, keys: Sequence[str | bytes], blobs: Sequence[bytes] = (), /, **args: object
    ) -> list[str]:
        """Run one step of ours; redis-py may repeat it, so it must be repeatable."""
        call = ScriptCall(script(name), keys, args, blobs)
        with self.explain_redis_errors(text(keys[0])):
            [reply] = run_scripts(self.client, [call])
        return [text(word) for word in reply]

    def run_on_all(self, name: str, keys: Sequence[str], **args: object) -> list[str]:
        """Run a step for many keys; return the first answer but ok, else ok."""
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
        """Return some fields of a hash."""
        with self.explain_redis_errors(key):
            values = cast("Any", self.client).hmget(key, *fields)
        return [None if value is None else text(value) for value in values]

    def command(self, words: Sequence[bytes]) -> CommandSpec | None:
        """Return Redis' description of a command, or None; it is read once."""
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
        """Raise errors of redis-py inside as errors of ours."""
        with explained(self.server, *keys):
            try:
                yield
            except MovedError as error:
                raise ConfigError(
                    f"Redis at {self.server} is a node of a cluster: give the guard a function "
                    "that returns a redis.RedisCluster, instead of a URL"
                ) from error

    def close(self) -> None:
        """Close idle connections; another guard of the same URL may be in a part."""
        close_idle(self.client)


def connected(source: str | ConnectBlocking) -> GuardConnection:
    """Make the client of a guard."""
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
