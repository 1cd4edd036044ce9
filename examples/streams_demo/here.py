"""What the demo tells each of its processes, by environment variables; and the notes they take for it."""

import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from flights_demo.events import EventLog

from rink.errors import StaleToken
from rink.streams import Event, Middleware
from streams_demo.ledger import Ledger
from streams_demo.legs import Leg

PREFIX = "FLIGHTS_"
WORK_S = 0.001  # for each leg; stands for the work, and is where a freeze or a kill hits


@dataclass(frozen=True)
class Here:
    folder: str = "."
    worker: str = ""
    redis: str = "redis://127.0.0.1:6379"
    cluster: str = ""  # not empty: it is a Redis Cluster
    etcd: str = "http://127.0.0.1:2379"
    ttl: str = "3"
    careless: str = ""  # not empty: do without fences, to show that the checks notice it

    @classmethod
    def read(cls) -> Self:
        known = {name: os.environ.get(PREFIX + name.upper()) for name in asdict(cls())}
        return cls(**{name: value for name, value in known.items() if value is not None})

    def environment(self) -> dict[str, str]:
        return os.environ | {PREFIX + name.upper(): value for name, value in asdict(self).items()}

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(Path(self.folder) / "ledger.db", self.worker, check_fence=not self.careless)

    @cached_property
    def _notes(self) -> EventLog:
        end_with_the_demo()
        notes = EventLog(Path(self.folder) / "events", self.worker)
        logging.getLogger("rink").addHandler(_Warnings(notes))
        return notes

    @property
    def limit(self) -> float:
        """The share of the flights that may flow freely by now."""
        return float((Path(self.folder) / "limit").read_text())

    def set_limit(self, share: float) -> None:
        new = Path(self.folder) / "limit.new"
        new.write_text(str(share))
        new.rename(Path(self.folder) / "limit")  # so that nobody reads half of it

    def note(self, what: str, **facts: Any) -> None:
        self._notes.write(what, **facts)

    @contextmanager
    def noted(self, processor: str, events: Any) -> Iterator[None]:
        """Note from when to when a processor has a partition, for the display and the checks."""
        facts = {"processor": processor, "partition": events.partition, "token": events.token}
        self.note("granted", **facts)
        try:
            yield
        except StaleToken as stale:
            self.note("refused", why=str(stale), **facts)
            raise
        finally:
            self.note("released", **facts)

    def at_work(self, processor: str) -> Middleware[Leg]:
        """Note from when to when a batch is in hand, so that the freeze hits in mid-work."""

        @asynccontextmanager
        async def around(batch: list[Event[Leg]]) -> AsyncIterator[None]:
            facts = {"processor": processor, "batch": batch[0].id, "key": batch[0].record.key}
            self.note("working", lasts=WORK_S * len(batch), **facts)
            try:
                yield
            finally:
                self.note("worked", **facts)

        return around


class _Warnings(logging.Handler):
    """Notes what a worker is warned of: a session that was lost, a commit that came too late."""

    def __init__(self, notes: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        self._notes.write("warned", why=record.getMessage())


def end_with_the_demo() -> None:
    """Leave when the demo itself is gone: its end of our standard input closes."""

    def wait_for_the_end() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
