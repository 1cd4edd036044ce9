"""Test dead records (R8): found, waited for by TTL, removed by compare."""

import pytest
from attrs import evolve

from rink.core import effects as do
from rink.core import events as ev
from rink.core.codec import encode
from rink.core.janitor import Janitor
from rink.core.member_record import MemberRecord
from rink.core.values import Member
from rink.core.view import View

DEAD = 77  # a lease that etcd does not know
RECORD = MemberRecord("old", 30)
AGAIN = do.LookUpLease("old", 5, DEAD)


def put_dead(world, name="old", value=None):
    world.etcd.put(f"members/{name}", value or encode(RECORD), DEAD)


def test_dead_record_that_coordinates_is_removed_by_the_next_member(world):
    put_dead(world)
    member = world.add("a")
    assert not member.node.coordinates
    assert world.ranks == []
    world.sleep(14.0)
    assert not member.made(do.LookUpLease)
    world.sleep(2.0)
    assert member.made(do.LookUpLease)
    world.sleep(28.0)
    assert world.record("old") is not None
    world.sleep(4.0)
    assert world.record("old") is None
    assert world.ranks == ["a"]
    assert any("has not known its lease for at least 30 s" in text for text in member.reports)
    assert "removing record members/old" in member.node.out.last_error


def test_two_dead_records_in_front_of_a_group_do_not_bar_it_for_ever(world):
    put_dead(world, "old")
    put_dead(world, "older", b"?")
    world.add("a")
    world.add("b")
    world.sleep(300.0)
    assert set(world.ranks) == {"a", "b"}


def test_live_record_is_looked_at_now_and_then_and_left_alone(pair):
    pair.sleep(600.0)
    assert pair.ranks == ["a", "b"]
    looks = pair.members["b"].made(do.LookUpLease)
    assert 9 <= len(looks) <= 12
    assert not pair.members["b"].made(do.RemoveRecord)


def test_coordinator_removes_dead_records_younger_than_its_own(pair):
    put_dead(pair, "young", b"?")
    pair.run()
    pair.sleep(70.0)
    assert b"rink/g/members/young" in pair.etcd.kvs
    pair.sleep(20.0)
    assert b"rink/g/members/young" not in pair.etcd.kvs
    assert not pair.members["b"].made(do.RemoveRecord)


def test_whoever_waits_for_a_name_removes_the_dead_record_that_has_it(world):
    world.add("a")
    put_dead(world, "b")
    member = world.add("b")
    world.sleep(60.0)
    assert member.joined
    assert world.record("b").incarnation != "old"


def test_record_without_a_lease_is_removed_after_its_ttl(world):
    world.etcd.put("members/by-hand", encode(RECORD))
    world.add("a")
    world.sleep(29.0)
    assert world.record("by-hand") is not None
    world.sleep(2.0)
    assert world.record("by-hand") is None


def test_record_that_was_written_again_is_not_the_one_that_was_dead(world):
    put_dead(world)
    member = world.add("a")
    world.sleep(20.0)
    world.etcd.leases.add(78)
    world.etcd.put("members/old", encode(evolve(RECORD, incarnation="new")), 78)
    world.sleep(200.0)
    assert world.record("old").incarnation == "new"
    assert not member.made(do.RemoveRecord)


def test_removal_that_comes_too_late_compares_and_removes_nothing(world):
    put_dead(world)
    member = world.add("a")
    world.sleep(40.0)
    world.hold("a", "answers")
    world.sleep(10.0)
    world.hold("a", "requests")
    world.let("a", "answers")
    assert member.made(do.RemoveRecord)
    world.etcd.leases.add(78)
    world.etcd.put("members/old", encode(evolve(RECORD, incarnation="new")), 78)
    world.let("a")
    assert world.record("old").incarnation == "new"


@pytest.fixture
def janitor():
    return Janitor()


def view(mod=5):
    return View.listed(9, [Member("old", RECORD, 5, mod, DEAD), Member("a", RECORD, 6, 6, 1)])


def look(janitor, view, now):
    return janitor.look_after(view, "a", False, False, now)


def test_answer_about_a_record_that_has_changed_counts_for_nothing(janitor):
    look(janitor, view(), 0.0)
    janitor.looked_up(ev.LeaseLookedUp("old", 5, False), view(mod=8).members["old"], 20.0)
    janitor.looked_up(ev.LeaseLookedUp("old", 5, False), None, 20.0)
    assert not janitor.dead_since


def test_lease_that_is_known_after_all_ends_the_suspicion(janitor):
    member = view().members["old"]
    look(janitor, view(), 0.0)
    janitor.looked_up(ev.LeaseLookedUp("old", 5, False), member, 20.0)
    janitor.looked_up(ev.LeaseLookedUp("old", 5, False), member, 25.0)
    assert janitor.dead_since == {("old", 5): 20.0}
    janitor.looked_up(ev.LeaseLookedUp("old", 5, True), member, 30.0)
    assert not janitor.dead_since


def test_what_is_known_of_records_that_are_gone_is_forgotten(janitor):
    look(janitor, view(), 0.0)
    janitor.looked_up(ev.LeaseLookedUp("old", 5, False), view().members["old"], 20.0)
    effects, wake_at = look(janitor, View(), 21.0)
    assert (effects, wake_at) == ([], None)
    assert not janitor.dead_since
    assert not janitor._look_at


def test_removal_that_fails_is_tried_again_a_minute_later(janitor):
    look(janitor, view(), 0.0)
    janitor.looked_up(ev.LeaseLookedUp("old", 5, False), view().members["old"], 20.0)
    assert look(janitor, view(), 50.0) == ([AGAIN], 110.0)
    janitor.looked_up(ev.LeaseLookedUp("old", 5, False), view().members["old"], 51.0)
    effects, wake_at = look(janitor, view(), 51.0)
    assert do.RemoveRecord("old", 5) in effects
    assert wake_at == 111.0
    assert look(janitor, view(), 60.0) == ([], 111.0)
    assert look(janitor, view(), 111.0) == ([AGAIN], 171.0)
    janitor.looked_up(ev.LeaseLookedUp("old", 5, False), view().members["old"], 112.0)
    assert do.RemoveRecord("old", 5) in look(janitor, view(), 112.0)[0]


def test_janitor_keeps_record_whose_lease_is_known_at_second_look(janitor):
    """Keep a record although a lagging server once did not know its lease."""
    look(janitor, view(), 0.0)
    janitor.looked_up(ev.LeaseLookedUp("old", 5, False), view().members["old"], 20.0)
    assert look(janitor, view(), 50.0)[0] == [AGAIN]
    janitor.looked_up(ev.LeaseLookedUp("old", 5, True), view().members["old"], 51.0)
    assert look(janitor, view(), 51.0) == ([], 110.0)
    assert look(janitor, view(), 110.0)[0] == [AGAIN]


def test_janitor_second_look_without_answer_is_asked_again(janitor):
    look(janitor, view(), 0.0)
    janitor.looked_up(ev.LeaseLookedUp("old", 5, False), view().members["old"], 20.0)
    assert look(janitor, view(), 50.0)[0] == [AGAIN]
    assert look(janitor, view(), 110.0)[0] == [AGAIN]


def test_janitor_late_first_answer_is_no_second_look(janitor):
    """Count two answers within the TTL as one: its member may be rejoining."""
    look(janitor, view(), 0.0)
    for at in (20.0, 21.0):
        janitor.looked_up(ev.LeaseLookedUp("old", 5, False), view().members["old"], at)
    assert look(janitor, view(), 50.0)[0] == [AGAIN]
