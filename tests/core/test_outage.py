"""The log of a member while no keepalive is answered."""

import pytest
from world import role_of

from rink.core import effects as do
from rink.core import events as ev
from rink.core.effects import Level


def said(member, *levels):
    reports = [one for one in member.made(do.Report) if one.level in levels]
    return [report.text for report in reports if report.version is None]


@pytest.fixture
def cut_off(pair):
    """b holds a role, and its keepalives are answered no more."""
    pair.get("b", role_of(1, 2))
    pair.members["b"].alive = False
    return pair


def overdue(world, words="etcd: connection refused"):
    member = world.members["b"]
    if member.node.overdue(world.now, words):
        world.step(member, [ev.Nudged()])


def test_outage_begun_is_warned_of_once_with_words_and_time_left(cut_off):
    world, b = cut_off, cut_off.members["b"]
    at = b.node.member_lease.answered_at
    world.sleep(at + 19.9 - world.now)
    overdue(world)
    assert said(b, Level.WARNING) == []
    world.sleep(0.2)
    overdue(world)
    overdue(world)
    [warning] = said(b, Level.WARNING)
    assert warning == (
        "lease 2: not renewed for 20.1 s (etcd: connection refused); every role is lost "
        "in 33.9 s unless the lease is renewed"
    )
    assert b.node.out.last_error == warning


def test_outage_beyond_the_deadline_is_an_error_that_counts_the_roles(cut_off):
    world, b = cut_off, cut_off.members["b"]
    world.sleep(20.1)
    overdue(world)
    world.sleep(35.0)
    [error] = said(b, Level.ERROR)
    assert "not renewed for 54" in error
    assert "(etcd: connection refused): the session and 1 role are lost; Rink keeps" in error


@pytest.mark.parametrize("is_told", [False, True])
def test_outage_found_beyond_the_deadline_is_one_error_with_words(cut_off, is_told):
    """Nobody has warned before, so the process did not run."""
    world, b = cut_off, cut_off.members["b"]
    world.now = b.node.member_lease.answered_at + 60.0
    if is_told:
        overdue(world)
    world.step(b, [ev.Nudged()])
    [error] = said(b, Level.ERROR)
    words = "etcd: connection refused" if is_told else "this process did not run for at least 40.0"
    assert f"not renewed for 60.0 s ({words}" in error
    assert said(b, Level.WARNING) == []


@pytest.mark.parametrize("seconds", [25.0, 58.0])
def test_outage_over_is_told_with_its_length(cut_off, seconds):
    world, b = cut_off, cut_off.members["b"]
    world.sleep(seconds)
    overdue(world)
    b.alive = True
    world.sleep(1.0)
    [back] = [text for text in said(b, Level.INFO) if text.startswith("the session is back after")]
    assert back.endswith("s as incarnation i2")
    assert b.node.outage.since is None


def test_late_answer_of_an_early_request_ends_no_outage(cut_off):
    """Move the deadline a little; the next answer is still overdue."""
    world, b = cut_off, cut_off.members["b"]
    at = b.node.member_lease.answered_at
    world.sleep(at + 35.0 - world.now)
    overdue(world)
    assert b.node.renew(world.now, b.node.member_lease.id, at + 10.0, 0) == ([], False)
    assert b.node.outage.since == at
    world.step(b, [ev.Nudged()])
    assert not [
        text for text in said(b, Level.INFO) if text.startswith("the session is back after")
    ]


def test_outage_that_follows_another_one_is_told_as_well(cut_off):
    world, b = cut_off, cut_off.members["b"]
    for _ in range(2):
        b.alive = False
        world.sleep(25.0)
        overdue(world)
        b.alive = True
        world.sleep(12.0)
    assert len(said(b, Level.WARNING)) == 2
    assert (
        len([text for text in said(b, Level.INFO) if text.startswith("the session is back after")])
        == 2
    )


def test_session_ended_by_etcd_is_a_warning_and_then_back(pair):
    world, b = pair, pair.members["b"]
    world.etcd.end_lease(b.node.member_lease.id)
    world.tell("b", ev.LeaseEnded(b.node.member_lease.id))
    world.sleep(1.0)
    assert said(b, Level.WARNING) == [
        "member 'b' lost its session: etcd has ended the member's lease"
    ]
    assert [text for text in said(b, Level.INFO) if text.startswith("the session is back after")]


def test_grant_that_comes_after_its_deadline_is_the_reason(world):
    b = world.add("b", held=["answers"])
    world.run()
    world.now += 60.0
    world.let("b")
    [error] = said(b, Level.ERROR)[:1]
    assert "(the grant of the lease came after its deadline): the session" in error


def test_joining_is_not_told_as_being_back(pair):
    assert said(pair.members["b"], Level.INFO) == []


def test_loss_is_told_before_it_is_logged(cut_off):
    """Report a loss before its log line, since a log handler may block."""
    world, node = cut_off, cut_off.node("b")
    world.members["b"].lets_go = False
    world.now += 54.5
    effects = node.expire(world.now)
    assert [type(effect) for effect in effects] == [do.Lose]
    assert node.owes_reports
    [report] = [one for one in node.step(world.now, [ev.Nudged()]) if isinstance(one, do.Report)]
    assert report.level is Level.ERROR
    assert not node.owes_reports


def test_loss_is_told_before_anything_of_its_step_is_logged(pair):
    world, node = pair, pair.node("b")
    world.get("b", role_of(1, 2))
    failed = ev.ChoreFailed("pruning old versions", RuntimeError("no answer"))
    events = [failed, ev.LeaseEnded(node.member_lease.id)]
    effects = [type(one) for one in node.step(world.now, events)]
    assert effects.index(do.Lose) < effects.index(do.Report)
