"""Test joins (R8): a taken name, and a join given up at every step."""

import pytest
from world import KINDS, ROLES

from rink.core import effects as do
from rink.core import events as ev
from rink.core.member import MemberSettings
from rink.core.ranks import RankSettings
from rink.core.state_tables import Life, Write
from rink.errors import ConfigError, JoinError, MemberNameTaken


def test_member_has_joined_when_its_record_is_written_and_in_the_view(world):
    member = world.add("a", held=KINDS)
    while not member.joined:
        assert member.node.living.state is Life.JOINING
        assert any(world.carry(member, kind) for kind in KINDS)
    assert world.record("a") is not None
    assert "a" in member.node.view.members


def test_versions_are_reported_from_the_join_on(world):
    """A newcomer lists the group before its record exists."""
    world.add("a")
    world.sleep(60.0)
    member = world.add("b", held=KINDS)
    while not member.joined:
        assert not member.made(do.Report)
        assert any(world.carry(member, kind) for kind in reversed(KINDS))
    assert member.node.following.version is not None
    [report] = member.made(do.Report)
    assert (report.version, report.text) == (1, "version 1: no rank (of 1): started, joined a")


def test_name_that_is_taken_is_waited_for_with_a_line_every_ten_seconds(world):
    old = world.add("a", address="10.0.0.1", joined="yesterday")
    world.kill("a")
    new = world.add("a")
    assert new.node.writer.state is Write.TAKEN
    assert not new.joined
    world.sleep(25.0)
    lines = [text for text in new.reports if "waits to join" in text]
    assert len(lines) == 3
    assert "10.0.0.1" in lines[0]
    assert "joined yesterday" in lines[0]
    world.expire(old)
    assert new.joined
    assert world.get("a", "x")


def test_create_that_is_carried_out_late_ends_the_wait_for_the_name(pair):
    """Apply the first create after the retry found another record."""
    world = pair
    b = world.members["b"]
    world.hold("b", "requests")
    world.etcd.put("members/b", b"junk")
    world.run()
    while not isinstance(b.to_etcd[0], do.WriteRecord):
        world.carry(b, "requests")
        world.run()
    world.lose("b")
    world.let("b")
    world.sleep(1.0)
    assert b.node.writer.state is Write.TAKEN
    world.hold("b", "events")
    world.etcd.delete("members/b")
    world.thaw()
    assert world.record("b").incarnation == b.node.writer.incarnation
    b.listed = False
    world.let("b")
    world.sleep(1.0)
    assert b.node.writer.is_settled
    assert world.holders(ROLES).keys() == set(ROLES)


def test_name_that_stays_taken_ends_the_join_after_its_timeout(world):
    world.add("a")
    other = world.members.pop("a")
    new = world.add("a", join_timeout=30.0)
    world.sleep(29.0)
    assert new.failed is None
    world.sleep(1.5)
    assert isinstance(new.failed, MemberNameTaken)
    assert "within 30 s" in str(new.failed)
    assert new.left
    assert not any(report.version for report in new.made(do.Report)), "it never joined"
    assert world.etcd.leases == {other.node.member_lease.id}


def test_join_that_nobody_answers_ends_after_its_timeout(world):
    member = world.add("a", join_timeout=5.0, held=KINDS)
    world.sleep(6.0)
    assert isinstance(member.failed, JoinError)
    assert "no answer from etcd yet" in str(member.failed)
    world.let("a")
    world.sleep(1.0)
    assert member.left
    assert not world.etcd.leases


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("how", ["leave", "lose", "lose the answer", "list fails"])
def test_join_given_up_at_any_step_leaves_no_live_lease(world, steps, how):
    member = world.add("a", held=KINDS)
    for _ in range(steps):
        if not any(world.carry(member, kind) for kind in KINDS):
            break
    if how == "leave":
        world.leave("a")
    elif how == "list fails":
        world.tell("a", ev.ListFailed(OSError("down")))
    elif member.to_etcd and not isinstance(member.to_etcd[0], do.Proclaim):
        world.lose("a", answer=how == "lose the answer")
    joined = member.node.living.state is Life.ACTIVE
    if "a" in world.members:
        world.let("a")
        world.sleep(20.0)
    while world.late:
        world.thaw()
    if joined or "a" in world.members:
        assert member.failed is None
        assert world.get("a", "x")
    else:
        assert member.left
        granted = {effect.lease for effect in member.made(do.KeepLease)}
        assert not granted & world.etcd.leases
        assert world.record("a") is None


def test_failure_after_the_join_is_no_failed_join(pair):
    pair.tell("b", ev.ListFailed(OSError("down")))
    assert not pair.members["b"].made(do.JoinFailed)


