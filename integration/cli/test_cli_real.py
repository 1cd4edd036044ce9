"""Test the command as a process, on a real etcd and real members."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_lines import DEADLINE_S, Lines, wait_for, without_announcements

import rink
from rink.etcd.client import Client
from rink.etcd.server_versions import advice
from rink.testing import local_etcd

RINK = [sys.executable, "-m", "rink.cli"]


@pytest.fixture
def command(etcd_url, prefix):
    """Run `rink` to its end."""

    def command(*line):
        ended = subprocess.run(
            [*RINK, *line, "--prefix", prefix],
            check=False,
            env={**os.environ, "RINK_ETCD": etcd_url},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        return without_announcements(ended)

    return command


@pytest.fixture
def member(etcd_url, prefix):
    """Make members of a group, each with a session of its own."""

    @contextlib.contextmanager
    def member(name, **settings):
        with (
            rink.Session(etcd_url, prefix=prefix) as session,
            rink.Rink(session, "orders", name=name, rebalance_delay=0, **settings) as joined,
        ):
            yield joined

    return member


def until(lines, event, **facts):
    """Read JSON lines up to an event, and return all of them."""
    read = []
    while not read or {**read[-1], "event": event, **facts} != read[-1]:
        read.append(json.loads(lines.next()))
    return read


def test_status_sees_members_without_being_one(command, member):
    with member("a", labels={"az": "eu"}) as a, member("b"):
        assert a.wait_settled(DEADLINE_S)
        wait_for(lambda: len(a.version.ranks) == 2 and a.wait_settled(DEADLINE_S))
        before = a.version
        result = command("status", "orders", "--json")
        assert (result.returncode, result.stderr) == (0, "")
        look = json.loads(result.stdout)
        status = a.status()
        assert (a.version, len(status.members)) == (before, 2)
        assert (look["coordinator"], look["settled"], look["in_the_way"]) == ("a", True, [])
        assert look["ranks"] == list(status.ranks) == ["a", "b"]
        assert look["members"][0]["labels"] == {"az": "eu"}
        text = command("status", "orders").stdout
        assert "2 ranks · jump · a coordinates · settled" in text
        groups = json.loads(command("groups", "--json").stdout)["groups"]
        assert [(group["group"], group["members"]) for group in groups] == [("orders", 2)]


def test_member_that_does_not_let_go_is_seen_to_be_in_the_way(command, member):
    with member("a") as a:
        held = [a.await_role(f"job-{number}") for number in range(16)]
        with member("b"):
            wait_for(lambda: a.status().draining)

            def look_at_draining():
                """Return the look once the record of `a` is written, too."""
                look = json.loads(command("status", "orders", "--json").stdout)
                return look if look["members"][0]["draining"] else None

            look = wait_for(look_at_draining)
            lost = sorted(role.name for role in held if role.lost.is_set())
            assert look["settled"] is False
            assert look["members"][0]["draining"] == lost != []
            (way,) = look["in_the_way"]
            assert way["member"] == "a"
            assert way["why"].startswith(f"has not released {lost[0]}")
            for role in held:
                role.release()
            wait_for(lambda: json.loads(command("status", "orders", "--json").stdout)["settled"])


def test_watch_sees_a_join_and_a_leave_and_ends_by_ctrl_c(etcd_url, prefix, member):
    line = [*RINK, "watch", "orders", "--wait", "--prefix", prefix]
    with Lines(line, RINK_ETCD=etcd_url) as watch:
        assert until(watch, "status")[-1]["members"] == []
        with member("a"):
            until(watch, "settled", version=1)
            with member("b"):
                seen = until(watch, "settled", version=2)
                kinds = [event["event"] for event in seen]
                assert [kind for kind in kinds if kind in {"joined", "version"}] == [
                    "joined",
                    "version",
                ]
                assert seen[kinds.index("joined")]["member"] == "b"
                assert seen[kinds.index("version")]["because"] == ["joined b"]
            seen = until(watch, "gone", member="b")
            kinds = [event["event"] for event in seen]
            assert kinds.index("leaving") < kinds.index("version") < kinds.index("gone")
            assert seen[kinds.index("version")]["because"] == ["left b"]
        assert watch.end(signal.SIGINT) == 0


def test_history_tells_what_each_version_changed(command, member):
    with member("a") as a:
        assert a.wait_settled(DEADLINE_S)
        with member("b") as b:
            # The history does not list a member that leaves before it sees its own rank.
            wait_for(lambda: b.version is not None and b.version.number == 2)
            assert b.wait_settled(DEADLINE_S)
        wait_for(lambda: a.version.number == 3)
        versions = json.loads(command("history", "orders", "--json").stdout)["versions"]
        assert [version["because"][-1] for version in versions] == [
            "joined a",
            "joined b",
            "left b",
        ]
        assert [version["changed"]["ranks"] for version in versions[1:]] == [
            [{"rank": 1, "before": None, "after": "b"}],
            [{"rank": 1, "before": "b", "after": None}],
        ]
        text = command("history", "orders", "--last", "1").stdout
        assert "rank 1: b → -" in text
        assert "rank 0" not in text


def test_errors_are_one_line_on_stderr(command):
    unknown = command("status", "nobody-here")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr.startswith("rink: there is no group 'nobody-here'")


@pytest.mark.parametrize(
    "line",
    [
        "status orders",
        "status",
        "groups",
        "history orders",
        "owner orders leader",
        "wait orders --settled",
        "watch orders",
        "forget orders --yes",
        "plan orders --spark roles.csv",
    ],
)
def test_command_that_all_endpoints_refuse_fails_at_once(command, line):
    """Without a first read, `wait` and `watch` have no group to follow."""
    options = ["--endpoints", "http://127.0.0.1:1,http://127.0.0.2:1"]
    if not line.startswith("wait"):
        options += ["--timeout", str(4 * DEADLINE_S)]
    refused = command(*line.split(), *options)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(
        "rink: no etcd listens at http://127.0.0.1:1, http://127.0.0.2:1: "
        "the connection was refused"
    )
    assert refused.stderr.count("\n") == 1


@pytest.fixture
def silent():
    """Yield the port of a listener that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


