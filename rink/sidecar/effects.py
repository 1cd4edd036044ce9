"""Effects of `rink.sidecar.turns`: what the member is to do, and what consumers are to be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from rink.sidecar.consumers import Consumer, Turn


@attrs.frozen
class Want:
    """Have the member wait for a role."""

    role: str


@attrs.frozen
class Unwant:
    """End the member's wait for a role."""

    role: str


@attrs.frozen
class LetGo:
    """Have the member release a role."""

    role: str


@attrs.frozen(eq=False)
class Granted:
    """Tell a consumer of its turn."""

    turn: Turn


@attrs.frozen(eq=False)
class Lost:
    """Tell a consumer that it is to stop, and to answer."""

    turn: Turn


@attrs.frozen(eq=False)
class Renewed:
    """Tell a consumer of the new ends of its turns."""

    consumer: Consumer
    turns: tuple[Turn, ...]


@attrs.frozen(eq=False)
class Over:
    """Note that a turn is over, and why. Nobody is told."""

    turn: Turn
    why: str


@attrs.frozen(eq=False)
class Bye:
    """Tell a consumer that it is forgotten, and why."""

    consumer: Consumer
    why: str


Effect = Want | Unwant | LetGo | Granted | Lost | Renewed | Over | Bye
