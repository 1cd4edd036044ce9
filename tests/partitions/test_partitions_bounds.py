"""Check how long a partition has no consumer, in virtual time."""

from partitions_support import TTL_S, Worker, pair, settle


def test_planned_leave_takes_as_long_as_the_drain(time):
    a, b = pair(time)
    a.consumer.commit(0, 5)
    a.leave()
    time.advance(0.01)
    assert a.look(lets_go=False) == [(0, False), (1, False)]
    time.advance(0.5)
    assert b.look() == []
    left_at = time.now()
    for held in a.consumer._held_partitions.delivered().values():
        held.assignment.release()
    while not {0, 1} <= b.partitions:
        time.advance(0.001)
        b.look()
        assert time.now() < left_at + 0.05
    assert b.consumer.assigned[0].offset == 5


def test_after_a_crash_a_partition_is_held_again_within_the_ttl(time):
    """Return the time since the last renewal before the crash.

    It is never longer than a sixth of the TTL.
    """
    a, b = pair(time)
    a.consumer.commit(0, 5)
    a.crash()
    crashed_at = time.now()
    while not {0, 1} <= b.partitions:
        time.advance(0.1)
        b.look()
        assert time.now() < crashed_at + TTL_S + 0.2
    assert time.now() > crashed_at + TTL_S * 5 / 6 - 0.2
    assert b.consumer.assigned[0].offset == 5


def test_who_stands_by_is_promoted_at_the_next_event_after_a_loss(time):
    workers = [Worker(time, name, partitions=2) for name in ("c1", "c2", "c3", "c4")]
    time.advance(1.0)
    settle(time, *workers)
    c1, c2, c3, c4 = workers
    assert [one.partitions for one in workers] == [{0}, {1}, set(), set()]
    first = c1.consumer.table()[0].standby
    assert first in {"c3", "c4"}
    c1.leave()
    settle(time, *workers)
    heir = next(one for one in workers if one.name == first)
    assert heir.partitions == {0}
    second = c2.consumer.table()[1].standby
    assert second in {"c3", "c4"} - {first}
    c2.leave()
    settle(time, *workers)
    assert next(one for one in (c3, c4) if one.name == second).partitions == {1}


def test_others_go_on_while_one_drains(time):
    """Each moving partition waits only for its own drain."""
    a = Worker(time, "a")
    settle(time, a)
    b = Worker(time, "b")
    time.advance(2.0)
    assert a.look(lets_go=False) == [(2, False), (3, False)]
    held_partitions = a.consumer._held_partitions.delivered()
    held_partitions[3].assignment.release()
    time.advance(0.01)
    assert b.look() == [(3, True)]  # 2 still drains
    c = Worker(time, "c")
    time.advance(2.0)
    revoked = a.look(lets_go=False) + b.look()
    assert [is_assigned for _, is_assigned in revoked] == [False]  # 2 still drains
    for held in a.consumer._held_partitions.delivered().values():
        if held.role.lost.is_set() and held.partition != 2:
            held.assignment.release()
    time.advance(0.01)
    assert [number for number, _ in c.look()] == [number for number, _ in revoked]
    for number in a.partitions:
        a.consumer.commit(number, 1)
    held_partitions[2].assignment.commit(5)
    held_partitions[2].assignment.release()
    settle(time, a, b, c)
    assert [a.partitions, b.partitions, c.partitions].count(set()) == 0


def test_consumer_of_a_member_that_is_not_ranked_yet_waits(time):
    a = Worker(time, "a")
    settle(time, a)
    b = Worker(time, "b", rebalance_delay=60.0, initial_delay=60.0)
    settle(time, a, b)
    assert (a.partitions, b.partitions) == ({0, 1, 2, 3}, set())
    assert {row.standby for row in b.consumer.table()} == {"b"}
    a.leave()
    settle(time, a, b)
    assert b.partitions == {0, 1, 2, 3}
