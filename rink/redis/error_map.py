"""Map the errors of redis-py to errors of Rink, which say where and what to do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from redis import exceptions as of_redis

from rink.errors import ConfigError, RinkError, StateError
from rink.redis import stored_format
from rink.redis.errors import CrossSlot, RedisAuth, RedisError, RedisOutOfMemory, RedisUnavailable

_IN_A_PIPELINE = re.compile(r"Command # \d+ .* of pipeline caused error: ", re.DOTALL)
"""Match what redis-py puts before the server's error message."""
_OTHER_FORMAT = re.compile(r"FORMAT (\S+) (.*?)(?: script: .*)?$", re.DOTALL)
"""Matches the error of `check_format` in common.lua, and what Redis puts behind it."""
_PASSES = re.compile(
    r"(?:LOADING|BUSY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|READONLY|MISCONF|NOREPLICAS)\b"
)
"""What passes: the server loads its data, fails over, or cannot write just now."""
_PASSING = (
    of_redis.ReadOnlyError,
    of_redis.BusyLoadingError,
    of_redis.ClusterDownError,
    of_redis.TryAgainError,
)
"""Of these redis-py takes the word away. A MasterDownError is a ClusterDownError."""


@contextlib.contextmanager
def explained(server: str, *keys: str) -> Iterator[None]:
    """Raise what redis-py raises inside as one of our errors; the first key is what it is about."""
    try:
        yield
    except (of_redis.RedisError, of_redis.RedisClusterException, OSError, TimeoutError) as error:
        raise explain(error, server, *keys) from error


@contextlib.contextmanager
def reading(setting: str, url: str) -> Iterator[None]:
    """Raise what redis-py raises about a URL as a ConfigError.

    Neither the error nor its cause shows a part of a password.
    """
    try:
        yield
    except ValueError as error:
        if "@" not in url and "password" not in url.lower():
            raise ConfigError(f"{setting}={url!r} cannot be used: {error}") from error
        raise ConfigError(
            f"{setting} cannot be used: redis-py cannot read this URL, which is not shown, since it may have a password. "
            "In a name or a password write / ? # [ ] @ : % as %2F and so on (urllib.parse.quote(text, safe=''))"
        ) from None


def came_late(error: RedisUnavailable) -> bool:
    """Return whether an answer timed out.

    It may have been large, or Redis is slow or gone.
    """
    return isinstance(error.__cause__, of_redis.TimeoutError | TimeoutError)


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what to raise for the errors of several tasks: the first, if all are Rink's.

    Where Redis is away each of 64 tasks says the same. Anything else among them is a bug, and stays whole.
    """
    _, others = group.split(RinkError)
    found: BaseException = group
    while others is None and isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def explain(error: Exception, server: str, *keys: str) -> RinkError:
    """Return the error of ours for one of redis-py's; the first key is what it is about."""
    text = str(error) or type(error).__name__
    key = keys[0] if keys else ""
    at = f"Redis at {server}" + (f", key {key!r}" if key else "")
    match error:
        case RinkError():
            return error
        case of_redis.AuthenticationError() | of_redis.AuthorizationError():
            return RedisAuth(f"{at}: {text}: check user and password", server=server)
        case of_redis.NoPermissionError():
            return RedisAuth(
                f"{at}: {text}: docs/streams-redis.md lists what the user must be allowed",
                server=server,
            )
        case of_redis.OutOfMemoryError():
            return _full(at, text, server)
        case (
            of_redis.ConnectionError()
            | of_redis.TimeoutError()
            | of_redis.RedisClusterException()
            | OSError()
        ):
            return RedisUnavailable(f"{at} cannot be reached: {text}", server=server)
    said = _IN_A_PIPELINE.sub("", text, count=1)  # the command before it may have any words
    if any(word in said for word in ("WRONGPASS", "NOAUTH")):
        return RedisAuth(f"{at}: {text}: check user and password", server=server)
    if "WRONGTYPE" in said:
        where = f"one of the keys {', '.join(map(repr, keys))}" if len(keys) > 1 else "this key"
        return StateError(
            f"{at}: {text}: something else lies under {where}; remove it, or give the app another name",
            key=key,
        )
    if other := _OTHER_FORMAT.match(said):
        found = "" if other[1] == "none" else other[1]
        return stored_format.other_format(server, other[2], found)
    if "CROSSSLOT" in said:
        return CrossSlot(f"{at}: {text}")
    if "OOM" in said:
        return _full(at, text, server)
    if _PASSES.match(said) or isinstance(error, _PASSING):
        return RedisUnavailable(f"{at} cannot do it now: {text}", server=server)
    return RedisError(f"{at}: {text}", server=server)


def _full(at: str, text: str, server: str) -> RedisOutOfMemory:
    return RedisOutOfMemory(
        f"{at} is out of memory: {text}: raise maxmemory, or let processors catch up", server=server
    )
