"""A guard of what lies in Redis: a part's commands, its mark and the look at the fence are one Lua
step.

What lies where, for a fence `flights` under the default prefix:

    rink:guard:flights          the fence, how many parts each query has, the most that any had
    rink:guard:{flights/3}      of part 3: the fence again, the mark of each query, how far a part got that failed

A step sees one slot only, so the fence stands with each part. `begin` tells the first hash into how
many parts a query is cut before it opens their hashes, and refuses a stale token in the same step.
So whoever raises the fence finds there how many hashes may be written, and has raised all of them
when `raise_fence` returns. One server and a cluster do the same, but that one server does it in one
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rink.arguments import check_count
from rink.core.keys import encode
from rink.errors import ConfigError, StateError
from rink.guards.errors import GuardError
from rink.guards.guard import Guard, Part, check_told, cut_otherwise
from rink.guards.processes import PerProcess
from rink.guards.redis_line import Connect, Line, connected
from rink.guards.redis_step import CommandBounds, RedisStep, shown
from rink.guards.values import Batch, Fence

MOST_COMMANDS = 50_000
MOST_BYTES = 16 * 2**20


class RedisGuard(Guard):
    """Guards keys in Redis. The step of a part is a `RedisStep`: redis-py's methods, recorded.

    Args:
        redis: a URL, or a function without arguments that returns a blocking client of redis-py's
            (Redis or RedisCluster) and that can be pickled.
        prefix: what the guard's own keys begin with. With a hash tag in it (`{flights}:guard:`) all
            of them, and so all data, lie in one slot of a cluster.
        most_commands: so many commands one step may have; 50,000 keep Redis from all else for about
            a tenth of a second.
        most_bytes: so large one step may be.
    """

    def __init__(
        self,
        redis: str | Connect,
        *,
        prefix: str = "rink:guard:",
        most_commands: int = MOST_COMMANDS,
        most_bytes: int = MOST_BYTES,
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
        # Of a function only its name could be compared, and another one may bear it later.
        self._own: PerProcess[Line] = (
            PerProcess.of("redis", redis) if isinstance(redis, str) else PerProcess()
        )

    def raise_fence(self, fence: Fence) -> None:  # noqa: D102 - as of Guard
        check_told(fence)
        line = self._line()
        said = line.run("begin", [self._key(fence)], fence.token, "", "")
        self._refuse(fence, None, said)
        self._open(line, fence, int(said[1]))

    def begin(self, fence: Fence, batch: Batch) -> None:  # noqa: D102
        check_told(fence, batch)
        line = self._line()
        said = line.run("begin", [self._key(fence)], fence.token, encode(batch.query), batch.parts)
        self._refuse(fence, batch, said)
        # Each time: what was lost (a failover, FLUSHALL) is there again, so a query is not refused
        # for ever.
        self._open(line, fence, batch.parts)

    def part(self, fence: Fence, batch: Batch, number: int) -> Part[RedisStep]:  # noqa: D102
        return _RedisPart(self, fence, batch, number)

    def finish(self, fence: Fence, batch: Batch, results: Sequence[Any]) -> None:  # noqa: ARG002, D102
        check_told(fence, batch)
        [seen] = self._line().fields(self._key(fence), "fence")
        if seen is not None and int(seen) > fence.token:
            raise fence.stale(int(seen), self._place())

    def close(self) -> None:  # noqa: D102
        if line := self._own.take():
            line.close()

    def __repr__(self) -> str:
        return f"<RedisGuard {self._prefix!r}>"

    def _line(self) -> Line:
        return self._own.get(lambda: connected(self._source))

    def _place(self) -> str:
        return f"Redis at {self._line().server}"

    def _key(self, fence: Fence) -> str:
        return self._prefix + encode(fence.name)

    def _of_part(self, fence: Fence, number: int) -> str:
        return f"{self._prefix}{{{encode(fence.name)}/{number}}}"

    def _open(self, line: Line, fence: Fence, parts: int) -> None:
        keys = [self._of_part(fence, number) for number in range(parts)]
        self._refuse(fence, None, line.run_on_all("open", keys, fence.token))

    def _refuse(self, fence: Fence, batch: Batch | None, said: Sequence[str]) -> None:
        match said:
            case ["stale", newer]:
                raise fence.stale(int(newer), self._place())
            case ["cut", stored] if batch is not None:
                raise cut_otherwise(batch, int(stored), self._place())


class _RedisPart(Part[RedisStep]):
    def __init__(self, guard: RedisGuard, fence: Fence, batch: Batch, number: int) -> None:
        super().__init__(fence, batch, number)
        self._guard = guard
        self._at = guard._of_part(fence, number)  # noqa: SLF001 - of this module
        self._query = encode(batch.query)

    def _open(self) -> RedisStep | None:
        line = self._guard._line()  # noqa: SLF001
        fence, mark = line.fields(self._at, "fence", f"mark:{self._query}")
        self._before(None if fence is None else int(fence), self._guard._place())  # noqa: SLF001
        self.written = None if mark is None else int(mark)
        if self._is_written():
            return None
        tag = self._guard._tag or f"{encode(self.fence.name)}/{self.number}"  # noqa: SLF001
        return RedisStep(line, self._at, tag, self._guard._prefix, self._guard._bounds)  # noqa: SLF001

    def _commit(self, step: RedisStep) -> None:
        line, place = self._guard._line(), self._guard._place()  # noqa: SLF001
        flat: list[Any] = []
        for words in step.commands:
            flat += [len(words), *words]
        count = len(step.commands)
        keys: list[str | bytes] = [self._at, *step.keys_written]
        told = self.fence.token, self._query, self.batch.number, step.close(), count
        match line.run("part", keys, *told, *flat):
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
            else f"the {done} before it are carried out, and will not be again: the same part goes on behind them"
        )
        return GuardError(
            f"{place}, key {self._at!r}: command {done + 1} of {len(step.commands)}, "
            f"{shown(step.commands[done])}, failed: {why}; {applied}. Part {self.number} of batch "
            f"{self.batch.number} is not marked: put right what lies under the key, and write the "
            "part again",
            place=f"{place}, key {self._at!r}",
        )

    def _torn(self, place: str, how: str) -> StateError:
        batch, _, done = how.split(" ")
        return StateError(
            f"{place}, key {self._at!r}: of batch {batch} of query {self.batch.query!r} the first "
            f"{done} commands were carried out before one failed, and this part (batch "
            f"{self.batch.number}) brings other commands, so it cannot go on there. Put the data "
            f"right by hand, then HDEL the field {'torn:' + self._query!r}",
            key=self._at,
        )


def _checked(prefix: object) -> tuple[str, str]:
    """Return the prefix and the hash tag in it, '' without one."""
    if not isinstance(prefix, str) or not prefix or not prefix.isprintable():
        raise ConfigError(f"prefix must be a str of one character or more, not {prefix!r}")
    before, opened, rest = prefix.partition("{")
    tag, closed, after = rest.partition("}")
    if "}" in before or (opened and not (tag and closed)) or "{" in tag + after or "}" in after:
        raise ConfigError(
            f"prefix {prefix!r}: braces are a hash tag: one pair, with something in it"
        )
    return prefix, tag
