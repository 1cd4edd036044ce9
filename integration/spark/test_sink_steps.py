"""A batch is decided in one step and published from its manifest: on a real Redis, without Spark."""

import contextlib
import threading

import attrs
import pytest
import redis
from spark_support import Shop

from rink.errors import StaleToken, StateError
from rink.spark.connections import Connection
from rink.spark.sink import publishing
from rink.spark.sink.publishing import Batch, Sink
from rink.spark.sink.staging import Staging, staged
from rink.spark.sink.writers import Staged, _drop
from rink.streams.errors import PartitionFull, RedisFull, RedisUnavailable
from rink.streams.values import Bounds
from rink.testing.redis_servers import local_redis


@pytest.fixture(scope="module")
def server():
    with local_redis(appendonly=False) as node:
        yield node


@pytest.fixture
def shop(server, monkeypatch):
    monkeypatch.setattr(publishing, "STEP", 2)
    monkeypatch.setattr(publishing, "_LOOKS_AGAIN_S", 0.01)
    made = Shop(server.url)
    yield made
    made.redis.config_set("maxmemory", 0)
    made.redis.flushall()


def sink(shop, token=0, name="q", limit=1000, connection=None, patience=5.0, loses=False):
    return Sink(
        shop.place,
        connection or shop.connection,
        name,
        token,
        Bounds(limit, loses),
        patience=patience,
    )


def put_aside(shop, *records):
    """As one attempt of one task does; returns its part of the manifest."""
    staging = Staging(shop.place, shop.connection, 60)
    staging.add((number, data.encode()) for number, data in records)
    staging.end()
    return {staging.attempt: dict(staging.counts)}


def published(shop, number=0):
    found = shop.redis.xrange(shop.key(number))
    return [fields[b"d"].decode() for _, fields in found]


def left(shop):
    return [key.decode() for key in shop.redis.keys("*:staged:*")]


class Died(BaseException):
    """The driver is gone."""


class DiesAfter:
    """A connection whose process dies once it has run so many steps of publishing or deciding."""

    def __init__(self, shop, steps, names=("decide", "keep", "publish", "finish"), before=False):
        self.plain = Connection(redis.Redis.from_url(shop.url), 1.0)
        self.steps, self.names, self.before = steps, names, before

    def __getattr__(self, name):
        return getattr(self.plain, name)

    def run(self, name, keys, *given):
        return self.run_each(name, [(keys, given)])[0]

    def run_each(self, name, asked):
        if name in self.names:
            if self.steps == 0 and self.before:
                raise Died
            self.steps -= 1
        found = self.plain.run_each(name, asked)
        if name in self.names and self.steps <= 0 and not self.before:
            raise Died
        return found


# ── one batch ────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_in_the_stream_once_and_in_the_order_of_each_task(shop):
    manifest = put_aside(shop, *[(0, f"a{n}") for n in range(5)], (1, "b"))
    more = put_aside(shop, *[(0, f"c{n}") for n in range(3)])
    sink(shop).commit(Batch("x", 0), manifest | more)
    found = published(shop)
    assert [one for one in found if one[0] == "a"] == [f"a{n}" for n in range(5)]
    assert [one for one in found if one[0] == "c"] == [f"c{n}" for n in range(3)]
    assert published(shop, 1) == ["b"]
    assert left(shop) == []


def test_a_replay_of_a_published_batch_changes_nothing(shop):
    sink(shop).commit(Batch("x", 4), put_aside(shop, (0, "a")))
    sink(shop).commit(Batch("x", 4), put_aside(shop, (0, "a")))
    sink(shop).commit(Batch("x", 3), put_aside(shop, (0, "older")))
    assert published(shop) == ["a"]
    assert left(shop) == []


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("steps", range(12))
def test_a_driver_that_dies_at_any_step_leaves_a_batch_that_its_next_try_completes(
    shop, steps, before
):
    first = put_aside(shop, *[(0, f"a{n}") for n in range(5)], *[(1, f"b{n}") for n in range(3)])
    dies = sink(shop, token=1, connection=DiesAfter(shop, steps, before=before))
    with contextlib.suppress(Died):
        dies.commit(Batch("x", 0), first)
    again = sink(shop, token=2)
    again.raise_fence()
    # A replay has the same rows, cut otherwise.
    second = put_aside(shop, *[(0, f"a{n}") for n in range(5)])
    second |= put_aside(shop, *[(1, f"b{n}") for n in range(3)])
    again.commit(Batch("x", 0), second)
    assert published(shop) == [f"a{n}" for n in range(5)]
    assert published(shop, 1) == [f"b{n}" for n in range(3)]
    again.commit(Batch("x", 1), put_aside(shop, (0, "next")))
    assert published(shop)[5:] == ["next"]
    assert [key for key in left(shop) if not any(attempt in key for attempt in first)] == []


