"""Test when the group grows for a waiting member, by `rink status`."""

from datetime import datetime, timedelta

import pytest
from cli_support import JOINED
from test_cli_status import KEYS

from rink.etcd.api import Put

USUAL = {"initial_delay": 2.0, "leave_delay": 0.0, "stagger": None}


def ago(seconds):
    """Return a wall clock's time before the town's, which stands still."""
    return (datetime.fromisoformat(JOINED) - timedelta(seconds=seconds)).isoformat()


def grows(when):
    return f"the group grows for it {when}, or at once if another member leaves"


IN_60_S = "in about 60 s, by its clock (rebalance_delay=60)"
SOONER = "; sooner if the group has only just started"


@pytest.fixture
def look(run, run_json):
    """Return the line and the JSON that the status has on b."""

    def look():
        text = " ".join(run("status", "orders").stdout.split())
        lines = text.partition("not ranked yet b: ")[2]
        found = run_json("status", "orders")["not_ranked"]
        assert list(found) == ["b"]
        assert lines.startswith(found["b"]["text"])
        return found["b"]

    return look


def started(town, *, by="a", proclaimed=JOINED, joined=JOINED, **fields):
    """Start the group with a, while b waits."""
    town.record("a", version=1, joined=joined, leads_by=USUAL, **fields)
    town.version(1, "a", because=("started", "joined a"), by=by, proclaimed=proclaimed)
    town.record("b")


def test_growth_before_the_first_version_comes_after_initial_delay(town, look, run_json):
    town.record("b", leads_by=USUAL)
    assert look() == {
        "setting": "initial_delay",
        "delay_s": 2.0,
        "within_s": 2.0,
        "may_be_sooner": False,
        "text": grows("in about 2 s, by its clock (initial_delay=2)"),
    }


def test_growth_before_the_first_version_ignores_the_coordinators_delay(town, run_json):
    town.record("a", rebalance_delay=0.0, leads_by=USUAL)
    town.record("b")
    found = run_json("status", "orders")["not_ranked"]["b"]
    assert (found["setting"], found["within_s"]) == ("initial_delay", 2.0)


def test_growth_in_a_group_that_has_just_started_counts_initial_delay(town, look):
    """The coordinator proclaimed the start, so it knows when that was."""
    started(town)
    assert look()["text"] == grows("in about 2 s, by its clock (initial_delay=2)")
    town.version(2, "a", "x", because=("joined x",))
    assert look()["setting"] == "initial_delay", "the start is in an earlier version"


def test_growth_long_after_the_start_counts_rebalance_delay(town, look):
    started(town, proclaimed=ago(60), joined=ago(70))
    found = look()
    assert found["text"] == grows(IN_60_S)
    assert (found["setting"], found["within_s"], found["may_be_sooner"]) == (
        "rebalance_delay",
        60.0,
        False,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"by": "x"},  # another member saw the start
        {"proclaimed": ago(10)},  # an earlier session of a saw it
        {"proclaimed": "yesterday"},
        {"proclaimed": "yesterday", "rebalance_delay": 0.0},
    ],
)
def test_growth_is_maybe_sooner_where_an_outsider_cannot_know(town, look, fields):
    started(town, **fields)
    found = look()
    assert found["text"] == grows(IN_60_S) + SOONER
    assert (found["setting"], found["may_be_sooner"]) == ("rebalance_delay", True)


def test_growth_by_a_coordinator_that_does_not_say_is_maybe_sooner(town, look):
    started(town)
    town.record("a", version=1)
    assert look()["text"] == grows(IN_60_S) + SOONER


def test_growth_with_a_longer_initial_delay_counts_rebalance_delay(town, look):
    started(town)
    town.record("b", rebalance_delay=1.0)
    assert look()["text"] == grows("in about 1 s, by its clock (rebalance_delay=1)")


def test_growth_without_a_start_that_is_kept_counts_rebalance_delay(town, look):
    started(town)
    town.version(2, "a", because=("left x",))
    town.prune(1)
    assert look()["text"] == grows(IN_60_S)


def test_growth_by_an_unreadable_coordinator_counts_rebalance_delay(town, look):
    started(town)
    town.etcd.txn((), (Put(KEYS.member("a"), b"{}", town.leases["a"]),))
    assert look()["setting"] == "rebalance_delay"


@pytest.mark.parametrize(
    ("joined", "within_s"), [(ago(70), 0.0), (ago(-10), None), ("yesterday", None)]
)
def test_growth_after_its_delay_is_as_soon_as_that_is_over(town, look, joined, within_s):
    """Clocks that differ show no time, either."""
    town.record("a", version=1, joined=ago(99), leads_by=USUAL)
    town.version(1, "a", because=("joined a",))
    town.record("b", joined=joined)
    found = look()
    assert found["text"] == grows("as soon as its delay is over (rebalance_delay=60)")
    assert found["within_s"] == within_s


def test_growth_counts_what_has_passed_already(town, look):
    town.record("a", version=1, joined=ago(99), leads_by=USUAL)
    town.version(1, "a", because=("joined a",))
    town.record("b", joined=ago(18))
    assert look()["within_s"] == 42.0


def test_growth_is_not_told_of_members_that_do_not_wait(town, run_json):
    town.settled("a", "b")
    assert run_json("status", "orders")["not_ranked"] == {}
