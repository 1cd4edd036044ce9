"""Test that the flights' input is read whole.

It is cut into jobs without losing a flight.
"""

import pytest
from flights_demo.data import (
    Flight,
    Job,
    Total,
    make_jobs,
    plain_totals,
    read_flights,
)


@pytest.fixture(scope="module")
def flights():
    return list(read_flights())


def test_package_has_336776_flights_of_16_carriers(flights):
    assert len(flights) == 336_776
    assert len({flight.carrier for flight in flights}) == 16


def test_job_is_one_carrier_on_one_day_and_there_are_5432(flights):
    jobs = make_jobs(flights)
    assert len(jobs) == 5432
    assert sum(len(job.delays) for job in jobs.values()) == len(flights)
    assert next(iter(jobs)) == "9E/2013-01-01"


def test_jobs_totals_add_up_to_those_of_one_plain_pass(flights):
    added: dict[tuple[str, int], Total] = {}
    for job in make_jobs(flights).values():
        key = (job.carrier, job.month)
        added[key] = added.get(key, Total()) + job.total(0, len(job.delays))
    assert added == plain_totals(flights)
    assert sum(total.cancelled for total in added.values()) == 8255


def test_cancelled_flight_counts_as_a_flight_without_a_delay():
    flights = [Flight("UA", 1, 1, 10), Flight("UA", 1, 1, None), Flight("UA", 1, 1, -3)]
    assert plain_totals(flights) == {("UA", 1): Total(3, 1, 7)}


def test_chunk_totals_only_its_own_flights():
    job = Job("UA", 1, 1, [10, None, -3, 5])
    assert job.total(1, 2) == Total(2, 1, -3)


def test_first_months_can_be_read_alone(flights):
    january = [flight for flight in flights if flight.month == 1]
    assert list(read_flights(1)) == january
