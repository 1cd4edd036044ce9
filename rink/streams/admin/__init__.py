"""What an operator sees and does, as plain async functions: what `rink streams` is made of.

    async with app:
        for one in await admin.lag(app):
            if one.quarantined: ...

All of it works while workers run. What is seen is not one moment: each partition is looked at by itself.
Processors that Redis knows and the app does not declare are meant, too: trimming waits for them as well.
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
    "DeadLetterRow",
    "DeadLetters",
    "Discarded",
    "Forgotten",
    "Lag",
    "Moved",
    "Owners",
    "PartitionOwner",
    "Paused",
    "Requeued",
    "Resumed",
    "Unquarantined",
    "dead_letter",
    "dead_letters",
    "discard",
    "forget_group",
    "lag",
    "owners",
    "pause",
    "requeue",
    "reset",
    "resume",
    "unquarantine",
]  # fmt: skip
