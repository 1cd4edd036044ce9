"""A scene: members in processes, what they write to, their history, and what became of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger import Ledger
from members import LONG_S, Worker, settle
from table import Row

from rink.core.keys import MEMBERS, VERSIONS, Keys, decode
from rink.engine.clock import SYSTEM
from rink.etcd.api import Delete, Put, WatchBroken, WatchEvents
from rink.etcd.client import Client
from rink.testing.history import Event, History, Judgement

GROUP = "g"


class Scene:
    """Members of one group of the test's own, under whatever happens to them.

    Args:
        endpoints: where members reach etcd, and where it is asked in the end.
        prefix: of their keys.
        folder: for the ledger's socket.
        record: takes the row of the table.

    Attributes:
        history: what the members said, and what became of their writes.
        ledger: what the members write to.
    """

    def __init__(
        self, endpoints: list[str], prefix: str, folder: Path, record: Callable[[Row], None]
    ) -> None:
        self.history = History()
        self.ledger = Ledger(self.history, folder)
        self.keys = Keys.of(prefix, GROUP)
        self._endpoints = endpoints
        self._prefix = prefix
        self._record = record
        self._workers: list[Worker] = []
        self._versions_before = 0
        self._since = 0.0
        with self._client() as client:
            self._first_revision = client.range(b"k").header.revision + 1

    def start(self, name: str, endpoints: Any = None, **settings: Any) -> Worker:
        """A member in a process of its own; see `Worker` for the settings."""
        worker = Worker(
            self.history,
            name,
            endpoints or self._endpoints,
            self._prefix,
            ledger=self.ledger.path,
            **settings,
        )
        self._workers.append(worker)
        return worker

    def settled(
        self,
        names: str,
        roles: list[str],
        each: dict[str, dict[str, Any]] | None = None,
        **all_: Any,
    ) -> list[Worker]:
        """Start these members (one letter each) and wait until nothing moves.

        Args:
            names: of the members.
            roles: what they follow.
            each: settings of some of them.
            all_: settings of all of them.
        """
        members = [
            self.start(name, roles=roles, **all_, **(each or {}).get(name, {})) for name in names
        ]
        settle(self.history, members, roles)
        return members

    def begin(self) -> float:
        """The fault begins now."""
        self._versions_before = self.newest_version()
        self._since = SYSTEM.now()
        return self._since

    def all_held(self, roles: list[str], timeout: float = LONG_S) -> None:
        """Wait until somebody holds each of these."""
        self.history.wait(lambda h: set(h.holders) == set(roles), timeout)

    def later(self, seconds: float) -> None:
        """Let members work until so long after the beginning of the fault."""
        time.sleep(max(0.0, self._since + seconds - SYSTEM.now()))

    def newest_version(self) -> int:
        """The number of the newest version, 0 for none."""
        first = self.keys.root + VERSIONS.encode()
        with self._client() as client:
            kvs = client.range(first, first[:-1] + b"0").kvs
        return max((int(kv.key[len(first) :]) for kv in kvs), default=0)

    def judge(self) -> Judgement:
        """What the history is worth, with what etcd says of the members' leases."""
        for event in self._lease_ends():
            self.history.add(event)
        return self.history.judge()

    def end(
        self, fault: str, servers: str, *, bound: float | None = None, early: bool = False
    ) -> Judgement:
        """Judge, add the row, and assert that nothing was forbidden.

        Args:
            fault: for the row.
            servers: for the row.
            bound: the longest time that nobody may hold a role, in seconds.
            early: whether etcd may have ended a lease before its time.
        """
        judgement = self.judge()
        row = Row.of(
            fault,
            servers,
            judgement,
            self._since,
            versions=self.newest_version() - self._versions_before,
            bound=bound,
        )
        self._record(row)
        assert judgement.problems == []
        assert early or judgement.early == ()
        assert bound is None or row.longest_gap <= bound
        assert judgement.accepted > 0, "nobody wrote: nothing was shown"
        return judgement

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.close()
        self.ledger.close()

    def _client(self) -> Client:
        return Client(self._endpoints, timeout=10.0)

    def _lease_ends(self) -> list[Event]:
        """When records of members went, read from etcd's own history.

        (A member that leaves deletes its record too, having let go before.)
        """
        found: list[Event] = []
        first = self.keys.root + MEMBERS.encode()
        everything = self._prefix.encode()
        last = everything + b"~"  # of no group
        done = threading.Event()

        def deliver(message: WatchEvents | WatchBroken) -> None:
            if isinstance(message, WatchBroken):
                raise message.error
            for event in message.events:
                if event.kv.key == last:
                    done.set()
                elif event.deleted and event.kv.key.startswith(first):
                    name = decode(event.kv.key[len(first) :].decode()) or ""
                    found.append(Event("lease ended", name, 0.0, token=event.kv.mod_revision))

        with self._client() as client:
            client.txn((), (Put(last, b""),))
            watch = client.watch(everything, last + b"~", self._first_revision, deliver)
            assert done.wait(LONG_S)
            watch.close()
            client.txn((), (Delete(last),))
        return found
