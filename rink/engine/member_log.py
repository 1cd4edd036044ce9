"""Write the member's log, one line for each event.

If one turn concerns many roles, each kind of change has one line.

The `extra` of each line has group, member, role, token and version. The filter `_complete` sets
missing values to None.

A log handler may block. So user threads only note what they did, and the engine's thread writes the
lines at the end of its turn.
"""

from __future__ import annotations

import collections
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import attrs

from rink.core.holds import Hold
from rink.core.wording import some
from rink.engine.clock import Clock

log = logging.getLogger("rink")

ABOUT = ("group", "member", "role", "token", "version")
"""Attributes that each record of the logger `rink` has."""

MAX_LINES = 20
"""Largest number of roles of one turn that have lines of their own."""


def _complete(record: logging.LogRecord) -> bool:
    """Set the missing attributes of a record to None, and let it pass.

    So a formatter can use each of them for lines of any module.
    """
    for name in ABOUT:
        if not hasattr(record, name):
            setattr(record, name, None)
    return True


log.addFilter(_complete)


@attrs.frozen
class _Note:
    """Hold a change of a role: the verb, the reason, and the time it took."""

    verb: str
    hold: Hold
    level: int
    because: str = ""
    seconds: float = 0.0


class MemberLog:
    """Write the lines of one member.

    `wake` requests a flush by the engine. `about` is the `extra` of each line about the member.
    Other modules use it for lines that they write themselves.
    """

    def __init__(self, group: str, member: str, clock: Clock, wake: Callable[[], None]) -> None:
        self.about: dict[str, Any] = {"group": group, "member": member}
        self._clock = clock
        self._wake = wake
        self._notes: collections.deque[_Note] = collections.deque()

    def write(self, level: int, text: str, **about: Any) -> None:
        """Write a line now, on the engine's thread."""
        extra = {**self.about, **about}
        log.log(level, "group %r: %s", self.about["group"], text, extra=extra)

    # ── changes of roles, on any thread ──────────────────────────────────────────────────────────

    def granted(self, hold: Hold) -> None:
        """Note a grant."""
        if log.isEnabledFor(level := _level_of(hold)):
            self._note(_Note("granted", hold, level))

    def lost(self, hold: Hold) -> None:
        """Note a loss."""
        if log.isEnabledFor(logging.INFO):
            self._note(_Note("lost", hold, logging.INFO, hold.lost_because))

    def released(self, hold: Hold) -> None:
        """Note that the last handle of a grant was released."""
        if log.isEnabledFor(level := _level_of(hold)):
            is_lost = hold.lost_at is not None
            since = hold.granted_at if hold.lost_at is None else hold.lost_at
            seconds = self._clock.now() - since
            self._note(_Note("released", hold, level, "lost" if is_lost else "", seconds))

    def _note(self, note: _Note) -> None:
        self._notes.append(note)
        if len(self._notes) == 1:
            self._wake()

    # ── on the engine's thread ───────────────────────────────────────────────────────────────────

    def flush(self) -> None:
        """Write the noted changes, oldest first.

        If they concern more than `MAX_LINES` roles, write one line for each kind of change.
        """
        notes: list[_Note] = []
        with contextlib.suppress(IndexError):  # another thread may flush, if the engine's hangs
            while True:
                notes.append(self._notes.popleft())
        if len({note.hold.role for note in notes}) <= MAX_LINES:
            for note in notes:
                self._write_one(note)
            return
        kinds: dict[tuple[str, str, int], list[_Note]] = {}
        for note in notes:
            kinds.setdefault((note.verb, note.because, note.level), []).append(note)
        for (verb, because, level), alike in kinds.items():
            self._write_many(verb, because, level, alike)

    def _write_one(self, note: _Note) -> None:
        hold = note.hold
        text = f"{note.verb} role {hold.role!r} (token {hold.token})"
        if note.verb == "lost":
            text += f": {note.because}"
        elif note.verb == "released":
            text += f", {_lasting(note)}"
        about = {"role": hold.role, "token": hold.token, "version": hold.version}
        self.write(note.level, text, **about)

    def _write_many(self, verb: str, because: str, level: int, notes: list[_Note]) -> None:
        roles = list(dict.fromkeys(note.hold.role for note in notes))
        if len(roles) == 1:
            for note in notes:
                self._write_one(note)
            return
        names = some([repr(role) for role in roles])
        text = f"{verb} {len(roles):,} roles"
        if verb == "lost":
            text += f" ({because})"
        elif verb == "released":
            text += f", {_lasting(max(notes, key=lambda note: note.seconds))} at most"
        self.write(level, f"{text}: {names}")


def _level_of(hold: Hold) -> int:
    """Return the log level of a grant.

    Grants of get_role are logged at DEBUG, since a loop of such calls would fill the log.
    """
    return logging.INFO if hold.is_awaited else logging.DEBUG


def _lasting(note: _Note) -> str:
    if note.because:
        return f"{note.seconds:.1f} s after its loss"
    return f"after {note.seconds:.1f} s"
