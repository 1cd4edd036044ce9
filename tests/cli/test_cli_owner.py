"""Test the owner, the holder and the next owner by `rink owner`."""

import pytest
from cli_support import JOINED
from test_cli_status import KEYS

from rink.core.member_record import Share
from rink.errors import EtcdAuth, EtcdUnavailable
from rink.etcd.api import Put

LEADER = "job-2"  # rank 1 of 2, and rank 0 of 1


def owner(run_status, *roles):
    """Run `rink owner --json`, and return its exit status and its roles."""
    status, look = run_status("owner", "orders", *roles)
    return status, look["roles"]


@pytest.fixture
def run_status(run):
    """Run a command line, and return its JSON and its exit status."""
    import json

    def run_status(*line):
        result = run(*line, "--json")
        assert result.stderr == ""
        return result.exit_code, json.loads(result.stdout)

    return run_status


def test_owner_of_a_held_role_is_its_holder_and_the_status_0(town, run, run_status):
    town.settled("a", "b")
    town.record("c")
    status, look = run_status("owner", "orders", LEADER)
    assert status == 0
    assert look == {
        "group": "orders",
        "prefix": "rink/",
        "revision": town.etcd.range(b"x").header.revision,
        "version": 1,
        "roles": [
            {
                "role": LEADER, "owner": "b", "holder": "b", "next": "c", "held": True, "why": "",
                "since": None,
            }
        ],
        "leases": {"b": {"ttl_s": 60, "ends_within_s": 60, "renewal_overdue": False}},
        "leases_problem": "",
    }  # fmt: skip
    lines = [line.split() for line in run("owner", "orders", LEADER).stdout.splitlines()]
    assert lines[0] == ["role", "owner", "holder", "next", "state"]
    assert lines[-1] == [LEADER, "b", "b", "c", "held"]


def test_owner_of_a_role_whose_holder_does_not_renew_says_so(town, run):
    town.settled("a", "b")
    town.clock.advance(21)
    result = run("owner", "orders", LEADER)
    assert result.exit_code == 0, "the records are what the status is about"
    text = " ".join(result.stdout.split())
    assert "not renewed b: its lease was not renewed for 20 s or more" in text
    assert "a: its lease" not in text, "a holds none of the roles"


def test_owner_without_an_answer_on_the_lease_shows_the_role(town, run):
    town.settled("a", "b")
    town.lease_faults = [EtcdAuth("permission denied")]
    result = run("owner", "orders", LEADER)
    assert result.exit_code == 0
    assert "leases unknown permission denied" in " ".join(result.stdout.split())


def grown(town, **fields):
    """Grow the group: b owns job-2 now, which a had."""
    town.settled("a")
    town.version(2, "a", "b")
    town.record("a", **{"shares": (Share(0, 2, "jump"),), "draining": (LEADER,), **fields})
    town.record("b", shares=(Share(1, 2, "jump"),))


def test_owner_of_a_draining_role_names_who_drains_and_since_when(town, run, run_status):
    grown(town)
    status, (role,) = owner(run_status, LEADER)
    assert status == 3
    assert (role["owner"], role["holder"], role["next"], role["held"]) == ("b", "a", "a", False)
    assert role["why"] == "a has not released it"
    assert role["since"] == {"version": 2, "or_before": False, "by": "a", "proclaimed": JOINED}
    text = " ".join(run("owner", "orders", LEADER).stdout.split())
    assert "a has not released it, since version 2, 0 s ago by a's clock" in text


def test_owner_of_a_role_that_an_old_share_claims_is_not_its_holder(town, run_status):
    grown(town, shares=(Share(0, 1, "jump"),), draining=())
    status, (role,) = owner(run_status, LEADER)
    assert (status, role["holder"]) == (3, "a")
    assert role["why"] == "a still claims it, as rank 0 of 1"
    assert role["since"]["version"] == 2


def test_owner_that_has_not_claimed_the_role_does_not_hold_it(town, run_status):
    grown(town, draining=())
    town.record("b")
    status, (role,) = owner(run_status, LEADER)
    assert (status, role["owner"], role["holder"]) == (3, "b", None)
    assert role["why"] == "b has not claimed it yet"
    town.record("b", shares=(Share(0, 3, "jump"), Share(1, 2, "jump")))
    status, (role,) = owner(run_status, LEADER)
    assert (status, role["why"]) == (3, "b has not claimed it yet"), "only the newest share grants"


