"""Test the lines of a command while etcd does not answer."""

import asyncio
import importlib
import json
import subprocess
import sys
import threading
import time

import click
import pytest
from cli_support import Watched
from click.testing import CliRunner

from rink.cli import main, process_started_at
from rink.cli.apps import etcd_of, load, redis_of
from rink.cli.commands import HOMES, commands
from rink.cli.options import MIN_ANNOUNCE_AFTER_S, Outside, outside
from rink.streams import RedisUnavailable, admin
from rink.streams.admin import DeadLetters
from rink.testing.virtual_clock import BUSY_TIMEOUT_S

LINES = [
    (("status", "orders"), "reading group 'orders'"),
    (("groups",), "reading the groups under 'rink/'"),
    (("history", "orders"), "reading group 'orders'"),
    (("owner", "orders", "leader"), "reading group 'orders'"),
    (("wait", "orders", "--settled"), "reading group 'orders'"),
    (("watch", "orders"), "reading group 'orders'"),
    (("forget", "orders", "--yes"), "reading group 'orders'"),
    (("plan", "orders", "--spark", "nowhere.csv"), "reading group 'orders'"),
]

REDIS_LINES = [
    (("streams", "owners"), "owners", " and etcd at http://one:1, http://two:2"),
    (("streams", "lag"), "lag", ""),
    (("streams", "dead"), "dead_letters", ""),
    (("streams", "unquarantine"), "unquarantine", ""),
]

NO_WAIT = {"announce_s": 0.0, "quiet_s": 0.0}

SHOP = """
    from rink.streams import App

    app = App("shop", redis="redis://u:secret@h:7/0", etcd="http://u:secret@one:1,http://two:2")
"""


class Slow(Watched):
    """Answer only after the command has named its request on stderr."""

    has_said = threading.Event()

    def range(self, key, range_end=b"", *, timeout=None):
        assert self.has_said.wait(BUSY_TIMEOUT_S)
        return super().range(key, range_end)


@pytest.fixture
def slowly(town, monkeypatch):
    """Run a command on a slow etcd, and return its stderr and stdout."""
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
        world = Outside(connect=lambda _: Slow(town), clock=town.clock, **NO_WAIT)
        return said, CliRunner().invoke(commands, line, obj=world)

    return slowly


@pytest.mark.parametrize(("line", "doing"), LINES)
def test_command_without_an_answer_says_what_it_tries(town, slowly, line, doing):
    """The line has the endpoint, the request and its timeout.

    `watch` has no script here, so it ends with Ctrl-C.
    """
    town.settled("a")
    said, _ = slowly(*line)
    assert said[0] == (
        f"rink: no answer yet: {doing} from etcd at http://127.0.0.1:2379; the command gives up "
        "after 5 s"
    )


def test_command_that_is_answered_says_nothing(town, run, monkeypatch):
    timers = []

    class Noted(threading.Timer):
        def start(self):
            timers.append(self)
            super().start()

    monkeypatch.setattr("rink.cli.options.threading.Timer", Noted)
    town.settled("a")
    assert run("status", "orders").stderr == ""
    assert [timer.finished.is_set() for timer in timers] == [True] * 2, "the group, and its leases"


@pytest.mark.parametrize(("line", "name", "more"), REDIS_LINES)
def test_streams_command_without_an_answer_names_its_servers(
    slowly, module, monkeypatch, line, name, more
):
    """The line does not show the password of the URL."""

    async def answers(app, *_, **__):
        assert await asyncio.to_thread(Slow.has_said.wait, BUSY_TIMEOUT_S)
        return DeadLetters(total=0, letters=()) if name == "dead_letters" else ()

    monkeypatch.setattr(admin, name, answers)
    said, result = slowly(*line, f"{module(SHOP)}:app")
    assert result.exit_code == 0, result.output
    assert said == [f"rink: no answer yet: asking Redis at h:7{more}"]


def test_streams_command_of_an_app_that_connects_itself_says_so(module):
    text = SHOP.replace("redis=", "redis=lambda: ").replace("etcd=", "etcd=lambda: ")
    app = load(f"{module(text)}:app")
    assert redis_of(app) == "Redis, as the app connects to it"
    assert etcd_of(app) == "etcd, as the app connects to it"


@pytest.mark.parametrize("line", [("send", '{"order_id": 1}'), ("sendmany", "--file", "-")])
def test_send_without_an_answer_names_its_redis(slowly, shop, monkeypatch, line):
    async def opened(_):
        assert await asyncio.to_thread(Slow.has_said.wait, BUSY_TIMEOUT_S)
        raise RedisUnavailable("no answer")

    monkeypatch.setattr("rink.streams.app_connections.Connections.open", opened)
    said, result = slowly(line[0], shop, "orders", *line[1:])
    assert result.exit_code == 1
    assert said == ["rink: no answer yet: asking Redis at 127.0.0.1:1"]


@pytest.mark.parametrize(
    ("started_at", "delay"), [(None, 0.6), (100.0, 0.6), (99.8, 0.4), (90.0, MIN_ANNOUNCE_AFTER_S)]
)
def test_announce_delay_counts_from_the_start_of_the_process(started_at, delay):
    """A process that started slowly still gives etcd a moment."""
    world = Outside(announce_s=0.6, started_at=started_at)
    assert world.announce_after(100.0) == pytest.approx(delay)


def test_main_gives_the_command_the_start_of_its_process(monkeypatch):
    """`outside` counts from the start of the process."""
    seen = []

    @click.command()
    def command():
        seen.append(outside().started_at)

    monkeypatch.setattr("rink.cli.commands.commands", command)
    monkeypatch.setattr("rink.cli.process_started_at", lambda: 12.5)
    monkeypatch.setattr("sys.argv", ["rink"])
    with pytest.raises(SystemExit):
        main()
    assert seen == [12.5]


TICK_S = 0.02
"""The system counts in hundredths of a second."""

STARTER = """
import json, time
first = time.monotonic()
from rink.cli import process_started_at
import asyncio, email.message, http.client
print(json.dumps([process_started_at(), first, time.monotonic()]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="clocks of two processes are compared")
def test_process_start_is_before_all_that_the_process_did():
    before = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", STARTER], check=True, capture_output=True, text=True
    )
    started, first, last = json.loads(done.stdout)
    assert before - TICK_S <= started <= first + TICK_S < last


def test_process_start_is_guessed_where_the_system_does_not_tell(monkeypatch):
    def refuse(*_):
        raise OSError

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    before = time.monotonic() - time.process_time()
    guess = process_started_at()
    assert before - 0.5 <= guess <= time.monotonic() - time.process_time() + 0.5