@pytest.mark.parametrize(
    "bad",
    [
        {"grace": float("inf")},
        {"leave_timeout": -1.0},
        {"join_timeout": float("nan")},
        {"ranking": RankSettings(rebalance_delay=float("inf"))},
        {"ranking": RankSettings(leave_delay=-1.0)},
        {"ranking": RankSettings(stagger=0)},
    ],
)
def test_settings_that_no_record_or_clock_can_carry_are_refused(bad):
    with pytest.raises(ConfigError, match=r"not -?(inf|nan|1|0)"):
        MemberSettings("a", 60, **bad)


# ── etcd fails while a name is waited for ────────────────────────────────────────────────────


@pytest.fixture(params=[600.0, None])
def waiting(world, request):
    """A restarted pod that waits for its name; its requests are held back."""
    old = world.add("a")
    world.kill("a")
    new = world.add("a", join_timeout=request.param)
    assert new.node.writer.state is Write.TAKEN
    world.hold("a", "requests")
    return world, old, new


@pytest.mark.parametrize("answer", [False, True], ids=["lost", "answer lost"])
def test_create_without_an_answer_is_retried_once_the_name_was_taken(waiting, answer):
    world, old, new = waiting
    world.sleep(30.0)
    world.expire(old)
    for _ in range(3):
        world.lose("a", answer=answer)
        world.sleep(3.0)
        assert new.failed is None
    world.let("a")
    world.sleep(1.0)
    assert new.joined
    assert world.get("a", "x")
    while world.late:
        world.thaw()
    assert world.record("a").incarnation == new.node.writer.incarnation


def test_once_a_name_was_seen_taken_no_other_failure_ends_the_join(waiting):
    world, old, new = waiting
    world.tell("a", ev.ListFailed(OSError("down")))
    world.etcd.end_lease(new.node.member_lease.id)
    world.sleep(20.0)
    assert isinstance(new.to_etcd[0], do.GrantLease)
    world.lose("a")
    world.sleep(3.0)
    assert new.failed is None
    world.let("a")
    world.sleep(3.0)
    assert new.node.writer.state is Write.TAKEN
    world.expire(old)
    assert new.joined


def test_that_a_name_is_taken_counts_before_a_failure_that_comes_with_it(world):
    world.add("a")
    world.kill("a")
    new = world.add("a", held=["answers", "events"])
    while not any(isinstance(event, ev.WriteAnswered) for event in new.from_etcd):
        any(world.carry(new, kind) for kind in KINDS)
    world.tell("a", new.from_etcd.popleft(), ev.ListFailed(OSError("down")))
    assert new.failed is None


def test_join_that_saw_its_name_taken_ends_only_after_its_timeout(world):
    old = world.add("a")
    world.kill("a")
    new = world.add("a", join_timeout=30.0)
    world.hold("a", "requests")
    world.expire(old)
    while world.now < 1029.0:
        if new.to_etcd:
            world.lose("a")
        world.sleep(0.1)
    assert new.failed is None
    world.sleep(2.0)
    assert isinstance(new.failed, JoinError)
    assert not isinstance(new.failed, MemberNameTaken)
    assert "within 30 s; last error: writing this member's record failed" in str(new.failed)
    world.let("a")
    world.sleep(1.0)
    assert new.left
    while world.late:
        world.thaw()
    assert world.record("a") is None


@pytest.mark.parametrize(
    "event", [ev.ProclaimFailed(1, OSError("too large")), ev.PostFailed(OSError("too large"))]
)
def test_request_of_a_coordinator_that_fails_ends_no_join(world, event):
    """Cover a coordinator that has not joined yet.

    It coordinates before that when its record is written anew.
    """
    member = world.add("a", held=KINDS)
    world.tell("a", event)
    assert member.failed is None
    world.let("a")
    assert member.joined


def test_name_taken_in_another_history_waits_for_a_list(pair):
    """Retry no create at once by a view of the history before.

    That view has no record of the name.
    """
    world, b = pair, pair.members["b"]
    copy = world.etcd.copy()
    world.etcd.delete("members/b")
    world.hold("b", "requests")
    world.run()
    while not isinstance(b.to_etcd[0], do.WriteRecord):
        world.carry(b, "requests")
        world.run()
    assert "b" not in b.node.view.members
    world.hold("b", "events")
    world.replace_history(copy)
    writes = len(b.made(do.WriteRecord))
    world.let("b", "requests")
    assert b.node.writer.state is Write.TAKEN
    assert len(b.made(do.WriteRecord)) == writes
    world.let("b")
    world.etcd.delete("members/b")
    world.run()
    assert b.node.writer.exists
