"""Test answers of a new keepalive call, maybe of another history (R11)."""

import pytest
from attrs import evolve
from small_etcd import KEYS, unanswered
from world import role_of

from rink.core import effects as do
from rink.core import events as ev
from rink.core.effects import Level
from rink.core.outbox import Outbox
from rink.core.renewals import Renewals

ROLE_OF_B = role_of(1, 2)


def errors(member):
    reports = member.made(do.Report)
    return [report.text for report in reports if report.level is Level.ERROR]


def write(world):
    """Make b write its record once more."""
    world.node("b").writer.must_write = True
    world.tell("b", ev.Nudged())


@pytest.fixture
def known(pair):
    """Make the call of b's keepalives known, and count effects from here."""
    pair.keep_alive(pair.members["b"])
    pair.run()
    pair.members["b"].effects.clear()
    return pair


@pytest.fixture
def reconnected(known):
    """Make b hold a role, and renew by a new call."""
    known.get("b", ROLE_OF_B)
    known.etcd.history += 1
    return known


@pytest.fixture
def held_back(reconnected):
    """Answer a keepalive by the new call a second later; hold the read back."""
    reconnected.now += 1.0
    reconnected.hold("b", "requests")
    reconnected.keep_alive(reconnected.members["b"])
    reconnected.run()
    return reconnected


def test_new_call_counts_once_the_own_record_is_read(reconnected):
    world, b = reconnected, reconnected.members["b"]
    before = b.node.member_lease.deadline
    world.sleep(70.0)
    assert len(b.made(do.ReadRecord)) == 1
    assert b.node.member_lease.deadline > before + 50.0
    assert b.node.table.deadline == b.node.member_lease.deadline
    assert b.made(do.Lose) == []


def test_copy_with_an_earlier_record_does_not_move_the_deadline(pair):
    """Renew by a copy that has only the lease, not the watch or requests."""
    world, b = pair, pair.members["b"]
    copy = world.etcd.copy()
    write(world)
    hold = world.get("b", ROLE_OF_B)
    deadline = b.node.member_lease.deadline
    world.hold("b", "requests", "events")
    world.replace_history(copy)
    assert b.node.member_lease.id in world.etcd.leases
    world.sleep(deadline - world.now - 0.1)
    assert hold.lost_at is None
    assert b.node.member_lease.deadline == deadline
    world.sleep(0.2)
    assert hold.lost_at is not None


def test_copy_with_an_earlier_record_is_found_by_reading_it(pair):
    world, b = pair, pair.members["b"]
    copy = world.etcd.copy()
    write(world)
    hold = world.get("b", ROLE_OF_B)
    lease = b.node.member_lease.id
    world.hold("b", "events")
    world.replace_history(copy)
    world.keep_alive(b)
    world.run()
    assert "wrote its record at revision" in hold.lost_because
    assert b.made(do.RevokeLease) == [do.RevokeLease(lease)]
    assert len(errors(b)) == 1


def test_own_record_missing_in_the_read_ends_the_session(reconnected):
    world, b = reconnected, reconnected.members["b"]
    lease = b.node.member_lease.id
    world.hold("b", "events")
    world.etcd.delete("members/b")
    world.keep_alive(b)
    world.run()
    assert b.made(do.RevokeLease) == [do.RevokeLease(lease)]
    assert errors(b) == []


def test_read_that_fails_is_repeated_and_counts_nothing(held_back):
    world, b = held_back, held_back.members["b"]
    deadline = b.node.member_lease.deadline
    for failures in range(1, 4):
        world.lose("b")
        assert len(b.made(do.ReadRecord)) == failures
        assert b.node.member_lease.deadline == deadline
        world.sleep(3.0)
    assert b.node.out.last_error.startswith("reading this member's record failed: ")
    assert not any("reading this member's record" in text for text in b.reports)
    world.let("b")
    assert b.node.member_lease.deadline > deadline


def test_suspect_lease_revives_when_the_own_record_is_read(reconnected):
    world, b = reconnected, reconnected.members["b"]
    lease = b.node.member_lease.id
    b.alive = False
    world.sleep(56.0)
    assert not b.node.member_lease.is_alive
    b.alive = True
    world.keep_alive(b)
    world.run()
    assert b.node.member_lease.is_alive
    assert b.node.member_lease.id == lease
    assert world.get("b", ROLE_OF_B)


