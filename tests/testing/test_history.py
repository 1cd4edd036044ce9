"""Test that `judge` finds all problems of a history, and only those."""

import random
import threading

import pytest

from rink.testing.history import Gap, History, HistoryEvent, in_order, judge


def events(*rows):
    """Return events from (at, who, what, role, token, until).

    The last items of a row may be absent.
    """
    keys = ("at", "who", "what", "role", "token", "until")
    return [HistoryEvent(**dict(zip(keys, row, strict=False))) for row in rows]


def problems(*rows):
    return judge(events(*rows)).problems


GOOD = [
    (1.0, "a", "gained", "x", 5),
    (1.5, "b", "gained", "y", 5),
    (2.0, "a", "let go", "x", 5),
    (2.1, "b", "gained", "x", 7),
    (3.0, "b", "ended"),
    (4.0, "a", "gained", "x", 9),
    (4.0, "a", "gained", "y", 9),
    (5.0, "a", "let go", "x", 9),
    (5.1, "a", "gained", "x", 9),
]
A, B = (1.0, "a", "gained", "x", 5), (3.0, "b", "gained", "x", 7)
"""b gains the role of a. Whether a has let go of it depends on the test."""
A_LETS_GO = (2.0, "a", "let go", "x", 5)
AGAIN = (3.0, "a", "gained", "x", 7)


def test_good_history_has_no_problems():
    judgement = judge(events(*GOOD))
    assert judgement.problems == []
    assert judgement.early == ()
    assert judgement.holders == {"x": "a", "y": "a"}


def test_empty_history_has_no_problems():
    judgement = judge([])
    assert judgement.problems == []
    assert judgement.longest_gap() == 0
    assert judgement.not_held(["x"]) == ["x"]


def test_order_of_different_members_events_does_not_matter():
    good = events(*GOOD)
    for seed in range(20):
        mixed, queues = [], {}
        for event in good:
            queues.setdefault((event.who, event.what == "ended"), []).append(event)
        while any(queues.values()):
            mixed.append(
                random.Random(f"{seed}{len(mixed)}").choice([*filter(None, queues.values())]).pop(0)
            )
        assert judge(mixed).problems == []
        assert judge(mixed).holders == {"x": "a", "y": "a"}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([A, B], "b gained x while a held it, until the end"),
        ([A, B, (3.5, "a", "let go", "x", 5)], "while a held it, until 0.500 s later"),
        ([A, B, (3.5, "a", "ended")], "while a held it, until 0.500 s later"),
        ([A, (2.999, "b", "gained", "x", 7), (3.0, "a", "let go", "x", 5)], "until 0.001 s later"),
        ([A, (2.0, "b", "ended"), B], "while a held it"),
        ([A, (1.5, "a", "frozen"), (2.0, "a", "thawed"), B], "while a held it"),
        ([A, (2.0, "a", "gained", "x", 7)], "a gained x twice"),
        ([A, A_LETS_GO, (3.0, "b", "gained", "x", 5)], "b has token 5 of x, after a had 5"),
        ([A, A_LETS_GO, (3.0, "b", "gained", "x", 4)], "b has token 4 of x, after a had 5"),
        ([A, A_LETS_GO, (3.0, "a", "gained", "x", 4)], "a has token 4 of x, after a had 5"),
        ([A, (1.5, "a", "ended"), (3.0, "a", "gained", "x", 4)], "after a had 5"),
        ([A_LETS_GO], "a let go of x (5), which it did not hold"),
        ([A, A_LETS_GO, A_LETS_GO], "which it did not hold"),
        ([A, (2.0, "a", "let go", "x", 6)], "a let go of x (6), which it did not hold"),
        ([A, (2.0, "b", "let go", "x", 5)], "b let go of x (5), which it did not hold"),
        ([A, (1.5, "a", "ended"), A_LETS_GO], "which it did not hold"),
        ([A, (1.5, "a", "frozen"), (1.6, "a", "ended"), A_LETS_GO], "which it did not hold"),
        ([A, (2.0, "a", "accepted", "x", 6)], "a wrote x with token 6, which it was not granted"),
        ([A, (2.0, "b", "accepted", "x", 5)], "b wrote x with token 5, which it was not granted"),
        ([A, (2.0, "a", "refused", "x", 5)], "was refused though nobody later had written"),
        ([A, (1.5, "a", "frozen"), (2.0, "a", "let go", "x", 6)], "a let go of x (6), which"),
        (
            [A, A_LETS_GO, B, (3.1, "b", "accepted", "x", 7), (3.2, "a", "accepted", "x", 5)],
            "a wrote x with token 5 after b had with 7",
        ),
        (
            [A, A_LETS_GO, AGAIN, (3.1, "a", "accepted", "x", 7), (3.2, "a", "accepted", "x", 5)],
            "a wrote x with token 5 after a had with 7",
        ),
    ],
)
def test_bad_history_is_found(bad, message):
    [problem] = problems(*bad)
    assert message in problem


