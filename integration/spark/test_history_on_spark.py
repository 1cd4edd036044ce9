"""A group's past as DataFrames: what etcd keeps, and what `rink watch --json` noted beside it."""

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
    """The file into which a real `rink watch` notes what happens to the group `past`."""
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
    assert moves["left"] == (1, 0)  # a rank that nobody has any more moved to nobody
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


def test_a_group_that_there_is_not_is_told(rink_server, spark):
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