def test_owner_that_drains_an_earlier_grant_does_not_hold_the_role(town, run_status):
    town.settled("a")
    town.record("a", shares=(Share(0, 1, "jump"),), draining=(LEADER,))
    status, (role,) = owner(run_status, LEADER)
    assert (status, role["owner"], role["holder"]) == (3, "a", "a")
    assert role["why"] == "a has not released an earlier grant of it"
    assert role["since"] is None


def test_owner_that_is_gone_does_not_hold_the_role(town, run_status):
    town.settled("a", "b")
    town.crash("b")
    status, (role,) = owner(run_status, LEADER)
    assert (status, role["owner"], role["holder"], role["next"]) == (3, "b", None, "a")
    assert role["why"] == "b is gone, and its rank is not given to another member yet"


def test_owner_beside_an_unreadable_record_does_not_hold_the_role(town, run_status):
    town.settled("a", "b")
    town.record("c")
    town.etcd.txn((), (Put(KEYS.member("c"), b"{}", town.leases["c"]),))
    status, (role,) = owner(run_status, LEADER)
    assert (status, role["owner"], role["holder"]) == (3, "b", None)
    assert (
        role["why"] == "c claims every role: its record has format None; this Rink reads format 1"
    )


def test_owner_beside_a_share_of_an_unknown_scheme_does_not_hold(town, run_status):
    town.settled("a", "b")
    town.record("c", shares=(Share(0, 2, "mine@1#abc"),))
    status, (role,) = owner(run_status, LEADER)
    assert (status, role["holder"]) == (3, None)
    assert role["why"] == "c claims roles by scheme 'mine@1#abc', which is not known here"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"ranks": ()}, "nobody has a rank"),
        ({"ranks": ("a",), "scheme": "mine@1#abc"}, "scheme 'mine@1#abc' is not known here"),
    ],
)
def test_owner_is_nobody_where_it_cannot_be_computed(town, run_status, fields, why):
    town.version(1, *fields.pop("ranks"), **fields)
    status, (role,) = owner(run_status, LEADER)
    assert (status, role["owner"], role["holder"], role["next"]) == (3, None, None, None)
    assert role["why"] == why


def test_owner_before_a_version_that_can_be_read_is_nobody(town, run_status):
    town.record("a")
    assert owner(run_status, LEADER)[1][0]["why"] == "the group has no version yet"
    town.write(KEYS.version(1), b"[]")
    assert owner(run_status, LEADER)[1][0]["why"] == "version 1 is not a JSON object"


def test_owner_in_an_unknown_group_is_nobody_and_the_status_3(run, run_status):
    status, (role,) = owner(run_status, LEADER)
    assert (status, role["owner"]) == (3, None)
    assert role["why"] == "there is no group 'orders'"
    assert "there is no group 'orders'" in run("owner", "orders", LEADER).stdout


def test_owner_of_several_roles_exits_with_the_worst(town, run_status):
    grown(town)
    assert [role["held"] for role in owner(run_status, "job-1", LEADER)[1]] == [True, False]
    assert owner(run_status, "job-1", LEADER)[0] == 3
    assert owner(run_status, "job-1", "job-0")[0] == 0


def test_owner_of_a_pinned_role_is_the_pinned_member(town, run_status):
    town.record("a", shares=(Share(0, 2, "jump", gained=frozenset({LEADER})),))
    town.record("b", shares=(Share(1, 2, "jump", taken=frozenset({LEADER})),))
    town.version(1, "a", "b", pins={LEADER: "a"})
    status, (role,) = owner(run_status, LEADER)
    assert (status, role["owner"], role["holder"], role["next"]) == (0, "a", "a", "b")


def test_owner_exits_with_1_without_etcd_and_with_2_of_no_role(town, run):
    assert run("owner", "orders").exit_code == 2
    assert run("owner", "orders", "").exit_code == 2
    town.faults = [EtcdUnavailable("no answer")]
    assert run("owner", "orders", LEADER).exit_code == 1
