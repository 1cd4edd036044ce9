"""The checker itself: it finds each kind of bad history, and nothing in a good one."""

import pytest
from real_support import History, problems


def history(*events):
    keys = ("at", "who", "what", "role", "token")
    return History([dict(zip(keys, event, strict=False)) for event in events])


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


def test_a_good_history_has_no_problems():
    assert problems(history(*GOOD)) == []
    assert problems(history(*reversed(GOOD))) == []  # the order of arrival does not matter


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([(1.0, "a", "gained", "x", 5), (1.1, "b", "gained", "x", 7)], "while"),
        ([(1.0, "a", "gained", "x", 5), (1.1, "a", "gained", "x", 7)], "twice"),
        (
            [
                (1.0, "a", "gained", "x", 5),
                (1.1, "a", "let go", "x", 5),
                (1.2, "b", "gained", "x", 5),
            ],
            "after a had 5",
        ),
        (
            [
                (1.0, "a", "gained", "x", 5),
                (1.1, "a", "let go", "x", 5),
                (1.2, "b", "gained", "x", 4),
            ],
            "after a had 5",
        ),
        ([(1.0, "a", "let go", "x", 5)], "did not hold"),
        ([(1.0, "a", "gained", "x", 5), (1.1, "a", "let go", "x", 6)], "did not hold"),
        ([(1.0, "a", "gained", "x", 5), (2, "b", "ended"), (3, "b", "gained", "x", 7)], "while"),
    ],
)
def test_a_bad_history_is_found(bad, says):
    [problem] = problems(history(*bad))
    assert says in problem


def test_holders_moves_and_gaps_are_read_from_a_history():
    made = history(*GOOD[:6])
    assert made.holders == {"x": "a"}
    assert made.moves(2.05) == {"x": 2}
    assert made.gaps(0) == [pytest.approx(0.1)]
