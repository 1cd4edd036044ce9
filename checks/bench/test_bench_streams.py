"""Test how the bench's parts on streams evaluate their readings."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import sales
from figures import Outcome
from parts import streams_latency
from parts.streams import _add, in_turn
from parts.streams_handover import largest_gap, moved, rested
from parts.streams_stage import keys_of
from peers import runnel
from peers.common import NotToBeHadError


def test_gap_of_a_moved_partition_is_less_the_interval_of_sending():
    old = [(1.0, 7, 0.9), (2.0, 7, 1.9), (2.0, 8, 1.9)]
    new = [(3.0, 7, 2.0), (4.0, 7, 3.0), (2.5, 8, 2.375), (9.0, 5, 8.0)]
    assert moved(old, new, every=0.5) == [0.5, 0.0]


def test_moved_partition_rests_from_the_return_here_to_the_call_there():
    ends = [(2.25, 7), (2.5, 8), (2.25, 9)]
    begins = [(3.0, 7), (2.75, 8), (2.0, 5)]
    assert rested(ends, begins) == [0.75, 0.25]


def test_gap_belongs_to_the_window_that_its_end_lies_in():
    stamps = [(1.0, 1, 0), (1.5, 2, 0), (2.25, 1, 0), (2.5, 2, 0), (5.0, 1, 0)]
    assert largest_gap(stamps, 2.0, 1.0) == 1.25
    assert largest_gap(stamps, 4.5, 1.0) == 2.75
    assert largest_gap(stamps, 3.0, 1.0) == 0.0


def test_every_other_round_goes_backwards():
    assert [in_turn(["a", "b", "c"], turn) for turn in (0, 1)] == [["a", "b", "c"], ["c", "b", "a"]]


def test_ours_stands_beside_the_limit_and_beside_runnel():
    outcome = Outcome(part="streams", title="")
    rates = {"ours": [50.0, 60.0, 40.0], "limit": [100.0, 90.0, 110.0], "runnel": [10.0]}
    _add(outcome, "streams.records", "processed", 0.5, rates, "a loop", "")
    ours, times = outcome.figures
    assert (ours.value, ours.limit, ours.is_met) == (50, 100, True)
    assert (times.value, times.is_met) == (5, True)
    assert [peer.value for peer in outcome.peers] == [10]


def test_without_runnel_there_is_no_comparison_with_it():
    outcome = Outcome(part="streams", title="")
    _add(outcome, "streams.def", "processed", None, {"ours": [1.0], "limit": [2.0]}, "a loop", "")
    assert [figure.key for figure in outcome.figures] == ["streams.def"]
    assert outcome.figures[0].is_met is None


def test_runnel_that_is_not_to_be_had_says_why():
    peer = runnel.Peer(None, "skipped: there is no package index")
    with pytest.raises(NotToBeHadError, match="no package index"):
        peer.sent("redis://nobody", 1)


def test_ages_are_told_in_milliseconds():
    delays = {"ours": [0.002, 0.004], "limit": [0.001, 0.001]}
    p50, p99 = streams_latency.spreads("slow", delays, 200.0, "a bare XADD")
    assert (p50.value, p99.value, p50.limit, p99.unit) == (2, 4, 1, "ms")


def test_clock_ends_with_the_last_partition():
    clock = sales.Clock(2)
    clock.begin()
    began = clock.began
    clock.begin()
    assert clock.began == began
    assert [clock.end(), clock.end()] == [False, True]


def test_bare_loop_reads_the_keys_that_rink_writes():
    assert keys_of("shop")[:2] == ["rink:{shop/sales/0}", "rink:{shop/sales/1}"]
