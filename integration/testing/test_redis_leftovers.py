"""Test that test servers of Redis leave nothing behind.

Also test that two runs at once share no ports.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from processes import is_alive
from servers_support import wait_until

from rink.errors import RinkError
from rink.testing import RedisServerError, local_redis, redis_pair
from rink.testing.redis_server.start import ADMIN_USER

pytestmark = [pytest.mark.waits, pytest.mark.usefixtures("no_given_redis")]

# Start servers of each kind, print their processes, folders and ports, and wait.
RUN = textwrap.dedent("""
    import json, sys
    from rink.testing import local_redis, redis_cluster, redis_pair
    with local_redis() as one, redis_cluster(3) as cluster, redis_pair(sentinel=True) as pair:
        one.save_copy()
        one.freeze()
        nodes = [one, *cluster.nodes, pair.master, pair.replica, pair.sentinel]
        pids = [each.pid for each in nodes] + [each._process._reaper.pid for each in nodes]
        folders = [str(each.log_path.parents[1]) for each in nodes]
        ports = [each.port for each in nodes]
        ports += [int(each.call("CONFIG", "GET", "cluster-port")[1]) for each in cluster.nodes]
        print(json.dumps([pids, folders, ports]), flush=True)
        sys.stdin.read()
""")


class Run:
    """Run test servers in another process."""

    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.pids, self.folders, self.ports = json.loads(self.process.stdout.readline())
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def has_left_nothing(self):
        return not any(map(is_alive, self.pids)) and not any(map(os.path.exists, self.folders))


def test_nothing_is_left_after_the_with():
    with pytest.raises(RinkError), redis_pair(sentinel=True) as pair:  # noqa: PT012
        pair.replica.freeze()
        pids = [node.pid for node in (pair.master, pair.replica, pair.sentinel)]
        folder = pair.master.log_path.parents[1]
        assert folder.exists()
        raise RinkError
    assert not any(map(is_alive, pids))
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_run_that_was_killed(number):
    with Run() as run:
        assert all(map(is_alive, run.pids))
        assert all(map(os.path.exists, run.folders))
        run.process.send_signal(number)
        wait_until(run.has_left_nothing)


def test_two_runs_at_once_have_ports_of_their_own():
    with Run() as one, Run() as other:
        assert len({*one.ports, *other.ports}) == len(one.ports) + len(other.ports)
        one.process.stdin.close()
        wait_until(one.has_left_nothing)
        assert all(map(is_alive, other.pids))


def test_nothing_is_left_after_the_reaper_is_killed():
    with local_redis() as node:
        pid, folder = node.pid, node.log_path.parents[1]
        os.kill(node._process._reaper.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))
        with pytest.raises(RedisServerError, match="reaper"):
            node.kill()
    assert not folder.exists()


def test_servers_listen_on_loopback_and_the_admin_has_a_password():
    with local_redis(password="pw") as node:
        rows = [
            row.split()
            for table in ("tcp", "tcp6")
            for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        ]
        listening = {row[1] for row in rows if row[3] == "0A"}
        assert {each for each in listening if each.endswith(f":{node.port:04X}")} == {
            f"0100007F:{node.port:04X}"
        }
        (ours,) = [each for each in node.call("ACL", "LIST") if f"user {ADMIN_USER} " in each]
        assert "nopass" not in ours
