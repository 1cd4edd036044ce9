"""Check what Rink tunes by private parts of gRPC and redis-py.

A failure here after an upgrade says that the library has changed: see rink/_tuning.py.
"""

import importlib.util
import threading
import types

import grpc
import pytest
from redis.asyncio import BlockingConnectionPool, Redis, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import DataError

from rink import _tuning
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
    _tuning.pack_in_c(redis.connection_pool)
    return connection_of(redis)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: str(request[0]))
def test_request_is_packed_as_redis_py_does(ours, request_):
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
        _tuning.pack_in_c(redis.connection_pool)  # a second time changes nothing
        assert pool.connection_class.__mro__.count(made) == 1


def test_client_with_another_encoding_packs_for_itself():
    redis = Redis(encoding="latin-1")
    _tuning.pack_in_c(redis.connection_pool)
    assert connection_of(redis).pack_command("SET", "ü")[-1].endswith(b"\xfc\r\n")


def test_installed_versions_are_known():
    assert all(map(_tuning.is_known, _tuning.VERSIONS))


@pytest.fixture
def unknown_versions(monkeypatch):
    monkeypatch.setattr(_tuning, "is_known", lambda library: False)


def stream_call(channel):
    return channel.stream_stream("/a/b")(iter([]))


def test_reader_of_a_grpc_stream_waits_on_the_tuned_condition():
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        call = _tuning.unhurried(stream_call(channel))
        assert type(call._state.condition) is _tuning._Unhurried
        call.cancel()


def test_grpc_call_of_unknown_version_is_left_alone(unknown_versions):
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        call = _tuning.unhurried(stream_call(channel))
        assert type(call._state.condition) is threading.Condition
        call.cancel()


def test_grpc_call_with_other_parts_is_left_alone():
    for call in (object(), types.SimpleNamespace(_state=types.SimpleNamespace(condition=None))):
        assert _tuning.unhurried(call) is call


def test_redis_of_unknown_version_packs_for_itself(unknown_versions):
    redis = Redis()
    theirs = redis.connection_pool.connection_class
    _tuning.pack_in_c(redis.connection_pool)
    assert redis.connection_pool.connection_class is theirs
    assert _tuning.writers_of(redis.connection_pool) == []


def test_writers_are_found_where_redis_py_keeps_them():
    """Use only lists that redis-py makes, so that a new name fails here."""
    pool = Redis().connection_pool
    connection = pool.make_connection()
    assert connection._writer is None
    connection._writer = writer = object()
    pool._available_connections.append(connection)
    assert _tuning.writers_of(pool) == [writer]
    pool._in_use_connections.add(pool._available_connections.pop())
    assert _tuning.writers_of(pool) == [writer]
    connection._writer = None
    node = ClusterNode("127.0.0.1", 1)
    node._connections.append(connection)
    connection._writer = writer
    assert _tuning.writers_of(node) == [writer]
    connection._writer = None


def test_redis_without_hiredis_packs_for_itself(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    redis = Redis()
    theirs = redis.connection_pool.connection_class
    _tuning.pack_in_c(redis.connection_pool)
    assert redis.connection_pool.connection_class is theirs
