"""The table of holds: what a process holds, drains and waits for."""

import pytest

from rink.core.claims import Gate, Obstacles, closed
from rink.core.holds import Table, Wait
from rink.core.values import Share

SHARE = Share(0, 1, "jump")


@pytest.fixture
def table():
    return Table(Gate(SHARE, Obstacles(), 7, 3, "", {}), deadline=100.0)


def test_a_role_is_taken_with_the_gates_token_and_version(table):
    hold = table.take(table.gate, "x", 99.0)
    assert (hold.role, hold.token, hold.version, hold.share) == ("x", 7, 3, SHARE)
    assert hold.handles == 1
    assert table.roles == {"x"}


def test_handles_of_one_role_share_its_hold_until_the_last_is_released(table):
    hold = table.take(table.gate, "x", 0.0)
    assert table.take(table.gate, "x", 0.0) is hold
    assert table.join("x", 0.0) is hold
    assert [table.release(hold) for _ in range(3)] == [False, False, False]
    assert not table.roles


def test_nothing_is_taken_through_a_gate_that_is_not_the_published_one(table):
    old, table.gate = table.gate, Gate(SHARE, Obstacles(), 8, 3, "", {})
    assert table.take(old, "x", 0.0) is None
    assert table.take(table.gate, "x", 0.0)


def test_nothing_is_taken_through_a_closed_gate(table):
    table.gate = closed("no")
    assert table.take(table.gate, "x", 0.0) is None


def test_a_held_role_is_joined_even_while_the_gate_is_closed(table):
    hold = table.take(table.gate, "x", 0.0)
    table.gate = closed("the own record is being written")
    assert table.take(table.gate, "x", 0.0) is hold


def test_nothing_is_taken_or_joined_at_the_deadline(table):
    assert table.take(table.gate, "x", 100.0) is None
    table.take(table.gate, "x", 99.9)
    assert table.join("x", 100.0) is None
    assert table.take(table.gate, "x", 100.0) is None


def test_a_role_is_granted_anew_only_when_the_lost_grants_handles_are_released(table):
    hold = table.take(table.gate, "x", 0.0)
    table.lose(hold, 5.0, "because")
    assert (hold.lost_at, hold.lost_because) == (5.0, "because")
    assert table.take(table.gate, "x", 6.0) is None
    assert table.join("x", 6.0) is None
    assert table.draining == [hold]
    assert table.release(hold) is True
    assert table.take(table.gate, "x", 7.0) is not hold


def test_a_claim_that_was_given_up_drains_no_more_and_still_bars_a_new_grant(table):
    hold = table.take(table.gate, "x", 0.0)
    table.lose(hold, 5.0, "because")
    hold.given_up = True
    assert table.draining == []
    assert table.take(table.gate, "x", 6.0) is None
    assert table.release(hold) is True
    assert table.take(table.gate, "x", 7.0)


def test_everybody_who_waits_for_a_role_is_granted_it_at_once(table):
    waits = [Wait("x") for _ in range(3)]
    for wait in waits:
        table.want(wait)
    assert table.roles == {"x"}
    assert table.grant("x", 0.0) == waits
    (hold,) = {wait.hold for wait in waits}
    assert hold.handles == 3
    assert not table.waits


def test_who_waits_for_a_role_held_here_joins_it(table):
    hold = table.take(table.gate, "x", 0.0)
    table.want(Wait("x"))
    table.want(Wait("x"))
    assert len(table.grant("x", 0.0)) == 2
    assert hold.handles == 3


def test_a_grant_that_is_not_possible_keeps_the_waiters(table):
    table.want(Wait("x"))
    assert table.grant("x", 100.0) == []
    assert len(table.waits["x"]) == 1


def test_a_wait_that_is_withdrawn_is_forgotten(table):
    one, two = Wait("x"), Wait("x")
    table.want(one)
    table.want(two)
    assert table.withdraw(one) is None
    assert table.grant("x", 0.0) == [two]
    assert table.withdraw(one) is None


def test_a_withdrawn_wait_that_was_granted_first_gives_its_hold(table):
    wait = Wait("x")
    table.want(wait)
    table.grant("x", 0.0)
    hold = table.withdraw(wait)
    assert hold.handles == 1
    table.release(hold)
    assert not table.roles


def test_the_last_waiter_leaves_nothing_behind(table):
    wait = Wait("x")
    table.want(wait)
    table.withdraw(wait)
    assert not table.roles


def test_releasing_more_often_than_taking_is_refused(table):
    hold = table.take(table.gate, "x", 0.0)
    table.release(hold)
    with pytest.raises(AssertionError, match="released more often"):
        table.release(hold)
