"""Run minutes of mishaps, drawn by a seed.

Workers are killed and frozen; Redis and etcd are restarted and frozen.

    python integration/streams/chaos/run.py --minutes 10 --seed 7

Events are sent all the while. In the end everything is let run, the streams drain, and the sent
events are compared with the processed ones. Exit status 0: nothing lost, nothing out of order, no
stale commit accepted, and no repetition that is not allowed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import attrs
from judge import Copied, Verdict, judge_copies, judge_notes, read_notes, refused_at_the_end
from rich.console import Console
from worker import PARTITIONS, WINDOW, Ping, make_app

from rink.errors import RinkError
from rink.streams.stream import partition_bounds
from rink.testing import local_etcd, local_redis

KEYS = 200
RATE = 400  # events a second
WORKER = Path(__file__).with_name("worker.py")


class Workers:
    """Manage the worker processes; a killed one returns under a new name."""

    def __init__(self, folder):
        self.folder = folder
        self.running = {}
        self.frozen = set()
        self.started = 0

    def start(self):
        self.started += 1
        name = f"w{self.started}"
        log = (self.folder / f"{name}.log").open("ab")
        command = [sys.executable, str(WORKER), name, str(self.folder / f"{name}.notes")]
        self.running[name] = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        return name

    def signal(self, name, number):
        if self.running[name].poll() is None:
            self.running[name].send_signal(number)

    def awake(self):
        return [name for name in self.running if name not in self.frozen]

    def kill(self, name):
        self.running.pop(name).kill()
        self.frozen.discard(name)

    async def stop(self, name, seconds=40):
        process = self.running.pop(name)
        if process.poll() is not None and self.was_refused(name):
            return
        process.terminate()
        end = time.monotonic() + seconds
        while process.poll() is None:
            if time.monotonic() > end:
                process.kill()
                raise AssertionError(f"{name} did not end within {seconds} s of SIGTERM")
            await asyncio.sleep(0.05)
        if process.returncode not in (0, -signal.SIGTERM):  # -SIGTERM: it had hardly begun
            raise AssertionError(
                f"{name} ended with {process.returncode}: {self.log(name)[-2000:]}"
            )

    def restart_refused(self):
        """Start anew who was refused, as a deployment would."""
        for name in [name for name, process in self.running.items() if process.poll() is not None]:
            assert self.was_refused(name), f"{name} died: {self.log(name)[-3000:]}"
            del self.running[name]
            self.frozen.discard(name)
            self.start()

    def was_refused(self, name):
        """Return whether a worker ended since Redis or etcd was unavailable.

        This happens at its start.
        """
        return re.search(r"\.(Redis|Etcd)Unavailable: ", self.log(name)[-1500:]) is not None

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def close(self):
        for process in self.running.values():
            process.kill()
            process.wait()


class Chaos:
    """Hold one run."""

    def __init__(self, settings, folder, etcd, redis, console):
        self.settings = settings
        self.random = random.Random(settings.seed)
        self.keys = random.Random(settings.seed)  # how often it is asked depends on the machine
        self.etcd, self.redis, self.console = etcd, redis, console
        self.workers = Workers(folder)
        self.sent = Counter()
        self.done = Counter()
        self.folder = folder
        self.began = time.monotonic()

    def say(self, what):
        self.console.print(f"{time.monotonic() - self.began:7.1f} s  {what}", highlight=False)

    async def run(self):
        for _ in range(3):
            self.workers.start()
        self.app, self.pings, self.copies = make_app()
        stop = asyncio.Event()
        sending = asyncio.create_task(self._send(stop))
        try:
            await self._mishaps(self.began + 60 * self.settings.minutes)
        finally:
            stop.set()
            await sending
        await self._heal()
        await self._drained()
        for name in list(self.workers.running):
            await self.workers.stop(name)

    async def _send(self, stop):
        """Send each key's events in order, each until Redis has it."""
        while not stop.is_set():
            began = time.monotonic()
            batch = []
            for _ in range(RATE // 10):
                who = f"k{self.keys.randrange(KEYS)}"
                batch.append(Ping(who=who, n=self.sent[who]))
                self.sent[who] += 1
            await self.pings.send_many(batch, timeout=300)
            await asyncio.sleep(max(0.1 - (time.monotonic() - began), 0))

    async def _mishaps(self, end):
        kinds = (
            self.kill_worker, self.kill_worker, self.freeze_worker, self.freeze_worker,
            self.deploy, self.restart_redis, self.kill_redis, self.freeze_redis,
            self.restart_etcd, self.freeze_etcd,
        )  # fmt: skip
        rest = []
        while time.monotonic() < end:
            await asyncio.sleep(self.random.uniform(0.5, 4))
            self.workers.restart_refused()
            # Without replacement, so that a short run has many kinds too.
            rest = rest or self.random.sample(kinds, len(kinds))
            kind = rest.pop()
            self.done[kind.__name__.replace("_", " ")] += 1
            await kind()

    async def kill_worker(self):
        name = self.random.choice(list(self.workers.running))
        self.say(f"kill -9 {name}")
        self.workers.kill(name)
        await asyncio.sleep(self.random.uniform(0, 2))
        self.workers.start()

    async def freeze_worker(self):
        awake = self.workers.awake()
        if not awake:
            return
        name, seconds = self.random.choice(awake), self.random.uniform(0.5, 7)
        self.say(f"freeze {name} for {seconds:.1f} s")
        self.workers.signal(name, signal.SIGSTOP)
        self.workers.frozen.add(name)
        asyncio.get_running_loop().call_later(seconds, self._thaw, name)

    def _thaw(self, name):
        if name in self.workers.frozen:
            self.workers.frozen.discard(name)
            self.workers.signal(name, signal.SIGCONT)

    async def deploy(self):
        awake = self.workers.awake()
        if not awake:
            return
        old, new = self.random.choice(awake), self.workers.start()
        self.say(f"deploy {new} for {old}")
        await asyncio.sleep(self.random.uniform(0, 2))
        if old in self.workers.awake():
            await self.workers.stop(old)

    async def restart_redis(self):
        await self._restart(self.redis)

    async def restart_etcd(self):
        await self._restart(self.etcd)

    async def _restart(self, server):
        self.say(f"restart {server!r}")
        await asyncio.to_thread(server.restart)

    async def kill_redis(self):
        pause = self.random.uniform(0, 2)
        self.say(f"kill -9 redis, and start it after {pause:.1f} s")
        await asyncio.to_thread(self.redis.kill)
        await asyncio.sleep(pause)
        await asyncio.to_thread(self.redis.start)

    async def freeze_redis(self):
        await self._freeze(self.redis)

    async def freeze_etcd(self):
        await self._freeze(self.etcd)

    async def _freeze(self, server):
        seconds = self.random.uniform(0.5, 4)
        self.say(f"freeze {server!r} for {seconds:.1f} s")
        await asyncio.to_thread(server.freeze)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(server.thaw)

    async def _heal(self):
        for name in list(self.workers.frozen):
            self._thaw(name)

    async def _drained(self, seconds=90):
        """Wait until every processor has committed everything."""
        self.say(f"everything runs; {sum(self.sent.values())} events were sent")
        end = time.monotonic() + seconds
        while left := await self._left():
            if time.monotonic() > end:
                raise AssertionError(f"not drained {seconds} s after the last mishap: {left}")
            self.workers.restart_refused()
            await asyncio.sleep(0.2)
        self.say("drained")

    async def _left(self):
        opened = await self.app.connections.open()
        left = {}
        for processor in ("plain", "exact"):
            for number in range(PARTITIONS):
                place = attrs.evolve(self.place(number), processor=processor)
                with contextlib.suppress(RinkError):
                    if count := await opened.store.lag(place):
                        position = await opened.store.position(place)
                        left[processor, number] = (count, position.quarantined)
                    continue
                left[processor, number] = "not reached"
        return left

    def place(self, number):
        from rink.streams.store.values import PartitionPlace

        names = self.pings.names.partition(number)
        return PartitionPlace("pings", number, names, "plain", partition_bounds(self.pings))

    async def verdict(self):
        verdict = Verdict()
        opened = await self.app.connections.open()
        judge_copies(self.sent, await self._copies(opened), verdict)
        notes, cuts = [], Counter()
        for path in self.folder.glob("*.notes"):
            notes += read_notes(path.read_text(), path.stem)
        for path in self.folder.glob("*.log"):
            cuts += refused_at_the_end(path.read_text())
        for number in range(PARTITIONS):
            cuts[number] += (await opened.store.position(self.place(number))).unclean
        judge_notes(self.sent, notes, cuts, WINDOW, verdict)
        await self.app.close()
        return verdict

    async def _copies(self, opened):
        copies = []
        for number in range(PARTITIONS):
            key = self.copies.names.partition(number).stream
            for _, fields in await opened.store.redis.xrange(key):
                copy = self.copies.codec.decode(fields[b"d"])
                copies.append(Copied(number, copy.who, copy.n, copy.token))
        return copies


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    parser.add_argument("--keep", type=Path, help="keep notes and logs in this folder")
    settings = parser.parse_args(arguments)
    if settings.seed is None:
        settings.seed = random.SystemRandom().randrange(1_000_000)
    return settings


def main(arguments=None):
    settings = parse_arguments(arguments)
    console = Console(stderr=True)
    with contextlib.ExitStack() as stack:
        if settings.keep:
            folder = settings.keep
            folder.mkdir(parents=True)  # a new folder, since notes are appended
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rink-chaos-")))
        etcd = stack.enter_context(local_etcd())
        # A kill -9 of Redis loses nothing that it has answered only where it writes at once.
        redis = stack.enter_context(local_redis(appendfsync="always"))
        os.environ |= {"CHAOS_ETCD": etcd.endpoint, "CHAOS_REDIS": redis.url}
        chaos = Chaos(settings, folder, etcd, redis, console)
        stack.callback(chaos.workers.close)
        console.print(f"seed {settings.seed}, {settings.minutes:g} minutes")
        verdict = asyncio.run(_whole(chaos))
    report(chaos, verdict, console)
    return 0 if verdict.is_good else 1


async def _whole(chaos):
    await chaos.run()
    return await chaos.verdict()


def report(chaos, verdict, console):
    figures = {
        "seed": chaos.settings.seed,
        "minutes": chaos.settings.minutes,
        "mishaps": dict(sorted(chaos.done.items())),
        "sent": sum(chaos.sent.values()),
        "processed": verdict.processed,
        "order_violations": len(verdict.order),
        "lost": len(verdict.lost),
        "stale_accepted": len(verdict.stale),
        "doubled": len(verdict.doubled),
        "came_again": verdict.again,
        "late_by_a_thawed_owner": verdict.late,
        "ok": verdict.is_good,
    }
    if chaos.settings.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            console.print(f"{name.replace('_', ' '):24} {value}", highlight=False)
    for told in (*verdict.order, *verdict.lost, *verdict.stale, *verdict.doubled)[:20]:
        console.print(f"[red]{told}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
