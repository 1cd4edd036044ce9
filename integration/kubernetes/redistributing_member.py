"""Stand in for a scheduler that redistributes roles.

It does so on each join and each leave. The members are keys in etcd, each bound to its member's
lease. Role number i belongs to member i mod n, in the order in which they joined. So each join and
each leave gives most roles to other members. A role's key, bound to the holder's lease, keeps a new
holder waiting for the old one.

It writes the events that `rollout_member` writes, and `redistributed` with the members when it saw
them change.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import threading
from pathlib import Path

from rink.engine.clock import SYSTEM
from rink.etcd.api import Compare, Delete, Put, TxnTarget
from rink.etcd.client import Client


class Member:
    """Run one member, with all of its work on the main thread."""

    def __init__(self, client: Client, name: str, prefix: str, roles: list[str], ttl: int) -> None:
        self._client = client
        self._name = name
        self._members = f"{prefix}members/"
        self._locks = f"{prefix}locks/"
        self._roles = roles
        self._lease = client.grant(ttl).lease
        self._keepalives = client.keepalives(lambda _: None)
        self._file = Path()
        self._held: dict[str, int] = {}
        self._seen: tuple[str, ...] = ()
        self.changed: queue.Queue[bool] = queue.Queue()

    def join(self, prefix: str, events: Path) -> None:
        """Write the member's key, and watch all keys."""
        self._file = events / f"{self._name}.jsonl"
        key = f"{self._members}{self._name}".encode()
        self._client.txn((), (Put(key, b"", self._lease),))
        begin = prefix.encode()
        self._client.watch(begin, begin[:-1] + b"0", 0, lambda _: self.changed.put(True))
        self._say("joined")

    def follow(self) -> None:
        """Let go of roles that belong to others by now; take the free ones."""
        prefix = self._members.encode()
        listed = self._client.range(prefix, prefix[:-1] + b"0")
        ordered = sorted(listed.kvs, key=lambda kv: kv.create_revision)
        members = tuple(kv.key.decode().removeprefix(self._members) for kv in ordered)
        if members != self._seen:
            self._seen = members
            self._say("redistributed", members=members)
        if self._name not in members:
            self.let_go(list(self._held))
            return
        own = members.index(self._name)
        mine = [role for i, role in enumerate(self._roles) if i % len(members) == own]
        self.let_go([role for role in self._held if role not in mine])
        for role in mine:
            if role not in self._held:
                self._take(role)

    def _take(self, role: str) -> None:
        key = f"{self._locks}{role}".encode()
        free = Compare(key, TxnTarget.CREATE, 0)
        done = self._client.txn((free,), (Put(key, self._name.encode(), self._lease),))
        if done.succeeded:
            self._held[role] = done.header.revision
            self._say("gained", role=role, token=done.header.revision)

    def let_go(self, roles: list[str]) -> None:
        """Release roles: the work first, then the key."""
        for role in roles:
            self._say("let go", role=role, token=self._held.pop(role))
            self._client.txn((), (Delete(f"{self._locks}{role}".encode()),))

    def wait(self, timeout: float) -> None:
        """Wait until a key changes, at most `timeout` seconds.

        Keep the lease alive.
        """
        self._keepalives.send(self._lease)
        with contextlib.suppress(queue.Empty):
            self.changed.get(timeout=timeout)
            while True:  # take in the changes of the meantime at once
                self.changed.get_nowait()

    def leave(self) -> None:
        """Remove the member's key, release all roles and end the lease."""
        self._client.txn((), (Delete(f"{self._members}{self._name}".encode()),))
        self.let_go(list(self._held))
        self._client.revoke(self._lease)
        self._say("left")

    def _say(self, what: str, **more: object) -> None:
        event = {"what": what, "who": self._name, "at": SYSTEM.now(), **more}
        with self._file.open("a") as file:
            file.write(json.dumps(event) + "\n")


def main() -> None:
    """Join, follow the members until SIGTERM, leave."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("etcd", "prefix", "roles"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--ttl", type=float, required=True)
    chosen = parser.parse_args()
    ending = threading.Event()
    with Client([chosen.etcd]) as client:
        roles = chosen.roles.split(",")
        name = os.environ["POD_NAME"]
        member = Member(client, name, chosen.prefix, roles, int(chosen.ttl))

        def end(*_: object) -> None:
            ending.set()
            member.changed.put(True)

        signal.signal(signal.SIGTERM, end)
        member.join(chosen.prefix, chosen.events)
        Path("ready").touch()
        while not ending.is_set():
            member.follow()
            member.wait(chosen.ttl / 6)
        member.leave()


if __name__ == "__main__":
    main()
