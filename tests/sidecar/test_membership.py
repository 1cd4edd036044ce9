"""Test a sidecar's member on an etcd in memory: joins, leaves, trouble."""

import asyncio
import contextlib

from sidecar_apart import run

from rink import aio, rank_of
from rink.sidecar import json_views
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.consumers import Consumer
from rink.sidecar.membership import Membership, MembershipState
from rink.sidecar.service import LEAVES, Service
from rink.testing.memory.cluster import MemoryCluster

LONG_S = 20.0
"""Longer than anything here takes, on a busy machine too."""
LOOK_INTERVAL_S = 0.002
HOLD_MS = 400


class GatedRink(aio.Rink):
    """Leave the group once a test allows it."""

    gate = None

    async def leave(self, *args, **named):
        if self.gate is not None:
            await self.gate.wait()
        await super().leave(*args, **named)


class World:
    """Run an etcd, and one sidecar's member without its API."""

    def __init__(self, absent_s=0.0, stays=False, join_timeout=LONG_S, handover_wait=0.0):
        self.join_timeout = join_timeout
        self.handover_wait = handover_wait
        self.cluster = MemoryCluster()
        self.etcd = self.cluster.client()
        self.session = aio.Session(self.etcd, ttl=10.0)
        self.service = Service(ConsumerTurns(HOLD_MS, 30_000))
        self.membership = Membership(self.service, self.make, absent_s, stays)
        self.made = []
        self.gate = None
        self.joins = 0
        self.events = []
        self.service.on_change.append(self.events.append)

    def make(self):
        self.joins += 1
        rink = GatedRink(
            self.session, "g", rebalance_delay=0.0, initial_delay=0.0,
            join_timeout=self.join_timeout, handover_wait=self.handover_wait, leave_timeout=0.05,
        )  # fmt: skip
        rink.gate = self.gate
        self.made.append(rink)
        return rink

    async def __aenter__(self):
        self.running = asyncio.create_task(self.membership.run())
        return self

    async def __aexit__(self, *_):
        self.etcd.heal()
        if self.gate is not None:
            self.gate.set()
        for consumer in list(self.service.turns.consumers.values()):
            self.service.release_all(consumer, "the test is over")
        for role in list(self.membership._handles):
            self.membership.let_go(role)  # of turns that a fault has lost
        self.membership.hurry()
        with contextlib.suppress(RuntimeError):
            await asyncio.wait_for(self.running, LONG_S)
        self.service.close()
        await self.session.close()
        self.cluster.close()

    def consumer(self, *roles, name="web"):
        """Add a consumer with an open stream."""
        consumer = Consumer(name, f"secret-{name}-{len(self.events)}")
        consumer.calls = 1  # until its stream begins
        self.service.hold(consumer, list(roles))
        self.service.open_stream(consumer)
        return consumer

    async def turn(self, role="a"):
        await until(lambda: self.service.turns.turn(role))
        return self.service.turns.turn(role)

    @property
    def state(self):
        return self.membership.state

    @property
    def records(self):
        root = b"rink/g/members/"
        return len(self.etcd.range(root, root[:-1] + b"0").kvs)


async def until(happens):
    """Run the event loop and the engine's thread until a condition holds."""
    never = asyncio.Event()
    async with asyncio.timeout(LONG_S):
        while not happens():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), LOOK_INTERVAL_S)


@run
async def test_member_joins_at_the_first_consumer_and_leaves_without_one():
    async with World() as world:
        assert (world.state, world.records) == (MembershipState.ABSENT, 0)
        consumer = world.consumer("a")
        turn = await world.turn()
        assert (world.state, world.records) == (MembershipState.JOINED, 1)
        world.service.release(consumer, "a", turn.token)
        world.service.release_all(consumer, "it has ended")
        await until(lambda: world.state is MembershipState.ABSENT)
        assert world.records == 0
        consumer = world.consumer("a")
        assert (await world.turn()).token > turn.token
        assert world.joins == 2


@run
async def test_member_with_a_role_of_its_own_stays_without_a_consumer():
    async with World(stays=True) as world:
        await until(lambda: world.state is MembershipState.JOINED)
        consumer = world.consumer("a")
        await world.turn()
        world.service.release_all(consumer, "it has ended")
        await until(lambda: not world.service.turns.consumers)
        assert world.state is MembershipState.JOINED


