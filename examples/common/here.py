"""Pass settings to a demo's processes, and take their notes."""

import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from common.events import EventLog


@dataclass(frozen=True, kw_only=True)
class Here:
    """Hold the settings of one process, as text. A demo's own class adds more."""

    PREFIX: ClassVar[str]

    folder: str = "."
    name: str = ""
    redis: str = "redis://127.0.0.1:6379"
    etcd: str = "http://127.0.0.1:2379"
    ttl: str = "3"
    careless: str = ""  # not empty: work without fences, to show that the checks notice it

    @classmethod
    def read(cls) -> Self:
        """Return the settings in the environment."""
        known = {name: os.environ.get(cls.PREFIX + name.upper()) for name in asdict(cls())}
        return cls(**{name: value for name, value in known.items() if value is not None})

    def variables(self) -> dict[str, str]:
        """Return the settings as environment variables."""
        return {self.PREFIX + name.upper(): value for name, value in asdict(self).items()}

    def __getstate__(self) -> dict[str, str]:
        # The object travels to Spark's workers, and an open file does not.
        return asdict(self)

    @cached_property
    def _notes(self) -> EventLog:
        return EventLog(Path(self.folder) / "events", self.name)

    def note(self, what: str, **facts: Any) -> None:
        """Write an event to this process's file."""
        self._notes.write(what, **facts)

    def note_warnings(self, notes: EventLog | None = None) -> None:
        """Note Rink's warnings: a lost session, a late commit, a restarted query."""
        logging.getLogger("rink").addHandler(_Warnings(notes or self._notes))

    @property
    def limit(self) -> float:
        """Return the share of the flights that may flow by now."""
        return float((Path(self.folder) / "limit").read_text())

    def set_limit(self, share: float) -> None:
        """Let this share of the flights flow."""
        new = Path(self.folder) / "limit.new"
        new.write_text(str(share))
        new.rename(Path(self.folder) / "limit")  # so that nobody reads half of it


class _Warnings(logging.Handler):
    def __init__(self, notes: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        self._notes.write("warned", why=record.getMessage())


def at_the_demos_end(act: Callable[[], object]) -> None:
    """Call `act` when the demo itself is gone: its end of stdin closes then."""

    def wait() -> None:
        os.read(0, 1)  # sys.stdin itself would be locked at our exit
        act()

    threading.Thread(target=wait, daemon=True).start()


def end_with_the_demo() -> None:
    """Send this process SIGTERM when the demo itself is gone."""
    at_the_demos_end(lambda: os.kill(os.getpid(), signal.SIGTERM))
