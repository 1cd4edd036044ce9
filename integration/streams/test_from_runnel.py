"""Test the scenarios of programs on Runnel with our interface.

Each uses only the public interface.
"""

import asyncio
import gzip
import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from redis import Redis as BlockingRedis

from rink.errors import ConfigError
from rink.streams import App, JsonCodec, Record, Worker, WorkerHalted, admin
from rink.testing.streams import running

QUICK = {"initial_delay": 0.0, "rebalance_delay": 0.0, "grace": 2.0}
KEYS = "ABCDEFGHIJ"


class Action(Record):
    key: str
    seq: int


class Item(Record):
    name: str
    price: float


class Basket(Record):
    key: str
    items: list[Item]


def alternating(count, first=0):
    return [Action(key="AB"[n % 2], seq=n) for n in range(first, first + count)]


def spread(count, first=0):
    return [Action(key=random.choice(KEYS), seq=n) for n in range(first, first + count)]


def until(look, seconds=40.0):
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.005)


@pytest.fixture
def app():
    return App("shop")


@pytest.fixture
def run(app, rink_redis):
    """Run the app with so many workers."""
    return lambda workers=1: running(app, workers=workers, redis=rink_redis.url)


def actions_of(app, name="actions", **given):
    given = {"record": Action, "partition_by": "key", "partition_count": 4} | given
    return app.stream(name, **given)


# ── sending and reading ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("batch", [1, 24])
@pytest.mark.parametrize("partitions", [1, 8])
def test_runnel_each_event_is_processed_once(app, run, workers, batch, partitions):
    actions, seen = actions_of(app, partition_by=lambda a: a.key, partition_count=partitions), []

    @app.processor(actions, **QUICK)
    async def proc(events):
        if batch == 1:
            async for action in events.records():
                seen.append(action.seq)
        else:
            async for some in events.take(batch, within=0.1).records():
                assert len(some) <= batch
                seen.extend(action.seq for action in some)

    with run(workers) as it:
        actions.send_many_blocking(spread(333))
        it.drain()
    assert sorted(seen) == list(range(333))


@pytest.mark.parametrize("kind", ["events", "records"])
def test_runnel_nested_records_come_one_by_one(app, run, kind):
    baskets, seen = actions_of(app, record=Basket), []

    @app.processor(baskets, **QUICK)
    async def proc(events):
        async for one in events if kind == "events" else events.records():
            seen.append(one.record if kind == "events" else one)

    made = [Basket(key=key, items=[Item(name=key, price=1.5)]) for key in "AB"]
    with run() as it:
        baskets.send_many_blocking(made)
        it.drain()
    assert sorted(seen, key=lambda one: one.key) == made


@pytest.mark.parametrize("kind", ["events", "records"])
def test_runnel_batches_are_full_where_there_is_enough(app, run, kind):
    actions, seen = actions_of(app, partition_count=1), []

    @app.processor(actions, **QUICK)
    async def proc(events):
        batches = events.take(2, within=5.0)
        async for batch in batches if kind == "events" else batches.records():
            seen.append([one.record if kind == "events" else one for one in batch])

    with run() as it:
        actions.send_many_blocking(alternating(4))
        it.drain()
    assert [[one.seq for one in batch] for batch in seen] == [[0, 1], [2, 3]]


def test_runnel_one_processor_sends_to_another_in_order(app, run):
    actions = actions_of(app, partition_count=8)
    filtered, seen = actions_of(app, "filtered", partition_count=1), {"A": [], "B": []}

    @app.processor(actions, **QUICK)
    async def pick(events):
        async for action in events.records():
            if action.key in seen:
                await filtered.send(action)

    @app.processor(filtered, **QUICK)
    async def check(events):
        async for action in events.records():
            seen[action.key].append(action.seq)

    with run(2) as it:
        for n in range(20):
            actions.send_many_blocking([Action(key=key, seq=n) for key in KEYS])
        it.drain()
    assert seen == {"A": list(range(20)), "B": list(range(20))}


def test_runnel_records_are_compressed_by_a_codec(app, run, rink_redis):
    class Zipped:
        def __init__(self, record):
            self.json = JsonCodec(record)

        def encode(self, record):
            return gzip.compress(self.json.encode(record))

        def decode(self, data):
            return self.json.decode(gzip.decompress(data))

    baskets, seen = actions_of(app, record=Basket, codec=Zipped(Basket), partition_count=1), []

    @app.processor(baskets, **QUICK)
    async def proc(events):
        seen.extend([basket async for basket in events.records()])

    made = Basket(key="A", items=[Item(name="soap", price=2.0)] * 100)
    with run() as it:
        baskets.send_blocking(made)
        it.drain()
        [(_, fields)] = BlockingRedis.from_url(rink_redis.url).xrange(
            baskets.names.partition(0).stream
        )
    assert len(fields[b"d"]) < 300
    assert seen == [made]


