"""Record the commands of a part of a RedisGuard.

A call of a redis-py method is checked and recorded, but not sent. Most commands that Redis would
refuse in the middle of a step are refused here: unknown commands, wrong numbers of words, commands
that scripts cannot run, keys of another slot. The data under the keys cannot be checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Self

import attrs
from redis.commands.core import CoreCommands
from redis.exceptions import DataError

from rink.errors import ConfigError, UsageError
from rink.guards.guard_connection import CommandSpec, GuardConnection
from rink.redis.errors import CrossSlot

WORDS_LIMIT = 7_000
"""The maximum number of words of a command. Lua's `unpack` returns at most 8,000 values."""

_PUBLISHING = {b"PUBLISH", b"SPUBLISH"}
"""Commands that write no key, but may be in a step: they run once, with the step."""

_ELSEWHERE = {b"MIGRATE", b"MOVE", b"SWAPDB"}
"""Commands that write to another database or server."""


@attrs.frozen
class CommandBounds:
    """Limit the size of a step, since Redis serves no other client meanwhile."""

    commands: int
    bytes: int


class RedisStep(CoreCommands):
    """Record the commands of one part: `step.hincrby("carriers", "AA", 3)`.

    Each method returns the step. All commands go to Redis together when the part is left. So a step
    cannot read. The data for a write must be in the batch, or the command must compute it (HINCRBY,
    SET … NX, ZADD … GT).

    Attributes:
        tag: the hash tag of this part. Keys that hold `{tag}` lie in the part's slot.
    """

    _event_dispatcher: Any = None  # a client of redis-py has one

    def __init__(
        self, connection: GuardConnection, at: str, tag: str, prefix: str, bounds: CommandBounds
    ) -> None:
        self._connection, self._bounds = connection, bounds
        self._slot, self._own = connection.slot(at), prefix.encode()
        self.tag = tag
        self.commands: list[list[bytes]] = []
        self.keys_written: dict[bytes, None] = {}
        self._size = 0
        self._digest = hashlib.sha256()
        self._is_open = True

    def key(self, name: str) -> str:
        """Return a key in this part's slot, as a cluster needs for all keys."""
        return f"{{{self.tag}}}:{name}"

    def execute_command(self, *args: Any, **_: Any) -> Self:
        """Record a command from its words, as redis-py's methods do."""
        if not self._is_open:
            raise UsageError("this part is over: a step takes commands only inside its `with`")
        words = self._encoded(args)
        known = self._connection.command(words)
        what = command_text(words)
        if known is None:
            raise UsageError(f"{what}: Redis at {self._connection.server} has no such command")
        self._check(known, words, what)
        self._count(words, what)
        self._check_keys(known, words, what)
        self.commands.append(words)
        return self

    def close(self) -> str:
        """Refuse further commands, and return a digest of the recorded ones."""
        self._is_open = False
        return self._digest.hexdigest()

    def get_encoder(self) -> Any:
        """Return redis-py's encoder, which some methods of redis-py need."""
        return self._connection.encoder

    def _encoded(self, args: Sequence[Any]) -> list[bytes]:
        if not args:
            raise UsageError("no command was given: give its words")
        first, *rest = args
        name = self._connection.encoder.encode(first).upper().split()
        try:
            return [
                *map(bytes, name),
                *(bytes(self._connection.encoder.encode(word)) for word in rest),
            ]
        except DataError as error:
            raise ConfigError(f"{first} {rest[0] if rest else ''!r}: {error}") from error

    def _check(self, known: CommandSpec, words: Sequence[bytes], what: str) -> None:
        if not known.fits(words):
            raise UsageError(f"{what}: {len(words) - 1} is a wrong number of arguments")
        if len(words) > WORDS_LIMIT:
            raise UsageError(
                f"{what}: {len(words)} words, but a command in a step may have {WORDS_LIMIT}: "
                "split it into several"
            )
        if words[0] in _PUBLISHING:
            return
        if known.flags & {"noscript", "blocking"} or words[0] in _ELSEWHERE:
            raise UsageError(f"{what}: Redis cannot run it in one step with the others")
        if "write" not in known.flags or not known.first:
            raise UsageError(
                f"{what}: a step is sent when the part is left, so it cannot read; it can only "
                "write keys"
            )

    def _check_keys(self, known: CommandSpec, words: Sequence[bytes], what: str) -> None:
        keys = known.keys(words)
        if any(key.startswith(self._own) for key in keys):
            raise UsageError(
                f"{what}: keys that begin with {self._own.decode()!r} are the guard's own"
            )
        if not self._connection.is_cluster:
            return
        if "movablekeys" in known.flags:
            raise CrossSlot(
                f"{what}: on a cluster, a step takes no command whose keys have no fixed place"
            )
        for key in keys:
            if self._connection.slot(key) != self._slot:
                raise CrossSlot(
                    f"{what}: on a cluster, all keys of a part must lie in its slot: write "
                    f"step.key({key.decode(errors='replace')!r}), or give the guard a prefix with "
                    "a hash tag, such as '{flights}:guard:', and all keys the same tag"
                )
            self.keys_written[key] = None

    def _count(self, words: Sequence[bytes], what: str) -> None:
        self._size += sum(map(len, words))
        if len(self.commands) >= self._bounds.commands or self._size > self._bounds.bytes:
            raise UsageError(
                f"{what}: more than {self._bounds.commands} commands or {self._bounds.bytes} "
                "bytes in one step, and Redis serves nobody else meanwhile. Cut the batch into "
                "more parts, add up before writing, or raise most_commands or most_bytes of the "
                "guard"
            )
        for word in (b"%d" % len(words), *words):
            self._digest.update(b"%d:" % len(word))
            self._digest.update(word)


def command_text(words: Sequence[bytes]) -> str:
    """Return a command's name and first word for messages, without values."""
    name, *others = (word.decode(errors="replace") for word in words[:2])
    return " ".join([name, *(repr(word[:100]) for word in others)])
