"""Test `rink forget`: keys are deleted, and tokens never go back."""

import json

import click
import pytest

from rink.core import codec
from rink.core.keys import Keys, OffsetKeys, SlotKeys
from rink.core.member_record import MemberRecord
from rink.core.values import Request, Wish
from rink.errors import EtcdUnavailable
from rink.etcd.api import Put

KEYS = Keys.of("rink/", "orders")
OFFSETS = OffsetKeys.of("rink/", "orders", "flights")
SLOTS = SlotKeys.of("rink/", "orders", "nightly")


def left(town):
    """Return the keys under the prefix, without the prefix."""
    kvs = town.etcd.range(b"rink/", b"rink0").kvs
    return [kv.key.decode().removeprefix("rink/") for kv in kvs]


@pytest.fixture
def dead(town):
    """Write a group whose members are gone, beside another group."""
    town.version(1, "a")
    town.version(2, "a", "b")
    town.write(KEYS.request("1"), codec.encode(Request(Wish.PIN, "x", "a")))
    town.version(1, "c", group="orders2")
    return town


def test_forget_of_a_dead_group_deletes_its_keys_alone(dead, run):
    result = run("forget", "orders")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "orders is forgotten: 3 keys deleted\n"
    assert left(dead) == ["orders2/versions/0000000000000001"]


def test_forget_as_json_says_what_was_deleted_and_kept(dead, run_json):
    dead.version(3, "a", token_base=7000)
    dead.write(OFFSETS.partition(0), b"{}")
    dead.write(OFFSETS.partition(1), b"{}")
    dead.write(SLOTS.slot("1"), b"{}")
    assert run_json("forget", "orders") == {
        "group": "orders",
        "prefix": "rink/",
        "deleted": 3,
        "kept": {"version": 3, "token_base": 7000, "requests": [], "offsets": 2, "slots": 1},
    }


def test_forget_while_a_member_lives_is_refused(town, run):
    town.settled("a", "b")
    before = left(town)
    result = run("forget", "orders", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "rink: group 'orders' still has 2 members (a, b). Stop all members first. A killed member "
        "counts until its lease ends: `rink wait orders --members 0` waits for that\n"
    )
    assert left(town) == before


def test_forget_amid_a_join_deletes_nothing(dead, run, monkeypatch):
    """The member joins between the read and the transaction."""
    from rink.cli import forgetting

    def read_keys(*_):
        if "orders/members/late" not in left(dead):
            dead.record("late")
        return 0

    monkeypatch.setattr(forgetting, "count_beside", read_keys)
    before = left(dead)
    result = run("forget", "orders")
    assert result.exit_code == 1
    assert "nothing was deleted" in result.stderr
    assert left(dead) == ["orders/members/late", *before]


def test_forget_keeps_the_last_version_where_tokens_were_raised(dead, run):
    dead.version(3, "a", token_base=7000)
    result = run("forget", "orders")
    assert result.stdout.splitlines() == [
        "orders is forgotten: 3 keys deleted",
        "kept: version 3, with the token base 7000, because fencing tokens must never go back",
    ]
    assert left(dead)[0] == "orders/versions/0000000000000003"
    again = run("forget", "orders")
    assert (again.exit_code, again.stdout.splitlines()[0]) == (0, "orders has nothing to forget")
    assert left(dead)[0] == "orders/versions/0000000000000003"


def test_forget_keeps_requests_to_raise_the_token_base(dead, run):
    dead.write(KEYS.request("2"), codec.encode(Request(Wish.TOKEN_BASE, token_base=9)))
    result = run("forget", "orders")
    assert "kept: the request to raise the token base to 9, for the next coordinator" in (
        result.stdout
    )
    assert left(dead)[0] == "orders/requests/2"
    assert json.loads(run("forget", "orders", "--json").stdout)["kept"]["requests"] == ["2"]


def test_forget_keeps_a_request_that_cannot_be_read(dead, run, run_json):
    """The request may raise the token base."""
    dead.write(KEYS.request("2"), b'{"format": 2}')
    result = run("forget", "orders")
    assert "kept: the request '2', which cannot be read here" in result.stdout
    assert left(dead)[0] == "orders/requests/2"
    assert run_json("forget", "orders")["kept"]["requests"] == ["2"]


