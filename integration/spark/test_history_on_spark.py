"""Test a group's past as DataFrames, of etcd and of `rink watch --json`."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

import rink
from rink.spark import history

WAIT_S = 90


@pytest.fixture
def watched(rink_server, tmp_path):
    """Yield the file into which a real `rink watch` writes group `past`."""
    path = tmp_path / "past.jsonl"
    command = [sys.executable, "-m", "rink.cli", "watch", "past", "--json", "--wait"]
    environment = {**os.environ, "RINK_ETCD": rink_server.endpoint}
    with path.open("w") as file:
        watch = subprocess.Popen(command, stdout=file, env=environment)
        yield path
        watch.terminate()
        watch.wait(WAIT_S)


def until_noted(path, text):
    end = time.monotonic() + WAIT_S
    while text not in path.read_text():
        assert time.monotonic() < end, f"{text} was not noted in {path.read_text()}"
        time.sleep(0.05)


def test_versions_moves_episodes_and_drains_are_those_that_were(rink_server, spark, watched):
    until_noted(watched, '"status"')
    with rink.Session(rink_server.endpoint, ttl=5) as session:
        ann = rink.Rink(session, "past", name="ann", initial_delay=0, rebalance_delay=0).join()
        ann.wait_settled(WAIT_S)
        bob = rink.Rink(session, "past", name="bob", initial_delay=0, rebalance_delay=0).join()
        mine = [f"job-{n}" for n in range(20) if rink.rank_of(f"job-{n}", 2) == 1]
        ann.wait_settled(WAIT_S)
        bob.wait_settled(WAIT_S)
        held = [bob.await_role(name, WAIT_S).__enter__() for name in mine[:3]]

        def let_go():
            held[0].lost.wait(WAIT_S)
            held[0].lost.wait(0.0)
            until_noted(watched, '"draining"')
            for role in held:
                role.release()

        thread = threading.Thread(target=let_go)
        thread.start()
        bob.leave()
        thread.join()
        ann.wait_settled(WAIT_S)
        until_noted(watched, '"version": 3, "settled": true')
        past = history(spark, session, "past", events=str(watched))
        versions = past.versions.orderBy("number").collect()
        ann.leave()

    assert [(row.number, row.ranks) for row in versions] == [
        (1, ["ann"]),
        (2, ["ann", "bob"]),
        (3, ["ann"]),
    ]
    assert [len(row.moves) for row in versions] == [1, 1, 1]
    assert all(row.proclaimed is not None for row in versions)
    moves = {row.cause: (row.versions, row.ranks) for row in past.moves_by_cause().collect()}
    assert moves["joined"][1] >= 2
    assert moves["left"] == (1, 1)  # the removed rank: its roles moved
    episodes = past.episodes().collect()
    assert len(episodes) >= 2
    assert all(row.seconds >= 0 for row in episodes if row.seconds is not None)
    drains = past.drains().collect()
    assert [(row.member, row.roles) for row in drains] == [("bob", 3)]
    report = past.report()
    assert report.versions == 3
    assert report.longest_drain[0] == "bob"
    assert 0 < report.longest_drain[1] < WAIT_S
    assert "longest drain: bob, 3 roles" in str(report)


def noted(second, event, **facts):
    """Return a line of `rink watch --json`, so many seconds past ten."""
    at = f"2026-11-24T10:00:{second:06.3f}+00:00"
    return json.dumps({"event": event, "at": at, "revision": int(second * 1000), **facts})


LINES = [
    noted(0, "status", version=1, settled=True, members=[]),
    noted(1, "joined", member="w3", phase="active", labels={}, text="w3 joined"),
    noted(1.5, "version", number=2, because=["joined w3"], text="version 2 because joined w3"),
    noted(1.75, "draining", member="w1", roles=["a", "b"], text="w1 lost a, b"),
    noted(2, "draining", member="w2", roles=["c"], text="w2 lost c"),
    noted(2.25, "drained", member="w2", roles=["c"], text="w2 has released c"),
    noted(4, "drained", member="w1", roles=["a", "b"], text="w1 has released a, b"),
    noted(4, "settled", text="settled at version 2"),
    # A crash, which etcd sees when the lease of 5 s has ended.
    noted(20, "gone", member="w2", phase="active", draining=[], ttl=5, text="w2 is gone"),
    noted(20.125, "version", number=3, because=["replaced w2 by w4"], text="version 3"),
    noted(20.25, "settled", text="settled at version 3"),
    # A leave, which begins with the version, and drains until the end.
    noted(30, "leaving", member="w3", text="w3 is leaving"),
    noted(30.5, "version", number=4, because=["left w3", "joined w5"], text="version 4"),
    noted(30.75, "draining", member="w3", roles=["d"], text="w3 lost d"),
    noted(31, "gone", member="w3", phase="leaving", draining=["d"], ttl=5, text="w3 has left"),
    noted(31.5, "settled", text="settled at version 4"),
    noted(40, "gone", member="w1", phase="active", draining=[], ttl=15, text="w1 is gone"),
]


def test_what_was_noted_comes_to_these_times_to_the_millisecond(rink_server, spark, tmp_path):
    path = tmp_path / "noted.jsonl"
    path.write_text("\n".join(LINES) + "\n")
    with (
        rink.Session(rink_server.endpoint, ttl=5) as session,
        rink.Rink(session, "noted", name="ann", initial_delay=0) as r,
    ):
        r.wait_settled(WAIT_S)
        past = history(spark, session, "noted", events=str(path))
    found = past.episodes().collect()
    assert [(row.seconds, row.unseen_s, row.causes) for row in found] == [
        (2.5, 0.0, ["joined w3"]),
        (0.25, 5.0, ["w2 is gone", "replaced w2 by w4"]),
        (1.0, 0.0, ["left w3", "joined w5"]),
        (None, 15.0, ["w1 is gone"]),
    ]
    assert [(row.member, row.seconds, row.roles) for row in past.drains().collect()] == [
        ("w1", 2.25, 2),
        ("w2", 0.25, 1),
        ("w3", 0.25, 1),
    ]
    report = past.report(most=2)
    assert [(one.seconds, one.unseen_s) for one in report.longest] == [(None, 15.0), (2.5, 0.0)]
    assert report.unsettled_s == 3.75
    assert report.longest_drain == ("w1", 2.25, 2)
    assert str(report).splitlines() == [
        "1 version",
        "joined: 1 rank moved in 1 version",
        "started: 1 rank moved in 1 version",
        "not settled for 3.750 s in all",
        "2026-11-24 10:00:40  not settled yet, and up to 15 s before  w1 is gone",
        "2026-11-24 10:00:01.500000  2.500 s  joined w3",
        "longest drain: w1, 2 roles, 2.250 s",
    ]


def test_group_that_there_is_not_is_told(rink_server, spark):
    with (
        rink.Session(rink_server.endpoint, ttl=5) as session,
        pytest.raises(rink.StateError, match="there is no group 'nobody'"),
    ):
        history(spark, session, "nobody")


def test_without_events_the_versions_are_there(rink_server, spark):
    with (
        rink.Session(rink_server.endpoint, ttl=5) as session,
        rink.Rink(session, "alone", name="ann", initial_delay=0) as r,
    ):
        r.wait_settled(WAIT_S)
        report = history(spark, session, "alone").report()
    assert (report.versions, report.longest, report.longest_drain) == (1, (), None)
