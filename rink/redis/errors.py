"""Define the errors of calls to Redis."""

from __future__ import annotations

from rink.errors import RinkError, UsageError


class RedisError(RinkError):
    """A call to Redis failed; the message names the server.

    Attributes:
        server: the address of Redis.
    """

    def __init__(self, *args: object, server: str = "") -> None:
        super().__init__(*args)
        self.server = server


class RedisUnavailable(RedisError):  # noqa: N818 - as the other public errors are named
    """Redis did not answer, or cannot answer now.

    The step may still have been applied.
    """


class RedisAuth(RedisError):  # noqa: N818 - as the other public errors are named
    """User, password or permission was refused."""


class RedisOutOfMemory(RedisError):  # noqa: N818 - as the other public errors are named
    """Redis is out of memory: it accepts commits, but no new events."""


class CrossSlot(UsageError):  # noqa: N818 - as the other public errors are named
    """On a Redis Cluster, one step cannot write keys of several slots."""
