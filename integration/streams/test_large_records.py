"""Test large records over a slow link.

The bytes that are requested at once, and held, are bounded.
"""

import asyncio
import itertools
import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from scans_support import Scan, noting, on_servers, processed
from wire import Wire
from workers_support import until

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


def over(servers, wire, query=""):
    """Return the servers with Redis behind a wire."""
    return attrs.evolve(servers, url=wire.endpoint.replace("http://", "redis://") + query)


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


@on_servers
async def test_reader_small_events_do_not_wait_for_large_ones_elsewhere(servers):
    """Small events do not wait for large ones of another partition.

    They come between the large ones, many at a time.
    """
    wire = Wire(servers.url, pace=LINK)
    app, scans, seen = noting(servers)
    by_partition = [[], []]
    for n in range(20_000):
        by_partition[bool(scans.partition_of(Scan(n=n, text="")))].append(n)
    large, small = by_partition[0][:30], by_partition[1][:3000]
    async with app:
        await scans.send_many(Scan(n=n, text="x" * MEGABYTE) for n in large)
        await scans.send_many(Scan(n=n, text="x" * 100) for n in small)
    try:
        app, scans, seen = noting(over(servers, wire))
        async with app:
            await processed(app, len(large) + len(small), seen)
    finally:
        wire.close()
    assert sorted(seen) == sorted(large + small)
    before = sum(n in set(large) for n in seen[: seen.index(small[-1])])
    print(f"FIGURE {before} of {len(large)} large events before the last small one")
    assert before < len(large) / 2


@on_servers
async def test_reader_an_event_too_large_for_the_timeout_is_told_of(servers, caplog):
    """The other partitions go on."""
    slow = Wire(servers.url, pace=2 * MEGABYTE)
    app, scans, _ = noting(servers)
    numbers = range(1000)
    large = next(n for n in numbers if scans.partition_of(Scan(n=n, text="")) == 0)
    others = [n for n in numbers if scans.partition_of(Scan(n=n, text="")) != 0][:56]

    def times_told():
        told = "scans/0 waits: the event after 0-0 did not arrive within 1 s"
        return [one.created for one in caplog.records if one.getMessage().startswith(told)]

    async def go_on():
        for at in range(50, 56):
            await scans.send(Scan(n=others[at], text="x"))
            await asyncio.gather(until(lambda: len(seen) > at), asyncio.sleep(0.6))  # noqa: B023

    async with app:
        await scans.send(Scan(n=large, text="x" * 5 * MEGABYTE))
        await scans.send_many(Scan(n=n, text="x") for n in others[:50])
    try:
        app, scans, seen = noting(over(servers, slow, "?socket_timeout=1"))
        async with app:
            await processed(app, 50, seen, times_told, go_on)
        assert sorted(seen) == others
        pauses = [later - at for at, later in itertools.pairwise(times_told())]
        assert all(one > 4.5 for one in pauses), "it is not asked for again for five seconds"
    finally:
        slow.close()


@on_servers
async def test_take_that_brings_too_much_for_a_slow_link_brings_less(servers):
    """A take that brings too much for a slow link brings less next time.

    Otherwise no event comes, and the partition is taken again for ever.
    """
    slow = Wire(servers.url, pace=MEGABYTE // 5)
    app, scans, _ = noting(servers)
    of_one = [n for n in range(1000) if scans.partition_of(Scan(n=n, text="")) == 0][:40]
    async with app:
        await scans.send_many(Scan(n=n, text="x" * 20_000) for n in of_one)
    try:
        app, scans, seen = noting(over(servers, slow, "?socket_timeout=1"))
        async with app:
            await processed(app, 40, seen)
    finally:
        slow.close()
    assert seen == of_one


@on_servers
async def test_reader_large_events_of_all_partitions_after_idling_come(servers):
    """After idling, large events of all partitions still arrive.

    An idle reader waits for all partitions in one read. After an outage their events do not fit one
    answer.
    """
    slow = Wire(servers.url, pace=2 * MEGABYTE)
    app, scans, seen = noting(over(servers, slow, "?socket_timeout=1"))
    sender, to, _ = noting(servers)
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
