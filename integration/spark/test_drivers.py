"""Kill and freeze drivers, and check that each row is written once.

Each driver is a Python and a JVM of its own.
"""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sessions import kill, processes_of, signal_all

HERE = Path(__file__).parent
WAIT_S = 300
EVERY_S = 1.0


class Driver:
    def __init__(self, name, redis, etcd, folder, program):
        self.name, self.note = name, Path(folder, name)
        command = [sys.executable, str(HERE / program), redis, etcd, str(folder), name]
        self.log = Path(folder, f"{name}.log")
        with self.log.open("w") as log:
            # A session of its own, with its JVM and its Python workers in it.
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=HERE, start_new_session=True
            )

    def signal(self, which):
        """Send a signal to all its processes: Python, JVM and Python workers."""
        assert len(signal_all(self.process.pid, which)) > 2

    def kill(self):
        kill(self.process)

    def java(self):
        """Return the process of its JVM."""
        (found,) = processes_of(self.process.pid, "java")
        return found

    @property
    def batch(self):
        """Return the last batch that it recorded; -1 if there is none."""
        return int(self.note.read_text() or -1) if self.note.exists() else -1

    @property
    def ran(self):
        """Return when its query was first and last seen to run; () if never."""
        noted = Path(f"{self.note}.ran")
        return tuple(map(int, noted.read_text().split())) if noted.exists() else ()

    def wait_for_batch(self, beyond):
        until(lambda: self.batch > beyond, f"{self.name}: a batch beyond {beyond}", self)


def until(told, what, driver=None):
    end = time.monotonic() + WAIT_S
    while not told():
        if time.monotonic() > end:
            said = driver.log.read_text()[-3000:] if driver else ""
            pytest.fail(f"waited {WAIT_S} s for {what}: {said}")
        time.sleep(0.05)


@pytest.fixture
def drivers(rink_redis, rink_server, tmp_path):
    started = []

    def start(name, etcd=rink_server.endpoint, program="driver_process.py"):
        started.append(Driver(name, rink_redis.url, etcd, tmp_path, program))
        return started[-1]

    yield start
    for driver in started:
        driver.kill()


class Sender(threading.Thread):
    """Send ten records now and then, so that there is always a batch."""

    def __init__(self, shop):
        super().__init__(daemon=True)
        self.shop, self.count, self.may_end = shop, 0, threading.Event()

    def run(self):
        while not self.may_end.wait(EVERY_S):
            numbers = range(self.count, self.count + 10)
            self.shop.send([{"order_id": n, "customer": f"c{n % 50}"} for n in numbers])
            self.count += 10

    def end(self):
        self.may_end.set()
        self.join()


@pytest.fixture
def shop_at_work(rink_redis):
    import redis
    import spark_shop
    from spark_shop_on import ShopOn

    client = redis.Redis.from_url(rink_redis.url)
    shop = ShopOn(client, rink_redis.url, spark_shop)
    shop.send([])
    shop.send([], stream="totals")
    shop.sender = Sender(shop)
    shop.sender.start()
    yield shop
    shop.sender.end()
    client.close()


def assert_once(shop, driver):
    """Check that the other stream has all sent records, once each."""
    shop.sender.end()
    keys = [shop.module.totals.names.partition(n).stream for n in range(3)]
    until(lambda: sum(map(shop.redis.xlen, keys)) >= shop.sender.count, "the rest", driver)
    found = sorted(row["total"] for row in shop.every("totals"))
    assert found == list(range(shop.sender.count))
    assert all(row["customer"] == f"c{row['total'] % 50}" for row in shop.every("totals"))


def is_amid_a_batch(folder):
    """Return whether the checkpoint has a batch that is not committed."""
    begun, ended = [
        max((int(one.name) for one in (folder / "checkpoint" / part).glob("[0-9]*")), default=-1)
        for part in ("offsets", "commits")
    ]
    return begun > ended


def kill_amid_batches(drivers, folder, active, waiting, kills):
    """Kill drivers until so many were in a batch; return the last one's heir."""
    chance, amid = random.Random(5), 0
    for round_ in range(1, 9):
        until(lambda: is_amid_a_batch(folder), "a batch", active)
        time.sleep(0.2 * chance.random())  # anywhere in it
        seen = waiting.batch
        active.kill()
        amid += is_amid_a_batch(folder)
        active = waiting
        active.wait_for_batch(seen)
        if amid == kills:
            return active
        waiting = standing_by(drivers, f"driver-{round_}")
    return pytest.fail(f"{amid} of {kills} kills were amid a batch")


