"""Test processes that share a topic on a real etcd.

The tests cover rebalances, kill -9, and a freeze past the TTL.
"""

import asyncio

import pytest
from members import HEADROOM_S, LONG_S, QUICK

from rink import aio
from rink.engine.clock import SYSTEM
from rink.partitions.aio import PartitionedConsumer

pytestmark = pytest.mark.waits

TTL_S = 3.0


def test_rebalance_moves_partitions_without_redelivery(work):
    a = work.start("a", ttl=10.0)
    work.all_worked_by("a")
    b = work.start("b", ttl=10.0)
    work.all_worked_by("a", "b", since=SYSTEM.now())
    c = work.start("c", ttl=10.0)
    work.all_worked_by("a", "b", "c", since=SYSTEM.now())
    begun = {one["partition"]: 0 for one in work.all("begins")}
    for one in work.all("begins"):
        begun[one["partition"]] += 1
    assert sum(begun.values()) == 6 + 3 + 2, "more has moved than must"
    rows = a.ask("table")["rows"]
    assert sorted({row["owner"] for row in rows}) == ["a", "b", "c"]
    assert all(row["standby"] != row["owner"] for row in rows)
    b.leave()
    work.all_worked_by("a", "c", since=SYSTEM.now())
    for one in (a, c):
        one.leave()
    work.judge()
    assert work.redelivered == 0
    gaps = sorted(gap.seconds for gap in work.history.judge().gaps)
    print("FIGURE partition_gap_ms", [round(1000 * gap, 1) for gap in gaps])


def test_killed_consumer_is_replaced_within_its_ttl_from_its_commits(work):
    """A killed consumer is replaced in time, from its last commits."""
    a, b = work.start("a", ttl=TTL_S), work.start("b", ttl=TTL_S)
    work.all_worked_by("a", "b")
    killed_at = a.kill()
    took = work.all_worked_by("b", since=killed_at) - killed_at
    print("FIGURE partition_takeover_s", round(took, 2), "redelivered", work.redelivered)
    assert took < TTL_S + 1.5 + HEADROOM_S
    assert work.redelivered <= 5 * 3 + 3  # what three partitions had done since their last commit
    b.leave()
    work.judge()


def test_consumer_frozen_past_its_ttl_commits_nothing_when_it_thaws(work):
    a, b = work.start("a", ttl=TTL_S), work.start("b", ttl=TTL_S)
    work.all_worked_by("a", "b")
    frozen_at = b.freeze()
    mine = {number for number, who in work.workers().items() if who == "b"}
    taken_at = work.all_worked_by("a", since=frozen_at)
    assert taken_at - frozen_at < TTL_S + 1.5 + HEADROOM_S
    thawed_at = b.thaw()
    roles = {f"orders/{number}" for number in mine}

    def let_go():
        return {one["role"] for one in work.all("let go", since=thawed_at, who="b")}

    work.wait(lambda: roles <= let_go())
    # A consumer without a commit gets no answer; `judge` checks all writes.
    assert {one["partition"] for one in work.all("stale")} <= mine
    work.all_worked_by("a", "b", since=SYSTEM.now())  # b is back
    for one in (a, b):
        one.leave()
    work.judge()


def test_extra_consumer_stands_by_and_is_promoted(work):
    names = [f"c{number}" for number in range(8)]
    consumers = {}
    for name in names:
        consumers[name] = work.start(name, ttl=10.0)  # none is lost while the others start
        consumers[name].wait("joined")
    work.wait(lambda: standbys(consumers["c1"]) == {"c7"})  # the last rank moves into any hole
    assert not work.all("begins", who="c7")
    owner = consumers["c1"].ask("table")["rows"][0]["owner"]
    killed_at = consumers.pop(owner).kill()
    work.wait(lambda: work.all("begins", since=killed_at, partition=0, who="c7"))
    for one in consumers.values():
        one.leave()
    work.judge()


def standbys(consumer):
    """Return the standbys, as far as this consumer has seen the group."""
    return {row["standby"] for row in consumer.ask("table")["rows"]}


def test_commits_that_etcd_does_not_answer_are_settled_when_it_does(work_alone):
    """Commits that etcd does not answer are settled when it does.

    A frozen etcd applies them when it thaws, long after their callers got no answer.
    """
    work, node = work_alone
    a, b = [work.start(name, ttl=10.0, timeout=1.0) for name in ("a", "b")]
    work.all_worked_by("a", "b")
    for _ in range(3):
        frozen_at = SYSTEM.now()
        node.freeze()
        work.wait(lambda since=frozen_at: len(work.all("unanswered", since=since)) >= 4)
        node.thaw()
        thawed_at = SYSTEM.now()
        work.wait(
            lambda since=thawed_at: (
                {one["partition"] for one in work.all("committed", since=since)}
                == set(range(work.partitions))
            )
        )
    for one in (a, b):
        one.leave()
    work.judge()
    assert work.all("stale") == []
    print("FIGURE unanswered_commits", len(work.all("unanswered")), "redelivered", work.redelivered)
    assert work.redelivered == 0


def test_asyncio_face_on_a_real_etcd(etcd_url, prefix):
    how = {"scheme": "balanced:4", "leave_timeout": 5.0, **QUICK}

    async def drain(consumer):
        async for change in consumer:
            if change.revoked:
                with change.assignment as moved:
                    await moved.commit(moved.offset + 1)

    async def begin(session, name):
        r = await aio.Rink(session, "g", name=name, **how).join()
        return r, await PartitionedConsumer(r, "orders", partitions=4).__aenter__()

    async def whole():
        async with (
            aio.Session(etcd_url, prefix=prefix, ttl=5) as one,
            aio.Session(etcd_url, prefix=prefix, ttl=5) as two,
        ):
            a, old = await begin(one, "a")
            for _ in range(4):
                await (await old.next_change(LONG_S)).assignment.commit(5)
            draining = asyncio.create_task(drain(old))
            b, new = await begin(two, "b")
            changes = [await new.next_change(LONG_S) for _ in range(2)]
            assert {one.partition: one.assignment.offset for one in changes} == {2: 6, 3: 6}
            rows = [(row.owner, row.standby, row.offset) for row in await new.table()]
            assert rows == [("a", "b", 5)] * 2 + [("b", "a", 6)] * 2
            for change in changes:
                change.assignment.release()
            await new.__aexit__()
            await b.leave()
            await a.leave()
            await draining
            await old.__aexit__()

    asyncio.run(asyncio.wait_for(whole(), 3 * LONG_S))