SILENT_APP = """
from rink.streams import App
app = App("shop", redis="redis://127.0.0.1:{port}", etcd="http://127.0.0.1:{port}")
"""

MAX_SILENCE_S = 4.0
"""Bound for a busy machine, below the timeout of 5 s. An idle machine needs 0.8 s."""


@pytest.mark.parametrize(
    ("line", "tried"),
    [
        ("status orders --endpoints {url}", "reading group 'orders' from etcd at {url}"),
        ("owner orders a --endpoints {url}", "reading group 'orders' from etcd at {url}"),
        (
            "plan orders --spark roles.csv --endpoints {url}",
            "reading group 'orders' from etcd at {url}",
        ),
        ("streams owners silent:app", "asking Redis at 127.0.0.1:{port} and etcd at {url}"),
        ("streams lag silent:app", "asking Redis at 127.0.0.1:{port}"),
    ],
)
def test_command_says_within_a_second_what_it_tries(tmp_path, silent, line, tried):
    """The time counts from the start of the process.

    The best of three tries counts, since the machine may be busy.
    """
    where = {"port": silent, "url": f"http://127.0.0.1:{silent}"}
    (tmp_path / "silent.py").write_text(SILENT_APP.format(**where))
    waited = []
    for _ in range(3):
        began = time.monotonic()
        with Lines([*RINK, *line.format(**where).split()], tmp_path, "stderr") as command:
            said = command.next()
            waited.append(time.monotonic() - began)
        assert said.startswith(f"rink: no answer yet: {tried.format(**where)}")
        if waited[-1] < MAX_SILENCE_S:
            return
    pytest.fail(f"it said nothing for {waited} s")


def test_join_that_all_endpoints_refuse_waits_for_etcd():
    """Port 1 has no server. A worker joins its groups in the same way."""
    with rink.Session("http://127.0.0.1:1", timeout=0.5) as session:
        waits = rink.Rink(session, "orders", join_timeout=1.0)
        with pytest.raises(rink.RinkError, match="did not answer"):
            waits.join()


@contextlib.contextmanager
def dev(*options):
    """Run `rink dev` on a free port; yield it and its endpoint.

    The endpoint is the one that its greeting says to copy.
    """
    with Lines([*RINK, "dev", "--port", "0", *options], RINK_TEST_ETCD="") as server:
        while "export RINK_ETCD=" not in (line := server.next()):
            pass
        yield server, line.strip().removeprefix("export RINK_ETCD=")


def processes(mark):
    """Return the command lines of running processes with a mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if mark in line]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_dev_is_used_through_rink_etcd_and_leaves_nothing_behind(monkeypatch, number):
    with dev() as (server, url):
        monkeypatch.setenv("RINK_ETCD", url)
        with (
            rink.Session() as session,
            rink.Rink(session, "orders") as joined,
            joined.await_role("leader", timeout=DEADLINE_S) as role,
        ):
            assert role.is_held
        (command,) = processes(f"--listen-client-urls={url}")
        folder = Path(
            next(word for word in command.split() if word.startswith("--data-dir=")).split("=")[1]
        )
        assert folder.exists()
        assert server.end(number) == 0
        assert processes(url) == []
        assert not folder.parent.exists()


JOIN = """
import rink
with rink.Session() as session, rink.Rink(session, "g") as r:
    r.wait_settled()
    input()  # a thread of the session asks for the version, and may be late
