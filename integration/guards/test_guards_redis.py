"""Test what only Redis has.

These are commands that fail within a step, slots, lost scripts and lost data.
"""

import threading
from collections import Counter

import pytest
from clusters import ToCluster
from guards_worlds import RedisWorld, batch, fence
from redis import Redis

from rink.errors import ConfigError, StaleToken, StateError, UsageError
from rink.guards import GuardError, RedisGuard
from rink.streams import CrossSlot, RedisOutOfMemory


@pytest.fixture
def world(clean):
    return clean("redis")


def one_part(number=0):
    return batch(number, parts=1)


def test_failed_command_is_named_and_the_part_continues_after_it(world):
    world.guard.begin(fence(5), one_part())
    world.client.set("text", "x")

    def write():
        with world.guard.part(fence(5), one_part(), 0) as step:
            if step is not None:
                step.hincrby("h", "AA", 3).hincrby("h", "BB", 4).hincrby("text", "AA", 1).hincrby(
                    "h", "CC", 5
                )

    for _ in range(3):
        with pytest.raises(GuardError, match=r"command 3 of 4, HINCRBY 'text', failed: WRONGTYPE"):
            write()
        assert world.client.hgetall("h") == {b"AA": b"3", b"BB": b"4"}
    world.client.delete("text")
    for _ in range(2):
        write()
        assert world.client.hgetall("h") == {b"AA": b"3", b"BB": b"4", b"CC": b"5"}
        assert world.client.hgetall("text") == {b"AA": b"1"}
    [at] = world.client.keys("rink:guard:{*")
    assert sorted(world.client.hkeys(at)) == [b"fence", b"format", b"mark:q1"]


def test_part_that_was_half_carried_out_takes_no_other_commands(world):
    world.guard.begin(fence(5), one_part())
    world.client.set("text", "x")
    with pytest.raises(GuardError), world.guard.part(fence(5), one_part(), 0) as step:
        step.incr("n").hincrby("text", "AA", 1)
    for number in (0, 1):
        with (
            pytest.raises(StateError, match=r"after 1 command\. This part"),
            world.guard.part(fence(5), one_part(number), 0) as step,
        ):
            step.incr("n").incr("n")
    world.guard.raise_fence(fence(6))
    with pytest.raises(StaleToken), world.guard.part(fence(5), one_part(), 0) as step:
        step.incr("n").hincrby("text", "AA", 1)
    assert world.client.get("n") == b"1"
    world.client.hdel("rink:guard:{flights/0}", "torn:q1")
    with world.guard.part(fence(6), one_part(), 0) as step:
        step.incr("n")
    assert world.client.get("n") == b"2"


def test_first_command_that_fails_leaves_nothing(world):
    world.guard.begin(fence(5), one_part())
    world.client.set("text", "x")
    with (
        pytest.raises(GuardError, match="nothing was written"),
        world.guard.part(fence(5), one_part(), 0) as step,
    ):
        step.hincrby("text", "AA", 1)
    with world.guard.part(fence(5), one_part(), 0) as step:
        step.incr("n")
    assert world.client.get("n") == b"1"


def test_commands_of_every_kind_are_carried_out_as_redis_py_does(world):
    world.guard.begin(fence(5), one_part())
    with world.guard.part(fence(5), one_part(), 0) as step:
        step.set("s", b"\x00\xff", ex=600).incrbyfloat("f", 1.5).append("a", "bc")
        step.hset("h", mapping={"a": 1, "ü": "ö"}).sadd("set", 1, 2).zadd("z", {"a": 1.5}, gt=True)
        step.rpush("l", *range(3000)).xadd("x", {"a": 1}).pfadd("p", "a").geoadd(
            "g", (1, 2, "here")
        )
        step.expire("h", 60).publish("news", "x").zunionstore("zz", ["z"]).setbit("bits", 7, 1)
        step.xgroup_create("x", "readers", id="0").rename("a", "b").copy("b", "c")
    found = world.client
    assert (found.get("s"), found.get("f"), found.get("b"), found.get("c")) == (
        b"\x00\xff",
        b"1.5",
        b"bc",
        b"bc",
    )
    assert (found.hget("h", "ü"), found.scard("set"), found.zscore("z", "a")) == (
        "ö".encode(),
        2,
        1.5,
    )
    assert (found.llen("l"), found.xlen("x"), found.pfcount("p")) == (3000, 1, 1)
    assert found.ttl("h") > 0


def test_step_as_large_as_it_may_be(world):
    world.guard.begin(fence(5), one_part())
    with world.guard.part(fence(5), one_part(), 0) as step:
        for n in range(50_000):
            step.hincrby(f"h{n % 50}", f"f{n % 1000}", 1)
        with pytest.raises(UsageError, match="more than 50000"):
            step.incr("n")
    assert sum(int(n) for key in range(50) for n in world.client.hvals(f"h{key}")) == 50_000


