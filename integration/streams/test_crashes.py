"""Test that a record that crashes its process costs few restarts.

Only its own partition pays for them.
"""

import asyncio
import itertools
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest
from crashing_worker import Ping, make_app
from workers_support import until_true

pytestmark = pytest.mark.waits

WORKER = Path(__file__).with_name("crashing_worker.py")
WORKERS = 4
CRASHES = 3


class Supervisor:
    """Keep four workers running, as a deployment does; count the crashes."""

    def __init__(self, folder):
        self.folder = folder
        self.workers = []
        self.crashed_at = []
        self.ended_with = []
        self.ending = False

    def start(self):
        number = len(list(self.folder.iterdir()))
        command = [sys.executable, str(WORKER), str(self.folder / f"{number}.notes")]
        with (self.folder / f"{number}.log").open("ab") as log:
            self.workers.append(subprocess.Popen(command, stdout=log, stderr=log))

    async def watch(self):
        while not self.ending:
            for worker in list(self.workers):
                if worker.poll() is not None:
                    self.workers.remove(worker)
                    self.crashed_at.append(time.monotonic())
                    self.ended_with.append(worker.returncode)
                    self.start()
            await asyncio.sleep(0.02)

    def logs(self):
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def owners(self):
        """Return the notes file with the newest event of each partition."""
        newest = {}
        for path in self.folder.glob("*.notes"):
            for line in path.read_text().splitlines():
                at, partition, _, _ = line.split()
                newest[partition] = max(newest.get(partition, (0.0, "")), (float(at), path.name))
        return {partition: name for partition, (_, name) in newest.items()}

    def notes(self):
        for path in self.folder.glob("*.notes"):
            for line in path.read_text().splitlines():
                at, partition, who, n = line.split()
                yield float(at), int(partition), who, int(n)


@pytest.fixture
def supervised(rink_redis, etcd_url, prefix, tmp_path, monkeypatch):
    monkeypatch.setenv("CRASHES_REDIS", rink_redis.url)
    monkeypatch.setenv("CRASHES_ETCD", etcd_url)
    monkeypatch.setenv("CRASHES_PREFIX", prefix)
    supervisor = Supervisor(tmp_path)
    yield supervisor
    for worker in supervisor.workers:
        worker.kill()
        worker.wait()


async def with_app(scenario, supervised):
    app, pings = make_app()
    try:
        await scenario(supervised, app, pings)
    finally:
        await app.close()


def test_crashing_record_costs_three_restarts_and_no_neighbour(supervised):
    """A crashing record costs three restarts and no other partition.

    64 partitions, 4 workers, events all the while: only the culprit becomes a dead letter.
    """
    asyncio.run(with_app(_crash, supervised))


async def _crash(supervised, app, pings):
    keys = [f"k{i}" for i in range(300)]
    sent = defaultdict(int)
    done = asyncio.Event()

    async def send():
        while not done.is_set():
            batch = []
            for who in random.sample(keys, 10):
                batch.append(Ping(who=who, n=sent[who]))
                sent[who] += 1
            await pings.send_many(batch)
            await asyncio.sleep(0.02)

    async def is_settled():
        before = supervised.owners()
        await asyncio.sleep(1)
        return len(set(before.values())) == WORKERS and supervised.owners() == before

    for _ in range(WORKERS):
        supervised.start()
    watching = asyncio.create_task(supervised.watch())
    sending = asyncio.create_task(send())
    # A crash amid a planned hand-over does not count, so the four must have their shares first.
    await until_true(is_settled, seconds=60, what="four workers with steady shares")
    crashing = Ping(who="k7", n=-1, crashes=True)
    partition = pings.partition_of(crashing)
    await pings.send(crashing)
    opened = await app.connections.open()
    dead = pings.names.partition(partition).dead("note")

    async def is_dead():
        return await opened.store.redis.xlen(dead)

    await until_true(is_dead, seconds=60, what="the dead letter")
    await asyncio.sleep(3)
    done.set()
    await sending

    async def is_drained():
        seen = {(who, n) for _, _, who, n in supervised.notes()}
        return sum(sent.values()) == len(seen)

    await until_true(is_drained, seconds=60, what="all events but one")
    supervised.ending = True
    await watching
    for worker in supervised.workers:
        worker.terminate()
    *others, newest = [await asyncio.to_thread(one.wait, 20) for one in supervised.workers]
    assert others == [0] * (WORKERS - 1)
    assert newest in (0, -signal.SIGTERM), "which may not have come as far as its handler"
    assert supervised.ended_with == [9] * CRASHES, supervised.logs()
    letters = 0
    for number in range(pings.partition_count):
        letters += await opened.store.redis.xlen(pings.names.partition(number).dead("note"))
    assert letters == 1
    [(_, fields)] = await opened.store.redis.xrange(dead)
    assert b"processes crashed" in fields[b"error"]
    found = [gap for gap in gaps(supervised.notes()) if gap[0] != partition]
    longest = max(end - begin for _, begin, end in found)
    print("FIGURE crashes", len(supervised.crashed_at))
    between = [after - before for before, after in itertools.pairwise(supervised.crashed_at)]
    print("FIGURE between two crashes", [round(seconds, 2) for seconds in between], "s")
    print("FIGURE the longest time that a partition of 63 rested", round(longest, 2), "s")
    # A partition that Redis hears of after the culprit, and before the crash, is tried after it. So
    # the second crash may catch it, and how many these are depends on the machine. No partition is
    # caught by a third. tests/streams/test_poison.py holds the order in which partitions are tried.
    assert longest < 2.5 * max(between)


def test_record_that_ends_its_process_in_order_is_given_up_too(supervised, monkeypatch):
    monkeypatch.setenv("CRASHES_BY", "exit")
    asyncio.run(with_app(_ends_it_in_order, supervised))


async def _ends_it_in_order(supervised, app, pings):
    supervised.start()
    watching = asyncio.create_task(supervised.watch())
    await pings.send(Ping(who="k7", n=-1, crashes=True))
    await pings.send(Ping(who="k7", n=1))

    async def is_next():
        return any((who, n) == ("k7", 1) for _, _, who, n in supervised.notes())

    await until_true(is_next, seconds=60, what="the event behind it")
    supervised.ending = True
    await watching
    assert supervised.ended_with == [9] * CRASHES, supervised.logs()


def gaps(notes):
    """Yield each pause between two events of a partition.

    Each is a triple of partition, begin and end.
    """
    at_of = {}
    for at, partition, _, _ in sorted(notes):
        if partition in at_of:
            yield partition, at_of[partition], at
        at_of[partition] = at
