"""Test the clients of examples/sidecar on real sidecars and a real etcd."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import attrs
import pytest
from sidecar_support import DEADLINE_S, Sidecar, wait_for

from rink import rank_of
from rink.testing import local_etcd

pytestmark = [pytest.mark.waits, pytest.mark.timeout(240)]  # Go's first build takes a minute

EXAMPLES = Path(__file__).parents[2] / "examples" / "sidecar"
CLOSED = "http://127.0.0.1:1"
PROXIES = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"), CLOSED)
ROLE = next(name for name in map("job-{}".format, range(99)) if rank_of(name, 2) == 0)
"""A role that stays where it is when a second sidecar joins."""
LONGEST_HOLD_S = 3.0
SLACK_S = 1.0


@attrs.frozen
class Language:
    """Hold the file of one client and the program that runs it."""

    name: str
    tool: str
    file: str

    def command(self, folder):
        """Build it in a folder if needed, and return its command."""
        file = str(EXAMPLES / self.name / self.file)
        if self.name == "go":
            built = str(folder / "hold")
            subprocess.run([self.tool, "build", "-o", built, file], check=True, timeout=200)
            return [built]
        if self.name == "java":
            subprocess.run(["javac", "-d", str(folder), file], check=True, timeout=200)
            return [self.tool, "-cp", str(folder), "Hold"]
        return [self.tool, file]

    @property
    def missing(self):
        """Return the tools that it needs but that are not installed."""
        tools = [self.tool, "javac"] if self.name == "java" else [self.tool]
        return [tool for tool in tools if shutil.which(tool) is None]


LANGUAGES = [
    Language("shell", "sh", "hold.sh"),
    Language("php", "php", "hold.php"),
    Language("python", "python3", "hold.py"),
    Language("node", "node", "hold.mjs"),
    Language("go", "go", "hold.go"),
    Language("java", "java", "Hold.java"),
]


class Clients:
    """Run programs of one role, which write into one file.

    The lines are in the order of writing.
    """

    def __init__(self, file, command, role=ROLE):
        self._file = file
        self._command = command
        self._role = role
        self._running = []

    def start(self, sidecar, around=()):
        """Start a program that calls a sidecar."""
        with self._file.open("ab") as written:
            env = {**os.environ, **PROXIES, "RINK_API": sidecar.api}
            line = [*around, *self._command, self._role]
            self._running.append(subprocess.Popen(line, stdout=written, env=env))
        return self._running[-1]

    def tokens(self):
        """Return the token of each line so far."""
        read = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        roles = [line.split() for line in read.split("\n")[:-1]]  # the last may be half written
        assert {role for role, _ in roles} <= {self._role}
        return [int(token) for _, token in roles]

    def next_token(self, above=0, lines=3):
        """Wait for lines with a token above this one, and return the token."""

        def token():
            found = [token for token in self.tokens() if token > above]
            return found[-1] if len(found) >= lines else 0

        return wait_for(token, lambda: f"no lines with a token above {above}: {self.tokens()}")

    def write_on(self, lines=3):
        """Wait for more lines of the present token."""
        before = len(self.tokens())
        wait_for(lambda: len(self.tokens()) >= before + lines, "nothing more is written")

    def close(self):
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture(scope="module")
def command_of(tmp_path_factory):
    """Return the command of a language, which is built once."""

    @functools.cache
    def command_of(language):
        return language.command(tmp_path_factory.mktemp(language.name))

    return command_of


@pytest.fixture(params=LANGUAGES, ids=lambda language: language.name)
def clients(request, tmp_path, command_of):
    """Start programs in one language; all have ended at the end."""
    if request.param.missing:
        pytest.skip(f"not installed: {request.param.missing}")
    made = Clients(tmp_path / "written", command_of(request.param))
    yield made
    made.close()


@pytest.fixture
def each(tmp_path, command_of):
    """Start programs in each installed language, with a role for each.

    All have ended at the end.
    """
    made = {
        language.name: Clients(tmp_path / language.name, command_of(language), language.name)
        for language in LANGUAGES
        if not language.missing
    }
    yield made
    for clients in made.values():
        clients.close()


def test_client_works_through_kill_restart_and_drain(clients, sidecar):
    """The sidecar is killed, another client takes over, and hands back.

    The client hands the role back when its sidecar is drained. Lines lie in one file in the order
    of writing. So the tokens are sorted exactly if no old holder has written after a new one.
    """
    first, second = sidecar("first"), sidecar("second")
    survivor = clients.start(first)
    token = clients.next_token()
    idle = clients.start(first)
    wait_for(lambda: len(first.call("GET", "/v1/status")[1]["consumers"]) == 2, first.said)
    idle.terminate()
    assert idle.wait(DEADLINE_S) == 0  # it holds nothing

    leaver = clients.start(second)
    wait_for(lambda: second.call("GET", f"/v1/role?name={ROLE}")[1]["owner"], second.said)

    first.kill()
    taken = clients.next_token(above=token)
    first.start()
    wait_for(lambda: first.call("GET", f"/v1/role?name={ROLE}")[1]["owner"], first.said)
    clients.write_on()

    leaver.terminate()
    clients.write_on()  # nobody has told it of a loss: it stays
    assert leaver.poll() is None
    second.drain()
    assert leaver.wait(DEADLINE_S) == 0
    assert clients.next_token(above=taken) > taken
    assert "is over: the consumer answered" in second.said(), (
        "the loss was waited out, not answered"
    )

    tokens = clients.tokens()
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 3
    assert survivor.poll() is None


SHIFTED = ("unshare", "--time", "--boottime", "100000", "--fork", "--kill-child")


def test_clients_with_another_clock_stop_by_what_was_left(each, sidecar):
    """The clients' clock is a day ahead, and their sidecar is killed."""
    can_shift = shutil.which("unshare") and subprocess.run([*SHIFTED, "true"], check=False)
    if not can_shift or can_shift.returncode:
        pytest.skip("needs `unshare --time`, and root, to shift a clock")
    alone = sidecar("alone")
    programs = {name: clients.start(alone, SHIFTED) for name, clients in each.items()}
    for clients in each.values():
        clients.next_token()
    alone.kill()
    time.sleep(LONGEST_HOLD_S + SLACK_S)  # nothing is to happen after this, so it cannot be awaited
    before = {name: len(clients.tokens()) for name, clients in each.items()}
    time.sleep(SLACK_S)
    assert {name: len(clients.tokens()) for name, clients in each.items()} == before
    assert [name for name, program in programs.items() if program.poll() is not None] == []


