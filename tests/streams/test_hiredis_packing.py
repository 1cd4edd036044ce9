"""Pack requests in C, to the same bytes as redis-py."""

import pytest
from redis.asyncio import BlockingConnectionPool, Redis, SSLConnection
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import DataError

from rink.redis.hiredis_packing import pack_in_c
from rink.streams.store.store import Store

REQUESTS = [
    ("EVALSHA", "0" * 40, 3, "rink:{a/s/0}:at:note", "1-1", "", 2**70, -1, 0.5),
    ("XADD", "schlüssel/☃", "*", b"d", b'{"n": 1}\x00\xff'),
    ("CLIENT UNBLOCK", 17),
    (b"SET", "x", memoryview(b"y")),
    ("SET", "large", b"z" * 100_000),
]


def connection_of(redis):
    return redis.connection_pool.make_connection()


@pytest.fixture
def ours():
    redis = Redis()
    pack_in_c(redis)
    return connection_of(redis)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: str(request[0]))
def test_a_request_is_packed_as_redis_py_does(ours, request_):
    theirs = connection_of(Redis())
    assert type(theirs).pack_command is not type(ours).pack_command
    assert b"".join(ours.pack_command(*request_)) == b"".join(theirs.pack_command(*request_))


def test_many_are_packed_one_behind_the_other(ours):
    theirs = connection_of(Redis())
    packed = b"".join(ours.pack_commands(REQUESTS))
    assert packed == b"".join(theirs.pack_commands(REQUESTS))


@pytest.mark.parametrize("value", [None, ["a"], object(), "\ud800"])
def test_what_cannot_be_sent_is_refused(ours, value):
    with pytest.raises((DataError, UnicodeError)):
        ours.pack_command("SET", "x", value)


def test_store_makes_connections_of_any_kind_pack_in_c():
    pools = [
        Redis.from_url("rediss://h").connection_pool,
        Redis.from_url("unix:///tmp/x").connection_pool,
        Sentinel([("h", 1)]).master_for("m").connection_pool,
        BlockingConnectionPool(connection_class=SSLConnection),
    ]
    for pool in pools:
        made = pool.connection_class
        redis = Redis(connection_pool=pool)
        Store(redis)
        assert issubclass(pool.connection_class, made)
        assert pool.connection_class.pack_command is not made.pack_command
        pack_in_c(redis)  # a second time changes nothing
        assert pool.connection_class.__mro__.count(made) == 1


def test_a_client_with_another_encoding_packs_for_itself():
    redis = Redis(encoding="latin-1")
    pack_in_c(redis)
    assert connection_of(redis).pack_command("SET", "ü")[-1].endswith(b"\xfc\r\n")