def test_runnel_processors_have_names_of_their_own(app):
    actions = actions_of(app)

    @app.processor(actions)
    async def foo(events): ...

    with pytest.raises(ConfigError, match="a processor 'foo' already"):
        app.processor(actions)(foo)
    app.processor(actions, name="bar")(foo)
    assert app.processors["bar"].group == "shop/bar"


# ── a hasher ─────────────────────────────────────────────────────────────────────────────────────


def by_letter(key):
    return 0 if key == "A" else 1


def test_runnel_slow_partition_keeps_no_other_from_going_on(app, run):
    actions, seen = actions_of(app, partition_count=2, hasher=by_letter), []
    go = threading.Event()

    @app.processor(actions, **QUICK)
    def proc(events):
        for action in events.records():
            if action.key == "A":
                go.wait(60)
            seen.append(action.key)

    with run() as it:
        actions.send_many_blocking(alternating(100))
        until(lambda: len(seen) == 50)
        assert set(seen) == {"B"}
        go.set()
        it.drain()
    assert len(seen) == 100


def test_runnel_quarantine_stops_one_partition_alone(app, run):
    actions, seen = actions_of(app, partition_count=2, hasher=by_letter), []

    @app.processor(actions, on_error="quarantine", max_attempts=1, retry_for=0, **QUICK)
    async def proc(events):
        async for action in events.records():
            if action.seq == 55:
                raise ValueError("for a test")
            seen.append(action.seq)

    with run():
        actions.send_many_blocking(alternating(100))
        until(lambda: len(seen) == 50 + 27)
    assert sorted(seen) == sorted([*range(0, 100, 2), *range(1, 55, 2)])


# ── errors ───────────────────────────────────────────────────────────────────────────────────────


def test_runnel_halt_ends_the_worker(app, run):
    actions = actions_of(app)

    @app.processor(actions, on_error="halt", max_attempts=1, retry_for=0, **QUICK)
    async def proc(events):
        async for action in events.records():
            if action.seq == 10:
                raise ValueError("for a test")

    def until_it_halts():
        with run():
            actions.send_many_blocking(spread(100))
            until(lambda: "for a test" in str(app.connections.run_blocking(admin.lag(app))))

    with pytest.raises(WorkerHalted, match="ValueError: for a test"):
        until_it_halts()


def test_runnel_ignore_goes_on_and_keeps_what_failed(app, run):
    actions, seen = actions_of(app), []

    @app.processor(actions, max_attempts=1, retry_for=0, **QUICK)
    async def proc(events):
        async for action in events.records():
            if action.seq == 10:
                raise ValueError("for a test")
            seen.append(action.seq)

    with run() as it:
        actions.send_many_blocking(spread(100))
        it.drain()
    assert sorted(seen) == [n for n in range(100) if n != 10]


@pytest.mark.parametrize("batch", [1, 10])
def test_runnel_dead_letters_are_processed(app, run, batch):
    """A failing event of a batch becomes the only dead letter."""
    actions, dead, seen = actions_of(app, partition_count=1), [], []

    @app.processor(actions, max_attempts=1, retry_for=0, **QUICK)
    async def proc(events):
        async for some in events.take(batch, within=0.05).records():
            for action in some:
                if action.seq == 11:
                    raise ValueError("for a test")
            seen.extend(action.seq for action in some)

    @app.processor(actions.dead_letters("proc"), **QUICK)
    async def bury(events):
        async for letter in events.records():
            dead.append((letter.record.seq, letter.error))

    with run() as it:
        actions.send_many_blocking(spread(100))
        it.drain()
    assert dead == [(11, "ValueError: for a test")]
    assert sorted(seen) == [n for n in range(100) if n != 11]


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────


def test_runnel_task_runs_at_the_start_of_each_worker(app, run):
    runs = []
    app.task(at_start=True, name="once")(lambda: runs.append(1))
    with run(3):
        until(lambda: len(runs) == 3)
        time.sleep(0.2)
    assert len(runs) == 3


def test_runnel_timer_runs_now_and_again(app, run):
    runs = []
    app.task(every=0.01, name="tick")(lambda: runs.append(1))
    with run():
        until(lambda: len(runs) >= 20)


