"""Test when a newer version is followed: by claims, or after a timeout."""

import pytest
from world import KEYS, RANK, ROLES, role_of

from rink.core import effects as do
from rink.core import events as ev
from rink.core.codec import encode
from rink.core.handover import CLAIM_TIMEOUT_S
from rink.core.values import Version

MOVES = role_of(1, 2)
STAYS = role_of(0, 2)


def add_slow(world, name, rebalance_delay=600.0):
    """One joins, and what it asks of etcd is held back once it has a record."""
    world.add(name, rebalance_delay=rebalance_delay)
    world.hold(name, "requests")


@pytest.fixture
def joining(world):
    """a holds two roles; b joins, and will be slow to claim."""
    world.add("a", rebalance_delay=5.0)
    world.get("a", MOVES)
    world.get("a", STAYS)
    add_slow(world, "b", 5.0)
    return world


@pytest.fixture
def waiting(joining):
    """The version that ranks b has come, and a waits."""
    proclaimed(joining)
    return joining


def proclaimed(world):
    """Let the version come that ranks b."""
    while len(world.ranks) < 2:
        world.sleep(0.5)
    assert world.ranks == ["a", "b"]


def proclaim(world, number, ranks, **more):
    world.etcd.put(f"versions/{number:016d}", encode(Version(number, ranks, "jump", **more)))
    world.run()


def test_roles_are_held_until_the_newcomer_has_claimed_its_share(waiting):
    world, member = waiting, waiting.members["a"]
    world.sleep(0.5 * CLAIM_TIMEOUT_S)
    assert (member.lost, world.record("b").shares) == ([], ())
    writes = len(member.made(do.WriteRecord))
    world.let("b")
    assert member.lost == [MOVES]
    world.sleep(0.1)
    assert len(member.made(do.WriteRecord)) == writes + 1
    assert world.holders([MOVES, STAYS]) == {MOVES: "b", STAYS: "a"}


def test_newcomer_that_does_not_claim_is_not_waited_for_longer(waiting):
    world, member = waiting, waiting.members["a"]
    began_at = world.node("a").wake_at - CLAIM_TIMEOUT_S
    assert world.now - 0.5 < began_at <= world.now
    world.sleep(began_at + CLAIM_TIMEOUT_S - 0.001 - world.now)
    assert member.lost == []
    world.sleep(0.002)
    assert member.lost == [MOVES]
    assert world.record("a").shares[0].size == 2


def test_versions_that_follow_each_other_do_not_begin_the_wait_anew(waiting):
    world, member = waiting, waiting.members["a"]
    until = world.node("a").wake_at
    for number in (3, 4, 5):
        proclaim(world, number, ("a", "b"), because=("tidied",))
        world.sleep(0.15 * CLAIM_TIMEOUT_S)
        assert (member.lost, world.node("a").wake_at) == ([], until)


def test_version_that_cannot_be_read_does_not_begin_the_wait_anew(waiting):
    world, member = waiting, waiting.members["a"]
    until = world.node("a").wake_at
    world.sleep(0.2 * CLAIM_TIMEOUT_S)
    world.etcd.put("versions/0000000000000003", b'{"format": 99}')
    world.run()
    assert "version 3 has format 99" in world.node("a").table.gate.closed_because
    world.sleep(0.2 * CLAIM_TIMEOUT_S)
    world.etcd.delete("versions/0000000000000003")
    world.run()
    assert (member.lost, world.node("a").wake_at) == ([], until)
    assert world.node("a").table.gate.closed_because.startswith("b, which is new to the ranks")


def test_list_of_the_same_does_not_begin_the_wait_anew(waiting):
    world, member = waiting, waiting.members["a"]
    until, ranks = world.node("a").wake_at, list(member.ranks)
    world.sleep(0.2 * CLAIM_TIMEOUT_S)
    member.listed = False
    world.run()
    assert (member.lost, world.node("a").wake_at, member.ranks) == ([], until, ranks)


def test_another_history_loses_everything_once(waiting):
    world, member = waiting, waiting.members["a"]
    before = len(member.ranks)
    world.tell("a", ev.HistoryChanged("restored"))
    assert sorted(member.lost) == sorted([MOVES, STAYS])
    assert member.ranks[before:].count(None) == 1


def test_who_lets_go_of_what_a_newcomer_is_to_have_follows_at_once(waiting):
    world = waiting
    world.release("a", world.node("a").table.held[MOVES])
    assert world.record("a").shares[0].size == 2
    assert not world.node("a").table.gate.closed_because


def test_record_without_a_lease_is_that_of_a_newcomer_that_died(waiting):
    world, member = waiting, waiting.members["a"]
    value = world.etcd.kvs[KEYS.member("b")].value
    world.expire(world.kill("b"))
    world.etcd.put("members/b", value, lease=0)
    world.run()
    assert member.lost == []


def test_rank_is_that_of_the_newest_version_at_once(pair):
    """With the size beside it, and with what a callback is told."""
    world = pair
    role = next(role for role in ROLES if RANK(role, "jump", 2) == RANK(role, "jump", 3) == 1)
    world.get("b", role)
    add_slow(world, "n")
    proclaim(world, 3, ("b", "n"))
    assert world.node("b").table.held
    assert (world.node("b").rank, world.members["b"].ranks[-1]) == (0, 0)


def test_nothing_is_granted_while_a_newcomer_is_waited_for(waiting):
    world, table = waiting, waiting.node("a").table
    assert table.gate.closed_because.startswith("b, which is new to the ranks, has not")
    assert world.get("a", role_of(0, 2, skip=1)) is None  # it stays a's
    assert world.get("a", MOVES) is table.held[MOVES]  # one more handle of what is held
    world.let("b")
    assert not table.gate.closed_because
    assert world.get("a", role_of(0, 2, skip=1)) is not None


