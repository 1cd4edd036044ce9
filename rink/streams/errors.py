"""What goes wrong with streams, beside what `rink.errors` has.

    RinkError
        RecordError (ValueError)          a record that does not match its class, or has no key
        EventTimeout                      a processor took longer for an event than its `timeout`
        WorkerHalted                      a processor with on_error="halt" met an event that it cannot process
        PartitionFull                     a partition had no room for as long as the sender waits
        TooManyUncommitted (UsageError)   more events taken than may be uncommitted

`StaleToken` (rink.errors) is raised by a commit of whoever is not the owner any more, `StateError` where what
lies in Redis is not ours, has another type, or was rolled back. `rink.redis.errors` has the errors of
calls to Redis.
"""

from __future__ import annotations

from rink.errors import RinkError, StateError, UsageError


class RecordError(RinkError, ValueError):
    """A record that does not match its class, or has no partition key."""


class PartitionFull(RinkError):  # noqa: N818 - as the other public errors are named
    """A partition had no room for as long as the sender was ready to wait.

    Attributes:
        stream: which stream; where an output found no room, its partition's key in Redis.
        partition: which of its partitions; -1 where it is part of the key.
    """

    def __init__(self, *args: object, stream: str = "", partition: int = -1) -> None:
        super().__init__(*args)
        self.stream = stream
        self.partition = partition


class TooManyUncommitted(UsageError):  # noqa: N818 - as the other public errors are named
    """A processor that commits by hand took more events than may be uncommitted."""


class RedisRolledBack(StateError):  # noqa: N818 - as the other public errors are named
    """Says that Redis has older data than this owner knows.

    Attributes:
        known: the offset that this owner had committed; "" where it had none yet.
    """

    def __init__(self, *args: object, key: str = "", known: str = "") -> None:
        super().__init__(*args, key=key)
        self.known = known


class OffsetMoved(RinkError):  # noqa: N818 - as the other public errors are named
    """An operator moved the offset meanwhile; the partition is taken anew. Users do not see it."""


class EventTimeout(RinkError):  # noqa: N818 - as the other public errors are named
    """Says that a processor was cancelled by a time limit.

    The limit was its `timeout`, or one that the processor set itself.
    """


class WorkerHalted(RinkError):  # noqa: N818 - as the other public errors are named
    """A processor with `on_error="halt"` met an event that it cannot process."""
