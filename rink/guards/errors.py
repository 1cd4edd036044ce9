"""What goes wrong with guards, beside what `rink.errors` has.

    RinkError
        GuardError                       a database or a directory said no; or Redis, to a command of the user's

`StaleToken` is raised where the token counts no more, `StateError` where what lies in the store is
not ours, was rolled back, or was cut otherwise, `ConfigError` and `UsageError` for calls that
cannot be right. What Redis says of our own steps is raised as `rink.streams` does: RedisUnavailable
and its like.
"""

from __future__ import annotations

from rink.errors import RinkError


class GuardError(RinkError):
    """What a guard's store said; the message names the place, and never a password.

    Whatever the part wrote is rolled back, or marked as written: calling it again never writes it
    twice.

    Attributes:
        place: which store, and where in it.
        again: whether the same call may well succeed if it is made again: the store was away or
            busy, or picked this transaction as the one to give up.
    """

    def __init__(self, *args: object, place: str = "", again: bool = False) -> None:
        super().__init__(*args)
        self.place = place
        self.again = again
