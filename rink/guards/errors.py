"""Define the errors of guards, in addition to `rink.errors`.

Guards raise `StateError` if the store was rolled back, holds another program's data, or holds a
query with another number of parts. If its own scripts fail, RedisGuard raises Rink's Redis errors.
"""

from __future__ import annotations

from rink.errors import RinkError


class GuardError(RinkError):
    """Report a failed database or directory, or a command that Redis refused.

    The message never has a password. The part's writes were rolled back, or the part is marked as
    written. So a repeated call never writes it twice.

    Attributes:
        place: the store, and the place in it.
        again: True if the same call may succeed when it is repeated. The store was unreachable or
            busy, or it aborted this transaction in favor of another.
    """

    def __init__(self, *args: object, place: str = "", again: bool = False) -> None:
        super().__init__(*args)
        self.place = place
        self.again = again
