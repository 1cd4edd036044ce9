"""Cut the flights into jobs of one carrier on one day."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from common.flights_file import ALL_YEAR, departure_delay, read_rows

CHUNK = 40  # flights per write: the larger half of the jobs takes two writes or more


@dataclass(frozen=True, slots=True)
class Flight:
    carrier: str
    month: int
    day: int
    delay: int | None  # minutes late at departure; None: cancelled, it never departed


@dataclass(frozen=True, slots=True)
class Total:
    flights: int = 0
    cancelled: int = 0
    delay: int = 0

    def __add__(self, other: "Total") -> "Total":
        return Total(
            self.flights + other.flights,
            self.cancelled + other.cancelled,
            self.delay + other.delay,
        )


@dataclass(frozen=True, slots=True)
class Job:
    """Hold one carrier's flights of one day. Its id is its role's name."""

    carrier: str
    month: int
    day: int
    delays: list[int | None] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.carrier}/2013-{self.month:02}-{self.day:02}"

    def total(self, first: int, count: int) -> Total:
        part = self.delays[first : first + count]
        departed = [delay for delay in part if delay is not None]
        return Total(len(part), len(part) - len(departed), sum(departed))


def carrier_role(carrier: str) -> str:
    """Return the long-held role of keeping a carrier's line on the board."""
    return f"carrier/{carrier}"


Totals = dict[tuple[str, int], Total]  # by carrier and month


def read_flights(months: int = ALL_YEAR) -> Iterator[Flight]:
    """Yield the flights of the first months, in the order of the file."""
    for row in read_rows(months):
        yield Flight(row["carrier"], int(row["month"]), int(row["day"]), departure_delay(row))


def plain_totals(flights: Iterable[Flight]) -> Totals:
    """Return the totals that the processors must reach, by one plain pass."""
    totals: Totals = {}
    for flight in flights:
        one = Total(1, 1, 0) if flight.delay is None else Total(1, 0, flight.delay)
        key = (flight.carrier, flight.month)
        totals[key] = totals.get(key, Total()) + one
    return totals


def make_jobs(flights: Iterable[Flight]) -> dict[str, Job]:
    """Return the jobs by id, in the order of the calendar."""
    jobs: dict[tuple[int, int, str], Job] = {}
    for flight in flights:
        key = (flight.month, flight.day, flight.carrier)
        job = jobs.get(key)
        if job is None:
            job = jobs[key] = Job(flight.carrier, flight.month, flight.day)
        job.delays.append(flight.delay)
    return {jobs[key].id: jobs[key] for key in sorted(jobs)}