def test_runnel_crontab_runs_when_it_is_due(app, run):
    runs = []
    app.task(cron="* * * * * *", name="second")(lambda: runs.append(time.time() % 1))
    with run():
        until(lambda: len(runs) >= 3, 15)
    assert statistics.median(runs[:3]) < 0.5  # one may come late


@pytest.mark.parametrize(
    ("when", "least"),
    [({"at_start": True}, 1), ({"every": 0.01}, 20), ({"cron": "* * * * * *"}, 1)],
    ids=["task", "timer", "crontab"],
)
def test_runnel_leaders_task_runs_in_one_worker(app, run, when, least):
    leads, most, runs = Counter(), [], []

    async def lead():
        leads["now"] += 1
        most.append(leads["now"])
        runs.append(1)
        await asyncio.sleep(0.001)
        leads["now"] -= 1

    app.task(on_leader=True, **when)(lead)
    began_at = time.monotonic()
    with run(3):
        until(lambda: len(runs) >= least)
        time.sleep(0.3)
    more = time.monotonic() - began_at if "cron" in when else 0
    assert max(most) == 1
    assert "every" in when or len(runs) <= 2 + more


# ── workers that come and go ─────────────────────────────────────────────────────────────────────


def test_runnel_order_holds_while_workers_come_and_go(app, run):
    actions, seen = actions_of(app, partition_count=3), {key: [] for key in KEYS}
    numbers = itertools.count()

    @app.processor(actions, **QUICK)
    async def proc(events):
        async for some in events.take(11, within=0.05).records():
            for action in some:
                seen[action.key].append(action.seq)

    async def come_and_go():
        started = []
        for _ in range(3):
            worker = Worker(app)
            started.append((worker, asyncio.create_task(worker.run())))
            await actions.send_many(spread(33, next(numbers) * 33))
            await asyncio.sleep(0.1)
        for worker, task in started:
            worker.stop()
            await actions.send_many(spread(33, next(numbers) * 33))
            await task

    with run() as it:
        app.connections.run_blocking(come_and_go())
        it.drain()
    assert all(found == sorted(found) for found in seen.values())
    assert sorted(itertools.chain(*seen.values())) == list(range(6 * 33))


WORKER = """
import asyncio, os, signal, sys
from rink.streams import App, Record, Worker

class Action(Record):
    key: str
    seq: int

redis, etcd, prefix, name = sys.argv[1:]
app = App("shop", redis=redis, etcd=etcd, ttl=2, session={"prefix": prefix})
actions = app.stream("actions", record=Action, partition_by="key", partition_count=8)
out = app.stream("out", record=Action, partition_by="key", partition_count=1)

@app.processor(actions, initial_delay=0.1, rebalance_delay=0.1, grace=0.5)
async def proc(events):
    async for action in events.records():
        await asyncio.sleep(0.002)
        await out.send(action)

@app.task(every=0.1, on_leader=True)
async def lead():
    await out.send(Action(key=name, seq=-1))

async def main():
    worker = Worker(app, name=name)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()

asyncio.run(main())
"""


@pytest.fixture
def program(rink_redis, etcd_url, prefix, tmp_path):
    """Start a worker in a process of its own; kill it in teardown."""
    path, started = tmp_path / "worker.py", []
    path.write_text(WORKER)

    def start(name):
        command = [sys.executable, str(path), rink_redis.url, etcd_url, prefix, name]
        started.append(subprocess.Popen(command, env={**os.environ}))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


@pytest.fixture
def sent(rink_redis):
    """Return the program's stream, and a check of its workers' sends."""
    app = App("shop", redis=rink_redis.url)
    actions = actions_of(app, partition_count=8)
    out = actions_of(app, "out", partition_count=1)

    def found():
        async def read():
            return [event.record async for event in out.read(0)]

        return app.connections.run_blocking(read())

    yield actions, found
    app.connections.run_blocking(app.close())


@pytest.mark.waits
def test_runnel_dead_workers_events_are_processed_by_another(program, sent):
    actions, found = sent
    first = program("one")
    actions.send_many_blocking(spread(222))
    until(lambda: len([one for one in found() if one.seq >= 0]) >= 222 // 4)
    first.send_signal(signal.SIGKILL)
    program("two")
    actions.send_many_blocking(spread(222, 222))
    until(lambda: {one.seq for one in found() if one.seq >= 0} == set(range(444)), 90)


@pytest.mark.waits
def test_runnel_leaders_tasks_go_on_after_the_leader_died(program, sent):
    _, found = sent
    first = program("one")
    until(lambda: {one.key for one in found()} == {"one"}, 20)
    program("two")
    time.sleep(0.3)
    first.kill()
    until(lambda: "two" in {one.key for one in found()}, 20)
