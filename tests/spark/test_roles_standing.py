"""Test which member would have which rank if all changes were over."""

import pytest

import rink
from rink.core.values import Version
from rink.errors import StateError
from rink.spark import roles

WAIT_S = 20


@pytest.fixture
def joined(rink_etcd):
    """Yield members of the group `town`, each with a session; later ones wait."""
    made = []

    def join(name, **settings):
        session = rink.Session(rink_etcd.client(name), ttl=60)  # it runs on the real clock
        member = rink.Rink(session, "town", name=name, **{"initial_delay": 0, **settings})
        made.append((member, session))
        return member.join()

    yield join
    for member, session in made:
        member.leave()
        session.close(timeout=5.0)


def test_who_waits_is_known(joined, rink_etcd):
    for name in ("ann", "bob"):
        member = joined(name, rebalance_delay=0)
        assert any(name in version.ranks for version in member.versions())  # waits for its rank
        assert member.wait_settled(WAIT_S)
    eve = joined("eve", rebalance_delay=600)
    with rink.Session(rink_etcd.client("operator"), ttl=5) as session:
        found = roles.standing(session, "town")
        assert (found.ranks, found.waiting, found.leaving) == (("ann", "bob"), ("eve",), ())
        assert (found.scheme, dict(found.pins)) == ("jump", {})
        assert found.version == eve.version
        assert roles.after(found).ranks == ("ann", "bob", "eve")
        assert roles.after(found, leave=["ann"], join=["joe"]).ranks == ("eve", "bob", "joe")
        assert roles.after(found, leave=["eve"]).ranks == ("ann", "bob")


def test_who_leaves_already_need_not_be_named_and_may_be():
    version = Version(number=7, ranks=("a", "b", "c"), scheme="jump")
    found = roles.Standing(version, waiting=("w",), leaving=("b",))
    for leave in ((), ("b",), ("b", "b")):
        assert roles.after(found, leave=leave).ranks == ("a", "w", "c")


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_group_that_there_is_not_is_told(rink_etcd, face):
    made = rink.Session if face == "blocking" else rink.aio.Session
    session = made(rink_etcd.client("operator"), ttl=5)
    with pytest.raises(StateError, match="there is no group 'nobody'"):
        roles.standing(session, "nobody")
