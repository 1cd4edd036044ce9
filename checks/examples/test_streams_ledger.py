"""Test that the ledger accepts only the greatest token."""

import pytest
from streams_demo.ledger import Ledger
from streams_demo.legs import Aircraft

from rink.errors import StaleToken

ONE, TWO = Aircraft(1, 5, 1, 1, 1), Aircraft(2, 8, 2, 2, 1)


@pytest.fixture
def path(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create()
    ledger.close()
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    ledger = Ledger(path, "w1")
    yield ledger
    ledger.close()


def test_who_takes_a_partition_is_told_how_far_its_aircraft_are(ledger):
    assert ledger.take(0, 3) == {}
    ledger.write(0, 3, [("N1", ONE), ("N1", TWO), ("N2", ONE)], [])
    assert ledger.take(0, 5) == {"N1": TWO, "N2": ONE}
    assert ledger.take(1, 1) == {}


def test_after_a_take_nobody_earlier_writes(ledger):
    ledger.take(0, 3)
    ledger.take(0, 5)
    with pytest.raises(StaleToken):
        ledger.write(0, 3, [("N1", ONE)], [])
    with pytest.raises(StaleToken):
        ledger.take(0, 4)
    assert ledger.written() == 0
    assert ledger.refused() == [(0, 3, 5, "w1"), (0, 4, 5, "w1")]


def test_other_partitions_have_fences_of_their_own(ledger):
    ledger.take(0, 5)
    ledger.write(1, 3, [("N1", ONE)], [])
    assert ledger.written() == 1


def test_every_state_is_kept_in_order_and_what_came_again_is_noted(ledger):
    ledger.write(0, 3, [("N1", ONE), ("N1", TWO)], [("N2", 1)])
    assert [(row[0], *row[2:]) for row in ledger.steps()] == [
        (0, "w1", 3, "N1", ONE),
        (0, "w1", 3, "N1", TWO),
    ]
    assert ledger.again() == [(0, 3, "w1", "N2", 1)]


def test_without_the_fence_anybody_writes(path):
    ledger = Ledger(path, "w1", check_fence=False)
    ledger.take(0, 5)
    ledger.write(0, 3, [("N1", ONE)], [])
    assert ledger.written() == 1
    ledger.close()
