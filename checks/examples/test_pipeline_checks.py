"""Test that the checks of the Spark pipeline find each fault.

They find nothing if there is no fault.
"""

import pandas as pd
import pytest
from pipeline_demo import checks, plain, report
from pipeline_demo.plain import GRAIN, MEASURES
from pipeline_demo.report import Evidence

TTL = 5.0


def part(batch, number, token, driver="d1"):
    return {"batch": batch, "part": number, "token": token, "driver": driver}


def fence(token, driver="d1"):
    return {"fence": token, "driver": driver}


def rows(*parts):
    """Return rows of Parquet: batch, token, carrier, number of flights."""
    made = [
        (day, carrier, "JFK", "calm", "clear", flights, 0, 3 * flights, batch, token)
        for batch, token, day, carrier, flights in parts
    ]
    return pd.DataFrame(made, columns=[*GRAIN, *MEASURES, "batch", "token"])


ACCEPTED = [
    fence(4),
    part(0, 0, 4),
    part(0, 1, 4),
    part(1, 0, 4),
    fence(9, "d2"),
    part(1, 1, 9, "d2"),
]
ROWS = rows(
    (0, 4, "2013-01-01", "AA", 2), (0, 4, "2013-01-01", "UA", 1), (1, 9, "2013-01-01", "AA", 3)
)
EXPECTED = rows((0, 0, "2013-01-01", "AA", 5), (0, 0, "2013-01-01", "UA", 1)).drop(
    columns=["batch", "token"]
)


def event(at, what, member="onlooker", **facts):
    return {"at": at, "what": what, "member": member, **facts}


HISTORY = [
    event(0.0, "started", target="d1"),
    event(0.1, "started", target="d2"),
    event(2.0, "granted", "d1", token=4),
    event(5.0, "batch", "d1", token=4),
    event(10.0, "killed", target="d1"),
    event(15.0, "granted", "d2", token=9),
    event(16.0, "batch", "d2", token=9),
    event(17.0, "refused", "d1", store="Redis", written="part 1 of batch 1", why="is stale"),
    event(30.0, "gone", target="d2"),
]
COMMITS = {0: 8.0, 1: 21.0}


def evidence(**changed):
    right = plain.totals_of(EXPECTED)
    fields = {
        "history": HISTORY, "commits": COMMITS, "accepted": ACCEPTED, "totals": right, "rows": ROWS,
        "expected": EXPECTED, "ttl": TTL,
    }  # fmt: skip
    return Evidence(**fields | changed)


def faults(**changed):
    built = report.build(evidence(**changed))
    counts = {name: fault["count"] for name, fault in built["faults"].items() if fault["count"]}
    assert built["ok"] is not bool(counts)
    return counts


def test_nothing_is_found_where_nothing_is_wrong():
    assert faults() == {}


@pytest.mark.parametrize(
    ("fault", "changed"),
    [
        ("stale writes accepted by Redis", {"accepted": [*ACCEPTED, part(2, 0, 4)]}),
        ("doubled in Redis", {"accepted": [*ACCEPTED, part(1, 1, 9, "d2")]}),
        ("totals in Redis that differ", {"totals": {}}),
        ("tokens not rising", {"history": [*HISTORY, event(20.0, "granted", "d1", token=7)]}),
        (
            "the fence was never put to the test",
            {"history": [event for event in HISTORY if event["what"] != "refused"]},
        ),
        ("the demo could not be finished", {"unfinished": "waited in vain"}),
    ],
)  # fmt: skip
def test_each_kind_of_fault_is_found_alone(fault, changed):
    assert list(faults(**changed)) == [fault]


def test_rows_that_were_published_behind_a_greater_token_are_found():
    stale = rows((2, 4, "2013-01-02", "AA", 1))
    counts = faults(rows=pd.concat([ROWS, stale], ignore_index=True))
    assert counts == {"stale writes accepted in Parquet": 1, "rows in Parquet that differ": 1}


def test_batch_that_is_in_the_files_twice_is_found():
    again = rows((1, 9, "2013-01-01", "AA", 3))
    counts = faults(rows=pd.concat([ROWS, again], ignore_index=True))
    assert counts == {"doubled in Parquet": 1, "rows in Parquet that differ": 1}


def test_batch_that_is_missing_in_the_files_is_found():
    assert faults(rows=ROWS[ROWS.batch == 0]) == {"rows in Parquet that differ": 1}
    assert faults(rows=ROWS.iloc[:0]) == {"rows in Parquet that differ": 2}


def test_unfinished_demo_reports_its_last_warning():
    """A demo that could not be finished reports its last warning."""
    history = [
        *HISTORY,
        event(9.0, "warned", "d1", why="first"),
        event(25.0, "warned", "d2", why="AttributeError"),
    ]
    built = report.build(evidence(history=history, unfinished="waited in vain"))
    assert built["faults"]["the demo could not be finished"]["first"] == [
        "waited in vain",
        "d2: AttributeError",
    ]


def test_takeover_is_told_beside_the_lease_and_a_cold_start():
    held = checks.holdings(HISTORY, COMMITS)
    assert [(holding.driver, holding.start, holding.end, holding.silenced) for holding in held] == [
        ("d1", 2.0, 10.0, "killed"),
        ("d2", 15.0, 30.0, ""),
    ]
    cold, killed = checks.takeovers(held, TTL)
    assert cold == {
        "cause": "start", "driver": "d1", "until_granted": None, "until_begun": 3.0,
        "until_committed": 3.0, "all": 6.0, "lease_and_cold_start": None,
    }  # fmt: skip
    assert killed == {
        "cause": "killed", "driver": "d2", "until_granted": 5.0, "until_begun": 1.0,
        "until_committed": 5.0, "all": 11.0, "lease_and_cold_start": 11.0,
    }  # fmt: skip
