"""A newer version is followed once its newcomers have claimed what it gives them, or a moment later."""

import pytest
from world import role_of

from rink.core import effects as do
from rink.core.codec import encode
from rink.core.handover import CLAIMS_WITHIN_S
from rink.core.values import Version

MOVES = role_of(1, 2)
STAYS = role_of(0, 2)


@pytest.fixture
def joining(world):
    """a holds two roles; b joins, and what it asks of etcd is held back once it has a record."""
    world.add("a", rebalance_delay=5.0)
    world.get("a", MOVES)
    world.get("a", STAYS)
    world.add("b", rebalance_delay=5.0)
    world.hold("b", "requests")
    return world


def proclaimed(world):
    """Let the version come that ranks b."""
    while len(world.ranks) < 2:
        world.sleep(0.5)
    assert world.ranks == ["a", "b"]


def test_roles_are_held_until_the_newcomer_has_claimed_its_share(joining):
    world, member = joining, joining.members["a"]
    proclaimed(world)
    world.sleep(0.5 * CLAIMS_WITHIN_S)
    assert (member.lost, world.record("b").shares) == ([], ())
    writes = len(member.made(do.WriteRecord))
    world.let("b")
    assert member.lost == [MOVES]
    world.sleep(0.1)
    assert len(member.made(do.WriteRecord)) == writes + 1
    assert world.holders([MOVES, STAYS]) == {MOVES: "b", STAYS: "a"}


def test_a_newcomer_that_does_not_claim_is_not_waited_for_longer(joining):
    world, member = joining, joining.members["a"]
    proclaimed(world)
    seen_at = world.now
    while not member.lost:
        world.sleep(0.01)
    assert seen_at + 0.4 < world.now < seen_at + CLAIMS_WITHIN_S + 0.02
    assert world.node("a").is_settled is False
    assert world.record("a").shares[0].size == 2


def test_versions_that_follow_each_other_do_not_begin_the_wait_anew(joining):
    world, member = joining, joining.members["a"]
    proclaimed(world)
    seen_at = world.now
    for number in (3, 4, 5):
        world.sleep(0.3 * CLAIMS_WITHIN_S)
        assert not member.lost
        version = Version(number, ("a", "b"), "jump", because=("tidied",))
        world.etcd.put(f"versions/{number:016d}", encode(version))
        world.run()
    world.sleep(0.2 * CLAIMS_WITHIN_S)
    assert member.lost == [MOVES]
    assert world.now <= seen_at + 1.2 * CLAIMS_WITHIN_S


def test_nothing_is_granted_while_a_newcomer_is_waited_for(joining):
    world, table = joining, joining.node("a").table
    proclaimed(world)
    assert table.gate.closed_because.startswith("b, which is new to the newest version, has not")
    assert world.get("a", role_of(0, 2, skip=1)) is None  # it stays a's
    assert world.get("a", MOVES) is table.held[MOVES]  # one more handle of what is held
    world.let("b")
    assert not table.gate.closed_because
    assert world.get("a", role_of(0, 2, skip=1)) is not None


def test_what_a_newcomer_that_died_was_to_have_is_not_lost(joining):
    world, member = joining, joining.members["a"]
    proclaimed(world)
    world.expire(world.kill("b"))
    world.sleep(2 * CLAIMS_WITHIN_S)
    assert (world.ranks, member.lost) == (["a"], [])


def test_who_loses_nothing_does_not_wait(world):
    world.add("a", rebalance_delay=5.0)
    world.get("a", STAYS)
    world.add("b", rebalance_delay=5.0)
    world.hold("b", "requests")
    proclaimed(world)
    assert world.record("a").shares[0].size == 2


def test_members_that_were_ranked_before_are_not_waited_for(pair):
    """They may have roles to lose themselves, and would wait for each other."""
    world = pair
    world.get("a", STAYS)
    world.get("b", MOVES)
    for name in ("a", "b"):
        world.hold(name, "requests")
    world.etcd.put("versions/0000000000000003", encode(Version(3, ("b", "a"), "jump")))
    world.run()
    assert [world.members[name].lost for name in ("a", "b")] == [[STAYS], [MOVES]]


def test_a_newcomer_that_cannot_be_read_is_not_waited_for(joining):
    world, member = joining, joining.members["a"]
    proclaimed(world)
    world.etcd.put("members/b", b'{"format": 99}', lease=world.node("b").tenure.lease)
    world.run()
    assert member.lost == [MOVES]


def test_the_end_of_the_session_is_told_at_once(joining):
    world, member = joining, joining.members["a"]
    proclaimed(world)
    member.alive = False
    world.etcd.end_lease(member.node.tenure.lease)
    world.run()
    assert sorted(member.lost) == sorted([MOVES, STAYS])


def test_a_version_that_cannot_be_read_ends_the_wait(joining):
    world, member = joining, joining.members["a"]
    proclaimed(world)
    world.etcd.put("versions/0000000000000003", b'{"format": 99}')
    world.run()
    assert "version 3 has format 99" in world.node("a").table.gate.closed_because
    world.let("b")
    world.sleep(2 * CLAIMS_WITHIN_S)
    assert member.lost == []  # hold what is held, grant nothing


def test_a_leaver_serves_until_its_heir_has_claimed(world):
    member = world.add("a", rebalance_delay=5.0)
    world.get("a", MOVES)
    world.add("b", rebalance_delay=600.0)
    want = world.want("b", MOVES)
    world.hold("b", "requests")
    world.leave("a")
    assert world.ranks == ["b"]
    assert member.lost == []
    world.let("b")
    assert member.lost == [MOVES]
    assert (member.left, want.hold is not None) == (True, True)


def test_a_leaver_does_not_wait_beyond_its_leave_timeout(world):
    member = world.add("a", rebalance_delay=5.0, leave_timeout=0.2)
    world.get("a", MOVES)
    world.add("b", rebalance_delay=600.0)
    world.hold("b", "requests")
    world.leave("a")
    world.sleep(0.19)
    assert member.lost == []
    world.sleep(0.02)
    assert (member.lost, member.left) == ([MOVES], True)