def losses(sidecar):
    """Return the roles of the losses that a sidecar has told its clients.

    A turn's end and the session's deadline are one moment. So the log may name either as the cause.
    """
    return set(re.findall(r'role "(.+)": lost by', sidecar.said()))


def turns(sidecar):
    """Return the turns that have not ended."""
    consumers = sidecar.call("GET", "/v1/status")[1]["consumers"]
    return [turn for consumer in consumers for turn in consumer["turns"]]


def test_clients_hold_their_roles_again_after_an_outage_of_etcd(each, tmp_path, prefix):
    """The member's session ends, and so do all turns.

    A client that answers waits for its role.
    """
    with local_etcd() as node:
        sidecar = Sidecar(tmp_path, "only", node.endpoint, prefix).start()
        try:
            for clients in each.values():
                clients.start(sidecar)
            for clients in each.values():
                clients.next_token()
            node.freeze()
            wait_for(lambda: losses(sidecar) >= set(each) and not turns(sidecar), sidecar.said)
            tokens = {name: clients.tokens()[-1] for name, clients in each.items()}
            node.thaw()
            for name, clients in each.items():
                assert clients.next_token(above=tokens[name]) > tokens[name]
        finally:
            sidecar.kill()
    for clients in each.values():
        assert clients.tokens() == sorted(clients.tokens())
