"""Define the stream: one record for each flight, by its planned departure.

Spark's executors import this too, so it brings neither PySpark nor the rest of the demo.
"""

from collections.abc import Iterator
from datetime import datetime

from common.flights_file import ALL_YEAR, departure_delay, read_rows, tail_number

from pipeline_demo.here import DriverHere
from rink.streams import App, Record

PARTITIONS = 8


class Flight(Record):
    tail: str | None
    carrier: str
    origin: str
    hour: int  # of its planned departure, in seconds since 1970; also the weather's hour
    delay: int | None  # minutes late at departure; None: cancelled, it never departed

    @property
    def key(self) -> str:
        """Return the tail number, or the carrier of a flight without one."""
        return self.tail or self.carrier


app = App("pipeline", redis=DriverHere.read().redis)
flights = app.stream(
    "flights",
    record=Flight,
    partition_by=lambda flight: flight.key,
    partition_count=PARTITIONS,
    partition_size=100_000,
)


def read_flights(months: int = ALL_YEAR) -> Iterator[Flight]:
    """Yield the first months' flights by hour; the file is not in this order."""
    rows = sorted(read_rows(months), key=lambda row: row["time_hour"])
    for row in rows:
        yield Flight(
            tail=tail_number(row),
            carrier=row["carrier"],
            origin=row["origin"],
            hour=int(datetime.fromisoformat(row["time_hour"]).timestamp()),
            delay=departure_delay(row),
        )