def test_read_under_an_earlier_call_does_not_prove_the_next(reconnected):
    """The next call answers while the read is on its way back."""
    world, b = reconnected, reconnected.members["b"]
    deadline = b.node.member_lease.deadline
    world.hold("b", "answers")
    world.keep_alive(b)
    world.run()
    world.etcd.history += 1
    world.now += 1.0
    world.hold("b", "requests")
    world.keep_alive(b)
    world.let("b", "answers")
    assert [effect.call for effect in b.made(do.ReadRecord)] == [1, 2]
    assert b.node.member_lease.deadline == deadline
    world.let("b")
    assert b.node.renewals.call == 2
    assert b.node.member_lease.deadline > deadline


@pytest.mark.parametrize("kind", ["answered", "lost"])
def test_read_that_hangs_does_not_hold_up_that_of_the_next_call(held_back, kind):
    """The connection that it went over is gone, and nobody knows yet."""
    world, b = held_back, held_back.members["b"]
    deadline = b.node.member_lease.deadline
    hanging = b.to_etcd.popleft()
    world.etcd.history += 1
    world.let("b")
    world.now += 1.0
    world.keep_alive(b)
    world.run()
    assert b.node.renewals.call == 2
    assert b.node.member_lease.deadline > deadline
    late = world._serve(b, hanging) if kind == "answered" else unanswered(hanging)
    world.tell("b", late)
    assert b.node.renewals.call == 2
    assert b.reports == []


def test_read_that_a_write_has_overtaken_counts(held_back):
    """Count a read that a later write has overtaken.

    The write was sent after the read was requested, so the same history has answered it.
    """
    world, b = held_back, held_back.members["b"]
    deadline = b.node.member_lease.deadline
    early = world._serve(b, b.to_etcd.popleft())
    write(world)
    world.let("b")
    world.tell("b", early)
    assert errors(b) == []
    assert len(b.made(do.ReadRecord)) == 1
    assert b.node.member_lease.deadline > deadline


def test_write_under_way_at_a_new_call_is_not_believed(reconnected):
    """Doubt a write whose answer of the history before waits for the engine."""
    world, b = reconnected, reconnected.members["b"]
    copy = world.etcd.copy()
    world.hold("b", "answers", "events")
    write(world)
    hold = world.get("b", ROLE_OF_B)
    before = b.node.writer.compare
    world.replace_history(copy)
    world.hold("b", "requests")
    effects, _ = b.node.renew(world.now, b.node.member_lease.id, world.now, world.etcd.history)
    world._do(b, effects)
    world.let("b", "answers")  # before the step in which the write is tried again
    assert b.node.writer.compare == before
    assert not b.node.writer.is_settled
    world.let("b", "requests")
    assert b.node.renewals.trouble == ""
    assert world.record("b").incarnation == b.node.writer.incarnation
    assert b.node.writer.compare > before
    assert hold.lost_at is None


def test_write_that_hangs_does_not_hold_up_the_read(reconnected):
    """Its connection is gone, and nobody knows yet."""
    world, b = reconnected, reconnected.members["b"]
    world.hold("b", "requests")
    write(world)
    deadline = b.node.member_lease.deadline
    world.now += 1.0
    world.keep_alive(b)
    hanging = b.to_etcd.popleft()
    world.let("b")
    assert b.node.member_lease.deadline > deadline
    writes = len(b.made(do.WriteRecord))
    world.tell("b", unanswered(hanging))
    assert b.reports == []
    assert len(b.made(do.WriteRecord)) == writes


def test_second_try_of_a_write_is_waited_for(reconnected):
    """Settle writes that take longer than the keepalives' calls last."""
    world, b = reconnected, reconnected.members["b"]
    world.hold("b", "requests")
    write(world)
    world.keep_alive(b)
    world.etcd.history += 1
    world.keep_alive(b)
    requests = list(b.to_etcd)
    assert [type(request) for request in requests] == [
        do.WriteRecord,
        do.ReadRecord,
        do.WriteRecord,
    ]
    world.tell("b", world._serve(b, requests[2]))
    assert b.node.writer.is_settled
    assert [request.call for request in b.made(do.ReadRecord)] == [1, 2]
    assert b.made(do.ReadRecord)[1].mod_revision == b.node.writer.compare


