"""Test that test servers of etcd leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path

import pytest
from processes import is_alive
from servers_support import QUICK, wait_until

from rink.errors import EtcdError, RinkError, UsageError
from rink.testing import etcd_cluster, local_etcd

pytestmark = [pytest.mark.waits, pytest.mark.usefixtures("no_given_etcd")]


def test_nothing_is_left_after_the_with():
    with pytest.raises(RinkError), etcd_cluster(3, **QUICK) as cluster:  # noqa: PT012
        cluster.nodes[0].freeze()
        pids = [node.pid for node in cluster.nodes]
        folder = cluster.nodes[0].log_path.parents[1]
        assert folder.exists()
        raise RinkError
    assert not any(map(is_alive, pids))
    assert not folder.exists()


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "exit", "sys.exit", "forked child"])
def test_nothing_is_left_after_the_parent_ends(end):
    script = textwrap.dedent("""
        import json, os, sys, time
        from rink.testing import local_etcd, etcd_cluster
        one = local_etcd()
        node = one.__enter__()
        node.freeze()
        several = etcd_cluster(2)
        nodes = several.__enter__().nodes
        pids = [each.pid for each in (node, *nodes)]
        reapers = [each._process._reaper.pid for each in (node, nodes[0])]
        folders = [str(each.log_path.parents[1]) for each in (node, nodes[0])]
        if sys.argv[1] == "forked child" and os.fork() == 0:
            os.close(1)
            time.sleep(60)  # holds the reapers' pipes open
            os._exit(0)
        print(json.dumps([pids + reapers, folders]), flush=True)
        if sys.argv[1] == "exit":
            os._exit(0)
        if sys.argv[1] == "sys.exit":
            sys.exit()
        time.sleep(60)
    """)
    parent = subprocess.Popen(
        [sys.executable, "-c", script, end], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        pids, folders = json.loads(parent.stdout.readline())
        assert all(map(is_alive, pids)) or "exit" in end
        if end == "forked child":
            parent.kill()
        elif end.startswith("SIG"):
            parent.send_signal(signal.Signals[end])
        parent.wait(60)
        wait_until(lambda: not any(map(is_alive, pids)))
        wait_until(lambda: not any(map(os.path.exists, folders)))
    finally:
        os.killpg(parent.pid, signal.SIGKILL) if end == "forked child" else parent.kill()
        parent.wait()
        parent.stdout.close()


def test_nothing_is_left_after_the_reaper_is_killed():
    with local_etcd() as node:
        pid, folder = node.pid, node.log_path.parents[1]
        os.kill(node._process._reaper.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))
        with pytest.raises(EtcdError, match="reaper"):
            node.kill()
    assert not folder.exists()


def test_thread_that_starts_a_server_may_end():
    """With PR_SET_PDEATHSIG alone, the server would end with the thread."""
    import threading

    nodes = []
    context = local_etcd()
    thread = threading.Thread(target=lambda: nodes.append(context.__enter__()))
    thread.start()
    thread.join()
    time.sleep(0.5)
    assert nodes[0].is_healthy
    context.__exit__(None, None, None)
    assert not nodes[0].log_path.exists()


def test_forked_child_neither_uses_nor_ends_the_parent_s_servers():
    with local_etcd() as node:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                node.kill()
            except UsageError:
                node._process._reaper.close()
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert node.is_healthy


def test_servers_listen_on_loopback_only():
    with local_etcd() as node:
        port = int(node.endpoint.rpartition(":")[2])
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = {row[1] for row in rows if row[3] == "0A"}
        assert f"0100007F:{port:04X}" in listening
        with urllib.request.urlopen(f"{node.endpoint}/version", timeout=5) as answer:
            assert b"etcdserver" in answer.read()
