"""Recognize transient errors, which pass by themselves and blame no event."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rink.errors import ConfigError, EtcdUnavailable
from rink.streams.errors import EventTimeout

log = logging.getLogger("rink.streams")

TransientError = type[BaseException] | Callable[[Any], bool]
"""A class of exceptions, or a function that returns whether an exception is transient."""

_BY_NAME = {
    "aiohttp": {"ClientConnectionError", "ClientPayloadError"},
    "httpx": {"NetworkError", "TimeoutException", "ProxyError", "RemoteProtocolError"},
    "redis": {
        "ConnectionError", "TimeoutError", "ReadOnlyError",
        "ClusterDownError", "MasterDownError", "TryAgainError",
    },
    "requests": {"ConnectionError", "Timeout", "ChunkedEncodingError"},
}  # fmt: skip
"""Classes by name, without importing their packages; subclasses count as well."""

_NETWORK_IS_DOWN = {
    errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH,
}  # fmt: skip
"""The error numbers that Python raises as a plain OSError, not as a ConnectionError."""


def is_disconnect(error: BaseException) -> bool:
    """Return whether a connection broke, or could not be made.

    It knows the errors of the operating system, and by name the errors of aiohttp, httpx, redis-py,
    requests and SQLAlchemy.
    """
    # The order matters. `gaierror` is an OSError with numbers of its own, so it comes before the
    # plain OSError, and only one number is transient. The names come last, since they cost most.
    # A class counts by the names of its bases, so a subclass of a known class counts as well.
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if type(error) is OSError:
        # asyncio raises this if a name has several addresses and none of them answers.
        is_several = error.errno is None and str(error).startswith("Multiple exceptions: [Errno")
        return is_several or error.errno in _NETWORK_IS_DOWN
    if isinstance(error, EtcdUnavailable):
        return True
    names = {(base.__module__.partition(".")[0], base.__name__) for base in type(error).__mro__}
    if any(name in _BY_NAME.get(package, ()) for package, name in names):
        return True
    return ("sqlalchemy", "DBAPIError") in names and _is_sql_disconnect(error, names)


def _is_sql_disconnect(error: Any, names: set[tuple[str, str]]) -> bool:
    # SQLAlchemy does not count a failure to connect as a disconnect, but that error has no
    # statement.
    if error.connection_invalidated:
        return True
    could_not_connect = {("sqlalchemy", "OperationalError"), ("sqlalchemy", "InterfaceError")}
    return error.statement is None and bool(names & could_not_connect)


TRANSIENT: tuple[TransientError, ...] = (ConnectionError, TimeoutError, is_disconnect)
"""The default of `transient=`."""


def check_transient(kinds: object) -> tuple[TransientError, ...]:
    """Return the value of `transient=`, or raise a ConfigError."""
    if isinstance(kinds, str) or not isinstance(kinds, Sequence):
        raise ConfigError(
            f"transient={kinds!r} is no tuple: give exception classes, and functions of an "
            "exception"
        )
    for kind in kinds:
        is_error = isinstance(kind, type) and issubclass(kind, BaseException)
        if not is_error and (isinstance(kind, type) or not callable(kind)):
            raise ConfigError(
                f"transient={kinds!r}: {kind!r} is neither a class of exceptions nor a function of "
                "one"
            )
    return tuple(kinds)


def is_transient(error: BaseException, kinds: Sequence[TransientError]) -> bool:
    """Return whether an error, or one of its causes, is of these kinds.

    A group of errors is transient only if each of its errors is.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(is_transient(member, kinds) for member in error.exceptions)
    for cause in _causes(error):
        if isinstance(cause, BaseExceptionGroup):
            return is_transient(cause, kinds)
        if any(_is_of(cause, kind) for kind in kinds):
            return True
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    passed: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in passed:
        yield cause
        passed.add(id(cause))
        # A timeout blames the event, even if the cancelled call raised a transient error.
        cause = None if isinstance(cause, EventTimeout) else cause.__cause__


def _is_of(error: BaseException, kind: TransientError) -> bool:
    if isinstance(kind, type):
        return isinstance(error, kind)
    try:
        return bool(kind(error))
    except Exception:
        log.exception("%r of transient= failed: %r counts as not transient", kind, error)
        return False
