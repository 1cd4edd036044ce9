"""Drive the buffer of one grant, step by step and at random."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rink.streams.consumer.buffer import Buffer, Letter
from rink.streams.store import entry_ids

BROKEN = Letter("ValueError: no", "", 3)


def entries(*numbers, only=None):
    fields = [b"d", b"{}", *([b"only", only] if only else [])]
    return [(f"{number}-0".encode(), fields) for number in numbers]


def buffer_of(*numbers, offset="0-0", prefetch=10, max_uncommitted=6, careful=""):
    made = Buffer(
        "bill", offset, prefetch=prefetch, max_uncommitted=max_uncommitted, careful=careful
    )
    made.feed(entries(*numbers))
    return made


def numbers(given_entries):
    return [int(entry.id.partition("-")[0]) for entry in given_entries]


def commit(buffer):
    passage = buffer.passage()
    buffer.settled()
    return passage


def test_events_are_yielded_in_order_and_committed_when_finished():
    buffer = buffer_of(1, 2, 3)
    assert numbers(buffer.give(2)) == [1, 2]
    assert buffer.passage() is None
    buffer.finish()
    assert commit(buffer).new == "2-0"
    assert buffer.offset == "2-0"
    assert numbers(buffer.give(9)) == [3]


def test_commit_under_way_stays_what_it_is_until_it_is_settled():
    """Repeat a commit unchanged.

    It may have been carried out, and another commit in its place would not be recognized.
    """
    buffer = buffer_of(1, 2)
    buffer.give(1)
    buffer.finish()
    first = buffer.passage()
    buffer.give(1)
    buffer.finish()
    assert buffer.passage() is first
    buffer.settled()
    assert (buffer.passage().expected, buffer.passage().new) == ("1-0", "2-0")


def test_no_more_than_max_uncommitted_is_yielded_and_not_settled():
    buffer = buffer_of(*range(1, 10), max_uncommitted=3)
    assert numbers(buffer.give(9)) == [1, 2, 3]
    assert buffer.is_held_up
    buffer.finish()
    assert buffer.give(9) == []
    buffer.passage()
    assert buffer.give(9) == []
    buffer.settled()
    assert numbers(buffer.give(9)) == [4, 5, 6]


def test_room_counts_everything_that_is_not_settled():
    buffer = buffer_of(1, 2, 3, prefetch=5)
    assert buffer.room == 2
    buffer.give(3)
    buffer.finish()
    assert buffer.room == 2
    commit(buffer)
    assert buffer.room == 5
    buffer.stop()
    assert buffer.room == 0


def test_reading_goes_on_behind_what_was_read_last():
    buffer = buffer_of(offset="7-3")
    assert buffer.read_to == "7-3"
    buffer.feed(entries(8, 9))
    assert buffer.read_to == "9-0"


def test_after_a_failure_the_events_come_again_one_by_one():
    buffer = buffer_of(1, 2, 3, 4)
    buffer.give(3)
    assert buffer.fail() == (None, 0)
    assert numbers(buffer.give(3)) == [1]
    assert buffer.give(3) == []  # the next one is not yielded before this one's end
    buffer.finish()
    assert numbers(buffer.give(3)) == [2]
    buffer.finish()
    assert numbers(buffer.give(3)) == [3]
    buffer.finish()
    buffer.feed(entries(5))
    assert numbers(buffer.give(3)) == [4, 5]  # the failed event is behind


def test_who_failed_alone_is_blamed_and_counted():
    buffer = buffer_of(1, 2)
    buffer.give(2)
    buffer.fail()
    buffer.give(2)
    blamed, times = buffer.fail()
    assert (blamed.id, times) == ("1-0", 1)
    buffer.give(2)
    assert buffer.fail()[1] == 2
    buffer.give(2)
    buffer.finish()
    commit(buffer)
    buffer.give(2)
    assert (
        buffer.fail() == (blamed, 3) or buffer.fail()[0] is None
    )  # of event 2 it is the first time
    assert buffer._attempts.get("1-0") is None


def test_single_event_that_fails_is_blamed_at_once():
    buffer = buffer_of(1)
    buffer.give(1)
    blamed, times = buffer.fail()
    assert (blamed.id, times) == ("1-0", 1)


def test_what_was_finished_before_a_failure_does_not_come_again():
    buffer = buffer_of(1, 2, 3)
    buffer.give(3)
    buffer.finish(1)
    buffer.fail()
    assert numbers(buffer.give(3)) == [2]


def test_given_up_event_is_skipped_and_passed_by_the_next_commit():
    buffer = buffer_of(1, 2, 3)
    buffer.mark_given_up("2-0", BROKEN)
    assert numbers(buffer.give(9)) == [1, 3]
    buffer.finish()
    passage = commit(buffer)
    assert passage.processed == 2
    assert [(entry.id, entry.letter) for entry in passage.dead] == [("2-0", BROKEN)]


def test_given_up_last_event_is_committed_without_another_event():
    buffer = buffer_of(1)
    buffer.mark_given_up("1-0", BROKEN)
    assert buffer.give(9) == []
    assert commit(buffer).new == "1-0"


def test_given_up_events_are_committed_while_later_events_fail():
    buffer = buffer_of(1, 2, 3, 4, 5)
    buffer.give(1)
    for number in range(1, 5):
        assert buffer.fail()[0].id == f"{number}-0"
        buffer.mark_given_up(f"{number}-0", BROKEN)
        assert numbers(buffer.give(1)) == [number + 1]
    buffer.fail()
    passage = commit(buffer)
    assert (passage.new, len(passage.dead), passage.processed) == ("4-0", 4, 0)


def test_given_up_last_yielded_event_stays_given_up_after_a_failure():
    buffer = buffer_of(1, 2)
    _, two = buffer.give(2)
    buffer.take_back(two)  # it does not decode
    buffer.mark_given_up("2-0", BROKEN)
    assert buffer.give(9) == []
    assert buffer.passage() is None  # the first one is not finished
    buffer.fail()
    assert numbers(buffer.give(9)) == [1]
    buffer.finish()
    assert buffer.give(9) == []
    assert [entry.id for entry in commit(buffer).dead] == ["2-0"]


def test_events_behind_one_are_those_that_will_be_yielded_after_it():
    buffer = Buffer("bill", "0-0", prefetch=10, max_uncommitted=6)
    buffer.feed(entries(1, 2))
    buffer.feed(entries(3, only=b"ship"))
    buffer.feed(entries(4, 5, 6))
    buffer.mark_given_up("5-0", BROKEN)
    one = buffer.give(1)[0]
    assert numbers(buffer.behind(one, 9)) == [2, 4, 6]
    buffer.take_back(one)
    assert numbers(buffer.behind(one, 9)) == [2, 4, 6]
    assert numbers(buffer.behind(one, 2)) == [2, 4]
    assert buffer.behind(one, 0) == []


def test_event_for_another_processor_is_passed_in_silence():
    buffer = Buffer("bill", "0-0", prefetch=10, max_uncommitted=6)
    buffer.feed(entries(1, only=b"ship"))
    buffer.feed(entries(2, only=b"bill"))
    assert numbers(buffer.give(9)) == [2]
    buffer.finish()
    passage = commit(buffer)
    assert (passage.new, passage.processed, passage.dead) == ("2-0", 1, ())


def test_what_is_skipped_does_not_count_for_max_uncommitted():
    buffer = Buffer("bill", "0-0", prefetch=1000, max_uncommitted=3)
    buffer.feed(entries(1))
    buffer.feed(entries(*range(2, 300), only=b"ship"))
    buffer.feed(entries(300, 301, 302))
    assert numbers(buffer.give(1)) == [1]
    assert numbers(buffer.give(9)) == [300, 301]
    assert buffer.is_held_up
    buffer.finish()
    commit(buffer)
    assert numbers(buffer.give(9)) == [302]


def test_after_an_unclean_end_events_come_alone_and_are_to_be_marked():
    buffer = buffer_of(1, 2, 3, 4, careful="2-0")
    [first] = buffer.give(9)
    assert buffer.must_mark(first)
    assert buffer.has_one_alone
    buffer.finish()
    [second] = buffer.give(9)
    assert buffer.must_mark(second)
    buffer.finish()
    rest = buffer.give(9)
    assert numbers(rest) == [3, 4]
    assert not any(buffer.must_mark(entry) for entry in rest)


def test_nothing_is_given_beside_one_that_came_alone():
    buffer = buffer_of(1, 2, 3, careful="1-0")
    buffer.give(1)
    assert buffer.give(1) == []
    buffer.put_back()
    [first] = buffer.give(9)
    assert buffer.must_mark(first)


def test_failure_amid_careful_events_keeps_the_marks():
    buffer = buffer_of(1, 2, 3, careful="2-0")
    buffer.give(9)
    buffer.fail()
    [first] = buffer.give(9)
    assert buffer.must_mark(first)


def test_nothing_is_yielded_after_the_stop():
    buffer = buffer_of(1, 2)
    buffer.give(1)
    buffer.stop()
    assert buffer.give(1) == []
    buffer.finish()
    assert commit(buffer).new == "1-0"


def test_put_back_yields_again_what_is_not_finished():
    buffer = buffer_of(1, 2, 3)
    buffer.give(3)
    buffer.finish(1)
    buffer.put_back()
    assert numbers(buffer.give(9)) == [2, 3]


def test_fast_way_yields_nothing_special_and_nothing_above_the_ceiling():
    buffer = buffer_of(1, 2, max_uncommitted=2)
    buffer.feed(entries(3, only=b"bill"))
    assert buffer.give_plain((0, 0)) is None
    assert numbers([buffer.give_plain((1, 0))]) == [1]
    assert buffer.give_plain((1, 0)) is None
    assert numbers([buffer.give_plain((9, 0))]) == [2]
    assert buffer.give_plain((9, 0)) is None, "max_uncommitted is used up"
    buffer.finish()
    commit(buffer)
    assert buffer.give_plain((9, 0)) is None, "it is for one processor"
    assert buffer_of(1, careful="1-0").give_plain((9, 0)) is None


ACTS = st.one_of(
    st.tuples(st.just("feed"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("give"), st.integers(1, 4)),
    st.tuples(st.just("give_plain"), st.integers(0, 8)),
    st.tuples(st.just("gather_in_vain"), st.integers(1, 4)),
    st.tuples(st.just("finish"), st.one_of(st.none(), st.integers(0, 3))),
    st.tuples(st.just("fail")),
    st.tuples(st.just("put_back")),
    st.tuples(st.just("mark_given_up"), st.integers(0, 3)),
    st.tuples(st.just("send")),
    st.tuples(st.just("settle")),
)


class Walk:
    """A buffer with events 1, 2, …, and the expected state of each."""

    def __init__(self, careful):
        self.careful = careful
        self.buffer = Buffer(
            "bill", "0-0", prefetch=20, max_uncommitted=5, careful=f"{careful}-0" if careful else ""
        )
        self.fed, self.passed, self.out, self.sent = 0, [], [], None
        self.others, self.finished, self.given_up = set(), set(), set()

    def feed(self, count, are_others):
        for _ in range(min(count, self.buffer.room)):
            self.fed += 1
            if are_others:
                self.others.add(self.fed)
            self.buffer.feed(entries(self.fed, only=b"ship" if are_others else None))

    def give(self, count):
        got = self.buffer.give(count)
        assert numbers(got) == sorted(numbers(got))
        assert len(self.out) + len(got) <= self.buffer.max_uncommitted
        if got and numbers(got)[0] <= self.careful:
            assert len(got) == 1
        self.out += numbers(got)
        return got

    def give_plain(self, ceiling):
        if (entry := self.buffer.give_plain((ceiling, 0))) is not None:
            [number] = numbers([entry])
            assert self.careful < number <= ceiling
            assert number not in self.others | self.given_up
            self.out.append(number)
            assert len(self.out) <= self.buffer.max_uncommitted

    def gather_in_vain(self, count):
        before = list(self.out)
        if got := self.give(count):
            self.buffer.held_back = len(got)
            self.buffer.finish()
            self.finished.update(before)
            self.buffer.held_back = 0
            self.buffer.take_back(got[0])
            self.out.clear()

    def finish(self, count):
        ended = self.out if count is None else self.out[:count]
        self.finished.update(ended)
        self.out = self.out[len(ended) :]
        self.buffer.finish(count)

    def fail(self):
        self.buffer.fail()
        self.out.clear()

    def put_back(self):
        self.buffer.put_back()
        self.out.clear()

    def mark_given_up(self, ahead):
        number = (self.passed[-1] if self.passed else 0) + ahead + 1
        if number not in self.finished and number not in self.out:
            self.given_up.add(number)
            self.buffer.mark_given_up(f"{number}-0", BROKEN)

    def send(self):
        self.sent = self.buffer.passage()

    def settle(self):
        if self.sent is not None:
            first, last = (
                entry_ids.order(self.sent.expected)[0] + 1,
                entry_ids.order(self.sent.new)[0],
            )
            for number in range(first, last + 1):
                assert number in self.finished | self.others | self.given_up
            self.passed += range(first, last + 1)
            self.buffer.settled()
            self.sent = None


@given(acts=st.lists(ACTS, max_size=60), careful=st.integers(0, 4))
@settings(max_examples=400, deadline=None)
def test_whatever_happens_each_event_ends_once_and_in_order(acts, careful):
    """Pass each event by exactly one commit.

    A commit passes only events that were finished, given up, or for other processors.
    """
    walk = Walk(careful)
    for act, *more in acts:
        getattr(walk, act)(*more)
    assert walk.passed == list(range(1, len(walk.passed) + 1))
    buffer = walk.buffer
    buffer.finish()
    while buffer.give(5) or buffer.has_finished:  # until every event has ended
        buffer.finish()
        while buffer.passage() is not None:
            buffer.settled()
    assert entry_ids.order(buffer.offset)[0] == walk.fed


@pytest.mark.parametrize(("low", "high"), [("9-0", "10-0"), ("5-9", "5-10"), ("5-99", "6-0")])
def test_ids_are_ordered_by_their_numbers(low, high):
    assert entry_ids.order(low) < entry_ids.order(high)


def test_buffer_size_is_what_is_held_until_it_is_settled():
    buffer = Buffer("bill", "0-0", prefetch=10, max_uncommitted=6)
    buffer.feed((f"{n}-0".encode(), [b"d", b"x" * n]) for n in (1, 2, 3, 4))
    assert buffer.size == 10
    buffer.give(2)
    buffer.finish()
    assert buffer.size == 10, "a commit may have to be repeated"
    commit(buffer)
    assert buffer.size == 7
    buffer.give(2)
    buffer.put_back()
    assert buffer.size == 7


def test_passage_with_large_dead_letters_ends_before_they_are_too_many():
    buffer = Buffer("bill", "0-0", prefetch=10, max_uncommitted=6)
    buffer.feed((f"{n}-0".encode(), [b"d", b"x" * 100]) for n in range(1, 7))
    for n in (2, 3, 5):
        buffer.mark_given_up(f"{n}-0", Letter("E", "", 1))
    buffer.give(6)
    buffer.finish()
    passed = []
    while (passage := buffer.passage(150)) is not None:
        passed.append((passage.expected, passage.new, passage.processed, len(passage.dead)))
        buffer.settled()
    assert passed == [("0-0", "2-0", 1, 1), ("2-0", "4-0", 1, 1), ("4-0", "6-0", 1, 1)]
    assert buffer.size == 0


def test_passage_without_a_bound_takes_all_dead_letters():
    """Commit outputs with all finished events.

    Otherwise an event might have its outputs twice.
    """
    buffer = buffer_of(1, 2, 3)
    for n in (1, 2):
        buffer.mark_given_up(f"{n}-0", Letter("E", "", 1))
    buffer.give(3)
    buffer.finish()
    assert (buffer.passage().new, len(buffer.passage().dead)) == ("3-0", 2)


def test_events_of_a_refused_commit_count_as_finished_no_more():
    """Take back the count of events of a refused commit.

    A commit that is refused again and again is no progress. So the pauses grow, and the breaker
    counts no success.
    """
    buffer = buffer_of(1, 2, 3)
    buffer.mark_given_up("2-0", BROKEN)
    buffer.give(3)
    for _ in range(3):
        buffer.finish()
        assert buffer.count_finished == 2
        assert buffer.passage().processed == 2
        buffer.unfinish()
        assert buffer.count_finished == 0
    assert numbers(buffer.in_hand) == [1, 3]
