"""The clients of examples/sidecar, each against real sidecars and a real etcd."""

from __future__ import annotations

import os
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
    """One client: the program that runs it, and its file."""

    name: str
    tool: str
    file: str

    def command(self, folder):
        """Return the command that runs it, or skip the test where its tool is missing."""
        file = str(EXAMPLES / self.name / self.file)
        tool = shutil.which(self.tool)
        if tool is None:
            pytest.skip(f"{self.tool} is not installed")
        if self.name == "go":
            built = str(folder / "hold")
            subprocess.run([tool, "build", "-o", built, file], check=True, timeout=200)
            return [built]
        if self.name == "java":
            compiler = shutil.which("javac")
            if compiler is None:
                pytest.skip("javac is not installed, only a Java runtime")
            subprocess.run([compiler, "-d", str(folder), file], check=True, timeout=200)
            return [tool, "-cp", str(folder), "Hold"]
        return [tool, file]


LANGUAGES = [
    Language("shell", "sh", "hold.sh"),
    Language("php", "php", "hold.php"),
    Language("python", "python3", "hold.py"),
    Language("node", "node", "hold.mjs"),
    Language("go", "go", "hold.go"),
    Language("java", "java", "Hold.java"),
]


class Clients:
    """Running programs, which write into one file: it has their lines in the order of writing."""

    def __init__(self, folder, command):
        self._file = folder / "written"
        self._command = command
        self._running = []

    def start(self, sidecar, around=()):
        """Start a program that calls a sidecar."""
        with self._file.open("ab") as written:
            env = {**os.environ, **PROXIES, "RINK_API": sidecar.api}
            line = [*around, *self._command, ROLE]
            self._running.append(subprocess.Popen(line, stdout=written, env=env))
        return self._running[-1]

    def tokens(self):
        """Return the token of each line so far."""
        read = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        roles = [line.split() for line in read.split("\n")[:-1]]  # the last may be half written
        assert {role for role, _ in roles} <= {ROLE}
        return [int(token) for _, token in roles]

    def next_token(self, above=0, lines=3):
        """Wait for lines with a token above this one, and return it."""

        def token():
            found = [token for token in self.tokens() if token > above]
            return found[-1] if len(found) >= lines else 0

        return wait_for(token, lambda: f"no lines with a token above {above}: {self.tokens()}")

    def write_on(self, lines=3):
        """Wait for more lines of the token that is written."""
        before = len(self.tokens())
        wait_for(lambda: len(self.tokens()) >= before + lines, "nothing more is written")

    def close(self):
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture(params=LANGUAGES, ids=lambda language: language.name)
def clients(request, tmp_path):
    """Starts programs in one language; all have ended at the end."""
    made = Clients(tmp_path, request.param.command(tmp_path))
    yield made
    made.close()


def test_client_works_through_kill_restart_and_drain(clients, sidecar):
    """Its sidecar is killed, another's client takes over, and hands back when it is drained.

    Lines lie in one file in the order of writing. So the tokens are sorted exactly if no old holder
    has written after a new one.
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
    assert "is done with it: answered" in second.said(), "the loss was waited out, not answered"

    tokens = clients.tokens()
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 3
    assert survivor.poll() is None


SHIFTED = ("unshare", "--time", "--boottime", "100000", "--fork", "--kill-child")


def test_client_with_another_clock_stops_by_what_was_left(clients, sidecar):
    """Its clock is a day ahead of the sidecar's, which is then killed."""
    can_shift = shutil.which("unshare") and subprocess.run([*SHIFTED, "true"], check=False)
    if not can_shift or can_shift.returncode:
        pytest.skip("needs `unshare --time`, and root, to shift a clock")
    alone = sidecar("alone")
    program = clients.start(alone, SHIFTED)
    clients.next_token()
    alone.kill()
    time.sleep(LONGEST_HOLD_S + SLACK_S)  # nothing is to happen after this, so it cannot be awaited
    before = len(clients.tokens())
    time.sleep(SLACK_S)
    assert len(clients.tokens()) == before
    assert program.poll() is None


def test_client_holds_its_role_again_after_an_outage_of_etcd(clients, tmp_path, prefix):
    """The member's session ends, and so do all turns. A client that answers waits for its role."""
    with local_etcd() as node:
        sidecar = Sidecar(tmp_path, "only", node.endpoint, prefix).start()
        try:
            clients.start(sidecar)
            token = clients.next_token()
            node.freeze()
            wait_for(lambda: "its end has passed" in sidecar.said(), sidecar.said)
            written = len(clients.tokens())
            node.thaw()
            assert clients.next_token(above=token) > token
        finally:
            sidecar.kill()
    assert set(clients.tokens()[:written]) == {token}