@run
async def test_consumer_that_comes_while_the_member_leaves_is_served():
    async with World() as world:
        world.gate = asyncio.Event()
        first = world.consumer("a")
        turn = await world.turn()
        world.service.release_all(first, "it has ended")
        await until(lambda: world.state is MembershipState.LEAVING)
        second = world.consumer("a", name="cron")
        early = await world.turn()  # it serves until it has left
        assert early.token > turn.token
        world.gate.set()
        await until(lambda: early.lost_at_ms)
        assert world.state is MembershipState.LEAVING, "its consumer may still work"
        assert world.service.release(second, "a", early.token)
        await until(lambda: world.joins == 2 and world.service.turns.turn("a"))
        late = world.service.turns.turn("a")
        assert late.consumer is second
        assert late.token > early.token


@run
async def test_consumer_in_a_leave_that_cannot_serve_waits_for_the_next_join():
    async with World() as world:
        first = world.consumer("a")
        await world.turn()
        world.gate = world.membership.rink.gate = asyncio.Event()
        world.service.release_all(first, "it has ended")
        await until(lambda: world.state is MembershipState.LEAVING)
        await aio.Rink.leave(world.membership.rink)
        world.consumer("a", name="cron")
        for _ in range(20):
            await asyncio.sleep(0)
        assert not world.membership.failed.is_set()
        world.gate.set()
        assert (await world.turn()).consumer.name == "cron"


@run
async def test_drain_while_joined_waits_for_the_answer():
    async with World() as world:
        consumer = world.consumer("a")
        turn = await world.turn()
        world.membership.drain("a test")
        world.membership.hurry()
        await until(lambda: turn.lost_at_ms)
        await until(lambda: world.service.clock() > turn.lost_at_ms + 300)  # beyond leave_timeout
        assert not world.membership.left.is_set()
        assert world.records == 1
        _, inbox = world.service.open_stream(consumer)
        world.service.release(consumer, "a", turn.token)
        await until(world.membership.left.is_set)
        assert world.state is MembershipState.LEFT
        assert world.records == 0
        assert inbox.bye == LEAVES


@run
async def test_drain_without_an_answer_waits_for_the_end():
    async with World() as world:
        consumer = world.consumer("a")
        turn = await world.turn()
        world.service.close_stream(consumer, consumer.stream, by_consumer=False)
        world.membership.hurry()
        await until(lambda: turn.is_over)
        assert world.service.clock() >= turn.until_ms
        await until(world.membership.left.is_set)


@run
async def test_wait_for_a_successor_ends_with_the_last_consumer_of_any_role():
    """No consumer here has the role, and another member can serve it.

    The other role still has a consumer.
    """
    async with World(stays=True, handover_wait=1e6) as world:
        await until(lambda: world.state is MembershipState.JOINED)
        member = world.made[0]
        async with aio.Rink(world.session, "g", initial_delay=0.0, rebalance_delay=0.0):
            await until(lambda: member.size == 2)
            mine = [role for role in "abcdefghij" if rank_of(role, 2) == member.rank]
            first, second = world.consumer(mine[0], name="stays"), world.consumer(mine[1])
            held, given_back = await world.turn(mine[0]), await world.turn(mine[1])
            world.membership.drain("SIGTERM")
            await until(lambda: "a successor" in member.status().leaving)
            assert not held.is_lost
            world.service.release(second, mine[1], given_back.token)
            await until(lambda: held.is_lost)
            world.service.release(first, mine[0], held.token)
            await until(lambda: world.state is MembershipState.LEFT)


@run
async def test_wait_for_a_successor_goes_on_without_another_member():
    async with World(handover_wait=1e6) as world:
        first, second = world.consumer("a", name="stays"), world.consumer("b")
        held, given_back = await world.turn("a"), await world.turn("b")
        world.membership.drain("SIGTERM")
        await until(lambda: world.state is MembershipState.LEAVING)
        world.service.release(second, "b", given_back.token)
        assert not world.membership._now.is_set()
        world.service.release(first, "a", held.token)
        await until(lambda: world.state is MembershipState.LEFT)


