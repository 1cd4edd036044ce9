"""Test that the bytes that are requested at once, and held, are bounded."""

import asyncio

from scans_support import Scan, noting, on_servers, processed
from workers_support import pass_time, until

from rink.errors import UsageError
from rink.streams.consumer.buffer import Buffer
from rink.streams.store.store import Store


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


@on_servers
async def test_reader_waits_while_a_slow_processor_has_its_share_of_bytes(servers, monkeypatch):
    app = servers.app("shop", max_reply_bytes=20_000, max_in_flight_bytes=100_000)
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
        await pass_time(3)  # for the reads that must not come
        assert max(size for _, size in held) < 100_000 + 40_000
        go_on.set()

    async with app:
        await scans.send_many(Scan(n=n, text="x" * 9_000) for n in range(100))
        async with asyncio.TaskGroup() as group:
            group.create_task(most_held())
            await processed(app, 100, seen)
    assert seen == list(range(100))


@on_servers
async def test_reader_partitions_take_turns_where_one_answer_is_small(servers, monkeypatch):
    """Partitions take turns if one answer is small.

    An answer has room for two entries of eight partitions.
    """
    app, scans, seen = noting(servers, max_reply_bytes=20_000, max_in_flight_bytes=100_000)
    held = noted_sizes(monkeypatch)
    async with app:
        await scans.send_many(Scan(n=n, text="x" * (9_000 if n % 5 else 9)) for n in range(200))
        await processed(app, 200, seen)
    by_partition = {}
    for n in seen:
        by_partition.setdefault(scans.partition_of(Scan(n=n, text="")), []).append(n)
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())
    assert sorted(seen) == list(range(200))
    # A small one or two are no reason to ask for many more.
    assert max(size for size, _ in held) <= 45_000


@on_servers
async def test_commit_outputs_beyond_the_bound_are_refused(servers):
    app, scans, seen = noting(servers, max_reply_bytes=1000, max_in_flight_bytes=1000)
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


@on_servers
async def test_commit_outputs_go_with_all_that_is_finished(servers, monkeypatch):
    """A commit's outputs go with all finished events.

    This holds even if large dead letters among them would need several commits.
    """
    app, scans, seen = noting(servers, max_reply_bytes=2000)
    copies = app.stream("copies", record=Scan, partition_by="n", partition_count=8)
    steps, commit = [], Store.commit

    async def note_step(store, place, step):
        steps.append(step)
        await commit(store, place, step)

    monkeypatch.setattr(Store, "commit", note_step)

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


@on_servers
async def test_processor_that_holds_all_its_memory_is_had_commit(servers):
    """A processor that holds all its memory is made to commit.

    It would wait for events that cannot be read before it commits. So its iteration ends, and it is
    called again.
    """
    app, scans, seen = noting(servers, max_reply_bytes=20_000, max_in_flight_bytes=100_000)
    committed = commits_every(app, scans, 50)
    async with app:
        await scans.send_many(Scan(n=n, text="x" * 9_000) for n in range(200))
        await processed(app, 200, committed, lambda: len(seen) == 200)
    assert sorted(committed) == list(range(200))
    assert sorted(seen) == list(range(200))


@on_servers
async def test_processor_that_will_not_commit_full_memory_is_told_why(servers, caplog):
    app, scans, _ = noting(servers, max_reply_bytes=20_000, max_in_flight_bytes=100_000)
    committed = commits_every(app, scans, 50, at_end=False)
    async with app:
        await scans.send_many(Scan(n=n, text="x" * 9_000) for n in range(200))
        await processed(app, 0, committed, lambda: "see max_in_flight_bytes" in caplog.text)
    assert committed == []


@on_servers
async def test_batch_that_fills_the_memory_waits_for_no_more(servers):
    app, scans, _ = noting(servers, max_reply_bytes=20_000, max_in_flight_bytes=100_000)
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


@on_servers
async def test_odd_event_that_fills_the_memory_is_judged_by_those_behind_it(servers, caplog):
    """An odd event that fills the memory is judged by later events.

    Otherwise it would wait for `retry_for`, since no more events are read while it is in memory.
    """
    app, scans, seen = noting(servers, max_reply_bytes=20_000, max_in_flight_bytes=100_000)
    of_one = [n for n in range(100) if scans.partition_of(Scan(n=n, text="")) == 0]
    names = scans.names.partition(0)

    async def send_odd():
        store = (await app.connections.open()).store
        await store.redis.xadd(names.stream, {"d": "{" * 30_000})
        await until(lambda: "until a later event decodes" in caplog.text)
        await scans.send_many(Scan(n=n, text="x" * 30_000) for n in of_one[1:5])
        await until(lambda: len(seen) == 5, 20.0)
        assert await store.redis.xlen(names.dead("note")) == 1

    async with app:
        await scans.send(Scan(n=of_one[0], text="x" * 30_000))
        await processed(app, 1, seen, then=send_odd)
    assert seen == of_one[:5]
