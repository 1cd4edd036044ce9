"""The table of holds: what a process holds, drains and waits for."""

import pytest

from rink.core.claims import Gate, Obstacles, closed
from rink.core.holds import Handle, Table
from rink.core.member_record import Share

SHARE = Share(0, 1, "jump")


@pytest.fixture
def table():
    return Table(Gate(SHARE, Obstacles, 7, 3, "", {}), deadline=100.0)


def take(table, now=0.0, gate=None, role="x"):
    """Take a role with a handle of its own; returns the handle, or None."""
    handle = Handle(role)
    return handle if table.take(gate or table.gate, handle, now) else None


def test_role_is_taken_with_the_gates_token_and_version(table):
    hold = take(table, 99.0).hold
    assert (hold.role, hold.token, hold.version, hold.share) == ("x", 7, 3, SHARE)
    assert len(hold.handles) == 1
    assert table.roles == {"x"}


def test_handles_of_one_role_share_its_hold_until_the_last_is_released(table):
    one, two, three = take(table), take(table), Handle("x")
    assert table.join(three, 0.0) is one.hold is two.hold
    for handle in (one, three):
        assert not table.release(handle)
        assert table.roles
    assert not table.release(two)
    assert not table.roles


def test_nothing_is_taken_through_a_gate_that_is_not_the_published_one(table):
    old, table.gate = table.gate, Gate(SHARE, Obstacles, 8, 3, "", {})
    assert take(table, gate=old) is None
    assert take(table)


def test_nothing_is_taken_through_a_closed_gate(table):
    table.gate = closed("no")
    assert take(table) is None


def test_held_role_is_joined_even_while_the_gate_is_closed(table):
    hold = take(table).hold
    table.gate = closed("this member is still writing its record")
    assert take(table).hold is hold


def test_nothing_is_taken_or_joined_at_the_deadline(table):
    assert take(table, 100.0) is None
    take(table, 99.9)
    assert table.join(Handle("x"), 100.0) is None
    assert take(table, 100.0) is None


def test_role_is_granted_anew_after_the_lost_grants_handles_are_released(table):
    handle = take(table)
    hold = handle.hold
    table.lose(hold, 5.0, "because")
    assert (hold.lost_at, hold.lost_because) == (5.0, "because")
    assert take(table, 6.0) is None
    assert table.join(Handle("x"), 6.0) is None
    assert table.draining == [hold]
    assert table.release(handle) is True
    assert take(table, 7.0).hold is not hold


def test_claim_that_was_given_up_drains_no_more_and_bars_a_new_grant(table):
    handle = take(table)
    table.lose(handle.hold, 5.0, "because")
    handle.hold.given_up = True
    assert table.draining == []
    assert take(table, 6.0) is None
    assert table.release(handle) is True
    assert take(table, 7.0)


def test_everybody_who_waits_for_a_role_is_granted_it_at_once(table):
    handles = [Handle("x") for _ in range(3)]
    for handle in handles:
        table.want(handle)
    assert table.roles == {"x"}
    assert table.grant("x", 0.0) == handles
    (hold,) = {handle.hold for handle in handles}
    assert hold.handles == set(handles)
    assert not table.waits


def test_who_waits_for_a_role_held_here_joins_it(table):
    hold = take(table).hold
    table.want(Handle("x"))
    table.want(Handle("x"))
    assert len(table.grant("x", 0.0)) == 2
    assert len(hold.handles) == 3


def test_grant_that_is_not_possible_keeps_the_waiters(table):
    table.want(Handle("x"))
    assert table.grant("x", 100.0) == []
    assert len(table.waits["x"]) == 1


def test_handle_that_is_released_while_it_waits_is_forgotten(table):
    one, two = Handle("x"), Handle("x")
    table.want(one)
    table.want(two)
    assert table.release(one) is False
    assert table.grant("x", 0.0) == [two]
    assert one.hold is None


def test_handle_that_was_granted_before_it_was_withdrawn_is_let_go_of(table):
    handle = Handle("x")
    table.want(handle)
    table.grant("x", 0.0)
    table.release(handle)
    assert not table.roles


def test_last_waiter_leaves_nothing_behind(table):
    handle = Handle("x")
    table.want(handle)
    table.release(handle)
    assert not table.roles


def test_releasing_twice_takes_nothing_from_other_handles(table):
    one, two = take(table), take(table)
    table.release(one)
    table.release(one)
    assert two.hold.handles == {two}
    table.lose(two.hold, 5.0, "because")
    assert table.release(two) is True
    three = take(table, 6.0)
    assert table.release(two) is True  # again: whoever was interrupted may not have told it
    assert table.held == {"x": three.hold}


def test_handle_that_needs_a_greater_token_takes_and_joins_none_below(table):
    late = Handle("x", token_above=7)
    assert table.take(table.gate, late, 0.0) is None
    first = take(table)
    assert table.join(late, 0.0) is None
    table.want(late)
    assert table.token_above == 7
    assert table.release(first) is True
    table.gate = Gate(SHARE, Obstacles, 8, 3, "", {})
    assert table.grant("x", 0.0) == [late]
    assert late.hold.token == 8
    assert table.join(Handle("x", token_above=7), 0.0) is late.hold


def test_handle_that_nothing_was_done_for_is_released_all_the_same(table):
    assert table.release(Handle("x")) is False
    assert not table.roles


def test_names_that_come_and_go_between_two_steps_are_forgotten(table):
    for number in range(10):
        handle = Handle(f"job-{number}")
        table.want(handle)
        table.release(handle)
    assert table.unplaced == set()
