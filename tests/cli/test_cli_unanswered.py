"""What a command says while etcd does not answer."""

import importlib
import threading

import pytest
from cli_support import Watched
from click.testing import CliRunner

from rink.cli.commands import HOMES, commands
from rink.cli.options import Outside
from rink.testing import virtual

LINES = [
    (("status", "orders"), "reading group 'orders'"),
    (("groups",), "reading the groups under 'rink/'"),
    (("history", "orders"), "reading group 'orders'"),
    (("owner", "orders", "leader"), "reading group 'orders'"),
    (("wait", "orders", "--settled"), "reading group 'orders'"),
    (("watch", "orders"), "reading group 'orders'"),
    (("forget", "orders", "--yes"), "reading group 'orders'"),
]


class Slow(Watched):
    """Answers only when the command has said on stderr what it waits for."""

    has_said = threading.Event()

    def range(self, key, range_end=b"", *, timeout=None):
        assert self.has_said.wait(virtual.STUCK_AFTER_S)
        return super().range(key, range_end)


@pytest.fixture
def slowly(town, monkeypatch):
    """Runs a command whose etcd is slow; returns what it says on stderr, and its stdout."""
    monkeypatch.delenv("RINK_ETCD", raising=False)
    monkeypatch.setattr(Slow, "has_said", threading.Event())
    said = []

    def say(text):
        said.append(text)
        Slow.has_said.set()

    for home in HOMES.values():  # or a module imported meanwhile would keep the replaced `say`
        importlib.import_module(home)
    monkeypatch.setattr("rink.cli.options.say", say)

    def slowly(*line):
        world = Outside(connect=lambda _: Slow(town), clock=town.clock, quiet_s=0.0, announce_s=0.0)
        return said, CliRunner().invoke(commands, line, obj=world)

    return slowly


@pytest.mark.parametrize(("line", "doing"), LINES)
def test_command_without_an_answer_says_what_it_tries(town, slowly, line, doing):
    """The endpoint, what it does, and until when it waits. No script: `watch` ends with Ctrl-C."""
    town.settled("a")
    said, _ = slowly(*line)
    assert said[0] == (
        f"rink: no answer yet: {doing} from etcd at http://127.0.0.1:2379; it gives up after 5 s"
    )


def test_command_that_is_answered_says_nothing(town, run):
    town.settled("a")
    assert run("status", "orders").stderr == ""
