"""Let members come, go and crash: no partition loses an offset."""

import random

import pytest
from partitions_support import Worker, settle

from rink.core import codec
from rink.core.placement import Placement
from rink.core.values import Proclaimed
from rink.core.view import owner_of

TTL_S = 4.0
STEPS = 10


class Life:
    """Run workers on virtual time.

    `done` is the offset that was worked through, by any member.
    """

    def __init__(self, time, seed):
        self.time = time
        self.lots = random.Random(seed)
        self.partitions = self.lots.choice([2, 3, 5, 8])
        self.done = dict.fromkeys(range(self.partitions), 0)
        self.here = []
        self.count = 0

    def step(self):
        for _ in range(self.lots.randint(1, 3)):
            moves = [self.join]
            if self.here:
                moves += [self.join, self.leave, self.crash, self.rest]
            self.lots.choice(moves)()
            self.check_nobody_shares()
        self.time.advance(1.5 * TTL_S)  # whoever crashed is found gone; newcomers are waited for
        settle(self.time, *self.here)
        self.work()

    def join(self):
        if len(self.here) < 5:
            name = f"w{self.count}"
            self.count += 1
            self.here.append(Worker(self.time, name, partitions=self.partitions, ttl=TTL_S))

    def leave(self):
        self.here.pop(self.lots.randrange(len(self.here))).leave()

    def crash(self):
        self.here.pop(self.lots.randrange(len(self.here))).crash()

    def rest(self):
        """Some time, in which some take their changes, and not all let go."""
        self.time.advance(self.lots.choice([0.0, 0.1, 2.0, TTL_S]))
        for one in self.here:
            if self.lots.random() < 0.7:
                one.look()
        self.check_nobody_shares()

    def work(self):
        """Let each worker do one thing per partition, from the committed offset."""
        self.check_nobody_shares()
        if not self.here:
            return
        owned = {number: one for one in self.here for number in one.partitions}
        assert set(owned) == set(self.done), "a partition has no consumer"
        for number, worker in owned.items():
            assignment = worker.consumer.assigned[number]
            assert assignment.offset == self.done[number]
            worker.consumer.commit(number, assignment.offset + 1)
            self.done[number] += 1
        self.check_table(owned)

    def check_nobody_shares(self):
        held = [number for one in self.here for number in one.partitions]
        assert len(held) == len(set(held))

    def check_table(self, owned):
        for row in self.here[0].consumer.table():
            assert row.owner == owned[row.partition].name
            assert row.offset == self.done[row.partition]
            assert (row.standby is None) == (len(self.here) == 1)
            assert row.standby != row.owner

    def check_versions(self):
        """Check that each partition has a ranked owner in every version."""
        root = b"rink/g/"
        for kv in self.time.cluster.client().range(root + b"versions/", root + b"versions0").kvs:
            entry = codec.read(root, kv.key, kv.value, 1, 1, 0)
            assert isinstance(entry, Proclaimed)
            version = entry.version
            for number in range(self.partitions if version.ranks else 0):
                assert owner_of(version, f"orders/{number}", Placement().rank) in version.ranks


@pytest.mark.parametrize("seed", range(24))
def test_partition_has_one_consumer_and_goes_on_at_its_offset(time, seed):
    life = Life(time, seed)
    for _ in range(STEPS):
        life.step()
    life.check_versions()


@pytest.mark.parametrize("seed", range(6))
def test_whoever_the_table_names_as_standby_takes_over(time, seed):
    """By the plan itself: the owner crashes, and no other thing happens."""
    life = Life(time, seed)
    for _ in range(life.lots.randint(2, 4)):
        life.join()
        time.advance(1.5 * TTL_S)
        settle(time, *life.here)
    while len(life.here) > 1:
        rows = life.here[0].consumer.table()
        gone = life.here.pop(life.lots.randrange(len(life.here)))
        foreseen = {row.partition: row.standby for row in rows if row.owner == gone.name}
        gone.crash()
        time.advance(1.5 * TTL_S)
        settle(time, *life.here)
        owners = {number: one.name for one in life.here for number in one.partitions}
        assert {number: owners[number] for number in foreseen} == foreseen
