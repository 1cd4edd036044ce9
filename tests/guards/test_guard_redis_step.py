"""Test the steps of a RedisGuard without Redis.

They record commands, and refuse wrong ones before anything is sent.
"""

import pickle
from types import SimpleNamespace

import pytest
from redis import ConnectionPool, Redis, RedisCluster
from redis.cluster import key_slot
from redis.sentinel import Sentinel

from rink.errors import ConfigError, UsageError
from rink.guards import Batch, Fence, RedisGuard
from rink.guards.guard_connection import CommandSpec, GuardConnection, connected
from rink.guards.redis_step import CommandBounds, RedisStep
from rink.redis import blocking_client
from rink.redis.blocking_client import ANSWER_TIMEOUT_S
from rink.streams import CrossSlot, RedisUnavailable

WRITES = frozenset({"write", "denyoom"})
TABLE = {
    "set": CommandSpec(-3, WRITES, 1, 1, 1),
    "get": CommandSpec(2, frozenset({"readonly"}), 1, 1, 1),
    "hset": CommandSpec(-4, WRITES, 1, 1, 1),
    "del": CommandSpec(-2, WRITES, 1, -1, 1),
    "exists": CommandSpec(-2, frozenset({"readonly"}), 1, -1, 1),
    "hincrby": CommandSpec(4, WRITES, 1, 1, 1),
    "mset": CommandSpec(-3, WRITES, 1, -1, 2),
    "publish": CommandSpec(3, frozenset({"pubsub"}), 0, 0, 0),
    "blpop": CommandSpec(-3, WRITES | {"blocking", "noscript"}, 1, -2, 1),
    "zunionstore": CommandSpec(-4, WRITES | {"movablekeys"}, 1, 1, 1),
    "flushall": CommandSpec(-1, WRITES, 0, 0, 0),
    "eval": CommandSpec(-3, frozenset({"noscript", "movablekeys"}), 0, 0, 0),
    "move": CommandSpec(3, WRITES, 1, 1, 1),
    "xgroup": CommandSpec(-2, frozenset(), 0, 0, 0),
    "xgroup|create": CommandSpec(-5, WRITES, 2, 2, 1),
    "subscribe": CommandSpec(-2, frozenset({"pubsub", "noscript"}), 0, 0, 0),
}


class Slots(GuardConnection):
    """A connection to nowhere that knows some commands; a cluster if wanted."""

    def __init__(self, is_cluster):
        super().__init__(Redis())
        self._commands, self.is_cluster = TABLE, is_cluster

    def slot(self, key):
        return key_slot(key if isinstance(key, bytes) else key.encode()) if self.is_cluster else 0


def step_of(*, is_cluster=False, commands=100, size=10_000):
    at = "rink:guard:{flights/3}"
    return RedisStep(
        Slots(is_cluster), at, "flights/3", "rink:guard:", CommandBounds(commands, size)
    )


def test_methods_are_recorded_as_redis_would_be_told():
    step = step_of()
    assert step.hincrby("h", "AA", 3).set("k", 1.5, ex=60) is step
    step.hset("h", mapping={"a": 1, "b": b"\xff"})
    step.delete("x", "y").publish("news", "ü")
    step.xgroup_create("s", "g")
    assert step.commands == [
        [b"HINCRBY", b"h", b"AA", b"3"],
        [b"SET", b"k", b"1.5", b"EX", b"60"],
        [b"HSET", b"h", b"a", b"1", b"b", b"\xff"],
        [b"DEL", b"x", b"y"],
        [b"PUBLISH", b"news", "ü".encode()],
        [b"XGROUP", b"CREATE", b"s", b"g", b"$"],
    ]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda step: step.get("k"), "cannot read"),
        (lambda step: "k" in step, "cannot read"),
        (lambda step: step["k"], "cannot read"),
        (lambda step: step.flushall(), "cannot read|writes keys"),
        (lambda step: step.blpop("k"), "in one step"),
        (lambda step: step.eval("return 1", 0), "in one step"),
        (lambda step: step.move("k", 1), "in one step"),
        (lambda step: step.execute_command("SUBSCRIBE", "x"), "in one step"),
        (lambda step: step.execute_command("NONSENSE", "x"), "no such command"),
        (lambda step: step.execute_command("SET", "x"), "a wrong number of arguments"),
        (
            lambda step: step.execute_command("HINCRBY", "x", "y", 1, 2),
            "a wrong number of arguments",
        ),
        (lambda step: step.execute_command(), "no command"),
        (lambda step: step.delete(*map(str, range(7000))), "split it into several"),
        (lambda step: step.set("rink:guard:flights", 1), "guard's own"),
        (lambda step: step.delete("x", "rink:guard:{flights/3}"), "guard's own"),
        (lambda step: step.set("x", "y" * 10_000), "more parts"),
    ],
)
def test_what_cannot_be_in_a_step_is_refused_at_once(call, why):
    step = step_of()
    with pytest.raises(UsageError, match=why):
        call(step)
    assert step.commands == []


@pytest.mark.parametrize("value", [None, True, {"a": 1}, object()])
def test_values_that_redis_does_not_take_are_refused(value):
    with pytest.raises(ConfigError):
        step_of().set("k", value)


def test_step_is_bounded():
    step = step_of(commands=3)
    for _ in range(3):
        step.hincrby("h", "f", 1)
    with pytest.raises(UsageError, match="more than 3 commands"):
        step.hincrby("h", "f", 1)
    assert len(step.commands) == 3


