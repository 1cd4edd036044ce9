"""Check joining, leaving and the group's status, on both faces."""

import pickle

import pytest
from faces_support import LONG_S, ShiftedClock, engine_of, owned_by, raw, records, until

import rink
from rink.core import codec
from rink.core.keys import Keys
from rink.core.values import Version
from rink.etcd.api import Delete, Put
from rink.testing.memory.cluster import MemoryCluster


def test_join_makes_a_record_and_a_leave_takes_it_away(world):
    member = world.make("a").join()
    assert records(world) == {"a"}
    member.leave()
    assert records(world) == set()


def test_leaving_twice_does_nothing(world):
    member = world.join("a")
    member.leave()
    member.leave()


def test_leaving_without_having_joined_does_nothing(world):
    world.make("a").leave()


def test_lone_member_is_ranked_at_once_and_coordinates(world):
    member = world.join("a", initial_delay=60.0, rebalance_delay=60.0)
    assert (member.rank, member.size, member.is_coordinator, member.version.number) == (
        0,
        1,
        True,
        1,
    )


def test_what_is_known_of_the_group_is_the_same_for_both(world):
    a, b = world.pair(labels={"zone": "north"})
    role = owned_by(1, 2)
    for member in (a, b):
        assert member.size == 2
        assert member.version.ranks == ("a", "b")
        assert member.owner(role) == "b"
        assert [one.name for one in member.members] == ["a", "b"]
    assert (a.is_coordinator, b.is_coordinator) == (True, False)
    assert (a.can_take(role), b.can_take(role)) == (False, True)
    assert a.name == "a"


def test_status_is_one_value_that_says_everything(world):
    a, b = world.pair(labels={"zone": "north"})
    role = owned_by(1, 2)
    with b.await_role(role, LONG_S) as held:
        status = b.status()
        token = held.token
    assert (status.group, status.me, status.rank, status.coordinator) == ("g", "b", 1, "a")
    assert (status.version, status.ranks, status.scheme) == (a.version.number, ("a", "b"), "jump")
    assert (status.settled, status.life, status.last_error) == (True, "active", "")
    assert (status.held, status.waiting_for, status.draining) == ({role: token}, {}, ())
    assert 0 < status.session_remaining <= 54.0
    assert status.revision >= token
    assert status.members[0].labels == {"zone": "north"}
    assert status.members[1].rank == 1
    assert status.members[1].shares[0].size == 2


def test_session_remains_for_its_ttl_less_the_margin(world):
    member = world.join("a", ttl=60.0)
    assert 30.0 < member.session_remaining <= 54.0
    assert raw(member)._session.is_live


@pytest.mark.parametrize(("margin", "remains"), [(None, 36.0), (1.0, 39.0)])
def test_session_margin_follows_a_larger_granted_ttl(world, monkeypatch, margin, remains):
    """An etcd with a long election timeout does so; a set margin stays."""
    monkeypatch.setattr("rink.testing.memory.state.MIN_TTL_S", 40)
    member = world.join("a", session=world.session(ttl=10.0, margin=margin))
    assert remains - 20.0 < member.session_remaining <= remains


def test_name_is_made_where_none_is_given(world):
    one, two = world.make(None), world.make(None)
    assert one.name != two.name


def test_what_needs_a_join_says_so_before_it(world):
    member = world.make("a")
    for use in (
        lambda: member.get_role("x"),
        lambda: member.await_role("x"),
        lambda: member.can_take("x"),
        lambda: member.owner("x"),
        lambda: member.rank,
        lambda: member.version,
        lambda: member.is_coordinator,
        lambda: member.members,
        member.status,
        lambda: member.session_remaining,
        lambda: member.wait_settled(1),
        lambda: next(member.versions()),
        lambda: member.roles(["x"]).__enter__(),
    ):
        with pytest.raises(rink.UsageError, match="not been joined"):
            use()


