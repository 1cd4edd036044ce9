"""Make the events of the streams' parts.

They are small, and the same for all senders and processors. Runnel's processes read this file, too;
they have only the standard library and Runnel.
"""

from __future__ import annotations

import json
import time
from typing import Any

PARTITIONS = 8
CUSTOMERS = 1000
DATA = "d"
"""The field of an entry that holds the record, as Rink names it; the bare loops use it too."""

dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def sale(number: int) -> dict[str, Any]:
    """Return a record with three small fields."""
    return {"n": number, "who": f"customer-{number % CUSTOMERS}", "amount": number % 97}


class Clock:
    """Measure the time until every partition had its share.

    Processors count in a local variable, so that measuring costs next to nothing.
    """

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.partitions = partitions
        self.began = self.ended = 0.0

    def begin(self) -> None:
        """Note that the first event is about to be processed."""
        self.began = self.began or time.perf_counter()

    def end(self) -> bool:
        """Note that a partition had its share; return whether it was the last."""
        self.partitions -= 1
        return self.partitions == 0

    def stop(self) -> float:
        """Return the seconds since the beginning, when all is committed."""
        self.ended = time.perf_counter()
        return self.ended - self.began
