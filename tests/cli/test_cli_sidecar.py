"""Test the options of `rink sidecar`, and those that it refuses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rink.sidecar import program as module
from rink.sidecar.listeners import Address
from rink.sidecar.program import SidecarSettings


@pytest.fixture
def made(monkeypatch):
    """Note the arguments of each sidecar, and run none."""
    made = []

    class Noted:
        def __init__(self, settings, session, make):
            self.settings, self.session, self.member = settings, session, make()
            made.append(self)

        async def run(self):
            await self.session.close()

    monkeypatch.setattr(module, "Program", Noted)
    unused = SimpleNamespace(collect=int, freeze=int, set_threshold=lambda *_: None)
    monkeypatch.setattr("rink.cli.sidecar.gc", unused)
    return made


def test_sidecar_without_options_has_the_defaults_of_the_design(run, made):
    result = run("sidecar", "--group", "orders", KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert result.exit_code == 0, result.output
    (program,) = made
    assert program.settings == SidecarSettings(
        listen=Address("127.0.0.1", 8181),
        public=Address("0.0.0.0", 8182),
        hold_s=10.0,
        absent_s=10.0,
        grace_s=60.0,
        roles=(),
        label_pod=(),
        files=None,
        bearer=None,
        socket_group=None,
        insecure=False,
        max_streams=256,
        page="",
    )
    assert program.session.ttl == 20
    member = program.member._settings
    assert member.ranking.rebalance_delay == 60.0
    assert member.ranking.handover_wait == 20.0
    assert member.ranking.leave_delay == 0.0
    assert (member.grace, member.join_timeout, member.leave_timeout) == (None, 10.0, 10.0)


def test_sidecar_options_reach_the_settings(run, made):
    line = "--name pod-1 --hold 3 --absent 4 --grace 5 --max-streams 6 --role a --role b --page"
    more = "--listen [::1]:1 --public 10.0.0.1:2 --ttl 9 --rebalance-delay 7 --handover-wait 8"
    result = run("sidecar", "--group", "orders", *line.split(), *more.split())
    assert result.exit_code == 0, result.output
    (program,) = made
    assert program.settings == SidecarSettings(
        listen=Address("::1", 1),
        public=Address("10.0.0.1", 2),
        hold_s=3.0,
        absent_s=4.0,
        grace_s=5.0,
        roles=("a", "b"),
        max_streams=6,
        page="orders",
    )
    assert program.session.ttl == 9
    assert program.member.name == "pod-1"
    ranking = program.member._settings.ranking
    assert (ranking.rebalance_delay, ranking.handover_wait) == (7.0, 8.0)


@pytest.mark.parametrize("name", ["a/b", "../x", "é", "-", "x" * 2_000])
def test_sidecar_takes_any_name_that_a_key_can_have(run, made, name):
    result = run("sidecar", "--group", "orders", "--name", name)
    assert result.exit_code == 0, result.output
    assert made[0].member.name == name


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--name", ""], "member name is empty"),
        (["--name", "x" * 9_000], "the limit is"),
        (["--name", "\udcff"], "not valid unicode"),
        (["--group", ""], "group name is empty"),
        (["--role", "", "--grace", "1"], "role name is empty"),
        (["--role", "a"], "--role needs --grace"),
        (["--page", "--public", ""], "--page needs --public"),
        (["--socket-group", "staff"], "--socket-group needs --listen unix:PATH"),
        (["--listen", "127.0.0.1"], "give HOST:PORT, or unix:PATH"),
        (["--public", "nowhere"], "give HOST:PORT, or unix:PATH"),
        (["--listen", "0.0.0.0:8181"], "no loopback address"),
        (["--listen", "localhost:8181"], "no loopback address"),
        (["--label-pod", "a/b"], "--label-pod 'a/b'"),
        (["--public", "unix:/run/probes"], "no address for probes"),
        (["--hold", "0.5"], "not in the range"),
        (["--ttl", "1"], "not in the range"),
        (["--handover-wait", "inf"], "not a number of seconds"),
        (["--max-streams", "0"], "not in the range"),
    ],
)
def test_sidecar_refuses_wrong_usage_with_2_before_it_begins(run, made, options, says):
    result = run("sidecar", "--group", "orders", *options)
    assert says in " ".join(result.stderr.split())
    assert (result.exit_code, made) == (2, [])
    assert "Traceback" not in result.stderr