def test_roles_are_refused_after_the_leave(world):
    member = world.join("a")
    member.leave()
    for use in (lambda: member.get_role("x"), lambda: member.await_role("x")):
        with pytest.raises(rink.ClosedError, match="has been left"):
            use()
    assert not member.can_take("x")
    assert not member.wait_settled(LONG_S)
    assert not member.is_coordinator


def test_joining_twice_is_refused_also_after_a_leave(world):
    member = world.join("a")
    with pytest.raises(rink.UsageError, match="joined before"):
        member.join()
    assert member.rank == 0
    member.leave()
    with pytest.raises(rink.UsageError, match="make a new one"):
        member.join()


def test_closed_session_is_refused(world):
    session = world.session()
    member = world.make("a", session=session).join()
    session.close()
    session.close()
    assert records(world) == set()
    assert not session.is_live
    with pytest.raises(rink.ClosedError):
        member.get_role("x")
    with pytest.raises(rink.ClosedError, match="session has been closed"):
        world.make("b", session=session).join()


def test_session_closed_with_timeout_zero_tells_whoever_still_holds(world):
    session = world.session()
    a = world.make("a", session=session).join()
    role = a.await_role("x", LONG_S)
    session.etcd.cut()
    session.close(timeout=0.0)
    assert role.lost.wait(LONG_S)
    assert not role.is_held
    role.release()


def test_session_closed_with_timeout_keeps_the_claim_of_a_held_role(world):
    session = world.session()
    a = world.make("a", session=session).join()
    role = a.await_role("x", LONG_S)
    session.close(timeout=2.0)
    assert role.lost.is_set()
    assert records(world) == {"a"}
    role.release()


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1"])
def test_close_timeout_that_cannot_be_used_is_refused(world, timeout):
    session = world.session()
    with pytest.raises(rink.ConfigError, match="timeout"):
        session.close(timeout=timeout)


def test_closing_a_session_leaves_every_group(world):
    session = world.session()
    groups = [world.make("a", group=name, session=session).join() for name in ("one", "two")]
    session.close()
    for member in groups:
        assert engine_of(member).left.is_set()
    assert records(world, "one") == records(world, "two") == set()


def test_two_groups_of_one_session_are_independent(world):
    session = world.session()
    one = world.join("a", group="one", session=session)
    two = world.join("a", group="two", session=session)
    with one.await_role("x", LONG_S), two.await_role("x", LONG_S) as role:
        pass
    with two.await_role("x", LONG_S) as role:
        one.leave()
        assert role.is_held
    assert session.is_live
    assert records(world, "two") == {"a"}


def test_groups_whose_names_begin_alike_do_not_meet(world):
    one, two = world.join("a", group="g"), world.join("a", group="g/members")
    three = world.join("a", group="g2")
    assert [m.size for m in (one, two, three)] == [1, 1, 1]


def test_taken_name_is_refused_after_the_join_timeout(world, apart):
    first, clock = world.join("a"), ShiftedClock()
    session = world.session(ttl=1200.0, clock=clock)
    other = world.make("a", session=session, join_timeout=600.0)
    joining = apart(other.join)
    until(first, lambda: engine_of(other))
    until(other, lambda: "still has its name" in other.status().last_error)
    clock.ahead = 601.0
    engine_of(other).nudge()
    with pytest.raises(rink.MemberNameTaken, match=r"within 600 s.*has its name") as caught:
        joining.result(LONG_S)
    assert caught.value.member == "a"
    with pytest.raises(rink.ClosedError):
        other.await_role("x")
    assert len(records(world)) == 1


def test_taken_name_is_joined_under_once_it_is_free(world, apart):
    first = world.join("a")
    other = world.make("a", join_timeout=LONG_S)
    joining = apart(other.join)
    until(first, lambda: engine_of(other))
    until(other, lambda: "still has its name" in other.status().last_error)
    assert not joining.done()
    first.leave()
    joining.result(LONG_S)
    until(other, lambda: other.rank == 0)


