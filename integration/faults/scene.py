"""Run members in processes, with their ledger, history and judgement."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger import Ledger
from members import LONG_S, Worker, settle
from table import Row

from rink.core.keys import MEMBERS, VERSIONS, Keys, decode_name
from rink.engine.clock import SYSTEM
from rink.etcd.api import Delete, Put, WatchBroken, WatchEvents, WatchOpened
from rink.etcd.client import Client
from rink.testing.history import History, HistoryEvent, Judgement

GROUP = "g"


class Scene:
    """Run members of one group under faults.

    Args:
        endpoints: the members' etcd, which the scene asks in the end.
        prefix: of their keys.
        folder: for the ledger's socket.
        record: takes the row of the table.

    Attributes:
        history: the members' events, and the fate of their writes.
        ledger: the resource that members write to.
        since: when the fault began.
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
        self._term_before = 0
        self.since = 0.0
        with self._client() as client:
            self._first_revision = client.range(b"k").header.revision + 1

    def start(self, name: str, endpoints: Any = None, **settings: Any) -> Worker:
        """Start a member in a process; see `Worker` for the settings."""
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
        """Start members, the coordinator first; wait until nothing moves.

        Args:
            names: of the members, one letter each.
            roles: the roles that they follow.
            each: settings of some of them.
            all_: settings of all of them.
        """
        members: list[Worker] = []
        for name in names:
            own = (each or {}).get(name, {})
            members.append(self.start(name, roles=roles, **all_, **own))
            if name == names[0]:
                members[0].wait("joined")
        settle(self.history, members, roles)
        return members

    def begin(self) -> float:
        """Note that the fault begins now."""
        self._versions_before = self.newest_version()
        self._term_before = self._raft_term()
        self.since = SYSTEM.now()
        return self.since

    def elections(self) -> int:
        """Return how often etcd elected a leader since the fault began."""
        return self._raft_term() - self._term_before

    def _raft_term(self) -> int:
        with self._client() as client:
            return client.range(b"k").header.raft_term

    def all_held(self, roles: list[str], timeout: float = LONG_S) -> None:
        """Wait until somebody holds each of these."""
        self.history.wait(lambda h: set(h.holders) == set(roles), timeout)

    def later(self, seconds: float) -> None:
        """Let members work until so long after the beginning of the fault."""
        time.sleep(max(0.0, self.since + seconds - SYSTEM.now()))

    def lateness(self, who: str) -> float:
        """Return the delay from a deadline to the release of the last role.

        The member has been cut off by now, and the deadline is its own.
        """
        let_go = [e.at for e in self.history.events if e.what == "let go" and e.who == who]
        return max(let_go) - self.ledger.until[who]

    def since_then(self) -> float:
        """Return the seconds since the fault began."""
        return SYSTEM.now() - self.since

    def held_by(self, *names: str) -> None:
        """Wait until exactly these members hold all roles that were ever held."""
        known = {event.role for event in self.history.events if event.role}
        self.history.wait(
            lambda h: set(h.holders) == known and set(h.holders.values()) == set(names)
        )

    def newest_version(self) -> int:
        """Return the number of the newest version, 0 for none."""
        return max((version["number"] for version in self.versions()), default=0)

    def versions(self) -> list[dict[str, Any]]:
        """Return all versions in etcd."""
        first = self.keys.root + VERSIONS.encode()
        with self._client() as client:
            return [json.loads(kv.value) for kv in client.range(first, first[:-1] + b"0").kvs]

    def until_ranked(self, names: str) -> None:
        """Wait until the newest version ranks just these members."""
        end = SYSTEM.now() + LONG_S
        while set(self.versions()[-1]["ranks"]) != set(names):
            assert SYSTEM.now() < end, self.versions()[-1]
            time.sleep(0.05)

    def judge(self) -> Judgement:
        """Judge the history, with etcd's record of the members' leases."""
        self._note_lease_ends()
        return self.history.judge()

    def compact(self) -> None:
        """Make etcd forget its history up to now.

        Note the ends of leases first, since they are read from this history.
        """
        self._note_lease_ends()
        with self._client() as client:
            client.compact(self._first_revision - 1)

    def end(
        self,
        fault: str,
        servers: str,
        *,
        bound: float | None = None,
        versions: int | None = None,
        early: bool = False,
    ) -> Judgement:
        """Judge, add the row, and assert that nothing was forbidden.

        Args:
            fault: for the row.
            servers: for the row.
            bound: the longest time that nobody may hold a role, in seconds; None is any.
            versions: how many may have been proclaimed; None is any number.
            early: whether etcd may have ended a lease before its time.
        """
        judgement = self.judge()
        row = Row.of(
            fault,
            servers,
            judgement,
            self.since,
            versions=self.newest_version() - self._versions_before,
            bound=bound,
        )
        self._record(row)
        assert judgement.problems == []
        assert versions is None or row.versions == versions
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

    def _note_lease_ends(self) -> None:
        """Add when records of members went, read from etcd's own history.

        (A member that leaves deletes its record too, having let go before.)
        """
        first = self.keys.root + MEMBERS.encode()
        everything = self._prefix.encode()
        last = everything + b"~"  # of no group
        done = threading.Event()

        def deliver(message: WatchOpened | WatchEvents | WatchBroken) -> None:
            if isinstance(message, WatchBroken):
                raise message.error
            for event in message.events if isinstance(message, WatchEvents) else ():
                if event.kv.key == last and not event.deleted:
                    self._first_revision = event.kv.mod_revision + 1
                    done.set()
                elif event.deleted and event.kv.key.startswith(first):
                    name = decode_name(event.kv.key[len(first) :].decode()) or ""
                    self.history.add(
                        HistoryEvent("lease ended", name, SYSTEM.now(), token=event.kv.mod_revision)
                    )

        with self._client() as client:
            client.txn((), (Put(last, b""),))
            watch = client.watch(everything, last + b"~", self._first_revision, deliver)
            assert done.wait(LONG_S)
            watch.close()
            client.txn((), (Delete(last),))
