"""Write a group into the in-memory etcd, and script what happens to it."""

from __future__ import annotations

import attrs

from rink.core import codec
from rink.core.keys import Keys
from rink.core.member_record import MemberRecord, Phase, Share
from rink.core.values import Version
from rink.etcd.api import Delete, Put
from rink.testing.virtual_clock import BUSY_TIMEOUT_S, VirtualClock

JOINED = "2026-07-01T10:11:12.345+00:00"
TTL = 60


class Clock(VirtualClock):
    """Stand still, so that output can be compared."""

    def wall(self):
        return JOINED

    def only_this_thread_works(self):
        """Wait until every other thread rests, and return if no item is left.

        The one reader of a mailbox that is not waiting may call it.
        """
        with self.changed:
            assert self.changed.wait_for(self._one_works, BUSY_TIMEOUT_S), "a thread does not rest"
            return not any(mailbox.items for mailbox in self.mailboxes)

    def _one_works(self):
        return sum(not mailbox.is_idle for mailbox in self.mailboxes) == 1


class Town:
    """Hold one etcd and the keys of its groups.

    `script` is what happens while a watch runs.
    """

    def __init__(self):
        self.clock = Clock()
        self.cluster = self.clock.cluster
        self.etcd = self.cluster.client("writer")
        self.targets = []
        self.script = []
        self.faults = []
        self.lease_faults = []
        self.lease_answers = []
        self.leases = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cluster.close()

    def connect(self, target):
        self.targets.append(target)
        return Watched(self)

    # ── what members do ──

    def write(self, key, value):
        self.etcd.txn((), (Put(key, value),))

    def record(self, name, *, group="orders", prefix="rink/", **fields):
        """Write a member's record, under the lease it has or a new one."""
        fields.setdefault("joined", JOINED)
        fields.setdefault("incarnation", f"incarnation-of-{name}")
        fields.setdefault("ttl", TTL)
        lease = self.leases.get(name) or self.etcd.grant(TTL).lease
        self.leases[name] = lease
        key = Keys.of(prefix, group).member(name)
        self.etcd.txn((), (Put(key, codec.encode(MemberRecord(**fields)), lease),))

    def renew(self, name):
        """Renew a member's lease: it begins anew, as by a keepalive."""
        lease = self.leases[name]
        with self.cluster.change() as store:
            store.keep_alive(lease, self.clock.now())

    def crash(self, name):
        self.etcd.revoke(self.leases.pop(name))

    def version(self, number, *ranks, group="orders", prefix="rink/", **fields):
        fields = {"scheme": "jump", "by": "a", "proclaimed": JOINED, **fields}
        made = Version(number=number, ranks=ranks, **fields)
        self.write(Keys.of(prefix, group).version(number), codec.encode(made))

    def let_pass(self, seconds):
        """Move the clock from within a request of the command."""
        self.clock._now += seconds

    def prune(self, *numbers):
        keys = Keys.of("rink/", "orders")
        self.etcd.txn((), tuple(Delete(keys.version(number)) for number in numbers))

    def forget(self, group="orders"):
        keys = Keys.of("rink/", group)
        self.etcd.txn((), (Delete(keys.root, keys.end),))

    def settled(self, *names):
        """Write a settled group of these members, at version 1."""
        for rank, name in enumerate(names):
            self.record(name, version=1, shares=(Share(rank, len(names), "jump"),))
        self.version(1, *names, because=("started", *(f"joined {name}" for name in names)))


@attrs.define
class Watched:
    """Run the next step of the script when the command probes etcd.

    The events of a step arrive within that very call, and Ctrl-C comes at the script's end. So a
    watch runs from its first line to its last without any time passing.
    """

    town: Town
    client: object = None
    timeout, epoch = 5.0, 0

    def __attrs_post_init__(self):
        self.client = self.town.cluster.client()

    def range(self, key, range_end=b"", *, timeout=None):
        if self.town.faults:
            raise self.town.faults.pop()
        if not range_end:
            self._happen()
        return self.client.range(key, range_end)

    def txn(self, compare, then):
        return self.client.txn(compare, then)

    def time_to_live(self, lease, *, timeout=None):
        if self.town.lease_faults:
            raise self.town.lease_faults.pop()
        if self.town.lease_answers:
            return self.town.lease_answers.pop()
        return self.client.time_to_live(lease)

    def _happen(self):
        # The list and its watch are made on other threads, and count once they have been told.
        if not self.town.clock.only_this_thread_works():
            return
        if not self.town.script:
            raise KeyboardInterrupt
        self.town.script.pop(0)()
        self.town.cluster.pump()

    def watch(self, *args):
        watch = self.client.watch(*args)
        self.town.cluster.pump()  # that it is open
        return watch

    def close(self):
        self.client.close()


LEAVING = Phase.LEAVING
