"""Map errors of redis-py to errors of Rink, with the server and a remedy."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from redis import exceptions as of_redis

from rink.errors import ConfigError, RinkError, StateError
from rink.redis import stored_format
from rink.redis.errors import CrossSlot, RedisAuth, RedisError, RedisOutOfMemory, RedisUnavailable

_IN_A_PIPELINE = re.compile(r"Command # \d+ .* of pipeline caused error: ", re.DOTALL)
"""Match the text that redis-py puts before the server's error message."""
_OTHER_FORMAT = re.compile(r"FORMAT (\S+) (.*?)(?: script: .*)?$", re.DOTALL)
"""Match the error of `check_format` in base.lua, and the text that Redis appends to it."""
_TRANSIENT_CODES = re.compile(
    r"(?:LOADING|BUSY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|READONLY|MISCONF|NOREPLICAS)\b"
)
"""Match the errors of a server that loads its data, fails over, or cannot write for now."""
_TRANSIENT_ERRORS = (
    of_redis.ReadOnlyError,
    of_redis.BusyLoadingError,
    of_redis.ClusterDownError,
    of_redis.TryAgainError,
)
"""The classes for which redis-py removes the code from the text.

A MasterDownError is a ClusterDownError.
"""


@contextlib.contextmanager
def explained(server: str, *keys: str) -> Iterator[None]:
    """Raise the errors of redis-py inside as errors of Rink.

    The first key is the subject of the message.
    """
    try:
        yield
    except (of_redis.RedisError, of_redis.RedisClusterException, OSError, TimeoutError) as error:
        raise explain(error, server, *keys) from error


@contextlib.contextmanager
def reading(setting: str, url: str) -> Iterator[None]:
    """Raise the errors of redis-py about a URL as a ConfigError.

    Neither the error nor its cause shows any part of a password.
    """
    try:
        yield
    except ValueError as error:
        if "@" not in url and "password" not in url.lower():
            raise ConfigError(f"{setting}={url!r} cannot be used: {error}") from error
        raise ConfigError(
            f"{setting} cannot be used: redis-py cannot read this URL, which is not shown, since "
            "it may have a password. In a name or a password write / ? # [ ] @ : % as %2F and so "
            "on (urllib.parse.quote(text, safe=''))"
        ) from None


def timed_out(error: RedisUnavailable) -> bool:
    """Return whether an answer timed out.

    The answer may be large, or Redis is slow or gone.
    """
    return isinstance(error.__cause__, of_redis.TimeoutError | TimeoutError)


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group, if all its errors are Rink's.

    If Redis is unavailable, many tasks raise the same error. Any other error in the group is a bug,
    and then the whole group is returned.
    """
    _, others = group.split(RinkError)
    error: BaseException = group
    while others is None and isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def explain(error: Exception, server: str, *keys: str) -> RinkError:
    """Return the error of Rink for an error of redis-py.

    The first key is the subject of the message.
    """
    # The order of the checks decides. Classes come before text, since the text of a class that
    # redis-py knows needs no reading. The text comes second, since redis-py raises a plain
    # ResponseError for an error inside a script or a pipeline, with the server's code in the text.
    # An error that no check knows stays a RedisError, which is never retried.
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
    # The text before the server's message quotes the command, which may hold any words.
    message = _IN_A_PIPELINE.sub("", text, count=1)
    if any(code in message for code in ("WRONGPASS", "NOAUTH")):
        return RedisAuth(f"{at}: {text}: check user and password", server=server)
    if "WRONGTYPE" in message:
        where = f"one of the keys {', '.join(map(repr, keys))}" if len(keys) > 1 else "this key"
        return StateError(
            f"{at}: {text}: something else lies under {where}; remove it, or give the app another "
            "name",
            key=key,
        )
    if other := _OTHER_FORMAT.match(message):
        stored = "" if other[1] == "none" else other[1]
        return stored_format.other_format(server, other[2], stored)
    if "CROSSSLOT" in message:
        return CrossSlot(f"{at}: {text}")
    if "OOM" in message:
        return _full(at, text, server)
    if _TRANSIENT_CODES.match(message) or isinstance(error, _TRANSIENT_ERRORS):
        return RedisUnavailable(f"{at} cannot serve the request now: {text}", server=server)
    return RedisError(f"{at}: {text}", server=server)


def _full(at: str, text: str, server: str) -> RedisOutOfMemory:
    return RedisOutOfMemory(
        f"{at} is out of memory: {text}: raise maxmemory, or let processors catch up", server=server
    )
