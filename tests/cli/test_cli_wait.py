"""Test `rink wait` and `rink status --check`, which answer scripts."""

import threading

import pytest
from cli_support import LEAVING, Watched
from click.testing import CliRunner
from test_cli_owner import LEADER, grown

from rink.cli.commands import commands
from rink.cli.options import Outside
from rink.core.member_record import Share
from rink.errors import EtcdUnavailable
from rink.etcd.api import Put


def lines(text):
    return text.splitlines()


@pytest.fixture
def wait(town, run):
    """Wait during a script, and return the status, stdout and stderr lines."""

    def wait(*options, script=()):
        town.script = list(script)
        result = run("wait", "orders", *options)
        assert town.script == [], "it ended before all had happened"
        return result.exit_code, result.stdout, lines(result.stderr)

    return wait


# ── rink wait ──


def test_wait_until_settled_ends_at_once_in_a_settled_group(town, wait):
    town.settled("a", "b")
    assert wait("--settled") == (0, "orders: settled at version 1\n", [])


def test_wait_until_settled_says_who_is_in_the_way(town, wait):
    grown(town)
    said = wait(
        "--settled",
        script=[
            lambda: town.record("c"),  # in the way of nothing: nothing is said again
            lambda: town.record("a", shares=(Share(0, 2, "jump"),)),
        ],
    )
    told = [f"waiting for orders: a: has not released {LEADER}"]
    assert said == (0, "orders: settled at version 2\n", told)


def test_wait_for_an_unknown_group_waits_for_it_to_begin(town, wait):
    status, out, told = wait(
        "--settled",
        script=[
            lambda: town.record("a", shares=(Share(0, 1, "jump"),)),
            lambda: town.version(1, "a"),
        ],
    )
    assert (status, out) == (0, "orders: settled at version 1\n")
    assert told == [
        "waiting for orders: there is no group 'orders'",
        "waiting for orders: the group has no version yet",
    ]


def test_wait_for_members_counts_exactly(town, wait):
    town.settled("a", "b", "c")
    status, out, told = wait(
        "--members", "1", script=[lambda: town.crash("a"), lambda: town.crash("b")]
    )
    assert (status, out) == (0, "orders: 1 member\n")
    assert told == [
        "waiting for orders: it has 3 members, not 1",
        "waiting for orders: it has 2 members, not 1",
    ]
    status, out, told = wait("--members", "2", "--timeout", "0")
    assert (status, out, told[1]) == (
        3,
        "",
        "rink: still missing after 0 s: it has 1 member, not 2",
    )


def test_wait_for_no_member_ends_once_all_have_left(town, wait):
    town.settled("a")
    assert wait("--members", "0", script=[lambda: town.crash("a")])[:2] == (
        0,
        "orders: 0 members\n",
    )


def test_wait_for_a_holder_says_who_holds_the_role(town, wait):
    grown(town)
    done = wait(
        "--holder", LEADER, script=[lambda: town.record("a", shares=(Share(0, 2, "jump"),))]
    )
    told = [f"waiting for orders: {LEADER}: a has not released it"]
    assert done == (0, f"orders: b holds {LEADER}\n", told)


def test_wait_for_several_things_wants_all_of_them_at_once(town, wait):
    town.settled("a")
    status, out, told = wait(
        "--settled", "--members", "2", "--holder", LEADER,
        script=[
            lambda: town.version(2, "a", "b"),
            lambda: town.record("b", shares=(Share(1, 2, "jump"),)),
            lambda: town.record("a", shares=(Share(0, 2, "jump"),)),
        ],
    )  # fmt: skip
    assert status == 0
    assert out == f"orders: settled at version 2, 2 members, b holds {LEADER}\n"
    assert told[0] == "waiting for orders: it has 1 member, not 2"


def test_wait_that_times_out_exits_with_3_and_says_what_lacks(town, wait):
    grown(town)
    told = f"a: has not released {LEADER}"
    done = wait(
        "--settled", "--timeout", "30", script=[lambda: town.let_pass(29), lambda: town.let_pass(1)]
    )
    assert done == (
        3,
        "",
        [f"waiting for orders: {told}", f"rink: still missing after 30 s: {told}"],
    )


