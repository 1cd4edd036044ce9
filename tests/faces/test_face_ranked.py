"""Check waits for a rank, and their messages, on both faces."""

import contextlib
import logging
import re
import threading

import pytest
from faces_support import LONG_S, engine_of, owned_by, until

import rink
import rink.role_set


def in_words(text, delay):
    """Return a text without the seconds that are left of a delay.

    They must be nearly all of it: a busy machine may have taken some.
    """
    (seconds,) = re.findall(rf"in about (\d+) s \(rebalance_delay={delay}\)", text)
    assert delay - LONG_S <= int(seconds) <= delay
    return text.replace(f"in about {seconds} s", "in about N s")


def test_wait_ranked_returns_a_rank_under_which_roles_are_granted(world):
    member = world.make("a").join()
    assert member.wait_ranked(LONG_S) == 0
    with member.get_role("job") as role:
        assert role.rank == 0
    other = world.make("b").join()
    assert other.wait_ranked() == 1
    with other.await_role(owned_by(1, 2), LONG_S):
        pass


def test_wait_ranked_that_times_out_says_when_the_group_grows(world):
    world.join("a")
    member = world.make("b", rebalance_delay=60.0).join()
    with pytest.raises(rink.RoleTimeout) as caught:
        member.wait_ranked(0.01)
    assert in_words(str(caught.value), 60) == (
        "'b' was not ranked in group 'g' within 0.01 s: not ranked yet: the group grows for this "
        "member in about N s (rebalance_delay=60), or at once if another member leaves; sooner if "
        "the group has only just started"
    )
    assert (caught.value.role, caught.value.group, caught.value.member) == ("", "g", "b")


def test_wait_ranked_that_lasts_logs_once_when_the_group_grows(world, apart, caplog, monkeypatch):
    caplog.set_level(logging.INFO, logger="rink")
    monkeypatch.setattr("rink.wait_ranked.REPORT_AFTER_S", 0.02)
    world.join("a")
    member = world.make("b", rebalance_delay=60.0).join()
    waiting = apart(member.wait_ranked)
    text = "group 'g': a rank has been awaited for over 0.02 s: not ranked yet: the group grows"
    until(member, lambda: [one for one in caplog.records if one.getMessage().startswith(text)])
    member.leave()
    with pytest.raises(rink.ClosedError):
        waiting.result(LONG_S)
    [record] = [one for one in caplog.records if "a rank has been awaited" in one.getMessage()]
    assert (record.levelno, record.group, record.member) == (logging.INFO, "g", "b")


def test_status_of_a_member_without_a_rank_says_when_the_group_grows(world):
    a = world.join("a")
    member = world.make("b", rebalance_delay=60.0).join()
    words = in_words(member.status().not_ranked, 60)
    assert "the group grows for this member in about N s" in words
    assert a.status().not_ranked == ""


def test_wait_for_a_role_without_a_rank_says_when_the_group_grows(world):
    world.join("a")
    member = world.make("b", rebalance_delay=30.0).join()
    with pytest.raises(rink.RoleTimeout) as caught:
        member.await_role("leader", 0.01)
    assert "for this member in about N s" in in_words(str(caught.value), 30)

    def wait():
        with contextlib.suppress(rink.ClosedError):
            member.await_role("leader").release()

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    until(member, lambda: member.status().waiting_for)
    assert "(rebalance_delay=30), or at once" in member.status().waiting_for["leader"]
    member.leave()
    waiting.join(LONG_S)


def test_wait_ranked_ends_when_the_group_is_left(world):
    world.join("a")
    member = world.make("b", rebalance_delay=60.0).join()
    errors = []

    def wait():
        try:
            member.wait_ranked()
        except rink.ClosedError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    until(member, lambda: len(engine_of(member).stepped._callbacks) == 2)  # one is until's own
    member.leave()
    waiting.join(LONG_S)
    assert len(errors) == 1
    with pytest.raises(rink.ClosedError):
        member.wait_ranked(1.0)


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), "1"])
def test_wait_ranked_refuses_a_timeout_that_is_no_duration(world, timeout):
    member = world.join("a")
    with pytest.raises(rink.ConfigError, match="timeout"):
        member.wait_ranked(timeout)


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), "soon"])
def test_wait_settled_with_a_bad_timeout_is_refused(world, timeout):
    member = world.join("a")
    with pytest.raises(rink.ConfigError, match="timeout"):
        member.wait_settled(timeout)


def test_role_set_whose_start_fails_wants_no_role(world, monkeypatch):
    """Nobody calls the exit of a `with` whose enter has raised."""
    member = world.join("a")
    start = rink.role_set.Tracker.start

    def fail(tracker):
        start(tracker)
        raise RuntimeError("interrupted")

    monkeypatch.setattr("rink.role_set.Tracker.start", fail)
    with pytest.raises(RuntimeError, match="interrupted"):
        member.roles(["x", "y"]).__enter__()
    until(member, lambda: not member.status().held and not member.status().waiting_for)
    with member.await_role("x", LONG_S) as role:
        assert role.is_held
