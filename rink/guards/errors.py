"""Define the errors of guards, besides those of `rink.errors`.

`StateError` is raised if the store holds data that is not ours, that was rolled back, or that was
cut into other parts. Errors of Redis in our own steps are those of `rink.streams`.
"""

from __future__ import annotations

from rink.errors import RinkError


class GuardError(RinkError):
    """A database or a directory failed, or Redis refused a user's command.

    The message never has a password. The part's writes were rolled back, or the part is marked as
    written. So a repeated call never writes it twice.

    Attributes:
        place: the store, and the place in it.
        again: whether the same call may succeed if it is repeated: the store was away or busy, or
            it chose this transaction to abort.
    """

    def __init__(self, *args: object, place: str = "", again: bool = False) -> None:
        super().__init__(*args)
        self.place = place
        self.again = again