def test_late_write_with_an_equal_token_is_found():
    """Find a write that a fence by token accepts, as the tokens are equal."""
    rows = [A, A_LETS_GO, (3.0, "b", "gained", "x", 5)]
    rows += [(3.1, "b", "accepted", "x", 5), (3.2, "a", "accepted", "x", 5)]
    assert [problem.split(",")[0] for problem in problems(*rows)] == [
        "b has token 5 of x",
        "a wrote x with token 5 after b had with 5",
    ]


@pytest.mark.parametrize(
    "good",
    [
        [A, (3.0, "a", "let go", "x", 5), B],
        [B, A, (3.0, "a", "let go", "x", 5)],
        [A, B, (3.0, "a", "ended")],
        [A, B, (3.0, "a", "frozen")],
        [A, (1.0, "a", "let go", "x", 5), (1.0, "a", "gained", "x", 5)],
        [A, A_LETS_GO, (2.5, "a", "gained", "x", 5)],
        [A, A_LETS_GO, (2.5, "a", "gained", "x", 6)],
        [A, (1.5, "b", "gained", "y", 4)],
        [A, (1.5, "a", "ended"), (2.0, "a", "gained", "x", 6)],
        [A, (1.5, "a", "frozen"), B, (4.0, "a", "thawed"), (4.1, "a", "let go", "x", 5)],
        [A, (1.5, "a", "frozen"), (1.9, "a", "thawed"), A_LETS_GO, B],
        [A, (1.5, "a", "frozen"), (1.9, "a", "thawed"), (1.95, "a", "ended"), B],
        [A, (1.5, "a", "frozen"), B, (3.1, "a", "thawed"), (3.2, "a", "ended")],
        [A, (2.0, "a", "accepted", "x", 5), A_LETS_GO, B],
        [A, A_LETS_GO, (2.5, "a", "accepted", "x", 5), B],
        [A, A_LETS_GO, B, (3.1, "b", "accepted", "x", 7), (3.2, "a", "refused", "x", 5)],
        [A, A_LETS_GO, B, (3.1, "a", "accepted", "x", 5), (3.2, "b", "accepted", "x", 7)],
    ],
    ids=[
        "a hand-over at one instant",
        "a hand-over at one instant, heard the other way round",
        "a death at the instant of the next grant",
        "a freeze at the instant of the next grant",
        "let go and gained at one instant by one member",
        "gained again with the same token",
        "gained again with a later token",
        "a lower token of another role",
        "gained again after a restart",
        "let go after a thaw, when another member had gained it",
        "thawed in time, and handed over",
        "thawed in time, and killed",
        "thawed too late, and killed",
        "a write of the holder",
        "a write after letting go, before another grant",
        "a late write is refused",
        "a late write before the next holder's first write: no resource can detect it",
    ],
)
def test_good_history_is_not_a_problem(good):
    assert problems(*good) == []


EARLY = [(1.0, "a", "gained", "x", 5), (2.5, "a", "accepted", "x", 5, 9.0)]


@pytest.mark.parametrize(
    ("more", "is_early"),
    [
        ([(0, "a", "lease ended", "", 6)], True),
        ([(0, "a", "lease ended", "", 7)], True),
        ([], False),
        ([(0, "a", "lease ended", "", 8)], False),
        ([(0, "a", "lease ended", "", 5)], False),
        ([(0, "b", "lease ended", "", 6)], False),
        ([(0, "a", "lease ended", "", 6), (2.6, "a", "accepted", "x", 5, 2.9)], False),
        ([(0, "a", "lease ended", "", 6), (3.1, "a", "accepted", "x", 5, 2.9)], True),
    ],
    ids=[
        "the lease ended before",
        "the grant is of the revision in which it ended",
        "the lease had not ended",
        "it ended after the grant",
        "it was an earlier lease",
        "it was another member's",
        "the holder's deadline was over",
        "the holder learned it later",
    ],
)
def test_overlap_is_early_only_if_etcd_ended_the_lease_early(more, is_early):
    judgement = judge(events(*EARLY, *more, B, (3.2, "a", "let go", "x", 5)))
    [overlap] = judgement.early if is_early else judgement.overlaps
    assert (overlap.holder, overlap.taker, overlap.begin, overlap.end) == ("a", "b", 3.0, 3.2)
    assert len(judgement.early) + len(judgement.overlaps) == 1
    assert judgement.problems == ([] if is_early else [str(overlap)])


def test_overlap_without_a_known_deadline_is_not_early():
    judgement = judge(events(A, (0, "a", "lease ended", "", 6), B))
    assert (len(judgement.overlaps), judgement.early) == (1, ())


def test_three_holders_at_once_are_three_overlaps():
    rows = [A, B, (3.5, "c", "gained", "x", 9), (4.0, "a", "let go", "x", 5)]
    rows += [(4.5, "c", "let go", "x", 9), (6.0, "b", "let go", "x", 7)]
    overlaps = judge(events(*rows)).overlaps
    assert [(each.holder, each.taker, each.begin, each.end) for each in overlaps] == [
        ("a", "b", 3.0, 4.0),
        ("a", "c", 3.5, 4.0),
        ("b", "c", 3.5, 4.5),
    ]


