"""Define legs of aircraft, and the step from one state to the next."""

from collections.abc import Iterable, Iterator
from datetime import date
from typing import NamedTuple, Self

from common.flights_file import ALL_YEAR, departure_delay, read_rows, tail_number

from rink.streams import Record


class Leg(Record):
    """Describe one flight, as its aircraft's leg."""

    number: int  # the 1st, 2nd, 3rd … of its key: shows missing legs and their order
    tail: str | None
    carrier: str
    day: int  # of the year
    delay: int | None  # minutes late at departure; None: cancelled, it never departed

    @property
    def key(self) -> str:
        """Return the tail number, or the carrier of a flight without one."""
        return self.tail or self.carrier


class Aircraft(NamedTuple):
    """Hold the state of an aircraft after some of its legs.

    It has the minutes late up to now, and the chain of its last legs: legs in a row that each left
    late, none more than a day after the one before. Both depend on the order of the legs.
    """

    number: int = 0  # of the last leg
    delay: int = 0
    chain: int = 0
    longest: int = 0
    day: int = 0

    def after(self, leg: Leg) -> Self:
        is_late = leg.delay is not None and leg.delay > 0
        before = self.chain if leg.day - self.day <= 1 else 0
        chain = before + 1 if is_late else 0
        return type(self)(
            leg.number, self.delay + (leg.delay or 0), chain, max(self.longest, chain), leg.day
        )


class State(Record):
    """Describe an aircraft after one leg, and the worker that computed it."""

    key: str
    number: int
    delay: int
    chain: int
    longest: int
    day: int
    worker: str
    token: int

    @classmethod
    def of(cls, key: str, aircraft: Aircraft, worker: str, token: int) -> Self:
        return cls(key=key, worker=worker, token=token, **aircraft._asdict())

    @property
    def aircraft(self) -> Aircraft:
        return Aircraft(self.number, self.delay, self.chain, self.longest, self.day)


class Fleet(Record):
    """Hold all aircraft of a partition, for its next owner."""

    key: str  # of any of them, so that it gets into their partition
    aircraft: dict[str, Aircraft]


def read_legs(months: int = ALL_YEAR) -> Iterator[Leg]:
    """Yield the first months' legs by day; the file is not in this order."""
    rows = [
        (
            date(2013, int(row["month"]), int(row["day"])).timetuple().tm_yday,
            tail_number(row),
            row["carrier"],
            departure_delay(row),
        )
        for row in read_rows(months)
    ]
    rows.sort(key=lambda row: row[0])  # stable: within a day the file's order stays
    reached: dict[str, int] = {}
    for day, tail, carrier, delay in rows:
        key = tail or carrier
        number = reached[key] = reached.get(key, 0) + 1
        yield Leg(number=number, tail=tail, carrier=carrier, day=day, delay=delay)


Histories = dict[str, list[Aircraft]]  # by key: the aircraft after its 1st, 2nd, 3rd ... leg


def plain_pass(legs: Iterable[Leg]) -> Histories:
    """Return the states that the workers must reach, by one plain pass."""
    histories: Histories = {}
    for leg in legs:
        history = histories.setdefault(leg.key, [])
        history.append((history[-1] if history else Aircraft()).after(leg))
    return histories
