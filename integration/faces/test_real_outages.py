"""etcd goes away, in part or for a while: what is held stays held as long as it may."""

import pytest
from real_support import LONG_S, QUICK
from test_real_faces import owned_by, until

import rink
from rink.engine.clock import SYSTEM

TTL = 6


@pytest.fixture
def join(prefix):
    sessions = []

    def join(name, endpoints, ttl=TTL, **settings):
        session = rink.Session(endpoints, ttl=ttl, prefix=prefix, timeout=2.0)
        sessions.append(session)
        return rink.Rink(session, "g", name=name, **{**QUICK, **settings}).join()

    yield join
    for session in sessions:
        session.close_within(5.0)


def pair(join, endpoints, **settings):
    a, b = join("a", endpoints, **settings), join("b", endpoints, **settings)
    until(a, lambda: a.size == 2)
    assert a.wait_settled(LONG_S)
    return a, b, [a.await_role(owned_by(0, 2), LONG_S), b.await_role(owned_by(1, 2), LONG_S)]


def goes_on(a, b, roles, number):
    """Nothing was lost, nothing moved, and the group still works."""
    for role in roles:
        assert role.is_held
        assert not role.lost.is_set()
    assert a.version.number == b.version.number == number
    assert a.session_remaining > 0
    for role in roles:
        role.release()
    b.leave()
    with a.await_role(owned_by(1, 2), LONG_S) as role:
        assert role.token > roles[1].token


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "freeze"])
@pytest.mark.parametrize("which", ["leader", "first endpoint"])
def test_an_etcd_node_that_is_gone_costs_no_role_and_no_version(cluster, join, fault, which):
    a, b, roles = pair(join, cluster.endpoints)
    number = a.version.number
    node = cluster.leader() if which == "leader" else cluster.nodes[0]
    getattr(node, fault)()
    assert roles[0].lost.wait(1.3 * TTL) is False
    goes_on(a, b, roles, number)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_an_etcd_that_is_down_for_half_the_ttl_costs_nothing(one_node, join, fault):
    ttl = 2 * TTL
    a, b, roles = pair(join, one_node.endpoint, ttl=ttl)
    number = a.version.number
    getattr(one_node, fault)()
    assert roles[0].lost.wait(0.4 * ttl) is False  # the rest is its start, on a busy machine too
    if fault == "kill":
        one_node.start()
    else:
        one_node.thaw()
    assert roles[0].lost.wait(0.6 * ttl) is False
    goes_on(a, b, roles, number)


@pytest.mark.slow
def test_an_etcd_that_is_down_for_longer_costs_every_role_and_the_members_come_back(one_node, join):
    a, _, roles = pair(join, one_node.endpoint)
    begin = SYSTEM.now()
    one_node.kill()
    for role in roles:
        assert role.lost.wait(LONG_S)
        assert not role.is_held
        role.release()
    assert SYSTEM.now() - begin <= TTL
    assert not a._session.is_live
    one_node.start()
    for name in {role.name for role in roles}:
        until(a, lambda name=name: a.owner(name) is not None)
    with a.await_role(owned_by(0, 2), LONG_S) as role:
        assert role.token > roles[0].token