def test_forget_quotes_names_in_the_commands_that_it_names(town, run):
    town.record("a", group="a b")
    assert "`rink wait 'a b' --members 0`" in run("forget", "a b").stderr


def test_forget_keeps_offsets_and_says_how_to_delete_them(dead, run):
    dead.write(OFFSETS.partition(0), b"{}")
    result = run("forget", "orders")
    assert result.stdout.splitlines()[1] == (
        "kept: 1 offset of its partitions: the next members go on from there, unless you first run "
        "`etcdctl del --prefix rink/orders:offsets/`"
    )
    assert "orders:offsets/flights/0" in left(dead)


def test_forget_keeps_slots_and_says_how_to_delete_them(dead, run):
    dead.write(SLOTS.slot("1"), b"{}")
    dead.write(SLOTS.slot("2"), b"{}")
    result = run("forget", "orders")
    assert result.stdout.splitlines()[1] == (
        "kept: 2 slots of its `rink run --once-per`: the next members run no finished slot again, "
        "unless you first run `etcdctl del --prefix rink/orders:slots/`"
    )
    assert "orders:slots/nightly/1" in left(dead)


def test_forget_of_an_unreadable_newest_version_is_refused(dead, run):
    dead.write(KEYS.version(3), b'{"format": 2}')
    result = run("forget", "orders")
    assert result.exit_code == 1
    assert result.stderr == (
        "rink: version 3 of group 'orders' has format 2; this Rink reads format 1. It may hold a "
        "token base, which must be kept: use a Rink that reads it, or delete the key "
        "'rink/orders/versions/0000000000000003' if you know that it has none\n"
    )


def test_forget_deletes_records_without_a_lease_and_foreign_keys(dead, run):
    stray = codec.encode(MemberRecord(incarnation="x", ttl=9))
    dead.etcd.txn((), (Put(KEYS.member("stray"), stray), Put(KEYS.root + b"notes", b"")))
    assert run("forget", "orders").stdout == "orders is forgotten: 5 keys deleted\n"
    assert left(dead) == ["orders2/versions/0000000000000001"]


def test_forget_of_an_unknown_group_exits_with_1(run):
    result = run("forget", "nope")
    assert result.exit_code == 1
    assert "there is no group 'nope'" in result.stderr


def test_forget_without_etcd_exits_with_1(dead, run):
    dead.faults = [EtcdUnavailable("no answer")]
    assert run("forget", "orders").exit_code == 1


@pytest.mark.parametrize(
    ("answer", "yes", "forgotten"), [("n", [], False), ("y", [], True), ("", ["--yes"], True)]
)
def test_forget_on_a_terminal_asks_unless_told_yes(dead, run, monkeypatch, answer, yes, forgotten):
    asked = []

    def confirm(question, **options):
        asked.append(question)
        if answer == "n":
            raise click.Abort

    monkeypatch.setattr("rink.cli.forgetting.is_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    result = run("forget", "orders", *yes)
    assert asked == ([] if yes else ["Delete 3 keys of group 'orders'?"])
    assert (result.exit_code == 0) == forgotten
    assert (len(left(dead)) == 1) == forgotten


# ── rink groups ──


def test_groups_without_members_are_hidden_and_counted(dead, run, run_json):
    dead.record("x", group="live")
    text = run("groups").stdout
    assert "live" in text
    assert "orders" not in text
    assert "2 groups without members are hidden: --all shows them" in text
    everything = run("groups", "--all").stdout
    assert "orders2" in everything
    assert "hidden" not in everything
    found = run_json("groups")
    assert ([one["group"] for one in found["groups"]], found["hidden"]) == (["live"], 2)
    found = run_json("groups", "--all")
    assert (len(found["groups"]), found["hidden"]) == (3, 0)


def test_groups_of_which_none_has_members_says_so(town, run):
    town.version(1, "a")
    result = run("groups")
    assert (result.exit_code, result.stdout) == (
        0,
        "1 group without members is hidden: --all shows it\n",
    )
    assert json.loads(run("status", "--json").stdout)["hidden"] == 1
