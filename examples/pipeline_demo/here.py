"""Hold the settings of a driver or the sender, its notes, and its holds."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import redis
from common.here import Here

PREFIX = "PIPELINE_"
FOLDER = PREFIX + "FOLDER"
DRIVER = PREFIX + "NAME"
OF_DRIVER = PREFIX + "OF_DRIVER"
"""Names the driver of an executor, on a cluster."""

ACCEPTED = "accepted"
"""A list in Redis: the accepted parts and the raised fences, in their order."""

_LOOK_INTERVAL_S = 0.02


@dataclass(frozen=True, kw_only=True)
class DriverHere(Here):
    PREFIX: ClassVar[str] = PREFIX

    ttl: str = "5"
    rows: str = "10000"  # of a batch, at most
    master: str = "local[1]"  # of Spark, for each driver

    @property
    def parquet(self) -> Path:
        return Path(self.folder) / "parquet"

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder) / "checkpoint"

    def note_fence(self, token: int) -> None:
        """Add a raised fence to the list of accepted parts."""
        entry = {"fence": token, "driver": self.name}
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
            time.sleep(_LOOK_INTERVAL_S)

    def _hold(self, where: str) -> Path:
        return Path(self.folder) / f"hold-{where}"
