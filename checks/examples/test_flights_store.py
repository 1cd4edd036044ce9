"""Test that the flights' store refuses stale tokens."""

import pytest
from flights_demo import checks
from flights_demo.data import Job, Total
from flights_demo.store import StaleWrite, Store

JOB = Job("UA", 1, 1, [10, None, -3, 5])
LATER = Job("AA", 2, 1, [1])


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store.db"
    store = Store(path)
    store.create([JOB, LATER], open_until=1)
    store.close()
    return path


@pytest.fixture
def stores(path):
    """Open the connections of two members and one without a fence."""
    opened = [Store(path, "a"), Store(path, "b"), Store(path, "c", check_fence=False)]
    yield opened
    for store in opened:
        store.close()


def test_chunk_moves_the_position_and_adds_to_the_totals(stores):
    a, _, _ = stores
    a.add(JOB, 0, 3, token=7)
    assert a.position(JOB.id) == 3
    assert a.totals() == {("UA", 1): Total(3, 1, 7)}
    a.add(JOB, 3, 1, token=7)
    assert a.totals() == {("UA", 1): Total(4, 1, 12)}
    assert a.done() == 1


def test_write_with_a_smaller_token_changes_nothing_and_is_counted(stores):
    a, b, _ = stores
    a.add(JOB, 0, 2, token=7)
    b.add(JOB, 2, 2, token=9)
    before = b.totals(), b.position(JOB.id), b.accepted()
    with pytest.raises(StaleWrite, match="token 7, but 9 has been seen"):
        a.add(JOB, 2, 2, token=7)
    assert (b.totals(), b.position(JOB.id), b.accepted()) == before
    assert b.refused() == [(JOB.id, 7, 9, "a")]


def test_each_role_has_a_fence_of_its_own(stores):
    a, b, _ = stores
    a.add(JOB, 0, 4, token=9)
    b.add(LATER, 0, 1, token=2)
    assert a.greatest_token(JOB.id) == 9
    assert a.greatest_token(LATER.id) == 2
    assert a.greatest_token("nobody's") == 0


def test_board_is_fenced_too(stores):
    a, b, _ = stores
    b.publish("UA", "carrier/UA", token=5)
    with pytest.raises(StaleWrite):
        a.publish("UA", "carrier/UA", token=4)


def test_pending_jobs_are_the_delivered_ones_that_are_not_done(stores):
    """The pending jobs are delivered and not done."""
    a, _, _ = stores
    assert a.pending() == [JOB.id]
    a.open(2)
    assert a.pending() == [JOB.id, LATER.id]
    a.add(JOB, 0, 4, token=1)
    assert a.pending() == [LATER.id]


def test_job_that_was_begun_is_listed_before_earlier_days(tmp_path):
    store = Store(tmp_path / "store.db")
    early, late = Job("UA", 1, 1, [1, 2]), Job("UA", 1, 2, [1, 2])
    store.create([early, late], open_until=1)
    store.add(late, 0, 1, token=1)
    assert store.pending() == [late.id, early.id]
    store.close()


def test_store_in_the_middle_of_a_write_says_that_it_is_locked(stores):
    a, b, _ = stores
    assert not b.is_locked()
    with a._transaction():
        assert b.is_locked()
    assert not b.is_locked()


def test_with_the_fence_switched_off_the_checks_find_the_stale_write(stores):
    """Without the fence, the checks find the stale write.

    So the checks can fail. This is the damage that the fence prevents.
    """
    a, b, unfenced = stores
    a.add(JOB, 0, 2, token=7)
    b.add(JOB, 2, 2, token=9)
    unfenced.add(JOB, 2, 2, token=7)
    assert checks.stale_accepted(a.accepted()) == ["UA/2013-01-01: c wrote with 7 after 9"]
    assert checks.wrong_chunks(a.accepted(), {JOB.id: 4})
    assert checks.wrong_totals(a.totals(), {("UA", 1): JOB.total(0, 4)})