"""


def test_client_of_dev_does_not_warn_of_the_faults_of_its_etcd():
    """The server has the name that `rink dev` gives.

    A client warns of any other etcd.
    """
    with dev() as (_, url), local_etcd(fsync=False) as other:
        for endpoint, warns in ((url, False), (other.endpoint, True)):
            with Client([endpoint]) as client:
                old = advice(client.version()) is not None
            env = {**os.environ, "RINK_ETCD": endpoint}
            command, pipe = [sys.executable, "-c", JOIN], subprocess.PIPE
            with subprocess.Popen(command, env=env, stdin=pipe, stderr=pipe, text=True) as joined:
                if warns and old:
                    assert any("has known faults" in line for line in joined.stderr)
                _, rest = joined.communicate("\n")
            assert joined.returncode == 0
            assert "has known faults" not in rest  # it is said once, or never


def test_dev_keeps_its_data_where_it_is_told(tmp_path):
    for number in (1, 2):
        with dev("--data-dir", str(tmp_path)) as (server, url):
            name = f"member-{number}"  # a new one, so that there is a new version
            with rink.Session(url) as session, rink.Rink(session, "orders", name=name) as joined:
                wait_for(lambda r=joined, n=number: r.version and r.version.number == n)
            assert server.end(signal.SIGINT) == 0
            assert processes(url) == []


# ── questions of scripts ──


def test_owner_of_a_role_follows_its_hand_over(command, member, etcd_url, prefix):
    def drained_by_a():
        look = json.loads(command("status", "orders", "--json").stdout)
        return look["members"][0]["draining"]

    with member("a") as a:
        with a.await_role("leader", timeout=DEADLINE_S):
            held = command("owner", "orders", "leader", "--json")
            (role,) = json.loads(held.stdout)["roles"]
            assert (held.returncode, role["holder"], role["next"]) == (0, "a", None)
        held = [a.await_role(f"job-{number}") for number in range(16)]
        with member("b"):
            lost = wait_for(lambda: a.status().draining)[0]
            wait_for(lambda: lost in drained_by_a())  # its record is written, too
            asked = command("owner", "orders", lost, "--json")
            (role,) = json.loads(asked.stdout)["roles"]
            assert (asked.returncode, role["owner"], role["holder"]) == (3, "b", "a")
            assert (role["why"], role["since"]["version"]) == ("a has not released it", 2)
            line = [*RINK, "wait", "orders", "--holder", lost, "--prefix", prefix]
            with Lines(line, RINK_ETCD=etcd_url) as waits:
                for one in held:
                    one.release()
                assert waits.next() == f"orders: b holds {lost}\n"
                assert waits.process.wait(DEADLINE_S) == 0


def test_status_sees_a_killed_member_by_its_lease(command, etcd_url, prefix):
    code = (
        "import rink, time\n"
        f"session = rink.Session({etcd_url!r}, prefix={prefix!r}, ttl=18)\n"
        "r = rink.Rink(session, 'orders', name='a').join()\n"
        "r.wait_settled(); print('in', flush=True); time.sleep(99)\n"
    )
    with Lines([sys.executable, "-c", code]) as process:
        assert process.next() == "in\n"
        wait_for(lambda: command("status", "orders", "--check").returncode == 0)
        process.process.kill()
        process.process.wait()
        wait_for(lambda: command("status", "orders", "--check").returncode == 3)
        look = json.loads(command("status", "orders", "--json").stdout)
        assert look["settled"] is True
        assert look["leases"]["a"]["renewal_overdue"] is True
        assert 0 < look["leases"]["a"]["ends_within_s"] <= 12
        assert "settled, but a does not renew its lease" in command("status", "orders").stdout


def test_forget_is_refused_until_the_last_member_has_left(command, member):
    with member("a") as a:
        assert a.wait_settled(DEADLINE_S)
        refused = command("forget", "orders", "--yes")
        assert refused.returncode == 1
        assert "still has 1 member (a)" in refused.stderr
        with a.await_role("leader", timeout=DEADLINE_S) as role:
            assert role.is_held
    assert command("wait", "orders", "--members", "0", "--timeout", "30").returncode == 0
    assert command("groups").stdout.startswith("1 group without members is hidden")
    assert command("forget", "orders").stdout == "orders is forgotten: 1 key deleted\n"
    assert command("groups").stdout.startswith("no groups")


def test_wait_answers_by_its_exit_status(command, member):
    with member("a"):
        assert command("wait", "orders", "--settled", "--members", "1").returncode == 0
        late = command("wait", "orders", "--members", "2", "--timeout", "5")
        assert (late.returncode, late.stdout) == (3, "")
        assert late.stderr.endswith("rink: still missing after 5 s: it has 1 member, not 2\n")
    silent = command("wait", "orders", "--settled", "--timeout", "9", "--endpoints", "127.0.0.1:1")
    assert silent.returncode == 1
    assert silent.stderr.startswith("rink: no etcd listens at http://127.0.0.1:1")