def test_scripts_that_redis_forgot_are_sent_again(world):
    world.write_batch(fence(5), batch(0))
    world.client.script_flush()
    world.write_batch(fence(5), batch(1))
    assert world.contents() == world.whole(batch(0), batch(1))


def test_what_redis_lost_is_begun_anew_with_the_next_batch(world):
    world.write_batch(fence(5), batch(0))
    world.client.flushall()
    with pytest.raises(StateError, match="begin"), world.guard.part(fence(5), batch(1), 0):
        pass
    world.write_batch(fence(5), batch(1))
    assert world.contents() == world.whole(batch(1))


def test_marks_do_not_grow_with_the_batches(world):
    for number in range(30):
        world.write_batch(fence(5), batch(number))
    assert world.client.hlen("rink:guard:{flights/0}") == 3
    assert len(world.client.keys("rink:guard:*")) == 3


def test_what_lies_under_the_guards_keys_is_said(world):
    world.client.set("rink:guard:flights", "x")
    with pytest.raises(StateError, match="rink:guard:flights"):
        world.guard.raise_fence(fence(5))


def test_client_that_decodes_will_do(world, rink_redis):
    def connect():
        return Redis.from_url(rink_redis.url, decode_responses=True, socket_timeout=10)

    decoding = RedisWorld(connect, world.client)
    for _ in range(2):
        decoding.write_batch(fence(5), batch(0))
    assert decoding.contents() == decoding.whole(batch(0))
    decoding.close()


def test_full_redis_refuses_a_part_as_a_whole(world):
    world.guard.begin(fence(5), batch(0))
    world.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(RedisOutOfMemory):
            world.write_part(fence(5), batch(0), 0)
        world.guard.raise_fence(fence(6))
    finally:
        world.client.config_set("maxmemory", 0)
    assert world.contents() == Counter()
    world.write_batch(fence(6), batch(0))


def test_url_of_a_cluster_says_what_to_give_instead(three_masters):
    with RedisGuard(three_masters.urls[0]) as guard:

        def raise_some():
            for name in "abcdef":
                guard.raise_fence(fence(1, name))

        with pytest.raises(ConfigError, match="RedisCluster"):
            raise_some()


def test_guard_closed_on_cluster_leaves_no_connections_open(three_masters):
    clients = []

    def connect():
        clients.append(ToCluster(three_masters.urls[0])())
        return clients[-1]

    def idle():
        pools = [node.redis_connection.connection_pool for node in clients[0].get_nodes()]
        connections = [each for pool in pools for each in pool._available_connections]
        return sum(connection._sock is not None for connection in connections)

    guard = RedisGuard(connect)
    for name in "abcdef":
        guard.raise_fence(fence(1, name))
    assert idle() > 0
    guard.close()
    assert idle() == 0


def test_key_of_another_slot_on_a_cluster_is_refused_and_nothing_written(clean):
    world = clean("cluster")
    world.guard.begin(fence(5), batch(0))
    with pytest.raises(CrossSlot), world.guard.part(fence(5), batch(0), 0) as step:  # noqa: PT012
        step.incr(step.key("n"))
        step.incr("n")
    assert sorted(world.client.keys("*n")) == []


def test_parts_on_several_nodes_of_a_cluster_share_one_fence(clean, three_masters):
    world = clean("cluster")
    many = batch(0, parts=30)
    world.write_batch(fence(5), many)
    assert len({three_masters.node_of(f"rink:guard:{{flights/{n}}}").port for n in range(30)}) == 3
    open_parts = [world.guard.part(fence(5), batch(1, parts=30), n) for n in range(30)]
    steps = [part.__enter__() for part in open_parts]
    world.guard.raise_fence(fence(6))
    for number, (part, step) in enumerate(zip(open_parts, steps, strict=True)):
        world.write(step, batch(1, parts=30), number)
        with pytest.raises(StaleToken):
            part.__exit__(None, None, None)
    assert world.contents() == world.whole(many)


def test_part_of_a_stale_driver_never_commits_after_the_fence_is_raised(clean):
    """Run a driver that begins and writes while the next one raises the fence.

    In each of ten rounds, all that is written is from before the fence was raised.
    """
    world = clean("cluster")
    for token in range(1, 11):
        world.guard.raise_fence(fence(token))
        stop, after = threading.Event(), []

        def write(token=token, stop=stop):
            number = 0
            while not stop.is_set():
                try:
                    world.write_batch(fence(token), batch(number, f"q{token}", 4))
                except StaleToken:
                    return
                number += 1

        driver = threading.Thread(target=write)
        driver.start()
        world.guard.raise_fence(fence(token + 1))
        after.append(world.contents())
        driver.join(60)
        stop.set()
        after.append(world.contents())
        assert after[0] == after[1]