def test_wait_asks_etcd_nothing_once_its_time_is_over(town):
    """A request at the end could take its whole timeout."""
    grown(town)
    time = threading.Thread(target=town.clock.advance, args=(30,))

    class Client(Watched):
        def watch(self, *args):
            time.start()  # from now on there is a mailbox that the clock waits for
            return super().watch(*args)

    world = Outside(connect=lambda _: Client(town), clock=town.clock, quiet_s=60)
    line = ["wait", "orders", "--settled", "--timeout", "20"]
    result = CliRunner().invoke(commands, line, obj=world)
    time.join()
    assert result.exit_code == 3, "a probe would end it as Ctrl-C does, since there is no script"


def test_wait_without_etcd_exits_with_1(town, wait):
    town.faults = [EtcdUnavailable("no answer")]
    assert wait("--settled") == (1, "", ["rink: no answer"])


def test_wait_through_an_outage_goes_on_after_it(town, wait):
    grown(town)

    def fail():
        town.faults = [EtcdUnavailable("no answer")]

    done = wait("--settled", script=[fail, lambda: town.record("a", shares=(Share(0, 2, "jump"),))])
    assert done[:2] == (0, "orders: settled at version 2\n")
    assert done[2][1:] == ["no answer", "etcd answers again"]


def test_wait_that_times_out_in_an_outage_exits_with_1(town, wait):
    grown(town)

    class Outage(list):
        def pop(self):
            town.let_pass(20)
            return super().pop()

    def fail():
        town.faults = Outage([EtcdUnavailable("no answer")])

    status, _, told = wait("--settled", "--timeout", "20", script=[fail])
    assert (status, told[-1]) == (1, "rink: no answer")


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (
            {"scheme": "mine@1#abc", "pins": {"x": "a"}},
            "it has pins by a scheme unknown here",
        ),
        ({"number": 2}, "version 2 is not a JSON object"),
    ],
)
def test_wait_until_settled_says_what_cannot_be_told(town, wait, version, told):
    town.settled("a")
    if "number" in version:
        town.write(b"rink/orders/versions/0000000000000002", b"[]")
    else:
        town.version(1, "a", **version)
        town.record("a", shares=(Share(0, 1, "mine@1#abc"),))
    status, _, said = wait("--settled", "--timeout", "0")
    assert status == 3
    assert told in said[-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--settled, --members or --holder"),
        (["--members", "-1"], "--members"),
        (["--holder", ""], "name is empty"),
        (["--settled", "--timeout", "-1"], "--timeout"),
        (["--settled", "--timeout", "nan"], "--timeout"),  # which would never be over
    ],
)
def test_wait_that_is_used_wrongly_exits_with_2(run, options, said):
    result = run("wait", "orders", *options)
    assert result.exit_code == 2
    assert said in result.stderr


# ── rink status --check ──


def test_check_of_a_settled_group_exits_with_0(town, run):
    town.settled("a")
    result = run("status", "orders", "--check")
    assert (result.exit_code, result.stdout) == (0, run("status", "orders").stdout)


def test_check_exits_with_3_where_the_group_is_not_settled(town, run):
    grown(town)
    assert run("status", "orders", "--check").exit_code == 3
    assert run("status", "orders", "--check", "--json").exit_code == 3
    assert run("status", "orders").exit_code == 0


def test_check_exits_with_3_where_a_lease_is_not_renewed(town, run):
    town.settled("a")
    town.clock.advance(21)
    assert run("status", "orders", "--check").exit_code == 3


def test_check_without_answers_on_leases_exits_with_1(town, run):
    town.settled("a")
    town.lease_faults = [EtcdUnavailable("no answer")]
    assert run("status", "orders", "--check").exit_code == 1


def test_check_of_an_unknown_group_exits_with_3(run):
    result = run("status", "orders", "--check")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("rink: there is no group 'orders'")


def test_check_exits_with_1_without_etcd_and_with_2_without_group(town, run):
    town.faults = [EtcdUnavailable("no answer")]
    assert run("status", "orders", "--check").exit_code == 1
    assert run("status", "--check").exit_code == 2


def test_leaving_member_alone_is_settled(town, run):
    town.settled("a")
    town.record("a", phase=LEAVING, shares=(Share(0, 1, "jump"),))
    assert run("status", "orders", "--check").exit_code == 0
    town.etcd.txn((), (Put(b"rink/orders/members/a", b"{}", town.leases["a"]),))
    assert run("status", "orders", "--check").exit_code == 3
