"""Test R3 and R4 with one member: losses, writes, unreadable entries."""

import pytest
from attrs import evolve
from world import RANK, ROLES, role_of

from rink.core import effects as do
from rink.core import events as ev
from rink.core import schemes
from rink.core.codec import encode
from rink.core.member_record import MemberRecord, Share
from rink.core.placement import Placement
from rink.core.values import Member, Proclaimed, Request, Version, Wish
from rink.core.view import gone

# ── R3: losses ───────────────────────────────────────────────────────────────────────────────


def test_newer_version_takes_away_only_what_it_gives_to_others(world):
    member = world.add("a", rebalance_delay=0.0)
    world.holders(ROLES)
    world.add("b", rebalance_delay=0.0)
    world.sleep(0.1)
    moved = [role for role in ROLES if RANK(role, "jump", 2) == 1]
    assert sorted(member.lost) == sorted(moved)
    assert world.holders(ROLES) == {r: "b" if r in moved else "a" for r in ROLES}


def test_roles_let_go_at_once_cost_one_write_and_slow_ones_two(world):
    member = world.add("a", rebalance_delay=0.0)
    world.holders(ROLES)
    writes = len(member.made(do.WriteRecord))
    world.add("b", rebalance_delay=0.0)
    world.sleep(0.1)
    assert len(member.made(do.WriteRecord)) == writes + 1
    member.lets_go = False
    world.expire(world.kill("b"))
    world.holders(ROLES)
    writes = len(member.made(do.WriteRecord))
    world.add("b", rebalance_delay=0.0)
    world.sleep(0.1)
    record = world.record("a")
    assert set(record.draining) == {r for r in ROLES if RANK(r, "jump", 2) == 1}
    table = world.node("a").table
    for hold in list(table.lost.values()):
        table.release(*hold.handles)
    world.tell("a", ev.Nudged())
    assert len(member.made(do.WriteRecord)) == writes + 2
    assert world.record("a").draining == ()


def test_version_that_leaves_the_share_as_it_is_costs_no_write(pair):
    world = pair
    writes = len(world.members["b"].made(do.WriteRecord))
    version = Version(3, ("a", "b"), "jump", because=("tidied",))
    world.etcd.put("versions/0000000000000003", encode(version))
    world.run()
    assert world.node("b").table.gate.version == 3
    assert len(world.members["b"].made(do.WriteRecord)) == writes


@pytest.mark.parametrize("limit", [65_536, 10])
def test_every_unreleased_role_lies_in_the_record_however_long_the_list(world, limit):
    member = world.add("a", rebalance_delay=0.0, draining_limit_bytes=limit)
    member.lets_go = False
    world.holders(ROLES)
    world.add("b", rebalance_delay=0.0)
    world.sleep(0.1)
    record = world.record("a")
    assert bool(record.draining) == (limit > 10)
    assert len(record.shares) == (1 if limit > 10 else 2)
    moved = {r for r in ROLES if RANK(r, "jump", 2) == 1}
    assert world.holders(ROLES).keys() == set(ROLES) - moved
    for role in sorted(moved):
        assert world.holders(ROLES).get(role) is None or limit > 10
        world.release("a", world.node("a").table.lost[role])
    assert len(world.record("a").shares) == 1
    assert world.holders(ROLES).keys() == set(ROLES)


@pytest.mark.parametrize("limit", [65_536, 10])
def test_rejoin_lists_what_user_code_still_holds_on_to(world, limit):
    member = world.add("a", leave_delay=30.0, draining_limit_bytes=limit)
    member.lets_go = False
    world.holders(ROLES[:3])
    world.etcd.end_lease(member.node.member_lease.id)
    world.run()
    record = world.record("a")
    assert record.incarnation == "i2"
    assert set(record.draining) == (set() if record.shares else set(ROLES[:3]))
    assert world.node("a").table.held == {}
    waits = [world.want("a", role) for role in ROLES[:4]]
    assert [bool(wait.hold) for wait in waits] == [False, False, False, True]
    world.let_go("a")
    assert all(wait.hold for wait in waits)


@pytest.mark.parametrize("limit", [65_536, 1])
def test_member_that_rejoins_unranked_claims_its_unreleased_roles(pair, limit):
    world = pair
    role = role_of(0, 2)
    a = world.members["a"]
    a.node.settings = evolve(a.node.settings, draining_limit_bytes=limit)
    a.lets_go = False
    world.get("a", role)
    world.hold("b", "events")
    world.etcd.end_lease(a.node.member_lease.id)
    world.sleep(0.1)
    record = world.record("a")
    assert record.incarnation == "i3"
    world.let("b")
    world.sleep(0.1)
    assert world.version.ranks[0] == "b"
    assert world.record("a").draining == ((role,) if limit > 1 else ())
    assert world.want("b", role).hold is None
    world.let_go("a")
    world.sleep(1.0)
    assert set(world.ranks) == {"a", "b"}
    assert world.holders([role])


# ── R4: versions that cannot be read ─────────────────────────────────────────────────────────


