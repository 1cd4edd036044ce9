"""Test that one write is unsettled, and only an answer settles it (R1)."""

import attrs
import pytest

from rink.core.events import WriteAnswered
from rink.core.member_record import MemberRecord
from rink.core.record_writer import Verdict, Writer
from rink.core.state_tables import Write
from rink.core.values import Member

RECORD = MemberRecord("i1", 60)
OTHER = MemberRecord("i9", 60)


@pytest.fixture
def writer():
    writer = Writer()
    writer.begin(lease=5, incarnation="i1")
    return writer


def send(writer, record=RECORD):
    return writer.send(record)


def settle(writer, revision=10):
    effect = send(writer)
    assert writer.answered(WriteAnswered(effect.attempt, True, revision)) is Verdict.FINE


def found(record=RECORD, lease=5, mod=20):
    return Member("a", record, 10, mod, lease)


def test_first_write_asks_that_there_is_no_record(writer):
    assert writer.is_due(RECORD, 0.0)
    effect = send(writer)
    assert (effect.compare, effect.lease, effect.record) == (0, 5, RECORD)
    assert not writer.is_due(RECORD, 0.0)
    assert not writer.is_settled


def test_applied_write_settles(writer):
    settle(writer)
    assert writer.is_settled
    assert writer.exists
    assert (writer.compare, writer.known) == (10, RECORD)
    assert not writer.is_due(RECORD, 0.0)


def test_write_without_an_answer_is_retried_with_the_same_compare(writer):
    settle(writer)
    first = send(writer, attrs.evolve(RECORD, draining=("x",)))
    writer.failed(first.attempt, now=50.0)
    assert writer.state is Write.OWED
    assert not writer.is_settled
    assert not writer.is_due(RECORD, 50.0)
    assert writer.is_due(RECORD, writer.retry_at)
    second = send(writer)
    assert (second.compare, second.attempt) == (first.compare, first.attempt + 1)


def test_settling_write_is_sent_even_where_nothing_is_to_be_changed(writer):
    settle(writer)
    effect = send(writer, attrs.evolve(RECORD, draining=("x",)))
    writer.failed(effect.attempt, 0.0)
    assert writer.is_due(writer.known, writer.retry_at)


def test_tries_come_ever_more_rarely(writer):
    waits = []
    for _ in range(9):
        writer.failed(send(writer).attempt, now=100.0)
        waits.append(writer.retry_at - 100.0)
    assert waits[0] < 0.1
    assert 1.0 <= waits[-1] <= 2.0


def test_other_branch_settles_with_what_was_found(writer):
    settle(writer)
    effect = send(writer)
    seen = attrs.evolve(RECORD, draining=("x",))
    assert writer.answered(WriteAnswered(effect.attempt, False, 30, found(seen))) is Verdict.FINE
    assert writer.is_settled
    assert (writer.compare, writer.known) == (20, seen)
    assert writer.is_due(RECORD, 0.0)


@pytest.mark.parametrize("other", [found(OTHER), found(lease=6), found(None)])
def test_member_without_a_record_waits_for_the_record_with_its_name(writer, other):
    effect = send(writer)
    assert writer.answered(WriteAnswered(effect.attempt, False, 30, other)) is Verdict.FINE
    assert writer.state is Write.TAKEN
    assert writer.taken_by == other
    assert not writer.is_due(RECORD, 1e9)
    writer.freed()
    assert writer.taken_by is None
    assert writer.is_due(RECORD, 0.0)


@pytest.mark.parametrize("other", [found(OTHER), found(lease=6), found(None), None])
def test_another_record_in_place_of_an_own_one_means_that_the_own_is_gone(writer, other):
    settle(writer)
    effect = send(writer)
    assert writer.answered(WriteAnswered(effect.attempt, False, 30, other)) is Verdict.GONE
    assert writer.state is Write.ABSENT


def test_answer_or_failure_of_an_earlier_attempt_settles_nothing(writer):
    first = send(writer)
    writer.failed(first.attempt, 0.0)
    send(writer)
    assert writer.answered(WriteAnswered(first.attempt, True, 10)) is Verdict.FINE
    writer.failed(first.attempt, 0.0)
    assert writer.state is Write.SENT


def test_answer_to_an_earlier_incarnation_settles_nothing(writer):
    effect = send(writer)
    writer.begin(6, "i2")
    assert writer.answered(WriteAnswered(effect.attempt, True, 10)) is Verdict.FINE
    assert not writer.exists
    assert writer.state is Write.ABSENT


def test_write_that_is_asked_for_is_sent_where_nothing_differs(writer):
    settle(writer)
    writer.must_write = True
    assert not writer.is_settled
    assert writer.is_due(RECORD, 0.0)
    settle(writer, 11)
    assert writer.is_settled


def test_answer_to_a_write_from_before_it_was_asked_for_does_not_do(writer):
    effect = send(writer)
    writer.must_write = True
    writer.answered(WriteAnswered(effect.attempt, True, 10))
    assert not writer.is_settled
    assert writer.is_due(RECORD, 0.0)


def test_version_number_alone_is_not_worth_a_write(writer):
    settle(writer)
    assert not writer.is_due(attrs.evolve(RECORD, version=9), 0.0)
    assert writer.is_due(attrs.evolve(RECORD, version=9, draining=("x",)), 0.0)


@pytest.mark.parametrize(
    ("seen", "answered", "verdict"),
    [
        (found(mod=10), 10, Verdict.FINE),
        (found(mod=11), 10, Verdict.FINE),
        (found(mod=9), 10, Verdict.OLDER),
        (found(mod=9), 8, Verdict.FINE),
        (found(OTHER), 10, Verdict.GONE),
        (found(lease=6), 10, Verdict.GONE),
        (None, 10, Verdict.GONE),
    ],
)
def test_own_record_is_judged_by_what_was_answered_before_it_was_read(
    writer, seen, answered, verdict
):
    settle(writer, 10)
    assert writer.judge(seen, answered) is verdict


def test_answer_to_a_second_try_is_awaited_until_any_answer(writer):
    send(writer)
    writer.meet(100.0, 2.0)
    assert writer.state is Write.OWED, "the first is ignored"
    again = send(writer)
    assert not writer.is_awaited, "it was sent by the new call's time"
    writer.meet(101.0, 2.0)
    writer.meet(102.0, 2.0)
    assert writer.is_awaited
    assert writer.awaited_until == 103.0
    taken = WriteAnswered(again.attempt, False, 30, found(OTHER))
    assert writer.answered(taken) is Verdict.FINE
    writer.freed()
    send(writer)
    writer.meet(104.0, 2.0)
    assert writer.state is Write.OWED