def standing_by(drivers, name):
    """Start a driver, and wait until it waits for the role."""
    driver = drivers(name)
    until(driver.note.exists, "a driver that waits", driver)
    return driver


@pytest.mark.timeout(900)
@pytest.mark.deep
def test_drivers_killed_amid_their_batches_leave_each_row_once(drivers, shop_at_work, tmp_path):
    active = drivers("driver-0")
    active.wait_for_batch(-1)  # it has the role: the driver that joins first gets it
    waiting = standing_by(drivers, "heir")
    heir = kill_amid_batches(drivers, tmp_path, active, waiting, kills=4)
    assert_once(shop_at_work, heir)


@pytest.mark.timeout(900)
@pytest.mark.deep
@pytest.mark.parametrize("with_jvm", [False, True])
def test_driver_that_was_frozen_beyond_its_lease_writes_nothing_twice(
    drivers, shop_at_work, with_jvm
):
    first = drivers("first")
    first.wait_for_batch(0)
    second = standing_by(drivers, "second")
    if with_jvm:
        first.signal(signal.SIGSTOP)
    else:  # the JVM continues the query until it is refused
        os.kill(first.process.pid, signal.SIGSTOP)
    second.wait_for_batch(-1)
    first.signal(signal.SIGCONT)
    second.wait_for_batch(second.batch)
    assert_once(shop_at_work, second)
    assert first.process.poll() is None  # it has lost the role, and waits for it again


@pytest.mark.timeout(900)
@pytest.mark.deep
def test_driver_cut_off_from_etcd_ends_its_query_before_another_runs_it(
    drivers, shop_at_work, rink_server, wire_to
):
    wire = wire_to(rink_server)
    first = drivers("first", wire.endpoint)
    first.wait_for_batch(0)
    second = standing_by(drivers, "second")
    wire.silence()
    second.wait_for_batch(-1)
    assert first.ran[1] < second.ran[0]
    wire.heal()
    second.wait_for_batch(second.batch)
    assert_once(shop_at_work, second)
    assert first.process.poll() is None


@pytest.mark.timeout(900)
@pytest.mark.deep
def test_driver_with_a_frozen_jvm_continues_and_with_a_killed_jvm_ends(drivers, shop_at_work):
    driver = drivers("first")
    driver.wait_for_batch(0)
    second = standing_by(drivers, "second")
    jvm = driver.java()
    os.kill(jvm, signal.SIGSTOP)
    time.sleep(7)  # longer than the lease
    os.kill(jvm, signal.SIGCONT)
    driver.wait_for_batch(driver.batch)
    assert second.ran == ()  # the first driver's Python held the role
    os.kill(jvm, signal.SIGKILL)
    assert driver.process.wait(WAIT_S) == 1  # its roles are the other driver's now
    assert "rink.spark.jobs.driver_exit.SparkStopped" in driver.log.read_text()
    second.wait_for_batch(-1)
    assert_once(shop_at_work, second)


@pytest.mark.timeout(900)
@pytest.mark.deep
def test_two_drivers_at_one_checkpoint_try_again_until_one_of_them_is_left(drivers):
    both = [drivers(name, program="meeting_process.py") for name in ("here", "there")]
    # A driver that finds the other's entry raises the first error; one that loses the race for its
    # name raises the second. One run of five minutes had 33 of these.
    said = r"(CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming queries are concurrently using)"
    met = re.compile(rf"query 'meets' failed .* restarting in .*{said}")
    until(lambda: any(met.search(one.log.read_text()) for one in both), "a meeting", both[0])
    for one in both:
        assert one.process.poll() is None
    both[0].kill()
    both[1].wait_for_batch(both[1].batch)  # both may have failed: this one continues


@pytest.mark.timeout(300)
@pytest.mark.deep
def test_driver_that_finds_no_etcd_says_so_and_leaves_nothing(drivers, rink_redis):
    driver = drivers("alone", "127.0.0.1:1")
    assert driver.process.wait(WAIT_S) == 1
    last = driver.log.read_text().splitlines()[-1]
    assert "127.0.0.1:1" in last, last
    assert not driver.note.exists()
    assert rink_redis.call("DBSIZE") == 0
