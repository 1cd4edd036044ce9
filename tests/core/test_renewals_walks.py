"""Walk one member at random, while copies replace its etcd (R11).

Requests, answers and events are under way until a step carries them, in any order. A keepalive is
answered at once, by the history that etcd has then. The engine is busy at times: answers that are
held back, and reads, are then taken without a step.
"""

import random

import pytest
from small_etcd import KEYS, unanswered
from world import World, role_of

from rink.core import events as ev
from rink.core.state_tables import Write

STEPS = 70
WEIGHTS = {
    "beat": 6,
    "reconnect": 1,
    "serve": 5,
    "fail": 1,
    "answer": 4,
    "write": 4,
    "copy": 2,
    "restore": 3,
    "cut_watch": 1,
    "heal_watch": 1,
    "wait": 2,
    "expire": 1,
    "end_lease": 1,
}


class Walk:
    """Walk with member b of a pair, and answer its requests in any order."""

    def __init__(self, seed: int) -> None:
        self.lots = random.Random(seed)
        self.world = World()
        for name in ("a", "b"):
            self.world.add(name, rebalance_delay=0.0)
        self.world.sleep(1.0)
        self.world.get("b", role_of(1, 2))
        self.b = self.world.members["b"]
        self.world.hold("b", "requests", "answers")
        self.kept = None
        self.had_record_at = self.world.now
        if seed % 2:
            self._create()

    def _create(self) -> None:
        """Begin with a create under way, and keep a copy from before it."""
        self._end_lease()
        self._beat()
        while self.b.node.writer.state is not Write.SENT:
            self._serve()
            self._answer()
            self.world.run()
        self._beat()
        self._copy()

    def look(self) -> None:
        """Note the last time at which etcd had the last answered write."""
        kv, node = self.world.etcd.kvs.get(KEYS.member("b")), self.b.node
        if kv is not None and kv.lease == node.member_lease.id and kv.mod >= node.writer.compare:
            self.had_record_at = self.world.now

    def step(self) -> None:
        """Take one step, and check what has moved the deadline."""
        self.look()
        [kind] = self.lots.choices(list(WEIGHTS), list(WEIGHTS.values()))
        getattr(self, f"_{kind}")()
        self.look()
        member_lease = self.b.node.member_lease
        if member_lease.is_alive and self.b.node.writer.exists:
            bound = self.had_record_at + member_lease.granted_ttl - member_lease.margin
            assert member_lease.deadline <= bound, (
                "an etcd without the own record moved the deadline"
            )
        if self.lots.random() < 0.8:
            self.world.step(self.b, [])
        self.world.run()

    def _beat(self) -> None:
        member_lease, world = self.b.node.member_lease, self.world
        if member_lease.is_held and member_lease.id not in world.etcd.leases:
            world.step(self.b, [ev.LeaseEnded(member_lease.id)])
        elif member_lease.is_held:
            effects, _ = self.b.node.renew(
                world.now, member_lease.id, world.now, world.etcd.history
            )
            world._do(self.b, effects)

    def _reconnect(self) -> None:
        self.world.etcd.history += 1  # the number of the call; etcd is the same

    def _pick(self, messages):
        index = self.lots.randrange(len(messages))
        message = messages[index]
        del messages[index]
        return message

    def _serve(self) -> None:
        if self.b.to_etcd:
            answer = self.world._serve(self.b, self._pick(self.b.to_etcd))
            if answer is not None:
                self.b.from_etcd.append(answer)

    def _fail(self) -> None:
        if self.b.to_etcd:
            request = self._pick(self.b.to_etcd)
            if self.lots.random() < 0.5:
                self.world._serve(self.b, request)  # its answer is lost
            failure = unanswered(request)
            if failure is not None:
                self.b.from_etcd.append(failure)

    def _answer(self) -> None:
        if not self.b.from_etcd:
            return
        answer = self._pick(self.b.from_etcd)
        if isinstance(answer, ev.RecordRead):
            effects, counts = self.b.node.prove(self.world.now, answer)
            self.world._do(self.b, effects)
            answer = ev.Nudged() if counts else answer
        self.world.step(self.b, [answer])

    def _write(self) -> None:
        self.b.node.writer.must_write = True
        self.world.step(self.b, [ev.Nudged()])

    def _copy(self) -> None:
        self.kept = self.world.etcd.copy()

    def _restore(self) -> None:
        if self.kept:
            self.world.replace_history(self.kept)
            self.kept = None
            if self.lots.random() < 0.7:
                self._cut_watch()

    def _cut_watch(self) -> None:
        self.b.held.add("events")

    def _heal_watch(self) -> None:
        self.b.held.discard("events")

    def _wait(self) -> None:
        self.world.now += self.lots.choice([0.05, 0.5, 2.0, 5.0, 40.0])

    def _expire(self) -> None:
        self.world._do(self.b, self.b.node.expire(self.world.now))

    def _end_lease(self) -> None:
        self.world.etcd.end_lease(self.b.node.member_lease.id)

    def calm(self) -> None:
        """End all faults, and check that keepalives count again."""
        self.b.listed = False
        self.world.let("b")
        self.world.sleep(45.0)
        assert self.b.node.member_lease.is_alive
        assert self.b.node.renewals.trouble == ""
        assert self.b.node.member_lease.deadline > self.world.now + 40.0


@pytest.mark.parametrize(
    ("first", "count"),
    [
        *((first, 100) for first in (0, 100)),
        *(pytest.param(first, 2000, marks=pytest.mark.deep) for first in range(200, 8200, 2000)),
    ],
)
def test_only_an_etcd_with_the_own_record_moves_the_deadline(first, count):
    for seed in range(first, first + count):
        walk = Walk(seed)
        try:
            for _ in range(STEPS):
                walk.step()
            walk.calm()
        except Exception as error:
            error.add_note(f"Walk({seed})")
            raise