def test_a_batch_without_rows_is_one_too(shop):
    sink(shop).commit(Batch("x", 0), {})
    sink(shop).commit(Batch("x", 0), {})
    sink(shop).commit(Batch("x", 1), put_aside(shop, (0, "a")))
    assert published(shop) == ["a"]
    sink(shop, token=2).raise_fence()
    with pytest.raises(StaleToken):
        sink(shop, token=1).commit(Batch("x", 2), {})


def test_two_attempts_of_one_task_never_mix(shop):
    dead = put_aside(shop, (0, "from the attempt that died"))
    sink(shop).commit(Batch("x", 0), put_aside(shop, (0, "counts")))
    assert published(shop) == ["counts"]
    assert (
        shop.redis.ttl(staged(shop.place, 0, next(iter(dead)))) > 0
    )  # nobody hears of it: it expires


def test_what_may_be_decided_on_is_kept_for_long(shop):
    manifest = put_aside(shop, (0, "a"))
    key = staged(shop.place, 0, next(iter(manifest)))
    assert 0 < shop.redis.ttl(key) <= 60
    dies = sink(shop, connection=DiesAfter(shop, 0, names=("decide",), before=True))
    with pytest.raises(Died):
        dies.commit(Batch("x", 0), manifest)
    assert shop.redis.ttl(key) > 29 * 86_400


@pytest.mark.parametrize("harm", ["gone", "short", "long"])
def test_a_staged_list_that_is_not_whole_stops_the_batch_before_anything_is_written(shop, harm):
    manifest = put_aside(shop, (0, "a"), (0, "b"), (1, "c"))
    key = staged(shop.place, 0, next(iter(manifest)))
    if harm == "gone":
        shop.redis.delete(key)
    elif harm == "short":
        shop.redis.lpop(key)
    else:
        shop.redis.rpush(key, "more")
    with pytest.raises(StateError, match=r"of 2 records that were put aside.*can be repeated"):
        sink(shop).commit(Batch("x", 0), manifest)
    assert published(shop) == published(shop, 1) == []
    sink(shop).commit(Batch("x", 0), put_aside(shop, (0, "a"), (0, "b"), (1, "c")))
    assert published(shop) == ["a", "b"]


def decided_and_left(shop, batch, manifest, moved, token=0):
    """A driver that dies after so many steps of publishing."""
    dies = sink(shop, token=token, connection=DiesAfter(shop, moved + 1, names=("publish",)))
    with pytest.raises(Died):
        dies.commit(batch, manifest)


def test_what_is_lost_after_it_was_begun_with_is_told_with_the_way_out(shop):
    many = [(0, f"a{n}") for n in range(5)]
    decided_and_left(shop, Batch("x", 0), put_aside(shop, *many), moved=1)
    shop.redis.delete(*left(shop))
    told = r"is gone.*\(2 records of the batch were published\).*HDEL (\S+) manifest"
    with pytest.raises(StateError, match=told) as error:
        sink(shop).commit(Batch("x", 0), put_aside(shop, *many))
    shop.redis.execute_command(*str(error.value).rpartition("loss: ")[2].split())
    sink(shop).commit(Batch("x", 0), put_aside(shop, *many))
    sink(shop).commit(Batch("x", 1), put_aside(shop, (0, "next")))
    assert published(shop) == ["a0", "a1", "next"]


def test_what_is_lost_before_it_was_begun_with_is_replaced_by_the_replay(shop):
    many = [(0, f"a{n}") for n in range(5)]
    decided_and_left(shop, Batch("x", 0), put_aside(shop, *many), moved=0)
    shop.redis.delete(*left(shop))
    sink(shop).commit(Batch("x", 0), put_aside(shop, *many))
    assert published(shop) == [f"a{n}" for n in range(5)]


def test_a_hole_is_seen_before_anything_is_moved(shop):
    lost = put_aside(shop, *[(1, f"b{n}") for n in range(3)])
    whole = put_aside(shop, *[(0, f"a{n}") for n in range(3)])
    decided_and_left(shop, Batch("x", 0), lost | whole, moved=0)
    shop.redis.delete(staged(shop.place, 1, next(iter(lost))))
    with pytest.raises(StateError, match=r"\(0 records of the batch"):
        sink(shop).commit(Batch("x", 1), put_aside(shop, (0, "next")))
    assert published(shop) == []


def test_an_abort_after_a_commit_that_failed_removes_nothing_of_the_batch(shop):
    """Spark aborts whatever `commit` raised at: it may have been decided, and published in part."""
    shop.hold("bill")
    many = [(0, f"a{n}") for n in range(5)]
    manifest = put_aside(shop, *many)
    with pytest.raises(PartitionFull):
        sink(shop, limit=3, patience=0.05).commit(Batch("x", 0), manifest)
    messages = [Staged("x", attempt, counts) for attempt, counts in manifest.items()]
    _drop(lambda _: sink(shop), "q", messages)
    sink(shop).commit(Batch("x", 0), put_aside(shop, *many))
    assert published(shop) == [f"a{n}" for n in range(5)]