def test_what_a_newcomer_that_died_was_to_have_is_not_lost(waiting):
    world, member = waiting, waiting.members["a"]
    world.expire(world.kill("b"))
    world.sleep(2 * CLAIM_TIMEOUT_S)
    assert (world.ranks, member.lost) == (["a"], [])


def test_who_has_nothing_for_a_newcomer_does_not_wait(joining):
    world = joining
    world.release("a", world.node("a").table.held[MOVES])
    proclaimed(world)
    assert world.record("a").shares[0].size == 2


def test_pin_to_one_who_was_ranked_does_not_wait_for_a_newcomer(pair):
    world = pair
    stays = next(role for role in ROLES if RANK(role, "jump", 2) == RANK(role, "jump", 3) == 0)
    world.get("a", stays)
    add_slow(world, "c")
    proclaim(world, 3, ("a", "b", "c"), pins={stays: "b"})
    assert world.members["a"].lost == [stays]


def test_members_that_were_ranked_before_are_not_waited_for(pair):
    """They may have roles to lose themselves, and would wait for each other."""
    world = pair
    world.get("a", STAYS)
    world.get("b", MOVES)
    for name in ("a", "b"):
        world.hold(name, "requests")
    proclaim(world, 3, ("b", "a"))
    assert [world.members[name].lost for name in ("a", "b")] == [[STAYS], [MOVES]]


def test_newcomer_that_cannot_be_read_is_not_waited_for(waiting):
    world, member = waiting, waiting.members["a"]
    world.etcd.put("members/b", b'{"format": 99}', lease=world.node("b").member_lease.id)
    world.run()
    assert member.lost == [MOVES]


def test_end_of_the_session_is_told_at_once(waiting):
    world, member = waiting, waiting.members["a"]
    member.alive = False
    world.etcd.end_lease(member.node.member_lease.id)
    world.run()
    assert sorted(member.lost) == sorted([MOVES, STAYS])


def proclaimed_by(world, name):
    """Carry the proclamation of a member whose own record is not written yet."""
    member = world.members[name]
    assert isinstance(member.to_etcd[0], do.Proclaim)
    world.carry(member, "requests")
    world.run()


def test_leaver_serves_until_its_heir_has_claimed(world):
    member = world.add("a", rebalance_delay=5.0)
    world.get("a", MOVES)
    world.add("b", rebalance_delay=600.0)
    want = world.want("b", MOVES)
    world.hold("b", "requests")
    world.leave("a")
    proclaimed_by(world, "b")
    assert world.ranks == ["b"]
    assert member.lost == []
    world.let("b")
    assert member.lost == [MOVES]
    assert (member.left, want.hold is not None) == (True, True)


def test_leaver_does_not_wait_beyond_its_leave_timeout(world):
    member = world.add("a", rebalance_delay=5.0, leave_timeout=0.2)
    world.get("a", MOVES)
    add_slow(world, "b")
    world.leave("a")
    proclaimed_by(world, "b")
    world.sleep(0.19)
    assert member.lost == []
    world.sleep(0.02)
    assert (member.lost, member.left) == ([MOVES], True)
    assert member.reports == []  # nobody waited for a version that had not come


@pytest.mark.parametrize("leave_timeout", [10.0, 0.2])
def test_leaver_that_gives_up_waiting_follows_in_the_same_step(world, leave_timeout):
    """Its user code holds on: nothing else would have it step."""
    member = world.add("a", rebalance_delay=5.0, leave_timeout=leave_timeout)
    member.lets_go = False
    world.get("a", MOVES)
    add_slow(world, "b")
    world.leave("a")
    proclaimed_by(world, "b")
    if leave_timeout > CLAIM_TIMEOUT_S:
        world.expire(world.kill("b"))
    else:
        world.sleep(leave_timeout + 0.01)
    record = world.record("a")
    assert (member.lost, record.shares, record.draining) == ([MOVES], (), (MOVES,))


# ── the newest version is deleted by hand meanwhile ──────────────────────────────────────────


def test_claims_are_judged_by_the_version_before_a_deleted_one(pair):
    """Take a claimant by the deleted version for an obstacle."""
    world = pair
    lost = next(r for r in ROLES if (RANK(r, "jump", 2), RANK(r, "jump", 3)) == (0, 2))
    pinned = next(r for r in ROLES if RANK(r, "jump", 2) == RANK(r, "jump", 3) == 1)
    world.get("a", lost)
    add_slow(world, "n")
    world.hold("a", "requests")
    proclaim(world, 3, ("a", "b"), pins={pinned: "a"})
    proclaim(world, 4, ("a", "b", "n"))
    assert world.node("a").table.gate.closed_because.startswith("n, which is new")
    assert world.get("b", pinned)
    world.hold("b", "events")
    world.let("a")
    world.hold("a", "requests")
    world.etcd.delete("versions/0000000000000004")
    world.run()
    assert world.node("a").table.gate.closed_because == ""
    assert world.get("a", pinned) is None  # b has it, and claims it by version 4


def test_group_settles_where_the_newest_version_is_deleted(world):
    world.add("a", rebalance_delay=0.0, stagger=1)
    world.sleep(1.0)
    world.get("a", MOVES)
    add_slow(world, "b", 5.0)
    proclaimed(world)
    world.etcd.delete("versions/0000000000000002")
    world.let("b")
    world.sleep(600.0)
    assert world.ranks == ["a", "b"]
    assert world.node("a").is_settled
