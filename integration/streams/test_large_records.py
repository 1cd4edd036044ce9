"""Test large records over a slow link.

The bytes that are requested at once, and held, are bounded.
"""

import asyncio
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from streams_support import driven
from wire import Wire
from workers_support import until

from rink.errors import UsageError
from rink.streams import App, Record, Worker
from rink.streams.consumer.buffer import Buffer
from rink.streams.store.store import Store

PROCESS = Path(__file__).with_name("large_process.py")
MEGABYTE = 2**20
LINK = 10 * MEGABYTE
"""Bytes a second."""


def run(what, wire, etcd_url, prefix, count, seconds):
    """Run a sender or a worker over the link; return what it says at its end."""
    url = wire.endpoint.replace("http://", "redis://")
    command = [sys.executable, str(PROCESS), what, url, etcd_url, prefix, str(count), str(MEGABYTE)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "Timeout" not in ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.deep)])
def test_records_of_a_megabyte_pass_a_slow_link(rink_redis, etcd_url, prefix, count):
    ideal = count * MEGABYTE / LINK
    wire = Wire(rink_redis.url, pace=LINK)
    try:
        for what in ("send", "process"):
            told = run(what, wire, etcd_url, prefix, count, 60 + 3 * ideal)
            print(f"FIGURE {what} {count} x 1 MB: {told}, the link alone {ideal:.1f} s")
            assert told["done"] == count
            assert told["seconds"] < 1.5 * ideal + 6
            assert told["grown"] < 80 * MEGABYTE
        print(f"FIGURE carried {wire.carried / MEGABYTE:.0f} MB")
        assert wire.carried < 1.2 * count * MEGABYTE, "hardly anything is sent twice"
    finally:
        wire.close()


class Scan(Record):
    n: int
    text: str


async def processed(app, count, seen, also=lambda: True, then=None):
    """Run a worker until `count` events were seen and `also` is true.

    `then` runs beside it.
    """
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    try:
        await until(
            lambda: (len(seen) >= count and also()) or running.done(), 40.0, f"{count} of {seen}"
        )
        if then:
            await then()
    finally:
        worker.stop()
        await running


@pytest.fixture
def shop(rink_redis, etcd_url, prefix):
    """Return a factory of apps with one stream and a noting processor."""

    def make(redis=rink_redis.url, **settings):
        app = App(
            "shop", redis=redis, etcd=etcd_url, ttl=10, session={"prefix": prefix}, **settings
        )
        scans = app.stream("scans", record=Scan, partition_by="n", partition_count=8)
        seen = []

        @app.processor(scans, initial_delay=0.1)
        async def note(events):
            async for scan in events.records():
                seen.append(scan.n)

        return app, scans, seen

    return make


def noted_sizes(monkeypatch):
    """Return a list of the bytes read for a partition and held of it.

    Each answer adds an entry.
    """
    held = []
    feed = Buffer.feed

    def noting(box, entries):
        entries = list(entries)
        feed(box, entries)
        held.append((sum(len(text) for _, fields in entries for text in fields), box.size))

    monkeypatch.setattr(Buffer, "feed", noting)
    return held


@driven
async def test_reader_waits_while_a_slow_processor_has_its_share_of_bytes(
    rink_redis, etcd_url, prefix, monkeypatch
):
    app = App(
        "shop", redis=rink_redis.url, etcd=etcd_url, ttl=10, session={"prefix": prefix},
        max_reply_bytes=20_000, max_in_flight_bytes=100_000,
    )  # fmt: skip
    scans = app.stream("scans", record=Scan, partition_by="n", partition_count=1)
    held = noted_sizes(monkeypatch)
    go_on, seen = asyncio.Event(), []

    @app.processor(scans, initial_delay=0.1)
    async def wait(events):
        async for scan in events.records():
            await go_on.wait()
            seen.append(scan.n)

    async def most_held():
        await until(lambda: held and held[-1][1] > 90_000)
        await asyncio.sleep(0.3)  # for the reads that must not come
        assert max(size for _, size in held) < 100_000 + 40_000
        go_on.set()

    async with app:
        await scans.send_many(Scan(n=n, text="x" * 9_000) for n in range(100))
        async with asyncio.TaskGroup() as group:
            group.create_task(most_held())
            await processed(app, 100, seen)
    assert seen == list(range(100))


