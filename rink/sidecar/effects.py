"""Name the orders to the member, and the reports to consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from rink.sidecar.consumers import Consumer, Turn


@attrs.frozen
class Want:
    """Ask the member to wait for a role."""

    role: str


@attrs.frozen
class Unwant:
    """End the member's wait for a role."""

    role: str


@attrs.frozen
class LetGo:
    """Ask the member to release a role."""

    role: str


@attrs.frozen(eq=False)
class Granted:
    """Report a turn to its consumer."""

    turn: Turn


@attrs.frozen(eq=False)
class TurnLost:
    """Ask a consumer to stop and then to answer."""

    turn: Turn


@attrs.frozen(eq=False)
class Renewed:
    """Report the new ends of its turns to a consumer."""

    consumer: Consumer
    turns: tuple[Turn, ...]


@attrs.frozen(eq=False)
class Over:
    """Note that a turn is over, and why, without a report to a consumer."""

    turn: Turn
    why: str


@attrs.frozen(eq=False)
class Bye:
    """End a consumer's stream with the reason: the consumer is forgotten."""

    consumer: Consumer
    why: str


SidecarEffect = Want | Unwant | LetGo | Granted | TurnLost | Renewed | Over | Bye
