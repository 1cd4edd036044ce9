"""How a guard speaks to Redis: one client for each process, our scripts, our errors."""

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
    Client,
    checked,
    client_of,
    close_idle,
    run_scripts,
    server_of,
)
from rink.redis.error_map import explained
from rink.redis.scripts import Script, ScriptCall, compose, read

Connect = Callable[[], Client]

KEYS_AT_ONCE = 1_000
"""Of so many keys the fence is raised in one step."""


@cache
def script(name: str) -> Script:
    """Return a script of ours; only `part` is refused while Redis is out of memory."""
    return compose([read(__package__, name)], "" if name == "part" else "allow-oom")


@attrs.frozen
class CommandSpec:
    """What Redis knows of a command: how many words it has, where keys stand among them, what it
    is.
    """

    arity: int
    flags: frozenset[str]
    first: int
    last: int
    step: int

    @classmethod
    def of(cls, arity: Any, flags: Any, first: Any, last: Any, step: Any) -> CommandSpec:
        """Return what a reply to COMMAND says."""
        return cls(int(arity), frozenset(map(text, flags)), int(first), int(last), int(step))

    def keys(self, words: Sequence[bytes]) -> list[bytes]:
        """Return the keys among the words; not all of them where `movablekeys` is a flag."""
        if self.first == 0:
            return []
        last = self.last if self.last >= 0 else len(words) + self.last
        return list(words[self.first : last + 1 : max(self.step, 1)])

    def fits(self, words: Sequence[bytes]) -> bool:
        """Return whether it may have so many words."""
        return len(words) == self.arity if self.arity > 0 else len(words) >= -self.arity


class Line:
    """A client of redis-py's, with our scripts.

    Attributes:
        client: a blocking one.
        is_cluster: whether one step is confined to one slot.
        server: where it looks for Redis, for messages.
    """

    def __init__(self, client: Client) -> None:
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

    def run(self, name: str, keys: Sequence[str | bytes], *given: Any) -> list[str]:
        """Run one step of ours; all of them may be repeated, and redis-py does."""
        call = ScriptCall(script(name), keys, given)
        with self.told(text(keys[0])), self._one_server():
            [reply] = run_scripts(self.client, [call])
        return [text(word) for word in reply]

    def run_on_all(self, name: str, keys: Sequence[str], *given: Any) -> list[str]:
        """Run a step for many keys, a slot at a time; returns the first answer that is not ok, else
        ok.
        """
        by_slot: dict[int, list[str]] = {}
        for key in keys:
            by_slot.setdefault(self.slot(key), []).append(key)
        for some in by_slot.values():
            for i in range(0, len(some), KEYS_AT_ONCE):
                said = self.run(name, some[i : i + KEYS_AT_ONCE], *given)
                if said[0] != "ok":
                    return said
        return ["ok"]

    def fields(self, key: str, *fields: str) -> list[str | None]:
        """Return some fields of a hash."""
        with self.told(key), self._one_server():
            found = cast("Any", self.client).hmget(key, *fields)
        return [None if value is None else text(value) for value in found]

    def command(self, words: Sequence[bytes]) -> CommandSpec | None:
        """Return what Redis knows of a command, or None; it is asked once for all of them."""
        if not self._commands:
            with self.told():
                self._commands = _table(cast("dict[str, Any]", self.client.command()))
        name = words[0].decode(errors="replace").lower()
        if len(words) > 1:
            found = self._commands.get(f"{name}|{words[1].decode(errors='replace').lower()}")
            if found:
                return found
        return self._commands.get(name)

    def told(self, *keys: str) -> Any:
        """Raise what redis-py raises inside as one of our errors."""
        return explained(self.server, *keys)

    def close(self) -> None:
        """Close the idle connections: another guard of the same URL may be in a part."""
        close_idle(self.client)

    @contextlib.contextmanager
    def _one_server(self) -> Iterator[None]:
        try:
            yield
        except MovedError as error:
            raise ConfigError(
                f"Redis at {self.server} is a node of a cluster: give the guard a function that "
                "returns a redis.RedisCluster, instead of a URL"
            ) from error


def connected(source: str | Connect) -> Line:
    """Make the client that a guard was told of."""
    if isinstance(source, str):
        retry = Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), 3)
        return Line(client_of(source, retry))
    return Line(checked(source(), "the function given as redis"))


def text(value: Any) -> str:
    """Return what Redis said as text, whether the client decodes or not."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _table(said: dict[str, Any]) -> dict[str, CommandSpec]:
    table = {}
    for name, known in said.items():
        places = known["first_key_pos"], known["last_key_pos"], known["step_count"]
        table[name] = CommandSpec.of(known["arity"], known["flags"], *places)
        for sub in known.get("subcommands") or ():
            table[text(sub[0])] = CommandSpec.of(*sub[1:6])
    return table