def test_on_a_cluster_all_keys_of_a_part_lie_in_its_slot():
    step = step_of(is_cluster=True)
    step.set(step.key("carrier:AA"), 1).mset({step.key("a"): 1, step.key("b{c}"): 2})
    assert step.key("a") == "{flights/3}:a"
    assert list(step.keys_written) == [
        b"{flights/3}:carrier:AA",
        b"{flights/3}:a",
        b"{flights/3}:b{c}",
    ]
    with pytest.raises(CrossSlot, match=r"step.key\('carrier:AA'\)"):
        step.set("carrier:AA", 1)
    with pytest.raises(CrossSlot):
        step.delete(step.key("a"), "b")
    with pytest.raises(CrossSlot, match="no fixed place"):
        step.zunionstore(step.key("a"), [step.key("b")])


def test_same_commands_have_the_same_digest_and_others_another():
    def digest(*calls):
        step = step_of()
        for words in calls:
            step.execute_command(*words)
        return step.close()

    one = digest(("SET", "a", "bc"), ("SET", "d", "e"))
    assert one == digest(("SET", "a", "bc"), ("SET", "d", "e"))
    others = [
        digest(("SET", "ab", "c"), ("SET", "d", "e")),
        digest(("SET", "d", "e"), ("SET", "a", "bc")),
        digest(("SET", "a", "bc", "SET", "d", "e")),
        digest(),
    ]
    assert len({one, *others}) == 5


@pytest.mark.parametrize("redis", [None, 7, Redis(), "127.0.0.1:6379", "http://x", ""])
def test_redis_is_a_url_or_a_function(redis):
    with pytest.raises(ConfigError):
        RedisGuard(redis)


def test_function_returns_a_blocking_client():
    with RedisGuard(dict) as guard, pytest.raises(ConfigError, match="blocking"):
        guard.raise_fence(Fence("flights", 1))


@pytest.mark.parametrize("prefix", ["", None, "{}:", "a{b", "a}b{c}", "{a}{b}", "{a{b}}", "a\n"])
def test_prefix_has_one_hash_tag_at_most(prefix):
    with pytest.raises(ConfigError, match="prefix"):
        RedisGuard("redis://x", prefix=prefix)


@pytest.mark.parametrize("bound", [{"most_commands": 0}, {"most_bytes": "1"}])
def test_bounds_are_numbers(bound):
    with pytest.raises(ConfigError):
        RedisGuard("redis://x", **bound)


def test_no_redis_is_said_with_its_address_and_without_a_password():
    guard = RedisGuard("redis://:secret@127.0.0.1:1/0")
    for call in (
        lambda: guard.raise_fence(Fence("flights", 1)),
        lambda: guard.begin(Fence("flights", 1), Batch("q", 0, 1)),
        lambda: guard.part(Fence("flights", 1), Batch("q", 0, 1), 0).__enter__(),
    ):
        with pytest.raises(RedisUnavailable, match=r"127\.0\.0\.1:1") as caught:
            call()
        assert "secret" not in str(caught.value) + repr(guard)
    guard.close()


def test_guard_travels_with_its_settings():
    guard = pickle.loads(pickle.dumps(RedisGuard("redis://x", prefix="{a}:", most_commands=7)))
    assert (guard._prefix, guard._tag, guard._bounds.commands) == ("{a}:", "a", 7)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(RedisGuard(lambda: 1))


def endless():
    return Redis(socket_timeout=None)


def bounded():
    return Redis(socket_timeout=3)


def endless_cluster():
    made = RedisCluster.__new__(RedisCluster)
    made.nodes_manager = SimpleNamespace(connection_kwargs={"socket_timeout": None})
    return made


def endless_sentinel():
    sentinel = Sentinel([("127.0.0.1", 1)], sentinel_kwargs={"socket_timeout": None})
    return sentinel.master_for("mymaster", socket_timeout=3)


@pytest.mark.parametrize("made", [endless, endless_cluster, endless_sentinel])
def test_client_that_would_wait_without_end_is_refused(made):
    with pytest.raises(ConfigError, match=r"as redis made a client without socket_timeout"):
        connected(made)


@pytest.mark.parametrize("default", [None, 5])
def test_what_is_not_said_is_what_this_redis_py_has_for_it(monkeypatch, default):
    class Theirs:  # of redis-py 6 and 7, and of 8
        def __init__(self, socket_timeout=default):
            pass

    monkeypatch.setattr(blocking_client, "AbstractConnection", Theirs)
    client = Redis(connection_pool=ConnectionPool(host="127.0.0.1"))
    if default:
        assert connected(lambda: client).client is client
    else:
        with pytest.raises(ConfigError, match="without socket_timeout"):
            connected(lambda: client)


def test_client_that_ends_its_waits_is_taken():
    made = Sentinel([("127.0.0.1", 1)], socket_timeout=2).master_for("mymaster", socket_timeout=3)
    assert connected(lambda: made).client is made


def test_guard_that_is_made_again_has_the_connections_of_the_first():
    one, again, other = (RedisGuard(url) for url in ("redis://h/1", "redis://h/1", "redis://h/2"))
    assert one._connection() is again._connection()
    assert one._connection() is not other._connection()
    mine, its = RedisGuard(bounded), RedisGuard(bounded)
    assert mine._connection() is not its._connection()
    for guard in (one, again, other, mine, its):
        guard.close()


@pytest.mark.parametrize(("url", "seconds"), [("", ANSWER_TIMEOUT_S), ("?socket_timeout=3", 3.0)])
def test_server_that_is_silent_is_not_waited_for_for_ever(url, seconds):
    client = connected(f"redis://127.0.0.1:1/{url}").client
    assert client.get_connection_kwargs()["socket_timeout"] == seconds
    client.close()
