"""Run examples of the README and of pages on streams and guards as files.

Each is saved as a reader saves it, and nothing is added. Only the addresses of etcd and Redis are
replaced.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "docs"))
from docs_support import README, ROOT, blocks, scripts

from rink.testing import local_etcd

pytestmark = pytest.mark.waits

STREAMS = ROOT / "docs" / "streams.md"
GUARDS = ROOT / "docs" / "guards.md"
STREAMS_WRITE_ONCE = ROOT / "docs" / "streams-write-once.md"
STREAMS_TESTING = ROOT / "docs" / "streams-testing.md"
ETCD = "http://127.0.0.1:2379"
REDIS = "redis://127.0.0.1:6379"
DEADLINE_S = 90.0


def wait_until(condition, otherwise="did not happen"):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)


class Terminal:
    """Run a reader's command and keep the lines that it has printed."""

    def __init__(self, command: str, folder: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": python_path, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as output:
            for line in output:
                self.lines.append(line.rstrip("\n"))

    def having(self, text: str) -> list[str]:
        return [line for line in list(self.lines) if text in line]

    def wait_for(self, text: str, count: int = 1) -> None:
        """Return when `count` lines with this text have been printed."""
        wait_until(lambda: len(self.having(text)) >= count, f"no {text!r} was printed")

    def press_ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(DEADLINE_S)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


@pytest.fixture(scope="module")
def etcd():
    with local_etcd() as node:
        yield node


@pytest.fixture
def save(tmp_path, etcd):
    """Save a file of a page, with other addresses in it."""

    def save(name, redis=REDIS, page=README):
        code = scripts(page)[name]
        assert ETCD in code or page != README
        (tmp_path / name).write_text(code.replace(ETCD, etcd.endpoint).replace(REDIS, redis))

    return save


@pytest.fixture
def open_terminal(tmp_path):
    # A child ignores SIGINT if this process does, as in the background of a shell.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    terminals = []

    def open_terminal(command):
        terminals.append(Terminal(command, tmp_path))
        return terminals[-1]

    yield open_terminal
    for terminal in terminals:
        terminal.end()
    signal.signal(signal.SIGINT, before)


def test_leader_hands_over_on_ctrl_c(save, open_terminal):
    save("leader.py")
    first = open_terminal("python leader.py")
    first.wait_for("I lead, with token")
    second = open_terminal("python leader.py")
    second.wait_for("joined")
    first.wait_for("I lead, with token", len(first.having("I lead")) + 1)
    assert not second.having("I lead")
    first.press_ctrl_c()
    second.wait_for("I lead, with token")


def test_share_divides_the_roles(save, open_terminal):
    save("share.py")
    first, second = (open_terminal("python share.py") for _ in range(2))

    def are_divided():
        """Return whether each role is in one terminal; two threads read them."""
        one, other = held(first), held(second)
        return one and other and len(one) + len(other) == 8 == len(one | other)

    wait_until(are_divided)
    first.press_ctrl_c()
    wait_until(lambda: len(held(second)) == 8)


def held(terminal):
    """Return the roles that were gained and not lost."""
    roles = set()
    for line in list(terminal.lines):
        what, _, role = line.partition(" ")
        if what == "gained":
            roles.add(role)
        elif what == "lost":
            roles.discard(role)
    return roles


def test_shop_processes_a_record(save, open_terminal, rink_redis):
    save("shop.py", rink_redis.url)
    commands = [block.code for block in blocks(README, "sh") if "shop:app" in block.code]
    worker, send = (open_terminal(command.strip()) for command in commands)
    send.wait_for(" in partition ")
    worker.wait_for("ann pays 5")


def test_programs_of_the_streams_page_send_records(save, open_terminal, rink_redis):
    for name in scripts(STREAMS):
        save(name, rink_redis.url, STREAMS)
    worker = open_terminal("rink worker shop:app")
    open_terminal("python send.py").wait_for(" 1000")
    worker.wait_for(" pays ", 1001)
    open_terminal("python send_one.py")
    worker.wait_for("bob pays 7")


def test_payouts_of_the_guards_page_are_written_once(save, open_terminal, tmp_path):
    save("pay.py", page=GUARDS)
    for _ in range(2):
        assert open_terminal("python pay.py").process.wait(DEADLINE_S) == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "pay.db")) as database:
        payouts = database.execute("SELECT * FROM payouts ORDER BY number, who").fetchall()
    assert payouts == [(1, "ann", 100), (2, "bob", 250), (2, "eve", 5)]


def test_payment_that_is_sent_twice_is_booked_once(save, open_terminal, tmp_path, rink_redis):
    save("bank.py", rink_redis.url, STREAMS_WRITE_ONCE)
    (send,) = [block.code for block in blocks(STREAMS_WRITE_ONCE, "sh")]
    worker = open_terminal("rink worker bank:app")
    for command in (send, send, send.replace("p1", "p2")):
        assert open_terminal(command).process.wait(DEADLINE_S) == 0

    def rows(table):
        with contextlib.closing(sqlite3.connect(tmp_path / "bank.db", timeout=30)) as database:
            return database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()

    worker.wait_for("granted role")
    wait_until(lambda: "booked" in {row[1] for row in rows("sqlite_master")})
    wait_until(lambda: rows("booked") == [("p1",), ("p2",)])
    assert rows("totals") == [("ann", 1000)]


def test_tests_of_processors_pass(save, open_terminal):
    for name in scripts(STREAMS_TESTING):
        save(name, page=STREAMS_TESTING)
    open_terminal("python -m pytest").wait_for("2 passed")
