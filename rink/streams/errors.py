"""Define the errors of streams, besides those of `rink.errors`.

`StaleToken` (rink.errors) is raised by a commit of a former owner. `StateError` is raised if a key
in Redis is not Rink's, has another type, or was rolled back. `rink.redis.errors` has the errors of
calls to Redis.
"""

from __future__ import annotations

from rink.errors import RinkError, StateError, UsageError


class RecordError(RinkError, ValueError):
    """A record does not match its class, or has no partition key."""


class PartitionFull(RinkError):  # noqa: N818 - as the other public errors are named
    """A partition had no room during the sender's timeout.

    Attributes:
        stream: the stream; for an output, its partition's key in Redis.
        partition: the number of the partition; -1 if it is part of the key.
    """

    def __init__(self, *args: object, stream: str = "", partition: int = -1) -> None:
        super().__init__(*args)
        self.stream = stream
        self.partition = partition


class TooManyUncommitted(UsageError):  # noqa: N818 - as the other public errors are named
    """A processor with manual commits took more events than allowed."""


class RedisRolledBack(StateError):  # noqa: N818 - as the other public errors are named
    """Redis has older data than this owner knows.

    Attributes:
        known: the offset that this owner had committed; "" if it had none yet.
    """

    def __init__(self, *args: object, key: str = "", known: str = "") -> None:
        super().__init__(*args, key=key)
        self.known = known


class OffsetMoved(RinkError):  # noqa: N818 - as the other public errors are named
    """An operator moved the offset, so the owner takes the partition again."""


class EventTimeout(RinkError):  # noqa: N818 - as the other public errors are named
    """A processor was cancelled by a timeout.

    The timeout was `timeout=`, or a timeout that the processor set itself.
    """


class WorkerHalted(RinkError):  # noqa: N818 - as the other public errors are named
    """A processor with `on_error="halt"` cannot process an event."""
