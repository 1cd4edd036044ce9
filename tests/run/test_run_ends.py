"""Test when the guard ends the command, on virtual time.

This covers `Ends`, and the times under a lease.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rink.run.command_guard import KILL, TERM, Ends
from rink.run.guard_link import KillTimes

GRACE, NOTICE, LEAD = 10_000, 4_000, 500


def ends(until=20_000):
    return Ends(until, GRACE, NOTICE, LEAD)


def test_ends_before_the_end_told_sends_term_then_kill():
    it = ends(20_000)
    assert it.wake_at == 15_500
    assert it.due(15_499) == ""
    assert it.due(15_500) == TERM
    assert it.wake_at == 19_500
    assert it.due(19_499) == ""
    assert it.due(19_500) == KILL
    assert it.due(0) == KILL  # for good


def test_ends_moved_on_in_time_sends_nothing():
    it = ends(20_000)
    it.move_end(23_000, 15_000)
    assert it.due(18_499) == ""
    assert it.due(18_500) == TERM


def test_ends_after_a_stop_kills_when_the_grace_is_over():
    it = ends(60_000)
    assert it.stop(1_000)
    assert not it.stop(2_000)  # one SIGTERM
    assert it.due(10_999) == ""
    assert it.due(11_000) == KILL


def test_ends_after_a_stop_near_the_end_kills_before_the_end():
    it = ends(5_000)
    it.stop(1_000)
    assert it.wake_at == 4_500


def test_ends_moved_on_while_stopping_gives_the_whole_grace():
    it = ends(5_000)
    it.stop(1_000)
    it.move_end(30_000, 4_000)
    assert it.wake_at == 11_000


def test_ends_closed_sends_term_now_and_kill_at_the_end_told():
    it = ends(20_000)
    assert it.close(1_000)
    assert it.due(19_499) == ""
    assert it.due(19_500) == KILL


def test_ends_closed_believes_no_later_end():
    it = ends(20_000)
    it.close(1_000)
    it.move_end(90_000, 2_000)
    assert it.kill_at == 19_500


def test_ends_of_a_frozen_guard_kills_in_spite_of_a_later_end():
    """The guard was frozen beyond its end, and finds a later end in its pipe."""
    it = ends(20_000)
    it.move_end(90_000, 19_500)
    assert it.due(19_600) == KILL


def test_ends_killed_believes_no_later_end():
    it = ends(20_000)
    it.kill()
    assert it.due(1) == KILL
    it.move_end(90_000, 2)
    assert it.due(3) == KILL


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["told", "stop", "close", "look", "look"]),
        st.integers(0, 8_000),  # how much later
        st.integers(-2_000, 30_000),  # how far ahead the end told is
    ),
    max_size=30,
)


@given(STEPS)
def test_ends_never_lets_the_command_live_to_the_last_end_told(steps):
    """A guard that obeys `wake_at` has killed before the last told end.

    An end counts as told only if it came before the kill was due, and from a `rink run` that lived.
    """
    now, until, is_closed = 0, 20_000, False
    it = ends(until)
    killed_at = None
    for what, later, ahead in steps:
        target = now + later
        while killed_at is None and it.wake_at <= target:  # the timer rings in between
            now = max(now, it.wake_at)
            if it.due(now) == KILL:
                killed_at = now
        now = target
        if killed_at is not None:
            break
        if what == "told":
            it.move_end(now + ahead, now)
            if not is_closed:
                until = now + ahead
        elif what == "close":
            it.close(now)
            is_closed = True
        elif what == "stop":
            it.stop(now)
    if killed_at is not None:
        assert killed_at <= max(until - LEAD, now)
    assert it.kill_at <= until - LEAD


@pytest.mark.parametrize("ttl", [2, 3, 5, 10, 20, 60, 300])
def test_limits_leave_two_thirds_of_the_ttl_to_an_outage(ttl):
    """This holds from `ttl=5` on. A shorter TTL has no time for it."""
    margin = max(0.5, ttl / 10)
    limits = KillTimes.of(ttl, margin, 10.0)
    span = (ttl - margin) * 1000
    term_at = span - limits.lead - limits.notice
    assert 0 < term_at < span
    assert 0 < limits.notice <= limits.grace
    assert limits.lead > 0
    if ttl >= 5:
        assert term_at >= ttl * 2000 / 3 - 1


def test_limits_with_a_short_grace_send_term_late():
    limits = KillTimes.of(20, 2, 1.0)
    assert (limits.grace, limits.notice, limits.lead) == (1_000, 1_000, 500)
