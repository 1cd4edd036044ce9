"""Run consumers in processes, and judge their work on a topic."""

from __future__ import annotations

import collections
import itertools
import time
from typing import Any

from members import LONG_S, Worker

from rink.core.keys import OffsetKeys
from rink.engine.clock import SYSTEM
from rink.etcd.api import WatchEvents, WatchOpened
from rink.etcd.client import Client
from rink.partitions import stored
from rink.testing.history import History


class Consumer(Worker):
    """Run one process that consumes; its messages lie in `work.said`."""

    script = "partitions/partitions_process.py"

    def __init__(self, work: Work, name: str, **settings: Any):
        self.work = work
        super().__init__(work.history, name, work.endpoints, work.prefix, **settings)

    def hear(self, said: dict[str, Any]) -> None:
        self.work.hear(said)


class Work:
    """Hold a topic, its consumers, and every change of its offsets."""

    def __init__(self, endpoints: str, prefix: str, partitions: int = 6):
        self.endpoints = endpoints
        self.prefix = prefix
        self.partitions = partitions
        self.history = History()
        self.said: list[dict[str, Any]] = []
        self.offsets: dict[int, list[stored.Stored]] = collections.defaultdict(list)
        self._consumers: list[Consumer] = []
        self._keys = OffsetKeys.of(prefix, "g", "orders")
        self._etcd = Client([endpoints])
        begin = self._etcd.range(self._keys.root, self._keys.end).header.revision
        self._watch = self._etcd.watch(self._keys.root, self._keys.end, begin + 1, self._see)

    def start(self, name: str, *, ttl: float = 3.0, **settings: Any) -> Consumer:
        settings = {"scheme": f"balanced:{self.partitions}", "leave_timeout": 5.0, **settings}
        session = {"ttl": ttl, "timeout": settings.pop("timeout", 5.0)}
        made = Consumer(self, name, session=session, **settings)
        self._consumers.append(made)
        return made

    def hear(self, said: dict[str, Any]) -> None:
        self.said.append(said)

    def _see(self, message: Any) -> None:
        if isinstance(message, WatchOpened):
            return
        assert isinstance(message, WatchEvents), message
        for event in message.events:
            number = int(event.kv.key.removeprefix(self._keys.root))
            self.offsets[number].append(stored.read(event.kv.key, event.kv.value))

    def wait(self, what: Any, timeout: float = LONG_S) -> float:
        """Wait until something is true of what was said; the time by which it is."""
        end = SYSTEM.now() + timeout
        while not what():
            assert SYSTEM.now() < end, self.said[-20:]
            time.sleep(0.02)
        return SYSTEM.now()

    def all_worked_by(self, *names: str, since: float = 0.0) -> float:
        """Wait until these consumers share all partitions evenly.

        Each must have worked on its partitions since `since`. A rebalance of which only a part is
        over is not enough.
        """

        def is_so() -> bool:
            latest = self.workers(since)
            shares = collections.Counter(latest.values())
            is_even = max(shares.values(), default=0) - min(shares.values(), default=0) <= 1
            return len(latest) == self.partitions and set(shares) == set(names) and is_even

        return self.wait(is_so)

    def workers(self, since: float = 0.0) -> dict[int, str]:
        """Return the latest consumer of each partition."""
        return {one["partition"]: one["who"] for one in self.all("did", since)}

    def all(self, what: str, since: float = 0.0, **fields: Any) -> list[dict[str, Any]]:
        return [
            one
            for one in list(self.said)
            if one["what"] == what and one["at"] >= since and fields.items() <= one.items()
        ]

    def judge(self) -> None:
        """Assert that no offset went back, and that nothing was skipped.

        Nor may two consumers overlap.
        """
        for number in range(self.partitions):
            written = list(self.offsets[number])
            assert written
            for before, after in itertools.pairwise(written):
                assert before.offset <= after.offset
                assert before.token <= after.token
            done = [one["offset"] for one in self.all("did", partition=number)]
            assert set(done) == set(range(max(done) + 1)), f"partition {number} has a gap"
            self._judge_assignments(number)
        assert self.history.judge().problems == []

    def _judge_assignments(self, number: int) -> None:
        """Assert that each assignment goes on item by item.

        It starts from the last answered commit or before.
        """
        by_token = collections.defaultdict(list)
        for one in self.all("did", partition=number):
            by_token[one["token"]].append(one["offset"])
        committed = 0
        for begin in sorted(self.all("begins", partition=number), key=lambda one: one["token"]):
            token, offset = begin["token"], begin["offset"]
            done = by_token.pop(token, [])
            assert done == list(range(offset, offset + len(done)))
            assert offset >= committed, "what had been committed was not there"
            commits = self.all("committed", partition=number, token=token)
            committed = max([offset, *(one["offset"] for one in commits)])
        assert not by_token

    @property
    def redelivered(self) -> int:
        """Return how many items were processed more than once."""
        times = collections.Counter((o["partition"], o["offset"]) for o in self.all("did"))
        return sum(count - 1 for count in times.values())

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()
        self._watch.close()
        self._etcd.close()
