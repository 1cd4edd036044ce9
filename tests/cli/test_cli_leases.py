"""Test leases, addresses and drains in the output of `rink status`."""

import pytest
from cli_support import JOINED

from rink.cli.leases import MAX_LEASES, LeaseAnswer
from rink.core.member_record import Share
from rink.errors import EtcdAuth


def words(text):
    return " ".join(text.split())


def test_status_of_renewed_leases_says_when_each_ends_at_the_latest(town, run, run_json):
    town.settled("a", "b")
    town.clock.advance(10)
    look = run_json("status", "orders")
    a = {"ttl_s": 60, "ends_within_s": 51, "renewal_overdue": False}
    assert look["leases"] == {"a": a, "b": a}
    assert look["leases_problem"] == ""
    text = run("status", "orders").stdout
    assert text.count("≤ 51 s") == 2
    assert "a coordinates · settled\n" in text


def test_status_of_member_that_does_not_renew_is_not_settled_in_green(town, run, run_json):
    town.settled("a", "b")
    town.clock.advance(21)
    town.renew("b")
    look = run_json("status", "orders")
    assert look["leases"]["a"] == {"ttl_s": 60, "ends_within_s": 40, "renewal_overdue": True}
    assert look["leases"]["b"]["renewal_overdue"] is False
    assert look["settled"] is True, "what leases say stands beside the status"
    text = run("status", "orders").stdout
    assert "settled, but a does not renew its lease" in text
    assert (
        "not renewed a: its lease was not renewed for 20 s or more (normally every 10 s). If the "
        "member is dead, its record ends within 40 s"
    ) in words(text)


@pytest.mark.parametrize(
    ("ttl", "left", "overdue"),
    [(60, 39, True), (60, 40, False), (3, 1, True), (3, 2, False), (2, 1, False), (2, 0, True)],
)
def test_lease_is_overdue_once_a_third_of_its_ttl_has_surely_passed(ttl, left, overdue):
    """etcd rounds the seconds left down."""
    assert LeaseAnswer(ttl, left).renewal_overdue is overdue


def test_status_of_member_whose_lease_is_over_says_so(town, run, run_json):
    """The lease ends between the read of the group and its request."""
    town.settled("a")
    town.lease_answers = [-1] * 2
    over = {"ttl_s": 60, "ends_within_s": 0, "renewal_overdue": True}
    assert run_json("status", "orders")["leases"] == {"a": over}
    text = run("status", "orders").stdout
    assert "not renewed a: its lease is over, and its record is gone by now" in words(text)


def test_status_of_many_members_asks_for_leases_only_if_told(town, run, run_json):
    names = [f"m{number}" for number in range(MAX_LEASES + 1)]
    town.settled(*names)
    look = run_json("status", "orders")
    assert look["leases"] is None
    assert look["leases_problem"] == (
        "reading 201 leases takes 201 requests to etcd: add --leases to read them"
    )
    assert "leases unknown reading 201 leases takes 201" in words(run("status", "orders").stdout)
    assert len(run_json("status", "orders", "--leases")["leases"]) == 201


def test_status_without_answers_on_leases_shows_the_group(town, run, run_json):
    town.settled("a")
    town.lease_faults = [EtcdAuth("permission denied")] * 2
    look = run_json("status", "orders")
    assert (look["leases"], look["leases_problem"]) == (None, "permission denied")
    assert "leases unknown permission denied" in words(run("status", "orders").stdout)


def test_status_shows_the_address_of_each_member(town, run):
    town.record("a", address="host-7")
    town.record("b")
    text = run("status", "orders").stdout
    assert "address" in text
    assert "host-7" in text
    assert "labels" not in text, "a column without a value is left out"


# ── since when a member drains ──


def draining(town, *roles):
    town.settled("a")
    town.record("a", version=2, shares=(Share(0, 2, "jump"),), draining=roles)
    town.record("b", version=2, shares=(Share(1, 2, "jump"),))
    town.version(2, "a", "b")


def test_status_of_draining_member_says_since_which_version(town, run, run_json):
    draining(town, "job-1", "job-2", "job-3")  # of two ranks, rank 1 has job-2 and job-3
    town.version(3, "a", "b", because=("pinned x to a",), proclaimed="2026-07-01T10:11:00+00:00")
    look = run_json("status", "orders")
    assert look["draining_since"] == {
        "a": {"version": 2, "or_before": False, "by": "a", "proclaimed": JOINED}
    }
    text = words(run("status", "orders").stdout)
    assert "a: has not released job-1, job-2, job-3, since version 2, 0 s ago by a's clock" in text


@pytest.mark.parametrize(
    ("proclaimed", "said"),
    [
        ("2026-07-01T10:10:12.345+00:00", ", since version 2, 60 s ago by a's clock"),
        ("2026-07-01T10:06:12.345+00:00", ", since version 2, 5 min ago by a's clock"),
        ("2026-06-29T10:11:12.345+00:00", ", since version 2, 48 h ago by a's clock"),
        ("2026-07-01T10:12:12.345+00:00", ", since version 2"),  # its clock is ahead
        ("yesterday", ", since version 2"),
        ("2026-07-01T10:10:12", ", since version 2"),
    ],
)
def test_since_says_how_long_ago_as_far_as_clocks_tell(town, run, proclaimed, said):
    draining(town, "job-2")
    town.version(2, "a", "b", proclaimed=proclaimed)
    text = run("status", "orders").stdout
    (line,) = [line for line in text.splitlines() if "has not released" in line]
    assert line.rstrip().endswith("a: has not released job-2" + said)


def test_since_is_open_where_older_versions_are_not_kept(town, run, run_json):
    draining(town, "job-2")
    town.version(3, "a", "b")
    town.prune(1)
    assert run_json("status", "orders")["draining_since"]["a"]["or_before"] is True
    assert "since version 2 or before" in words(run("status", "orders").stdout)


def test_since_is_not_told_of_a_role_that_its_member_owns(town, run, run_json):
    """The handle is of an earlier session, so no version took the role."""
    town.settled("a")
    town.record("a", shares=(Share(0, 1, "jump"),), draining=("job-2",))
    assert run_json("status", "orders")["draining_since"] == {}
    assert "a: has not released job-2\n" in run("status", "orders").stdout


def test_since_is_not_told_by_an_unknown_scheme(town, run_json):
    draining(town, "job-2")
    town.version(2, "a", "b", scheme="mine@1#abc")
    assert run_json("status", "orders")["draining_since"] == {}


# ── narrow terminals ──


@pytest.mark.parametrize("width", [40, 80])
def test_status_on_a_narrow_terminal_breaks_no_word(town, run, monkeypatch, width):
    monkeypatch.setattr("rink.cli.render.PIPE_WIDTH", width)
    draining(town, "job-2")
    town.record("b", address="host-b.example", labels={"zone": "eu-1"})
    text = run("status", "orders").stdout
    assert max(map(len, text.splitlines())) <= width
    for word in ("active, coordinates", "≤ 60 s", "host-b.example", "zone=eu-1", "10:11:12Z"):
        assert word in words(text)
