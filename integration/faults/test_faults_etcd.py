"""Strike etcd itself: a node, its leader, all nodes."""

import pytest

pytestmark = pytest.mark.waits

TTL = 7
MARGIN = 2.5  # a member may stall for 2 s at its deadline
ROLES = [f"role-{i}" for i in range(30)]
SESSION = {"ttl": TTL, "margin": MARGIN}
SERVERS = "3 nodes"
ELECTION_TTL = 10  # on a busy machine etcd elects a leader in up to 3 s, too much of a TTL of 5 s
BACK = 5.0
"""Seconds within which a member is back with its roles once etcd is."""


@pytest.mark.parametrize(
    ("fault", "which"),
    [
        ("kill", "leader"),
        ("freeze", "follower"),
        pytest.param("kill", "follower", marks=pytest.mark.deep),
        pytest.param("freeze", "other follower", marks=pytest.mark.deep),
    ],
)
def test_etcd_node_that_is_gone_costs_no_role_and_no_version(scene, cluster, fault, which):
    """The one that members talk to; and the group goes on without it."""
    leader = cluster.leader()
    followers = [node for node in cluster.nodes if node is not leader]
    node = {"leader": leader, "follower": followers[0]}.get(which, followers[1])
    ttl = ELECTION_TTL
    members = scene.settled("abc", ROLES, session={"ttl": ttl}, endpoints=first(cluster, node))
    since = scene.begin()
    getattr(node, fault)()
    scene.later(ttl + 1)
    judgement = scene.end(f"etcd's {which}: {fault}, {ttl + 1} s", SERVERS, bound=0.0, versions=0)
    assert judgement.gains(since) == {}
    members[0].leave()
    scene.held_by("b", "c")
    assert scene.history.judge().problems == []


def first(cluster, node):
    """Return the endpoints, this node's first.

    Members talk to the first one.
    """
    return [node.endpoint, *(one.endpoint for one in cluster.nodes if one is not node)]


@pytest.mark.parametrize("place", [0, pytest.param(1, marks=pytest.mark.deep)])
def test_leader_node_frozen_past_the_ttl_costs_no_role_until_it_thaws(scene, cluster, place):
    """A leader node that is frozen past the TTL costs no role.

    It is the members' own node, or the next one they try. In the latter case their own node is
    silent as well, since it forwards to the leader. A former leader that thaws may end leases that
    live: it believes that nobody has renewed them, and tells that to the new leader (etcd 3.5.1, in
    one thaw of seven). Roles that are lost then are soon back.
    """
    leader = cluster.leader()
    endpoints = [node.endpoint for node in cluster.nodes if node is not leader]
    endpoints.insert(place, leader.endpoint)
    ttl = ELECTION_TTL
    scene.settled("abc", ROLES, session={"ttl": ttl}, endpoints=endpoints)
    since = scene.begin()
    leader.freeze()
    scene.later(ttl + 1)
    assert scene.history.judge().gains(since) == {}
    leader.thaw()
    cluster.wait_healthy()
    scene.later(ttl + 3)
    scene.all_held(ROLES)
    where = ("the members' own", "the next one they try")[place]
    scene.end(f"etcd's leader, {where}: freeze, {ttl + 1} s", SERVERS, bound=BACK, early=True)


def test_rolling_restart_of_etcd_moves_nothing(scene, cluster):
    scene.settled("abc", ROLES, session={"ttl": ELECTION_TTL})
    since = scene.begin()
    cluster.restart()
    scene.later(ELECTION_TTL + 1)
    judgement = scene.end("etcd restarted node by node", SERVERS, bound=0.0, versions=0)
    assert judgement.gains(since) == {}


def kill(cluster):
    """Kill all nodes at the same time.

    They are frozen first, since each kill returns only when the process is gone. On a busy machine
    that takes seconds.
    """
    for node in cluster.nodes:
        node.freeze()
    for node in cluster.nodes:
        node.kill()


def start(cluster):
    for node in cluster.nodes:
        node.start(wait=False)
    cluster.wait_healthy()


def test_all_nodes_down_for_half_the_ttl_cost_no_role_and_no_version(scene, cluster):
    ttl = 20
    scene.settled("abc", ROLES, session={"ttl": ttl})
    since = scene.begin()
    kill(cluster)
    scene.later(0.35 * ttl)  # 6.3 s are left for the start, which is a part of the outage
    start(cluster)
    was_down = scene.since_then()
    assert was_down < 2 / 3 * ttl, "etcd took too long to start: this was another fault"
    scene.later(ttl + 1)
    fault = f"all of etcd down, {was_down:.1f} s of a TTL of {ttl} s"
    judgement = scene.end(fault, SERVERS, bound=0.0, versions=0)
    assert judgement.gains(since) == {}


def test_all_nodes_down_past_the_ttl_cost_every_role_once(scene, cluster):
    """With all nodes down past the TTL, all roles are lost and regained once."""
    scene.settled("abc", ROLES, session=SESSION)
    since = scene.begin()
    kill(cluster)
    scene.later(TTL + 1)
    scene.history.wait(lambda h: not h.holders)  # each member reports through its own pipe
    late = [scene.lateness(name) for name in "abc"]
    start(cluster)
    was_down = scene.since_then()
    scene.all_held(ROLES)
    bound = was_down - (TTL * 5 / 6 - MARGIN) + BACK  # lost at the deadline, at the earliest
    fault = f"all of etcd down, {was_down:.1f} s of a TTL of {TTL} s"
    judgement = scene.end(fault, SERVERS, bound=bound, versions=0)
    assert max(late) < MARGIN  # so before any lease could end
    assert judgement.gains(since) == dict.fromkeys(ROLES, 1)
    assert judgement.moves(since) == {}