def test_overlaps_of_several_roles_end_each_in_its_own_time():
    rows = [A, (1.0, "a", "gained", "y", 5), B, (3.0, "b", "gained", "y", 7)]
    rows += [(3.5, "a", "let go", "x", 5), (4.0, "a", "let go", "y", 5)]
    overlaps = judge(events(*rows)).overlaps
    assert [(each.role, each.end) for each in overlaps] == [("x", 3.5), ("y", 4.0)]


def test_no_gap_while_one_of_two_holders_remains():
    rows = [A, B, (3.5, "a", "let go", "x", 5), (3.7, "c", "gained", "x", 9)]
    assert judge(events(*rows)).gaps == ()


def test_holders_moves_and_gaps_are_read_from_a_history():
    judgement = judge(events(*GOOD))
    assert [grant.at for grant in judgement.grants] == [1.0, 1.5, 2.1, 4.0, 4.0, 5.1]
    assert judgement.gains() == {"x": 4, "y": 2}
    assert judgement.gains(since=4.5) == {"x": 1}
    assert judgement.moves() == {"x": 2, "y": 1}  # a role that comes back does not move
    assert judgement.moves(since=2.5) == {"x": 1, "y": 1}
    assert [(gap.role, gap.begin, gap.end) for gap in judgement.gaps] == [
        ("x", 2.0, 2.1),
        ("x", 3.0, 4.0),
        ("y", 3.0, 4.0),
        ("x", 5.0, 5.1),
    ]
    assert judgement.longest_gap() == 1.0
    assert judgement.longest_gap(since=3.5) == 1.0  # also gaps that began before
    assert judgement.longest_gap(since=4.5) == pytest.approx(0.1)
    assert judgement.not_held(["x", "y", "z"]) == ["z"]


def test_role_that_stays_free_is_a_gap_to_the_end():
    judgement = judge(events(A, A_LETS_GO, (7.0, "b", "gained", "y", 7)))
    assert judgement.gaps == (Gap("x", 2.0, 7.0, True),)
    assert judgement.not_held(["x", "y"]) == ["x"]
    assert judgement.longest_gap() == 5.0


def test_frozen_holder_holds_again_after_its_thaw():
    judgement = judge(events(A, (2.0, "a", "frozen"), (4.0, "a", "thawed")))
    assert judgement.gaps == (Gap("x", 2.0, 4.0),)
    assert judgement.holders == {"x": "a"}
    assert judge(events(A, (2.0, "a", "frozen"))).holders == {}


def test_holder_that_thaws_too_late_does_not_hold_again():
    judgement = judge(events(A, (2.0, "a", "frozen"), B, (4.0, "a", "thawed")))
    assert judgement.holders == {"x": "b"}
    rows = [A, (2.0, "a", "frozen"), B, (4.0, "a", "thawed"), (5.0, "b", "let go", "x", 7)]
    assert judge(events(*rows)).holders == {}


def test_writes_are_counted():
    rows = [A, (2.0, "a", "accepted", "x", 5), A_LETS_GO, B, (3.1, "b", "accepted", "x", 7)]
    judgement = judge(events(*rows, (3.2, "a", "refused", "x", 5)))
    assert (judgement.accepted, judgement.refused) == (2, 1)


def test_writes_stay_in_the_order_of_the_resource():
    """Several threads of the resource may read the clock, one of them late."""
    rows = [A, A_LETS_GO, B, (3.2, "a", "accepted", "x", 5), (3.1, "b", "accepted", "x", 7)]
    assert problems(*rows) == []


def test_events_of_one_member_at_one_instant_stay_in_order():
    rows = events(
        (1, "a", "gained", "x", 5), (1, "a", "let go", "x", 5), (1, "a", "gained", "x", 6)
    )
    assert list(in_order(rows)) == rows


def test_event_of_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="lost"):
        HistoryEvent("lost", "a", 1.0)


def test_history_is_collected_from_several_threads():
    history = History(events(A))

    def add_events(number):
        history.add(HistoryEvent("gained", f"m{number}", 1.0, role=f"r{number}", token=3))
        history.add(HistoryEvent("accepted", f"m{number}", 1.5, role=f"r{number}", token=3))

    threads = [threading.Thread(target=add_events, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    history.wait(lambda h: len(h.holders) == 21)
    for thread in threads:
        thread.join()
    assert history.judge().problems == []
    assert history.judge().accepted == 20
    assert len(history.events) == 21  # all but the writes


def test_wait_for_a_true_condition_returns_at_once():
    History().wait(lambda h: not h.holders, timeout=0)


def test_wait_that_times_out_shows_the_last_events():
    with pytest.raises(TimeoutError, match="'x'"):
        History(events(A)).wait(lambda h: not h.holders, timeout=0.01)
