"""What flows: one record for each flight, in the order of the time at which it was to leave.

Spark's executors import this too, so it brings neither PySpark nor the rest of the demo.
"""

from collections.abc import Iterator
from datetime import datetime

from flights_demo.data import ALL_YEAR, departure_delay, read_rows

from pipeline_demo.here import Here
from rink.streams import App, Record

PARTITIONS = 8


class Flight(Record):
    tail: str | None
    carrier: str
    origin: str
    hour: int  # in which it was to leave, as seconds since 1970: its time, and the weather's
    delay: int | None  # minutes late at departure; None: cancelled, it never departed

    @property
    def key(self) -> str:
        """2,512 flights tell no tail number: they go by their carrier."""
        return self.tail or self.carrier


app = App("pipeline", redis=Here.read().redis)
flights = app.stream(
    "flights",
    record=Flight,
    partition_by=lambda flight: flight.key,
    partition_count=PARTITIONS,
    partition_size=100_000,
)


def read_flights(months: int = ALL_YEAR) -> Iterator[Flight]:
    """The flights of the first months, hour after hour; the file has October after January."""
    rows = sorted(read_rows(months), key=lambda row: row["time_hour"])
    for row in rows:
        yield Flight(
            tail=row["tailnum"] if row["tailnum"] != "NA" else None,
            carrier=row["carrier"],
            origin=row["origin"],
            hour=int(datetime.fromisoformat(row["time_hour"]).timestamp()),
            delay=departure_delay(row),
        )
