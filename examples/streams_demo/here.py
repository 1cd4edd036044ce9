"""What the demo tells each of its processes, by environment variables; and the notes they take for it."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from flights_demo.events import EventLog

from rink.errors import StaleToken
from streams_demo.ledger import Ledger

PREFIX = "FLIGHTS_"
GO = "go"  # the file in the folder that says that the mishaps are over


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
        return EventLog(Path(self.folder) / "events", self.worker)

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


def end_with_the_demo() -> None:
    """Leave when the demo itself is gone: its end of our standard input closes."""

    def wait_for_the_end() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
