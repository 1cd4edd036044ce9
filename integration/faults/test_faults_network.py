"""Test a network that drops packets, one way or both.

It drops them between members and etcd, or within etcd.
"""

import subprocess
import sys

import pytest
from members import settle
from worlds import parting_world

pytestmark = pytest.mark.waits

TTL = 7
MARGIN = 2.5  # a member may stall for 2 s at its deadline
ROLES = [f"role-{i}" for i in range(30)]
SLOW = 3.0
"""Seconds that etcd and its watchers may add to a lease: 0.5 s on a quiet machine."""
BROKEN_AFTER = 7.0
"""A silent watch is given up in less; before, what waits in its connection would be delivered."""
SESSION = {"ttl": TTL, "margin": MARGIN}


@pytest.fixture(scope="module")
def broken_world():
    with parting_world() as world:
        if world.missing:
            print(f"\n{world.missing}: proxies that fall silent stand in for dropped packets")
        yield world


@pytest.fixture
def world(broken_world):
    broken_world.heal()
    broken_world.cluster.wait_healthy()
    broken_world.cluster.leader()
    return broken_world


@pytest.fixture
def scene(scene_on, world):
    return scene_on(world.cluster.endpoints)


def bound(scene):
    """Return the longest allowed time without a holder.

    Each new leader of etcd grants every lease its full TTL again.
    """
    return MARGIN + SLOW + TTL * scene.elections()


def plugged(world, *names):
    """Plug in a port for each member; return ports and start commands."""
    ports = {name: world.port() for name in names}
    starts = {n: {"endpoints": p.endpoints, "command": p.command} for n, p in ports.items()}
    return ports, starts


WAYS = {
    "neither hears nor is heard": {},
    "hears, but is not heard": {"hears": True},
    "is heard, but does not hear": {"is_heard": True},
}


CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.5).close()
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""


def test_what_is_cut_off_is_not_refused_but_hears_nothing(world):
    """The world itself: else the tests below show less than they say."""
    if world.missing:
        pytest.skip(f"proxies always accept: {world.missing}")
    port, other = world.port(), world.port()

    def connects(from_port):
        host, number = world.cluster.nodes[0].endpoint.removeprefix("http://").split(":")
        command = [*from_port.command, sys.executable, "-I", "-S", "-c", CONNECT, host, number]
        return subprocess.check_output(command, text=True).strip()

    assert connects(port) == "connected"
    for way in WAYS.values():
        world.cut_off(port, **way)
        assert connects(port) == "TimeoutError"
        assert connects(other) == "connected"
        world.heal()
        assert connects(port) == "connected"


@pytest.mark.parametrize("way", WAYS)
def test_member_cut_off_lets_go_at_its_deadline_and_others_follow(scene, world, way):
    if WAYS[way] and world.missing:
        pytest.skip(f"one direction alone cannot be cut: {world.missing}")
    who, others = ("b", "ac") if WAYS[way] else ("a", "bc")  # the first one coordinates the group
    ports, starts = plugged(world, who)
    members = scene.settled("abc", ROLES, starts, session=SESSION)
    scene.begin()
    world.cut_off(ports[who], **WAYS[way])
    scene.held_by(*others)
    late = scene.lateness(who)
    print("FIGURE let_go_after_the_deadline_ms", round(1000 * late, 1))
    world.heal()
    settle(scene.history, members, ROLES)
    scene.end(f"a member {way}", world.servers, bound=bound(scene))
    assert late < MARGIN


@pytest.mark.parametrize(("which", "hears"), [("follower", True), ("leader", False)])
def test_on_the_side_of_one_etcd_node_nothing_is_held_beyond_the_deadline(
    scene, world, which, hears
):
    """Members cut off with one etcd node hold nothing past their deadline.

    They reach that node, and it answers. The members of the other side go on.
    """
    if world.missing:
        pytest.skip(f"etcd's nodes cannot be parted: {world.missing}")
    leader = world.cluster.leader()
    own = next(node for node in world.cluster.nodes if (node is leader) == (which == "leader"))
    others = [node for node in world.cluster.nodes if node is not own]
    ports, starts = plugged(world, "a", "b", "c")
    members = scene.settled("abc", ROLES, starts, session=SESSION)
    scene.begin()
    world.part([own, ports["a"], ports["b"]], [*others, ports["c"]], hears=hears)
    scene.held_by("c")
    late = [scene.lateness(name) for name in "ab"]
    world.heal()
    settle(scene.history, members, ROLES)
    what = "hears the others, not they it" if hears else "parted from the others"
    scene.end(f"etcd's {which} and 2 members {what}", world.servers, bound=bound(scene))
    assert max(late) < MARGIN


def test_member_that_missed_a_compaction_takes_up_the_missed_changes(scene, world):
    """A member that missed a compaction takes up the changes it missed.

    It keeps the roles that it has claimed, and a successor waits for them.
    """
    session = {"ttl": 15, "margin": MARGIN}
    ports, starts = plugged(world, "b")
    a, b = scene.settled("ab", ROLES, starts, session=session)
    lists = b.ask("calls")["calls"]["range"]
    kept = {role for role, who in scene.history.holders.items() if who == "b"}
    scene.begin()
    world.cut_off(ports["b"])
    c = scene.start("c", roles=ROLES, session=session)
    scene.until_ranked("abc")
    scene.later(BROKEN_AFTER)
    scene.compact()
    assert {role for role, who in scene.history.holders.items() if who == "b"} == kept
    world.heal()
    settle(scene.history, [a, b, c], ROLES)
    assert b.ask("calls")["calls"]["range"] > lists
    fault = "history compacted behind a member"
    judgement = scene.end(fault, world.servers, bound=MARGIN + SLOW, versions=1)
    assert {grant.who for grant in judgement.grants if grant.at > scene.since} == {"c"}
