"""Inspect and operate streams with the functions of `rink streams`.

    async with app:
        for lag in await admin.lag(app):
            if lag.quarantined: ...

All functions work while workers run. A result is not a snapshot of one moment, since each partition
is read by itself. Processors that only Redis knows are included, since trimming also waits for
them.
"""

from rink.streams.admin.dead_letters import (
    DeadLetterRow,
    DeadLetters,
    Discarded,
    Requeued,
    dead_letter,
    dead_letters,
    discard,
    requeue,
)
from rink.streams.admin.lag import Lag, lag
from rink.streams.admin.offsets import (
    Forgotten,
    Moved,
    Unquarantined,
    forget_group,
    reset,
    unquarantine,
)
from rink.streams.admin.owners import Owners, PartitionOwner, owners
from rink.streams.admin.pause import Paused, Resumed, pause, resume

__all__ = [
    "DeadLetterRow", "DeadLetters", "Discarded", "Forgotten", "Lag", "Moved", "Owners",
    "PartitionOwner", "Paused", "Requeued", "Resumed", "Unquarantined", "dead_letter",
    "dead_letters", "discard", "forget_group", "lag", "owners", "pause", "requeue", "reset",
    "resume", "unquarantine",
]  # fmt: skip
