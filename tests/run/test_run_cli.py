"""Test the options of `rink run`, without running it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rink import aio
from rink.cli.commands import commands
from rink.cli.running import run
from rink.cli.sidecar import sidecar
from rink.run import exit_codes, supervisor
from rink.run.exit_codes import ExitStatus
from rink.run.run_settings import RunSettings


@pytest.fixture
def asked(monkeypatch):
    """Run the command line, and return its settings, session and log."""

    def asked(*line):
        seen = []

        def supervise(settings, session, beside):
            seen.extend([settings, session])
            return ExitStatus(3)

        def end(ended):
            seen.append(ended)
            raise SystemExit(ended.code)

        monkeypatch.setattr(supervisor, "supervise", supervise)
        monkeypatch.setattr(exit_codes, "end", end)
        result = CliRunner().invoke(commands, ["run", "--group", "g", "--role", "r", *line])
        return result, seen

    return asked


@pytest.mark.parametrize("name", ["ttl", "handover_wait", "termination_grace", "name"])
def test_run_default_is_that_of_a_sidecar(name):
    """The default of `handover_wait` comes from one function, `with_leave`."""
    ours = run.make_context("run", ["--group", "g", "--role", "r", "true"]).params
    theirs = sidecar.make_context("sidecar", ["--group", "g"]).params
    assert ours[name] == theirs[name]


def test_run_defaults(asked, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    result, (settings, session, ended) = asked("--", "true", "--flag")
    assert result.exit_code == 3
    assert settings == RunSettings(group="g", role="r", command=("true", "--flag"))
    assert isinstance(session, aio.Session)
    assert (session.ttl, settings.grace, settings.handover_wait) == (20, 10.0, 0.0)
    assert ended == ExitStatus(3)


def test_run_in_kubernetes_waits_for_a_successor(asked, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    _, (settings, *_) = asked("--termination-grace", "60", "--", "true")
    assert settings.handover_wait == 20


def test_run_takes_options_of_the_command_as_the_commands(asked):
    _, (settings, *_) = asked("sh", "--group", "x", "-c", "true")
    assert settings.command == ("sh", "--group", "x", "-c", "true")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (["--once", "--restart", "--", "true"], "exclude each other"),
        (["--once-per", "s", "--restart", "--", "true"], "exclude each other"),
        (["--retry-if-unfinished", "--", "true"], "needs --once-per"),
        (["--grace", "-1", "--", "true"], "-1"),
        (["--ttl", "1", "--", "true"], "1"),
        (["--bad", "--", "true"], "--bad"),
        (["--role", "", "--", "true"], "empty"),
        (["--endpoints", ",", "--", "true"], "--endpoints"),
        (["--public", "nowhere", "--", "true"], "is no address"),
        ([], "COMMAND"),
    ],
)
def test_run_with_wrong_usage_exits_with_125(asked, line, text):
    """A command may exit with 2, as click does."""
    result, seen = asked(*line)
    assert result.exit_code == 125
    assert text in result.output
    assert seen == []


def test_run_of_a_command_that_is_missing_joins_nothing(asked):
    result, seen = asked("--", "no-such-command")
    assert result.exit_code == 127
    assert seen == [ExitStatus(127)]


@pytest.mark.parametrize(
    ("line", "slot"), [([], None), (["--once-per", "s"], "s"), (["--once-per"], "minute")]
)
def test_run_once_per_takes_a_slot_or_this_minute(asked, monkeypatch, line, slot):
    monkeypatch.setattr("rink.run.slots.minute_slot", lambda _: "minute")
    _, (settings, *_) = asked(*line, "--", "true")
    assert settings.slot == slot