@driven
async def test_reader_partitions_take_turns_where_one_answer_is_small(shop, monkeypatch):
    """Partitions take turns if one answer is small.

    An answer has room for two entries of eight partitions.
    """
    app, scans, seen = shop(max_reply_bytes=20_000, max_in_flight_bytes=100_000)
    held = noted_sizes(monkeypatch)
    async with app:
        await scans.send_many(Scan(n=n, text="x" * (9_000 if n % 5 else 9)) for n in range(400))
        await processed(app, 400, seen)
    by_partition = {}
    for n in seen:
        by_partition.setdefault(scans.partition_of(Scan(n=n, text="")), []).append(n)
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())
    assert sorted(seen) == list(range(400))
    # A small one or two are no reason to ask for many more.
    assert max(size for size, _ in held) <= 45_000


@driven
async def test_reader_small_events_do_not_wait_for_large_ones_elsewhere(shop, rink_redis):
    """Small events do not wait for large ones of another partition.

    They come between the large ones, many at a time.
    """
    wire = Wire(rink_redis.url, pace=LINK)
    app, scans, seen = shop()
    by_partition = [[], []]
    for n in range(20_000):
        by_partition[bool(scans.partition_of(Scan(n=n, text="")))].append(n)
    large, small = by_partition[0][:30], by_partition[1][:3000]
    async with app:
        await scans.send_many(Scan(n=n, text="x" * MEGABYTE) for n in large)
        await scans.send_many(Scan(n=n, text="x" * 100) for n in small)
    try:
        app, scans, seen = shop(wire.endpoint.replace("http://", "redis://"))
        async with app:
            await processed(app, len(large) + len(small), seen)
    finally:
        wire.close()
    assert sorted(seen) == sorted(large + small)
    before = sum(n in set(large) for n in seen[: seen.index(small[-1])])
    print(f"FIGURE {before} of {len(large)} large events before the last small one")
    assert before < len(large) / 2


@driven
async def test_reader_an_event_too_large_for_the_timeout_is_told_of(shop, rink_redis, caplog):
    """The other partitions go on."""
    slow = Wire(rink_redis.url, pace=2 * MEGABYTE)
    app, scans, _ = shop()
    numbers = range(1000)
    large = next(n for n in numbers if scans.partition_of(Scan(n=n, text="")) == 0)
    others = [n for n in numbers if scans.partition_of(Scan(n=n, text="")) != 0][:56]

    def times_told():
        told = "scans/0 waits: one event, the first behind 0-0, did not come within 1 s"
        return [one.created for one in caplog.records if one.getMessage().startswith(told)]

    async def go_on():
        for at in range(50, 56):
            await scans.send(Scan(n=others[at], text="x"))
            await asyncio.gather(until(lambda: len(seen) > at), asyncio.sleep(0.6))  # noqa: B023

    async with app:
        await scans.send(Scan(n=large, text="x" * 5 * MEGABYTE))
        await scans.send_many(Scan(n=n, text="x") for n in others[:50])
    try:
        url = slow.endpoint.replace("http://", "redis://") + "?socket_timeout=1"
        app, scans, seen = shop(url)
        async with app:
            await processed(app, 50, seen, times_told, go_on)
        assert sorted(seen) == others
        pauses = [later - at for at, later in itertools.pairwise(times_told())]
        assert all(one > 4.5 for one in pauses), "it is not asked for again for five seconds"
    finally:
        slow.close()


