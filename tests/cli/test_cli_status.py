from __future__ import annotations

import json
import re

import attrs
import pytest
from cli_support import JOINED, LEAVING

import rink
from rink.core import codec
from rink.core.keys import Keys
from rink.core.member_record import Phase, Share
from rink.core.values import Request, Wish
from rink.errors import EtcdAuth, EtcdUnavailable
from rink.inspect.group_status import GroupStatus, status_of_view
from rink.inspect.read_group import read_group

KEYS = Keys.of("rink/", "orders")
LONG_S = 20.0
JOINED_SHOWN = ("2026-07-01", "10:11:12Z")


def test_settled_group_is_shown_with_ranks_coordinator_and_members(town, run):
    town.settled("a", "b")
    result = run("status", "orders")
    assert result.exit_code == 0
    assert "orders  version 1 · 2 ranks · jump · a coordinates · settled" in result.stdout
    assert "by a at 2026-07-01 10:11:12Z because started; joined a; joined b" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["0", "a", "active,", "coordinates", "1", *JOINED_SHOWN, "≤", "60", "s"] in lines
    assert ["1", "b", "active", "1", *JOINED_SHOWN, "≤", "60", "s"] in lines
    assert "in the way" not in result.stdout


def test_json_has_every_key_and_plain_values(town, run_json):
    town.settled("a", "b")
    look = run_json("status", "orders")
    member = look["members"][0]
    del look["members"]
    lease = {"ttl_s": 60, "ends_within_s": 60, "renewal_overdue": False}
    assert look == {
        "group": "orders",
        "prefix": "rink/",
        "revision": town.etcd.range(b"x").header.revision,
        "version": 1,
        "ranks": ["a", "b"],
        "scheme": "jump",
        "pins": {},
        "token_base": 0,
        "because": ["started", "joined a", "joined b"],
        "by": "a",
        "proclaimed": JOINED,
        "versions_kept": 1,
        "coordinator": "a",
        "settled": True,
        "in_the_way": [],
        "absent": [],
        "settings_differ": {},
        "requests": [],
        "problems": [],
        "leases": {"a": lease, "b": lease},
        "leases_problem": "",
        "draining_since": {},
        "not_ranked": {},
    }
    assert member == {
        "name": "a",
        "phase": "active",
        "rank": 0,
        "coordinates": True,
        "version": 1,
        "shares": [{"rank": 0, "size": 2, "scheme": "jump", "gained": [], "taken": []}],
        "draining": [],
        "joined": JOINED,
        "labels": {},
        "address": "",
        "rebalance_delay": 60.0,
        "ttl": 60,
        "schemes": ["jump"],
        "incarnation": "incarnation-of-a",
        "coordinates_by": {},
        "no_rank_because": "",
        "leaving": "",
    }


def test_status_of_an_offered_rank_says_what_it_waits_for(town, run, run_json):
    shares = {name: (Share(rank, 2, "jump"),) for rank, name in enumerate("ab")}
    by = {"leads_by": {"handover_wait": 8.0}}
    town.record("a", shares=shares["a"], phase=Phase.OFFERING, **by)
    town.record("b", shares=shares["b"], phase=Phase.OFFERING)
    town.version(1, "a", "b")
    text = run("status", "orders").stdout
    assert re.search("offering +a: leaving; waits up to 8 s for a successor", text)
    assert [one["phase"] for one in run_json("status", "orders")["members"]] == ["offering"] * 2
    assert [one["leaving"] for one in run_json("status", "orders")["members"]] == [
        "leaving; waits up to 8 s for a successor",
        "leaving; waits for a successor",
    ]


def test_member_and_the_command_see_the_same(rink_etcd):
    """A member's status has the same facts as the command."""
    settings = {"scheme": ["balanced:8", "jump"], "initial_delay": 0.0, "rebalance_delay": 0.0}
    with (
        rink.Session(rink_etcd.client(), ttl=60) as session,
        rink.Rink(session, "orders", name="a", labels={"az": "eu"}, **settings) as a,
        rink.Rink(session, "orders", name="b", **settings),
    ):
        assert any(len(version.ranks) == 2 for version in a.versions())
        assert a.wait_settled(LONG_S)
        with next(role for job in range(8) if (role := a.get_role(f"x/{job}"))) as role:
            status = a.status()
            shown = status_of_view(read_group(rink_etcd.client(), KEYS), "orders")
            common = {
                field.name: getattr(status, field.name) for field in attrs.fields(type(shown))
            }
            assert shown == GroupStatus(**common)
            assert (shown.settled, shown.ranks, status.me) == (True, ("a", "b"), "a")
            as_json = status.as_json()
            assert shown.as_json().items() <= as_json.items()
            assert as_json["held"] == {role.name: role.token}
            assert json.loads(json.dumps(as_json)) == as_json


