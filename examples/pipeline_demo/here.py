"""What the demo tells each of its processes, by environment variables; and the notes they take for it."""

import json
import logging
import os
import time
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import redis
from flights_demo.events import EventLog

PREFIX = "PIPELINE_"
FOLDER = PREFIX + "FOLDER"
DRIVER = PREFIX + "DRIVER"
OF_DRIVER = PREFIX + "OF_DRIVER"
"""Whose executor a process belongs to, on a cluster."""

ACCEPTED = "accepted"
"""A list in Redis: what was accepted, in its order, and each time that a fence was raised."""

_LOOK_EVERY_S = 0.02


@dataclass(frozen=True)
class Here:
    folder: str = "."
    driver: str = ""
    redis: str = "redis://127.0.0.1:6379"
    etcd: str = "http://127.0.0.1:2379"
    ttl: str = "5"
    rows: str = "10000"  # of a batch, at most
    master: str = "local[1]"  # of Spark, as each driver is told it
    careless: str = ""  # not empty: do without fences and marks, to show that the checks notice it

    @classmethod
    def read(cls) -> Self:
        known = {name: os.environ.get(PREFIX + name.upper()) for name in asdict(cls())}
        return cls(**{name: value for name, value in known.items() if value is not None})

    def variables(self) -> dict[str, str]:
        return {PREFIX + name.upper(): value for name, value in asdict(self).items()}

    def __reduce__(self) -> tuple[Any, ...]:
        # It travels to Spark's workers, and an open file does not.
        return type(self), tuple(asdict(self).values())

    @property
    def parquet(self) -> Path:
        return Path(self.folder) / "parquet"

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder) / "checkpoint"

    # Notes, from the driver and from the Python workers that Spark starts for it.

    @cached_property
    def _notes(self) -> EventLog:
        return EventLog(Path(self.folder) / "events", self.driver)

    def note(self, what: str, **facts: Any) -> None:
        self._notes.write(what, **facts)

    def note_warnings(self) -> None:
        """Note what Rink warns of: a session that was lost, a query that is started again."""
        logging.getLogger("rink").addHandler(_Warnings(self._notes))

    def note_fence(self, token: int) -> None:
        """Write down, among what is accepted from now on, that this token counts."""
        entry = {"fence": token, "driver": self.driver}
        redis.Redis.from_url(self.redis).rpush(ACCEPTED, json.dumps(entry))

    # Holds: a process waits where the demo wants to hit it.

    def hold(self, where: str) -> None:
        self._hold(where).touch()

    def let_go(self, where: str) -> None:
        self._hold(where).unlink(missing_ok=True)

    def wait_if_held(self, where: str, **facts: Any) -> None:
        if not self._hold(where).exists():
            return
        self.note("waiting", where=where, **facts)
        while self._hold(where).exists():
            time.sleep(_LOOK_EVERY_S)

    def _hold(self, where: str) -> Path:
        return Path(self.folder) / f"hold-{where}"

    # How much of the year may flow.

    @property
    def limit(self) -> float:
        return float((Path(self.folder) / "limit").read_text())

    def set_limit(self, share: float) -> None:
        new = Path(self.folder) / "limit.new"
        new.write_text(str(share))
        new.rename(Path(self.folder) / "limit")  # so that nobody reads half of it


class _Warnings(logging.Handler):
    def __init__(self, notes: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        self._notes.write("warned", why=record.getMessage())