def test_planned_restart_that_keeps_its_rank_moves_nothing(world):
    a, b = world.pair(leave_delay=60.0)
    number = a.version.number
    b.leave(keep_rank=True)
    assert records(world) == {"a"}
    again = world.join("b", leave_delay=60.0)
    assert again.rank == 1
    with again.await_role(owned_by(1, 2), LONG_S):
        assert a.version.number == again.version.number == number


def test_leave_moves_the_roles_to_whoever_waits(world):
    a, b = world.join("a"), None
    b = world.make("b", rebalance_delay=600.0, initial_delay=600.0).join()
    assert b.rank is None
    a.leave()
    until(b, lambda: b.rank == 0)
    assert b.version.ranks == ("b",)
    assert any("a" in cause for cause in b.version.because), b.version.because


def test_versions_are_followed_in_order_until_the_leave(world, apart):
    a = world.join("a")
    following = a.versions()
    assert next(following).ranks == ("a",)
    b = world.join("b")
    assert next(following).ranks == ("a", "b")
    b.leave()
    assert next(following).ranks == ("a",)
    rest = apart(list, following)
    a.leave()
    assert rest.result(LONG_S) == []


def test_versions_mark_those_that_were_pruned_before_they_were_told(world):
    """A reader of the versions must know which ones are missing."""
    a = world.join("a")
    following = a.versions()
    first = next(following)
    assert (first.number, list(first.skipped)) == (1, [])
    keys, etcd = Keys.of("rink/", "g"), world.cluster.client()
    versions = [Version(number, ("a",), "jump") for number in range(2, 19)]
    etcd.txn((), tuple(Put(keys.version(one.number), codec.encode(one)) for one in versions))
    etcd.txn((), (Delete(keys.version(0), keys.version(17)),))
    until(a, lambda: len(engine_of(a).node.view.versions) == 2)
    after, last = next(following), next(following)
    assert (after.number, after.skipped) == (17, range(2, 17))
    assert (last.number, list(last.skipped)) == (18, [])
    assert last == a.version  # what was skipped is no part of a version


def test_role_that_is_not_let_go_keeps_the_group_unsettled(world, apart):
    a = world.join("a")
    role = a.await_role(owned_by(1, 2), LONG_S)
    b = world.join("b")
    assert role.lost.wait(LONG_S)
    until(a, lambda: a.status().members[0].draining == (role.name,))
    assert not a.wait_settled(0.05)
    assert not b.wait_settled(0)
    settled = apart(b.wait_settled, LONG_S)
    role.release()
    assert settled.result(LONG_S) is True


def test_session_a_rink_and_a_role_are_not_pickled(world):
    member = world.join("a")
    with member.await_role("x", LONG_S) as role:
        for value in (raw(member)._session, raw(member), raw(role)):
            with pytest.raises(rink.UsageError, match="pickled"):
                pickle.dumps(value)


def test_rink_without_a_session_is_refused(face):
    with pytest.raises(rink.UsageError, match="Session"):
        face.rink("http://127.0.0.1:2379", "g")


def test_making_a_session_and_a_rink_asks_etcd_nothing(face):
    with MemoryCluster() as cluster:
        etcd = cluster.client()
        etcd.cut()
        face.rink(face.session(etcd, ttl=2), "g")
        assert etcd.streams == []


def test_etcd_that_does_not_answer_fails_the_join(world):
    member = world.make("a")
    world.etcd_of(member).cut()
    with pytest.raises(rink.EtcdUnavailable):
        member.join()
    assert engine_of(member).left.wait(LONG_S)
    with pytest.raises(rink.ClosedError):
        member.get_role("x")


def test_status_names_members_that_would_coordinate_by_other_settings(world):
    a, b = world.join("a"), world.join("b", leave_delay=30.0)
    until(a, lambda: a.status().settings_differ)
    assert a.status().settings_differ == {"leave_delay": {"0": ("a",), "30": ("b",)}}
    b.leave()
    until(a, lambda: not a.status().settings_differ)
