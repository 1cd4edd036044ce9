"""Test how many events a batch takes, and what a checkpoint may hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rink.errors import StateError
from rink.spark.source import offsets
from rink.spark.source.offsets import as_json, of_json, share_out

COUNTS = st.dictionaries(st.integers(0, 7), st.integers(0, 60), min_size=1)


class Streams:
    """Partitions with so many entries each; they record the calls."""

    def __init__(self, counts):
        self.counts = counts
        self.asked = []

    @property
    def start(self):
        return dict.fromkeys(self.counts, "0-0")

    @property
    def target(self):
        return {number: f"{count}-0" for number, count in self.counts.items()}

    def bound(self, asked):
        self.asked.append(dict(asked))
        found = {}
        for number, (cursor, count) in asked.items():
            at = int(cursor.partition("-")[0])
            there = min(count, self.counts[number] - at)
            found[number] = (there, f"{at + there}-0")
        return found


@given(counts=COUNTS, most=st.integers(1, 200), page=st.integers(1, 30))
def test_batch_has_as_many_events_as_it_may_and_there_are(counts, most, page):
    streams = Streams(counts)
    whole, offsets.PAGE = offsets.PAGE, page
    try:
        end = share_out(streams.start, streams.target, most, streams.bound)
    finally:
        offsets.PAGE = whole
    taken = {number: int(at.partition("-")[0]) for number, at in end.items()}
    assert sum(taken.values()) == min(most, sum(counts.values()))
    assert all(taken[number] <= counts[number] for number in counts)
    # Evenly: no partition gets less than another, unless it has no more. They differ by one if the
    # number does not divide.
    assert all(
        taken[one] >= taken[other] - page - 1
        for one in counts
        for other in counts
        if taken[one] < counts[one]
    )
    assert all(count <= page for asked in streams.asked for _, count in asked.values())


def test_oldest_go_first_where_there_are_more_partitions_than_events():
    start, target = {0: "900-0", 1: "100-0", 2: "1000-0"}, dict.fromkeys(range(3), "2000-0")
    asked = []

    def bound(wanted):
        asked.append(sorted(wanted))
        return {number: (count, "1500-0") for number, (_, count) in wanted.items()}

    end = share_out(start, target, 1, bound)
    assert asked == [[1]]
    assert end == {0: "900-0", 1: "1500-0", 2: "1000-0"}


def test_where_events_are_large_it_asks_again_for_the_rest():
    streams = Streams({0: 50, 1: 3})
    plain = streams.bound

    def bound(asked):  # like Redis, with at most 7 of them in memory
        return plain({number: (at, min(count, 7)) for number, (at, count) in asked.items()})

    assert share_out(streams.start, streams.target, 40, bound) == {0: "37-0", 1: "3-0"}


def test_it_ends_where_the_last_event_is_gone_by_then():
    streams = Streams({0: 5})
    assert share_out(streams.start, {0: "9-0"}, 40, streams.bound) == {0: "5-0"}


def test_partition_without_anything_new_is_not_asked():
    streams = Streams({0: 0, 1: 5})
    assert share_out(streams.start, streams.target, 10, streams.bound) == {0: "0-0", 1: "5-0"}
    assert all(0 not in asked for asked in streams.asked)


@given(st.dictionaries(st.integers(0, 100), st.integers(0, 2**64 - 1), min_size=1))
def test_what_a_checkpoint_holds_is_read_back(found):
    made = {number: f"{at}-{number}" for number, at in enumerate(found.values())}
    assert of_json(as_json(made), len(made), "it") == made


@pytest.mark.parametrize("found", [{}, {"x": "0-0"}, {"0": "nonsense"}, {"0": "1"}, []])
def test_what_is_no_offset_is_refused(found):
    with pytest.raises(StateError, match="not offsets of stream 'a'"):
        of_json(found, 1, "stream 'a'")


def test_checkpoint_of_another_partition_count_is_refused():
    with pytest.raises(StateError, match="2 partitions, but it has 3"):
        of_json({"0": "0-0", "1": "0-0"}, 3, "it")
