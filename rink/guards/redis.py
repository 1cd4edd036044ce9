"""Guard keys in Redis.

One Lua script checks the fence, runs the commands of a part, and marks the part. For a fence
`flights`, under the default prefix, Redis holds:

    rink:guard:flights      the fence, the number of parts of each query, the maximum of them
    rink:guard:{flights/3}  for part 3: the fence again, the mark of each query, the progress of a
                            part that failed

A script sees one slot only, so the fence is stored with each part. `begin` first stores the query's
number of parts in the first hash, and refuses a stale token in the same script. Then it opens the
hashes of the parts. So `raise_fence` reads in the first hash how many part hashes there may be, and
raises the fence in each of them before it returns. A single server works like a cluster, but one
script call raises up to 1,000 fences.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from rink.arguments import check_count
from rink.core.keys import encode_name
from rink.errors import ConfigError, StateError
from rink.guards.errors import GuardError
from rink.guards.guard import Guard, Part, check_told, cut_otherwise
from rink.guards.guard_connection import ConnectBlocking, GuardConnection, connected
from rink.guards.processes import PerProcess
from rink.guards.redis_step import CommandBounds, RedisStep, command_text
from rink.guards.values import Batch, Fence
from rink.plural import plural

MAX_COMMANDS = 50_000
MAX_BYTES = 16 * 2**20


class RedisGuard(Guard):
    """Guard keys in Redis. The step of a part is a `RedisStep`.

    Args:
        redis: a URL, or a function without arguments that returns a blocking client of redis-py
            (Redis or RedisCluster). The function must be picklable.
        prefix: the beginning of the guard's own keys. If it has a hash tag (`{flights}:guard:`),
            all these keys, and so all data, lie in one slot of a cluster.
        most_commands: the maximum number of commands in one step. A step with 50,000 commands
            blocks Redis for about 0.1 s.
        most_bytes: the maximum size of one step, in bytes.
    """

    def __init__(
        self,
        redis: str | ConnectBlocking,
        *,
        prefix: str = "rink:guard:",
        most_commands: int = MAX_COMMANDS,
        most_bytes: int = MAX_BYTES,
    ) -> None:
        if isinstance(redis, str):
            if not redis.startswith(("redis://", "rediss://", "unix://")):
                raise ConfigError("a URL of Redis begins with redis://, rediss:// or unix://")
        elif not callable(redis):
            raise ConfigError(
                "redis must be a URL or a function that returns a client, not "
                f"{type(redis).__name__}: a client cannot be pickled to where parts are written"
            )
        self._source = redis
        self._prefix, self._tag = _checked(prefix)
        self._bounds = CommandBounds(
            check_count("most_commands", most_commands), check_count("most_bytes", most_bytes)
        )
        # A function can only be identified by its name, and another function may get it later.
        self._own: PerProcess[GuardConnection] = (
            PerProcess.of("redis", redis) if isinstance(redis, str) else PerProcess()
        )

    def raise_fence(self, fence: Fence) -> None:  # noqa: D102 - see Guard
        check_told(fence)
        connection = self._connection()
        reply = connection.run("begin", [self._key(fence)], token=str(fence.token))
        self._refuse(fence, None, reply)
        self._open(connection, fence, int(reply[1]))

    def begin(self, fence: Fence, batch: Batch) -> None:  # noqa: D102
        check_told(fence, batch)
        connection = self._connection()
        reply = connection.run(
            "begin", [self._key(fence)],
            token=str(fence.token), query=encode_name(batch.query), parts=str(batch.parts),
        )  # fmt: skip
        self._refuse(fence, batch, reply)
        # Open the parts each time. This restores hashes that Redis lost (by a failover or
        # FLUSHALL). Otherwise the guard would refuse the query forever.
        self._open(connection, fence, batch.parts)

    def part(self, fence: Fence, batch: Batch, number: int) -> Part[RedisStep]:  # noqa: D102
        return _RedisPart(self, fence, batch, number)

    def finish(self, fence: Fence, batch: Batch, results: object) -> None:  # noqa: ARG002, D102
        check_told(fence, batch)
        [seen] = self._connection().fields(self._key(fence), "fence")
        if seen is not None and int(seen) > fence.token:
            raise fence.stale(int(seen), self._place())

    def close(self) -> None:  # noqa: D102
        if connection := self._own.take():
            connection.close()

    def __repr__(self) -> str:
        return f"<RedisGuard {self._prefix!r}>"

    def _connection(self) -> GuardConnection:
        return self._own.get(lambda: connected(self._source))

    def _place(self) -> str:
        return f"Redis at {self._connection().server}"

    def _key(self, fence: Fence) -> str:
        return self._prefix + encode_name(fence.name)

    def _of_part(self, fence: Fence, number: int) -> str:
        return f"{self._prefix}{{{encode_name(fence.name)}/{number}}}"

    def _open(self, connection: GuardConnection, fence: Fence, parts: int) -> None:
        keys = [self._of_part(fence, number) for number in range(parts)]
        self._refuse(fence, None, connection.run_on_all("open", keys, token=str(fence.token)))

    def _refuse(self, fence: Fence, batch: Batch | None, reply: Sequence[str]) -> None:
        match reply:
            case ["stale", newer]:
                raise fence.stale(int(newer), self._place())
            case ["cut", stored] if batch is not None:
                raise cut_otherwise(batch, int(stored), self._place())


class _RedisPart(Part[RedisStep]):
    def __init__(self, guard: RedisGuard, fence: Fence, batch: Batch, number: int) -> None:
        super().__init__(fence, batch, number)
        self._guard = guard
        self._at = guard._of_part(fence, number)  # noqa: SLF001 - of this module
        self._query = encode_name(batch.query)

    def _open(self) -> RedisStep | None:
        connection = self._guard._connection()  # noqa: SLF001
        fence, mark = connection.fields(self._at, "fence", f"mark:{self._query}")
        self._before(None if fence is None else int(fence), self._guard._place())  # noqa: SLF001
        self.written = None if mark is None else int(mark)
        if self._is_written():
            return None
        tag = self._guard._tag or f"{encode_name(self.fence.name)}/{self.number}"  # noqa: SLF001
        bounds = self._guard._bounds  # noqa: SLF001
        return RedisStep(connection, self._at, tag, self._guard._prefix, bounds)  # noqa: SLF001

    def _commit(self, step: RedisStep) -> None:
        connection, place = self._guard._connection(), self._guard._place()  # noqa: SLF001
        reply = connection.run(
            "part", [self._at, *step.keys_written], list(chain.from_iterable(step.commands)),
            token=str(self.fence.token), query=self._query, batch=str(self.batch.number),
            digest=step.close(), lengths=list(map(len, step.commands)),
        )  # fmt: skip
        match reply:
            case ["stale", newer]:
                raise self.fence.stale(int(newer), place)
            case ["unknown", seen]:
                self._before(int(seen) if seen else None, place)
            case ["torn", how]:
                raise self._torn(place, how)
            case ["failed", done, why]:
                raise self._failed(place, step, int(done), why)

    def _abandon(self, step: RedisStep, error: BaseException) -> None:  # noqa: ARG002
        step.close()

    def _failed(self, place: str, step: RedisStep, done: int, why: str) -> GuardError:
        applied = (
            "nothing was written"
            if done == 0
            else "earlier commands of this part that were carried out and will not be repeated: "
            f"{done}. The same part continues after them"
        )
        return GuardError(
            f"{place}, key {self._at!r}: command {done + 1} of {len(step.commands)}, "
            f"{command_text(step.commands[done])}, failed: {why}; {applied}. Part {self.number} of "
            f"batch {self.batch.number} is not marked: correct the data under the key, and write "
            "the part again",
            place=f"{place}, key {self._at!r}",
        )

    def _torn(self, place: str, how: str) -> StateError:
        batch, _, done = how.split(" ")
        return StateError(
            f"{place}, key {self._at!r}: batch {batch} of query {self.batch.query!r} stopped at a "
            f"command that failed, after {done} {plural(int(done), 'command')}. This part (batch "
            f"{self.batch.number}) has other commands, so it cannot continue there. Correct the "
            f"data by hand, then HDEL the field {'torn:' + self._query!r}",
            key=self._at,
        )


def _checked(prefix: object) -> tuple[str, str]:
    """Return the prefix and its hash tag ("" if it has none)."""
    if not isinstance(prefix, str) or not prefix or not prefix.isprintable():
        raise ConfigError(f"prefix must be a str of at least one character, not {prefix!r}")
    before, opened, rest = prefix.partition("{")
    tag, closed, after = rest.partition("}")
    if "}" in before or (opened and not (tag and closed)) or "{" in tag + after or "}" in after:
        raise ConfigError(
            f"prefix {prefix!r}: braces must be one hash tag: one pair, with text in it"
        )
    return prefix, tag
