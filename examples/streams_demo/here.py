"""Hold the settings of a worker or the sender, and take their notes."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from common.events import EventLog
from common.here import Here, end_with_the_demo

from rink.errors import StaleToken
from rink.streams import Event, Middleware
from streams_demo.ledger import Ledger
from streams_demo.legs import Leg

WORK_S = 0.001  # for each leg; stands for the work, and is where a freeze or a kill hits


@dataclass(frozen=True, kw_only=True)
class WorkerHere(Here):
    PREFIX: ClassVar[str] = "FLIGHTS_"

    cluster: str = ""  # not empty: it is a Redis Cluster

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(Path(self.folder) / "ledger.db", self.name, check_fence=not self.careless)

    @cached_property
    def _notes(self) -> EventLog:
        # Only a process of the demo notes anything. `rink worker` has no other place for these.
        notes = EventLog(Path(self.folder) / "events", self.name)
        end_with_the_demo()
        self.note_warnings(notes)
        return notes

    @contextmanager
    def noted(self, processor: str, events: Any) -> Iterator[None]:
        """Note the time in which a processor has a partition."""
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
        """Note the time of work on a batch, so that the freeze can hit it."""

        @asynccontextmanager
        async def around(batch: list[Event[Leg]]) -> AsyncIterator[None]:
            facts = {"processor": processor, "batch": batch[0].id, "key": batch[0].record.key}
            self.note("working", lasts=WORK_S * len(batch), **facts)
            try:
                yield
            finally:
                self.note("worked", **facts)

        return around
