"""Set timeouts on the clients that users make."""

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import Sentinel

from rink.errors import ConfigError
from rink.redis import async_client

URL = "redis://127.0.0.1:1"
UNBOUND = {"socket_timeout": None, "socket_connect_timeout": None}
MAKES = {
    "url": lambda **given: Redis.from_url(URL, **given),
    "plain": Redis,
    "sentinel": lambda **given: Sentinel([("127.0.0.1", 1)]).master_for("m", **given),
    "cluster": lambda **given: RedisCluster.from_url(URL, **given),
}


def waits(client):
    """Return each connection's timeouts for an answer and for connecting."""
    if isinstance(client, RedisCluster):
        nodes = client.nodes_manager.startup_nodes.values()
        made = [node.connection_class(**node.connection_kwargs) for node in nodes]
    else:
        pool = client.connection_pool
        made = [pool.connection_class(**pool.connection_kwargs)]
    return [(one.socket_timeout, one.socket_connect_timeout) for one in made]


@pytest.mark.parametrize("kind", MAKES)
@pytest.mark.parametrize("given", [{}, UNBOUND])
def test_client_that_would_wait_without_end_does_not(kind, given):
    client = MAKES[kind](**given)
    assert async_client.prepare(client) == 5
    assert waits(client) == [(5, 5)]


def test_sentinel_is_not_waited_for_without_end_either():
    sentinel = Sentinel([("127.0.0.1", 1)], sentinel_kwargs=UNBOUND)
    async_client.prepare(sentinel.master_for("m"))
    assert [waits(one) for one in sentinel.sentinels] == [[(5, 5)]]


@pytest.mark.parametrize("kind", MAKES)
def test_what_the_user_has_set_stays(kind):
    client = MAKES[kind](socket_timeout=0.7, socket_connect_timeout=2)
    assert async_client.prepare(client) == 0.7
    assert waits(client) == [(0.7, 2)]


@pytest.mark.parametrize("kind", MAKES)
def test_client_that_gives_text_is_refused(kind):
    with pytest.raises(ConfigError, match="decode_responses"):
        async_client.prepare(MAKES[kind](decode_responses=True))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("url", "127.0.0.1:1"),
        ("plain", "localhost:6379"),
        ("sentinel", "its Sentinel"),
        ("cluster", "a cluster of 127.0.0.1:1"),
    ],
)
def test_messages_say_where_it_looks(kind, told):
    assert async_client.server_of(MAKES[kind]()) == told
