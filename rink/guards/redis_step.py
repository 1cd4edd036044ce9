"""What is recorded in a part of a RedisGuard: redis-py's methods, each checked when it is called,
none sent.

What Redis would refuse in the middle of a step is refused here where it can be known: unknown
commands, too few words, what scripts cannot run, keys of another slot. What cannot be known is what
lies under the keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Self

import attrs
from redis.commands.core import CoreCommands
from redis.exceptions import DataError

from rink.errors import ConfigError, UsageError
from rink.guards.redis_line import CommandSpec, Line
from rink.redis.errors import CrossSlot

WORDS_LIMIT = 7_000
"""So many words a command may have: Lua's `unpack` takes no more than 8,000."""

_PUBLISHING = {b"PUBLISH", b"SPUBLISH"}
"""These write nothing and may be in a step: they are sent once, with it."""

_ELSEWHERE = {b"MIGRATE", b"MOVE", b"SWAPDB"}
"""These reach out of this database."""


@attrs.frozen
class CommandBounds:
    """How much one step may hold: Redis does nothing else while it is carried out."""

    commands: int
    bytes: int


class RedisStep(CoreCommands):
    """Records the commands of one part: `step.hincrby("carriers", "AA", 3)`; each method returns
    the step.

    All go to Redis in one piece when the part is left. So nothing can be read here: what a write
    depends on must be in the batch, or be a command that does it (HINCRBY, SET … NX, ZADD … GT).

    Attributes:
        tag: the hash tag of this part: keys that hold `{tag}` lie in its slot.
    """

    _event_dispatcher: Any = None  # a client of redis-py's has one

    def __init__(self, line: Line, at: str, tag: str, prefix: str, bounds: CommandBounds) -> None:
        self._line, self._bounds = line, bounds
        self._slot, self._own = line.slot(at), prefix.encode()
        self.tag = tag
        self.commands: list[list[bytes]] = []
        self.keys_written: dict[bytes, None] = {}
        self._size = 0
        self._digest = hashlib.sha256()
        self._is_open = True

    def key(self, name: str) -> str:
        """Return a key of that name in this part's slot, which a cluster asks of all keys of a
        step.
        """
        return f"{{{self.tag}}}:{name}"

    def execute_command(self, *args: Any, **_: Any) -> Self:
        """Record a command, given as its words; redis-py's methods call this."""
        if not self._is_open:
            raise UsageError("this part is over: a step takes commands inside its `with` only")
        words = self._encoded(args)
        known = self._line.command(words)
        shown = _shown(words)
        self._check(known, words, shown)
        self._count(words, shown)
        assert known is not None
        self._check_keys(known, words, shown)
        self.commands.append(words)
        return self

    def close(self) -> str:
        """Take no more; returns a digest of all commands."""
        self._is_open = False
        return self._digest.hexdigest()

    def get_encoder(self) -> Any:
        """Return redis-py's encoder; some of its methods ask for it."""
        return self._line.encoder

    def _encoded(self, args: Sequence[Any]) -> list[bytes]:
        if not args:
            raise UsageError("no command was given")
        first, *rest = args
        name = self._line.encoder.encode(first).upper().split()
        try:
            return [*map(bytes, name), *(bytes(self._line.encoder.encode(one)) for one in rest)]
        except DataError as error:
            raise ConfigError(f"{first} {rest[0] if rest else ''!r}: {error}") from error

    def _check(self, known: CommandSpec | None, words: Sequence[bytes], shown: str) -> None:
        if known is None:
            raise UsageError(f"{shown}: Redis at {self._line.server} knows no such command")
        if not known.fits(words):
            raise UsageError(f"{shown}: {len(words) - 1} arguments are not as many as it takes")
        if len(words) > WORDS_LIMIT:
            raise UsageError(
                f"{shown}: {len(words)} words, and a command in a step has {WORDS_LIMIT} at most: "
                "make several of it"
            )
        if words[0] in _PUBLISHING:
            return
        if known.flags & {"noscript", "blocking"} or words[0] in _ELSEWHERE:
            raise UsageError(f"{shown}: Redis cannot run it in one step with the rest")
        if "write" not in known.flags or not known.first:
            raise UsageError(
                f"{shown}: a step is sent when the part is left, so it cannot read or ask; it "
                "writes keys"
            )

    def _check_keys(self, known: CommandSpec, words: Sequence[bytes], shown: str) -> None:
        keys = known.keys(words)
        if any(key.startswith(self._own) for key in keys):
            raise UsageError(
                f"{shown}: keys that begin with {self._own.decode()!r} are the guard's own"
            )
        if not self._line.is_cluster:
            return
        if "movablekeys" in known.flags:
            raise CrossSlot(
                f"{shown}: on a cluster a step takes no command whose keys stand anywhere"
            )
        for key in keys:
            if self._line.slot(key) != self._slot:
                raise CrossSlot(
                    f"{shown}: on a cluster all keys of a part lie in its slot: write "
                    f"step.key({key.decode(errors='replace')!r}), or give the guard a prefix with "
                    "a hash tag, such as '{flights}:guard:', and all keys the same tag"
                )
            self.keys_written[key] = None

    def _count(self, words: Sequence[bytes], shown: str) -> None:
        self._size += sum(map(len, words))
        if len(self.commands) >= self._bounds.commands or self._size > self._bounds.bytes:
            raise UsageError(
                f"{shown}: more than {self._bounds.commands} commands or {self._bounds.bytes} "
                "bytes in one step, and Redis does nothing else meanwhile: cut the batch into "
                "more parts, add up before writing, or raise most_commands or most_bytes of the "
                "guard"
            )
        for word in (b"%d" % len(words), *words):
            self._digest.update(b"%d:" % len(word))
            self._digest.update(word)


def _shown(words: Sequence[bytes]) -> str:
    """A command for messages: its name and its first word; values are the user's."""
    return " ".join(
        [
            words[0].decode(errors="replace"),
            *(repr(one.decode(errors="replace")[:100]) for one in words[1:2]),
        ]
    )


def shown(words: Sequence[bytes]) -> str:
    """Return a command for messages."""
    return _shown(words)