@run
async def test_drain_while_joining_leaves_at_once():
    async with World(join_timeout=0.05) as world:
        world.etcd.cut()
        world.consumer("a")
        await until(lambda: world.membership.trouble)
        world.membership.drain("a test")
        await until(world.membership.left.is_set)
        assert world.state is MembershipState.LEFT


@run
async def test_drain_without_a_consumer_leaves_at_once():
    async with World() as world:
        world.membership.drain("a test")
        await until(world.membership.left.is_set)
        assert world.joins == 0


@run
async def test_etcd_that_is_away_at_the_start_is_tried_again():
    async with World(join_timeout=0.05) as world:
        world.etcd.cut()
        world.consumer("a")
        await until(lambda: world.joins == 3)
        assert world.state is MembershipState.JOINING
        assert world.membership.trouble
        assert world.membership.trouble in world.membership.obstacle("a")
        world.etcd.heal()
        await world.turn()
        assert world.membership.trouble == ""


@run
async def test_consumer_that_goes_while_etcd_is_away_ends_tries_and_trouble():
    async with World(join_timeout=0.05) as world:
        world.etcd.cut()
        consumer = world.consumer("a")
        await until(lambda: world.membership.trouble)
        world.service.release_all(consumer, "it has ended")
        await until(lambda: world.state is MembershipState.ABSENT)
        assert world.membership.trouble == ""


def lease_of(rink):
    return rink._engine.node.member_lease.id


@run
async def test_engine_that_fails_ends_no_turn_before_its_end():
    async with World() as world:
        consumer = world.consumer("a")
        turn = await world.turn()
        rink = world.membership.rink
        lease = lease_of(rink)

        def break_down(_):
            raise ValueError("a bug")

        rink._engine._turn = break_down
        rink._engine.nudge()
        await until(lambda: turn.lost_at_ms)
        assert "a bug" in turn.why
        assert not turn.is_over
        await until(lambda: turn.is_over)
        assert world.service.clock() >= turn.until_ms
        assert not world.membership.failed.is_set()
        await until(lambda: world.joins == 2)
        assert world.records >= 1, "its lease is not given back, since programs may work under it"
        world.cluster.expire_lease(lease)
        assert world.service.release(consumer, "a", turn.token)  # late
        assert (await world.turn()).token > turn.token


@run
async def test_fault_of_a_wait_is_a_failure_of_the_sidecar():
    async with World() as world:

        def break_down(*_):
            raise ValueError("a bug")

        world.service.turns.granted = break_down
        world.consumer("a")
        await until(world.membership.failed.is_set)
        assert str(world.membership.failure) == "a bug"


@run
async def test_lost_session_is_told_and_the_role_comes_back_with_a_greater_token():
    async with World() as world:
        consumer = world.consumer("a")
        turn = await world.turn()
        world.cluster.expire_lease(lease_of(world.membership.rink))
        await until(lambda: turn.lost_at_ms)
        assert world.service.release(consumer, "a", turn.token)
        assert (await world.turn()).token > turn.token
        assert world.joins == 1


@run
async def test_backup_restored_while_the_member_is_away_lowers_no_token():
    async with World() as world:
        before = world.cluster.backup()
        consumer = world.consumer("a")
        for _ in range(5):
            turn = await world.turn()
            world.service.release(consumer, "a", turn.token)
            consumer = world.consumer("a")
        turn = await world.turn()
        world.service.release_all(consumer, "it has ended")
        for one in list(world.service.turns.consumers.values()):
            world.service.release_all(one, "it has ended")
        await until(lambda: world.state is MembershipState.ABSENT)
        world.cluster.restore_backup(before)
        world.consumer("a")
        assert (await world.turn()).token > turn.token


@run
async def test_members_are_shown_without_going_through_waits(monkeypatch):
    """There may be 10,000 waits, during which the event loop stands still."""
    async with World() as world:
        world.consumer("a")
        await world.turn()

        def is_not_asked(*_):
            raise AssertionError("it goes through each wait")

        monkeypatch.setattr(world.membership.rink, "status", is_not_asked)
        fields = json_views.member_fields(world.membership)
        assert [member["name"] for member in fields["members"]] == [world.membership.rink.name]
        assert fields["group"] == "g"
