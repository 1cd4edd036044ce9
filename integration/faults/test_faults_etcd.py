"""etcd itself is struck: a node, its leader, all of it."""

import pytest

TTL = 5
MARGIN = 0.5
ROLES = [f"role-{i}" for i in range(30)]
SERVERS = "3 nodes"
pytestmark = pytest.mark.slow


def test_a_killed_leader_node_costs_no_role_and_no_version(scene, cluster):
    scene.settled("abc", ROLES, session={"ttl": TTL})
    since = scene.begin()
    cluster.leader().kill()
    cluster.leader()
    scene.later(TTL + 1)
    judgement = scene.end("etcd's leader node killed", SERVERS, bound=0.0)
    assert judgement.gains(since) == {}