def test_version_of_an_unknown_format_keeps_held_roles_and_grants_none(pair):
    world = pair
    role, other = role_of(0, 2), role_of(0, 2, skip=1)
    hold = world.get("a", role)
    world.etcd.put("versions/0000000000000003", b'{"format":2}')
    world.run()
    assert hold.lost_at is None
    assert world.get("a", role) is hold
    assert world.get("a", other) is None
    assert "version 3 has format 2" in world.node("a").table.gate.closed_because
    assert any("versions/3: has format 2" in text for text in world.members["b"].reports)
    world.expire(world.kill("b"))
    assert world.version is None
    world.etcd.delete("versions/0000000000000003")
    world.run()
    assert world.ranks == ["a"]
    assert world.get("a", other)


def test_record_of_an_unknown_format_claims_everything_until_it_is_gone(world):
    lease = 77
    world.etcd.leases.add(lease)
    world.etcd.put("members/later", b'{"format":2}', lease)
    world.add("a")
    wait = world.want("a", "x")
    assert wait.hold is None
    assert "later: its record has format 2" in world.node("a").table.gate.obstacle("x", Placement())
    world.etcd.end_lease(lease)
    world.run()
    assert wait.hold


def test_share_of_an_unknown_scheme_claims_everything(pair):
    world = pair
    world.etcd.leases.add(77)
    record = MemberRecord("j", 60, shares=(Share(0, 1, "odd@1#00"),))
    world.etcd.put("members/odd", encode(evolve(record, schemes=("odd@1#00",))), 77)
    world.run()
    assert world.get("a", role_of(0, 2)) is None
    assert world.ranks == ["a", "b"]


def test_clutter_and_records_without_a_lease_are_reported_only(world):
    world.etcd.put("notes/today", b"x")
    world.etcd.put("members/by-hand", b"{}")
    member = world.add("a")
    assert world.get("a", "x")
    assert any("notes/today" in text for text in member.reports)
    assert any("by-hand has no lease" in text for text in member.reports)
    assert "by-hand" in member.node.out.last_error


def test_problems_that_come_later_are_reported_each(pair):
    """Report problems that ranking does not read: clutter, other texts."""
    member = pair.members["a"]
    for key, value in (("notes/today", b"x"), ("members/junk", b"?"), ("members/junk", b"[]")):
        before = len(member.reports)
        pair.etcd.put(key, value, 99)
        pair.run()
        assert any(key in text for text in member.reports[before:]), key


def test_deleted_log_is_begun_anew_and_its_token_base_is_remembered(pair):
    world = pair
    world.etcd.put("requests/u", encode(Request(Wish.TOKEN_BASE, token_base=10**6)))
    world.run()
    assert world.version.token_base == 10**6
    before = world.get("b", role_of(1, 2)).token
    assert before > 10**6
    world.etcd.delete("versions/")
    world.run()
    assert world.version.number == 1
    assert world.version.token_base == 10**6
    assert set(world.ranks) == {"a", "b"}
    assert all(world.get(n, role_of(r, 2)).token > before for r, n in enumerate(world.ranks))


# ── schemes ──────────────────────────────────────────────────────────────────────────────────


def test_role_that_a_custom_scheme_fails_for_costs_no_other_role(world, monkeypatch):
    monkeypatch.setattr(schemes, "_custom", {})

    def rank(role, size):
        if role == "poison":
            raise ValueError("not this one")
        return len(role) % size

    scheme = schemes.register(rank, "mine", 1)
    world.add("a", schemes=(scheme,), rebalance_delay=0.0)
    world.add("b", schemes=(scheme,), rebalance_delay=0.0)
    world.sleep(0.1)
    assert world.version.scheme == scheme
    assert world.holders(["poison", "even", "odd"]) == {"even": "a", "odd": "b"}
    assert "not this one" in str(world.want("a", "poison").refused)  # nobody waits in vain
    world.expire(world.kill("b"))
    assert world.holders(["poison", "even", "odd"]) == {"even": "a", "odd": "a"}


def test_pairs_to_place_by_are_of_shares_and_versions_seen_and_coming(pair):
    node = pair.node("a")
    assert node.prefetch([]).pairs == {("jump", 2)}
    record = evolve(pair.record("b"), shares=(Share(0, 5, "balanced:8"), Share(0, 3, "jump")))
    coming = ev.Changed(
        99,
        (Member("z", record, 9, 9, 9), Proclaimed(3, Version(3, ("a",), "jump"), 9, 9)),
    )
    assert node.prefetch([coming, ev.Nudged()]).pairs == {
        ("jump", 1),
        ("jump", 2),
        ("jump", 3),
        ("balanced:8", 5),
    }
    again = node.prefetch([ev.Listed(99, coming.changes)])
    assert again.pairs == node.prefetch([coming]).pairs


# ── the two halves of a step ─────────────────────────────────────────────────────────────────


def test_first_half_tells_who_coordinates_and_the_second_proclaims(world):
    """Report the coordinator before a woken caller can ask."""
    world.add("a", rebalance_delay=0.0)
    world.add("b", rebalance_delay=0.0)
    world.sleep(1.0)
    b = world.node("b")
    changed = ev.Changed(b.view.revision + 1, (gone(b.view.coordinator),))
    own = [type(one) for one in b.step_own(world.now, [changed])]
    assert do.CoordinatorChanged in own
    assert do.Proclaim not in own
    assert b.coordinates
    assert do.Proclaim in [type(one) for one in b.step_group(world.now)]