def test_an_abort_after_a_task_that_failed_removes_what_the_others_put_aside(shop):
    manifest = put_aside(shop, (0, "a"))
    messages = [Staged("x", attempt, counts) for attempt, counts in manifest.items()]
    _drop(lambda _: sink(shop), "q", [*messages, None])
    assert left(shop) == []


def test_a_sink_that_was_removed_loses_no_batch_that_comes_later(shop):
    for number in range(5):
        sink(shop).commit(Batch("x", number), put_aside(shop, (0, f"{number}")))
    shop.redis.delete("rink:{shop/orders}:sink:q")
    sink(shop).commit(Batch("y", 0), put_aside(shop, (0, "again")))
    assert published(shop) == ["0", "1", "2", "3", "4", "again"]


def test_a_partition_that_knows_more_than_the_sink_is_told(shop):
    shop.redis.hset(f"{shop.key()}:sunk:q", mapping={"seq": str(2**62), "done": "1"})
    with pytest.raises(StateError, match="has gone back"):
        sink(shop).commit(Batch("x", 0), put_aside(shop, (0, "a")))


def test_a_checkpoint_that_comes_back_after_another_one_doubles_nothing(shop):
    sink(shop, token=1).commit(Batch("one", 7), put_aside(shop, (0, "seven")))
    sink(shop, token=2).commit(Batch("two", 0), put_aside(shop, (0, "x")))
    sink(shop, token=3).commit(Batch("one", 7), put_aside(shop, (0, "seven")))
    assert published(shop) == ["seven", "x"]
    sink(shop, token=3).commit(Batch("one", 8), put_aside(shop, (0, "eight")))
    assert published(shop) == ["seven", "x", "eight"]


# ── drivers ──────────────────────────────────────────────────────────────────────────────────────


def test_a_stale_driver_is_refused_and_nothing_is_written(shop):
    sink(shop, token=2**62 + 1).raise_fence()
    stale = sink(shop, token=2**62)
    with pytest.raises(StaleToken) as told:
        stale.raise_fence()
    assert (told.value.token, told.value.newer) == (2**62, 2**62 + 1)
    with pytest.raises(StaleToken, match="nothing was written"):
        stale.commit(Batch("x", 0), put_aside(shop, (0, "stale")))
    assert published(shop) == []
    sink(shop, token=2**62 + 1).commit(Batch("x", 0), put_aside(shop, (0, "fresh")))
    assert published(shop) == ["fresh"]


def test_a_driver_that_was_frozen_amid_publishing_writes_nothing_twice(shop):
    many = [(0, f"a{n}") for n in range(9)]
    manifest = put_aside(shop, *many)

    class Frozen(DiesAfter):
        """Amid its second step of publishing the next driver completes the batch, and two more."""

        def run_each(self, name, asked):
            if name == "publish":
                self.steps -= 1
            if name == "publish" and self.steps == 0:
                later = sink(shop, token=2)
                later.raise_fence()
                later.commit(Batch("x", 0), put_aside(shop, *many))
                later.commit(Batch("x", 1), put_aside(shop, (0, "b")))
                later.commit(Batch("x", 2), put_aside(shop, (1, "c")))
            return self.plain.run_each(name, asked)

    sink(shop, token=1, connection=Frozen(shop, 2)).commit(Batch("x", 0), manifest)
    assert published(shop) == [*[f"a{n}" for n in range(9)], "b"]
    assert published(shop, 1) == ["c"]
    with pytest.raises(StaleToken):
        sink(shop, token=1).commit(Batch("x", 1), put_aside(shop, (0, "stale")))


def test_a_decision_whose_answer_was_lost_stands_also_behind_the_next_drivers_fence(shop):
    class LosesAnAnswer(DiesAfter):
        """`decide` is carried out, its answer is lost, the next driver begins; then it is sent again."""

        def run_each(self, name, asked):
            found = self.plain.run_each(name, asked)
            if name == "decide" and self.steps:
                self.steps = 0
                sink(shop, token=2).raise_fence()
                return self.plain.run_each(name, asked)
            return found

    many = [(0, f"a{n}") for n in range(5)]
    lossy = sink(shop, token=1, connection=LosesAnAnswer(shop, 1))
    lossy.commit(Batch("x", 0), put_aside(shop, *many))
    assert published(shop) == [f"a{n}" for n in range(5)]
    with pytest.raises(StaleToken):
        sink(shop, token=1).commit(Batch("x", 1), put_aside(shop, (0, "stale")))