@driven
async def test_take_that_brings_too_much_for_a_slow_link_brings_less(shop, rink_redis):
    """A take that brings too much for a slow link brings less next time.

    Otherwise no event comes, and the partition is taken again for ever.
    """
    slow = Wire(rink_redis.url, pace=MEGABYTE // 5)
    app, scans, _ = shop()
    of_one = [n for n in range(1000) if scans.partition_of(Scan(n=n, text="")) == 0][:40]
    async with app:
        await scans.send_many(Scan(n=n, text="x" * 20_000) for n in of_one)
    try:
        url = slow.endpoint.replace("http://", "redis://") + "?socket_timeout=1"
        app, scans, seen = shop(url)
        async with app:
            await processed(app, 40, seen)
    finally:
        slow.close()
    assert seen == of_one


@driven
async def test_commit_outputs_beyond_the_bound_are_refused(shop):
    app, scans, seen = shop(max_reply_bytes=1000, max_in_flight_bytes=1000)
    copies = app.stream("copies", record=Scan, partition_by="n", partition_count=8)
    refused = []

    @app.processor(scans, commit="manual", initial_delay=0.1)
    async def copy(events):
        async for scan in events.records():
            try:
                await events.commit([(copies, scan), (copies, scan)])
            except UsageError as error:
                refused.append(str(error))
                await events.commit([(copies, scan)])

    async with app:
        await scans.send(Scan(n=1, text="x" * 700))
        await processed(app, 1, seen, lambda: refused)  # by another processor than that which notes
        written = [event async for event in copies.read(copies.partition_of(Scan(n=1, text="")))]
    assert len(written) == 1
    assert "max_in_flight_bytes=1000" in refused[0]


@driven
async def test_commit_outputs_go_with_all_that_is_finished(shop, monkeypatch):
    """A commit's outputs go with all finished events.

    This holds even if large dead letters among them would need several commits.
    """
    app, scans, seen = shop(max_reply_bytes=2000)
    copies = app.stream("copies", record=Scan, partition_by="n", partition_count=8)
    steps, commit = [], Store.commit

    async def noting(store, place, step):
        steps.append(step)
        await commit(store, place, step)

    monkeypatch.setattr(Store, "commit", noting)

    @app.processor(scans, commit="manual", initial_delay=0.1)
    async def copy(events):
        outputs = []
        async for event in events:
            outputs.append((copies, event.record))
            if event.record.text == "y":
                await events.commit(outputs)

    async with app:
        await scans.send(Scan(n=1, text="x"))
        key = scans.names.partition(scans.partition_of(Scan(n=1, text=""))).stream
        store = (await app.connections.open()).store
        for size in (700, 800, 900):
            await store.redis.xadd(key, {"d": "{" * size})
        await scans.send(Scan(n=1, text="y"))
        await processed(app, 1, seen, lambda: any(step.outputs for step in steps))
        last = await store.redis.xrevrange(key, count=1)
    [step] = [step for step in steps if step.outputs]
    assert (len(step.outputs), len(step.letters)) == (2, 3)
    assert step.new == last[0][0].decode()


@driven
async def test_reader_large_events_of_all_partitions_after_idling_come(shop, rink_redis):
    """After idling, large events of all partitions still arrive.

    An idle reader waits for all partitions in one read. After an outage their events do not fit one
    answer.
    """
    slow = Wire(rink_redis.url, pace=2 * MEGABYTE)
    url = slow.endpoint.replace("http://", "redis://") + "?socket_timeout=1"
    (app, scans, seen), (sender, to, _) = shop(url), shop()
    numbers = [
        next(n for n in range(1000) if scans.partition_of(Scan(n=n, text="")) == partition)
        for partition in range(8)
    ]

    async def send_again():
        await asyncio.sleep(2)  # its partitions have been asked in turn, and have nothing
        slow.cut()
        await to.send_many(Scan(n=n, text="x" * (MEGABYTE // 2)) for n in numbers)
        slow.heal()
        await until(lambda: len(seen) == 16, 25.0, "all that has come meanwhile")

    try:
        async with app, sender:
            await to.send_many(Scan(n=n, text="x" * (MEGABYTE // 2)) for n in numbers)
            await processed(app, 8, seen, then=send_again)
    finally:
        slow.close()
    assert sorted(seen) == sorted(numbers * 2)


def commits_every(app, scans, count, *, at_end=True):
    """Declare a processor that commits `count` events at a time.

    Return the list of the numbers that it has committed.
    """
    committed = []

    @app.processor(scans, name="bill", commit="manual", initial_delay=0.1)
    async def bill(events):
        hand = []
        async for scan in events.records():
            hand.append(scan.n)
            if len(hand) == count:
                await events.commit()
                committed.extend(hand)
                hand.clear()
        if at_end:
            await events.commit()
            committed.extend(hand)

    return committed


@driven
async def test_processor_that_holds_all_its_memory_is_had_commit(shop):
    """A processor that holds all its memory is made to commit.

    It would wait for events that cannot be read before it commits. So its iteration ends, and it is
    called again.
    """
    app, scans, seen = shop(max_reply_bytes=20_000, max_in_flight_bytes=100_000)
    committed = commits_every(app, scans, 50)
    async with app:
        await scans.send_many(Scan(n=n, text="x" * 9_000) for n in range(200))
        await processed(app, 200, committed, lambda: len(seen) == 200)
    assert sorted(committed) == list(range(200))
    assert sorted(seen) == list(range(200))


@driven
async def test_processor_that_will_not_commit_full_memory_is_told_why(shop, caplog):
    app, scans, _ = shop(max_reply_bytes=20_000, max_in_flight_bytes=100_000)
    committed = commits_every(app, scans, 50, at_end=False)
    async with app:
        await scans.send_many(Scan(n=n, text="x" * 9_000) for n in range(200))
        await processed(app, 0, committed, lambda: "max_in_flight_bytes of the app" in caplog.text)
    assert committed == []


@driven
async def test_batch_that_fills_the_memory_waits_for_no_more(shop):
    app, scans, _ = shop(max_reply_bytes=20_000, max_in_flight_bytes=100_000)
    seen = []

    @app.processor(scans, name="bill", initial_delay=0.1)
    async def bill(events):
        async for batch in events.take(50, within=300).records():
            seen.extend(scan.n for scan in batch)

    of_one = [n for n in range(400) if scans.partition_of(Scan(n=n, text="")) == 0]
    async with app:
        await scans.send_many(Scan(n=n, text="x" * 9_000) for n in of_one[:30])
        await processed(app, 24, seen)  # the last ones may wait
    assert seen == of_one[: len(seen)]


@driven
async def test_odd_event_that_fills_the_memory_is_judged_by_those_behind_it(shop, caplog):
    """An odd event that fills the memory is judged by later events.

    Otherwise it would wait for `retry_for`, since no more events are read while it is in memory.
    """
    app, scans, seen = shop(max_reply_bytes=20_000, max_in_flight_bytes=100_000)
    of_one = [n for n in range(100) if scans.partition_of(Scan(n=n, text="")) == 0]
    names = scans.names.partition(0)

    async def send_odd():
        store = (await app.connections.open()).store
        await store.redis.xadd(names.stream, {"d": "{" * 30_000})
        await until(lambda: "until an event behind it decodes" in caplog.text)
        await scans.send_many(Scan(n=n, text="x" * 30_000) for n in of_one[1:5])
        await until(lambda: len(seen) == 5, 20.0)
        assert await store.redis.xlen(names.dead("note")) == 1

    async with app:
        await scans.send(Scan(n=of_one[0], text="x" * 30_000))
        await processed(app, 1, seen, then=send_odd)
    assert seen == of_one[:5]