def test_whoever_is_in_the_way_is_named_with_the_reason(town, run, run_json):
    town.settled("a", "b")
    town.version(2, "a", "b", "c")
    two, three = Share(0, 2, "jump"), Share(0, 3, "jump")
    town.record("a", shares=(three, two), draining=("job-1", "job-2"))
    town.record("c", version=2, shares=(Share(2, 3, "jump"),))
    look = run_json("status", "orders")
    assert look["settled"] is False
    assert look["in_the_way"] == [
        {"member": "a", "why": "has not released job-1, job-2, still claims rank 0 of 2"},
        {
            "member": "b",
            "why": "has not taken up rank 1 of 3 (version 2), still claims rank 1 of 2",
        },
    ]
    text = run("status", "orders").stdout
    assert "not settled" in text
    assert "in the way  a: has not released job-1, job-2" in text


def test_pins_wishes_and_the_token_base_are_shown(town, run, run_json):
    town.record("a", shares=(Share(0, 2, "jump", gained=frozenset({"x", "test"})),))
    town.record("b", shares=(Share(1, 2, "jump"),))
    town.version(5, "a", "b", pins={"test": "a", "gone": "z"}, token_base=7000)
    town.write(KEYS.request("1"), codec.encode(Request(Wish.PIN, "BTC/ETH", "b")))
    town.write(KEYS.request("2"), codec.encode(Request(Wish.UNPIN, "test")))
    town.write(KEYS.request("3"), codec.encode(Request(Wish.TOKEN_BASE, token_base=9)))
    look = run_json("status", "orders")
    assert (look["pins"], look["token_base"]) == ({"test": "a", "gone": "z"}, 7000)
    assert look["requests"] == ["pin BTC/ETH to b", "unpin test", "raise the token base to 9"]
    assert look["members"][0]["shares"][0]["gained"] == ["test", "x"]
    assert look["in_the_way"][0]["why"].endswith(
        "still claims rank 0 of 2 with the pins of an earlier version"
    )
    text = run("status", "orders").stdout
    for line in ("test → a", "7000", "pin BTC/ETH to b"):
        assert line in text


def test_members_that_wait_leave_or_are_gone_are_told_apart(town, run, run_json):
    town.record("a", shares=(Share(0, 2, "jump"),), phase=LEAVING, labels={"az": "eu", "k": "v"})
    town.record("c", rebalance_delay=5.0)
    town.version(1, "a", "b")
    text = run("status", "orders").stdout
    assert "leaving" in text
    assert "c coordinates" in text
    assert "az=eu k=v" in text
    assert "waiting (5 s)" in text
    assert re.search(
        r"not ranked yet +c: the group grows for it in about 5 s, by its clock "
        r"\(rebalance_delay=5\), or at once if another member leaves",
        text,
    )
    assert ["1", "b", "not", "here"] in [line.split() for line in text.splitlines()]
    assert run_json("status", "orders")["absent"] == ["b"]


def test_status_of_member_that_cannot_follow_says_so_not_waiting(town, run, run_json):
    town.record("a", shares=(Share(0, 1, "mine@1#abc"),), schemes=("mine@1#abc",))
    town.record("b", schemes=("mine@2#def", "jump"))
    town.version(1, "a", scheme="mine@1#abc")
    text = run("status", "orders").stdout
    assert ["-", "b", "cannot", "be", "ranked"] in [line.split()[:5] for line in text.splitlines()]
    assert "no rank" in text
    assert "b: it cannot follow the group's scheme 'mine@1#abc'" in " ".join(text.split())
    assert [one["no_rank_because"][:16] for one in run_json("status", "orders")["members"]] == [
        "",
        "it cannot follow",
    ]


def test_settings_that_differ_are_named_with_who_has_which(town, run, run_json):
    town.record("a")
    town.record("b", ttl=30, schemes=("balanced:8", "jump"))
    town.record("c")
    look = run_json("status", "orders")
    assert look["settings_differ"] == {
        "ttl": {"60": ["a", "c"], "30": ["b"]},
        "schemes": {"jump": ["a", "c"], "balanced:8, jump": ["b"]},
    }
    assert "ttl 60 (a, c); 30 (b)" in run("status", "orders").stdout