def test_a_driver_with_a_new_checkpoint_completes_what_the_last_one_decided(shop):
    manifest = put_aside(shop, *[(0, f"a{n}") for n in range(5)])
    decided_and_left(shop, Batch("old", 7), manifest, moved=1, token=1)
    sink(shop, token=2).commit(Batch("new", 0), put_aside(shop, (0, "b")))
    assert published(shop) == [*[f"a{n}" for n in range(5)], "b"]
    with pytest.raises(StaleToken):
        sink(shop, token=1).commit(Batch("old", 8), put_aside(shop, (0, "stale")))


@pytest.mark.parametrize("token", [0, 5])
def test_two_queries_with_one_name_are_refused(shop, token):
    sink(shop, token=token).commit(Batch("one", 0), put_aside(shop, (0, "a")))
    with pytest.raises(StateError, match="belongs to query one"):
        sink(shop, token=token).commit(Batch("two", 0), put_aside(shop, (0, "b")))
    assert published(shop) == ["a"]
    sink(shop, token=token + 1).commit(Batch("two", 0), put_aside(shop, (0, "b")))
    assert published(shop) == ["a", "b"]


def test_sinks_of_other_names_do_not_know_each_other(shop):
    sink(shop, name="BTC/ETH", token=9).commit(Batch("x", 0), put_aside(shop, (0, "a")))
    sink(shop, name="../x").commit(Batch("x", 0), put_aside(shop, (0, "b")))
    assert published(shop) == ["a", "b"]


def test_two_drivers_at_once_write_each_batch_once(shop):
    def drive(token):
        mine = sink(shop, token=token, connection=Connection(redis.Redis.from_url(shop.url), 1.0))
        for number in range(20):
            try:
                mine.commit(Batch("x", number), put_aside(shop, (0, f"{number}"), (1, f"{number}")))
            except StaleToken:
                return

    threads = [threading.Thread(target=drive, args=(token,)) for token in (1, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert published(shop) == published(shop, 1) == [str(number) for number in range(20)]


# ── bounds, and a Redis in trouble ───────────────────────────────────────────────────────────────


def test_a_full_partition_is_waited_for(shop):
    shop.hold("bill")
    ids = shop.add(count=3)
    writing = threading.Thread(
        target=sink(shop, limit=4).commit,
        args=(Batch("x", 0), put_aside(shop, *[(0, f"a{n}") for n in range(5)])),
    )
    writing.start()
    while len(published(shop)) < 4:
        pass
    for at in ids[1:]:
        shop.hold("bill", at=at)
    while len(published(shop)) < 4 or published(shop)[-1] != "a2":
        pass
    shop.hold("bill", at=shop.ids()[-1])
    writing.join()
    assert published(shop)[-1] == "a4"


def test_one_that_stays_full_is_told_and_the_batch_goes_on_later(shop):
    shop.hold("bill")
    manifest = put_aside(shop, *[(0, f"a{n}") for n in range(5)])
    with pytest.raises(PartitionFull, match=r"partition 0 .* holds 3 events"):
        sink(shop, limit=3, patience=0.05).commit(Batch("x", 0), manifest)
    assert published(shop) == ["a0", "a1", "a2"]
    sink(shop, limit=10).commit(Batch("x", 0), put_aside(shop, *[(0, f"a{n}") for n in range(5)]))
    assert published(shop) == [f"a{n}" for n in range(5)]


def test_a_stream_that_drops_the_oldest_is_never_full(shop):
    manifest = put_aside(shop, *[(0, f"a{n}") for n in range(9)])
    sink(shop, limit=3, loses=True).commit(Batch("x", 0), manifest)
    assert published(shop) == ["a6", "a7", "a8"]


def test_out_of_memory_nothing_is_staged_and_what_is_staged_goes_on(shop):
    manifest = put_aside(shop, (0, "a"), (1, "b"))
    shop.redis.config_set("maxmemory", 1)
    with pytest.raises(RedisFull):
        put_aside(shop, (0, "more"))
    sink(shop).commit(Batch("x", 0), manifest)
    assert published(shop) == ["a"]
    assert left(shop) == []


def test_a_step_of_staging_whose_answer_was_lost_adds_nothing_twice(shop):
    staging = Staging(shop.place, shop.connection, 60)
    key = staged(shop.place, 0, staging.attempt)
    shop.connection.run("stage", (key,), 0, 60, b"a", b"b")
    staging.add([(0, b"a"), (0, b"b")])
    staging.end()
    assert shop.redis.lrange(key, 0, -1) == [b"a", b"b"]


def test_without_redis_it_says_where_it_looked(shop):
    nowhere = attrs.evolve(shop.place, redis="redis://127.0.0.1:1")
    away = Connection(redis.Redis.from_url(nowhere.redis), 0.1)
    with pytest.raises(RedisUnavailable, match=r"127\.0\.0\.1:1"):
        sink(shop, connection=away).raise_fence()