def test_second_try_that_hangs_is_waited_for_a_while_and_then_ignored(reconnected):
    """Bound the wait, since a hanging request would cost the roles."""
    world, b = reconnected, reconnected.members["b"]
    world.hold("b", "requests")
    write(world)
    world.keep_alive(b)  # the second try begins
    for _ in range(3):
        world.etcd.history += 1
        writes, reads, since = len(b.made(do.WriteRecord)), len(b.made(do.ReadRecord)), world.now
        world.keep_alive(b)
        while len(b.made(do.WriteRecord)) == writes:
            assert len(b.made(do.ReadRecord)) == reads
            assert b.node.wake_at > world.now
            world.now = b.node.wake_at
            world.step(b, [])
        assert world.now == since + 5.0
        assert len(b.made(do.ReadRecord)) == reads + 1
    world.let("b")
    assert b.node.writer.is_settled
    assert b.node.renewals.trouble == ""


def test_read_does_not_wait_for_a_write_that_was_sent_after_the_new_call(reconnected):
    world, b = reconnected, reconnected.members["b"]
    world.hold("b", "requests")
    write(world)
    world.keep_alive(b)  # the second try begins
    writes = len(b.made(do.WriteRecord))
    for failures in range(1, 4):
        [read] = [one for one in b.to_etcd if isinstance(one, do.ReadRecord)]
        b.to_etcd.remove(read)
        world.tell("b", unanswered(read))
        world.now = b.node.wake_at
        world.step(b, [])
        assert len(b.made(do.ReadRecord)) == 1 + failures
    assert len(b.made(do.WriteRecord)) == writes


def test_answers_that_do_not_count_are_explained(held_back):
    world, b = held_back, held_back.members["b"]
    assert "has not found its last write" in b.node.renewals.trouble
    world.let("b")
    assert b.node.renewals.trouble == ""


@pytest.mark.parametrize("kind", ["read", "failed"])
def test_read_of_an_earlier_lease_is_not_heard(reconnected, kind):
    world, b = reconnected, reconnected.members["b"]
    error = RuntimeError("late")
    late = ev.RecordReadFailed(99, 1, error) if kind == "failed" else ev.RecordRead(99, 1, 1, None)
    world.tell("b", late)
    assert b.made(do.Lose) == []
    assert b.reports == []


@pytest.mark.parametrize("wrong", ["", "lease", "call", "gone", "older", "foreign"])
def test_proof_is_taken_without_a_step_and_all_else_is_left_to_one(reconnected, wrong):
    """The engine may be busy; so the thread that read the record takes it."""
    world, b = reconnected, reconnected.members["b"]
    deadline = b.node.member_lease.deadline
    world.now += 1.0
    effects, must_step = b.node.renew(world.now, b.node.member_lease.id, world.now, 1)
    assert must_step
    [asked] = effects
    read = world._serve(b, asked)
    match wrong:
        case "lease":
            read = evolve(read, lease=99)
        case "call":
            read = evolve(read, call=99)
        case "gone":
            read = evolve(read, member=None)
        case "older":
            read = evolve(read, mod_revision=99)
        case "foreign":
            read = evolve(read, member=world._serve(world.members["a"], asked).member)
    assert b.node.prove(world.now, read) == ([], not wrong)
    assert (b.node.member_lease.deadline > deadline) is not bool(wrong)


def test_read_that_fails_is_given_more_time_the_next_time(held_back):
    world, b = held_back, held_back.members["b"]
    for _ in range(6):
        world.lose("b")
        world.sleep(3.0)
    times = [effect.within_s for effect in b.made(do.ReadRecord)]
    assert times[:6] == [10.0, 20.0, 40.0, 80.0, 160.0, 160.0]


def test_first_call_is_a_new_one_and_a_call_that_counts_stays_known():
    """Treat the first call as new: a copy may have the lease.

    It may have been made between the grant and the create of the record.
    """
    renewals = Renewals()
    assert renewals.meet(3)
    assert not renewals.counts(3, 1.0)
    assert not renewals.meet(3)
    assert renewals.prove() == 1.0
    renewals.begin()
    assert not renewals.meet(3)
    assert renewals.counts(3, 2.0)
    assert renewals.meet(4)