def test_members_of_other_settings_are_named_before_they_coordinate(town, run, run_json):
    usual = {"initial_delay": 2.0, "leave_delay": 0.0, "stagger": None}
    town.record("a", leads_by=usual)
    town.record("b", leads_by={**usual, "leave_delay": 30.0})
    town.record("c", leads_by={**usual, "stagger": 1})
    town.record("old")  # by a Rink that did not say
    assert run_json("status", "orders")["settings_differ"] == {
        "leave_delay": {"0": ["a", "c"], "30": ["b"]},
        "stagger": {"none": ["a", "b"], "1": ["c"]},
    }
    assert "stagger none (a, b); 1 (c)" in run("status", "orders").stdout


def test_settings_that_differ_in_a_late_digit_are_told_apart(town, run_json):
    town.record("a", ttl=86400, rebalance_delay=86400.5)
    town.record("b", ttl=86400, rebalance_delay=86400.25)
    town.record("c", ttl=12345678, rebalance_delay=86400.5)
    assert run_json("status", "orders")["settings_differ"] == {
        "ttl": {"86400": ["a", "b"], "12345678": ["c"]},
        "rebalance_delay": {"86400.5": ["a", "c"], "86400.25": ["b"]},
    }


def test_what_cannot_be_read_is_named_and_claims_everything(town, run, run_json):
    town.settled("a")
    town.record("b")
    lease = town.leases["b"]
    from rink.etcd.api import Put

    town.etcd.txn((), (Put(KEYS.member("b"), b'{"format": 2}', lease),))
    town.write(KEYS.member("stray"), b"{}")
    town.write(KEYS.root + b"notes.txt", b"?")
    look = run_json("status", "orders")
    assert look["problems"] == [
        {"key": "members/b", "problem": "has format 2; this Rink reads format 1"},
        {"key": "members/stray", "problem": "has format None; this Rink reads format 1"},
        {
            "key": "members/stray",
            "problem": "has no lease: it claims nothing and cannot coordinate",
        },
        {"key": "notes.txt", "problem": "not a key that Rink writes"},
    ]
    assert look["settled"] is False
    assert look["in_the_way"][0]["member"] == "b"
    assert [member["phase"] for member in look["members"]] == ["active", "unreadable"]
    assert "notes.txt not a key that Rink writes" in run("status", "orders").stdout


def test_version_that_cannot_be_read_is_no_settled_group(town, run, run_json):
    town.settled("a")
    town.write(KEYS.version(2), b"[]")
    look = run_json("status", "orders")
    assert (look["version"], look["ranks"], look["settled"]) == (2, [], False)
    assert "unreadable" in run("status", "orders").stdout


def test_pins_by_an_unknown_scheme_leave_open_whether_the_group_is_settled(town, run, run_json):
    mine = "mine@1#abc"
    taken = Share(0, 2, mine, taken=frozenset({"x"}))
    town.record("a", shares=(taken,), schemes=(mine,))
    town.record("b", shares=(Share(1, 2, mine, gained=frozenset({"x"})),), schemes=(mine,))
    town.version(1, "a", "b", scheme=mine, pins={"x": "b"})
    assert run_json("status", "orders")["settled"] is None
    assert "cannot tell" in run("status", "orders").stdout
    town.record("b", shares=(Share(0, 1, mine),), schemes=(mine,))
    assert run_json("status", "orders")["settled"] is False


def test_group_that_everybody_left_is_no_unknown_group(town, run, run_json):
    town.version(3, "a", because=("left b",))
    assert "no members" in run("status", "orders").stdout
    assert run_json("status", "orders")["settled"] is False


def test_names_are_shown_as_they_are_but_move_no_cursor(town, run, run_json):
    evil = "a\x1b[2J\nb [red]"
    town.record(evil, group="grüße / 日本")
    text = run("status", "grüße / 日本").stdout
    assert "a\\x1b[2J\\nb [red]" in text
    assert "\x1b" not in text
    assert run_json("status", "grüße / 日本")["members"][0]["name"] == evil


def test_looking_writes_nothing(town, run):
    town.settled("a")
    before = town.etcd.range(b"x").header.revision
    for line in (
        ["status", "orders", "--check"],
        ["status"],
        ["groups"],
        ["history", "orders"],
        ["owner", "orders", "leader"],
        ["wait", "orders", "--settled"],
    ):
        assert run(*line).exit_code == 0
    assert town.etcd.range(b"x").header.revision == before


# ── groups ──


def test_groups_are_listed_with_or_without_the_command_of_that_name(town, run):
    town.settled("a", "b")
    town.record("c", group="BTC/ETH")
    result = run("groups")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["orders", "1", "2", "2", "a", "settled"] in lines
    assert ["BTC/ETH", "-", "0", "1", "c", "not", "settled"] in lines
    assert run("status").stdout == result.stdout


