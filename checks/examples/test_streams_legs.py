"""Test the counts of the streams example.

They follow from the order of the legs, and the input is read whole.
"""

from itertools import permutations

import pytest
from streams_demo.legs import Aircraft, Leg, plain_pass, read_legs

from rink.streams import partition_of


def leg(number, day, delay, tail="N1"):
    return Leg(number=number, tail=tail, carrier="UA", day=day, delay=delay)


@pytest.fixture(scope="module")
def legs():
    return list(read_legs())


def test_flight_without_an_aircraft_is_keyed_by_its_carrier(legs):
    """Every flight is a leg; one without an aircraft has its carrier's key."""
    assert len(legs) == 336_776
    assert sum(flight.tail is None for flight in legs) == 2512
    carriers = {flight.carrier for flight in legs}
    assert {flight.key for flight in legs if flight.tail is None} <= carriers


def test_legs_come_day_after_day_and_are_numbered_by_key(legs):
    assert [flight.day for flight in legs] == sorted(flight.day for flight in legs)
    reached = {}
    for flight in legs:
        assert flight.number == reached.get(flight.key, 0) + 1
        reached[flight.key] = flight.number
    assert len(reached) == 4050


def test_each_of_16_partitions_has_its_share_and_room_for_it(legs):
    counts = [0] * 16
    for flight in legs:
        counts[partition_of(flight.key, 16)] += 1
    assert min(counts) > 17_000
    assert max(counts) < 25_000


def test_first_months_can_be_read_alone(legs):
    january = [flight for flight in legs if flight.day <= 31]
    assert list(read_legs(1)) == january


def test_chain_grows_while_legs_are_late_and_close_together():
    """A chain grows while each leg is late, soon after the one before."""
    [history] = plain_pass(
        [leg(1, 1, 5), leg(2, 1, 1), leg(3, 2, 9), leg(4, 4, 3), leg(5, 5, 0)]
    ).values()
    assert [aircraft.chain for aircraft in history] == [1, 2, 3, 1, 0]
    assert history[-1] == Aircraft(number=5, delay=18, chain=0, longest=3, day=5)


def test_cancelled_leg_ends_a_chain_and_adds_no_delay():
    [history] = plain_pass([leg(1, 1, 5), leg(2, 1, None), leg(3, 1, 5)]).values()
    assert [(aircraft.delay, aircraft.chain) for aircraft in history] == [(5, 1), (5, 0), (10, 1)]


def test_early_leg_takes_delay_away():
    [history] = plain_pass([leg(1, 1, 5), leg(2, 1, -7)]).values()
    assert history[-1].delay == -2


def test_longest_chain_depends_on_the_order():
    flights = [5, 5, None, 5]
    longest = {
        plain_pass(leg(n, 1, delay) for n, delay in enumerate(order, 1))["N1"][-1].longest
        for order in permutations(flights)
    }
    assert longest == {2, 3}


def test_aircraft_are_kept_apart():
    histories = plain_pass([leg(1, 1, 5, "N1"), leg(1, 1, 7, "N2"), leg(2, 1, 1, "N1")])
    assert {key: history[-1].delay for key, history in histories.items()} == {"N1": 6, "N2": 7}