def test_read_for_a_new_call_does_not_wait_for_the_last_calls_pause():
    renewals, out = Renewals(), Outbox()
    renewals.meet(3)
    renewals.look(3, 1, 10, 0.5, 100.0, out)
    renewals.read_failed(100.0, "b")
    renewals.meet(4)
    renewals.look(4, 1, 10, 0.5, 100.0, out)
    assert [(one.call, one.within_s) for one in out.effects] == [(3, 0.5), (4, 1.0)]


@pytest.mark.parametrize("is_known", [False, True])
def test_copy_from_before_the_create_is_found_by_the_first_keepalive(pair, is_known):
    """The copy has the lease, but no record, and answers first."""
    world, b = pair, pair.members["b"]
    b.node.renewals.call = world.etcd.history if is_known else None
    world.hold("b", "requests")
    world.expire(b)
    while not (b.to_etcd and isinstance(b.to_etcd[0], do.WriteRecord)):
        world.carry(b, "requests")
        world.run()
    copy, lease = world.etcd.copy(), b.node.member_lease.id
    world.hold("b", "answers")
    world.carry(b, "requests")
    world.run()
    world.hold("b", "events")
    world.replace_history(copy)
    world.keep_alive(b)
    world.let("b", "answers", "requests")
    assert b.node.member_lease.id == lease
    assert world.record("b").incarnation == b.node.writer.incarnation
    assert world.etcd.kvs[KEYS.member("b")].mod == b.node.writer.compare


@pytest.fixture
def creating(known):
    """End b's lease, and hold the create of its next record back."""
    world, b = known, known.members["b"]
    world.hold("b", "requests")
    world.expire(b)
    while not isinstance(b.to_etcd[0], do.WriteRecord):
        world.carry(b, "requests")
        world.run()
    return world


def test_new_call_during_the_create_counts_and_the_create_is_repeated(creating):
    """Repeat the create, since its answer may be of the history before.

    A copy may lack the record.
    """
    world, b = creating, creating.members["b"]
    world.hold("b", "answers")
    world.carry(b, "requests")
    world.etcd.delete("members/b")
    world.etcd.history += 1
    world.now += 1.0
    deadline = b.node.member_lease.deadline
    world.keep_alive(b)
    assert b.node.member_lease.deadline == deadline + 1.0
    world.carry(b, "answers")
    assert not b.node.writer.exists
    world.let("b")
    assert b.node.writer.exists
    assert b.made(do.ReadRecord) == []


@pytest.fixture
def creating_again(creating):
    """Meet a new call, so the create is retried, and hold the retry back."""
    world, b = creating, creating.members["b"]
    world.etcd.history += 1
    world.keep_alive(b)
    b.to_etcd.popleft()  # the first try hangs
    [again] = b.to_etcd
    assert isinstance(again, do.WriteRecord)
    return world


def test_next_call_does_not_count_before_the_second_create_is_answered(creating_again):
    """The answer is of the history before, and the copy lacks the record."""
    world, b = creating_again, creating_again.members["b"]
    copy = world.etcd.copy()
    world.hold("b", "answers", "events")
    world.carry(b, "requests")
    world.replace_history(copy)
    deadline = b.node.member_lease.deadline
    world.now += 1.0
    world.keep_alive(b)
    assert b.node.member_lease.deadline == deadline
    assert b.made(do.ReadRecord) == []
    world.let("b", "answers")
    [read] = b.made(do.ReadRecord)
    assert read.mod_revision == b.node.writer.compare
    assert b.node.member_lease.deadline == deadline
    world.let("b", "requests")
    assert b.node.member_lease.id != read.lease, "the copy lacks the record"


def test_next_call_counts_at_once_when_the_second_create_fails(creating_again):
    world, b = creating_again, creating_again.members["b"]
    world.etcd.history += 1
    deadline = b.node.member_lease.deadline
    world.now += 1.0
    world.keep_alive(b)
    assert b.node.member_lease.deadline == deadline
    world.lose("b")
    assert b.node.member_lease.deadline == deadline + 1.0
    assert b.node.renewals.trouble == ""
    assert b.made(do.ReadRecord) == []
    world.let("b")
    world.sleep(1.0)
    assert b.node.writer.is_settled


def test_answer_that_does_not_count_during_the_create_is_explained(creating_again):
    world, b = creating_again, creating_again.members["b"]
    world.etcd.history += 1
    world.keep_alive(b)
    assert "has not found its last write" in b.node.renewals.trouble