def test_groups_as_json_and_keys_that_are_of_none(town, run, run_json):
    town.settled("a")
    town.write(b"rink/orders2", b"")
    town.write(b"rink/orders:offsets/topic/0", b"")  # of a group, and of none's own range
    town.write(b"rink/team/orders/members/x", b"")
    town.write(b"rink/..%/members/x", b"")
    found = run_json("groups")
    assert found["groups"] == [
        {
            "group": "orders", "version": 1, "ranks": 1, "members": 1, "coordinator": "a",
            "settled": True,
        }
    ]  # fmt: skip
    assert found["strays"] == [
        "rink/..%/members/x",
        "rink/orders2",
        "rink/team/orders/members/x",
    ]
    assert "not keys of a group: rink/..%/members/x" in run("groups").stdout


def test_no_groups_is_an_answer(run):
    result = run("groups")
    assert result.exit_code == 0
    assert "no groups" in result.stdout
    assert "'rink/'" in result.stdout


# ── errors and options ──


@pytest.mark.parametrize("command", ["status", "history", "watch"])
def test_unknown_group_is_named_with_prefix_and_endpoint(run, command):
    line = (command, "nope", "--prefix", "apps/", "--endpoints", "http://one:1,two:2")
    result = run(*line)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        "rink: there is no group 'nope': the etcd at http://one:1, two:2 has no key under "
        "'apps/nope/' (`rink groups` lists the groups)\n"
    )


@pytest.mark.parametrize("command", [["status", "g"], ["groups"], ["history", "g"], ["watch", "g"]])
@pytest.mark.parametrize("error", [EtcdUnavailable("no answer"), EtcdAuth("wrong password")])
def test_error_is_one_line_and_no_traceback(town, run, command, error):
    town.faults = [error]
    result = run(*command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"rink: {error}\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["history"], "Missing argument 'GROUP'"),
        (["status", "", "--json"], "name is empty"),
        (["status", "g", "--prefix", "rink"], "must end with '/'"),
        (["history", "g", "--last", "0"], "--last"),
        (["status", "g", "--timeout", "0"], "--timeout"),
        (["nonsense"], "No such command"),
    ],
)
def test_wrong_usage_exits_with_2(run, line, said):
    result = run(*line)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--user", "root"], "password"),
        (["--cert", "/nowhere.pem"], "key"),
        (["--ca", "/nowhere.pem", "--endpoints", "https://h"], "/nowhere.pem"),
        (["--endpoints", "ftp://h"], "ftp"),
    ],
)
def test_settings_that_cannot_work_are_wrong_usage(options, said):
    from click.testing import CliRunner

    from rink.cli.commands import commands

    result = CliRunner().invoke(commands, ["status", "g", *options])
    assert result.exit_code == 2
    assert said in result.stderr


def test_settings_come_from_options_and_from_the_environment(town, run):
    town.settled("a")
    env = {"RINK_ETCD": "h:1", "RINK_ETCD_USER": "u", "RINK_ETCD_PASSWORD": "secret"}
    options = ("--ca", "1", "--cert", "2", "--key", "3", "--timeout", "9")
    assert run("status", "orders", *options, **env).exit_code == 0
    (target,) = town.targets
    assert (target.endpoints, target.user, target.password) == ("h:1", "u", "secret")
    assert (target.ca, target.cert, target.key, target.timeout) == ("1", "2", "3", 9.0)
    assert "secret" not in repr(target)
    run("status", "orders", "--endpoints", "h:2", **env)
    assert town.targets[-1].endpoints == "h:2"
    files = {"RINK_ETCD_CA": "4", "RINK_ETCD_CERT": "5", "RINK_ETCD_KEY": "6"}
    run("status", "orders", **env, **files)
    target = town.targets[-1]
    assert (target.ca, target.cert, target.key) == ("4", "5", "6")


def test_json_is_ascii_so_that_any_terminal_takes_it(town, run):
    town.record("日本", group="orders")
    out = run("status", "orders", "--json").stdout
    assert out.isascii()
    assert json.loads(out)["coordinator"] == "日本"


def test_without_the_extra_the_command_says_what_to_install(monkeypatch, capsys):
    import sys

    import rink.cli

    monkeypatch.setitem(sys.modules, "click", None)
    for name in [name for name in sys.modules if name.startswith("rink.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit) as ended:
        rink.cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pip install 'etcd-rink[cli]'" in said
