"""What one grant of a partition holds in memory, driven step by step and at random."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rink.streams.consumer.buffer import Buffer, Letter
from rink.streams.store import entry_ids

BROKEN = Letter("ValueError: no", "", 3)


def entries(*numbers, only=None):
    fields = [b"d", b"{}", *([b"only", only] if only else [])]
    return [(f"{number}-0".encode(), fields) for number in numbers]


def inbox(*numbers, offset="0-0", prefetch=10, max_uncommitted=6, careful=""):
    made = Buffer(
        "bill", offset, prefetch=prefetch, max_uncommitted=max_uncommitted, careful=careful
    )
    made.feed(entries(*numbers))
    return made


def numbers(given_entries):
    return [int(entry.id.partition("-")[0]) for entry in given_entries]


def commit(box):
    passage = box.passage()
    box.settled()
    return passage


def test_events_are_yielded_in_order_and_committed_when_finished():
    box = inbox(1, 2, 3)
    assert numbers(box.give(2)) == [1, 2]
    assert box.passage() is None
    box.finish()
    assert commit(box).new == "2-0"
    assert box.offset == "2-0"
    assert numbers(box.give(9)) == [3]


def test_a_commit_under_way_stays_what_it_is_until_it_is_settled():
    """It may have been applied: another one in its place would not be known for the same."""
    box = inbox(1, 2)
    box.give(1)
    box.finish()
    first = box.passage()
    box.give(1)
    box.finish()
    assert box.passage() is first
    box.settled()
    assert (box.passage().expected, box.passage().new) == ("1-0", "2-0")


def test_no_more_than_max_uncommitted_is_yielded_and_not_settled():
    box = inbox(*range(1, 10), max_uncommitted=3)
    assert numbers(box.give(9)) == [1, 2, 3]
    assert box.is_held_up
    box.finish()
    assert box.give(9) == []
    box.passage()
    assert box.give(9) == []
    box.settled()
    assert numbers(box.give(9)) == [4, 5, 6]


def test_room_counts_everything_that_is_not_settled():
    box = inbox(1, 2, 3, prefetch=5)
    assert box.room == 2
    box.give(3)
    box.finish()
    assert box.room == 2
    commit(box)
    assert box.room == 5
    box.stop()
    assert box.room == 0


def test_reading_goes_on_behind_what_was_read_last():
    box = inbox(offset="7-3")
    assert box.read_to == "7-3"
    box.feed(entries(8, 9))
    assert box.read_to == "9-0"


def test_after_a_failure_the_events_come_again_one_by_one():
    box = inbox(1, 2, 3, 4)
    box.give(3)
    assert box.fail() == (None, 0)
    assert numbers(box.give(3)) == [1]
    assert box.give(3) == []  # the next one is not yielded before this one's end
    box.finish()
    assert numbers(box.give(3)) == [2]
    box.finish()
    assert numbers(box.give(3)) == [3]
    box.finish()
    box.feed(entries(5))
    assert numbers(box.give(3)) == [4, 5]  # the trouble is behind


def test_who_failed_alone_is_blamed_and_counted():
    box = inbox(1, 2)
    box.give(2)
    box.fail()
    box.give(2)
    blamed, times = box.fail()
    assert (blamed.id, times) == ("1-0", 1)
    box.give(2)
    assert box.fail()[1] == 2
    box.give(2)
    box.finish()
    commit(box)
    box.give(2)
    assert box.fail() == (blamed, 3) or box.fail()[0] is None  # of event 2 it is the first time
    assert box._attempts.get("1-0") is None


def test_a_single_event_that_fails_is_blamed_at_once():
    box = inbox(1)
    box.give(1)
    blamed, times = box.fail()
    assert (blamed.id, times) == ("1-0", 1)


def test_what_was_finished_before_a_failure_does_not_come_again():
    box = inbox(1, 2, 3)
    box.give(3)
    box.finish(1)
    box.fail()
    assert numbers(box.give(3)) == [2]


def test_a_condemned_event_is_skipped_and_goes_along_with_the_commit_that_passes_it():
    box = inbox(1, 2, 3)
    box.condemn("2-0", BROKEN)
    assert numbers(box.give(9)) == [1, 3]
    box.finish()
    passage = commit(box)
    assert passage.processed == 2
    assert [(entry.id, entry.letter) for entry in passage.dead] == [("2-0", BROKEN)]


def test_a_condemned_event_at_the_end_is_committed_without_waiting_for_another():
    box = inbox(1)
    box.condemn("1-0", BROKEN)
    assert box.give(9) == []
    assert commit(box).new == "1-0"


def test_condemned_events_are_committed_while_all_that_come_after_them_fail():
    box = inbox(1, 2, 3, 4, 5)
    box.give(1)
    for number in range(1, 5):
        assert box.fail()[0].id == f"{number}-0"
        box.condemn(f"{number}-0", BROKEN)
        assert numbers(box.give(1)) == [number + 1]
    box.fail()
    passage = commit(box)
    assert (passage.new, len(passage.dead), passage.processed) == ("4-0", 4, 0)


def test_a_condemned_event_that_was_yielded_last_stays_condemned_when_others_fail():
    box = inbox(1, 2)
    _, two = box.give(2)
    box.take_back(two)  # it does not decode
    box.condemn("2-0", BROKEN)
    assert box.give(9) == []
    assert box.passage() is None  # the first one is not finished
    box.fail()
    assert numbers(box.give(9)) == [1]
    box.finish()
    assert box.give(9) == []
    assert [entry.id for entry in commit(box).dead] == ["2-0"]


def test_events_behind_one_are_those_that_will_be_yielded_after_it():
    box = Buffer("bill", "0-0", prefetch=10, max_uncommitted=6)
    box.feed(entries(1, 2))
    box.feed(entries(3, only=b"ship"))
    box.feed(entries(4, 5, 6))
    box.condemn("5-0", BROKEN)
    one = box.give(1)[0]
    assert numbers(box.behind(one, 9)) == [2, 4, 6]
    box.take_back(one)
    assert numbers(box.behind(one, 9)) == [2, 4, 6]
    assert numbers(box.behind(one, 2)) == [2, 4]
    assert box.behind(one, 0) == []


def test_an_event_for_another_processor_is_passed_in_silence():
    box = Buffer("bill", "0-0", prefetch=10, max_uncommitted=6)
    box.feed(entries(1, only=b"ship"))
    box.feed(entries(2, only=b"bill"))
    assert numbers(box.give(9)) == [2]
    box.finish()
    passage = commit(box)
    assert (passage.new, passage.processed, passage.dead) == ("2-0", 1, ())


def test_what_is_skipped_does_not_count_for_max_uncommitted():
    box = Buffer("bill", "0-0", prefetch=1000, max_uncommitted=3)
    box.feed(entries(1))
    box.feed(entries(*range(2, 300), only=b"ship"))
    box.feed(entries(300, 301, 302))
    assert numbers(box.give(1)) == [1]
    assert numbers(box.give(9)) == [300, 301]
    assert box.is_held_up
    box.finish()
    commit(box)
    assert numbers(box.give(9)) == [302]


def test_after_an_unclean_end_events_come_alone_and_are_to_be_marked():
    box = inbox(1, 2, 3, 4, careful="2-0")
    [first] = box.give(9)
    assert box.must_mark(first)
    assert box.has_one_alone
    box.finish()
    [second] = box.give(9)
    assert box.must_mark(second)
    box.finish()
    rest = box.give(9)
    assert numbers(rest) == [3, 4]
    assert not any(box.must_mark(entry) for entry in rest)


def test_nothing_is_given_beside_one_that_came_alone():
    box = inbox(1, 2, 3, careful="1-0")
    box.give(1)
    assert box.give(1) == []
    box.put_back()
    [first] = box.give(9)
    assert box.must_mark(first)


def test_a_failure_amid_careful_events_keeps_the_marks():
    box = inbox(1, 2, 3, careful="2-0")
    box.give(9)
    box.fail()
    [first] = box.give(9)
    assert box.must_mark(first)


def test_nothing_is_yielded_after_the_stop():
    box = inbox(1, 2)
    box.give(1)
    box.stop()
    assert box.give(1) == []
    box.finish()
    assert commit(box).new == "1-0"


def test_put_back_yields_again_what_is_not_finished():
    box = inbox(1, 2, 3)
    box.give(3)
    box.finish(1)
    box.put_back()
    assert numbers(box.give(9)) == [2, 3]


def test_the_fast_way_yields_nothing_special_and_nothing_above_the_ceiling():
    box = inbox(1, 2, max_uncommitted=2)
    box.feed(entries(3, only=b"bill"))
    assert box.give_plain((0, 0)) is None
    assert numbers([box.give_plain((1, 0))]) == [1]
    assert box.give_plain((1, 0)) is None
    assert numbers([box.give_plain((9, 0))]) == [2]
    assert box.give_plain((9, 0)) is None, "max_uncommitted is used up"
    box.finish()
    commit(box)
    assert box.give_plain((9, 0)) is None, "it is for one processor"
    assert inbox(1, careful="1-0").give_plain((9, 0)) is None


ACTS = st.one_of(
    st.tuples(st.just("feed"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("give"), st.integers(1, 4)),
    st.tuples(st.just("give_plain"), st.integers(0, 8)),
    st.tuples(st.just("gather_in_vain"), st.integers(1, 4)),
    st.tuples(st.just("finish"), st.one_of(st.none(), st.integers(0, 3))),
    st.tuples(st.just("fail")),
    st.tuples(st.just("put_back")),
    st.tuples(st.just("condemn"), st.integers(0, 3)),
    st.tuples(st.just("send")),
    st.tuples(st.just("settle")),
)


class Walk:
    """An inbox with events 1, 2, …, and what must have become of each."""

    def __init__(self, careful):
        self.careful = careful
        self.box = Buffer(
            "bill", "0-0", prefetch=20, max_uncommitted=5, careful=f"{careful}-0" if careful else ""
        )
        self.fed, self.passed, self.out, self.sent = 0, [], [], None
        self.others, self.finished, self.condemned = set(), set(), set()

    def feed(self, count, are_others):
        for _ in range(min(count, self.box.room)):
            self.fed += 1
            if are_others:
                self.others.add(self.fed)
            self.box.feed(entries(self.fed, only=b"ship" if are_others else None))

    def give(self, count):
        got = self.box.give(count)
        assert numbers(got) == sorted(numbers(got))
        assert len(self.out) + len(got) <= self.box.max_uncommitted
        if got and numbers(got)[0] <= self.careful:
            assert len(got) == 1
        self.out += numbers(got)
        return got

    def give_plain(self, ceiling):
        if (entry := self.box.give_plain((ceiling, 0))) is not None:
            [number] = numbers([entry])
            assert self.careful < number <= ceiling
            assert number not in self.others | self.condemned
            self.out.append(number)
            assert len(self.out) <= self.box.max_uncommitted

    def gather_in_vain(self, count):
        before = list(self.out)
        if got := self.give(count):
            self.box.held_back = len(got)
            self.box.finish()
            self.finished.update(before)
            self.box.held_back = 0
            self.box.take_back(got[0])
            self.out.clear()

    def finish(self, count):
        ended = self.out if count is None else self.out[:count]
        self.finished.update(ended)
        self.out = self.out[len(ended) :]
        self.box.finish(count)

    def fail(self):
        self.box.fail()
        self.out.clear()

    def put_back(self):
        self.box.put_back()
        self.out.clear()

    def condemn(self, ahead):
        number = (self.passed[-1] if self.passed else 0) + ahead + 1
        if number not in self.finished and number not in self.out:
            self.condemned.add(number)
            self.box.condemn(f"{number}-0", BROKEN)

    def send(self):
        self.sent = self.box.passage()

    def settle(self):
        if self.sent is not None:
            first, last = (
                entry_ids.order(self.sent.expected)[0] + 1,
                entry_ids.order(self.sent.new)[0],
            )
            for number in range(first, last + 1):
                assert number in self.finished | self.others | self.condemned
            self.passed += range(first, last + 1)
            self.box.settled()
            self.sent = None


@given(acts=st.lists(ACTS, max_size=60), careful=st.integers(0, 4))
@settings(max_examples=400, deadline=None)
def test_whatever_happens_each_event_ends_once_and_in_order(acts, careful):
    """Each event is passed by one commit; those it passes were finished, condemned, or for others."""
    walk = Walk(careful)
    for act, *more in acts:
        getattr(walk, act)(*more)
    assert walk.passed == list(range(1, len(walk.passed) + 1))
    box = walk.box
    box.finish()
    while box.give(5) or box.has_finished:  # everything comes to its end
        box.finish()
        while box.passage() is not None:
            box.settled()
    assert entry_ids.order(box.offset)[0] == walk.fed


@pytest.mark.parametrize(("low", "high"), [("9-0", "10-0"), ("5-9", "5-10"), ("5-99", "6-0")])
def test_ids_are_ordered_by_their_numbers(low, high):
    assert entry_ids.order(low) < entry_ids.order(high)


def test_inbox_size_is_what_is_held_until_it_is_settled():
    box = Buffer("bill", "0-0", prefetch=10, max_uncommitted=6)
    box.feed((f"{n}-0".encode(), [b"d", b"x" * n]) for n in (1, 2, 3, 4))
    assert box.size == 10
    box.give(2)
    box.finish()
    assert box.size == 10, "a commit may have to be repeated"
    commit(box)
    assert box.size == 7
    box.give(2)
    box.put_back()
    assert box.size == 7


def test_passage_with_large_dead_letters_ends_before_they_are_too_many():
    box = Buffer("bill", "0-0", prefetch=10, max_uncommitted=6)
    box.feed((f"{n}-0".encode(), [b"d", b"x" * 100]) for n in range(1, 7))
    for n in (2, 3, 5):
        box.condemn(f"{n}-0", Letter("E", "", 1))
    box.give(6)
    box.finish()
    passed = []
    while (passage := box.passage(150)) is not None:
        passed.append((passage.expected, passage.new, passage.processed, len(passage.dead)))
        box.settled()
    assert passed == [("0-0", "2-0", 1, 1), ("2-0", "4-0", 1, 1), ("4-0", "6-0", 1, 1)]
    assert box.size == 0


def test_passage_without_a_bound_takes_all_dead_letters():
    """Outputs go with all that is finished, or an event would have them twice."""
    box = inbox(1, 2, 3)
    for n in (1, 2):
        box.condemn(f"{n}-0", Letter("E", "", 1))
    box.give(3)
    box.finish()
    assert (box.passage().new, len(box.passage().dead)) == ("3-0", 2)


def test_events_of_a_refused_commit_count_as_finished_no_more():
    """Who is refused again and again has come no further: its pauses grow, and the breaker counts no success."""
    box = inbox(1, 2, 3)
    box.condemn("2-0", BROKEN)
    box.give(3)
    for _ in range(3):
        box.finish()
        assert box.count_finished == 2
        assert box.passage().processed == 2
        box.unfinish()
        assert box.count_finished == 0
    assert numbers(box.in_hand) == [1, 3]
