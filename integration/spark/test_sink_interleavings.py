"""Interleave two drivers of one query in any order; check each row once.

Either may die between any two commands. A driver runs one command of Redis at a time, as the
schedule says, and does what Spark would make it do. Hypothesis makes schedules, and shrinks one
that fails.
"""

import random
import threading
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sink_steps import Died
from spark_support import Shop

from rink.errors import StaleToken, StateError
from rink.spark.sink import publishing, staging
from rink.spark.sink.publishing import Sink, SinkBatch
from rink.spark.sink.staging import Staging
from rink.spark.sink.writers import Staged, _drop
from rink.streams.errors import PartitionFull
from rink.streams.store.values import PartitionBounds

KEYS = [(0, "a"), (0, "b"), (1, "c"), (2, "d")]
"""The partitions, and the keys of their rows. Rows of one key are in one task, in order."""
BATCHES = 5
TASKS = 3
STATE = "rink:{shop/orders}:sink:q"


@pytest.fixture
def small_steps(monkeypatch):
    monkeypatch.setattr(publishing, "STEP", 2)
    monkeypatch.setattr(publishing, "_LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr(staging, "MAX_STEP_RECORDS", 2)
    return monkeypatch


class World:
    """A Redis, Spark's checkpoint, and a processor that reads the stream."""

    def __init__(self, url, counts, limit, seed):
        self.shop = Shop(url)
        self.shop.redis.flushall()
        self.shop.place_on(url)
        self.limit, self.seed = limit, seed
        self.rows = [
            {
                key: [f"{number}{key[1]}{k}" for k in range(count)]
                for key, count in zip(KEYS, some, strict=True)
            }
            for number, some in enumerate(counts)
        ]  # fmt: skip
        self.committed = -1
        self.consumed = {number: [] for number in range(3)}
        self.passed = dict.fromkeys(range(3), "0-0")
        self.consume()

    def consume(self):
        """Let a processor take all there is, so that it may be trimmed."""
        for number, got in self.consumed.items():
            for at, fields in self.shop.redis.xrange(
                self.shop.key(number), f"({self.passed[number]}"
            ):
                got.append(fields[b"d"].decode())
                self.passed[number] = at.decode()
            self.shop.hold("bill", number, self.passed[number])

    def tokens(self):
        found = self.shop.redis.hmget(STATE, "fence", "token")
        return [int(one or 0) for one in found]

    def is_whole(self):
        """Check that each row is in its partition once, in order."""
        self.consume()
        for number, got in self.consumed.items():
            mine = [key for key in KEYS if key[0] == number]
            wanted = [row for rows in self.rows for key in mine for row in rows[key]]
            assert Counter(got) == Counter(wanted)
            assert [row[0] for row in got] == sorted(row[0] for row in got)
            for _, name in mine:
                assert [row for row in got if row[1] == name] == [
                    row for row in wanted if row[1] == name
                ]


class Driver:
    """A driver that runs the query until it dies or is refused.

    It waits before each command until it may continue. Its second half stands in for the sink's
    connection.
    """

    def __init__(self, world, token, name):
        self.world, self.token = world, token
        self.random = random.Random(f"{world.seed}/{name}")
        self.plain = world.shop.connection  # one for all: only one driver runs at a time
        self.client = self.plain.client
        self.goes_on, self.stands = threading.Semaphore(0), threading.Semaphore(0)
        self.dies = self.loses_an_answer = self.is_over = False
        self.error = None
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()
        self.stands.acquire()

    def step(self, count):
        """Let it run so many commands."""
        while count and not self.is_over:
            count -= 1
            self.goes_on.release()
            self.stands.acquire()
        if self.error is not None:
            raise self.error

    def die(self):
        self.dies = True
        self.step(1)
        self.thread.join()

    def live(self):
        try:
            self.drive()
        except (Died, StaleToken, PartitionFull):
            pass  # a failed query is started anew
        except StateError as error:
            if "rolled back" not in str(error):  # the other driver is ahead
                self.error = error
        except BaseException as error:
            self.error = error
        self.is_over = True
        self.stands.release()

    def drive(self):
        """Run as Spark does: the fence first, then batches from the checkpoint."""
        sink = self.sink()
        sink.raise_fence()
        number = self.world.committed + 1
        while number < BATCHES:
            self.write(sink, number)
            self.gate()
            self.world.committed = max(self.world.committed, number)
            number += 1

    def write(self, sink, number):
        """Run one batch, cut into random tasks; if one fails, all repeat."""
        if self.random.random() < 0.2:
            _drop(lambda _: sink, "q", [*self.stage(number), None])
        messages = self.stage(number)
        try:
            sink.commit(
                SinkBatch("x", number), {one.attempt: one.counts for one in messages if one.counts}
            )
        except Exception:
            _drop(lambda _: sink, "q", messages)
            raise

    def sink(self):
        bounds = PartitionBounds(self.world.limit, loses=False)
        return Sink(self.world.shop.place, self, "q", self.token, bounds, patience=0.0)

    def stage(self, number):
        found, rows = [], self.world.rows[number]
        task_of = {key: self.random.randrange(TASKS) for key in KEYS}
        for task in range(TASKS):
            made = Staging(self.world.shop.place, self, 60)
            for key in KEYS:
                if task_of[key] == task:
                    made.add((key[0], row.encode()) for row in rows[key])
            made.end()
            found.append(Staged("x", made.attempt, dict(made.counts)))
        return found

    def gate(self):
        self.stands.release()
        self.goes_on.acquire()
        if self.dies:
            raise Died

    def repeated(self, call, *_):
        self.gate()
        found = call()
        if self.loses_an_answer:  # so it is sent again, some time later
            self.loses_an_answer = False
            self.gate()
            found = call()
        return found

    def run(self, name, keys, blobs=(), /, **args):
        return self.repeated(lambda: self.plain.run(name, keys, blobs, **args))

    def run_each(self, name, asked):
        return [self.run(name, keys, **args) for keys, args in asked]


def play(world, schedule):
    """Run two drivers as the schedule says; both die in the end.

    Each is started anew when it is over. A new one has the last grant, or the next, so the other
    may be stale from then on. Returns the last token.
    """
    alive, token, highest = {}, 1, [0, 0]
    chance = random.Random(world.seed)
    try:
        for name, (who, what, count) in enumerate(schedule):
            if who not in alive or alive[who].is_over:
                token += chance.randrange(2)
                alive[who] = Driver(world, token, name)
            if what == "dies":
                alive.pop(who).die()
            elif what == "consumes":
                world.consume()
            else:
                alive[who].loses_an_answer = what == "loses an answer"
                alive[who].step(count)
            now = world.tokens()
            is_behind = any(a < b for a, b in zip(now, highest, strict=True))
            assert not is_behind, f"a stale driver was let in: {now} after {highest}"
            highest = now
    finally:
        for driver in alive.values():
            driver.die()
    return token


def replay(world, token):
    """Make the last driver write the newest batch again, and all after it.

    If a partition is full, it is started anew, and each try helps.
    """
    newest = int(world.shop.redis.hget(STATE, "batch:x") or 0)
    assert newest <= world.committed + 1  # so Spark's checkpoint never falls behind by itself
    world.committed, before = newest - 1, None
    while world.committed < BATCHES - 1:
        now = world.committed, sum(map(len, world.consumed.values()))
        assert now != before, f"batch {world.committed + 1} does not go on"
        last = Driver(world, token, f"replays from {now}")
        last.step(10_000)
        last.die()
        world.consume()
        before = now


counts = st.lists(st.tuples(*[st.integers(0, 3)] * len(KEYS)), min_size=BATCHES, max_size=BATCHES)
moves = st.tuples(
    st.integers(0, 1),
    st.sampled_from([*["goes on"] * 5, "loses an answer", "dies", "consumes"]),
    st.integers(1, 20),
)


@settings(
    max_examples=60,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    counts=counts,
    schedule=st.lists(moves, min_size=25, max_size=60),
    limit=st.sampled_from([1000, 3]),
    seed=st.integers(0, 2**16),
)
def test_two_drivers_write_each_row_once_whatever_comes_between(
    rink_redis, small_steps, counts, schedule, limit, seed
):
    ids = random.Random(seed)
    small_steps.setattr(staging.secrets, "token_hex", lambda n: ids.randbytes(n).hex())
    world = World(rink_redis.url, counts, limit, seed)
    try:
        token = play(world, schedule)
        for _ in range(2):
            replay(world, token)
            world.is_whole()
        assert not world.shop.redis.hexists(STATE, "manifest")
        staged = world.shop.redis.keys("*:staged:*")
        assert all(world.shop.redis.ttl(key) > 0 for key in staged)
    finally:
        world.shop.redis.close()
        world.shop.connection.client.close()
